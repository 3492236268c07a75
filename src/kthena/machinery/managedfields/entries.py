"""The list `metadata.managedFields`: read into managers and what they own, and written again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from kthena.machinery.conditions import parse_time
from kthena.machinery.managedfields.fieldsets import EMPTY, FieldSet, FieldSetError, read, union

Operation: TypeAlias = Literal["Apply", "Update"]

UNKNOWN: Final = "unknown"
"""The manager of a write whose client says no name."""

_FIELDS_TYPE: Final = "FieldsV1"
_MAX_UPDATERS: Final = 10
_OLD_UPDATES: Final = "ancient-changes"


class EntryError(ValueError):
    """A list of managed fields that the API does not take."""


class Manager(NamedTuple):
    """Who owns fields. One that applies is the same in all versions: its `api_version` is empty."""

    name: str
    operation: Operation
    api_version: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Owned:
    """What a manager owns: fields as they are called in a version, and when it last wrote."""

    fields: FieldSet
    api_version: str
    time: str | None = None

    def of(self, fields: FieldSet) -> "Owned":
        """The same with other fields."""
        return replace(self, fields=fields)


Managed: TypeAlias = Mapping[Manager, Owned]
"""All managers of an object; never changed."""


def applier(name: str, subresource: str = "") -> Manager:
    """Who applies under a name."""
    return Manager(name or UNKNOWN, "Apply", "", subresource)


def updater(name: str, api_version: str, subresource: str = "") -> Manager:
    """Who writes whole objects, or patches them, under a name."""
    return Manager(name or UNKNOWN, "Update", api_version, subresource)


def read_entries(raw: Any, *, trusted: bool = False) -> Managed:
    """The managers of a list of entries; `trusted` ones were written here, and are in normal form.

    Raises:
        EntryError: an entry is none.
    """
    found: dict[Manager, Owned] = {}
    for index, entry in enumerate(raw or ()):
        manager, owned = _read_entry(index, entry, trusted=trusted)
        found[manager] = owned
    return found


def _read_entry(index: int, entry: Mapping[str, Any], *, trusted: bool) -> tuple[Manager, Owned]:
    operation = entry.get("operation")
    if operation not in ("Apply", "Update"):
        raise EntryError("operation must be `Apply` or `Update`")
    version = str(entry.get("apiVersion") or "")
    if not version:
        raise EntryError("apiVersion must not be empty")
    sort = entry.get("fieldsType")
    if not sort:
        raise EntryError(f"missing fieldsType in managed fields entry {index}")
    if sort != _FIELDS_TYPE:
        raise EntryError(f'invalid fieldsType "{sort}" in managed fields entry {index}')
    try:
        raw = entry.get("fieldsV1")
        fields = (raw or EMPTY) if trusted else read(raw)
    except FieldSetError as exc:
        raise EntryError(f"error decoding set: {exc}") from exc
    manager = Manager(
        str(entry.get("manager") or ""),
        operation,
        "" if operation == "Apply" else version,
        str(entry.get("subresource") or ""),
    )
    return manager, Owned(fields, version, entry.get("time"))


def write_entries(managed: Managed) -> list[dict[str, Any]]:
    """The list of entries, in the order of the API: who applies first, then the oldest."""
    return [_write_entry(manager, managed[manager]) for manager in _sorted(managed)]


def _write_entry(manager: Manager, owned: Owned) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": owned.api_version,
        "time": owned.time,
        "fieldsType": _FIELDS_TYPE,
        "fieldsV1": owned.fields,
        "subresource": manager.subresource,
    }
    return {name: value for name, value in entry.items() if value not in (None, "")}


def _sorted(managed: Managed) -> list[Manager]:
    return sorted(
        managed,
        key=lambda manager: (
            manager.operation,
            _seconds(managed[manager]),
            manager.name,
            managed[manager].api_version,
            manager.subresource,
        ),
    )


def _seconds(owned: Owned) -> int:
    return int(parse_time(owned.time).timestamp()) if owned.time else 0


def capped(managed: Managed) -> Managed:
    """The managers, the oldest of many that update put into one of each version."""
    updaters = [manager for manager in managed if manager.operation == "Update"]
    if len(updaters) <= _MAX_UPDATERS:
        return managed
    found = dict(managed)
    first_of: dict[str, Manager] = {}
    left = len(updaters)
    for manager in sorted(updaters, key=lambda one: (_seconds(managed[one]), _identifier(one))):
        if left <= _MAX_UPDATERS:
            break
        owned = managed[manager]
        bucket = updater(_OLD_UPDATES, owned.api_version)
        if owned.api_version not in first_of:
            first_of[owned.api_version] = manager
            continue
        if bucket not in found:
            found[bucket] = found.pop(first_of[owned.api_version])
        fields = union(owned.fields, found[bucket].fields)
        found[bucket] = Owned(fields, owned.api_version, owned.time)
        if manager != bucket:
            del found[manager]
        left -= 1
    return found


def _identifier(manager: Manager) -> tuple[str, str, str, str]:
    """The order in which the API compares managers of one time."""
    return (manager.name, manager.operation, manager.api_version, manager.subresource)


def same_but_for_times(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Whether two lists of entries differ in nothing but times."""
    return len(one) == len(other) and all(
        _timeless(mine) == _timeless(theirs) for mine, theirs in zip(one, other, strict=True)
    )


def _timeless(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name != "time"}
