"""The commands that a shell script runs, found without running it.

Container command lines hide the engine in `sh -c` scripts: exports, conditions on variables, line
continuations, pipes. This reader walks such a script with the variables that are known and lists the
simple commands that it would come to. It is no shell: substitutions (`$(...)`, backquotes) stay as
they are written, every command but a test succeeds, a test on what is unknown goes both ways, loops
and functions are read once in place. A script that cannot be read ends at the fault.
"""

import contextlib
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from kthena.engines.shell_words import (
    NAME_CHARACTERS,
    REDIRECTIONS,
    Piece,
    ShellSyntaxError,
    Token,
    tokenize,
)

_DECLARING = frozenset(("export", "declare", "readonly", "local", "typeset"))

Status = bool | None
"""Whether a command succeeds; None where that is not known."""


class Command(NamedTuple):
    """A simple command: its words, and the variables that it sees."""

    words: tuple[str, ...]
    env: Mapping[str, str]


def find_commands(
    script: str, env: Mapping[str, str], arguments: Sequence[str] = ()
) -> list[Command]:
    """The simple commands of a script in the order in which they are reached.

    Args:
        script: the text after `sh -c`.
        env: the environment of the container.
        arguments: what follows the script: `$0`, `$1`, ...
    """
    commands: list[Command] = []
    with contextlib.suppress(ShellSyntaxError, RecursionError):
        _Reader(tokenize(script), dict(env), tuple(arguments), commands).run()
    return commands


# --- the walk -----------------------------------------------------------------------------------


