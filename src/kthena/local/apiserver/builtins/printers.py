"""The tables of the built-in kinds, column by column as `kubectl get` shows them."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

from kthena.local.apiserver.kinds import Column
from kthena.local.apiserver.tables import AGE, NAME, age
from kthena.machinery.conditions import is_true, parse_time
from kthena.machinery.objects import Object, controller_of, labels_of, name_of
from kthena.machinery.selectors import SelectorError, label_selector_from_object

Cells = Callable[[Object, datetime], list[Any]]

_NONE: Final = "<none>"
_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
_ROLE_LABEL: Final = "kubernetes.io/role"


class Printer:
    """Columns and the function that fills them."""

    def __init__(self, columns: Sequence[Column], cells: Cells) -> None:
        self.columns = columns
        self._cells = cells

    def cells(self, obj: Object, now: datetime) -> list[Any]:
        """One cell for each column."""
        return self._cells(obj, now)


def _wide(name: str, kind: str = "string") -> Column:
    return Column(name, kind, priority=1)


def _created(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _plain(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), _created(obj, now)]


def _stamped(obj: Object, now: datetime) -> list[Any]:
    del now
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


def _namespace(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj["status"].get("phase"), _created(obj, now)]


def _config_map(obj: Object, now: datetime) -> list[Any]:
    count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
    return [name_of(obj), count, _created(obj, now)]


def _secret(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("type"), len(obj.get("data") or ()), _created(obj, now)]


def _lease(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), obj["spec"].get("holderIdentity") or "", _created(obj, now)]


def _revision(obj: Object, now: datetime) -> list[Any]:
    owner = controller_of(obj)
    shown = _NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        kind = owner["kind"].lower()
        shown = f"{kind}.{group}/{owner['name']}" if group else f"{kind}/{owner['name']}"
    return [name_of(obj), shown, obj.get("revision") or 0, _created(obj, now)]


def _service(obj: Object, now: datetime) -> list[Any]:
    spec = obj["spec"]
    ports = ",".join(_service_port(port) for port in spec.get("ports") or ())
    addresses = spec.get("clusterIPs") or [_NONE]
    return [
        name_of(obj),
        spec["type"],
        addresses[0],
        _external_address(spec),
        ports or _NONE,
        _created(obj, now),
        _labels(spec.get("selector")),
    ]


def _service_port(port: Object) -> str:
    node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{node_port}/{port['protocol']}"


def _external_address(spec: Object) -> str:
    if spec["type"] == "ExternalName":
        return str(spec.get("externalName") or "")
    addresses = ",".join(spec.get("externalIPs") or ())
    return addresses or ("<pending>" if spec["type"] == "LoadBalancer" else _NONE)


def _scale(obj: Object, now: datetime) -> list[Any]:
    replicas = obj["spec"].get("replicas") or 0
    return [name_of(obj), replicas, obj["status"]["replicas"], _created(obj, now)]


def _labels(labels: Object | None) -> str:
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else _NONE


def _node(obj: Object, now: datetime) -> list[Any]:
    status, info = obj["status"], obj["status"].get("nodeInfo") or {}
    ready = [
        "Ready" if condition["status"] == "True" else "NotReady"
        for condition in status.get("conditions") or ()
        if condition["type"] == "Ready"
    ]
    state = ready or ["Unknown"]
    if obj["spec"].get("unschedulable"):
        state.append("SchedulingDisabled")
    roles = {
        key.removeprefix(_ROLE_PREFIX) if key.startswith(_ROLE_PREFIX) else value
        for key, value in labels_of(obj).items()
        if key.startswith(_ROLE_PREFIX) or key == _ROLE_LABEL
    }
    return [
        name_of(obj),
        ",".join(state),
        ",".join(sorted(filter(None, roles))) or _NONE,
        _created(obj, now),
        info.get("kubeletVersion") or "",
        _node_address(status, "InternalIP"),
        _node_address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _node_address(status: Object, kind: str) -> str:
    for address in status.get("addresses") or ():
        if address["type"] == kind:
            return str(address["address"])
    return _NONE


def _event(obj: Object, now: datetime) -> list[Any]:
    first = age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count") or 1
    series = obj.get("series")
    if series:
        last, count = age(series.get("lastObservedTime"), now), series.get("count")
    about, source = obj["involvedObject"], obj.get("source") or {}
    kind, name = (about.get("kind") or "").lower(), about.get("name")
    component = source.get("component") or obj.get("reportingComponent") or ""
    instance = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type") or "",
        obj.get("reason") or "",
        f"{kind}/{name}" if name else kind,
        about.get("fieldPath") or "",
        f"{component}, {instance}" if instance else component,
        (obj.get("message") or "").strip(),
        first,
        count,
        name_of(obj),
    ]


def _containers(template: Object) -> tuple[str, str]:
    containers = template["spec"].get("containers") or ()
    names = (container.get("name") or "" for container in containers)
    images = (container.get("image") or "" for container in containers)
    return ",".join(names), ",".join(images)


def _selector(selector: Object | None) -> str:
    try:
        return str(label_selector_from_object(selector)) or _NONE
    except SelectorError:
        return "<invalid>"


def _deployment(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        name_of(obj),
        f"{status.get('readyReplicas') or 0}/{spec['replicas']}",
        status.get("updatedReplicas") or 0,
        status.get("availableReplicas") or 0,
        _created(obj, now),
        *_containers(spec["template"]),
        _selector(spec.get("selector")),
    ]


def _replica_set(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        name_of(obj),
        spec["replicas"],
        status.get("replicas") or 0,
        status.get("readyReplicas") or 0,
        _created(obj, now),
        *_containers(spec["template"]),
        _selector(spec.get("selector")),
    ]


def _pod(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status") or {}
    shown = _PodState(obj)
    addresses = status.get("podIPs") or [{}]
    gates = [gate["conditionType"] for gate in spec.get("readinessGates") or ()]
    open_gates = sum(is_true(status.get("conditions") or (), gate) for gate in gates)
    return [
        name_of(obj),
        f"{shown.ready}/{shown.total}",
        shown.reason,
        shown.restarts_text(now),
        _created(obj, now),
        addresses[0].get("ip") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        f"{open_gates}/{len(gates)}" if gates else _NONE,
    ]


class _PodState:
    """What a pod's containers say together: as kubectl's column Status has it."""

    def __init__(self, pod: Object) -> None:
        self._pod = pod
        self._status: Object = pod.get("status") or {}
        self._conditions = self._status.get("conditions") or ()
        self._sidecars = {
            container.get("name")
            for container in pod["spec"].get("initContainers") or ()
            if container.get("restartPolicy") == "Always"
        }
        self.total = len(pod["spec"].get("containers") or ()) + len(self._sidecars)
        self.ready = 0
        self.restarts = 0
        self._last_restart = ""
        self.reason = str(self._status.get("reason") or self._status.get("phase") or "")
        self._summarize()

    def restarts_text(self, now: datetime) -> str:
        """The number of restarts, and when the last one was."""
        if self.restarts and self._last_restart:
            return f"{self.restarts} ({age(self._last_restart, now)} ago)"
        return str(self.restarts)

    def _summarize(self) -> None:
        for condition in self._conditions:
            gated = condition.get("reason") == "SchedulingGated"
            if condition["type"] == "PodScheduled" and gated:
                self.reason = "SchedulingGated"
        if not self._init_reason() or is_true(self._conditions, "Initialized"):
            self._count_restarts(only_sidecars=True)
            self._container_reasons()
        if not self._pod["metadata"].get("deletionTimestamp"):
            return
        if self._status.get("reason") == "NodeLost":
            self.reason = "Unknown"
        elif self._status.get("phase") not in ("Succeeded", "Failed"):
            self.reason = "Terminating"

    def _count_restarts(self, *, only_sidecars: bool) -> None:
        self.restarts, self._last_restart = 0, ""
        for container in self._status.get("initContainerStatuses") or ():
            if not only_sidecars or container["name"] in self._sidecars:
                self._count(container)

    def _count(self, container: Object) -> None:
        self.restarts += container.get("restartCount") or 0
        terminated = (container.get("lastState") or {}).get("terminated") or {}
        finished = terminated.get("finishedAt")
        if finished and (
            not self._last_restart or parse_time(finished) > parse_time(self._last_restart)
        ):
            self._last_restart = finished

    def _init_reason(self) -> bool:
        """Whether the pod still initializes; the reason says how far it is."""
        self._count_restarts(only_sidecars=False)
        total = len(self._pod["spec"].get("initContainers") or ())
        for index, container in enumerate(self._status.get("initContainerStatuses") or ()):
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if terminated is not None and not terminated.get("exitCode"):
                continue
            if container["name"] in self._sidecars and container.get("started"):
                self.ready += bool(container.get("ready"))
                continue
            if terminated is not None:
                self.reason = f"Init:{_ending(terminated)}"
            elif waiting.get("reason") not in (None, "", "PodInitializing"):
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{index}/{total}"
            return True
        return False

    def _container_reasons(self) -> None:
        running, failure = False, ""
        for container in reversed(self._status.get("containerStatuses") or ()):
            self._count(container)
            state = container.get("state") or {}
            terminated, waiting = state.get("terminated"), state.get("waiting") or {}
            if waiting.get("reason"):
                self.reason = waiting["reason"]
            elif terminated is not None:
                self.reason = _ending(terminated)
                if terminated.get("exitCode"):
                    failure = self.reason
            elif container.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and is_true(self._conditions, "Ready"):
                self.reason = "Running"
            elif failure:
                self.reason = failure
            elif running:
                self.reason = "NotReady"


def _ending(terminated: Object) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode') or 0}"


_CONTAINERS: Final = (_wide("Containers"), _wide("Images"), _wide("Selector"))

PLAIN: Final = Printer((NAME, AGE), _plain)
STAMPED: Final = Printer((NAME, Column("Created At", "date")), _stamped)
NAMESPACES: Final = Printer((NAME, Column("Status"), AGE), _namespace)
CONFIG_MAPS: Final = Printer((NAME, Column("Data"), AGE), _config_map)
SECRETS: Final = Printer((NAME, Column("Type"), Column("Data"), AGE), _secret)
LEASES: Final = Printer((NAME, Column("Holder"), AGE), _lease)
CONTROLLER_REVISIONS: Final = Printer(
    (NAME, Column("Controller"), Column("Revision"), AGE), _revision
)
SERVICES: Final = Printer(
    (
        NAME,
        Column("Type"),
        Column("Cluster-IP"),
        Column("External-IP"),
        Column("Port(s)"),
        AGE,
        _wide("Selector"),
    ),
    _service,
)
NODES: Final = Printer(
    (
        NAME,
        Column("Status"),
        Column("Roles"),
        AGE,
        Column("Version"),
        _wide("Internal-IP"),
        _wide("External-IP"),
        _wide("OS-Image"),
        _wide("Kernel-Version"),
        _wide("Container-Runtime"),
    ),
    _node,
)
EVENTS: Final = Printer(
    (
        Column("Last Seen"),
        Column("Type"),
        Column("Reason"),
        Column("Object"),
        _wide("Subobject"),
        _wide("Source"),
        Column("Message"),
        _wide("First Seen"),
        _wide("Count"),
        NAME._replace(priority=1),
    ),
    _event,
)
DEPLOYMENTS: Final = Printer(
    (
        NAME,
        Column("Ready"),
        Column("Up-to-date"),
        Column("Available"),
        AGE,
        *_CONTAINERS,
    ),
    _deployment,
)
REPLICA_SETS: Final = Printer(
    (
        NAME,
        Column("Desired", "integer"),
        Column("Current", "integer"),
        Column("Ready", "integer"),
        AGE,
        *_CONTAINERS,
    ),
    _replica_set,
)
SCALES: Final = Printer(
    (NAME, Column("Desired", "integer"), Column("Available", "integer"), AGE), _scale
)
PODS: Final = Printer(
    (
        NAME,
        Column("Ready"),
        Column("Status"),
        Column("Restarts"),
        AGE,
        _wide("IP"),
        _wide("Node"),
        _wide("Nominated Node"),
        _wide("Readiness Gates"),
    ),
    _pod,
)
