"""What the API server checks in an expression after its types.

Elements of a literal must be of one type, literals of durations, timestamps and patterns must be
well-formed, `format` must get what its clauses take, and conversions of constants must succeed.
"""

from collections.abc import Callable, Iterator
from typing import Any

from kthena.machinery.cel.checker import Checked
from kthena.machinery.cel.evaluator import build
from kthena.machinery.cel.functions import FunctionTable
from kthena.machinery.cel.library import times
from kthena.machinery.cel.library.formatting import check_clauses
from kthena.machinery.cel.syntax import (
    Call,
    Expr,
    Ident,
    Issue,
    ListLiteral,
    Literal,
    MapLiteral,
    children,
)
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import CelError, conversion_error, go_type_name, is_key
from kthena.machinery.regexp import RegexpError, compile_regexp

_CONVERSIONS = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
_PATTERN_PLACES = {"matches": 1, "find": 1, "findAll": 1}
"""Functions with a pattern, and its place among the arguments, the receiver included."""


def find_issues(tree: Expr, checked: Checked) -> list[Issue]:
    """The mistakes that show in the tree and its types."""
    issues = list(_literal_issues(tree))
    issues += _mixed_literals(tree, checked)
    issues += _format_issues(tree, checked)
    return issues


def check_constants(tree: Expr, functions: FunctionTable) -> None:
    """Evaluates what the server evaluates when it plans an expression.

    Raises:
        CelError: the conversion of a constant fails, or a constant cannot be a key.
        RegexpError: a constant pattern is invalid.
    """
    for child in children(tree):
        check_constants(child, functions)
    if not isinstance(tree, Call):
        return
    if _is_conversion(tree):
        if _is_constant(tree.args[0], functions):
            build(tree, functions)({})
    elif tree.function in _PATTERN_PLACES:
        args = [*([] if tree.target is None else [tree.target]), *tree.args]
        place = _PATTERN_PLACES[tree.function]
        if place < len(args) and _is_constant(args[place], functions):
            pattern = build(args[place], functions)({})
            if isinstance(pattern, str):
                compile_regexp(pattern)
    elif tree.function in ("_[_]", "_[?_]") and _is_constant(tree.args[1], functions):
        key = build(tree.args[1], functions)({})
        if not is_key(key):
            raise CelError(f"invalid qualifier type: {go_type_name(key)}")


def _is_conversion(tree: Call) -> bool:
    return tree.function in _CONVERSIONS and not tree.is_member and len(tree.args) == 1


def _is_constant(tree: Expr, functions: FunctionTable) -> bool:
    """Whether the server knows the value when it plans: literals, and conversions of such."""
    if isinstance(tree, Literal):
        return True
    if isinstance(tree, Ident):
        return tree.name in functions.type_names
    if isinstance(tree, (ListLiteral, MapLiteral)):
        if isinstance(tree, ListLiteral) and tree.optional:
            return False
        return all(_is_constant(child, functions) for child in children(tree))
    return isinstance(tree, Call) and _is_conversion(tree) and _is_constant(tree.args[0], functions)


def _check_duration(value: Any) -> None:
    if not isinstance(value, str):
        raise conversion_error(value, "google.protobuf.Duration")
    times.parse_duration_text(value)


def _check_timestamp(value: Any) -> None:
    if isinstance(value, str):
        times.parse_timestamp(value)
    elif type(value) is int:
        times.from_unix_seconds(value)
    else:
        raise conversion_error(value, "google.protobuf.Timestamp")


def _check_pattern(value: Any) -> None:
    if isinstance(value, str):
        compile_regexp(value)


_LITERALS: dict[str, Callable[[Any], None]] = {
    "duration": _check_duration,
    "timestamp": _check_timestamp,
    "matches": _check_pattern,
}
"""Functions whose first argument, if it is a literal, must be well-formed."""


def _literal_issues(tree: Expr) -> Iterator[Issue]:
    if isinstance(tree, Call) and tree.function in _LITERALS and tree.args:
        argument = tree.args[0]
        if isinstance(argument, Literal):
            try:
                _LITERALS[tree.function](argument.value)
            except (CelError, RegexpError):
                yield Issue(argument.offset, f"invalid {tree.function} argument")
    for child in children(tree):
        yield from _literal_issues(child)


def _mixed_literals(tree: Expr, checked: Checked) -> Iterator[Issue]:
    if isinstance(tree, Call) and tree.function == "format":
        return
    if isinstance(tree, ListLiteral):
        elements = [
            (element, _element_type(element, checked, optional=index in tree.optional))
            for index, element in enumerate(tree.elements)
        ]
        yield from list(_different(elements))[:1]
    elif isinstance(tree, MapLiteral):
        keys = [(entry.key, checked.type_of(entry.key)) for entry in tree.entries]
        values = [
            (entry.value, _element_type(entry.value, checked, optional=entry.optional))
            for entry in tree.entries
        ]
        yield from _different(keys)
        yield from _different(values)
    for child in children(tree):
        yield from _mixed_literals(child, checked)


def _element_type(tree: Expr, checked: Checked, *, optional: bool) -> Type:
    found = checked.type_of(tree)
    return found.params[0] if optional and found.params else found


def _different(elements: list[tuple[Expr, Type]]) -> Iterator[Issue]:
    for tree, found in elements[1:]:
        expected = elements[0][1]
        if found != expected:
            yield Issue(tree.offset, f"expected type '{expected}' but found '{found}'")


def _format_issues(tree: Expr, checked: Checked) -> Iterator[Issue]:
    for child in children(tree):
        yield from _format_issues(child, checked)
    if not isinstance(tree, Call) or tree.function != "format" or len(tree.args) != 1:
        return
    template, values = tree.target, tree.args[0]
    if not isinstance(template, Literal) or not isinstance(values, ListLiteral):
        return
    types = [checked.type_of(element) for element in values.elements]
    mistake = check_clauses(str(template.value), types)
    if mistake is not None:
        index, text = mistake
        offset = tree.offset if index is None else values.elements[index].offset
        yield Issue(offset, text)
