"""The file that keeps objects: what is noticed of damage, other formats, and other users."""

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.storage.datafile import (
    APPLICATION_ID,
    FILE_NAME,
    FORMAT,
    MIGRATIONS,
    DataFile,
    Place,
    StorageError,
)
from support.apiserver import CORE, config_map, embedded_api
from support.durable import durable_server

MAPS = f"{CORE}/namespaces/default/configmaps"


def spoil_header(path: Path) -> None:
    path.write_bytes(b"something else\n" * 100)


def make_foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE notes (text TEXT)")
    connection.close()


def make_newer(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()


def spoil_pages(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x55" * (len(data) - 4096)
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def spoil_object(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE objects SET data = '{\"metadata\":' WHERE path = 'default/m3'")
    connection.close()


def move_object(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE objects SET path = 'default/m999' WHERE path = 'default/m3'")
    connection.close()


def change_object(path: Path) -> None:
    """One bit, as a disk may lose it: SQLite sees nothing, and the object is still JSON."""
    data = path.read_bytes()
    assert data.count(b"marker-of-m3") == 1
    path.write_bytes(data.replace(b"marker-of-m3", b"marker-of-m2"))


def lose_file(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}-wal"))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoil_header, "does not hold objects of kthena: it is no SQLite database"),
        (make_foreign, "does not hold objects of kthena: it is the database of another program"),
        (make_newer, "has format 99, and this release of kthena reads format 2"),
        (spoil_pages, "is damaged"),
        (cut, "is damaged"),
        (spoil_object, "is damaged: configmaps default/m3"),
        (move_object, "is damaged: configmaps default/m999"),
        (change_object, "is damaged: configmaps default/m3: it is not what was written"),
        (lose_file, "is missing, but objects.db-wal beside it holds changes to it"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_and_left_alone(
    tmp_path: Path, spoil: Callable[[Path], None], says: str
) -> None:
    with embedded_api(ApiServerConfig(data_dir=tmp_path)) as (_, api):
        for number in range(20):
            data = {"k": "x" * 500, "marker": f"marker-of-m{number}."}
            api.create(MAPS, config_map(f"m{number}", data)).expect(201)
    path = tmp_path / FILE_NAME
    spoil(path)
    before = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(StorageError) as caught:
        Core(ApiServerConfig(data_dir=tmp_path))
    assert str(caught.value).startswith(f"{path} ")
    assert says in str(caught.value)
    assert "; " in str(caught.value)
    after = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    assert {name: after.get(name) for name in before} == before


def test_no_byte_changes_unnoticed(tmp_path: Path) -> None:
    """Any one that is flipped is noticed, or changes nothing of what is read."""
    file = DataFile.open(tmp_path)
    places = [Place("things", f"default/m{number}") for number in range(12)]
    file.write({place: place.path.encode() * 70 for place in places}, 12)
    file.close()
    path = tmp_path / FILE_NAME
    good = path.read_bytes()
    expected = held_by(tmp_path)
    draw = random.Random(4)
    noticed = 0
    for _ in range(400):
        where = draw.randrange(len(good))
        bad = bytearray(good)
        bad[where] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        try:
            assert held_by(tmp_path) == expected, f"byte {where}"
        except StorageError:
            noticed += 1
        for other in tmp_path.glob(f"{FILE_NAME}-*"):
            other.unlink()
    assert noticed > 100


def held_by(directory: Path) -> tuple[int, list[Any]]:
    file = DataFile.open(directory)
    try:
        return file.revision, list(file.objects())
    finally:
        file.close()


FIRST_FORMAT = """
    CREATE TABLE objects (
        id INTEGER PRIMARY KEY, bucket TEXT NOT NULL, path TEXT NOT NULL, data BLOB NOT NULL,
        UNIQUE (bucket, path)
    );
    INSERT INTO objects (bucket, path, data) VALUES ('', '', '7');
    INSERT INTO objects (bucket, path, data) VALUES ('things', 'default/a', CAST('{"a":1}' AS BLOB));
    PRAGMA user_version = 1;
"""


def test_a_file_of_an_earlier_format_is_taken_over(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        connection.executescript(FIRST_FORMAT)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old = (7, [(Place("things", "default/a"), b'{"a":1}')])
    assert held_by(tmp_path) == old
    assert held_by(tmp_path) == old
    file = DataFile.open(tmp_path)
    file.write({Place("things", "default/a"): b'{"a":2}'}, 8)
    file.close()
    assert held_by(tmp_path) == (8, [(Place("things", "default/a"), b'{"a":2}')])
    with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (FORMAT,)
    assert set(MIGRATIONS) == set(range(1, FORMAT))


def test_a_server_that_cannot_begin_leaves_its_directory_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise StorageError("the disk is full", "see to it")

    with monkeypatch.context() as patched:
        patched.setattr(DataFile, "write", fail)
        with pytest.raises(StorageError, match="the disk is full") as caught:
            Core(ApiServerConfig(data_dir=tmp_path))
    # While the error, and with it what has failed, is still referred to.
    with embedded_api(ApiServerConfig(data_dir=tmp_path)) as (_, api):
        api.get(MAPS).expect(200)
    assert caught.value.fix == "see to it"


def test_a_directory_that_another_uses_is_refused(tmp_path: Path) -> None:
    with durable_server(tmp_path), pytest.raises(StorageError, match="in use by another process"):
        Core(ApiServerConfig(data_dir=tmp_path))
    with embedded_api(ApiServerConfig(data_dir=tmp_path)) as (_, api):
        api.get(MAPS).expect(200)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        StorageError, match=r"file/below: Not a directory; choose another directory"
    ):
        Core(ApiServerConfig(data_dir=tmp_path / "file" / "below"))


def test_nobody_else_may_read_the_file(tmp_path: Path) -> None:
    with embedded_api(ApiServerConfig(data_dir=tmp_path / "data")) as (_, api):
        api.create(MAPS, config_map("a")).expect(201)
        modes = {each.name: each.stat().st_mode & 0o777 for each in (tmp_path / "data").iterdir()}
    assert set(modes) >= {FILE_NAME, f"{FILE_NAME}-wal"}
    assert set(modes.values()) == {0o600}
