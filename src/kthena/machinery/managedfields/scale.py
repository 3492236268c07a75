"""Who owns the replicas, as the scale subresource sees it.

A Scale is made of its object, and so are its managers: those that own the field that holds the
replicas. What a write of the Scale changes among them is carried back.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from kthena.machinery.managedfields.entries import (
    EntryError,
    Managed,
    Owned,
    read_entries,
    write_entries,
)
from kthena.machinery.managedfields.fieldsets import difference, field, has, of_path

SCALE_VERSION: Final = "autoscaling/v1"

_REPLICAS: Final = (field("spec"), field("replicas"))

ReplicasPaths: TypeAlias = Mapping[str, tuple[str, ...] | None]
"""By version of the object: where it holds the replicas; None for a version without a scale."""


def scale_entries(entries: Any, paths: ReplicasPaths) -> list[dict[str, Any]]:
    """The entries of the Scale of an object that has these."""
    found = {}
    for manager, owned in _read(entries).items():
        path = paths.get(owned.api_version)
        if path is not None and has(owned.fields, path):
            found[manager] = Owned(of_path(_REPLICAS), SCALE_VERSION, owned.time)
    return write_entries(found)


def object_entries(
    entries: Any, written: Any, version: str, paths: ReplicasPaths
) -> list[dict[str, Any]]:
    """The entries of an object after its Scale has got those that are `written`.

    `entries` are those from before, `version` is the version in which new managers own the replicas.
    """
    before = _read(entries)
    found = {}
    left = dict(_read(written))
    for manager, owned in before.items():
        if owned.api_version not in paths:
            continue
        path = paths[owned.api_version]
        if path is None or not has(owned.fields, path):
            found[manager] = owned
        elif manager in left:
            found[manager] = owned
            del left[manager]
        else:
            # Another has taken the replicas.
            fields = difference(owned.fields, of_path(path))
            if fields:
                found[manager] = owned.of(fields)
    path = paths.get(version)
    for manager, owned in left.items():
        if path is not None and has(owned.fields, _REPLICAS):
            known = before.get(manager)
            found[manager] = Owned(of_path(path), version, known.time if known else None)
    return write_entries(found)


def _read(entries: Any) -> Managed:
    try:
        return read_entries(entries)
    except EntryError:
        return {}
