"""URLs as Go's `net/url` parses them: verdicts, parts and error texts of Go 1.26.

Only what is wrong inside an IPv6 literal is told in fewer words than Go's.

The API server takes its verdicts from `url.ParseRequestURI`: the format `uri`, and the functions
`isURL` and `url` of rules. Its notion of a URL is neither RFC 3986 nor that of `urllib`.
"""

import ipaddress
import string
from dataclasses import dataclass
from enum import Enum

from kthena.machinery.gotext import quote

_ALPHANUMERIC = string.ascii_letters + string.digits


class _Part(Enum):
    """A part of a URL, with the characters that stand in it unescaped."""

    PATH = frozenset(_ALPHANUMERIC + "$&+,-./:;=@_~")
    HOST = frozenset(_ALPHANUMERIC + "!\"$&'()*+,-.:;<=>[]_~")
    ZONE = frozenset(_ALPHANUMERIC + "!\"$&'()*+,-.:;<=>[]_~%")
    USER = frozenset(_ALPHANUMERIC + "$&+,-.;=_~")
    QUERY = frozenset(_ALPHANUMERIC + "-._~")


_USER_CHARACTERS = frozenset(_ALPHANUMERIC + "-._:~!$&'()*+,;=%@")
_PATH_EXTRAS = frozenset("!$&'()*+,;=:@[]%")
_HEX_DIGITS = frozenset(string.hexdigits)


