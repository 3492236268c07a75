"""The syntax of Go regular expressions: which patterns Go accepts, and what it says of the others.

RE2 and Go's `regexp` share their syntax but not their error texts, limits and Unicode class names.
This reader walks a pattern as Go's parser does, raises Go's error where Go has one, and gives the
pattern back in the spelling of RE2. It builds no tree: of each expression it keeps the height, the
program size and the nested repetition count, which Go limits. Source of the rules: regexp/syntax of
Go 1.26. Not followed is the factoring of common prefixes, which lowers the height of alternations.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

_MAX_HEIGHT = 1000
_MAX_REPEAT = 1000
_MAX_SIZE = (128 << 20) // 40
"""Go allows 128 MiB of instructions of 40 bytes."""
_MAX_RUNE = 0x10FFFF

_DIGITS = "0123456789"
_OCTAL = "01234567"
_HEX = "0123456789abcdefABCDEF"
_ASCII_WORD = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_ESCAPED_CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_POSIX_CLASSES = frozenset(
    (
        *("alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph"),
        *("lower", "print", "punct", "space", "upper", "word", "xdigit"),
    )
)


class RegexpError(ValueError):
    """A pattern that does not compile; the message is Go's."""


def syntax_error(code: str, expression: str) -> RegexpError:
    """The error as Go words it."""
    return RegexpError(f"error parsing regexp: {code}: `{expression}`")


class _Node(NamedTuple):
    """What Go limits of one expression."""

    kind: str
    height: int = 1
    size: int = 1
    copies: int = 0
    """How often nested counted repetitions copy the innermost expression; 0 without any."""


_LITERAL = _Node("literal")


@dataclass(slots=True)
class _Group:
    """An open parenthesis, or the whole pattern: alternatives so far and items of the last one."""

    capturing: bool
    alternatives: list[_Node] = field(default_factory=list)
    items: list[_Node] = field(default_factory=list)


def translate(pattern: str, unicode_class: Callable[[str], str | None]) -> str:
    r"""The pattern in RE2's spelling.

    `unicode_class` gives RE2's name of the class that Go calls by a name in `\p{...}`, or None
    where Go has no such class.

    Raises:
        RegexpError: Go does not accept the pattern.
    """
    return _Reader(pattern, unicode_class).read()


