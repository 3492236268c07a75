"""Values of literals: numbers, strings and bytes."""

import re

from kthena.machinery.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_ESCAPE = re.compile(r"\\(?:([0-3][0-7]{2})|[xX]([0-9a-fA-F]{2})|u(.{4})|U(.{8})|(.))", re.DOTALL)
_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


def number(kind: str, text: str) -> int | float:
    """The value of a number token, with its sign.

    Raises:
        ValueError: it is beyond 64 bits.
    """
    if kind == "float":
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise ValueError("invalid double literal")
        return value
    if kind == "uint":
        unsigned = int(text[:-1], 0) if "x" in text else int(text[:-1])
        if not 0 <= unsigned <= MAX_UINT:
            raise ValueError("invalid uint literal")
        return Uint(unsigned)
    signed = int(text, 0) if "x" in text else int(text)
    if not MIN_INT <= signed <= MAX_INT:
        raise ValueError("invalid int literal")
    return signed


def text(token: str) -> str | bytes:
    """The value of a string or bytes token, quotes and escapes resolved.

    Raises:
        ValueError: an escape stands for no code point.
    """
    token = token.replace("\r\n", "\n").replace("\r", "\n")
    is_bytes = token[0] in "bB"
    body = token[1:] if is_bytes else token
    is_raw = body[0] in "rR"
    body = body[1:] if is_raw else body
    quotes = 3 if body[:3] in ('"""', "'''") and len(body) >= 6 else 1
    body = body[quotes:-quotes]
    if is_bytes:
        return body.encode() if is_raw else _unescape_bytes(body)
    return body if is_raw else _ESCAPE.sub(_unescaped, body)


def _unescaped(found: re.Match[str]) -> str:
    octal, short_hex, hex4, hex8, simple = found.groups()
    if simple is not None:
        return _SIMPLE.get(simple, simple)
    code = int(octal, 8) if octal else int(short_hex or hex4 or hex8, 16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise ValueError("invalid unicode code point")
    return chr(code)


def _unescape_bytes(body: str) -> bytes:
    """In bytes, octal and hexadecimal escapes stand for bytes; Unicode escapes are refused."""
    result = bytearray()
    position = 0
    for found in _ESCAPE.finditer(body):
        octal, short_hex, hex4, hex8, simple = found.groups()
        if hex4 or hex8:
            raise ValueError("unable to unescape string")
        result += body[position : found.start()].encode()
        if simple is not None:
            result += _SIMPLE.get(simple, simple).encode()
        else:
            result.append(int(octal, 8) if octal else int(short_hex, 16))
        position = found.end()
    return bytes(result + body[position:].encode())
