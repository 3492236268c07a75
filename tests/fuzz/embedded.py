"""An embedded server in a process of its own, so that it and the client each have a core."""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fuzz.defects import planted
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from support.apiserver import Server

_FIRST_REVISION = 1_000_000
"""So that no version looks like another number in a message."""


@contextlib.contextmanager
def running_embedded(defect: str = "") -> Iterator[Server]:
    """A server, perhaps with a defect, that ends with the context."""
    tests = Path(__file__).resolve().parent.parent
    command = [sys.executable, "-m", "fuzz.embedded", *([f"--defect={defect}"] if defect else [])]
    paths = [str(tests), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, env=environment
    ) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the server has no output")
            line = process.stdout.readline()
            if not line:
                raise RuntimeError("the embedded server did not start")
            found = json.loads(line)
            yield Server(found["url"], found["token"], None, embedded=True)
        finally:
            process.terminate()


async def _serve() -> None:
    server = ApiServer(ApiServerConfig())
    server.core.store.revision = _FIRST_REVISION
    await server.start()
    print(json.dumps({"url": server.url, "token": server.config.token}), flush=True)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    # The parent holds the other end: it ends with the parent, however that goes.
    loop.add_reader(sys.stdin, stopped.set)
    await stopped.wait()
    await server.stop()


def main() -> None:
    """Serve until the parent ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--defect", default="")
    with planted(parser.parse_args().defect):
        asyncio.run(_serve())


if __name__ == "__main__":
    main()