class _Reader:
    """Recursive descent over the tokens.

    Mutable state: the position, the variables, and whether the script has ended (`exit`). `maybe`
    counts the branches around the current command that may or may not be taken.
    """

    def __init__(
        self,
        tokens: list[Token],
        env: dict[str, str],
        arguments: tuple[str, ...],
        commands: list[Command],
    ) -> None:
        self._tokens = tokens
        self._position = 0
        self._env = env
        self._arguments = arguments
        self._commands = commands
        self._exited = False
        self._maybe = 0

    def run(self) -> None:
        while self._peek() is not None:
            before = self._position
            self._list((), active=True)
            if self._position == before:
                self._position += 1

    def _peek(self) -> Token | None:
        return self._tokens[self._position] if self._position < len(self._tokens) else None

    def _at_operator(self, *operators: str) -> bool:
        token = self._peek()
        return token is not None and token.operator and token.text in operators

    def _at_word(self, *words: str) -> bool:
        token = self._peek()
        return token is not None and not token.operator and token.text in words

    def _accept(self, word: str) -> bool:
        token = self._peek()
        if token is None or token.text != word:
            return False
        self._position += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise ShellSyntaxError

    def _skip_lines(self) -> None:
        while self._at_operator("\n", ";", "&"):
            self._position += 1

    def _list(self, stop: tuple[str, ...], *, active: bool) -> Status:
        status: Status = True
        while True:
            self._skip_lines()
            if self._peek() is None or self._at_word(*stop) or self._at_operator(")", ";;"):
                return status
            status = self._and_or(active=active)

    def _and_or(self, *, active: bool) -> Status:
        status = self._pipeline(active=active)
        while self._at_operator("&&", "||"):
            wanted = self._tokens[self._position].text == "&&"
            self._position += 1
            self._skip_lines()
            runs = active and status is not (not wanted)
            unsure = status is None
            self._maybe += unsure
            after = self._pipeline(active=runs)
            self._maybe -= unsure
            if runs:
                status = None if unsure else after
        return status

    def _pipeline(self, *, active: bool) -> Status:
        negated = self._accept("!")
        status = self._command(active=active)
        while self._at_operator("|"):
            self._position += 1
            self._skip_lines()
            status = self._command(active=active)
        return (None if status is None else not status) if negated else status

    def _command(self, *, active: bool) -> Status:
        if self._at_operator("("):
            return self._subshell(active=active)
        compound: dict[str, Callable[..., Status]] = {
            "{": self._group,
            "if": self._if,
            "case": self._case,
            "for": self._for,
            "while": self._while,
            "until": self._while,
            "[[": self._bracket_test,
        }
        token = self._peek()
        if token is None or token.operator or token.text not in compound:
            return self._simple(active=active)
        self._position += 1
        return compound[token.text](active=active)

    # --- compound commands ------------------------------------------------------------------

    def _subshell(self, *, active: bool) -> Status:
        self._position += 1
        outside = dict(self._env)
        status = self._list((), active=active)
        self._env = outside
        self._expect(")")
        return status

    def _group(self, *, active: bool) -> Status:
        status = self._list(("}",), active=active)
        self._expect("}")
        return status

    def _while(self, *, active: bool) -> Status:
        self._list(("do",), active=active)
        return self._body(active=active)

    def _if(self, *, active: bool) -> Status:
        status: Status = True
        pending = active
        while True:
            condition = self._list(("then",), active=pending)
            self._expect("then")
            taken = pending and condition is not False
            status = self._branch(("elif", "else", "fi"), active=taken, sure=condition is True)
            pending = pending and condition is not True
            if not self._accept("elif"):
                break
        if self._accept("else"):
            status = self._branch(("fi",), active=pending, sure=condition is False)
        self._expect("fi")
        return status

    def _branch(self, stop: tuple[str, ...], *, active: bool, sure: bool) -> Status:
        self._maybe += not sure
        status = self._list(stop, active=active)
        self._maybe -= not sure
        return status

    def _case(self, *, active: bool) -> Status:
        subject, known = self._expand_one(self._next_word())
        self._skip_lines()
        self._expect("in")
        pending = active
        while True:
            self._skip_lines()
            if self._accept("esac"):
                return True
            matches = self._case_pattern(subject)
            taken = pending and (matches or not known)
            self._branch(("esac",), active=taken, sure=known)
            pending = pending and not (matches and known)
            self._accept(";;")

    def _case_pattern(self, subject: str) -> bool:
        self._accept("(")
        matches = False
        while not self._accept(")"):
            if self._at_operator("|"):
                self._position += 1
                continue
            pattern, _ = self._expand_one(self._next_word())
            matches = matches or fnmatch.fnmatchcase(subject, pattern)
        return matches

    def _for(self, *, active: bool) -> Status:
        name = self._next_word().text
        self._skip_lines()
        values: list[str] = []
        if self._accept("in"):
            while not self._at_operator(";", "\n"):
                values += self._expand(self._next_word())
        self._skip_lines()
        if values:
            self._env[name] = values[0]
        return self._body(active=active)

    def _body(self, *, active: bool) -> Status:
        self._skip_lines()
        self._expect("do")
        status = self._branch(("done",), active=active, sure=False)
        self._expect("done")
        return status

    def _bracket_test(self, *, active: bool) -> Status:
        words: list[str] = []
        known = True
        while not self._accept("]]"):
            token = self._peek()
            if token is None:
                raise ShellSyntaxError
            self._position += 1
            text, sure = (token.text, True) if token.operator else self._expand_one(token)
            words.append(text)
            known = known and sure
        return _evaluate(words) if known and active else None

    def _next_word(self) -> Token:
        token = self._peek()
        if token is None or token.operator:
            raise ShellSyntaxError
        self._position += 1
        return token

    # --- simple commands --------------------------------------------------------------------

    def _simple(self, *, active: bool) -> Status:
        tokens = self._simple_tokens()
        if len(tokens) == 1 and self._at_operator("("):
            self._position += 1
            self._expect(")")
            self._skip_lines()
            return self._command(active=active)
        if not active or self._exited:
            return True
        assigned: dict[str, str] = {}
        while tokens and (assignment := self._assignment(tokens[0])):
            assigned |= assignment
            tokens.pop(0)
        if not tokens:
            self._env |= assigned
            return True
        words = [word for token in tokens for word in self._expand(token)]
        known = all(self._is_known(token) for token in tokens)
        return self._run_simple(words, assigned, tokens, known=known)

    def _simple_tokens(self) -> list[Token]:
        """The words up to the next operator, without redirections."""
        tokens = []
        while (token := self._peek()) is not None:
            if token.operator and token.text in REDIRECTIONS:
                self._position += 1
                if self._peek() is not None and not self._at_operator("\n"):
                    self._position += 1
            elif token.operator:
                break
            else:
                tokens.append(token)
                self._position += 1
        if not tokens and not self._at_operator("\n", ";", "&", "&&", "||", "|", ";;", ")"):
            raise ShellSyntaxError
        if not tokens:
            self._position += self._at_operator("&&", "||", "|")
        return tokens

    def _run_simple(
        self, words: list[str], assigned: dict[str, str], tokens: list[Token], *, known: bool
    ) -> Status:
        name = words[0] if words else ""
        if name in ("[", "test"):
            expression = words[1:-1] if name == "[" else words[1:]
            return _evaluate(expression) if known else None
        if name in ("true", ":", "false"):
            return name != "false"
        if name in ("exit", "return"):
            self._exited = self._exited or not self._maybe
        elif name == "unset":
            for variable in words[1:]:
                self._env.pop(variable, None)
        elif name in _DECLARING:
            for token in tokens[1:]:
                self._env |= self._assignment(token)
        elif words:
            self._commands.append(Command(tuple(words), {**self._env, **assigned}))
        return True

    def _assignment(self, token: Token) -> dict[str, str]:
        """`NAME=value` as a variable, or nothing."""
        name = ""
        for index, piece in enumerate(token.pieces):
            if piece.kind != "text" or piece.quoted:
                return {}
            if piece.text == "=":
                value, _ = self._expand_one(Token("", token.pieces[index + 1 :]))
                return {name: value} if name and not name[0].isdigit() else {}
            if piece.text not in NAME_CHARACTERS:
                return {}
            name += piece.text
        return {}

    # --- expansion --------------------------------------------------------------------------

    def _expand(self, token: Token) -> list[str]:
        """The fields of a word: unquoted variables are split at blanks."""
        fields: list[str] = []
        current: str | None = None
        for piece in token.pieces:
            if piece.kind == "variable" and piece.text in ("@", "*"):
                parts = list(self._arguments[1:])
            elif piece.quoted or piece.kind != "variable":
                parts = [self._value(piece)]
            else:
                value = self._value(piece)
                parts = value.split()
                if current is not None and value[:1].isspace():
                    fields.append(current)
                    current = None
            for index, part in enumerate(parts):
                if index:
                    fields.append(current or "")
                    current = None
                current = part if current is None else current + part
        return fields if current is None else [*fields, current]

    def _expand_one(self, token: Token) -> tuple[str, bool]:
        """The word without splitting, and whether all of it is known."""
        return "".join(self._value(piece) for piece in token.pieces), self._is_known(token)

    def _is_known(self, token: Token) -> bool:
        return not any(
            piece.kind == "unknown" or (piece.kind == "reference" and piece.text not in self._env)
            for piece in token.pieces
        )

    def _value(self, piece: Piece) -> str:
        if piece.kind == "reference":
            # Without such a variable it is a command whose output is not known.
            return self._env.get(piece.text, f"$({piece.text})")
        if piece.kind != "variable":
            return piece.text
        if piece.text in ("@", "*"):
            return " ".join(self._arguments[1:])
        if piece.text.isdecimal():
            index = int(piece.text)
            return self._arguments[index] if index < len(self._arguments) else ""
        return self._env.get(piece.text) or self._default(piece.default or "")

    def _default(self, default: str) -> str:
        if "$" not in default:
            return default
        return "".join(self._expand_one(token)[0] for token in tokenize(f'"{default}"'))


