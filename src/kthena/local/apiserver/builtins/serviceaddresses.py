"""Cluster IPs and node ports of services.

They are handed out from a pool as in a cluster, although nothing routes them here: clients and
templates expect the fields. IPv4 only.
"""

from collections.abc import Callable, Iterable, Iterator
from ipaddress import AddressValueError, IPv4Address, IPv4Network, ip_address
from typing import Final

from kthena.local.apiserver.builtins.fielderrors import NO_ADDRESS, invalid
from kthena.machinery.fields import ErrorList
from kthena.machinery.objects import Object, key_of

CLUSTER_IPS: Final = IPv4Network("10.96.0.0/16")
_RESERVED_IPS: Final = 10
"""The first addresses are left to those that ask for one, as the API's own service does."""

_NODE_PORTS: Final = range(30000, 32768)

Services = Callable[[], Iterable[Object]]
"""All services as they are stored."""


def needs_node_ports(spec: Object) -> bool:
    """Whether each port of the service has a node port."""
    if spec["type"] == "LoadBalancer":
        return bool(spec.get("allocateLoadBalancerNodePorts", True))
    return bool(spec["type"] == "NodePort")


class Addresses:
    """Hands out what no other service has."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def allocate(self, spec: Object, before: Object) -> ErrorList:
        """Fill in what the spec leaves open; what forbids it. `before` is the spec that it replaces."""
        errors = [] if spec["type"] == "ExternalName" else _choose_families(spec, before)
        if errors:
            return errors
        if spec["type"] != "ExternalName":
            self._allocate_ip(spec)
        if needs_node_ports(spec):
            self._allocate_node_ports(spec)
        return []

    def _allocate_ip(self, spec: Object) -> None:
        if not spec.get("clusterIP"):
            used = {service["spec"].get("clusterIP") for service in self._services()}
            spec["clusterIP"] = next(ip for ip in _addresses() if ip not in used)
        if not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]

    def _allocate_node_ports(self, spec: Object) -> None:
        used = {number for service in self._services() for number in _node_ports(service["spec"])}
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = next(number for number in _NODE_PORTS if number not in used)
            used.add(port["nodePort"])

    def check(self, service: Object, before: Object) -> ErrorList:
        """What is wrong with the addresses that the service did not have `before` (its spec)."""
        spec, own = service["spec"], key_of(service)
        others = [other["spec"] for other in self._services() if key_of(other) != own]
        errors: ErrorList = []
        address = spec.get("clusterIP")
        if address and address not in ("None", before.get("clusterIP")):
            problem = _address_problem(address, others)
            if problem:
                detail = f"failed to allocate IP {address}: {problem}"
                errors.append(invalid("spec.clusterIPs", spec["clusterIPs"], detail))
        taken = {number for other in others for number in _node_ports(other)}
        known = set(_node_ports(before))
        for index, port in enumerate(spec.get("ports") or ()):
            number = port.get("nodePort")
            if not number or number in known:
                continue
            problem = _port_problem(number, taken)
            if problem:
                errors.append(invalid(f"spec.ports[{index}].nodePort", number, problem))
        return errors


def _choose_families(spec: Object, before: Object) -> ErrorList:
    """Set the policy and the families; only services of no selector and no address may have two."""
    if not spec.get("clusterIP") and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    address = spec.get("clusterIP")
    if address not in (None, "", "None") and not _is_address(address):
        return [invalid("spec.clusterIPs[0]", address, NO_ADDRESS)]
    routed = bool(spec.get("selector")) or spec.get("clusterIP") != "None"
    policy = before.get("ipFamilyPolicy") or ("SingleStack" if routed else "RequireDualStack")
    policy = spec.setdefault("ipFamilyPolicy", policy)
    families, path = spec.get("ipFamilies") or [], "spec.ipFamilyPolicy"
    if policy == "SingleStack" and len(families) == 2:
        if families != before.get("ipFamilies"):
            detail = (
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are "
                "specified"
            )
            return [invalid(path, policy, detail)]
        families = spec["ipFamilies"] = families[:1]
    elif policy != "SingleStack" and 0 < len(families) < len(before.get("ipFamilies") or ()):
        return [invalid(path, policy, "must be 'SingleStack' to release the secondary IP family")]
    if not routed:
        families = families or ["IPv4"]
        other = "IPv6" if families == ["IPv4"] else "IPv4"
        single = len(families) == 2 or policy == "SingleStack"
        spec["ipFamilies"] = families if single else [*families, other]
        return []
    errors: ErrorList = []
    if policy == "RequireDualStack":
        detail = "this cluster is not configured for dual-stack services"
        errors.append(invalid(path, policy, detail))
    errors += [
        invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
        for index, family in enumerate(families)
        if family != "IPv4"
    ]
    spec["ipFamilies"] = families or ["IPv4"]
    return errors


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _addresses() -> Iterator[str]:
    first = int(CLUSTER_IPS.network_address) + _RESERVED_IPS
    last = int(CLUSTER_IPS.broadcast_address)
    return (str(IPv4Address(number)) for number in range(first, last))


def _address_problem(address: str, others: Iterable[Object]) -> str:
    try:
        inside = IPv4Address(address) in CLUSTER_IPS
    except AddressValueError:
        inside = False
    if not inside:
        return "the provided network does not match the current range"
    if any(other.get("clusterIP") == address for other in others):
        return "provided IP is already allocated"
    return ""


def _port_problem(number: int, taken: set[int]) -> str:
    if number not in _NODE_PORTS:
        return (
            "provided port is not in the valid range. The range of valid ports is "
            f"{_NODE_PORTS.start}-{_NODE_PORTS.stop - 1}"
        )
    return "provided port is already allocated" if number in taken else ""


def _node_ports(spec: Object) -> Iterator[int]:
    for port in spec.get("ports") or ():
        if port.get("nodePort"):
            yield port["nodePort"]
