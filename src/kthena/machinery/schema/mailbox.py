"""E-mail addresses as Go's `net/mail` reads them: the verdict of the format `email`."""

import binascii
import ipaddress
import re

_ATOM = re.compile(r'[^\x00-\x20()<>\[\]:;@\\,"\x7f]+')
_QUOTED = re.compile(r'"((?:[^\x00-\x08\x0a-\x1f"\\\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])*)"')
_DOMAIN_LITERAL = re.compile(r"\[([^\x00-\x20\[\]\\\x7f]*)\]")
_ENCODED_WORD = re.compile(r"=\?([^?]+)\?([bBqQ])\?([^?]*)\?=")
_DECODABLE_CHARSETS = frozenset({"utf-8", "iso-8859-1", "us-ascii"})


class _NoAddressError(ValueError):
    """The text does not go on as an address must."""


def is_email(text: str) -> bool:
    """Whether the text is a single address, with or without a name, or a group of one."""
    parser = _Parser(text)
    try:
        addresses = parser.address(allow_group=True)
        parser.skip_comments()
    except _NoAddressError:
        return False
    return addresses == 1 and not parser.rest


class _Parser:
    """Consumes `rest` from the left; raises where the grammar is left."""

    def __init__(self, text: str) -> None:
        self.rest = text

    def address(self, *, allow_group: bool) -> int:
        """Consumes an address or a group; returns how many addresses that are."""
        self.skip_space()
        if not self.rest:
            raise _NoAddressError
        start = self.rest
        try:
            self.spec()
        except _NoAddressError:
            self.rest = start
        else:
            self.skip_space()
            if self.rest.startswith("("):
                self.comment()
            return 1
        if not self.rest.startswith("<"):
            self.phrase()
        self.skip_space()
        if allow_group and self.accept(":"):
            return self.group()
        self.expect("<")
        self.spec()
        self.expect(">")
        return 1

    def group(self) -> int:
        self.skip_space()
        addresses = 0
        if not self.accept(";"):
            while True:
                self.skip_space()
                addresses += self.address(allow_group=False)
                self.skip_comments()
                if self.accept(";"):
                    break
                self.expect(",")
        self.skip_comments()
        return addresses

    def spec(self) -> None:
        """local-part "@" domain."""
        self.skip_space()
        if self.rest.startswith('"'):
            if self.match(_QUOTED) == '""':
                raise _NoAddressError
        else:
            self.dot_atom()
        self.expect("@")
        self.skip_space()
        if not self.rest.startswith("["):
            self.dot_atom()
            return
        try:
            ipaddress.ip_address(self.match(_DOMAIN_LITERAL)[1:-1])
        except ValueError as exc:
            raise _NoAddressError from exc

    def dot_atom(self) -> None:
        atom = self.match(_ATOM)
        if atom.startswith(".") or atom.endswith(".") or ".." in atom:
            raise _NoAddressError

    def phrase(self) -> None:
        """One word or more; what stops it is the caller's business."""
        words = 0
        while True:
            if words:
                self.skip_comments()
            self.skip_space()
            start = self.rest
            try:
                self.word()
            except _NoAddressError:
                if not words and start:
                    raise
                return
            words += 1

    def word(self) -> None:
        """A quoted string, or an atom in a character set that Go can decode."""
        if self.rest.startswith('"'):
            self.match(_QUOTED)
        elif not _has_known_charset(self.match(_ATOM)):
            raise _NoAddressError

    def comment(self) -> None:
        """Consumes a comment in parentheses, which may nest."""
        depth, index = 0, 0
        while index < len(self.rest):
            character = self.rest[index]
            if character == "\\" and index + 1 < len(self.rest):
                index += 1
            elif character == "(":
                depth += 1
            elif character == ")":
                depth -= 1
            index += 1
            if not depth:
                self.rest = self.rest[index:]
                return
        raise _NoAddressError

    def skip_comments(self) -> None:
        self.skip_space()
        while self.rest.startswith("("):
            self.comment()
            self.skip_space()

    def skip_space(self) -> None:
        self.rest = self.rest.lstrip(" \t")

    def accept(self, character: str) -> bool:
        if self.rest.startswith(character):
            self.rest = self.rest[1:]
            return True
        return False

    def expect(self, character: str) -> None:
        if not self.accept(character):
            raise _NoAddressError

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.rest)
        if found is None:
            raise _NoAddressError
        self.rest = self.rest[found.end() :]
        return found.group()


def _has_known_charset(word: str) -> bool:
    """An encoded word (RFC 2047) must name a character set that Go decodes; other words may not."""
    encoded = _ENCODED_WORD.fullmatch(word)
    if encoded is None or encoded[1].partition("*")[0].lower() in _DECODABLE_CHARSETS:
        return True
    try:
        if encoded[2] in "bB":
            binascii.a2b_base64(encoded[3], strict_mode=True)
    except ValueError:
        return True
    return False
