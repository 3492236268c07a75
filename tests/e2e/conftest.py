"""A workspace for each test: kthena from outside, as its user runs it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.programs import Workspace, workspace


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    """A home of its own; at the end of the test nothing of it may be left running."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    with workspace(folder) as space:
        yield space
    space.until_nothing_left()
