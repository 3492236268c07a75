"""The built-in kinds that are served, each with its place in the API and its rules."""

from collections.abc import Callable
from typing import Any, Final

from kthena.api import kubernetes
from kthena.local.apiserver.builtins import core, events, pods, printers, services, workloads
from kthena.local.apiserver.builtins.codec import BuiltinCodec
from kthena.local.apiserver.builtins.serviceaddresses import Services
from kthena.local.apiserver.kinds import ALL_VERBS, Kind, ScalePaths, Strategy
from kthena.local.apiserver.strategies import PlainStrategy, StatusStrategy
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

EVENTS_V1: Final = Resource("events.k8s.io", "v1", "events", "Event")

_NAMESPACE_VERBS: Final = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_ALL: Final = ("all",)


def _field(*path: str) -> Callable[[Object], str]:
    def read(obj: Object) -> str:
        value: Any = obj
        for name in path:
            value = (value or {}).get(name)
        return "" if value is None else str(value)

    return read


def _fields(*paths: str) -> dict[str, Callable[[Object], str]]:
    return {path: _field(*path.split(".")) for path in paths}


def _boolean_field(path: str) -> Callable[[Object], str]:
    read = _field(*path.split("."))
    return lambda obj: "true" if read(obj) == "True" else "false"


def _pod_ip(obj: Object) -> str:
    addresses = (obj.get("status") or {}).get("podIPs") or ()
    return str(addresses[0].get("ip") or "") if addresses else ""


