"""Runs the tests that are to find the planted defects, with each defect and with none.

A process of its own, since pytest runs in it many times. It prints a JSON object: for each defect, whether
its test failed; under the empty name, whether all of them passed without a defect.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import pytest

from fuzz.defects import DEFECTS, planted

_SUITE = Path(__file__).resolve().parent.parent / "apiserver"


def _run(tests: list[str]) -> int:
    options = ["-x", "-q", "-m", "not cluster", "-p", "no:cacheprovider", "-p", "no:xdist"]
    with contextlib.redirect_stdout(io.StringIO()):
        return int(pytest.main([*options, *(str(_SUITE / test) for test in tests)]))


def main() -> None:
    """Run and print."""
    found = {"": _run(sorted({defect.test for defect in DEFECTS.values()})) == 0}
    for name, defect in DEFECTS.items():
        with planted(name):
            # Exactly a failed test: anything else is a mistake in how it was run.
            found[name] = _run([defect.test]) == 1
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
