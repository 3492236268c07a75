"""The built-in kinds that are served, each with its place in the API and its rules."""

from collections.abc import Callable
from typing import Any, Final

from kthena.api import kubernetes
from kthena.local.apiserver.builtins import (
    core,
    events,
    nodes,
    pods,
    printers,
    services,
    workloads,
)
from kthena.local.apiserver.builtins.admissionpolicies import admission_policy_kinds
from kthena.local.apiserver.builtins.representation import Default, builtin
from kthena.local.apiserver.builtins.serviceaddresses import Services
from kthena.local.apiserver.builtins.stored import stored_kinds
from kthena.local.apiserver.builtins.subresources import BINDING, WORKLOAD_SCALE
from kthena.local.apiserver.deletion import plan_uncollected
from kthena.local.apiserver.kinds import (
    ALL_VERBS,
    DeletionRules,
    Kind,
    Names,
    Strategy,
    Subresource,
    TablePrinter,
)
from kthena.local.apiserver.strategies import StatusStrategy
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

_NAMESPACE_VERBS: Final = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")
_ALL: Final = ("all",)
_RETURNED: Final = DeletionRules(returns_object=True)
_UNCOLLECTED: Final = DeletionRules(plan_uncollected)


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
_NOT_OFFERED_OF_PODS: Final = frozenset(
    ("attach", "ephemeralcontainers", "eviction", "exec", "portforward", "proxy", "resize")
)
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
            builtin(kubernetes.CONFIG_MAPS),
            core.ConfigMapStrategy(),
            printers.CONFIG_MAPS,
            Names("configmap", ("cm",)),
        ),
        Kind(
            builtin(kubernetes.EVENTS),
            events.EventStrategy(),
            printers.EVENTS,
            Names("event", ("ev",)),
            deletion=_UNCOLLECTED,
            selectable={**_EVENT_FIELDS, "source": _event_source},
        ),
        Kind(
            builtin(kubernetes.NAMESPACES, core.default_namespace),
            core.NamespaceStrategy(),
            printers.NAMESPACES,
            Names("namespace", ("ns",)),
            verbs=_NAMESPACE_VERBS,
            subresources={
                "finalize": Subresource(("update",), core.NamespaceFinalizeStrategy()),
                "status": Subresource(strategy=core.NamespaceStatusStrategy()),
            },
            selectable=_fields("status.phase"),
            deletion=DeletionRules(
                core.plan_namespace_deletion, core.namespace_holds, returns_object=True
            ),
        ),
        Kind(
            builtin(kubernetes.NODES, nodes.default_node),
            nodes.NodeStrategy(),
            printers.NODES,
            Names("node", ("no",)),
            subresources={"status": Subresource(strategy=StatusStrategy())},
            not_offered=frozenset({"proxy"}),
            selectable={"spec.unschedulable": _boolean_field("spec.unschedulable")},
        ),
        Kind(
            builtin(kubernetes.SECRETS, core.default_secret),
            core.SecretStrategy(),
            printers.SECRETS,
            Names("secret"),
            selectable=_fields("type"),
        ),
        Kind(
            builtin(kubernetes.SERVICE_ACCOUNTS),
            core.ServiceAccountStrategy(),
            printers.PLAIN,
            Names("serviceaccount", ("sa",)),
            not_offered=frozenset({"token"}),
            deletion=_RETURNED,
        ),
    ]


def _pod_kind() -> Kind:
    return Kind(
        builtin(kubernetes.PODS, pods.default),
        pods.PodStrategy(),
        printers.PODS,
        Names("pod", ("po",), _ALL),
        subresources={
            "binding": Subresource(("create",), representation=BINDING),
            "log": Subresource(("get",)),
            "status": Subresource(strategy=pods.PodStatusStrategy()),
        },
        not_offered=_NOT_OFFERED_OF_PODS,
        selectable=_POD_FIELDS,
        deletion=DeletionRules(pods.plan_pod_deletion, returns_object=True),
    )


def _service_kind(all_services: Services) -> Kind:
    return Kind(
        builtin(kubernetes.SERVICES, services.default),
        services.ServiceStrategy(all_services),
        printers.SERVICES,
        Names("service", ("svc",), _ALL),
        subresources={"status": Subresource(strategy=services.ServiceStatusStrategy())},
        not_offered=frozenset({"proxy"}),
        selectable=_fields("spec.clusterIP", "spec.type"),
        deletion=_RETURNED,
    )


def _workload_kind(
    resource: Resource,
    default: Default,
    strategy: Strategy,
    status: Strategy,
    printer: TablePrinter,
    short_name: str,
) -> Kind:
    return Kind(
        builtin(resource, default),
        strategy,
        printer,
        Names(resource.kind.lower(), (short_name,), _ALL),
        subresources={
            "scale": WORKLOAD_SCALE,
            "status": Subresource(strategy=status),
        },
    )


def builtin_kinds(all_services: Services) -> list[Kind]:
    """All built-in kinds, but reviews and CustomResourceDefinitions."""
    return [
        *_core_kinds(),
        _pod_kind(),
        _service_kind(all_services),
        Kind(
            builtin(kubernetes.CONTROLLER_REVISIONS),
            workloads.ControllerRevisionStrategy(),
            printers.CONTROLLER_REVISIONS,
            Names("controllerrevision"),
        ),
        _workload_kind(
            kubernetes.DEPLOYMENTS,
            workloads.default_deployment,
            workloads.DeploymentStrategy(),
            workloads.DeploymentStatusStrategy(),
            printers.DEPLOYMENTS,
            "deploy",
        ),
        _workload_kind(
            kubernetes.REPLICA_SETS,
            workloads.default_replica_set,
            workloads.ReplicaSetStrategy(),
            workloads.WorkloadStatusStrategy(workloads.REPLICA_SET_COUNTS),
            printers.REPLICA_SETS,
            "rs",
        ),
        Kind(
            builtin(events.EVENTS_V1),
            events.NewEventStrategy(),
            printers.EVENTS,
            Names("event", ("ev",)),
            deletion=_UNCOLLECTED,
            selectable={**_EVENT_FIELDS, "source": _event_source},
            field_labels=_NEW_EVENT_LABELS,
            errors_as=kubernetes.EVENTS,
            bucket=str(kubernetes.EVENTS),
            conversion=events.CONVERSION,
        ),
        Kind(
            builtin(kubernetes.LEASES),
            core.LeaseStrategy(),
            printers.LEASES,
            Names("lease"),
        ),
        *stored_kinds(),
        *admission_policy_kinds(),
    ]
