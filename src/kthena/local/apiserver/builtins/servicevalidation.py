"""The rules of services, as ValidateService of kube-apiserver has them, for IPv4.

Not checked: external IPs, load balancer classes and source ranges, health check ports.
"""

from ipaddress import IPv4Address
from typing import Final

from kthena.local.apiserver.builtins.fielderrors import (
    NO_ADDRESS,
    check_choice,
    check_port_number,
    check_text,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import format_json
from kthena.machinery.names import (
    check_dns1123_label,
    check_dns1123_subdomain,
    check_label_value,
    check_port_name,
    check_qualified_name,
)
from kthena.machinery.objects import Object

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_POLICIES: Final = ("Cluster", "Local")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameZone", "PreferSameNode")
_MAX_AFFINITY_S: Final = 86400


def validate_service(spec: Object) -> ErrorList:
    """What is wrong with the spec of a service that has its defaults and addresses."""
    errors: ErrorList = []
    headless = spec.get("clusterIP") == "None"
    kind, ports = spec["type"], spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        errors.append(required("spec.ports"))
    if kind == "LoadBalancer" and headless:
        detail = "may not be set to 'None' for LoadBalancer services"
        errors.append(invalid("spec.clusterIPs[0]", "None", detail))
    if kind == "NodePort" and headless:
        detail = "may not be set to 'None' for NodePort services"
        errors.append(invalid("spec.clusterIPs[0]", "None", detail))
    if kind == "ExternalName":
        errors += _validate_external_name(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors += _validate_port(port, names, f"spec.ports[{index}]", several=len(ports) > 1)
    for key, value in (spec.get("selector") or {}).items():
        errors += check_text("spec.selector", key, check_qualified_name)
        errors += check_text("spec.selector", value, check_label_value)
    errors += _validate_affinity(spec)
    if kind not in _TYPES:
        errors.append(unsupported("spec.type", kind, _TYPES))
    errors += _validate_node_ports(kind, ports)
    errors += _validate_repeated_ports(ports)
    return errors + _validate_traffic(spec) + _validate_cluster_ip(spec)


def _validate_affinity(spec: Object) -> ErrorList:
    affinity = spec["sessionAffinity"]
    errors = check_choice("spec.sessionAffinity", affinity, ("ClientIP", "None"))
    if affinity == "ClientIP":
        timeout_s = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
        if not 0 < timeout_s <= _MAX_AFFINITY_S:
            path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
            detail = f"must be greater than 0 and less than {_MAX_AFFINITY_S}"
            errors.append(invalid(path, timeout_s, detail))
    return errors


def _validate_external_name(spec: Object) -> ErrorList:
    errors: ErrorList = []
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name):
            detail = "may not be set for ExternalName services"
            errors.append(forbidden(f"spec.{name}", detail))
    name = (spec.get("externalName") or "").removesuffix(".")
    if name:
        return errors + check_text("spec.externalName", name, check_dns1123_subdomain)
    return [*errors, required("spec.externalName")]


def _validate_port(port: Object, names: set[str], path: str, *, several: bool) -> ErrorList:
    errors: ErrorList = []
    name = port.get("name") or ""
    if name:
        errors += check_text(f"{path}.name", name, check_dns1123_label)
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
    elif several:
        errors.append(required(f"{path}.name"))
    errors += check_port_number(f"{path}.port", port["port"])
    errors += check_choice(f"{path}.protocol", port.get("protocol"), _PROTOCOLS)
    target = port["targetPort"]
    if isinstance(target, str):
        errors += check_text(f"{path}.targetPort", target, check_port_name)
    else:
        errors += check_port_number(f"{path}.targetPort", target)
    if port.get("appProtocol"):
        errors += check_text(f"{path}.appProtocol", port["appProtocol"], check_qualified_name)
    return errors


def _validate_node_ports(kind: str, ports: list[Object]) -> ErrorList:
    errors: ErrorList = []
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports):
        number = port.get("nodePort")
        if not number:
            continue
        path = f"spec.ports[{index}].nodePort"
        if kind == "ClusterIP":
            errors.append(forbidden(path, "may not be used when `type` is 'ClusterIP'"))
        key = (number, port.get("protocol") or "")
        if key in seen:
            errors.append(duplicate(path, number))
        seen.add(key)
    return errors


def _validate_traffic(spec: Object) -> ErrorList:
    errors: ErrorList = []
    kind, policy = spec["type"], spec.get("externalTrafficPolicy")
    if spec.get("allocateLoadBalancerNodePorts") is not None and kind != "LoadBalancer":
        detail = "may only be used when `type` is 'LoadBalancer'"
        errors.append(forbidden("spec.allocateLoadBalancerNodePorts", detail))
    if is_external(spec):
        errors += check_choice("spec.externalTrafficPolicy", policy, _POLICIES)
    elif policy:
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", policy, detail))
    internal = spec.get("internalTrafficPolicy")
    if internal is not None and internal not in _POLICIES:
        errors.append(unsupported("spec.internalTrafficPolicy", internal, _POLICIES))
    distribution = spec.get("trafficDistribution")
    if distribution is not None and distribution not in _DISTRIBUTIONS:
        errors.append(unsupported("spec.trafficDistribution", distribution, _DISTRIBUTIONS))
    return errors


def is_external(spec: Object) -> bool:
    """Whether clients from outside the cluster reach the service."""
    if spec["type"] in ("LoadBalancer", "NodePort"):
        return True
    return spec["type"] == "ClusterIP" and bool(spec.get("externalIPs"))


def _validate_repeated_ports(ports: list[Object]) -> ErrorList:
    errors: ErrorList = []
    seen: set[tuple[int, str]] = set()
    for index, port in enumerate(ports):
        key = (port["port"], port.get("protocol") or "")
        if key in seen:
            # The struct of the API, of which only the key is set.
            shown = (
                f'{{"Name":"","Protocol":{format_json(key[1])},"AppProtocol":null,"Port":{key[0]},'
                '"TargetPort":0,"NodePort":0}'
            )
            errors.append(FieldError(f"spec.ports[{index}]", ErrorType.DUPLICATE, OMITTED, shown))
        seen.add(key)
    return errors


def _validate_cluster_ip(spec: Object) -> ErrorList:
    if spec["type"] == "ExternalName":
        return []
    errors: ErrorList = []
    addresses = spec.get("clusterIPs") or []
    if spec.get("clusterIP") and addresses[:1] != [spec["clusterIP"]]:
        detail = "first value must match `clusterIP`"
        errors.append(invalid("spec.clusterIPs", addresses, detail))
    for index, address in enumerate(addresses):
        if (index, address) != (0, "None") and not _is_ip(address):
            errors.append(invalid(f"spec.clusterIPs[{index}]", address, NO_ADDRESS))
    return errors


def _is_ip(text: str) -> bool:
    try:
        IPv4Address(text)
    except ValueError:
        return False
    return True
