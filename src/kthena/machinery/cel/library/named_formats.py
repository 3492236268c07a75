"""Named formats: `format.dns1123Label().validate('a_')` gives what is wrong, or nothing."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library, register_guard
from kthena.machinery.cel.values import NONE, Optional, register_type
from kthena.machinery.names import (
    check_dns1035_label,
    check_dns1123_label,
    check_dns1123_subdomain,
    check_label_value,
    check_qualified_name,
)
from kthena.machinery.schema.formats import find_format
from kthena.machinery.schema.urls import UrlError, parse_request_uri

FORMAT = types.named("kubernetes.NamedFormat")
Check = Callable[[str], list[str]]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format; those of one name are equal."""

    name: str
    check: Check = field(compare=False)


register_guard(FORMAT, (NamedFormat,))
register_type(NamedFormat, FORMAT.name)

LIBRARY = Library()


def _prefix(check: Check) -> Check:
    """The check of a prefix, to which characters will be added: it may end with a dash."""

    def check_prefix(text: str) -> list[str]:
        return check(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return check_prefix


def _schema_format(name: str, mistake: str) -> Check:
    def check(text: str) -> list[str]:
        is_valid = find_format(name)
        return [] if is_valid is None or is_valid(text) else [mistake]

    return check


def _check_uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except UrlError as exc:
        return [str(exc)]
    return []


_FORMATS: dict[str, NamedFormat] = {
    "dns1123Label": NamedFormat("DNS1123Label", check_dns1123_label),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", check_dns1123_subdomain),
    "dns1035Label": NamedFormat("DNS1035Label", check_dns1035_label),
    "qualifiedName": NamedFormat("QualifiedName", check_qualified_name),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _prefix(check_dns1123_label)),
    "dns1123SubdomainPrefix": NamedFormat(
        "DNS1123SubdomainPrefix", _prefix(check_dns1123_subdomain)
    ),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _prefix(check_dns1035_label)),
    "labelValue": NamedFormat("LabelValue", check_label_value),
    "uri": NamedFormat("URI", _check_uri),
    "uuid": NamedFormat("uuid", _schema_format("uuid", "does not match the UUID format")),
    "byte": NamedFormat("byte", _schema_format("byte", "invalid base64")),
    "date": NamedFormat("date", _schema_format("date", "invalid date")),
    "datetime": NamedFormat("datetime", _schema_format("date-time", "invalid datetime")),
}


def _declare(name: str, named: NamedFormat) -> None:
    LIBRARY.function(f"format.{name}", [], FORMAT)(lambda: named)


for _name, _format in _FORMATS.items():
    _declare(_name, _format)


@LIBRARY.function("format.named", [types.STRING], types.optional_of(FORMAT))
def _named(name: str) -> Optional:
    found = _FORMATS.get(name)
    return NONE if found is None else Optional(found)


@LIBRARY.member("validate", [FORMAT, types.STRING], types.optional_of(types.list_of(types.STRING)))
def _validate(named: NamedFormat, text: str) -> Optional:
    mistakes = named.check(text)
    return Optional(mistakes) if mistakes else NONE
