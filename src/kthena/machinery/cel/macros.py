"""Macros: calls that are replaced by other trees before checking.

Expansions are those of cel-go: `has`, `all`, `exists`, `exists_one`, `map`, `filter`, those with two
variables, and `optMap`, `optFlatMap` of optional values.
"""

from collections.abc import Callable

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

ACCUMULATOR = "@result"
_RESERVED_VARIABLES = frozenset({ACCUMULATOR, "__result__"})


class MacroError(ValueError):
    """A macro called with something that it does not take, at an offset."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.offset = offset


def expand(call: Call) -> Expr:
    """The tree that stands for a call; the call itself where it is no macro.

    Raises:
        MacroError: the call is a macro, but its arguments are not those of one.
    """
    macro = _MACROS.get((call.function, len(call.args), call.is_member))
    return call if macro is None else macro(call)


def _has(call: Call) -> Expr:
    argument = call.args[0]
    if not isinstance(argument, Select) or argument.test_only:
        raise MacroError(argument.offset, "invalid argument to has() macro")
    return Select(call.offset, argument.operand, argument.field, test_only=True)


def _variable(argument: Expr, text: str) -> str:
    if not isinstance(argument, Ident):
        raise MacroError(argument.offset, text)
    if argument.name in _RESERVED_VARIABLES:
        raise MacroError(argument.offset, "iteration variable overwrites accumulator variable")
    return argument.name


def _variables(call: Call, count: int) -> tuple[str, ...]:
    if count == 1:
        in_quantifier = call.function not in ("map", "filter")
        noun = (
            "argument must be a simple name" if in_quantifier else "argument is not an identifier"
        )
        return (_variable(call.args[0], noun),)
    names = tuple(
        _variable(argument, "argument must be a simple name") for argument in call.args[:2]
    )
    if names[0] == names[1]:
        raise MacroError(call.args[1].offset, f"duplicate variable name: {names[0]}")
    return names


def _quantifier(call: Call) -> Expr:
    """`all`, `exists` and `exists_one`, with one variable or two."""
    offset = call.offset
    variables = _variables(call, len(call.args) - 1)
    condition = call.args[-1]
    if call.function == "all":
        initial: Expr = Literal(offset, value=True)
        loop: Expr = Call(offset, "@not_strictly_false", [_accu(offset)])
        step: Expr = Call(offset, "_&&_", [_accu(offset), condition])
        result: Expr = _accu(offset)
    elif call.function == "exists":
        initial = Literal(offset, value=False)
        negated = Call(offset, "!_", [_accu(offset)])
        loop = Call(offset, "@not_strictly_false", [negated])
        step = Call(offset, "_||_", [_accu(offset), condition])
        result = _accu(offset)
    else:
        initial = Literal(offset, 0)
        loop = Literal(offset, value=True)
        increment = Call(offset, "_+_", [_accu(offset), Literal(offset, 1)])
        step = Call(offset, "_?_:_", [condition, increment, _accu(offset)])
        result = Call(offset, "_==_", [_accu(offset), Literal(offset, 1)])
    kind = "exists_one" if call.function == "existsOne" else call.function
    return _loop(call, kind, variables, (initial, loop, step, result), condition, [])


def _map(call: Call) -> Expr:
    offset = call.offset
    variables = _variables(call, 1)
    condition = call.args[1] if len(call.args) == 3 else None
    transform = call.args[-1]
    step: Expr = Call(offset, "_+_", [_accu(offset), ListLiteral(offset, [transform])])
    if condition is not None:
        step = Call(offset, "_?_:_", [condition, step, _accu(offset)])
    parts = (ListLiteral(offset, []), Literal(offset, value=True), step, _accu(offset))
    return _loop(call, "map", variables, parts, condition, [transform])


def _filter(call: Call) -> Expr:
    offset = call.offset
    variables = _variables(call, 1)
    kept = ListLiteral(offset, [call.args[0]])
    appended = Call(offset, "_+_", [_accu(offset), kept])
    step = Call(offset, "_?_:_", [call.args[1], appended, _accu(offset)])
    parts = (ListLiteral(offset, []), Literal(offset, value=True), step, _accu(offset))
    return _loop(call, "map", variables, parts, call.args[1], [call.args[0]])


def _transform(call: Call) -> Expr:
    """`transformList`, `transformMap` and `transformMapEntry`."""
    offset = call.offset
    variables = _variables(call, 2)
    condition = call.args[2] if len(call.args) == 4 else None
    transform = call.args[-1]
    if call.function == "transformList":
        initial: Expr = ListLiteral(offset, [])
        step: Expr = Call(offset, "_+_", [_accu(offset), ListLiteral(offset, [transform])])
        kept = [transform]
    elif call.function == "transformMap":
        initial = MapLiteral(offset, [])
        key = Ident(offset, variables[0])
        step = Call(offset, "cel.@mapInsert", [_accu(offset), key, transform])
        kept = [key, transform]
    else:
        initial = MapLiteral(offset, [])
        step = Call(offset, "cel.@mapInsert", [_accu(offset), transform])
        kept = [transform]
    if condition is not None:
        step = Call(offset, "_?_:_", [condition, step, _accu(offset)])
    parts = (initial, Literal(offset, value=True), step, _accu(offset))
    return _loop(call, call.function, variables, parts, condition, kept)


def _sort_by(call: Call) -> Expr:
    """`sortBy`: binds the list, and sorts it by the list of keys made from it."""
    offset = call.offset
    if call.target is None:
        return call
    if isinstance(call.target, (Literal, MapLiteral)):
        text = "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        raise MacroError(call.target.offset, text)
    bound = Ident(offset, "@__sortBy_input__")
    keys = _map(Call(offset, "map", call.args, bound, is_member=True))
    sort = Call(offset, "@sortByAssociatedKeys", [keys], bound, is_member=True)
    return _bind(offset, bound.name, call.target, sort)


def _bind(offset: int, name: str, value: Expr, body: Expr) -> Expr:
    """A loop without turns, whose accumulator is a variable for the result."""
    return Comprehension(
        offset,
        "bind",
        ListLiteral(offset, []),
        ("#unused",),
        name,
        value,
        Literal(offset, value=False),
        Ident(offset, name),
        body,
    )


def _optional_map(call: Call) -> Expr:
    """`optMap` and `optFlatMap`: the transformed value of an optional, or none."""
    offset = call.offset
    if call.target is None:
        return call
    variable = _variable(
        call.args[0], f"{call.function}() variable name must be a simple identifier"
    )
    value = Call(offset, "value", [], call.target, is_member=True)
    transformed = _bind(offset, variable, value, call.args[1])
    if call.function == "optMap":
        transformed = Call(offset, "optional.of", [transformed])
    has_value = Call(offset, "hasValue", [], call.target, is_member=True)
    return Call(offset, "_?_:_", [has_value, transformed, Call(offset, "optional.none", [])])


def _accu(offset: int) -> Ident:
    return Ident(offset, ACCUMULATOR)


def _loop(
    call: Call,
    kind: str,
    variables: tuple[str, ...],
    parts: tuple[Expr, Expr, Expr, Expr],
    condition: Expr | None,
    transform: list[Expr],
) -> Expr:
    if call.target is None:
        return call
    initial, loop_condition, step, result = parts
    return Comprehension(
        call.offset,
        kind,
        call.target,
        variables,
        ACCUMULATOR,
        initial,
        loop_condition,
        step,
        result,
        condition,
        transform,
    )


_Macro = Callable[[Call], Expr]
_MACROS: dict[tuple[str, int, bool], _Macro] = {
    ("has", 1, False): _has,
    **{
        (name, count, True): _quantifier
        for name in ("all", "exists", "exists_one")
        for count in (2, 3)
    },
    ("existsOne", 3, True): _quantifier,
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
    **{
        (name, count, True): _transform
        for name in ("transformList", "transformMap", "transformMapEntry")
        for count in (3, 4)
    },
    ("sortBy", 2, True): _sort_by,
    ("optMap", 2, True): _optional_map,
    ("optFlatMap", 2, True): _optional_map,
}
