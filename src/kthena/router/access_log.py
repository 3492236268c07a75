"""The access log: where its lines go.

Lines are written in batches, and only as far as the output takes them without blocking: a full pipe
must not stop requests. What is left waits within bounds; beyond, lines are dropped and counted.
"""

import os
import select
import stat
import sys
from collections.abc import Sequence
from typing import Final

from kthena.router.config import AccessLogConfig

_MAX_PENDING_BYTES: Final = 8 * 1024 * 1024
_FILE_STEP: Final = 1024 * 1024


class AccessLog:
    """Writes entries to where the configuration says.

    Mutable state: the output, and the bytes that it has not taken yet.
    """

    def __init__(self, config: AccessLogConfig) -> None:
        self.enabled = config.enabled
        self.format = config.format
        self.dropped = 0
        """Lines lost because the output was too slow."""
        self._output = config.output
        self._pending = bytearray()
        self._descriptor = -1
        self._step = 0
        self._writable = select.poll()

    def open(self) -> None:
        """Open the output.

        Raises:
            OSError: the file cannot be opened.
        """
        if not self.enabled:
            return
        if self._output in {"stdout", "stderr"}:
            stream = sys.stdout if self._output == "stdout" else sys.stderr
            self._descriptor = os.dup(stream.fileno())
        else:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._descriptor = os.open(self._output, flags, 0o644)
        is_file = stat.S_ISREG(os.fstat(self._descriptor).st_mode)
        self._step = _FILE_STEP if is_file else select.PIPE_BUF
        self._writable.register(self._descriptor, select.POLLOUT)

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines, or drop them if too much is pending already."""
        if len(self._pending) > _MAX_PENDING_BYTES:
            self.dropped += len(lines)
        else:
            self._pending += b"".join(lines)
        self.flush()

    @property
    def pending(self) -> bool:
        """Whether the output has not taken everything yet."""
        return bool(self._pending)

    def flush(self) -> None:
        """Write what the output takes without blocking."""
        # A pipe that polls as writable takes PIPE_BUF bytes; a file never blocks for long.
        while self._pending and self._writable.poll(0):
            try:
                written = os.write(self._descriptor, self._pending[: self._step])
            except OSError:
                # A closed pipe ends the log, not the router.
                self._pending.clear()
                self.enabled = False
                break
            del self._pending[:written]

    def close(self) -> None:
        """Write what the output takes at once, and close it."""
        if self._descriptor >= 0:
            self.flush()
            self._writable.unregister(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
        self.enabled = False
