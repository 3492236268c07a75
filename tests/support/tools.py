"""Programs beside Python that some tests need."""

import os
import shutil

import pytest


def require_tool(name: str) -> str:
    """The program's path. Without it the test is skipped, or fails where it must be there."""
    path = shutil.which(name)
    if path:
        return path
    reason = f"no {name} on the PATH"
    if os.environ.get("KTHENA_REQUIRE_TOOLS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
