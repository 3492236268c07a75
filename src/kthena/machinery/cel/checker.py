"""The type checker: finds misspelt fields, unknown functions and operands that do not fit.

Types and texts are those of cel-go's checker in the environment of the API server, which allows
optional syntax and comparisons across number types.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import FunctionTable, Overload
from kthena.machinery.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Ident,
    Issue,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
    qualified_name,
)
from kthena.machinery.cel.typesystem import Bindings, Type
from kthena.machinery.cel.values import Uint

_LITERAL_TYPES: dict[type, Type] = {
    bool: types.BOOL,
    int: types.INT,
    Uint: types.UINT,
    float: types.DOUBLE,
    str: types.STRING,
    bytes: types.BYTES,
    type(None): types.NULL,
}
_LOGICAL = frozenset({"_&&_", "_||_"})


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checker found: the mistakes, and the names of the variables that are read."""

    issues: list[Issue]
    variables: frozenset[str]
    _types: dict[int, Type]
    _bindings: Bindings

    def type_of(self, tree: Expr) -> Type:
        """The type of a node; what was left open is dyn."""
        return types.substitute(self._bindings, self._types[id(tree)], free_to_dyn=True)


def check(tree: Expr, variables: Mapping[str, Type], functions: FunctionTable) -> Checked:
    """Checks a tree, and replaces qualified names in it by what they refer to."""
    checker = _Checker(variables, functions)
    checker.check(tree)
    return Checked(checker.issues, frozenset(checker.read), checker.types, checker.bindings)


