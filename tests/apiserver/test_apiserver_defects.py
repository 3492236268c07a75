"""The suite finds what it is there to find: defects that are planted on purpose."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz.defects import DEFECTS

TESTS = Path(__file__).resolve().parent.parent


@pytest.mark.cluster
@pytest.mark.timeout(300)
def test_planted_defects_are_found() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fuzz.proving"],
        cwd=TESTS.parent,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found.pop(""), "the tests fail without a defect"
    missed = [name for name, is_found in found.items() if not is_found]
    print(f"planted defects: {len(found) - len(missed)} of {len(DEFECTS)} found")
    assert len(found) == len(DEFECTS) >= 20
    assert missed == []
