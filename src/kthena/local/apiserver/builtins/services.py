"""Services: their defaults, and what a write may change."""

from collections.abc import Iterable
from typing import Final

from kthena.api.kubernetes import SERVICES
from kthena.local.apiserver.admission import copy_fields
from kthena.local.apiserver.builtins.fielderrors import forbidden, invalid
from kthena.local.apiserver.builtins.serviceaddresses import (
    Addresses,
    Services,
    needs_node_ports,
)
from kthena.local.apiserver.builtins.servicevalidation import is_external, validate_service
from kthena.local.apiserver.errors import invalid_object
from kthena.local.apiserver.strategies import STATUS_FIELD, PlainStrategy, StatusStrategy
from kthena.machinery.fields import ErrorList
from kthena.machinery.objects import Object, name_of

_ADDRESS_FIELDS: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
_KEPT_FIELDS: Final = ("clusterIP", "clusterIPs")
_CLIENT_IP_TIMEOUT_S: Final = 10800


def default(service: Object) -> None:
    """Set what a service leaves open, apart from what is allocated."""
    spec = service["spec"]
    affinity = spec.setdefault("sessionAffinity", "None")
    if affinity == "None":
        spec.pop("sessionAffinityConfig", None)
    elif affinity == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {})
        config.setdefault("clientIP", {}).setdefault("timeoutSeconds", _CLIENT_IP_TIMEOUT_S)
    kind = spec.setdefault("type", "ClusterIP")
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (0, "", None):
            port["targetPort"] = port["port"]
    if is_external(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)


class ServiceStrategy(PlainStrategy):
    """Writes of services; allocation looks at the services that there are."""

    reset_fields = STATUS_FIELD

    allow_create_on_update = True

    def __init__(self, services: Services) -> None:
        self._addresses = Addresses(services)

    def prepare_create(self, obj: Object) -> None:
        """Drop the status, hand out addresses and ports."""
        obj["status"] = {"loadBalancer": {}}
        self._allocate(obj, {})

    def _allocate(self, service: Object, before: Object) -> None:
        errors = self._addresses.allocate(service["spec"], before)
        if errors:
            raise invalid_object(SERVICES, name_of(service), errors)

    def validate_create(self, obj: Object) -> ErrorList:
        """The rules of services."""
        return validate_service(obj["spec"]) or self._addresses.check(obj, {})

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status and what was allocated, where the new object does not say."""
        copy_fields(new, old, ("status",))
        spec, before = new["spec"], old["spec"]
        if before["type"] != "ExternalName":
            if spec["type"] == "ExternalName":
                _drop_unchanged(spec, before, _ADDRESS_FIELDS)
            else:
                _keep_addresses(spec, before)
                _keep_node_ports(spec, before)
        if not needs_node_ports(spec):
            _drop_node_ports(spec, before)
        if not is_external(spec):
            _drop_unchanged(spec, before, ("externalTrafficPolicy",))
        self._allocate(new, before)

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """A cluster IP stays for life."""
        errors: ErrorList = []
        after, before = new["spec"], old["spec"]
        both = "ExternalName" not in (after["type"], before["type"])
        if both and before.get("clusterIP") and after.get("clusterIP") != before["clusterIP"]:
            errors.append(
                invalid(
                    "spec.clusterIPs[0]", after.get("clusterIPs") or [], "may not change once set"
                )
            )
        errors += validate_service(after)
        return errors or self._addresses.check(new, before)


class ServiceStatusStrategy(StatusStrategy):
    """`services/status`: only load balancers have addresses of their own."""

    allow_create_on_update = True

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Addresses are for the type that has them."""
        balancer = (new.get("status") or {}).get("loadBalancer") or {}
        if balancer.get("ingress") and old["spec"]["type"] != "LoadBalancer":
            detail = "may only be used when `spec.type` is 'LoadBalancer'"
            return [forbidden("status.loadBalancer.ingress", detail)]
        return []


def _drop_unchanged(spec: Object, before: Object, names: Iterable[str]) -> None:
    """Drop what no longer applies, unless the client has changed it and should hear of it."""
    for name in names:
        if spec.get(name) == before.get(name):
            spec.pop(name, None)


def _keep_addresses(spec: Object, before: Object) -> None:
    """Keep addresses that the client leaves out; one that changes one of two fields means both."""
    changed = spec.get("clusterIP") != before.get("clusterIP")
    if changed and spec.get("clusterIPs") == before.get("clusterIPs"):
        address = spec.get("clusterIP")
        spec["clusterIPs"] = [address] if address else []
    for name in _KEPT_FIELDS:
        if not spec.get(name) and before.get(name):
            spec[name] = before[name]


def _keep_node_ports(spec: Object, before: Object) -> None:
    known = {
        (port["port"], port["protocol"]): port["nodePort"]
        for port in before.get("ports") or ()
        if port.get("nodePort")
    }
    if needs_node_ports(spec) and needs_node_ports(before):
        for port in spec.get("ports") or ():
            number = known.get((port["port"], port["protocol"]))
            if number and not port.get("nodePort"):
                port["nodePort"] = number


def _drop_node_ports(spec: Object, before: Object) -> None:
    known = {port.get("nodePort") for port in before.get("ports") or ()}
    for port in spec.get("ports") or ():
        if port.get("nodePort") in known:
            port.pop("nodePort", None)
