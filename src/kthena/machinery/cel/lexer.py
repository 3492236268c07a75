"""Tokens of CEL."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kthena.machinery.cel.syntax import Issue

_ESCAPE = (
    r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
)
_STRING = (
    r"[rR](?:\"\"\".*?\"\"\"|'''.*?'''|\"[^\"\n\r]*\"|'[^'\n\r]*')"
    rf"|\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\""
    rf"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\""
    rf"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_TOKEN = re.compile(
    rf"""
    (?P<blank>[\t\ \r\n\f]+|//[^\n]*)
    |(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|[0-9]+)
    |(?P<bytes>[bB](?:{_STRING}))
    |(?P<string>{_STRING})
    |(?P<ident>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<quoted>`[A-Za-z0-9_./\-\ ]+`)
    |(?P<op>==|!=|<=|>=|&&|\|\||[\[\]{{}}().,\-!?:+*/%<>])
    """,
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind` is the text itself for operators and keywords."""

    kind: str
    text: str
    offset: int


_HALF_ESCAPE = r"\\(?:[0-3][0-7]?|[xX][0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?"
_UNFINISHED = re.compile(
    rf"""[bB]?[rR]?(?:\"\"\".*|\'\'\'.*)|[bB]?[rR]\"[^\"\n\r]*.?|[bB]?[rR]'[^'\n\r]*.?"""
    rf"""|[bB]?\"(?:{_ESCAPE}|[^\\\"\n\r])*(?:{_HALF_ESCAPE})?.?|[bB]?'(?:{_ESCAPE}|[^\\'\n\r])*(?:{_HALF_ESCAPE})?.?|[=&|].?|.""",
    re.DOTALL,
)
"""What cel-go's lexer gives up at once: a text that could have become a token, and one more."""


def tokenize(source: str, issues: list[Issue]) -> Iterator[Token]:
    """The tokens, closed by one of the kind `end`. What is no token is an issue, and left out."""
    position = 0
    while position < len(source):
        found = _TOKEN.match(source, position)
        if found is None:
            lost = _UNFINISHED.match(source, position)
            text = lost.group() if lost else source[position]
            issues.append(Issue(position, f"Syntax error: token recognition error at: '{text}'"))
            position += len(text)
            continue
        kind = found.lastgroup or ""
        text = found.group()
        if kind == "op" or (kind == "ident" and text in _KEYWORDS):
            yield Token(text, text, position)
        elif kind != "blank":
            yield Token(kind, text, position)
        position = found.end()
    yield Token("end", "<EOF>", len(source))