class _Checker:
    """State of one run: types bound so far, variables in scope, mistakes."""

    def __init__(self, variables: Mapping[str, Type], functions: FunctionTable) -> None:
        self.bindings: Bindings = {}
        self.issues: list[Issue] = []
        self.types: dict[int, Type] = {}
        self.read: set[str] = set()
        self._globals = variables
        self._scopes: list[dict[str, Type]] = []
        self._functions = functions
        self._fresh = 0

    def check(self, tree: Expr) -> Type:
        match tree:
            case Literal():
                result = _LITERAL_TYPES[type(tree.value)]
            case Ident():
                result = self._ident(tree)
            case Select():
                result = self._select(tree)
            case Call():
                result = self._call(tree)
            case ListLiteral():
                result = self._list(tree)
            case MapLiteral():
                result = self._map(tree)
            case Comprehension():
                result = self._comprehension(tree)
            case _:
                result = self._message(tree)
        self.types[id(tree)] = result
        return result

    def _report(self, offset: int, text: str) -> Type:
        self.issues.append(Issue(offset, text))
        return types.ERROR

    def _undeclared(self, offset: int, name: str) -> Type:
        return self._report(offset, f"undeclared reference to '{name}' (in container '')")

    def _find(self, name: str) -> Type | None:
        name = name.removeprefix(".")
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        found = self._globals.get(name)
        if found is not None:
            self.read.add(name)
            return found
        return self._functions.type_names.get(name)

    def _ident(self, tree: Ident) -> Type:
        return self._find(tree.name) or self._undeclared(tree.offset, tree.name)

    def _select(self, tree: Select) -> Type:
        name = None if tree.test_only else qualified_name(tree)
        if name is not None:
            found = self._find(name)
            if found is not None:
                tree.type_name = name
                return found
        result = self._select_field(tree.operand, tree.field, tree.offset, optional=False)
        if tree.test_only:
            return types.BOOL
        return types.substitute(self.bindings, result)

    def _select_field(self, operand: Expr, name: str, offset: int, *, optional: bool) -> Type:
        operand_type = types.substitute(self.bindings, self.check(operand))
        target, is_optional = types.unwrap_optional(operand_type)
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "object":
            found = (target.fields or {}).get(name)
            result = found or self._report(offset, f"undefined field '{name}'")
        elif target.kind == "param":
            self._assign([types.DYN], [target])
            result = types.DYN
        else:
            if target.kind not in ("dyn", "error"):
                text = f"type '{target}' does not support field selection"
                self._report(offset, text)
            result = types.DYN
        return types.optional_of(result) if optional or is_optional else result

    def _call(self, tree: Call) -> Type:
        if tree.function == "_?._":
            field = tree.args[1]
            name = field.value if isinstance(field, Literal) else ""
            result = self._select_field(tree.args[0], str(name), tree.offset, optional=True)
            return types.substitute(self.bindings, result)
        arg_types = [self.check(argument) for argument in tree.args]
        self._qualify(tree)
        if tree.target is not None:
            arg_types.insert(0, self.check(tree.target))
        overloads = self._functions.overloads(tree.function.removeprefix("."))
        if overloads is None:
            return self._undeclared(tree.offset, tree.function)
        return self._resolve(tree, overloads, arg_types)

    def _qualify(self, tree: Call) -> None:
        """Turns what looks like a member call (`sets.contains(..)`) into the call that it is."""
        prefix = None if tree.target is None else qualified_name(tree.target)
        if prefix is not None and self._functions.overloads(f"{prefix}.{tree.function}"):
            tree.function = f"{prefix}.{tree.function}"
            tree.is_member = False
            tree.target = None

    def _resolve(self, tree: Call, overloads: tuple[Overload, ...], arg_types: list[Type]) -> Type:
        """The type of a call: that of the first overload that fits, dyn if others differ."""
        if tree.function in _LOGICAL:
            return self._logical(tree, arg_types)
        result: Type | None = None
        fitting = []
        for index, overload in enumerate(overloads):
            if overload.is_member != tree.is_member:
                continue
            params, returned = self._instantiate(overload)
            bindings = types.assign(self.bindings, arg_types, params)
            if bindings is None:
                continue
            self.bindings = bindings
            fitting.append(index)
            returned = types.substitute(bindings, returned)
            if result is None:
                result = returned
            elif result.kind != "dyn" and returned != result:
                result = types.DYN
        if result is not None:
            tree.overload = fitting[0] if len(fitting) == 1 else None
            return result
        shown = [str(types.substitute(self.bindings, arg, free_to_dyn=True)) for arg in arg_types]
        receiver = f"{shown.pop(0)}." if tree.is_member else ""
        signature = f"{receiver}({', '.join(shown)})"
        return self._report(
            tree.offset,
            f"found no matching overload for '{tree.function}' applied to '{signature}'",
        )

    def _logical(self, tree: Call, arg_types: list[Type]) -> Type:
        result = types.BOOL
        for argument, arg_type in zip(tree.args, arg_types, strict=True):
            if not self._assign([arg_type], [types.BOOL]):
                result = self._mismatch(argument.offset, types.BOOL, arg_type)
        return result

    def _instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        """The parameters and the result, with type parameters of their own."""
        if not overload.type_params:
            return list(overload.params), overload.result
        fresh = {param: self._fresh_type() for param in overload.type_params}
        params = [types.substitute(fresh, param) for param in overload.params]
        return params, types.substitute(fresh, overload.result)

    def _fresh_type(self) -> Type:
        self._fresh += 1
        return types.parameter(f"_var{self._fresh - 1}")

    def _assign(self, targets: list[Type], sources: list[Type]) -> bool:
        bindings = types.assign(self.bindings, targets, sources)
        if bindings is None:
            return False
        self.bindings = bindings
        return True

    def _mismatch(self, offset: int, expected: Type, actual: Type) -> Type:
        return self._report(offset, f"expected type '{expected}' but found '{actual}'")

    def _join(self, previous: Type | None, current: Type) -> Type:
        """The type of elements of a literal; that they are of one type is checked later."""
        if previous is None:
            return current
        if self._assign([previous], [current]):
            return types.most_general(previous, current)
        return types.DYN

    def _unwrap(self, tree: Expr, *, optional: bool) -> Type:
        """The type of an element; one with a question mark must be optional."""
        found = self.check(tree)
        if not optional:
            return found
        inner, is_optional = types.unwrap_optional(found)
        if not is_optional and inner.kind != "dyn":
            self._mismatch(tree.offset, types.optional_of(inner), inner)
        return inner

    def _list(self, tree: ListLiteral) -> Type:
        joined: Type | None = None
        for index, element in enumerate(tree.elements):
            found = self._unwrap(element, optional=index in tree.optional)
            joined = self._join(joined, found)
        return types.list_of(joined or self._fresh_type())

    def _map(self, tree: MapLiteral) -> Type:
        keys: Type | None = None
        values: Type | None = None
        for entry in tree.entries:
            keys = self._join(keys, self.check(entry.key))
            found = self._unwrap(entry.value, optional=entry.optional)
            values = self._join(values, found)
        return types.map_of(keys or self._fresh_type(), values or self._fresh_type())

    def _message(self, tree: MessageLiteral) -> Type:
        """There are no messages; only the names of types can be meant."""
        found = self._find(tree.name)
        if found is None:
            return self._undeclared(tree.offset, tree.name)
        if found.kind != "type":
            return self._report(tree.offset, f"'{found}' is not a type")
        return self._report(tree.offset, f"'{found.params[0]}' is not a message type")

    def _comprehension(self, tree: Comprehension) -> Type:
        range_type = self.check(tree.range)
        accumulator = self.check(tree.initial)
        range_type = types.substitute(self.bindings, range_type)
        self._scopes.append({tree.accumulator: accumulator})
        elements = self._loop_types(tree, range_type)
        self._scopes.append(dict(zip(tree.variables, elements, strict=False)))
        self._assert(tree.loop_condition, types.BOOL)
        self._assert(tree.step, accumulator)
        self._scopes.pop()
        result = self.check(tree.result)
        self._scopes.pop()
        return types.substitute(self.bindings, result)

    def _assert(self, tree: Expr, expected: Type) -> None:
        found = self.check(tree)
        if not self._assign([expected], [found]):
            self._mismatch(tree.offset, expected, found)

    def _loop_types(self, tree: Comprehension, range_type: Type) -> tuple[Type, Type]:
        """Types of the variables: element or key; with two, index and element or key and value."""
        if range_type.kind == "list":
            element = range_type.params[0]
            return (types.INT, element) if len(tree.variables) == 2 else (element, element)
        if range_type.kind == "map":
            return range_type.params[0], range_type.params[1]
        if range_type.kind in ("dyn", "error", "param"):
            self._assign([types.DYN], [range_type])
            return types.DYN, types.DYN
        self._report(
            tree.range.offset,
            f"expression of type '{range_type}' cannot be range of a comprehension (must be list, "
            "map, or dynamic)",
        )
        return types.ERROR, types.ERROR
