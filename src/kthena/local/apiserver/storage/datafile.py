"""The file that keeps objects over restarts: SQLite in WAL mode, one row for each object.

A write is one transaction, synced to the disk when it returns; a crash of the process or of the
machine leaves the file as the last transaction made it. Every row has a checksum, so that an object
which the disk has changed is noticed. A file that this release cannot read is left as it is, and so
is one that another process uses; one of an earlier format is brought to the present one first.
"""

import contextlib
import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar
from urllib.parse import quote

FORMAT: Final = 2
"""The version of the tables; a file of a later one is refused."""

MIGRATIONS: Final[Mapping[int, str]] = {
    1: """
        ALTER TABLE objects ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
        UPDATE objects SET data = CAST(data AS BLOB) WHERE bucket = '';
        UPDATE objects SET checksum = checksum_of(bucket, path, data);
    """,
}
"""What brings a file from a format to the next one; every format before `FORMAT` has its step."""

APPLICATION_ID: Final = int.from_bytes(b"kthn")
"""Marks a SQLite file as one of these."""

FILE_NAME: Final = "objects.db"
_LOCK_NAME: Final = "lock"

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_FORMAT_AT: Final = slice(60, 64)
_APPLICATION_AT: Final = slice(68, 72)

_OTHER_DIRECTORY: Final = "choose another directory"

_CHANGED: Final = "it is not what was written, by its checksum"

_ROWS_AT_ONCE: Final = 128
"""Rows of one statement: few statements, since each gives up and takes the interpreter's lock."""

_SCHEMA: Final = """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY,
        bucket TEXT NOT NULL,
        path TEXT NOT NULL,
        data BLOB NOT NULL,
        checksum INTEGER NOT NULL DEFAULT 0,
        UNIQUE (bucket, path)
    );
    INSERT INTO objects (bucket, path, data, checksum)
    VALUES ('', '', X'31', checksum_of('', '', X'31'));
"""
"""The row of no bucket holds the revision: so a write is mostly one statement."""

_REVISION: Final = "SELECT data, checksum FROM objects WHERE bucket = '' AND path = ''"

_Row = TypeVar("_Row")
_Statement: TypeAlias = tuple[str, Sequence[object]]


class StorageError(Exception):
    """The objects cannot be read or kept: `problem` names the file and the cause, `fix` what helps."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(f"{problem}; {fix}")
        self.problem = problem
        self.fix = fix


class Place(NamedTuple):
    """Where an object is stored."""

    bucket: str
    path: str


_REVISION_PLACE: Final = Place("", "")


class DataFile:
    """An open file, which no other process can open.

    It may be used by one thread at a time. Mutable state: the connection, and the descriptor that holds the lock.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, lock: int) -> None:
        self.path = path
        self._connection = connection
        self._lock = lock

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The file of a directory; both are made where they do not exist.

        Raises:
            StorageError: the file is damaged, of a newer release or no such file at all, another
                process uses it, or the system refuses.
        """
        path = directory / FILE_NAME
        try:
            with contextlib.ExitStack() as stack:
                directory.mkdir(parents=True, exist_ok=True, mode=0o700)
                lock = _take_lock(directory / _LOCK_NAME)
                stack.callback(os.close, lock)
                if path.exists():
                    _check_header(path)
                else:
                    _make(path)
                connection = stack.enter_context(contextlib.closing(_connect(path)))
                _migrate(path, connection)
                _check_content(path, connection)
                stack.pop_all()
                return cls(path, connection, lock)
        except OSError as exc:
            problem = f"{exc.filename or path}: {exc.strerror or exc}"
            raise StorageError(problem, _OTHER_DIRECTORY) from exc
        except sqlite3.Error as exc:
            raise damaged(path, str(exc)) from exc

    @property
    def revision(self) -> int:
        """The revision of the last write; 1 before the first."""
        ((revision, _),) = self._connection.execute(_REVISION)
        return int(revision)

    def objects(self) -> Iterator[tuple[Place, bytes]]:
        """All objects, in the order of their places.

        Raises:
            StorageError: the file is damaged.
        """
        query = (
            "SELECT bucket, path, data, checksum FROM objects "
            "WHERE bucket <> '' ORDER BY bucket, path"
        )
        try:
            for bucket, path, data, checksum in self._connection.execute(query):
                if checksum != _checksum_of(bucket, path, data):
                    raise damaged(self.path, f"{bucket} {path}: {_CHANGED}")
                yield Place(bucket, path), data
        except sqlite3.Error as exc:
            raise damaged(self.path, str(exc)) from exc

    def write(self, changes: Mapping[Place, bytes | None], revision: int) -> None:
        """Replace objects, or remove those that are None, all at once and for good.

        Raises:
            StorageError: nothing has been written.
        """
        kept = [_row(place, data) for place, data in changes.items() if data is not None]
        kept.append(_row(_REVISION_PLACE, b"%d" % revision))
        removed = [place for place, data in changes.items() if data is None]
        statements = [_replacing(rows) for rows in _portions(kept)]
        statements += [_removing(places) for places in _portions(removed)]
        if len(statements) > 1:
            statements = [("BEGIN IMMEDIATE", ()), *statements, ("COMMIT", ())]
        try:
            for text, values in statements:
                self._connection.execute(text, values)
        except sqlite3.Error as exc:
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise StorageError(
                f"{self.path} cannot be written: {exc}",
                "what was written before is kept: see to the disk, then start again",
            ) from exc

    def close(self) -> None:
        """Close the file and let others have it; a second time does nothing."""
        self._connection.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _row(place: Place, data: bytes) -> tuple[str, str, bytes, int]:
    return (*place, data, _checksum_of(*place, data))


def _checksum_of(bucket: str, path: str, data: bytes) -> int:
    """The checksum of a row; that of no row where the file gives another type, being damaged."""
    if not isinstance(data, bytes):
        return -1
    return zlib.crc32(data, zlib.crc32(f"{bucket}\0{path}\0".encode()))


def _replacing(rows: Sequence[tuple[str, str, bytes, int]]) -> _Statement:
    values = ",".join(["(?,?,?,?)"] * len(rows))
    text = (
        f"INSERT INTO objects (bucket, path, data, checksum) VALUES {values} "  # noqa: S608
        "ON CONFLICT (bucket, path) DO UPDATE SET data = excluded.data, checksum = excluded.checksum"
    )
    return text, _flat(rows)


def _removing(places: Sequence[Place]) -> _Statement:
    values = ",".join(["(?,?)"] * len(places))
    return f"DELETE FROM objects WHERE (bucket, path) IN (VALUES {values})", _flat(places)  # noqa: S608


def _portions(rows: Sequence[_Row]) -> Iterator[Sequence[_Row]]:
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        yield rows[start : start + _ROWS_AT_ONCE]


def _flat(rows: Sequence[Sequence[object]]) -> list[object]:
    return [value for row in rows for value in row]


def damaged(path: Path, cause: str) -> StorageError:
    """The error that a file which cannot be understood is."""
    return StorageError(
        f"{path} is damaged: {cause}",
        "put back a copy of it, or move it away to start without objects",
    )


def _foreign(path: Path, cause: str) -> StorageError:
    return StorageError(
        f"{path} does not hold objects of kthena: {cause}",
        f"move it away, or {_OTHER_DIRECTORY}",
    )


def _take_lock(path: Path) -> int:
    """A descriptor that holds the lock; the kernel takes it back when the process is gone."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(descriptor)
        raise StorageError(
            f"{path.parent} is in use by another process", f"stop it, or {_OTHER_DIRECTORY}"
        ) from exc
    return descriptor


