"""Static types, and when one may stand for another: the unification of cel-go's checker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class Type:
    """A type. `kind` says how it is compared; objects are equal by name."""

    kind: str
    name: str
    params: tuple["Type", ...] = ()
    fields: "Mapping[str, Type] | None" = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        """As cel-go's error texts name it."""
        if not self.params:
            return self.name
        return f"{self.name}({', '.join(map(str, self.params))})"


BOOL: Final = Type("primitive", "bool")
INT: Final = Type("primitive", "int")
UINT: Final = Type("primitive", "uint")
DOUBLE: Final = Type("primitive", "double")
STRING: Final = Type("primitive", "string")
BYTES: Final = Type("primitive", "bytes")
NULL: Final = Type("null", "null")
DYN: Final = Type("dyn", "dyn")
ERROR: Final = Type("error", "!error!")
DURATION: Final = Type("nullable", "duration")
TIMESTAMP: Final = Type("nullable", "timestamp")
TYPE: Final = Type("type", "type")

_NULLABLE_KINDS = frozenset({"nullable", "opaque", "object"})
_WILDCARDS = frozenset({"dyn", "error"})
_CONTAINERS = frozenset({"list", "map", "opaque"})


def list_of(element: Type) -> Type:
    """The type of lists of `element`."""
    return Type("list", "list", (element,))


def map_of(key: Type, value: Type) -> Type:
    """The type of maps from `key` to `value`."""
    return Type("map", "map", (key, value))


def optional_of(value: Type) -> Type:
    """The type of optional values."""
    return Type("opaque", "optional_type", (value,))


def type_of(instance: Type) -> Type:
    """The type of the name of a type."""
    return Type("type", "type", (instance,))


def parameter(name: str) -> Type:
    """A type parameter: stands for any type, but for one at a time."""
    return Type("param", name)


def named(name: str) -> Type:
    """A type of a library, such as `kubernetes.Quantity`."""
    return Type("object", name, (), {})


def unwrap_optional(subject: Type) -> tuple[Type, bool]:
    """The type inside an optional one, and whether it was one."""
    if subject.name == "optional_type":
        return subject.params[0], True
    return subject, False


Bindings = dict[Type, Type]
"""What type parameters stand for."""


def assign(bindings: Bindings, targets: Sequence[Type], sources: Sequence[Type]) -> Bindings | None:
    """Bindings under which each target and source are compatible; None where there are none."""
    attempt = dict(bindings)
    if len(targets) != len(sources):
        return None
    if all(_assignable(attempt, *pair) for pair in zip(targets, sources, strict=True)):
        return attempt
    return None


def substitute(bindings: Bindings, subject: Type, *, free_to_dyn: bool = False) -> Type:
    """The type with its parameters replaced; the unbound become dyn if asked for."""
    bound = bindings.get(subject)
    if bound is not None:
        return substitute(bindings, bound, free_to_dyn=free_to_dyn)
    if subject.kind == "param":
        return DYN if free_to_dyn else subject
    if not subject.params:
        return subject
    params = tuple(substitute(bindings, param, free_to_dyn=free_to_dyn) for param in subject.params)
    return Type(subject.kind, subject.name, params, subject.fields)


def most_general(first: Type, second: Type) -> Type:
    """The more general of two compatible types."""
    return first if _at_least_as_general(first, second) else second


def _at_least_as_general(first: Type, second: Type) -> bool:
    if first.kind in ("dyn", "param"):
        return True
    if second.kind in ("dyn", "param") or first.kind != second.kind:
        return False
    if first.kind == "type":
        return True
    if first.kind in _CONTAINERS:
        return (
            first.name == second.name
            and len(first.params) == len(second.params)
            and all(map(_at_least_as_general, first.params, second.params))
        )
    return first == second


def _assignable(bindings: Bindings, first: Type, second: Type) -> bool:
    if second.kind == "param":
        valid, is_bound = _bind(bindings, first, second)
        if valid or is_bound:
            return valid
    if first.kind == "param":
        return _bind(bindings, second, first)[0]
    if first.kind in _WILDCARDS or second.kind in _WILDCARDS:
        return True
    return _assignable_concrete(bindings, first, second)


def _assignable_concrete(bindings: Bindings, first: Type, second: Type) -> bool:
    if first.kind == "null" or second.kind == "null":
        other = second if first.kind == "null" else first
        return other.kind == "null" or other.kind in _NULLABLE_KINDS
    if first.kind == "type":
        return second.kind == "type"
    if first.kind in _CONTAINERS:
        return (
            first.kind == second.kind
            and first.name == second.name
            and len(first.params) == len(second.params)
            and all(
                _assignable(bindings, *pair)
                for pair in zip(first.params, second.params, strict=True)
            )
        )
    return first == second


def _bind(bindings: Bindings, subject: Type, param: Type) -> tuple[bool, bool]:
    """Whether a parameter can stand for a type, and whether it is bound already."""
    if subject == param:
        return True, True
    bound = bindings.get(param)
    if bound is None:
        if not _is_free_of(bindings, param, subject):
            return False, False
        bindings[param] = subject
        return True, False
    if subject == bound:
        return True, True
    if not _assignable(bindings, subject, bound):
        return False, True
    general = most_general(subject, bound)
    if _is_free_of(bindings, param, general):
        bindings[param] = general
    return True, True


def _is_free_of(bindings: Bindings, param: Type, subject: Type) -> bool:
    """Whether a type does not contain the parameter, which would make it infinite."""
    if subject == param:
        return False
    if subject.kind == "param":
        bound = bindings.get(subject)
        return bound is None or _is_free_of(bindings, param, bound)
    return all(_is_free_of(bindings, param, inner) for inner in subject.params)
