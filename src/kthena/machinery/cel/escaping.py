"""Property names as identifiers of CEL: `__dot__`, `__dash__`, `__slash__`, `__underscores__`.

A name that is a reserved word of CEL is put between double underscores: `__namespace__`.
"""

import re

_RESERVED = frozenset(
    {
        "true", "false", "null", "in", "as", "break", "const", "continue", "else", "for",
        "function", "if", "import", "let", "loop", "package", "namespace", "return", "var", "void",
        "while",
    }
)  # fmt: skip
_SYMBOLS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_NAMES = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}
_ESCAPABLE = re.compile(r"[a-zA-Z_.\-/][a-zA-Z0-9_.\-/]*")
_SPECIAL = re.compile(r"__|[.\-/]")
_ESCAPED = re.compile(r"__([^_]+)__")


def escape(name: str) -> str | None:
    """The identifier of a property; None for a name that rules cannot reach."""
    if name in _RESERVED:
        return f"__{name}__"
    if _ESCAPABLE.fullmatch(name) is None:
        return None
    return _SPECIAL.sub(lambda found: _SYMBOLS[found.group()], name)


def unescape(identifier: str) -> str | None:
    """The property that an identifier stands for; None where an escape stands for nothing."""
    if "__" not in identifier:
        return identifier
    valid = True

    def replace(found: re.Match[str]) -> str:
        nonlocal valid
        name = found[1]
        if name in _NAMES:
            return _NAMES[name]
        valid = valid and name in _RESERVED and found.group() == identifier
        return name

    unescaped = _ESCAPED.sub(replace, identifier)
    return unescaped if valid else None
