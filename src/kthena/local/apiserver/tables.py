"""Tables: the form in which kubectl shows objects, and the cells of custom resources.

A row carries the object's metadata, the object, or nothing, as `includeObject` asks. Ages are texts
such as `5m`, made here, as in kube-apiserver.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from kthena.local.apiserver import errors
from kthena.local.apiserver.kinds import Column, Kind, TablePrinter
from kthena.local.apiserver.store import Entry
from kthena.machinery.conditions import parse_time
from kthena.machinery.gotext import format_json
from kthena.machinery.jsonpath import JsonPath, JsonPathError, compile_jsonpath
from kthena.machinery.objects import Object, name_of

API_VERSION: Final = "meta.k8s.io/v1"
INCLUDES: Final = ("None", "Metadata", "Object")

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY

NAME: Final = Column("Name", "string", "name", "The name of the object, unique in its namespace.")
AGE: Final = Column("Age", "string", "", "How long ago the object was created.")


_SECONDS: Final = (1, "s")
_MINUTES: Final = (_MINUTE, "m")
_HOURS: Final = (_HOUR, "h")
_DAYS: Final = (_DAY, "d")
_YEARS: Final = (_YEAR, "y")
_STEPS: Final = (
    (2 * _MINUTE, (_SECONDS,)),
    (10 * _MINUTE, (_MINUTES, _SECONDS)),
    (3 * _HOUR, (_MINUTES,)),
    (8 * _HOUR, (_HOURS, _MINUTES)),
    (2 * _DAY, (_HOURS,)),
    (8 * _DAY, (_DAYS, _HOURS)),
    (2 * _YEAR, (_DAYS,)),
    (8 * _YEAR, (_YEARS, _DAYS)),
)
"""Below how many seconds an age is told in which units."""


def human_duration(seconds: float) -> str:
    """A duration in two or three figures, as kubectl prints ages."""
    whole = int(seconds)
    if whole < 0:
        return "<invalid>" if whole < -1 else "0s"
    units = next((units for limit, units in _STEPS if whole < limit), (_YEARS,))
    text = ""
    for size, name in units:
        count, whole = divmod(whole, size)
        # The first unit is told even where it is zero.
        text += f"{count}{name}" if count or not text else ""
    return text


def age(timestamp: Any, now: datetime) -> str:
    """The age of a timestamp; `<unknown>` for none, `<invalid>` for what is no time."""
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration((now - parse_time(timestamp)).total_seconds())
    except ValueError:
        return "<invalid>"


class CustomResourcePrinter:
    """The name, and the columns that the CRD declares; the age where it declares none."""

    def __init__(self, declared: Sequence[Object]) -> None:
        columns = declared or (
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        )
        self.columns: Sequence[Column] = (NAME, *map(_declared_column, columns))
        self._paths = [_compile(column.get("jsonPath") or "") for column in columns]

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """One cell for each column; empty where the object has no value of the column's type."""
        cells: list[Any] = [name_of(obj)]
        for column, path in zip(self.columns[1:], self._paths, strict=True):
            found = path.find(obj) if path is not None else []
            cells.append(_cell(column.type, found[0], now) if found else None)
        return cells


def _declared_column(declared: Object) -> Column:
    path = declared.get("jsonPath") or ""
    description = f"Custom resource definition column (in JSONPath format): {path}"
    return Column(
        declared["name"],
        declared["type"],
        declared.get("format") or "",
        declared.get("description") or description,
        declared.get("priority") or 0,
    )


def _compile(path: str) -> JsonPath | None:
    try:
        return compile_jsonpath(path)
    except JsonPathError:
        return None


def _cell(kind: str, value: Any, now: datetime) -> Any:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "string":
        return value if isinstance(value, str) else format_json(value)
    if kind == "integer":
        return int(value) if number else None
    if kind == "number":
        return value if number else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date":
        return age(value, now) if isinstance(value, str) else None
    return None


def check_include(include: str) -> None:
    """Whether `includeObject` has a known value.

    Raises:
        ApiError: 400, it has not.
    """
    if include not in ("", *INCLUDES):
        raise errors.bad_request(
            f'Unable to convert to Table as requested: includeObject: Invalid value: "{include}": '
            "must be 'Metadata', 'Object', 'None', or empty"
        )


def partial_metadata(obj: Object) -> Object:
    """Only the metadata of an object."""
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": API_VERSION,
        "metadata": obj.get("metadata") or {},
    }


def object_table(printer: TablePrinter, obj: Object, include: str, now: datetime) -> Object:
    """A table of one object that is not stored as it is, without list metadata."""
    row = {"cells": printer.cells(obj, now), "object": _included(obj, include)}
    return _table(printer, [row])


def _table(printer: TablePrinter, rows: Sequence[Object]) -> Object:
    return {
        "kind": "Table",
        "apiVersion": API_VERSION,
        "metadata": {},
        "columnDefinitions": [column._asdict() for column in printer.columns],
        "rows": rows,
    }


def table(kind: Kind, entries: Sequence[Entry], include: str, now: datetime) -> Object:
    """A table of stored objects of a kind, without list metadata."""
    return _table(kind.printer, [_row(kind, entry, include, now) for entry in entries])


def _row(kind: Kind, entry: Entry, include: str, now: datetime) -> Object:
    obj = kind.read(entry)
    # Built-in kinds are printed in the form in which they are stored.
    printed = entry.decode() if kind.conversion is not None else obj
    included = _included(kind.named(obj), include)
    return {"cells": kind.printer.cells(printed, now), "object": included}


def _included(obj: Object, include: str) -> Object | None:
    """What a row carries of its object."""
    if include == "Object":
        return obj
    return None if include == "None" else partial_metadata(obj)