_POD_FIELDS: Final = {
    **_fields(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
        "status.nominatedNodeName",
    ),
    "status.podIP": _pod_ip,
    "status.podIPs": _pod_ip,
    "spec.hostNetwork": _boolean_field("spec.hostNetwork"),
}
_EVENT_FIELDS: Final = _fields(
    *(f"involvedObject.{name}" for name in
      ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")),
    *("reason", "reportingComponent", "type"),
)  # fmt: skip


_NEW_EVENT_LABELS: Final = {
    **{name: name for name in ("reason", "type")},
    "reportingController": "reportingComponent",
    **{
        name.replace("involvedObject", "regarding"): name
        for name in _EVENT_FIELDS
        if name.startswith("involvedObject")
    },
}


def _event_source(obj: Object) -> str:
    component = (obj.get("source") or {}).get("component")
    return str(component or obj.get("reportingComponent") or "")


def _core_kinds() -> list[Kind]:
    return [
        Kind(
            kubernetes.CONFIG_MAPS,
            BuiltinCodec("core.v1.ConfigMap", "ConfigMap", None),
            core.ConfigMapStrategy(),
            printers.CONFIG_MAPS,
            singular="configmap",
            short_names=("cm",),
            merge_schema="io.k8s.api.core.v1.ConfigMap",
        ),
        Kind(
            kubernetes.EVENTS,
            BuiltinCodec("core.v1.Event", "Event", None),
            events.EventStrategy(),
            printers.EVENTS,
            singular="event",
            short_names=("ev",),
            selectable={**_EVENT_FIELDS, "source": _event_source},
            merge_schema="io.k8s.api.core.v1.Event",
        ),
        Kind(
            kubernetes.NAMESPACES,
            BuiltinCodec("core.v1.Namespace", "Namespace", core.default_namespace),
            core.NamespaceStrategy(),
            printers.NAMESPACES,
            singular="namespace",
            short_names=("ns",),
            verbs=_NAMESPACE_VERBS,
            status=StatusStrategy(),
            other_subresources={"finalize": ("update",)},
            selectable=_fields("status.phase"),
            deletion=core.plan_namespace_deletion,
            holds=core.namespace_holds,
            returns_deleted=True,
            merge_schema="io.k8s.api.core.v1.Namespace",
        ),
        Kind(
            kubernetes.NODES,
            BuiltinCodec("core.v1.Node", "Node", core.default_node),
            core.NodeStrategy(),
            printers.NODES,
            singular="node",
            short_names=("no",),
            status=StatusStrategy(),
            selectable={"spec.unschedulable": _boolean_field("spec.unschedulable")},
            merge_schema="io.k8s.api.core.v1.Node",
        ),
        Kind(
            kubernetes.SECRETS,
            BuiltinCodec("core.v1.Secret", "Secret", core.default_secret),
            core.SecretStrategy(),
            printers.SECRETS,
            singular="secret",
            selectable=_fields("type"),
            merge_schema="io.k8s.api.core.v1.Secret",
        ),
        Kind(
            kubernetes.SERVICE_ACCOUNTS,
            BuiltinCodec("core.v1.ServiceAccount", "ServiceAccount", None),
            PlainStrategy(),
            printers.PLAIN,
            singular="serviceaccount",
            short_names=("sa",),
            returns_deleted=True,
            merge_schema="io.k8s.api.core.v1.ServiceAccount",
        ),
    ]


def _pod_kind() -> Kind:
    return Kind(
        kubernetes.PODS,
        BuiltinCodec("core.v1.Pod", "Pod", pods.default),
        pods.PodStrategy(),
        printers.PODS,
        singular="pod",
        short_names=("po",),
        categories=_ALL,
        status=pods.PodStatusStrategy(),
        other_subresources={"binding": ("create",), "log": ("get",)},
        selectable=_POD_FIELDS,
        deletion=pods.plan_pod_deletion,
        returns_deleted=True,
        merge_schema="io.k8s.api.core.v1.Pod",
    )


def _service_kind(all_services: Services) -> Kind:
    return Kind(
        kubernetes.SERVICES,
        BuiltinCodec("core.v1.Service", "Service", services.default),
        services.ServiceStrategy(all_services),
        printers.SERVICES,
        singular="service",
        short_names=("svc",),
        categories=_ALL,
        status=services.ServiceStatusStrategy(),
        selectable=_fields("spec.clusterIP", "spec.type"),
        returns_deleted=True,
        merge_schema="io.k8s.api.core.v1.Service",
    )


def _workload_kind(
    resource: Resource, default: Callable[[Object], None], strategy: Strategy, short_name: str
) -> Kind:
    printer = printers.DEPLOYMENTS if short_name == "deploy" else printers.REPLICA_SETS
    return Kind(
        resource,
        BuiltinCodec(f"apps.v1.{resource.kind}", resource.kind, default),
        strategy,
        printer,
        singular=resource.kind.lower(),
        short_names=(short_name,),
        categories=_ALL,
        status=StatusStrategy(("labels",)),
        scale=ScalePaths(selector="spec.selector"),
        merge_schema=f"io.k8s.api.apps.v1.{resource.kind}",
    )


def builtin_kinds(all_services: Services) -> list[Kind]:
    """All built-in kinds, but CustomResourceDefinitions."""
    return [
        *_core_kinds(),
        _pod_kind(),
        _service_kind(all_services),
        Kind(
            kubernetes.CONTROLLER_REVISIONS,
            BuiltinCodec("apps.v1.ControllerRevision", "ControllerRevision", None),
            workloads.ControllerRevisionStrategy(),
            printers.CONTROLLER_REVISIONS,
            singular="controllerrevision",
            merge_schema="io.k8s.api.apps.v1.ControllerRevision",
        ),
        _workload_kind(
            kubernetes.DEPLOYMENTS,
            workloads.default_deployment,
            workloads.DeploymentStrategy(),
            "deploy",
        ),
        _workload_kind(
            kubernetes.REPLICA_SETS,
            workloads.default_replica_set,
            workloads.ReplicaSetStrategy(),
            "rs",
        ),
        Kind(
            EVENTS_V1,
            BuiltinCodec("events.v1.Event", "Event", None),
            events.NewEventStrategy(),
            printers.EVENTS,
            singular="event",
            short_names=("ev",),
            selectable={**_EVENT_FIELDS, "source": _event_source},
            field_labels=_NEW_EVENT_LABELS,
            errors_as=kubernetes.EVENTS,
            bucket=str(kubernetes.EVENTS),
            conversion=events.CONVERSION,
            merge_schema="io.k8s.api.events.v1.Event",
        ),
        Kind(
            kubernetes.LEASES,
            BuiltinCodec("coordination.v1.Lease", "Lease", None),
            core.LeaseStrategy(),
            printers.LEASES,
            singular="lease",
            merge_schema="io.k8s.api.coordination.v1.Lease",
        ),
    ]
