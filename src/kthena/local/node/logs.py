"""Container logs: files of the node, read as `kubectl logs` asks for them.

Each run of a container has its file with standard output and error as they were written, without
times; so `since` and `timestamps` cannot be had. The texts of errors are the kubelet's.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

from kthena.local.apiserver.logs import LogError, LogOptions

_CHUNK: Final = 65536
_POLL_S: Final = 0.1


def check_options(options: LogOptions) -> None:
    """Refuse what the files cannot tell.

    Raises:
        LogError: times were asked for.
    """
    if options.timestamps or options.since_s is not None or options.since_time:
        raise LogError("logs of the local node have no times: leave out timestamps and since")


async def read_log(
    path: Path, options: LogOptions, ended: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The log in chunks; when following, until the run has ended and everything was read."""
    left = options.limit_bytes
    with path.open("rb") as file:
        if options.tail_lines is not None:
            file.seek(_tail_offset(path, options.tail_lines))
        while left is None or left > 0:
            # Asked before reading: what was written before the end is then read.
            over = not options.follow or ended()
            chunk = file.read(_CHUNK if left is None else min(_CHUNK, left))
            if chunk:
                left = None if left is None else left - len(chunk)
                yield chunk
            elif over:
                return
            else:
                await asyncio.sleep(_POLL_S)


def _tail_offset(path: Path, lines: int) -> int:
    """Where the last `lines` lines begin."""
    size = path.stat().st_size
    if lines <= 0:
        return size
    with path.open("rb") as file:
        position, seen = size, 0
        while position > 0:
            start = max(position - _CHUNK, 0)
            file.seek(start)
            block = file.read(position - start)
            for index in range(len(block) - 1, -1, -1):
                # The newline that ends the file begins no line.
                if block[index] == 10 and start + index != size - 1:
                    seen += 1
                    if seen == lines:
                        return start + index + 1
            position = start
    return 0
