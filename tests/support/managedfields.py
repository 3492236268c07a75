"""What the managed fields of an object say."""

from collections.abc import Callable
from typing import Any

from kthena.machinery.objects import Object
from support.apiserver import Reply

Apply = Callable[..., Reply]
"""Applies a body under a manager, by server-side apply."""


def entry_of(obj: Object, manager: str, operation: str, subresource: str = "") -> Object | None:
    """The entry of a manager, or None; there is never more than one."""
    found = [
        entry
        for entry in obj["metadata"].get("managedFields", ())
        if (entry["manager"], entry["operation"]) == (manager, operation)
        and entry.get("subresource", "") == subresource
    ]
    assert len(found) <= 1, found
    return found[0] if found else None


def fields_of(obj: Object, manager: str, operation: str = "Apply", subresource: str = "") -> Any:
    """What a manager owns; None for nothing."""
    entry = entry_of(obj, manager, operation, subresource)
    return None if entry is None else entry["fieldsV1"]


def managers_of(obj: Object) -> set[tuple[str, str]]:
    """Who owns anything, and how."""
    entries = obj["metadata"].get("managedFields", ())
    return {(entry["manager"], entry["operation"]) for entry in entries}
