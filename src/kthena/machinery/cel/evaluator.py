"""From a checked tree to a callable: every node becomes a closure over its parts.

Evaluation is strict apart from `&&`, `||`, `?:`, the macros and optional values, as in cel-go. A
closure takes the variables in scope as a dict.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from kthena.machinery.cel.functions import FunctionTable
from kthena.machinery.cel.library import operators
from kthena.machinery.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
)
from kthena.machinery.cel.values import (
    NONE,
    CelCancelledError,
    CelError,
    MapValue,
    Optional,
    TypeValue,
    compare,
    describe_key,
    element_at,
    equal,
    find_in_map,
    go_type_name,
    is_key,
    is_list,
    is_map,
    is_ordered,
    no_such_overload,
    trait_missing,
    type_name,
)

Scope: TypeAlias = dict[str, Any]
Evaluate: TypeAlias = Callable[[Scope], Any]

TURNS = "@turns"
"""The name in a scope of a list whose one item is how many turns all loops may still take."""

_MISSING = object()


def build(tree: Expr, functions: FunctionTable) -> Evaluate:
    """The evaluator of a checked tree. It raises `CelError` where evaluation fails."""
    return _Builder(functions).build(tree)


class _Builder:
    """Builds closures, innermost first."""

    def __init__(self, functions: FunctionTable) -> None:
        self._functions = functions
        self._locals: set[str] = set()

    def build(self, tree: Expr) -> Evaluate:
        match tree:
            case Literal():
                evaluate = _constant(tree.value)
            case Ident():
                evaluate = self._ident(tree.name)
            case Select():
                evaluate = self._select(tree)
            case Call():
                evaluate = self._call(tree)
            case ListLiteral():
                evaluate = self._list(tree)
            case MapLiteral():
                evaluate = self._map(tree)
            case Comprehension():
                evaluate = self._comprehension(tree)
            case _:
                raise TypeError(f"messages such as {tree.name} do not pass the checker")
        return evaluate

    def _ident(self, name: str) -> Evaluate:
        name = name.removeprefix(".")
        if name in self._functions.type_names and name not in self._locals:
            value = TypeValue(name)
            return lambda scope: scope.get(name, value)

        def read(scope: Scope) -> Any:
            try:
                return scope[name]
            except KeyError:
                raise CelError(f"no such attribute(s): {name}") from None

        return read

    def _select(self, tree: Select) -> Evaluate:
        if tree.type_name:
            return self._ident(tree.type_name)
        operand, name = self.build(tree.operand), tree.field
        if tree.test_only:
            return lambda scope: _has(operand(scope), name)

        def select(scope: Scope) -> Any:
            value = operand(scope)
            if type(value) is Optional:
                return _select_optional(value, name)
            return _member(value, name)

        return select

    def _call(self, tree: Call) -> Evaluate:
        special = _SPECIAL.get(tree.function)
        if special is not None and not (tree.is_member and tree.target is None):
            return special(self, tree)
        args = [self.build(argument) for argument in tree.args]
        if tree.target is not None:
            args.insert(0, self.build(tree.target))
        name = tree.function.removeprefix(".")
        operator = _OPERATORS.get(name)
        if operator is None:
            operator = self._functions.dispatcher(
                name, len(args), is_member=tree.is_member, only=tree.overload
            )
        return _apply(operator, args)

    def _list(self, tree: ListLiteral) -> Evaluate:
        elements = [self.build(element) for element in tree.elements]
        if not tree.optional:
            return lambda scope: [element(scope) for element in elements]

        def build_list(scope: Scope) -> list[Any]:
            values = []
            for index, element in enumerate(elements):
                value = element(scope)
                if index in tree.optional:
                    if not isinstance(value, Optional):
                        raise CelError(
                            f"cannot initialize optional list element from non-optional value {value}"
                        )
                    if value.has_value:
                        values.append(value.value)
                else:
                    values.append(value)
            return values

        return build_list

    def _map(self, tree: MapLiteral) -> Evaluate:
        entries = [
            (self.build(entry.key), self.build(entry.value), entry.optional)
            for entry in tree.entries
        ]

        def build_map(scope: Scope) -> dict[Any, Any]:
            result: dict[Any, Any] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(scope), value_of(scope)
                if optional:
                    if not isinstance(value, Optional):
                        raise CelError(
                            f"cannot initialize optional entry '{key}' from non-optional value "
                            f"{value}"
                        )
                    if not value.has_value:
                        continue
                    value = value.value
                if is_list(key) or is_map(key):
                    raise CelError(f"unsupported key type: {type_name(key)}")
                result[key] = value
            return result

        return build_map

    def conjunction(self, tree: Call) -> Evaluate:
        """`&&`: false if any is false, whatever fails beside it."""
        return _junction([self.build(argument) for argument in tree.args], decisive=False)

    def disjunction(self, tree: Call) -> Evaluate:
        """`||`: true if any is true, whatever fails beside it."""
        return _junction([self.build(argument) for argument in tree.args], decisive=True)

    def conditional(self, tree: Call) -> Evaluate:
        """`?:` evaluates one side only."""
        condition, if_true, if_false = (self.build(argument) for argument in tree.args)

        def choose(scope: Scope) -> Any:
            chosen = condition(scope)
            if chosen is True:
                return if_true(scope)
            if chosen is False:
                return if_false(scope)
            raise no_such_overload()

        return choose

    def index(self, tree: Call) -> Evaluate:
        """`a[b]`; of an optional value, an optional."""
        operand, key = (self.build(argument) for argument in tree.args)

        def take(scope: Scope) -> Any:
            container = operand(scope)
            if type(container) is Optional:
                return _index_optional(container, key, scope)
            return _index(container, key(scope))

        return take

    def optional_index(self, tree: Call) -> Evaluate:
        """`a[?b]`: an optional."""
        operand, key = (self.build(argument) for argument in tree.args)
        return lambda scope: _index_optional(operand(scope), key, scope)

    def optional_select(self, tree: Call) -> Evaluate:
        """`a.?b`: an optional."""
        operand = self.build(tree.args[0])
        name = tree.args[1].value if isinstance(tree.args[1], Literal) else ""
        return lambda scope: _select_optional(operand(scope), str(name))

    def optional_or(self, tree: Call) -> Evaluate:
        """`or` and `orValue` evaluate the alternative only if it is needed."""
        optional = self.build(tree.target or tree)
        alternative = self.build(tree.args[0])
        unwrap = tree.function == "orValue"

        def choose(scope: Scope) -> Any:
            value = optional(scope)
            if not isinstance(value, Optional):
                return value
            if not value.has_value:
                return alternative(scope)
            return value.value if unwrap else value

        return choose

    def _comprehension(self, tree: Comprehension) -> Evaluate:
        if tree.kind == "bind":
            return self._bind(tree)
        range_of = self.build(tree.range)
        shadowed = self._locals
        self._locals = shadowed | set(tree.variables)
        condition = None if tree.condition is None else self.build(tree.condition)
        transform = [self.build(part) for part in tree.transform]
        self._locals = shadowed
        bindings = _bindings(range_of, tree.variables)
        if tree.kind in ("all", "exists") and condition is not None:
            return _quantifier(bindings, condition, decisive=tree.kind == "exists")
        if tree.kind == "exists_one" and condition is not None:
            return lambda scope: sum(_selected(bindings(scope), condition)) == 1
        if tree.kind in ("map", "transformList"):
            return _transform_list(bindings, condition, transform[0])
        insert = self._functions.dispatcher("cel.@mapInsert", len(transform) + 1, is_member=False)
        return _transform_map(bindings, condition, transform, insert)

    def _bind(self, tree: Comprehension) -> Evaluate:
        """A variable for the value of an expression."""
        name, value = tree.accumulator, self.build(tree.initial)
        shadowed = self._locals
        self._locals = shadowed | {name}
        body = self.build(tree.result)
        self._locals = shadowed
        return lambda scope: body({**scope, name: value(scope)})


def _constant(value: Any) -> Evaluate:
    return lambda _scope: value


def _apply(function: Callable[..., Any], args: list[Evaluate]) -> Evaluate:
    if len(args) == 1:
        (only,) = args
        return lambda scope: function(only(scope))
    if len(args) == 2:
        left, right = args
        return lambda scope: function(left(scope), right(scope))
    return lambda scope: function(*[argument(scope) for argument in args])


def _junction(operands: list[Evaluate], *, decisive: bool) -> Evaluate:
    """`&&` and `||`."""
    return lambda scope: _decide(((operand, scope) for operand in operands), decisive=decisive)


def _decide(tests: Iterable[tuple[Evaluate, Scope]], *, decisive: bool) -> bool:
    """The decisive value if a test has it, whatever other tests fail; else the first failure."""
    failure: CelError | None = None
    for evaluate, scope in tests:
        try:
            value = evaluate(scope)
        except CelError as exc:
            failure = failure or exc
            continue
        if type(value) is not bool:
            failure = failure or no_such_overload()
        elif value == decisive:
            return decisive
    if failure is not None:
        raise failure
    return not decisive


def _bindings(range_of: Evaluate, variables: tuple[str, ...]) -> Callable[[Scope], Iterable[Scope]]:
    """Scopes with the variables of each turn of a loop."""
    if len(variables) == 1:
        (name,) = variables

        def single(scope: Scope) -> Iterable[Scope]:
            inner = dict(scope)
            for element in _iterate(range_of(scope)):
                _count_turn(scope)
                inner[name] = element
                yield inner

        return single
    first, second = variables

    def double(scope: Scope) -> Iterable[Scope]:
        inner = dict(scope)
        container = range_of(scope)
        keyed = is_map(container)
        if not keyed and not is_list(container):
            text = "unsupported comprehension range type"
            raise CelError(f"{text}: {go_type_name(container)}")
        for index, element in enumerate(container):
            _count_turn(scope)
            inner[first] = element if keyed else index
            inner[second] = find_in_map(container, element)[1] if keyed else element
            yield inner

    return double


def _count_turn(scope: Scope) -> None:
    turns = scope.get(TURNS)
    if turns is not None:
        turns[0] -= 1
        if turns[0] < 0:
            raise CelCancelledError


def _iterate(container: Any) -> Iterable[Any]:
    if not is_list(container) and not is_map(container):
        raise CelError(f"got '{go_type_name(container)}', expected iterable type")
    elements: Iterable[Any] = container
    return elements


def _quantifier(
    bindings: Callable[[Scope], Iterable[Scope]], condition: Evaluate, *, decisive: bool
) -> Evaluate:
    """`all` and `exists`: failures do not count if another element decides."""
    return lambda scope: _decide(
        ((condition, inner) for inner in bindings(scope)), decisive=decisive
    )


def _selected(scopes: Iterable[Scope], condition: Evaluate) -> Iterable[bool]:
    for inner in scopes:
        value = condition(inner)
        if type(value) is not bool:
            raise no_such_overload()
        yield value


def _accepts(condition: Evaluate | None, scope: Scope) -> bool:
    if condition is None:
        return True
    value = condition(scope)
    if type(value) is not bool:
        raise no_such_overload()
    return value


def _transform_list(
    bindings: Callable[[Scope], Iterable[Scope]], condition: Evaluate | None, transform: Evaluate
) -> Evaluate:
    return lambda scope: [
        transform(inner) for inner in bindings(scope) if _accepts(condition, inner)
    ]


def _transform_map(
    bindings: Callable[[Scope], Iterable[Scope]],
    condition: Evaluate | None,
    transform: list[Evaluate],
    insert: Callable[..., Any],
) -> Evaluate:
    def build_map(scope: Scope) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for inner in bindings(scope):
            if _accepts(condition, inner):
                result = insert(result, *[part(inner) for part in transform])
        return result

    return build_map


def _member(value: Any, name: str) -> Any:
    """`value.name`."""
    if isinstance(value, MapValue):
        found, member = value.find(name)
        if found:
            return member
    elif type(value) is dict and name in value:
        return value[name]
    elif is_list(value):
        raise CelError("unsupported index type 'string' in list")
    raise CelError(f"no such key: {name}")


def _has(value: Any, name: str) -> bool:
    if type(value) is Optional:
        return value.has_value and _has(_native(value.value), name)
    if is_map(value):
        return find_in_map(value, name)[0]
    if is_list(value):
        raise CelError("unsupported index type 'string' in list")
    return False


def _index(container: Any, key: Any) -> Any:
    """`container[key]`."""
    value = _lookup(container, key)
    if value is _MISSING:
        noun = "index out of bounds" if is_list(container) else "no such key"
        shown = int(key) if is_list(container) else key
        raise CelError(f"{noun}: {describe_key(shown)}")
    return value


def _lookup(container: Any, key: Any) -> Any:
    if not is_key(key):
        raise CelError(f"invalid qualifier type: {go_type_name(key)}")
    if is_map(container):
        found, value = find_in_map(container, key)
        return value if found else _MISSING
    if is_list(container):
        index = _list_index(key)
        return element_at(container, index) if 0 <= index < len(container) else _MISSING
    return _MISSING


def _list_index(key: Any) -> int:
    if type(key) is float and not key.is_integer():
        raise CelError(f"unsupported index value {key} in list")
    if isinstance(key, bool) or not isinstance(key, (int, float)):
        raise CelError(f"unsupported index type '{type_name(key)}' in list")
    return int(key)


def _native(value: Any) -> Any:
    """Inside an optional, the server selects from the JSON, without the schema."""
    return value.raw() if isinstance(value, MapValue) else value


def _select_optional(value: Any, name: str) -> Any:
    if type(value) is Optional:
        if not value.has_value:
            return NONE
        value = _native(value.value)
    if is_map(value):
        found, member = find_in_map(value, name)
        return Optional(member) if found else NONE
    if is_list(value):
        raise CelError("unsupported index type 'string' in list")
    return NONE


def _index_optional(container: Any, key: Evaluate, scope: Scope) -> Any:
    """An optional; the key of what is not there is not evaluated."""
    if type(container) is Optional:
        if not container.has_value:
            return NONE
        container = _native(container.value)
    value = _lookup(container, key(scope))
    return NONE if value is _MISSING else Optional(value)


def _relation(function: str) -> Callable[[Any, Any], bool]:
    holds = operators.RELATIONS[function]

    def relate(left: Any, right: Any) -> bool:
        if not is_ordered(left):
            raise trait_missing(function, left)
        return holds(compare(left, right))

    return relate


_OPERATORS: dict[str, Callable[..., Any]] = {
    "_==_": equal,
    "_!=_": lambda left, right: not equal(left, right),
    "_+_": operators.add,
    "_-_": operators.subtract,
    "_*_": operators.multiply,
    "_/_": operators.divide,
    "_%_": operators.modulo,
    "-_": operators.negate,
    "!_": operators.logical_not,
    "@in": operators.contains,
    **{function: _relation(function) for function in operators.RELATIONS},
}

_SPECIAL: dict[str, Callable[[_Builder, Call], Evaluate]] = {
    "_&&_": _Builder.conjunction,
    "_||_": _Builder.disjunction,
    "_?_:_": _Builder.conditional,
    "_[_]": _Builder.index,
    "_[?_]": _Builder.optional_index,
    "_?._": _Builder.optional_select,
    "or": _Builder.optional_or,
    "orValue": _Builder.optional_or,
}
