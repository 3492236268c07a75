"""Label and field selectors: parsed once, matched often.

The grammar, the printed form and the error texts are those of apimachinery's packages `labels` and
`fields`. A text or an object that is not understood raises; nothing is ever ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from kthena.machinery.fields import ErrorType, FieldError, join_errors
from kthena.machinery.gotext import parse_int, quote
from kthena.machinery.names import check_label_value, check_qualified_name


class SelectorError(ValueError):
    """A selector that is not understood; the message is apimachinery's."""


class Operator(Enum):
    """How a requirement compares."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER_THAN = "gt"
    LESS_THAN = "lt"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"


_SETS = (Operator.IN, Operator.NOT_IN)
_EXACT = (Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.NOT_EQUALS)
_EXISTENCE = (Operator.EXISTS, Operator.DOES_NOT_EXIST)
_ORDER = (Operator.GREATER_THAN, Operator.LESS_THAN)
_BINARY_OPERATORS = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_OBJECT_OPERATORS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
}


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One condition on the label `key`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil it; an absent label fulfils `!=`, `notin` and `!`."""
        value = labels.get(self.key)
        if self.operator is Operator.EXISTS:
            return value is not None
        if self.operator is Operator.DOES_NOT_EXIST:
            return value is None
        if self.operator in (Operator.NOT_EQUALS, Operator.NOT_IN):
            return value not in self.values
        if value is None:
            return False
        if self.operator in _ORDER:
            return self._matches_order(value)
        return value in self.values

    def _matches_order(self, value: str) -> bool:
        try:
            number = parse_int(value)
        except ValueError:
            return False
        limit = parse_int(self.values[0])
        return number > limit if self.operator is Operator.GREATER_THAN else number < limit

    def __str__(self) -> str:
        """The requirement in the syntax that `parse_label_selector` reads."""
        if self.operator is Operator.EXISTS:
            return self.key
        if self.operator is Operator.DOES_NOT_EXIST:
            return f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in _SETS:
            return f"{self.key} {self.operator.value} ({values})"
        if self.operator in _ORDER:
            return f"{self.key}{'>' if self.operator is Operator.GREATER_THAN else '<'}{values}"
        return f"{self.key}{self.operator.value}{values}"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """The conjunction of its requirements; none of them selects everything.

    `nothing` is the selector of an absent selector object, which selects no labels at all.
    """

    requirements: tuple[LabelRequirement, ...] = ()
    nothing: bool = False

    @property
    def empty(self) -> bool:
        """Whether it selects everything."""
        return not self.requirements and not self.nothing

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil every requirement."""
        if self.nothing:
            return False
        return all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        """The requirements, sorted by key, joined by commas."""
        return ",".join(map(str, self.requirements))


def parse_label_selector(text: str) -> LabelSelector:
    """The selector that a `labelSelector` parameter or kubectl's `-l` names.

    Raises:
        SelectorError: the text is not understood.
    """
    requirements = _LabelParser(text).parse()
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def label_selector_from_object(selector: Mapping[str, Any] | None) -> LabelSelector:
    """The selector that a `LabelSelector` object (matchLabels, matchExpressions) stands for.

    An absent object selects nothing, an empty one everything.

    Raises:
        SelectorError: an operator, a key or a value is invalid.
    """
    if selector is None:
        return LabelSelector(nothing=True)
    requirements = [
        _requirement(key, Operator.EQUALS, (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        name = expression.get("operator") or ""
        operator = _OBJECT_OPERATORS.get(name)
        if operator is None:
            raise SelectorError(f"{quote(name)} is not a valid label selector operator")
        values = tuple(expression.get("values") or ())
        requirements.append(_requirement(expression.get("key") or "", operator, values))
    return LabelSelector(tuple(sorted(requirements, key=lambda requirement: requirement.key)))


def _requirement(key: str, operator: Operator, values: tuple[str, ...]) -> LabelRequirement:
    """The requirement, after the checks of `labels.NewRequirement`."""
    errors = []
    if messages := check_qualified_name(key):
        errors.append(FieldError("key", ErrorType.INVALID, key, "; ".join(messages)))
    if problem := _values_problem(operator, values):
        errors.append(FieldError("values", ErrorType.INVALID, list(values) or None, problem))
    if operator in _ORDER:
        errors += [
            FieldError(
                f"values[{index}]",
                ErrorType.INVALID,
                value,
                "for 'Gt', 'Lt' operators, the value must be an integer",
            )
            for index, value in enumerate(values)
            if not _is_int(value)
        ]
    for index, value in enumerate(values):
        if messages := check_label_value(value):
            path = f"values[{index}][{key}]"
            errors.append(FieldError(path, ErrorType.INVALID, value, "; ".join(messages)))
    if errors:
        raise SelectorError(join_errors(errors))
    return LabelRequirement(key, operator, values)


def _values_problem(operator: Operator, values: tuple[str, ...]) -> str:
    if operator in _SETS and not values:
        return "for 'in', 'notin' operators, values set can't be empty"
    if operator in _EXACT and len(values) != 1:
        return "exact-match compatibility requires one single value"
    if operator in _EXISTENCE and values:
        return "values set must be empty for exists and does not exist"
    if operator in _ORDER and len(values) != 1:
        return "for 'Gt', 'Lt' operators, exactly one value is required"
    return ""


def _is_int(text: str) -> bool:
    try:
        parse_int(text)
    except ValueError:
        return False
    return True


_SPACES = " \t\r\n"
_SPECIAL = "=!(),><"
_SYMBOLS = frozenset({")", ",", "!", "==", "=", ">", "<", "!=", "("})
_END = ""
"""The literal of the token at the end, as it shows in messages."""


class _LabelParser:
    """Recursive descent over the tokens of a selector text.

    A token is its literal; identifiers are all literals that are no symbol. `in` and `notin` are
    keywords only where an operator is expected. Mutable state: the position of the next token.
    """

    def __init__(self, text: str) -> None:
        self._tokens = _tokenize(text)
        self._position = 0

    def parse(self) -> list[LabelRequirement]:
        requirements: list[LabelRequirement] = []
        while (literal := self._peek()) != _END:
            if literal != "!" and not _is_identifier(literal):
                raise SelectorError(
                    f"found '{literal}', expected: !, identifier, or 'end of string'"
                )
            try:
                requirements.append(self._parse_requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            literal = self._next()
            if literal == _END:
                break
            if literal != ",":
                raise SelectorError(f"found '{literal}', expected: ',' or 'end of string'")
            literal = self._peek()
            if literal != "!" and not _is_identifier(literal):
                raise SelectorError(f"found '{literal}', expected: identifier after ','")
        return requirements

    def _parse_requirement(self) -> LabelRequirement:
        key = self._next()
        negated = key == "!"
        if negated:
            key = self._next()
        if not _is_identifier(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if messages := check_qualified_name(key):
            # The path is absent here, and Go prints it so.
            error = FieldError("<nil>", ErrorType.INVALID, key, "; ".join(messages))
            raise SelectorError(str(error))
        if negated:
            return LabelRequirement(key, Operator.DOES_NOT_EXIST)
        if self._peek() in (_END, ","):
            return LabelRequirement(key, Operator.EXISTS)
        literal = self._next()
        operator = _BINARY_OPERATORS.get(literal)
        if operator is None:
            raise SelectorError(f"found '{literal}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._parse_set() if operator in _SETS else {self._parse_value()}
        return _requirement(key, operator, tuple(sorted(values)))

    def _parse_value(self) -> str:
        if self._peek() in (_END, ","):
            return ""
        literal = self._next()
        if not _is_identifier(literal):
            raise SelectorError(f"found '{literal}', expected: identifier")
        return literal

    def _parse_set(self) -> set[str]:
        literal = self._next()
        if literal != "(":
            raise SelectorError(f"found '{literal}' expected: '('")
        literal = self._peek()
        if literal not in (")", ",") and not _is_identifier(literal):
            raise SelectorError(f"found '{literal}', expected: ',', ')' or identifier")
        values: set[str] = set()
        expect_value = True
        while (literal := self._next()) != ")":
            if literal == ",":
                if expect_value:
                    values.add("")
                expect_value = True
            elif not _is_identifier(literal):
                raise SelectorError(f"found '{literal}', expected: ',', or identifier")
            else:
                values.add(literal)
                expect_value = False
                if (after := self._peek()) not in (",", ")"):
                    raise SelectorError(f"found '{after}', expected: ',' or ')'")
        if expect_value:
            values.add("")
        return values

    def _peek(self) -> str:
        return self._tokens[self._position]

    def _next(self) -> str:
        literal = self._tokens[self._position]
        self._position = min(self._position + 1, len(self._tokens) - 1)
        return literal


def _is_identifier(literal: str) -> bool:
    return literal != _END and literal not in _SYMBOLS


def _tokenize(text: str) -> list[str]:
    """The literals of a text, the last one being the end. A NUL ends the text, or an identifier."""
    tokens = []
    position = 0
    while position < len(text):
        character = text[position]
        if character in _SPACES:
            position += 1
        elif character == "\0":
            break
        elif character in _SPECIAL:
            size = 2 if text[position : position + 2] in _SYMBOLS else 1
            tokens.append(text[position : position + size])
            position += size
        else:
            start = position
            while position < len(text) and text[position] not in _SPACES + _SPECIAL + "\0":
                position += 1
            tokens.append(text[start:position])
            position += text[position : position + 1] == "\0"
    return [*tokens, _END]


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    """One field that must, or must not, have a value."""

    field: str
    operator: Operator
    value: str

    def matches(self, lookup: Callable[[str], str]) -> bool:
        """Whether the field, read through `lookup`, fulfils it."""
        return (lookup(self.field) == self.value) == (self.operator is Operator.EQUALS)

    def __str__(self) -> str:
        """The requirement in the syntax that `parse_field_selector` reads."""
        value = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.field}{self.operator.value}{value}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """The conjunction of its requirements; none of them selects everything.

    Which fields a kind supports is for its server to say: it looks at `requirements`.
    """

    requirements: tuple[FieldRequirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether it selects everything."""
        return not self.requirements

    def matches(self, lookup: Callable[[str], str]) -> bool:
        """Whether an object, whose fields `lookup` reads, fulfils every requirement."""
        return all(requirement.matches(lookup) for requirement in self.requirements)

    def __str__(self) -> str:
        """The requirements, sorted by their text, joined by commas."""
        return ",".join(map(str, self.requirements))