class _Reader:
    """Mutable state: the position in the pattern, the open groups, and the translation so far."""

    def __init__(self, pattern: str, unicode_class: Callable[[str], str | None]) -> None:
        self._pattern = pattern
        self._unicode_class = unicode_class
        self._position = 0
        self._groups = [_Group(capturing=False)]
        self._translated: list[str] = []
        self._copied = 0

    def read(self) -> str:
        repeat_start = -1
        while self._position < len(self._pattern):
            start = self._position
            if self._read_repetition(repeat_start):
                repeat_start = start
                continue
            repeat_start = -1
            self._read_item()
        if len(self._groups) != 1:
            raise syntax_error("missing closing )", self._pattern)
        self._close_group()
        return "".join(self._translated) + self._pattern[self._copied :]

    def _read_item(self) -> None:
        character = self._pattern[self._position]
        if character == "(":
            self._open_group()
        elif character == ")":
            self._close_parenthesis()
        elif character == "|":
            self._close_alternative()
            self._position += 1
        elif character == "[":
            self._read_class()
            self._push(_Node("class"))
        elif character == "\\":
            self._read_escape()
        else:
            self._position += 1
            self._push(_Node("other") if character in "^$." else _LITERAL)

    # --- groups -----------------------------------------------------------------------------

    def _push(self, node: _Node) -> None:
        self._groups[-1].items.append(node)

    def _open_group(self) -> None:
        if not self._pattern.startswith("(?", self._position):
            self._groups.append(_Group(capturing=True))
            self._position += 1
            return
        rest = self._pattern[self._position :]
        if (rest.startswith("(?P<") and len(rest) > 4) or (
            rest.startswith("(?<") and len(rest) > 3
        ):
            self._open_named_group(rest)
        else:
            self._read_flags()

    def _open_named_group(self, rest: str) -> None:
        end = rest.find(">")
        if end < 0:
            raise syntax_error("invalid named capture", rest)
        name = rest[rest.index("<") + 1 : end]
        if not name or not all(character in _ASCII_WORD or character == "_" for character in name):
            raise syntax_error("invalid named capture", rest[: end + 1])
        self._groups.append(_Group(capturing=True))
        self._position += end + 1

    def _read_flags(self) -> None:
        """`(?flags)`, `(?flags:`, `(?:`. The flags do not change what is accepted."""
        start = self._position
        position = start + 2
        negative = seen_flag = False
        while position < len(self._pattern):
            character = self._pattern[position]
            position += 1
            if character in "imsU":
                seen_flag = True
            elif character == "-" and not negative:
                negative, seen_flag = True, False
            elif character in ":)" and (seen_flag or not negative):
                if character == ":":
                    self._groups.append(_Group(capturing=False))
                self._position = position
                return
            else:
                break
        raise syntax_error("invalid or unsupported Perl syntax", self._pattern[start:position])

    def _close_parenthesis(self) -> None:
        if len(self._groups) == 1:
            raise syntax_error("unexpected )", self._pattern)
        node, group = self._close_group()
        if group.capturing:
            node = self._limited(_Node("other", node.height + 1, node.size + 2, node.copies))
        self._push(node)
        self._position += 1

    def _close_group(self) -> tuple[_Node, _Group]:
        self._close_alternative()
        group = self._groups.pop()
        node = self._joined("alternate", group.alternatives)
        return node, group

    def _close_alternative(self) -> None:
        group = self._groups[-1]
        items: list[_Node] = []
        for item in group.items:
            if item.kind == "literal" and items and items[-1].kind == "literal":
                items[-1] = _Node("literal", size=items[-1].size + item.size)
            else:
                items.append(item)
        group.items = []
        node = self._joined("concat", items) if items else _Node("other")
        previous = group.alternatives[-1:]
        if previous and _is_character(node) and _is_character(previous[0]):
            group.alternatives[-1] = _Node("class")
        else:
            group.alternatives.append(node)

    def _joined(self, kind: str, nodes: list[_Node]) -> _Node:
        """Concatenation or alternation; one of one is that one, one of the same kind is flat."""
        if len(nodes) == 1:
            return nodes[0]
        height = 1 + max(node.height - (node.kind == kind) for node in nodes)
        size = sum(node.size for node in nodes)
        if kind == "alternate":
            size += len(nodes) - 1
        return self._limited(_Node(kind, height, size, max(node.copies for node in nodes)))

    def _limited(self, node: _Node) -> _Node:
        if node.size > _MAX_SIZE:
            raise syntax_error("expression too large", self._pattern)
        if node.height > _MAX_HEIGHT:
            raise syntax_error("expression nests too deeply", self._pattern)
        return node

    # --- repetitions ------------------------------------------------------------------------

    def _read_repetition(self, previous: int) -> bool:
        """Read an operator, if there is one here; `previous` is where one before it started."""
        start = self._position
        character = self._pattern[start]
        if character in "*+?":
            low, high, end = 0, -1, start + 1
        elif character == "{" and (counts := self._read_counts()) is not None:
            low, high, end = counts
            if not (0 <= low <= _MAX_REPEAT) or high > _MAX_REPEAT or 0 <= high < low:
                raise syntax_error("invalid repeat count", self._pattern[start:end])
        else:
            return False
        if self._pattern.startswith("?", end):
            end += 1
        if previous >= 0:
            raise syntax_error("invalid nested repetition operator", self._pattern[previous:end])
        items = self._groups[-1].items
        if not items:
            raise syntax_error("missing argument to repetition operator", self._pattern[start:end])
        node = _repeated(items[-1], character, low, high)
        items[-1] = self._limited(node)
        if character == "{" and max(low, high) >= 2 and node.copies > _MAX_REPEAT:
            raise syntax_error("invalid repeat count", self._pattern[start:end])
        self._position = end
        return True

    def _read_counts(self) -> tuple[int, int, int] | None:
        """`{low}`, `{low,}` or `{low,high}` as low, high (-1 for none) and the position after it.

        None where it is none of them, so that the brace is a literal.
        """
        low, position = self._read_number(self._position + 1)
        if low is None:
            return None
        high: int | None = low
        if self._pattern.startswith(",}", position):
            high, position = -1, position + 1
        elif self._pattern.startswith(",", position):
            high, position = self._read_number(position + 1)
        if high is None or not self._pattern.startswith("}", position):
            return None
        return low, high, position + 1

    def _read_number(self, position: int) -> tuple[int | None, int]:
        """A decimal number without leading zeros; any beyond the limit is one above it."""
        end = position
        while end < len(self._pattern) and self._pattern[end] in _DIGITS:
            end += 1
        digits = self._pattern[position:end]
        if not digits or (len(digits) > 1 and digits[0] == "0"):
            return None, position
        return (int(digits) if len(digits) <= 4 else _MAX_REPEAT + 1), end

    # --- escapes and classes ----------------------------------------------------------------

    def _read_escape(self) -> None:
        start = self._position
        kind = self._pattern[start + 1 : start + 2]
        if kind == "C":
            raise syntax_error("invalid escape sequence", r"\C")
        if kind == "Q":
            end = self._pattern.find(r"\E", start + 2)
            literal = self._pattern[start + 2 : end if end >= 0 else None]
            for _ in literal:
                self._push(_LITERAL)
            self._position = start + 2 + len(literal) + (2 if end >= 0 else 0)
        elif kind and kind in "AbBz":
            self._position += 2
            self._push(_Node("other"))
        elif kind and kind in "dDsSwW":
            self._position += 2
            self._push(_Node("class"))
        elif kind and kind in "pP":
            self._read_unicode_class()
            self._push(_Node("class"))
        else:
            self._read_character()
            self._push(_LITERAL)

    def _read_unicode_class(self) -> None:
        start = self._position
        position = start + 2
        if self._pattern.startswith("{", position):
            end = self._pattern.find("}", position)
            if end < 0:
                raise syntax_error("invalid character class range", self._pattern[start:])
            name = self._pattern[position + 1 : end]
            position = end + 1
        else:
            name = self._pattern[position : position + 1]
            position += len(name)
        known = self._unicode_class(name.removeprefix("^"))
        if known is None:
            raise syntax_error("invalid character class range", self._pattern[start:position])
        caret = "^" if name.startswith("^") else ""
        self._replace(start, position, f"{self._pattern[start : start + 2]}{{{caret}{known}}}")
        self._position = position

    def _replace(self, start: int, end: int, text: str) -> None:
        self._translated += [self._pattern[self._copied : start], text]
        self._copied = end

    def _read_class(self) -> None:
        """A bracket expression, from `[` to `]`."""
        start = self._position
        self._position += 1
        if self._pattern.startswith("^", self._position):
            self._position += 1
        first = True
        while first or not self._pattern.startswith("]", self._position):
            first = False
            self._read_class_item(start)
        self._position += 1

    def _read_class_item(self, start: int) -> None:
        rest = self._pattern[self._position : self._position + 2]
        if rest == "[:" and (end := self._pattern.find(":]", self._position + 2)) >= 0:
            name = self._pattern[self._position + 2 : end].removeprefix("^")
            if name not in _POSIX_CLASSES:
                bad = self._pattern[self._position : end + 2]
                raise syntax_error("invalid character class range", bad)
            self._position = end + 2
            return
        if rest in (r"\p", r"\P"):
            self._read_unicode_class()
            return
        if len(rest) == 2 and rest[0] == "\\" and rest[1] in "dDsSwW":
            self._position += 2
            return
        range_start = self._position
        low = self._read_class_character(start)
        after = self._pattern[self._position : self._position + 2]
        if len(after) == 2 and after[0] == "-" and after[1] != "]":
            self._position += 1
            high = self._read_class_character(start)
            if high < low:
                bad = self._pattern[range_start : self._position]
                raise syntax_error("invalid character class range", bad)

    def _read_class_character(self, start: int) -> int:
        if self._position >= len(self._pattern):
            raise syntax_error("missing closing ]", self._pattern[start:])
        if self._pattern[self._position] == "\\":
            return self._read_character()
        self._position += 1
        return ord(self._pattern[self._position - 1])

    def _read_character(self) -> int:
        """The character that a backslash and what follows it stand for."""
        start = self._position
        if start + 1 >= len(self._pattern):
            raise syntax_error("trailing backslash at end of expression", "")
        character = self._pattern[start + 1]
        self._position = start + 2
        following = self._pattern[self._position : self._position + 1]
        if character in _OCTAL and (character == "0" or (following and following in _OCTAL)):
            return self._read_octal()
        if character == "x" and following:
            return self._read_hexadecimal(start)
        if character in _ESCAPED_CONTROLS:
            return _ESCAPED_CONTROLS[character]
        if character < "\x80" and character not in _ASCII_WORD:
            return ord(character)
        raise self._invalid_escape(start)

    def _read_octal(self) -> int:
        """Up to three digits, the first of which is before the position."""
        start = self._position - 1
        end = start + 1
        while end < min(start + 3, len(self._pattern)) and self._pattern[end] in _OCTAL:
            end += 1
        self._position = end
        return int(self._pattern[start:end], 8)

    def _read_hexadecimal(self, start: int) -> int:
        if not self._pattern.startswith("{", self._position):
            digits = self._pattern[self._position : self._position + 2]
            self._position += len(digits)
            if len(digits) != 2 or not all(digit in _HEX for digit in digits):
                raise self._invalid_escape(start)
            return int(digits, 16)
        self._position += 1
        value, count = 0, 0
        while self._position < len(self._pattern):
            digit = self._pattern[self._position]
            self._position += 1
            if digit == "}" and count:
                return value
            if digit not in _HEX:
                break
            value, count = value * 16 + int(digit, 16), count + 1
            if value > _MAX_RUNE:
                break
        raise self._invalid_escape(start)

    def _invalid_escape(self, start: int) -> RegexpError:
        return syntax_error("invalid escape sequence", self._pattern[start : self._position])


def _is_character(node: _Node) -> bool:
    return node.kind == "class" or (node.kind == "literal" and node.size == 1)


def _repeated(node: _Node, operator: str, low: int, high: int) -> _Node:
    """The expression under a repetition operator, with Go's estimate of its program size."""
    if operator == "{":
        times = low if high < 0 else high
        size = times * node.size + (1 if high < 0 else high - low)
        copies = times * max(1, node.copies)
    else:
        size = node.size + (2 if operator == "*" else 1)
        copies = node.copies
    return _Node("other", node.height + 1, max(1, size), copies)
