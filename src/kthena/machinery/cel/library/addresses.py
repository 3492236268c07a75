"""Functions on IP addresses and networks (`ip`, `cidr`): Kubernetes' libraries, on Go's syntax."""

import ipaddress
import re
from typing import TypeAlias

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library, register_guard
from kthena.machinery.cel.values import CelError, no_such_overload, register_type
from kthena.machinery.gotext import quote

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface

IP = types.named("net.IP")
CIDR = types.named("net.CIDR")
_ADDRESS_CLASSES = (ipaddress.IPv4Address, ipaddress.IPv6Address)
_NETWORK_CLASSES = (ipaddress.IPv4Interface, ipaddress.IPv6Interface)
_SEPARATOR = re.compile("[.:%]")
_BITS = re.compile(r"[0-9]|[1-9][0-9]+")
_LINK_LOCAL_MULTICAST = ipaddress.ip_network("224.0.0.0/24")
_BROADCAST = ipaddress.IPv4Address("255.255.255.255")

register_guard(CIDR, _NETWORK_CLASSES)
register_guard(IP, _ADDRESS_CLASSES)
# An interface is an address, too: its own name comes first.
for _network in _NETWORK_CLASSES:
    register_type(_network, CIDR.name)
for _address in _ADDRESS_CLASSES:
    register_type(_address, IP.name)

LIBRARY = Library()


def _parse_address(text: str) -> Address:
    """The address; raises ValueError with the words of Go's `netip.ParseAddr`."""
    try:
        return ipaddress.ip_address(text)
    except ValueError as exc:
        raise ValueError(f"ParseAddr({quote(text)}): {_mistake(text)}") from exc


def _mistake(text: str) -> str:
    """What is wrong with an address; of IPv6 addresses, no details are given."""
    first = _SEPARATOR.search(text)
    if first is not None and first.group() == ".":
        return _ipv4_mistake(text)
    return "unable to parse IP" if first is None or first.group() == ":" else "missing IPv6 address"


def _ipv4_mistake(text: str) -> str:
    mistake = ""
    value, digits, octets = 0, 0, 1
    for index, character in enumerate(text):
        if character.isascii() and character.isdigit():
            value, digits = value * 10 + int(character), digits + 1
            if digits == 2 and value < 10:
                mistake = "IPv4 field has octet with leading zero"
            elif value > 255:
                mistake = "IPv4 field has value >255"
        elif character != ".":
            mistake = f"unexpected character (at {quote(text[index:])})"
        elif digits == 0 or index == len(text) - 1:
            mistake = f"IPv4 field must have at least one digit (at {quote(text[index:])})"
        elif octets == 4:
            mistake = "IPv4 address too long"
        else:
            value, digits, octets = 0, 0, octets + 1
        if mistake:
            return mistake
    return "IPv4 address too short"


@LIBRARY.function("ip", [types.STRING], IP)
def _ip(text: str) -> Address:
    if ":" in text and "%" in text and not text.endswith("%"):
        raise CelError(f"IP address {quote(text)} with zone value is not allowed")
    try:
        address = _parse_address(text)
    except ValueError as exc:
        failure = f"IP Address {quote(text)} parse error during conversion from string: {exc}"
        raise CelError(failure) from exc
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        raise CelError(f"IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return address


@LIBRARY.function("isIP", [types.STRING], types.BOOL)
def _is_ip(text: str) -> bool:
    try:
        _ip(text)
    except CelError:
        return False
    return True


@LIBRARY.member("isGlobalUnicast", [IP], types.BOOL)
def _is_global_unicast(address: Address) -> bool:
    return not (
        address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
        or address == _BROADCAST
    )


@LIBRARY.member("isLinkLocalMulticast", [IP], types.BOOL)
def _is_link_local_multicast(address: Address) -> bool:
    if address.version == 4:
        return address in _LINK_LOCAL_MULTICAST
    return address.is_multicast and address.packed[1] & 0x0F == 0x02


LIBRARY.member("family", [IP], types.INT)(lambda address: address.version)
LIBRARY.function("ip.isCanonical", [types.STRING], types.BOOL)(lambda text: str(_ip(text)) == text)
LIBRARY.member("isUnspecified", [IP], types.BOOL)(lambda address: address.is_unspecified)
LIBRARY.member("isLoopback", [IP], types.BOOL)(lambda address: address.is_loopback)
LIBRARY.member("isLinkLocalUnicast", [IP], types.BOOL)(lambda address: address.is_link_local)
LIBRARY.function("string", [IP], types.STRING)(str)


def _parse_network(text: str) -> Network:
    """The network; raises ValueError with the words of Go's `netip.ParsePrefix`."""
    address_text, slash, bits = text.rpartition("/")
    mistake = ""
    if not slash:
        mistake = "no '/'"
    else:
        try:
            address = _parse_address(address_text)
        except ValueError as exc:
            raise ValueError(f"netip.ParsePrefix({quote(text)}): {exc}") from exc
        if "%" in address_text:
            mistake = "IPv6 zones cannot be present in a prefix"
        elif _BITS.fullmatch(bits) is None:
            mistake = f"bad bits after slash: {quote(bits)}"
        elif len(bits) > 3 or int(bits) > address.max_prefixlen:
            mistake = "prefix length out of range"
    if mistake:
        raise ValueError(f"netip.ParsePrefix({quote(text)}): {mistake}")
    return ipaddress.ip_interface(text)


@LIBRARY.function("cidr", [types.STRING], CIDR)
def _cidr(text: str) -> Network:
    prefix = "network address parse error during conversion from string: "
    try:
        network = _parse_network(text)
    except ValueError as exc:
        # The server says it twice.
        raise CelError(f"{prefix}{prefix}{exc}") from exc
    if isinstance(network, ipaddress.IPv6Interface) and network.ip.ipv4_mapped:
        raise CelError(f"{prefix}IPv4-mapped IPv6 address {quote(text)} is not allowed")
    return network


@LIBRARY.function("isCIDR", [types.STRING], types.BOOL)
def _is_cidr(text: str) -> bool:
    try:
        _cidr(text)
    except CelError:
        return False
    return True


@LIBRARY.member("containsIP", [CIDR, IP], types.BOOL)
def _contains_ip(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network.network


@LIBRARY.member("containsIP", [CIDR, types.STRING], types.BOOL)
def _contains_ip_text(network: Network, text: str) -> bool:
    try:
        address = _ip(text)
    except CelError as exc:
        raise no_such_overload() from exc
    return _contains_ip(network, address)


@LIBRARY.member("containsCIDR", [CIDR, CIDR], types.BOOL)
def _contains_cidr(network: Network, other: Network) -> bool:
    return _contains_ip(network, other.ip) and network.network.prefixlen <= other.network.prefixlen


@LIBRARY.member("containsCIDR", [CIDR, types.STRING], types.BOOL)
def _contains_cidr_text(network: Network, text: str) -> bool:
    return _contains_cidr(network, _cidr(text))


@LIBRARY.member("masked", [CIDR], CIDR)
def _masked(network: Network) -> Network:
    return ipaddress.ip_interface(network.network)


LIBRARY.member("ip", [CIDR], IP)(lambda network: network.ip)
LIBRARY.member("prefixLength", [CIDR], types.INT)(lambda network: network.network.prefixlen)
LIBRARY.function("string", [CIDR], types.STRING)(str)