class UrlError(ValueError):
    """A text that is no URL; the message is Go's."""


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL. `path` is decoded, `raw_path` as it was written, `host` has the port."""

    text: str
    scheme: str = ""
    host: str = ""
    path: str = ""
    raw_path: str = ""
    raw_query: str = ""

    @property
    def hostname(self) -> str:
        """The host without port and without the brackets of an IPv6 address."""
        return _split_port(self.host)[0]

    @property
    def port(self) -> str:
        """The port, or the empty string."""
        return _split_port(self.host)[1]

    @property
    def escaped_path(self) -> str:
        """The path as it was written, if that is a valid encoding, else encoded anew."""
        if all(c in _Part.PATH.value or c in _PATH_EXTRAS for c in self.raw_path):
            return self.raw_path
        return self.path if self.path == "*" else _escape(self.path, _Part.PATH)

    @property
    def query(self) -> dict[str, list[str]]:
        """The query parameters; malformed ones are left out."""
        parameters: dict[str, list[str]] = {}
        for pair in self.raw_query.split("&"):
            if not pair or ";" in pair:
                continue
            key, _, value = pair.partition("=")
            try:
                key, value = _unescape(key, _Part.QUERY), _unescape(value, _Part.QUERY)
            except UrlError:
                continue
            parameters.setdefault(key, []).append(value)
        return parameters


def parse_request_uri(text: str) -> Url:
    """An absolute URL or an absolute path, without fragment, as `url.ParseRequestURI` takes it.

    Raises:
        UrlError: the text is neither.
    """
    return _parse(text, text, via_request=True)


def parse_url(text: str) -> Url:
    """A URL, absolute or relative, with or without fragment, as `url.Parse` takes it.

    Raises:
        UrlError: the text is none.
    """
    without_fragment, _, fragment = text.partition("#")
    url = _parse(text, without_fragment, via_request=False)
    try:
        _unescape(fragment, _Part.PATH)
    except UrlError as exc:
        raise UrlError(f"parse {quote(text)}: {exc}") from exc
    return url


def is_request_uri(text: str) -> bool:
    """Whether `parse_request_uri` takes the text."""
    try:
        parse_request_uri(text)
    except UrlError:
        return False
    return True


def _parse(text: str, rest: str, *, via_request: bool) -> Url:
    try:
        return _parse_parts(text, rest, via_request=via_request)
    except UrlError as exc:
        raise UrlError(f"parse {quote(rest)}: {exc}") from exc


def _parse_parts(text: str, rest: str, *, via_request: bool) -> Url:
    if any(character < " " or character == "\x7f" for character in rest):
        raise UrlError("net/url: invalid control character in URL")
    if not rest and via_request:
        raise UrlError("empty url")
    if rest == "*":
        return Url(text, path="*", raw_path="*")
    scheme, rest = _split_scheme(rest)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return Url(text, scheme, raw_query=query)
        if via_request:
            raise UrlError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    host = ""
    has_authority = rest.startswith("//") and (
        scheme or (not via_request and not rest.startswith("///"))
    )
    if has_authority:
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        host = _parse_authority(scheme, authority)
    return Url(text, scheme, host, _unescape(rest, _Part.PATH), rest, query)


def _split_scheme(text: str) -> tuple[str, str]:
    for index, character in enumerate(text):
        if character in string.ascii_letters:
            continue
        if index and character in string.digits + "+-.":
            continue
        if character == ":":
            if not index:
                raise UrlError("missing protocol scheme")
            return text[:index].lower(), text[index + 1 :]
        break
    return "", text


def _parse_authority(scheme: str, authority: str) -> str:
    user, at, host = authority.rpartition("@")
    parsed = _parse_host(scheme, host)
    if at:
        if not _USER_CHARACTERS.issuperset(user):
            raise UrlError("net/url: invalid userinfo")
        for part in user.split(":", 1):
            _unescape(part, _Part.USER)
    return parsed


def _parse_host(scheme: str, host: str) -> str:
    if host.rfind("[") > 0:
        raise UrlError("invalid IP-literal")
    if host.startswith("["):
        return _parse_ip_literal(host)
    colon = host.find(":")
    if colon >= 0:
        if scheme not in ("http", "https"):
            colon = host.rfind(":")
        _check_port(host[colon:])
    return _unescape(host, _Part.HOST)


def _parse_ip_literal(host: str) -> str:
    address, bracket, port = host[1:].rpartition("]")
    if not bracket:
        raise UrlError("missing ']' in host")
    _check_port(port)
    plain, percent, zone = address.partition("%25")
    decoded = _unescape(plain, _Part.HOST) + _unescape(percent + zone, _Part.ZONE)
    plain, percent, zone = decoded.partition("%")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError as exc:
        raise UrlError(f"invalid host: ParseAddr({quote(decoded)}): unable to parse IP") from exc
    if parsed.version == 4 or (percent and not zone):
        raise UrlError("invalid IP-literal")
    return f"[{decoded}]{port}"


def _check_port(text: str) -> None:
    if not _is_optional_port(text):
        raise UrlError(f"invalid port {quote(text)} after host")


def _is_optional_port(text: str) -> bool:
    return not text or (text[0] == ":" and set(text[1:]) <= set(string.digits))


def _split_port(host: str) -> tuple[str, str]:
    colon, port = host.rfind(":"), ""
    if colon >= 0 and _is_optional_port(host[colon:]):
        host, port = host[:colon], host[colon + 1 :]
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return host, port


def _unescape(text: str, part: _Part) -> str:
    """Decodes `%XX`, and `+` in queries. Only bytes beyond ASCII may be encoded in a host."""
    decoded = bytearray()
    index = 0
    while index < len(text):
        character = text[index]
        if character == "%":
            decoded.append(_escaped_byte(text[index : index + 3], part))
            index += 3
            continue
        is_checked = part in (_Part.HOST, _Part.ZONE) and character < "\x80"
        if is_checked and character not in part.value:
            raise UrlError(f"invalid character {quote(character)} in host name")
        decoded += (
            b" "
            if character == "+" and part is _Part.QUERY
            else character.encode("utf-8", "surrogatepass")
        )
        index += 1
    return decoded.decode("utf-8", "surrogateescape")


def _escaped_byte(escape: str, part: _Part) -> int:
    if len(escape) < 3 or not _HEX_DIGITS.issuperset(escape[1:]):
        raise UrlError(f"invalid URL escape {quote(escape)}")
    byte = int(escape[1:], 16)
    refused = (part is _Part.HOST and byte < 0x80) or (
        part is _Part.ZONE and chr(byte) != " " and chr(byte) not in _Part.HOST.value
    )
    if refused and escape != "%25":
        raise UrlError(f"invalid URL escape {quote(escape)}")
    return byte


def _escape(text: str, part: _Part) -> str:
    encoded = text.encode("utf-8", "surrogateescape")
    return "".join(
        chr(byte) if byte < 0x80 and chr(byte) in part.value else f"%{byte:02X}" for byte in encoded
    )
