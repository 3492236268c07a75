"""Whether a value fits its schema, as far as field ownership has to know it.

The texts are those of structured-merge-diff, Go's notation of values included, since an apply that
does not fit is answered with them.
"""

from typing import Any

from kthena.machinery.gotext import show_syntax, show_type, show_value
from kthena.machinery.managedfields.atoms import Atom, ListAtom, MapAtom, Scalar
from kthena.machinery.managedfields.elements import ElementError, element_of
from kthena.machinery.managedfields.fieldsets import field, path_text

Problems = list[tuple[str, str]]
"""Places, as paths in text, and what is wrong there."""


def problems_text(problems: Problems) -> str:
    """All problems in one text."""
    texts = [f"{place}: {text}" if place else text for place, text in problems]
    return texts[0] if len(texts) == 1 else "\n  ".join(["errors:", *texts])


def find_problems(value: Any, atom: Atom) -> Problems:
    """What in a value does not fit the schema; entries of lists that merge must be distinct."""
    one = atom.deduced(value)
    if one.map is not None:
        return _map_problems(value, one.map)
    if one.scalar is not None:
        return _scalar_problems(value, one.scalar)
    if one.list is not None:
        return _list_problems(value, one.list)
    return [("", "schema error: invalid atom: inlined")]


def _within(element: str, problems: Problems) -> Problems:
    prefix = path_text([element])
    return [(prefix + place, text) for place, text in problems]


def _map_problems(value: Any, atom: MapAtom) -> Problems:
    if value is None:
        return []
    if not isinstance(value, dict):
        return [("", f"expected map, got &{{{show_value(value)}}}")]
    found: Problems = []
    for name, entry in value.items():
        member = atom.member(name)
        if member is None:
            return [*found, *_within(field(name), [("", "field not declared in schema")])]
        found += _within(field(name), find_problems(entry, member))
    return found


def _list_problems(value: Any, atom: ListAtom) -> Problems:
    if value is None:
        return []
    if not isinstance(value, list):
        return [("", f"expected list, got &{{{show_value(value)}}}")]
    found: Problems = []
    seen: set[str] = set()
    for index, entry in enumerate(value):
        element = f"i:{index}"
        if not atom.atomic:
            try:
                element = element_of(atom, entry)
            except ElementError as exc:
                return [*found, ("", f"element {index}: {exc}")]
            if element in seen:
                found.append(("", f"duplicate entries for key {path_text([element])}"))
            seen.add(element)
        found += _within(element, find_problems(entry, atom.element))
    return found


def _scalar_problems(value: Any, scalar: Scalar) -> Problems:
    if value is None:
        return []
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if scalar == "numeric" and not is_number:
        return [("", f"expected numeric (int or float), got {show_type(value)}")]
    if scalar == "string" and not isinstance(value, str):
        shown = f"&value.valueUnstructured{{Value:{show_syntax(value)}}}"
        return [("", f"expected string, got {shown}")]
    if scalar == "boolean" and not isinstance(value, bool):
        return [("", f"expected boolean, got &{{{show_value(value)}}}")]
    if scalar == "untyped" and isinstance(value, dict | list):
        return [("", f"expected any scalar, got &{{{show_value(value)}}}")]
    return []
