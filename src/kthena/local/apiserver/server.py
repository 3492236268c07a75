"""The API server on a socket."""

import asyncio
import socket
from functools import partial
from ipaddress import ip_address
from typing import Any

import uvicorn

from kthena.local.apiserver.app import create_app
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.connection import Connection
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.logs import LogSource
from kthena.local.apiserver.storage.datafile import StorageError

_USER = "kthena"
_KEEP_ALIVE_S = 300
_STOP_S = 2


class ApiServer:
    """Serves one store on loopback, on the running loop.

    Mutable state: the socket and uvicorn's server, between `start` and `stop`.

    Raises:
        StorageError: the data directory cannot be used.
    """

    def __init__(self, config: ApiServerConfig | None = None) -> None:
        self.config = config or ApiServerConfig()
        if self.config.host != "localhost" and not ip_address(self.config.host).is_loopback:
            raise ValueError(
                f"host {self.config.host!r} is no loopback address; the API server runs commands "
                "on this machine and is not served to others"
            )
        self.core = Core(self.config)
        self._server: uvicorn.Server | None = None
        self._socket: socket.socket | None = None

    @property
    def port(self) -> int:
        """The port that is served; 0 before the start."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else 0

    @property
    def url(self) -> str:
        """Where clients reach the server."""
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"http://{host}:{self.port}"

    @property
    def _url_with_token(self) -> str:
        """The URL for kubectl, which sends credentials over plain HTTP only from the URL."""
        scheme, _, address = self.url.partition("://")
        return f"{scheme}://{_USER}:{self.config.token}@{address}"

    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig for this server. It holds the token: write it for its owner alone."""
        name = "kthena-local"
        context = {"cluster": name, "user": name, "namespace": "default"}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": self._url_with_token}}],
            "users": [{"name": name, "user": {"token": self.config.token}}],
            "contexts": [{"name": name, "context": context}],
            "current-context": name,
        }

    def register_log_source(self, node: str, source: LogSource) -> None:
        """Get the logs of pods on `node` from `source`."""
        self.core.logs.register(node, source)

    async def start(self) -> None:
        """Bind and serve; requests are answered from here on.

        Raises:
            OSError: the address cannot be bound.
        """
        family = socket.AF_INET6 if ":" in self.config.host else socket.AF_INET
        # Named TCP: asyncio sets TCP_NODELAY only on sockets that say so, and replies wait otherwise.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.config.host, self.config.port))
        except OSError as exc:
            listener.close()
            raise OSError(
                exc.errno,
                f"the API server cannot listen on {self.config.host}:{self.config.port}: "
                f"{exc.strerror}",
            ) from exc
        connection: Any = partial(Connection, head_timeout_s=self.config.head_timeout_s)
        config = uvicorn.Config(
            create_app(self.core),
            http=connection,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_STOP_S,
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # Not `serve`: it takes over the signal handlers of the process.
        await server.startup(sockets=[listener])
        self._server, self._socket = server, listener
        self.core.background.start()

    async def stop(self) -> None:
        """End all watches, let requests finish for a short time, and close the socket and the data.

        A server that was never started is stopped as well, since it has its data open.
        """
        server, listener = self._server, self._socket
        self._server = self._socket = None
        self.core.stop()
        if server is not None and listener is not None:
            await server.shutdown(sockets=[listener])
        await self.core.close()

    @property
    def failure(self) -> StorageError | None:
        """Why objects cannot be kept any more; None as long as they can be."""
        return self.core.journal.failure if self.core.journal is not None else None

    async def wait_failed(self) -> None:
        """Wait until objects cannot be kept any more; in memory they always can be.

        Raises:
            StorageError: the data directory has failed; every request is answered with 500 since.
        """
        if self.core.journal is None:
            await asyncio.Event().wait()
        else:
            await self.core.journal.wait_failed()
