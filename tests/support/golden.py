"""Golden tables: rows of inputs with the answers of the Go libraries behind Kubernetes.

`tools/goldens` writes the answers; a test compares ours with them row by row.
"""

import json
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent.parent / "unit" / "machinery" / "golden"


def golden_rows(name: str) -> list[dict[str, Any]]:
    """All rows of a table, in file order. Each is a fresh object."""
    rows: list[dict[str, Any]] = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return rows


def golden_params(name: str, *identity: str) -> list[Any]:
    """The rows of a table as pytest parameters, named by the given columns."""
    return [
        pytest.param(row, id=f"{index}-" + "|".join(_short(row.get(column)) for column in identity))
        for index, row in enumerate(golden_rows(name))
    ]


def _short(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return ascii(text)[1:41]
