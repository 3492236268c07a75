"""The data directory of what runs pods: the user's own, or one that goes with the process."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kthena.cli.errors import CliError, ExitCode

_PREFIX = "kthena-"


@contextmanager
def data_directory(given: Path | None) -> Iterator[Path]:
    """The directory that the user gave, made if it is not there; else a temporary one.

    Raises:
        CliError: the directory cannot be made.
    """
    if given is not None:
        try:
            given.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            # A file in its place is "File exists" to mkdir, which does not say what is wrong.
            cause = "it is not a directory" if isinstance(exc, FileExistsError) else exc.strerror
            raise CliError(
                f"--data-dir {given}: {cause or exc}",
                hint="--data-dir takes another directory",
                exit_code=ExitCode.USAGE,
            ) from exc
        yield given.resolve()
        return
    _sweep()
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _sweep() -> None:
    """Remove the temporary directories of processes that were killed."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        pid = directory.name.removeprefix(_PREFIX).partition("-")[0]
        if not pid.isdigit() or Path(f"/proc/{pid}").exists():
            continue
        with contextlib.suppress(OSError):
            if directory.lstat().st_uid == os.getuid() and not directory.is_symlink():
                shutil.rmtree(directory, ignore_errors=True)
