"""The tables of Go types are those of the pinned release."""

import shutil
import subprocess
from pathlib import Path

import pytest

import kthena.local.apiserver

_HERE = Path(__file__).parent
_MODULE = _HERE.parent / "controlplane"
_DATA = Path(kthena.local.apiserver.__file__).parent / "data"


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not on the PATH")
@pytest.mark.parametrize(
    ("arguments", "name"), [((), "gotypes.json"), (("protobuf",), "protobuf.json")]
)
def test_tables_are_those_of_the_release(arguments: tuple[str, ...], name: str) -> None:
    command = ["go", "run", str(_HERE / "gotypes" / "main.go"), *arguments]
    made = subprocess.run(command, cwd=_MODULE, capture_output=True, check=True, timeout=110)
    assert made.stdout == (_DATA / name).read_bytes()
