"""The elements of lists that merge: which entry of one list is which of another."""

from collections.abc import Sequence
from typing import Any

from kthena.machinery.managedfields.atoms import ListAtom
from kthena.machinery.managedfields.fieldsets import key_element, value_element


class ElementError(ValueError):
    """An entry of an associative list that cannot be told from others."""


def element_of(atom: ListAtom, item: Any) -> str:
    """The path element of an entry.

    Raises:
        ElementError: it has no keys, or cannot be in such a list.
    """
    return _keyed(atom, item) if atom.keys else _scalar(item)


def _keyed(atom: ListAtom, item: Any) -> str:
    if item is None:
        raise ElementError("associative list with keys may not have a null element")
    if not isinstance(item, dict):
        raise ElementError("associative list with keys may not have non-map elements")
    keys = {}
    for name in atom.keys:
        if name in item:
            keys[name] = item[name]
        elif name in atom.key_defaults:
            keys[name] = atom.key_defaults[name]
    if not keys:
        names = " ".join(f'"{name}"' for name in atom.keys)
        raise ElementError(
            f"associative list with keys has an element that omits all key fields [{names}] "
            "(and doesn't have default values for any key fields)"
        )
    return key_element(keys)


def _scalar(item: Any) -> str:
    if isinstance(item, dict):
        raise ElementError("associative list without keys has an element that's a map type")
    if isinstance(item, list):
        raise ElementError("not supported: associative list with lists as elements")
    if item is None:
        raise ElementError("associative list without keys has an element that's an explicit null")
    return value_element(item)


def grouped(atom: ListAtom, items: Sequence[Any]) -> dict[str, list[Any]]:
    """The entries by their elements, in the order in which these first appear.

    Raises:
        ElementError: an entry has none.
    """
    found: dict[str, list[Any]] = {}
    for index, item in enumerate(items):
        try:
            found.setdefault(element_of(atom, item), []).append(item)
        except ElementError as exc:
            raise ElementError(f"element {index}: {exc}") from exc
    return found
