"""What commands print: tables as kubectl lays them out, and objects as YAML or JSON.

The server fills the cells of a Table (it knows the printer columns of every kind); here they are
only laid out. Escape sequences go to terminals only.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from kthena.machinery.objects import Object

_GAP = "   "


def table_text(table: Object, *, wide: bool = False, with_namespace: bool = False) -> str:
    """A `meta.k8s.io/v1` Table as text; columns of priority above 0 only when `wide`."""
    definitions = table.get("columnDefinitions") or []
    shown = [
        index for index, column in enumerate(definitions) if wide or not column.get("priority")
    ]
    header = [str(definitions[index]["name"]).upper() for index in shown]
    rows = []
    for row in table.get("rows") or []:
        cells = row.get("cells") or []
        texts = [_cell(cells[index]) if index < len(cells) else "" for index in shown]
        if with_namespace:
            metadata = (row.get("object") or {}).get("metadata") or {}
            texts.insert(0, str(metadata.get("namespace") or ""))
        rows.append(texts)
    if with_namespace:
        header.insert(0, "NAMESPACE")
    return columns([header, *rows])


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as aligned text, one line each, without trailing blanks."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (
        _GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "<none>"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def json_text(obj: Any) -> str:
    """An object as indented JSON."""
    return json.dumps(obj, indent=4, ensure_ascii=False)


def age(timestamp: str, now: datetime | None = None) -> str:
    """How long ago an RFC 3339 time was, as kubectl writes it (`35s`, `5m12s`, `3h`, `2d`)."""
    if not timestamp:
        return "<unknown>"
    moment = datetime.fromisoformat(timestamp)
    seconds = max(int(((now or datetime.now(UTC)) - moment).total_seconds()), 0)
    return duration(seconds)


def duration(seconds: int) -> str:
    """Seconds as kubectl's HumanDuration: two units while the first is small, else one."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    for limit, text in (
        (minutes < 10, f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"),
        (hours < 3, f"{minutes}m"),
        (hours < 8, f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"),
        (hours < 48, f"{hours}h"),
        (days < 8, f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"),
    ):
        if limit:
            return text
    return f"{days}d"


class LiveTable:
    """A table that is drawn anew in place on a terminal, and printed on change elsewhere."""

    def __init__(self) -> None:
        self._lines = 0
        self._last = ""
        self._terminal = sys.stdout.isatty()

    def show(self, text: str) -> None:
        """Show the table; equal text is not printed twice."""
        if text == self._last:
            return
        self._last = text
        if self._terminal and self._lines:
            sys.stdout.write(f"\x1b[{self._lines}A\x1b[J")
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        self._lines = text.count("\n") + 1

    def note(self, text: str) -> None:
        """Print a line above the next table."""
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        self._lines = 0
        self._last = ""


def names(values: Iterable[str]) -> str:
    """Values joined for a sentence, sorted."""
    return ", ".join(sorted(values))
