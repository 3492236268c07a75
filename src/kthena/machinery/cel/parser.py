"""From text to the syntax tree, by cel-go's grammar.

Syntax errors have cel-go's place, and its text where one token is at fault; unlike cel-go, parsing
stops at the first one.
"""

from kthena.machinery.cel import literals
from kthena.machinery.cel.lexer import Token, tokenize
from kthena.machinery.cel.macros import MacroError, expand
from kthena.machinery.cel.syntax import (
    Call,
    CelCompileError,
    Expr,
    Ident,
    Issue,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    Select,
    depth,
    qualified_name,
)

MAX_DEPTH = 100
"""How deep expressions may nest, with macros expanded; cel-go allows 250."""
_TOO_DEEP = f"expression recursion limit exceeded: {MAX_DEPTH}"

_RESERVED = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import",
        "in", "let", "loop", "package", "namespace", "null", "return", "true", "var", "void",
        "while",
    }
)  # fmt: skip
_EXPRESSION_STARTS = "'.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
_OPERATORS = {
    "||": "_||_",
    "&&": "_&&_",
    "<": "_<_",
    "<=": "_<=_",
    ">=": "_>=_",
    ">": "_>_",
    "==": "_==_",
    "!=": "_!=_",
    "in": "@in",
    "+": "_+_",
    "-": "_-_",
    "*": "_*_",
    "/": "_/_",
    "%": "_%_",
}
_LEVELS = {
    "||": 0,
    "&&": 1,
    **dict.fromkeys(("<", "<=", ">=", ">", "==", "!=", "in"), 2),
    **dict.fromkeys(("+", "-"), 3),
    **dict.fromkeys(("*", "/", "%"), 4),
}
_JUNCTIONS = ("||", "&&")
_AFTER_OPERAND = ("end", ")", "]", "}", ",", ":", "?", *_OPERATORS)
_AT_OPERAND = (
    "[",
    "{",
    "(",
    ".",
    "-",
    "!",
    "true",
    "false",
    "null",
    "float",
    "int",
    "uint",
    "string",
    "bytes",
    "ident",
)
_FOLLOWERS = {")": _AFTER_OPERAND, ":": _AT_OPERAND}
_CONSTANTS = {"true": True, "false": False, "null": None}
_NUMBERS = ("int", "uint", "float")


def parse(source: str) -> Expr:
    """The tree of an expression, macros expanded.

    Raises:
        CelCompileError: the text is no expression.
    """
    issues: list[Issue] = []
    tokens = list(tokenize(source, issues))
    parser = _Parser(tokens, issues)
    try:
        tree = parser.whole()
    except _SyntaxError as exc:
        issues.append(exc.issue)
        raise CelCompileError(source, issues) from exc
    if depth(tree) > MAX_DEPTH:
        issues.append(Issue(0, _TOO_DEEP))
    if issues:
        raise CelCompileError(source, issues)
    return tree


