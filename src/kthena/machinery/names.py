"""Syntax of names: DNS labels and subdomains, label keys and values, ports, variables.

Each check returns the list of the API's messages, empty where the name is good. Length limits count
bytes, as in Go. Follows k8s.io/apimachinery/pkg/util/validation.
"""

import re
from typing import Final

DNS1123_LABEL_MAX_LENGTH: Final = 63
DNS1123_SUBDOMAIN_MAX_LENGTH: Final = 253
DNS1035_LABEL_MAX_LENGTH: Final = 63
LABEL_VALUE_MAX_LENGTH: Final = 63
QUALIFIED_NAME_MAX_LENGTH: Final = 63
PORT_NAME_MAX_LENGTH: Final = 15

GENERATED_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Characters of generated names: no vowels, no look-alikes (k8s.io/apimachinery/pkg/util/rand)."""

_ALPHANUMERIC_ENDS = "and must start and end with an alphanumeric character"

_DNS1123_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DNS1123_SUBDOMAIN = rf"{_DNS1123_LABEL}(\.{_DNS1123_LABEL})*"
_DNS1035_LABEL = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED_NAME = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED_NAME})?"
_CONFIG_MAP_KEY = "[-._a-zA-Z0-9]+"

_DNS1123_LABEL_PATTERN = re.compile(_DNS1123_LABEL)
_DNS1123_SUBDOMAIN_PATTERN = re.compile(_DNS1123_SUBDOMAIN)
_DNS1035_LABEL_PATTERN = re.compile(_DNS1035_LABEL)
_QUALIFIED_NAME_PATTERN = re.compile(_QUALIFIED_NAME)
_LABEL_VALUE_PATTERN = re.compile(_LABEL_VALUE)
_CONFIG_MAP_KEY_PATTERN = re.compile(_CONFIG_MAP_KEY)
_PORT_NAME_CHARACTERS = re.compile("[-a-z0-9]+")
_ENV_VAR_NAME = re.compile("[ -<>-~]*")


def check_dns1123_label(name: str) -> list[str]:
    """Lower case letters, digits and dashes, 63 at most: most names of one part."""
    messages = _too_long(name, DNS1123_LABEL_MAX_LENGTH)
    if _DNS1123_LABEL_PATTERN.fullmatch(name) is None:
        if _DNS1123_SUBDOMAIN_PATTERN.fullmatch(name):
            messages.append("must not contain dots")
        else:
            rule = (
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or "
                f"'-', {_ALPHANUMERIC_ENDS}"
            )
            messages.append(_mismatch(rule, _DNS1123_LABEL, "my-name", "123-abc"))
    return messages


def check_dns1123_subdomain(name: str) -> list[str]:
    """DNS labels joined by dots, 253 characters at most: the names of most objects."""
    return _subdomain_messages(name, unit="characters")


def _subdomain_messages(name: str, unit: str) -> list[str]:
    messages = _too_long(name, DNS1123_SUBDOMAIN_MAX_LENGTH, unit)
    if _DNS1123_SUBDOMAIN_PATTERN.fullmatch(name) is None:
        rule = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            f"'-' or '.', {_ALPHANUMERIC_ENDS}"
        )
        messages.append(_mismatch(rule, _DNS1123_SUBDOMAIN, "example.com"))
    return messages


def check_dns1035_label(name: str) -> list[str]:
    """A DNS label that starts with a letter: the names of services."""
    messages = _too_long(name, DNS1035_LABEL_MAX_LENGTH)
    if _DNS1035_LABEL_PATTERN.fullmatch(name) is None:
        rule = (
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start "
            "with an alphabetic character, and end with an alphanumeric character"
        )
        messages.append(_mismatch(rule, _DNS1035_LABEL, "my-name", "abc-123"))
    return messages


def check_qualified_name(name: str) -> list[str]:
    """A name with an optional DNS prefix: keys of labels and annotations, finalizers, conditions."""
    rule = f"must consist of alphanumeric characters, '-', '_' or '.', {_ALPHANUMERIC_ENDS}"
    mismatch = _mismatch(rule, _QUALIFIED_NAME, "MyName", "my.name", "123-abc")
    prefix, slash, local = name.rpartition("/")
    if "/" in prefix:
        example = "(e.g. 'example.com/MyName')"
        return [
            f"a valid label key {mismatch} with an optional DNS subdomain prefix and '/' {example}"
        ]
    messages: list[str] = []
    if slash and not prefix:
        messages.append("prefix part must be non-empty")
    elif slash:
        messages += [
            f"prefix part {message}" for message in _subdomain_messages(prefix, unit="bytes")
        ]
    if not local:
        messages.append("name part must be non-empty")
    messages += [
        f"name part {text}" for text in _too_long(local, QUALIFIED_NAME_MAX_LENGTH, "bytes")
    ]
    if _QUALIFIED_NAME_PATTERN.fullmatch(local) is None:
        messages.append(f"name part {mismatch}")
    return messages


def check_label_value(value: str) -> list[str]:
    """Empty, or letters, digits, dashes, underscores and dots, 63 at most."""
    messages = _too_long(value, LABEL_VALUE_MAX_LENGTH, "bytes")
    if _LABEL_VALUE_PATTERN.fullmatch(value) is None:
        rule = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', "
            f"'_' or '.', {_ALPHANUMERIC_ENDS}"
        )
        messages.append(_mismatch(rule, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return messages


def check_path_segment(name: str) -> list[str]:
    """What every object name must satisfy to be a part of a URL path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]


def check_port_name(name: str) -> list[str]:
    """The name of a port: an IANA service name of lower case letters, digits and dashes."""
    messages = _too_long(name, PORT_NAME_MAX_LENGTH)
    if _PORT_NAME_CHARACTERS.fullmatch(name) is None:
        messages.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= character <= "z" for character in name):
        messages.append("must contain at least one letter (a-z)")
    if "--" in name:
        messages.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        messages.append("must not begin or end with a hyphen")
    return messages


def check_env_var_name(name: str) -> list[str]:
    """The name of an environment variable: printable ASCII without `=`."""
    if not name:
        return ["environment variable name must be non-empty"]
    if _ENV_VAR_NAME.fullmatch(name) is None:
        rule = "must consist only of printable ASCII characters other than '='"
        return [f"a valid environment variable name {rule}"]
    return []


def check_config_map_key(key: str) -> list[str]:
    """A key of a ConfigMap or a Secret: usable as a file name."""
    messages = _too_long(key, DNS1123_SUBDOMAIN_MAX_LENGTH)
    if _CONFIG_MAP_KEY_PATTERN.fullmatch(key) is None:
        rule = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
        messages.append(_mismatch(rule, _CONFIG_MAP_KEY, "key.name", "KEY_NAME", "key-name"))
    if key in (".", ".."):
        messages.append(f"must not be '{key}'")
    elif key.startswith(".."):
        messages.append("must not start with '..'")
    return messages


def _too_long(name: str, limit: int, unit: str = "characters") -> list[str]:
    """The message says bytes for labels and characters elsewhere; both mean bytes."""
    if len(name.encode("utf-8", "surrogatepass")) > limit:
        return [f"must be no more than {limit} {unit}"]
    return []


def _mismatch(rule: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{pattern}')"
