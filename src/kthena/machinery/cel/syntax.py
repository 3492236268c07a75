"""The syntax tree of an expression, and how its errors are shown.

Comprehension macros (`all`, `map`, ...) are expanded as cel-go expands them, so that the type checker
sees the same tree; each keeps the parts that the evaluator needs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Issue:
    """A mistake at a place of the expression, an offset in code points."""

    offset: int
    text: str


class CelCompileError(ValueError):
    """An expression that does not compile; the text is that of cel-go, with the lines pointed at."""

    def __init__(self, source: str, issues: Sequence[Issue]) -> None:
        super().__init__("\n".join(_show(source, issue) for issue in _in_order(issues)))
        self.issues = tuple(issues)


def _in_order(issues: Sequence[Issue]) -> list[Issue]:
    return sorted(issues, key=lambda issue: issue.offset)


def _show(source: str, issue: Issue) -> str:
    line = source.count("\n", 0, issue.offset) + 1
    start = source.rfind("\n", 0, issue.offset) + 1
    column = issue.offset - start
    snippet = source[start:].partition("\n")[0].replace("\t", " ")
    pointer = "".join("." if character < "\x80" else "\uff0e" for character in snippet[:column])
    marked = snippet[column : column + 1]
    pointer += "^" if not marked or marked < "\x80" else "\uff3e"
    return f"ERROR: <input>:{line}:{column + 1}: {issue.text}\n | {snippet}\n | {pointer}"


@dataclass(slots=True, eq=False)
class Literal:
    """A constant: null, bool, int, `values.Uint`, float, str or bytes."""

    offset: int
    value: Any


@dataclass(slots=True, eq=False)
class Ident:
    """A variable or a type name."""

    offset: int
    name: str


@dataclass(slots=True, eq=False)
class Select:
    """`operand.field`; with `test_only`, `has(operand.field)`.

    `type_name` is set by the checker where all of it names a type, `google.protobuf.Duration`.
    """

    offset: int
    operand: "Expr"
    field: str
    test_only: bool = False
    type_name: str = ""


@dataclass(slots=True, eq=False)
class Call:
    """A function or an operator; `target` is the receiver of a member call.

    `overload` is the place of the only overload that fits the types, set by the checker.
    """

    offset: int
    function: str
    args: list["Expr"]
    target: "Expr | None" = None
    is_member: bool = False
    overload: int | None = None


@dataclass(slots=True, eq=False)
class ListLiteral:
    """`[a, ?b]`; `optional` are the indexes of elements with a question mark."""

    offset: int
    elements: list["Expr"]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapEntry:
    """`key: value` of a map."""

    offset: int
    key: "Expr"
    value: "Expr"
    optional: bool


@dataclass(slots=True, eq=False)
class MapLiteral:
    """`{a: b, ?c: d}`."""

    offset: int
    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class MessageLiteral:
    """`a.B{field: value}`: parsed, and refused by the checker, since there are no messages."""

    offset: int
    name: str
    values: list["Expr"]


@dataclass(slots=True, eq=False)
class Comprehension:
    """A loop over a list or the keys of a map, as a macro expands to.

    `kind` is the macro; `condition` and `transform` are the expressions that its caller gave.
    """

    offset: int
    kind: str
    range: "Expr"
    variables: tuple[str, ...]
    accumulator: str
    initial: "Expr"
    loop_condition: "Expr"
    step: "Expr"
    result: "Expr"
    condition: "Expr | None" = None
    transform: list["Expr"] = field(default_factory=list)


Expr: TypeAlias = (
    Literal | Ident | Select | Call | ListLiteral | MapLiteral | MessageLiteral | Comprehension
)


def qualified_name(tree: Expr) -> str | None:
    """`a.b.c` where the tree is nothing but that."""
    if isinstance(tree, Ident):
        return tree.name
    if isinstance(tree, Select) and not tree.test_only:
        operand = qualified_name(tree.operand)
        return None if operand is None else f"{operand}.{tree.field}"
    return None


def depth(tree: Expr) -> int:
    """The number of nodes on the longest way down."""
    deepest = 0
    pending = [(tree, 1)]
    while pending:
        node, level = pending.pop()
        deepest = max(deepest, level)
        pending += [(child, level + 1) for child in children(node)]
    return deepest


def children(tree: Expr) -> Iterator[Expr]:
    """The nodes directly below a node."""
    if isinstance(tree, Select):
        yield tree.operand
    elif isinstance(tree, Call):
        if tree.target is not None:
            yield tree.target
        yield from tree.args
    elif isinstance(tree, ListLiteral):
        yield from tree.elements
    elif isinstance(tree, MapLiteral):
        for entry in tree.entries:
            yield entry.key
            yield entry.value
    elif isinstance(tree, Comprehension):
        yield from (tree.range, tree.initial, tree.loop_condition, tree.step, tree.result)
