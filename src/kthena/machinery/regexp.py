r"""Regular expressions as Go has them: RE2 syntax, verdicts and texts of Go's `regexp` package.

The only importer of `re2`. Matching is in linear time and over Unicode text; patterns and texts may
hold NUL. Never use Python's `re` for a pattern of a user: it has another syntax and backtracks.

Unlike Go, the classes `\p{LC}`, `\p{Cn}`, `\p{Assigned}` and `\p{ASCII}` are refused, since RE2
has no tables for them, and a pattern is refused whose program needs more than 64 MiB.
"""

from collections.abc import Iterator
from functools import cache, lru_cache

import re2

from kthena.machinery.regexp_syntax import RegexpError, translate

__all__ = ["Regexp", "RegexpError", "compile_regexp"]

_MAX_MEMORY = 64 << 20
_CACHE_SIZE = 512

_CATEGORY_ALIASES = {
    "Closepunctuation": "Pe",
    "Cntrl": "Cc",
    "Combiningmark": "M",
    "Connectorpunctuation": "Pc",
    "Control": "Cc",
    "Currencysymbol": "Sc",
    "Dashpunctuation": "Pd",
    "Decimalnumber": "Nd",
    "Digit": "Nd",
    "Enclosingmark": "Me",
    "Finalpunctuation": "Pf",
    "Format": "Cf",
    "Initialpunctuation": "Pi",
    "Letter": "L",
    "Letternumber": "Nl",
    "Lineseparator": "Zl",
    "Lowercaseletter": "Ll",
    "Mark": "M",
    "Mathsymbol": "Sm",
    "Modifierletter": "Lm",
    "Modifiersymbol": "Sk",
    "Nonspacingmark": "Mn",
    "Number": "N",
    "Openpunctuation": "Ps",
    "Other": "C",
    "Otherletter": "Lo",
    "Othernumber": "No",
    "Otherpunctuation": "Po",
    "Othersymbol": "So",
    "Paragraphseparator": "Zp",
    "Privateuse": "Co",
    "Punct": "P",
    "Punctuation": "P",
    "Separator": "Z",
    "Spaceseparator": "Zs",
    "Spacingmark": "Mc",
    "Surrogate": "Cs",
    "Symbol": "S",
    "Titlecaseletter": "Lt",
    "Uppercaseletter": "Lu",
}
_WITHOUT_TABLE = frozenset({"Lc", "Casedletter", "Cn", "Unassigned", "Assigned", "Ascii"})


class Regexp:
    """A compiled pattern. Immutable."""

    __slots__ = ("_compiled", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._compiled = _compile(translate(pattern, _unicode_class), pattern)

    def search(self, text: str) -> bool:
        """Whether the pattern matches anywhere in the text."""
        return self._compiled.search(_encode(text)) is not None

    def find(self, text: str) -> str | None:
        """The leftmost match, or None."""
        return next(self._matches(text), None)

    def find_all(self, text: str) -> list[str]:
        """All matches that do not overlap, as `FindAllString`: none is empty right after another."""
        return list(self._matches(text))

    def _matches(self, text: str) -> Iterator[str]:
        encoded = _encode(text)
        position, previous_end = 0, -1
        while position <= len(encoded):
            match = self._compiled.search(encoded, position)
            if match is None:
                return
            start, end = match.span()
            accepted = end > position or start != previous_end
            position = end if end > position else _next_character(encoded, position)
            previous_end = end
            if accepted:
                yield encoded[start:end].decode()


@lru_cache(maxsize=_CACHE_SIZE)
def compile_regexp(pattern: str) -> Regexp:
    """The compiled pattern; compiled patterns are kept for a while.

    Raises:
        RegexpError: the pattern is invalid, with the text of Go's `regexp.Compile`.
    """
    return Regexp(pattern)


def _compile(translated: str, pattern: str) -> "re2._Regexp":
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(_encode(translated), options)
    except re2.error as error:
        cause = error.args[0]
        text = cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
        raise RegexpError(f"error parsing regexp: {text}: `{pattern}`") from None


def _encode(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate is no text in Go: its JSON decoder replaces it.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _next_character(encoded: bytes, position: int) -> int:
    position += 1
    while position < len(encoded) and encoded[position] & 0xC0 == 0x80:
        position += 1
    return position


@cache
def _unicode_class(name: str) -> str | None:
    """RE2's name of a Unicode class of Go, which ignores case, spaces, dashes and underscores."""
    canonical = name.translate({ord(character): None for character in "_- "}).capitalize()
    if canonical in _WITHOUT_TABLE:
        raise RegexpError(f"error parsing regexp: character class not supported: `\\p{{{name}}}`")
    canonical = _CATEGORY_ALIASES.get(canonical, canonical)
    if not canonical.isalnum() or not canonical.isascii():
        return None
    try:
        _compile(f"\\p{{{canonical}}}", name)
    except RegexpError:
        return None
    return canonical
