"""NetworkPolicies. They are stored; nothing filters traffic by them."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_interface, ip_network
from typing import Any, Final

from kthena.local.apiserver.admission import bump_generation
from kthena.local.apiserver.builtins.fielderrors import (
    check_port_number,
    check_text,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.local.apiserver.builtins.workloads import check_label_selector
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.machinery.fields import ErrorList
from kthena.machinery.gotext import quote
from kthena.machinery.names import check_port_name
from kthena.machinery.objects import Object

_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_TYPES: Final = ("Ingress", "Egress")
_DIRECTIONS: Final = (("ingress", "from"), ("egress", "to"))
_MAPPED_BITS: Final = 96
_NO_RANGE: Final = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def default(obj: Object) -> None:
    """Protocols of ports, and the directions that the policy is for."""
    spec = obj["spec"]
    for direction, _ in _DIRECTIONS:
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", *(["Egress"] if spec.get("egress") else [])]


class NetworkPolicyStrategy(PlainStrategy):
    """Writes of NetworkPolicies."""

    repeats_metadata = True

    def prepare_create(self, obj: Object) -> None:
        """The first generation."""
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Object, old: Object) -> None:
        """Count a change of the spec."""
        if new["spec"] != old["spec"]:
            bump_generation(new)

    def validate_create(self, obj: Object) -> ErrorList:
        """Selectors, ports and peers."""
        return _check_spec(obj["spec"], ())

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The same; ranges that are there already are not looked at."""
        known = [text for _, text in _ranges(old["spec"])]
        # The server checks an update twice, the first time as if it were new.
        return _check_spec(new["spec"], ()) + _check_spec(new["spec"], known)

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """Ranges in an unusual form."""
        del old
        return [text for path, value in _ranges(new["spec"]) for text in _warnings(path, value)]


def _ranges(spec: Object) -> list[tuple[str, str]]:
    """Where ranges of addresses stand, and their texts."""
    found = []
    for direction, side in _DIRECTIONS:
        for index, rule in enumerate(spec.get(direction) or ()):
            for place, peer in enumerate(rule.get(side) or ()):
                block, path = peer.get("ipBlock"), f"spec.{direction}[{index}].{side}[{place}]"
                if block is not None:
                    found.append((f"{path}.ipBlock.cidr", block["cidr"]))
                    found += [
                        (f"{path}.ipBlock.except[{number}]", text)
                        for number, text in enumerate(block.get("except") or ())
                    ]
    return found


def _check_spec(spec: Object, known: Sequence[str]) -> ErrorList:
    errors = check_label_selector(spec.get("podSelector") or {}, "spec.podSelector")
    for direction, side in _DIRECTIONS:
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                errors += _check_port(port, f"{path}.ports[{place}]")
            for place, peer in enumerate(rule.get(side) or ()):
                errors += _check_peer(peer, f"{path}.{side}[{place}]", known)
    kinds = spec.get("policyTypes") or []
    if len(kinds) > len(_TYPES):
        detail = "may not specify more than two policyTypes"
        return [*errors, invalid("spec.policyTypes", kinds, detail)]
    errors += [
        unsupported(f"spec.policyTypes[{index}]", kind, _TYPES)
        for index, kind in enumerate(kinds)
        if kind not in _TYPES
    ]
    return errors


def _check_port(port: Object, path: str) -> ErrorList:
    number, end = port.get("port"), port.get("endPort")
    errors: ErrorList = []
    if port["protocol"] not in _PROTOCOLS:
        errors.append(unsupported(f"{path}.protocol", port["protocol"], _PROTOCOLS))
    if number is None:
        if end is not None:
            detail = "may not be specified when `port` is not specified"
            errors.append(invalid(f"{path}.endPort", end, detail))
    elif isinstance(number, int):
        errors += check_port_number(f"{path}.port", number)
        if end is not None and end < number:
            detail = "must be greater than or equal to `port`"
            errors.append(invalid(f"{path}.endPort", number, detail))
        if end is not None:
            errors += check_port_number(f"{path}.endPort", end)
    else:
        if end is not None:
            detail = "may not be specified when `port` is non-numeric"
            errors.append(invalid(f"{path}.endPort", end, detail))
        errors += check_text(f"{path}.port", number, check_port_name)
    return errors


def _check_peer(peer: Object, path: str, known: Sequence[str]) -> ErrorList:
    errors: ErrorList = []
    for name in ("podSelector", "namespaceSelector"):
        if peer.get(name) is not None:
            errors += check_label_selector(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        errors += _check_block(block, f"{path}.ipBlock", known)
    given = [name for name, value in peer.items() if value is not None]
    if not given:
        errors.append(required(path, "must specify a peer"))
    elif block is not None and len(given) > 1:
        errors.append(forbidden(path, "may not specify both ipBlock and another peer"))
    return errors


def _check_block(block: Object, path: str, known: Sequence[str]) -> ErrorList:
    text = block["cidr"]
    if not text:
        return [required(f"{path}.cidr")]
    whole = _parse(text)
    if whole is None:
        return [] if text in known else [invalid(f"{path}.cidr", text, _NO_RANGE)]
    errors: ErrorList = []
    for index, inner in enumerate(block.get("except") or ()):
        part = _parse(inner)
        below = f"{path}.except[{index}]"
        if part is None:
            errors += [] if inner in known else [invalid(below, inner, _NO_RANGE)]
        elif not _is_inside(part, whole):
            errors.append(invalid(below, inner, "must be a strict subset of `cidr`"))
    return errors


def _parse(text: str) -> IPv4Network | IPv6Network | None:
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


def _is_inside(part: Any, whole: Any) -> bool:
    return part.version == whole.version and part != whole and bool(part.subnet_of(whole))


def _warnings(path: str, text: str) -> list[str]:
    """What the API says of ranges that it will not take for ever."""
    network = _parse(text)
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
