"""The mock engine as a server: bind, serve, stop.

`EngineServer` runs inside an event loop (tests, benchmarks), `run_engine` is a whole program. The
engine binds the address that its configuration names and nothing else; on SIGTERM it stops
accepting, finishes what runs, and ends.
"""

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Self, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from kthena.kube.clock import Clock, SystemClock
from kthena.local.engine.app import build_app
from kthena.local.engine.config import EngineConfig
from kthena.local.engine.exchange import TRANSPORT_EXTENSION
from kthena.local.engine.service import MockEngine
from kthena.telemetry.logging import get_logger

_log = get_logger("engine")

_BACKLOG = 2048
_DATE_PERIOD_S = 1.0
_EXIT_ADDRESS_IN_USE = 1


class _Protocol(HttpToolsProtocol):
    """uvicorn's protocol, which also hands the transport to the application (for resets)."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        extensions = cast("dict[str, Any]", self.scope.setdefault("extensions", {}))
        extensions[TRANSPORT_EXTENSION] = {"transport": self.transport}


class _Server(uvicorn.Server):
    """A server that says when it listens, and leaves signals to whoever runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()
        self._exit = asyncio.Event()

    def leave(self) -> None:
        """Stop serving; a second call does not wait for requests in flight."""
        self.force_exit = self.should_exit
        self.should_exit = True
        self._exit.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def main_loop(self) -> None:
        """Wait for the end; uvicorn's own loop would wake ten times a second to look for it."""
        while not self.should_exit:
            await self.on_tick(0)  # Tick 0 is the one that renews the date header.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_PERIOD_S):
                    await self._exit.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()


class EngineServer:
    """One engine that serves while the context is open.

    `async with EngineServer(config) as server:` binds (port 0 picks a free one) and yields once it
    accepts connections. Leaving stops it; requests in flight are given a second.

    Raises:
        OSError: the address cannot be bound; the text names it.
    """

    def __init__(self, config: EngineConfig, clock: Clock | None = None) -> None:
        self._socket = _bind(config.host, config.port)
        self.port: int = self._socket.getsockname()[1]
        self.engine = MockEngine(replace(config, port=self.port), clock or SystemClock())
        self._server = _Server(_uvicorn_config(self.engine, 1))
        self._task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"http://{self.engine.config.host}:{self.port}"

    async def __aenter__(self) -> Self:
        """Start and wait until connections are accepted."""
        if self.engine.bootstrap is not None:
            await self.engine.bootstrap.start()
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        await self._server.listening.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop accepting, give running requests a second, and close."""
        self._server.leave()
        if self._task is not None:
            await self._task
        if self.engine.bootstrap is not None:
            await self.engine.bootstrap.stop()


def run_engine(config: EngineConfig) -> int:
    """Serve until SIGTERM or SIGINT; the exit status of the process.

    Requests in flight are finished first; whoever stops the process sets the limit.
    """
    try:
        listener = _bind(config.host, config.port)
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201 - the program's own word to its user
        return _EXIT_ADDRESS_IN_USE
    engine = MockEngine(config, SystemClock())
    return asyncio.run(_serve(engine, listener))


async def _serve(engine: MockEngine, listener: socket.socket) -> int:
    config = engine.config
    if engine.bootstrap is not None:
        try:
            await engine.bootstrap.start()
        except OSError as error:
            print(error, file=sys.stderr)  # noqa: T201 - as above
            return _EXIT_ADDRESS_IN_USE
    _log.info(
        "mock engine serves",
        engine=config.engine,
        models=",".join(config.models),
        address=f"{config.host}:{config.port}",
        role=config.kv.role,
        connector=config.kv.connector,
    )
    server = _Server(_uvicorn_config(engine, None))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, server.leave)
    await server.serve([listener])
    return 0


def _uvicorn_config(engine: MockEngine, graceful_s: int | None) -> uvicorn.Config:
    return uvicorn.Config(
        build_app(engine),
        http=_Protocol,
        ws="none",
        lifespan="off",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=graceful_s,
    )


def _bind(host: str, port: int) -> socket.socket:
    """A listening socket on exactly this address."""
    # Named TCP: asyncio sets TCP_NODELAY only on sockets that say so, and replies wait otherwise.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise OSError(
            error.errno,
            f"the mock engine cannot listen on {host}:{port}: {error.strerror}; "
            "stop what uses the address, or choose another with --host and --port",
        ) from error
    sock.setblocking(False)  # noqa: FBT003 - the only form of this call
    return sock
