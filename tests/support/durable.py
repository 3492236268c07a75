"""An embedded API server with a data directory, in a process that can be killed."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from support.apiserver import Server

_START_S = 30.0


class DurableServer(NamedTuple):
    """A running server and the id of its process."""

    server: Server
    pid: int

    def kill(self) -> None:
        """End it as a crash does."""
        os.kill(self.pid, signal.SIGKILL)


def _serve(data_dir: Path, pipe: Connection) -> None:
    async def run() -> None:
        server = ApiServer(ApiServerConfig(data_dir=data_dir))
        await server.start()
        pipe.send((server.url, server.config.token))
        await asyncio.Event().wait()

    asyncio.run(run())


@contextlib.contextmanager
def durable_server(data_dir: Path) -> Iterator[DurableServer]:
    """A server on a directory; it is killed at the end of the block, if not before."""
    context = multiprocessing.get_context("forkserver")
    # What takes long to import is imported once for all servers.
    context.set_forkserver_preload(["kthena.local.apiserver.server"])
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(data_dir, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(_START_S):
            raise TimeoutError("the server has not started")
        url, token = ours.recv()
        yield DurableServer(Server(url, token, None, embedded=True), process.pid or 0)
    finally:
        process.kill()
        process.join()