def _check_header(path: Path) -> None:
    """Look at the file before SQLite does, which may write to what it opens.

    Raises:
        StorageError: it is none of ours, or of a release to come.
    """
    with path.open("rb") as file:
        header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        raise _foreign(path, "it is no SQLite database")
    if int.from_bytes(header[_APPLICATION_AT]) != APPLICATION_ID:
        raise _foreign(path, "it is the database of another program")
    _check_format(path, int.from_bytes(header[_FORMAT_AT]))


def _check_format(path: Path, version: int) -> None:
    if version != FORMAT and version not in MIGRATIONS:
        raise StorageError(
            f"{path} has format {version}, and this release of kthena reads format {FORMAT}",
            f"use the release that has written it, or {_OTHER_DIRECTORY}",
        )


def _make(path: Path) -> None:
    """Make the file under another name first, so that a crash leaves none that is half made."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        raise StorageError(
            f"{path} is missing, but {log.name} beside it holds changes to it",
            "put the file back, or move the other away too to start without objects",
        )
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    # Secrets are in it.
    os.close(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(new)) as connection:
        _add_functions(connection)
        connection.executescript(_SCHEMA)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {FORMAT}")
    _sync(new)
    new.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw",
        uri=True,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=2 * _ROWS_AT_ONCE + 8,
    )
    # FULL also syncs the log of a commit, so that a loss of power loses none.
    for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {pragma}")
    _add_functions(connection)
    return connection


def _add_functions(connection: sqlite3.Connection) -> None:
    connection.create_function("checksum_of", 3, _checksum_of, deterministic=True)


def _migrate(path: Path, connection: sqlite3.Connection) -> None:
    """Bring the file to the present format; each step is a transaction of its own.

    The header may be behind: what was written last is in the log beside the file.
    """
    while (version := _version_of(connection)) != FORMAT:
        _check_format(path, version)
        connection.executescript(
            f"BEGIN IMMEDIATE; {MIGRATIONS[version]}; PRAGMA user_version = {version + 1}; COMMIT;"
        )


def _version_of(connection: sqlite3.Connection) -> int:
    ((version,),) = connection.execute("PRAGMA user_version")
    return int(version)


def _check_content(path: Path, connection: sqlite3.Connection) -> None:
    # The full check also compares the index, by which rows are replaced, with the rows.
    for (said,) in connection.execute("PRAGMA integrity_check(1)"):
        if said != "ok":
            raise damaged(path, str(said))
    row = connection.execute(_REVISION).fetchone()
    if row is None:
        raise damaged(path, "it does not say at which revision it is")
    data, checksum = row
    if checksum != _checksum_of(*_REVISION_PLACE, data):
        raise damaged(path, f"its revision: {_CHANGED}")
