"""Ranges of addresses as fields of the API have them."""

from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface, ip_network
from typing import Final

from kthena.machinery.gotext import quote

NO_RANGE: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
_MAPPED_BITS: Final = 96


def parse_cidr(text: str) -> IPv4Network | IPv6Network | None:
    """The range that a text names; Go takes leading zeros, which Python does not."""
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or "%" in address:
        return None
    try:
        return ip_network(f"{_without_zeros(address)}/{int(length)}", strict=False)
    except ValueError:
        return None


def _without_zeros(address: str) -> str:
    if ":" in address:
        return address
    return ".".join(part.lstrip("0") or part[:1] for part in address.split("."))


def cidr_warnings(path: str, text: str) -> list[str]:
    """What the API says of ranges that it will not take for ever."""
    network = parse_cidr(text)
    if network is None:
        return []
    found = []
    address, _, length = text.partition("/")
    plain = _without_zeros(address)
    if ip_interface(f"{plain}/{int(length)}").ip != network.network_address:
        single = f"{ip_address(plain)}/{network.max_prefixlen}"
        found.append(
            f"{path}: CIDR value {quote(text)} is ambiguous in this context (should be "
            f"{quote(str(network))} or {quote(single)}?)"
        )
    mapped = _unmapped(network)
    if plain != address or (length != "0" and length.startswith("0")) or mapped is not network:
        found.append(
            f"{path}: non-standard CIDR value {quote(text)} will be considered invalid in a future "
            f"Kubernetes release: use {quote(str(mapped))}"
        )
    if not found and network.version == 6 and str(network) != text:
        found.append(
            f"{path}: IPv6 CIDR value {quote(text)} should be in RFC 5952 canonical format "
            f"({quote(str(network))})"
        )
    return found


def _unmapped(network: IPv4Network | IPv6Network) -> IPv4Network | IPv6Network:
    """The range of IPv4 addresses that one of IPv6 addresses stands for, or the range itself."""
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is None or network.prefixlen < _MAPPED_BITS:
        return network
    return IPv4Network((mapped, network.prefixlen - _MAPPED_BITS))
