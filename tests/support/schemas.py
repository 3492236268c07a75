"""Structural schemas as rows, for comparison and for counting: where, which keyword, what value."""

from collections.abc import Iterator
from typing import Any, NamedTuple

_STRUCTURE = frozenset({"properties", "items", "additionalProperties", "description"})


class Keyword(NamedTuple):
    """One keyword of one node. `at` is a path as `spec.roles[].name`; the empty string is the root."""

    at: str
    name: str
    value: Any


def crd_schema(crd: dict[str, Any]) -> dict[str, Any]:
    """The schema of a CRD's only version."""
    (version,) = crd["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def children(schema: dict[str, Any], at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The nodes directly below a node, with their paths."""
    for name, child in schema.get("properties", {}).items():
        yield (f"{at}.{name}" if at else name), child
    if isinstance(schema.get("items"), dict):
        yield f"{at}[]", schema["items"]
    if isinstance(schema.get("additionalProperties"), dict):
        yield f"{at}{{}}", schema["additionalProperties"]


def keywords(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keywords of one node; a rule is one keyword, named by its message."""
    for name, value in schema.items():
        if name == "x-kubernetes-validations":
            yield from ((f"rule: {rule['message']}", rule["rule"]) for rule in value)
        elif name in {"required", "enum"}:
            yield name, sorted(value)
        elif name not in _STRUCTURE:
            yield name, value
