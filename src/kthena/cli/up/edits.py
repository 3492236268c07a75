"""Noticing that input files were edited, without a library for it.

Sizes and times of the files are compared; a folder's entry list is part of it, so files that come
and go are noticed too. A look costs microseconds a file.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of some files at one time; equal snapshots mean that nothing was edited."""

    entries: tuple[tuple[str, int, int], ...]

    @classmethod
    def take(cls, paths: Iterable[Path]) -> "Snapshot":
        """The state of the files now; an absent one has a state too."""
        return cls(tuple(_state(path) for path in paths))


def _state(path: Path) -> tuple[str, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (str(path), -1, -1)
    return (str(path), stat.st_mtime_ns, stat.st_size)
