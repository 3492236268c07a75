"""Functions: their overloads for the checker, and their implementations for the evaluator."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import (
    CelError,
    Duration,
    Optional,
    Timestamp,
    TypeValue,
    Uint,
    is_list,
    is_map,
    no_such_overload,
    trait_missing,
    type_name,
)

Implementation: TypeAlias = Callable[..., Any]
_Declared = TypeVar("_Declared", bound=Implementation)
_Guard: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. The first parameter of a member is its receiver."""

    params: tuple[Type, ...]
    result: Type
    implementation: Implementation
    is_member: bool = False
    type_params: tuple[Type, ...] = ()
    guards: tuple[_Guard, ...] = ()


class FunctionTable:
    """All functions by name, and the names of types. Immutable once built."""

    def __init__(
        self, functions: Mapping[str, Sequence[Overload]], type_names: Mapping[str, Type]
    ) -> None:
        self._functions = {name: tuple(overloads) for name, overloads in functions.items()}
        self.type_names = dict(type_names)

    def names(self) -> Iterable[str]:
        """The names of all functions, operators among them."""
        return self._functions.keys()

    def overloads(self, name: str) -> tuple[Overload, ...] | None:
        """The overloads of a function, or None where there is no such function."""
        return self._functions.get(name)

    def dispatcher(
        self, name: str, arity: int, *, is_member: bool, only: int | None = None
    ) -> Implementation:
        """A callable that runs the first overload that takes the values it is given.

        It raises `CelError` where none does. `arity` counts the receiver; `only` is the place of the
        overload to which the types have narrowed the choice.
        """
        candidates = tuple(
            (overload.guards, overload.implementation)
            for index, overload in enumerate(self._functions.get(name, ()))
            if overload.is_member == is_member
            and len(overload.params) == arity
            and only in (None, index)
        )

        def call(*args: Any) -> Any:
            for guards, implementation in candidates:
                if all(guard(arg) for guard, arg in zip(guards, args, strict=True)):
                    return implementation(*args)
            raise _mismatch(name, args)

        if len(candidates) != 1 or arity != 1:
            return call
        (guard,), implementation = candidates[0]

        def call_unary(value: Any) -> Any:
            if guard(value):
                return implementation(value)
            raise _mismatch(name, (value,))

        return call_unary


def _mismatch(name: str, args: tuple[Any, ...]) -> CelError:
    if name in _UNGUARDED:
        return no_such_overload()
    if name == "sort" and is_list(args[0]):
        return CelError("list elements must be comparable")
    if name in _BY_TRAIT:
        return trait_missing(name, args[0])
    shown = list(map(type_name, args))
    receiver = f"{shown.pop(0)}." if name == "flatten" else ""
    return no_such_overload(f"{receiver}{name}({', '.join(shown)})")


_UNGUARDED = frozenset({"startsWith", "endsWith", "contains", "matches"})
"""Functions to which cel-go gives values of any type: they complain themselves."""
_BY_TRAIT = frozenset({"size", "sort", "@sortByAssociatedKeys"})
"""Functions that cel-go gives every value of a certain nature, as it does operators."""


class Library:
    """Collects the functions of one module; `function` and `member` are decorators."""

    def __init__(self) -> None:
        self.functions: dict[str, list[Overload]] = {}

    def function(
        self, name: str, params: Sequence[Type], result: Type
    ) -> Callable[[_Declared], _Declared]:
        """Declares an overload of a global function."""
        return self._declare(name, params, result, is_member=False)

    def member(
        self, name: str, params: Sequence[Type], result: Type
    ) -> Callable[[_Declared], _Declared]:
        """Declares an overload of a member function; the receiver is the first parameter."""
        return self._declare(name, params, result, is_member=True)

    def _declare(
        self, name: str, params: Sequence[Type], result: Type, *, is_member: bool
    ) -> Callable[[_Declared], _Declared]:
        def register(implementation: _Declared) -> _Declared:
            overload = Overload(
                tuple(params),
                result,
                implementation,
                is_member,
                tuple(dict.fromkeys(_type_params([*params, result]))),
                tuple(map(_guard, params)),
            )
            self.functions.setdefault(name, []).append(overload)
            return implementation

        return register


def merge(libraries: Iterable[Library], type_names: Mapping[str, Type]) -> FunctionTable:
    """One table of the functions of several modules; overloads of one name are joined."""
    merged: dict[str, list[Overload]] = {}
    for library in libraries:
        for name, overloads in library.functions.items():
            merged.setdefault(name, []).extend(overloads)
    return FunctionTable(merged, type_names)


def _type_params(subjects: Iterable[Type]) -> Iterable[Type]:
    for subject in subjects:
        if subject.kind == "param":
            yield subject
        yield from _type_params(subject.params)


_GUARDS: dict[Type, _Guard] = {
    types.BOOL: lambda value: value is True or value is False,
    types.INT: lambda value: type(value) is int,
    types.UINT: lambda value: type(value) is Uint,
    types.DOUBLE: lambda value: type(value) is float,
    types.STRING: lambda value: type(value) is str,
    types.BYTES: lambda value: type(value) is bytes,
    types.NULL: lambda value: value is None,
    types.DURATION: lambda value: type(value) is Duration,
    types.TIMESTAMP: lambda value: type(value) is Timestamp,
}
_NAMED_GUARDS: dict[str, _Guard] = {}


def register_guard(library_type: Type, classes: tuple[type, ...]) -> None:
    """Says of which classes the values of a library's own type are."""
    _NAMED_GUARDS[library_type.name] = lambda value: type(value) in classes


def _guard(param: Type) -> _Guard:
    """Whether a value fits a parameter at run time: of containers, the first element is looked at."""
    if param in _GUARDS:
        return _GUARDS[param]
    if param.kind == "list":
        return _list_guard(param.params[0])
    if param.kind == "map":
        return is_map
    if param.kind == "type":
        return lambda value: type(value) is TypeValue
    if param.name == "optional_type":
        return lambda value: type(value) is Optional
    return _NAMED_GUARDS.get(param.name, lambda _value: True)


def _list_guard(element: Type) -> _Guard:
    if element.kind in ("param", "dyn", "list", "map"):
        return is_list
    guard = _guard(element)
    return lambda value: is_list(value) and all(map(guard, itertools.islice(value, 1)))
