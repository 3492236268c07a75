"""Functions of Kubernetes: regular expressions, URLs and quantities."""

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library, register_guard
from kthena.machinery.cel.values import CelError, register_type
from kthena.machinery.quantity import Quantity, QuantityError, is_quantity
from kthena.machinery.regexp import Regexp, RegexpError, compile_regexp
from kthena.machinery.schema.urls import Url, UrlError, is_request_uri, parse_request_uri, parse_url

URL = types.named("kubernetes.URL")
QUANTITY = types.named("kubernetes.Quantity")

register_guard(URL, (Url,))
register_guard(QUANTITY, (Quantity,))
register_type(Url, URL.name)
register_type(Quantity, QUANTITY.name)

LIBRARY = Library()

_STRING = types.STRING
_BOOL = types.BOOL
_INT = types.INT
_STRINGS = types.list_of(types.STRING)

# --- regular expressions --------------------------------------------------------------------------


def _compile(pattern: str) -> Regexp:
    try:
        return compile_regexp(pattern)
    except RegexpError as exc:
        raise CelError(f"Illegal regex: {exc}") from exc


@LIBRARY.member("find", [_STRING, _STRING], _STRING)
def _find(text: str, pattern: str) -> str:
    return _compile(pattern).find(text) or ""


@LIBRARY.member("findAll", [_STRING, _STRING], _STRINGS)
def _find_all(text: str, pattern: str) -> list[str]:
    return _compile(pattern).find_all(text)


@LIBRARY.member("findAll", [_STRING, _STRING, _INT], _STRINGS)
def _find_some(text: str, pattern: str, count: int) -> list[str]:
    found = _compile(pattern).find_all(text)
    return found if count < 0 else found[:count]


# --- URLs -----------------------------------------------------------------------------------------

LIBRARY.function("isURL", [_STRING], _BOOL)(is_request_uri)
LIBRARY.member("getScheme", [URL], _STRING)(lambda url: url.scheme)
LIBRARY.member("getHost", [URL], _STRING)(lambda url: url.host)
LIBRARY.member("getHostname", [URL], _STRING)(lambda url: url.hostname)
LIBRARY.member("getPort", [URL], _STRING)(lambda url: url.port)
LIBRARY.member("getEscapedPath", [URL], _STRING)(lambda url: url.escaped_path)
LIBRARY.member("getQuery", [URL], types.map_of(_STRING, _STRINGS))(lambda url: url.query)


@LIBRARY.function("url", [_STRING], URL)
def _url(text: str) -> Url:
    try:
        parse_request_uri(text)
        return parse_url(text)
    except UrlError as exc:
        raise CelError(f"URL parse error during conversion from string: {exc}") from exc


# --- quantities -----------------------------------------------------------------------------------

LIBRARY.function("isQuantity", [_STRING], _BOOL)(is_quantity)
LIBRARY.function("sign", [QUANTITY], _INT)(
    lambda quantity: (quantity.value > 0) - (quantity.value < 0)
)
LIBRARY.member("isGreaterThan", [QUANTITY, QUANTITY], _BOOL)(
    lambda left, right: left.value > right.value
)
LIBRARY.member("isLessThan", [QUANTITY, QUANTITY], _BOOL)(
    lambda left, right: left.value < right.value
)
LIBRARY.member("compareTo", [QUANTITY, QUANTITY], _INT)(
    lambda left, right: (left.value > right.value) - (left.value < right.value)
)
LIBRARY.member("asApproximateFloat", [QUANTITY], types.DOUBLE)(Quantity.as_float)
LIBRARY.member("isInteger", [QUANTITY], _BOOL)(lambda quantity: quantity.exact_int() is not None)
LIBRARY.member("add", [QUANTITY, QUANTITY], QUANTITY)(lambda left, right: left + right)
LIBRARY.member("add", [QUANTITY, _INT], QUANTITY)(
    lambda quantity, number: quantity + Quantity.parse(number)
)
LIBRARY.member("sub", [QUANTITY, QUANTITY], QUANTITY)(lambda left, right: left - right)
LIBRARY.member("sub", [QUANTITY, _INT], QUANTITY)(
    lambda quantity, number: quantity - Quantity.parse(number)
)


@LIBRARY.function("quantity", [_STRING], QUANTITY)
def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except QuantityError as exc:
        raise CelError(str(exc)) from exc


@LIBRARY.member("asInteger", [QUANTITY], _INT)
def _as_integer(quantity: Quantity) -> int:
    number = quantity.exact_int()
    if number is None:
        raise CelError("cannot convert value to integer")
    return number
