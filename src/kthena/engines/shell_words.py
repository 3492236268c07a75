"""Words and operators of a shell script.

Knows quotes, escapes, comments, continuations, here-documents and the forms of expansion, and
expands nothing itself. Follows the POSIX shell, and bash in `[[`, `$'...'` and `&>`.
"""

import contextlib
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

_OPERATORS = (
    *("&&", "||", ";;", "<<<", "<<-", "<<", ">>", ">&", "<&", "&>", ">|"),
    *(";", "&", "|", "(", ")", "<", ">", "\n"),
)
REDIRECTIONS = frozenset(("<<<", "<<-", "<<", ">>", ">&", "<&", "&>", ">|", "<", ">"))
NAME_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")
_SPECIAL_PARAMETERS = "@*#?$!-0123456789"


class ShellSyntaxError(Exception):
    """The script cannot be read further."""


class Piece(NamedTuple):
    """A part of a word.

    `text` is the name of a variable, with `default` for what `:-` gives, and of a reference
    (`$(NAME)`). What is unknown is kept as it is written.
    """

    kind: Literal["text", "variable", "reference", "unknown"]
    text: str
    quoted: bool
    default: str | None = None


@dataclass(slots=True)
class Token:
    """An operator, or a word of pieces. `text` is the operator, or the word if it is plain."""

    text: str
    pieces: list[Piece] = field(default_factory=list)
    operator: bool = False


def tokenize(script: str) -> list[Token]:
    """The tokens of a script, up to a quote or a bracket that is not closed."""
    lexer = _Lexer(script)
    with contextlib.suppress(ShellSyntaxError):
        while lexer.read_token():
            pass
    return lexer.tokens


class _Lexer:
    """Mutable state: the position, the tokens so far, and here-documents that await their line."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._position = 0
        self._here_documents: list[str] = []
        self.tokens: list[Token] = []

    def read_token(self) -> bool:
        self._skip_blanks()
        if self._position >= len(self._script):
            return False
        for operator in _OPERATORS:
            if self._script.startswith(operator, self._position):
                self._position += len(operator)
                self._add_operator(operator)
                return True
        pieces = self._read_word()
        plain = all(piece.kind == "text" and not piece.quoted for piece in pieces)
        text = "".join(piece.text for piece in pieces) if plain else ""
        after = self._script[self._position : self._position + 1]
        if text.isdecimal() and after and after in "<>":
            return True  # the descriptor of a redirection
        self.tokens.append(Token(text, pieces))
        if len(self.tokens) > 1 and self.tokens[-2].text in ("<<", "<<-"):
            self._here_documents.append("".join(piece.text for piece in pieces))
        return True

    def _add_operator(self, operator: str) -> None:
        self.tokens.append(Token(operator, operator=True))
        if operator == "\n" and self._here_documents:
            self._skip_here_documents()

    def _skip_here_documents(self) -> None:
        for delimiter in self._here_documents:
            while self._position < len(self._script):
                line, _, _ = self._script[self._position :].partition("\n")
                self._position += len(line) + 1
                if line.strip("\t") == delimiter:
                    break
        self._here_documents = []

    def _skip_blanks(self) -> None:
        while self._position < len(self._script):
            if self._script.startswith("\\\n", self._position):
                self._position += 2
            elif self._script[self._position] in " \t\r":
                self._position += 1
            elif self._script[self._position] == "#":
                end = self._script.find("\n", self._position)
                self._position = end if end >= 0 else len(self._script)
            else:
                return

    def _read_word(self) -> list[Piece]:
        pieces: list[Piece] = []
        while self._position < len(self._script):
            character = self._script[self._position]
            if character in " \t\r\n;&|()<>":
                break
            if character == "\\":
                escaped = self._script[self._position + 1 : self._position + 2]
                self._position += 2
                if escaped != "\n":
                    pieces.append(Piece("text", escaped, quoted=True))
            elif character == "'":
                pieces.append(Piece("text", self._read_until("'"), quoted=True))
            elif character == '"':
                pieces += self._read_double_quotes()
            elif character == "$":
                pieces.append(self._read_dollar(quoted=False))
            elif character == "`":
                pieces.append(Piece("unknown", f"`{self._read_until('`')}`", quoted=False))
            else:
                self._position += 1
                pieces.append(Piece("text", character, quoted=False))
        return pieces

    def _read_until(self, quote: str) -> str:
        """The text up to the closing quote; the position is on the opening one."""
        end = self._script.find(quote, self._position + 1)
        if end < 0:
            raise ShellSyntaxError
        text = self._script[self._position + 1 : end]
        self._position = end + 1
        return text

    def _read_double_quotes(self) -> list[Piece]:
        pieces = [Piece("text", "", quoted=True)]
        self._position += 1
        while True:
            character = self._script[self._position : self._position + 1]
            if not character:
                raise ShellSyntaxError
            if character == '"':
                self._position += 1
                return pieces
            if character == "$":
                pieces.append(self._read_dollar(quoted=True))
            elif character == "`":
                pieces.append(Piece("unknown", f"`{self._read_until('`')}`", quoted=True))
            else:
                escaped = self._script[self._position + 1 : self._position + 2]
                if character == "\\" and escaped and escaped in '$`"\\\n':
                    character = "" if escaped == "\n" else escaped
                    self._position += 1
                self._position += 1
                pieces.append(Piece("text", character, quoted=True))

    def _read_dollar(self, *, quoted: bool) -> Piece:
        following = self._script[self._position + 1 : self._position + 2]
        if following == "(":
            return _substitution(self._read_balanced("(", ")"), quoted=quoted)
        if following == "{":
            return _braced(self._read_balanced("{", "}"), quoted=quoted)
        if following == "'" and not quoted:
            self._position += 1
            return Piece("text", self._read_until("'"), quoted=True)
        name = following if following and following in _SPECIAL_PARAMETERS else ""
        end = self._position + 1 + len(name)
        while not name and end < len(self._script) and self._script[end] in NAME_CHARACTERS:
            end += 1
        name = self._script[self._position + 1 : end]
        self._position = end
        return Piece("variable", name, quoted) if name else Piece("text", "$", quoted)

    def _read_balanced(self, opening: str, closing: str) -> str:
        """From `$(` or `${` to the bracket that closes it."""
        start, depth = self._position, 0
        for position in range(start + 1, len(self._script)):
            depth += (self._script[position] == opening) - (self._script[position] == closing)
            if not depth:
                self._position = position + 1
                return self._script[start : position + 1]
        raise ShellSyntaxError


def _substitution(text: str, *, quoted: bool) -> Piece:
    """The output of a command, or a variable as Kubernetes writes it: `$(NAME)`."""
    name = text[2:-1]
    if name and set(name) <= NAME_CHARACTERS:
        return Piece("reference", name, quoted)
    return Piece("unknown", text, quoted)


def _braced(text: str, *, quoted: bool) -> Piece:
    """`${NAME}` and `${NAME:-default}`; other operators are not known."""
    inside = text[2:-1]
    length = 0
    while length < len(inside) and inside[length] in NAME_CHARACTERS:
        length += 1
    name, rest = inside[:length], inside[length:]
    if not rest and name:
        return Piece("variable", name, quoted)
    if inside in tuple(_SPECIAL_PARAMETERS):
        return Piece("variable", inside, quoted)
    for operator in (":-", "-", ":=", "="):
        if name and rest.startswith(operator):
            return Piece("variable", name, quoted, default=rest.removeprefix(operator).strip("\"'"))
    return Piece("unknown", text, quoted)