# --- tests --------------------------------------------------------------------------------------


def _evaluate(words: Sequence[str]) -> Status:
    """The verdict of `[ ... ]` or `[[ ... ]]`; None for tests of files and patterns not known."""
    for operators, decisive in ((("||", "-o"), True), (("&&", "-a"), False)):
        for index, word in enumerate(words):
            if word in operators and index:
                sides = _evaluate(words[:index]), _evaluate(words[index + 1 :])
                undecided = None if None in sides else not decisive
                return decisive if decisive in sides else undecided
    if words and words[0] == "!":
        status = _evaluate(words[1:])
        return None if status is None else not status
    return _evaluate_one(words)


def _evaluate_one(words: Sequence[str]) -> Status:
    if len(words) <= 1:
        return bool(words and words[0])
    if len(words) == 2:
        return {"-n": bool(words[1]), "-z": not words[1]}.get(words[0])
    return _compare(*words) if len(words) == 3 else None


def _compare(left: str, operator: str, right: str) -> Status:
    if operator in ("=", "=="):
        return fnmatch.fnmatchcase(left, right)
    if operator == "!=":
        return not fnmatch.fnmatchcase(left, right)
    try:
        first, second = int(left), int(right)
    except ValueError:
        return None
    return {
        "-eq": first == second,
        "-ne": first != second,
        "-gt": first > second,
        "-ge": first >= second,
        "-lt": first < second,
        "-le": first <= second,
    }.get(operator)