def parse_field_selector(text: str) -> FieldSelector:
    """The selector that a `fieldSelector` parameter names.

    Raises:
        SelectorError: the text is not understood.
    """
    requirements = []
    for term in sorted(_split_terms(text)):
        if not term:
            continue
        field, operator, value = _split_term(term)
        if not operator:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{term}'")
        comparison = Operator.NOT_EQUALS if operator == "!=" else Operator.EQUALS
        requirements.append(FieldRequirement(field, comparison, _unescape(value)))
    return FieldSelector(tuple(requirements))


def _split_terms(text: str) -> list[str]:
    """The terms between commas that no backslash escapes; the escapes stay."""
    terms = [""]
    escaped = False
    for character in text:
        if character == "," and not escaped:
            terms.append("")
            continue
        terms[-1] += character
        escaped = character == "\\" and not escaped
    return terms


def _split_term(term: str) -> tuple[str, str, str]:
    """Field, operator and value; all empty where there is no operator."""
    for position in range(len(term)):
        for operator in ("!=", "==", "="):
            if term.startswith(operator, position):
                return term[:position], operator, term[position + len(operator) :]
    return "", "", ""


def _unescape(value: str) -> str:
    result = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            escaped = next(characters, "")
            if escaped not in ("\\", ",", "="):
                raise SelectorError(f"invalid field selector: invalid escape sequence: \\{escaped}")
            result.append(escaped)
        elif character in ",=":
            raise SelectorError(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        else:
            result.append(character)
    return "".join(result)