class _SyntaxError(Exception):
    """Ends the parse."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.issue = Issue(offset, text)


class _Parser:
    """Recursive descent; each method consumes what it is named for."""

    def __init__(self, tokens: list[Token], issues: list[Issue]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0
        self._first_argument = -1
        self._issues = issues

    def whole(self) -> Expr:
        tree = self.expression()
        self._expect("end", "<EOF>")
        return tree

    def expression(self) -> Expr:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _SyntaxError(self._token.offset, _TOO_DEEP)
        tree = self._binary(0)
        operator = self._accept("?")
        if operator is not None:
            if_true = self._binary(0)
            self._expect(":", "':'")
            tree = Call(operator.offset, "_?_:_", [tree, if_true, self.expression()])
        self._depth -= 1
        return tree

    def _binary(self, lowest: int) -> Expr:
        """Operands and the operators between them that bind at least as tightly as `lowest`."""
        tree = self._unary()
        last = ""
        while (level := _LEVELS.get(self._token.kind, -1)) >= lowest:
            operator = self._next()
            operand = self._binary(level + 1)
            if operator.kind in _JUNCTIONS and operator.kind == last and isinstance(tree, Call):
                # One call takes the whole chain.
                tree.args.append(operand)
                tree.offset = operator.offset
            else:
                tree = Call(operator.offset, _OPERATORS[operator.kind], [tree, operand])
            last = operator.kind
        return tree

    def _unary(self) -> Expr:
        token = self._token
        if token.kind not in ("!", "-"):
            return self._postfix(self._primary())
        count = 0
        while self._token.kind == token.kind:
            self._next()
            count += 1
        if token.kind == "-" and count == 1 and self._token.kind in _NUMBERS:
            return self._postfix(self._number(sign="-", offset=token.offset))
        operand = self._postfix(self._primary())
        if count % 2 == 0:
            return operand
        return Call(token.offset, "!_" if token.kind == "!" else "-_", [operand])

    def _postfix(self, operand: Expr) -> Expr:
        while True:
            token = self._token
            if token.kind == ".":
                self._next()
                operand = self._field_or_call(operand, token.offset)
            elif token.kind == "[":
                self._next()
                function = "_[?_]" if self._accept("?") else "_[_]"
                operand = Call(token.offset, function, [operand, self.expression()])
                self._expect("]", "']'")
            elif token.kind == "{" and (name := qualified_name(operand)) is not None:
                operand = self._message(name)
            else:
                return operand

    def _field_or_call(self, operand: Expr, offset: int) -> Expr:
        optional = self._accept("?") is not None
        name = self._accept("quoted")
        if name is not None:
            return self._report(name.offset, "unsupported syntax: '`'")
        if self._token.kind != "ident":
            raise self._no_field(optional=optional)
        name = self._next()
        if optional:
            return Call(offset, "_?._", [operand, Literal(name.offset, name.text)])
        opening = self._accept("(")
        if opening is None:
            return Select(offset, operand, name.text)
        args = self._arguments()
        return self._expand(Call(opening.offset, name.text, args, operand, is_member=True))

    def _no_field(self, *, optional: bool) -> "_SyntaxError":
        token = self._token
        if optional:
            text = f"mismatched input '{token.text}' expecting {{IDENTIFIER, ESC_IDENTIFIER}}"
            self._issues.append(Issue(token.offset, f"Syntax error: {text}"))
            return _SyntaxError(token.offset, "unsupported ident kind")
        shown = "" if token.kind == "end" else token.text
        return _SyntaxError(
            token.offset, f"Syntax error: no viable alternative at input '.{shown}'"
        )

    def _primary(self) -> Expr:
        token = self._token
        match token.kind:
            case "(":
                self._next()
                tree = self.expression()
                self._expect(")", "')'")
            case "[":
                tree = self._list()
            case "{":
                tree = self._map()
            case "true" | "false" | "null":
                self._next()
                tree = Literal(token.offset, _CONSTANTS[token.kind])
            case "int" | "uint" | "float":
                tree = self._number(sign="", offset=token.offset)
            case "string" | "bytes":
                tree = self._text()
            case "." | "ident":
                tree = self._name()
            case _:
                raise self._no_operand()
        return tree

    def _no_operand(self) -> "_SyntaxError":
        token = self._token
        follower = self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        verb = "extraneous" if follower.kind in _AT_OPERAND else "mismatched"
        closing = "')', " if self._position == self._first_argument else ""
        return _SyntaxError(
            token.offset,
            f"Syntax error: {verb} input '{token.text}' expecting {{'[', '{{', '(', {closing}"
            f"{_EXPRESSION_STARTS}}}",
        )

    def _name(self) -> Expr:
        leading_dot = "." if self._accept(".") else ""
        token = self._expect("ident", "IDENTIFIER")
        if token.text in _RESERVED:
            self._report(token.offset, f"reserved identifier: {token.text}")
        name = leading_dot + token.text
        opening = self._accept("(")
        if opening is not None:
            return self._expand(Call(opening.offset, name, self._arguments()))
        return Ident(token.offset, name)

    def _number(self, sign: str, offset: int) -> Expr:
        token = self._next()
        try:
            value = literals.number(token.kind, sign + token.text)
        except ValueError as exc:
            return self._report(offset, str(exc))
        return Literal(offset, value)

    def _text(self) -> Expr:
        token = self._next()
        try:
            return Literal(token.offset, literals.text(token.text))
        except ValueError as exc:
            return self._report(token.offset, str(exc))

    def _list(self) -> Expr:
        opening = self._next()
        elements: list[Expr] = []
        optional = set()
        while self._token.kind != "]":
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self.expression())
            if self._accept(",") is None:
                break
        self._expect("]", "']'", "','")
        return ListLiteral(opening.offset, elements, frozenset(optional))

    def _map(self) -> Expr:
        opening = self._next()
        entries = []
        while self._token.kind != "}":
            optional = self._accept("?") is not None
            key = self.expression()
            colon = self._expect(":", "':'")
            entries.append(MapEntry(colon.offset, key, self.expression(), optional))
            if self._accept(",") is None:
                break
        self._expect("}", "'}'", "','")
        return MapLiteral(opening.offset, entries)

    def _message(self, name: str) -> Expr:
        opening = self._next()
        values = []
        while self._token.kind != "}":
            self._accept("?")
            self._expect("ident", "IDENTIFIER")
            self._expect(":", "':'")
            values.append(self.expression())
            if self._accept(",") is None:
                break
        self._expect("}", "'}'")
        return MessageLiteral(opening.offset, name, values)

    def _arguments(self) -> list[Expr]:
        """Arguments up to and with the closing parenthesis."""
        args: list[Expr] = []
        if self._accept(")"):
            return args
        self._first_argument = self._position
        while True:
            args.append(self.expression())
            if self._accept(",") is None:
                self._expect(")", "')'", "','")
                return args

    def _report(self, offset: int, text: str) -> Expr:
        """Notes a mistake that does not end the parse; returns something to go on with."""
        self._issues.append(Issue(offset, text))
        return Literal(offset, None)

    def _expand(self, call: Call) -> Expr:
        try:
            return expand(call)
        except MacroError as exc:
            self._issues.append(Issue(exc.offset, str(exc)))
            return call

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _next(self) -> Token:
        token = self._tokens[self._position]
        if token.kind != "end":
            self._position += 1
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._next() if self._token.kind == kind else None

    def _expect(self, kind: str, name: str, also: str = "") -> Token:
        """Consumes a token of this kind.

        `also` is another one that could stand here. Which words an error has depends on what ANTLR
        would do to go on: insert the token, skip one, or give up.
        """
        token = self._token
        if token.kind == kind:
            return self._next()
        follower = self._tokens[min(self._position + 1, len(self._tokens) - 1)]
        if also:
            text = f"mismatched input '{token.text}' expecting {{{name}, {also}}}"
        elif follower.kind == kind:
            text = f"extraneous input '{token.text}' expecting {name}"
        elif token.kind in _FOLLOWERS.get(kind, ()):
            text = f"missing {name} at '{token.text}'"
        else:
            text = f"mismatched input '{token.text}' expecting {name}"
        raise _SyntaxError(token.offset, f"Syntax error: {text}")
