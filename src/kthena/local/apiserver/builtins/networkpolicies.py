"""NetworkPolicies. They are stored; nothing filters traffic by them."""

from collections.abc import Sequence
from typing import Any, Final

from kthena.local.apiserver.admission import bump_generation
from kthena.local.apiserver.builtins.cidrs import NO_RANGE, cidr_warnings, parse_cidr
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
from kthena.machinery.names import check_port_name
from kthena.machinery.objects import Object

_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
_TYPES: Final = ("Ingress", "Egress")
_DIRECTIONS: Final = (("ingress", "from"), ("egress", "to"))


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
        return [text for path, value in _ranges(new["spec"]) for text in cidr_warnings(path, value)]


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
    whole = parse_cidr(text)
    if whole is None:
        return [] if text in known else [invalid(f"{path}.cidr", text, NO_RANGE)]
    errors: ErrorList = []
    for index, inner in enumerate(block.get("except") or ()):
        part = parse_cidr(inner)
        below = f"{path}.except[{index}]"
        if part is None:
            errors += [] if inner in known else [invalid(below, inner, NO_RANGE)]
        elif not _is_inside(part, whole):
            errors.append(invalid(below, inner, "must be a strict subset of `cidr`"))
    return errors


def _is_inside(part: Any, whole: Any) -> bool:
    return part.version == whole.version and part != whole and bool(part.subnet_of(whole))
