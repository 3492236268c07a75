"""The checks of an installed CRD, counted: every rule and every bound outside a PodSpec.

A PodSpec counts too where this project adds to it; what it has from Kubernetes does not.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kthena.api.crd.reference import is_pod_spec
from kthena.api.openapi import QUANTITY_PATTERN
from support.crdvectors import Vector
from support.schemas import children, crd_schema

BOUNDS = frozenset({
    "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
    "maxProperties", "pattern", "enum",
})  # fmt: skip
CHECKED_FORMATS = frozenset({"uri", "date-time"})

_PHRASES = {
    "minimum": ("should be greater than or equal to",),
    "maximum": ("should be less than or equal to",),
    "minLength": ("should be at least",),
    "maxLength": ("may not be more than", "may not be longer than"),
    "minItems": ("should have at least",),
    "maxItems": ("must have at most",),
    "minProperties": ("should have at least",),
    "maxProperties": ("must have at most",),
    "pattern": ("should match",),
    "enum": ("Unsupported value",),
    "format": ("must be of type",),
    "required": ("Required value",),
    "x-kubernetes-list-type": ("Duplicate value",),
}


class Check(NamedTuple):
    """One thing that admission can refuse: a node of the schema and a keyword of it."""

    at: str
    name: str

    def __str__(self) -> str:
        return f"{self.at or '<root>'} [{self.name}]"


def phrases(check: str) -> tuple[str, ...]:
    """What the API server says when this check denies; releases differ in a few words."""
    if check.startswith("rule: "):
        return (check.removeprefix("rule: "),)
    return _PHRASES[check.partition(":")[0]]


def checks_of(crd: dict[str, Any]) -> list[Check]:
    """Every check of the CRD's schema, in the order of a walk."""
    return list(_walk(crd_schema(crd), ""))


def _walk(schema: dict[str, Any], at: str, *, pod_spec: bool = False) -> Iterator[Check]:
    inside = pod_spec or is_pod_spec(schema)
    yield from _own(schema, at, pod_spec=inside)
    for path, child in children(schema, at):
        yield from _walk(child, path, pod_spec=inside)


def _own(schema: dict[str, Any], at: str, *, pod_spec: bool) -> Iterator[Check]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield Check(at, f"rule: {rule['message']}")
    for name in sorted(BOUNDS & schema.keys()):
        if not (pod_spec and schema[name] == QUANTITY_PATTERN):
            yield Check(at, name)
    if pod_spec:
        return
    if schema.get("x-kubernetes-list-type") == "map":
        yield Check(at, "x-kubernetes-list-type")
    if schema.get("format") in CHECKED_FORMATS:
        yield Check(at, "format")
    for name in schema.get("required", ()):
        # A field with a default is never missing when the schema is checked.
        if "default" not in schema["properties"][name]:
            yield Check(at, f"required: {name}")


def why_not_denied(vector: Vector, causes: Iterable[tuple[str, str]]) -> str:
    """Why the errors, as path and message, are not those of the vector's check alone; or nothing.

    A bound is known by its path, a rule by its path and message.
    """
    # The server adds one cause without a field when it has left out rules because of the others.
    errors = [(path, message) for path, message in causes if path != "<nil>"]
    here = [message for path, message in errors if _is_at(path, vector.field)]
    elsewhere = [
        path
        for path, _ in errors
        if not any(_is_at(path, wanted) for wanted in (vector.field, *vector.also))
    ]
    hits = [text for text in here if any(words in text for words in phrases(vector.check))]
    only_rule = not vector.check.startswith("rule: ") or len(hits) == len(here)
    return "" if hits and only_rule and not elsewhere else f"{vector} at {vector.field}: {errors}"


def _is_at(path: str, wanted: str) -> bool:
    """Up to release 1.30, a status write names paths below the status."""
    return path in {wanted, wanted.removeprefix("status.")}
