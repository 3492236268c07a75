"""The status of a pod from what is known of its containers, in the words of the kubelet. Pure.

Phase, conditions, reasons and messages follow the kubelet (`pkg/kubelet/status` and `getPhase`).
Conditions of others (readiness gates) are read and never written; a transition time moves only when
the status of its condition changes.
"""

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from kthena.machinery.conditions import (
    Condition,
    find_condition,
    format_time,
    is_true,
    parse_time,
    set_condition,
)
from kthena.machinery.objects import Object

Phase: TypeAlias = Literal["Pending", "Running", "Succeeded", "Failed"]

CREATING: Final = "ContainerCreating"
INITIALIZING: Final = "PodInitializing"
_UNSEEN: Final = (255, "Unknown")
"""Exit code and reason of a run that ended while nobody looked, as container runtimes report it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not running: why."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """Running since."""

    started_at: datetime


@dataclass(frozen=True, slots=True)
class Terminated:
    """How and when a run ended."""

    exit_code: int
    reason: str
    finished_at: datetime
    started_at: datetime | None = None
    signal: int = 0
    message: str = ""
    container_id: str = ""


State: TypeAlias = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """What is known of one container. `started` is the kubelet's: its startup probe has succeeded."""

    name: str
    image: str
    state: State = Waiting(CREATING)
    last: Terminated | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False
    container_id: str = ""

    def ended(self, end: Terminated) -> "ContainerRecord":
        """The record once a run has ended."""
        return replace(self, state=end, started=False, ready=False)

    def waits(self, reason: str, message: str = "") -> "ContainerRecord":
        """The record while it waits; a run that ended before becomes the last one."""
        last = self.state if isinstance(self.state, Terminated) else self.last
        return replace(self, state=Waiting(reason, message), last=last, started=False, ready=False)


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What is known of a pod: `init` and `app` containers in spec order.

    `failed` (reason, message) overrides the phase: a pod that the node ended (its deadline).
    """

    address: str
    node_address: str
    start_time: datetime
    init: tuple[ContainerRecord, ...]
    app: tuple[ContainerRecord, ...]
    sandbox_ready: bool = False
    failed: tuple[str, str] | None = None


def initial_records(
    spec: Mapping[str, Any], status: Mapping[str, Any], name: str, now: datetime
) -> tuple[ContainerRecord, ...]:
    """Records of a container list before anything runs; restart counts of an earlier life stay.

    `name` is `containers` or `initContainers`. A run of this node that ended with the node's
    earlier life counts as one restart more; where it is to be followed by another, it is the last
    run, whose end nobody saw.
    """
    field = "containerStatuses" if name == "containers" else "initContainerStatuses"
    known = {entry.get("name"): entry for entry in status.get(field) or ()}
    waiting = Waiting(INITIALIZING if spec.get("initContainers") else CREATING)
    records = []
    for container in spec.get(name) or ():
        entry = known.get(container.get("name")) or {}
        ours = str(entry.get("containerID") or "").startswith("kthena://")
        running = (entry.get("state") or {}).get("running")
        last = None
        if ours and running is not None and restart_policy(spec, container) == "Always":
            last = Terminated(*_UNSEEN, now, container_id=str(entry["containerID"]))
            with contextlib.suppress(ValueError):
                last = replace(last, started_at=parse_time(running.get("startedAt")))
        records.append(
            ContainerRecord(
                name=str(container.get("name")),
                image=str(container.get("image") or ""),
                state=waiting,
                last=last,
                restarts=int(entry.get("restartCount") or 0) + int(ours),
            )
        )
    return tuple(records)


def is_unseen_end(terminated: Mapping[str, Any]) -> bool:
    """Whether a status tells of the end of a run that nobody has seen."""
    return (terminated.get("exitCode"), terminated.get("reason")) == _UNSEEN


def is_sidecar(container: Mapping[str, Any]) -> bool:
    """Whether an init container runs beside the pod's containers."""
    return container.get("restartPolicy") == "Always"


def restart_policy(spec: Mapping[str, Any], container: Mapping[str, Any]) -> str:
    """The policy that a container's end is judged by."""
    return str(container.get("restartPolicy") or spec.get("restartPolicy") or "Always")


def init_done(container: Mapping[str, Any], record: ContainerRecord) -> bool:
    """Whether an init container lets the next one start."""
    if is_sidecar(container):
        return record.started
    return isinstance(record.state, Terminated) and record.state.exit_code == 0


def phase_of(pod: Object, record: PodRecord) -> Phase:
    """The phase, as the kubelet's `getPhase`."""
    spec = pod.get("spec") or {}
    if record.failed:
        return "Failed"
    for container, init in zip(spec.get("initContainers") or (), record.init, strict=True):
        if _lets_pass(container, init):
            continue
        failed = isinstance(init.state, Terminated)
        return "Failed" if failed and restart_policy(spec, container) == "Never" else "Pending"
    if any(isinstance(app.state, Waiting) and not app.last for app in record.app):
        return "Pending"
    if any(isinstance(app.state, Running) for app in record.app):
        return "Running"
    return _phase_of_ended(pod, record)


def _lets_pass(container: Mapping[str, Any], record: ContainerRecord) -> bool:
    """Whether initialisation is past this container. A sidecar that ran once does not hold it up."""
    ran = record.last is not None or isinstance(record.state, Terminated)
    return init_done(container, record) or (is_sidecar(container) and ran)


def _phase_of_ended(pod: Object, record: PodRecord) -> Phase:
    """The phase of a pod none of whose containers runs."""
    spec = pod.get("spec") or {}
    ends = [_end_of(app) for app in record.app]
    succeeded = all(end is not None and end.exit_code == 0 for end in ends)
    policies = {restart_policy(spec, container) for container in spec.get("containers") or ()}
    terminating = bool((pod.get("metadata") or {}).get("deletionTimestamp"))
    if "Always" in policies and not terminating:
        return "Running"
    if succeeded:
        return "Succeeded"
    return "Failed" if terminating or policies == {"Never"} else "Running"


def _end_of(record: ContainerRecord) -> Terminated | None:
    return record.state if isinstance(record.state, Terminated) else record.last


def build_status(pod: Object, record: PodRecord, now: datetime) -> dict[str, Any]:
    """The status that the node owns, on top of the pod's present one."""
    spec, old = pod.get("spec") or {}, pod.get("status") or {}
    phase = phase_of(pod, record)
    status: dict[str, Any] = {
        "phase": phase,
        "hostIP": record.node_address,
        "hostIPs": [{"ip": record.node_address}],
        "startTime": format_time(record.start_time),
        "conditions": _conditions(pod, record, phase, now),
        "containerStatuses": [_container_status(entry) for entry in record.app],
    }
    if record.address:
        status |= {"podIP": record.address, "podIPs": [{"ip": record.address}]}
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            _container_status(entry, done=init_done(container, entry))
            for container, entry in zip(spec["initContainers"], record.init, strict=True)
        ]
    reason, message = record.failed or ("", "")
    # Null removes a field in a patch; it is only sent where there is something to remove.
    for name, text in (("reason", reason), ("message", message)):
        if text or old.get(name):
            status[name] = text or None
    return status


def not_running_status(pod: Object, reason: str, message: str, now: datetime) -> dict[str, Any]:
    """The status when the node stops and its processes are gone: nothing is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    for name in ("ContainersReady", "Ready"):
        conditions = set_condition(conditions, Condition(name, "False", reason, message), now)
    containers = [
        {**entry, "ready": False}
        for entry in (pod.get("status") or {}).get("containerStatuses") or ()
    ]
    return {"conditions": conditions, "containerStatuses": containers}


def _conditions(pod: Object, record: PodRecord, phase: Phase, now: datetime) -> list[Object]:
    spec = pod.get("spec") or {}
    old: Sequence[Object] = (pod.get("status") or {}).get("conditions") or []
    wanted = [
        _initialized(spec, record, phase),
        _containers_ready(record, phase),
    ]
    wanted.append(_ready(spec, old, wanted[-1]))
    wanted.append(
        Condition("PodReadyToStartContainers", "True" if record.sandbox_ready else "False", "")
    )
    if not is_true(old, "PodScheduled"):
        wanted.append(Condition("PodScheduled", "True", ""))
    conditions = list(old)
    for condition in wanted:
        conditions = set_condition(conditions, condition, now)
    return [_without_empty(condition) for condition in conditions]


def _without_empty(condition: Object) -> Object:
    """The kubelet leaves empty reasons and messages out."""
    return {
        key: value
        for key, value in condition.items()
        if value != "" or key not in {"reason", "message"}
    }


def _initialized(spec: Mapping[str, Any], record: PodRecord, phase: Phase) -> Condition:
    pending = [
        entry.name
        for container, entry in zip(spec.get("initContainers") or (), record.init, strict=True)
        if not _lets_pass(container, entry)
    ]
    if phase == "Succeeded":
        return Condition("Initialized", "True", "PodCompleted")
    if not pending:
        return Condition("Initialized", "True", "")
    message = f"containers with incomplete status: {_names(pending)}"
    return Condition("Initialized", "False", "ContainersNotInitialized", message)


def _containers_ready(record: PodRecord, phase: Phase) -> Condition:
    if phase == "Succeeded":
        return Condition("ContainersReady", "False", "PodCompleted")
    if phase == "Failed":
        return Condition("ContainersReady", "False", "PodFailed")
    unready = [entry.name for entry in record.app if not entry.ready]
    if unready:
        message = f"containers with unready status: {_names(unready)}"
        return Condition("ContainersReady", "False", "ContainersNotReady", message)
    return Condition("ContainersReady", "True", "")


def _ready(spec: Mapping[str, Any], old: Sequence[Object], containers: Condition) -> Condition:
    if containers.status != "True":
        return Condition("Ready", containers.status, containers.reason, containers.message)
    problems = [
        f'the status of pod readiness gate "{kind}" is not "True", but {_status(old, kind)}'
        for kind in (str(gate.get("conditionType")) for gate in spec.get("readinessGates") or ())
        if not is_true(old, kind)
    ]
    if problems:
        return Condition("Ready", "False", "ReadinessGatesNotReady", ", ".join(problems))
    return Condition("Ready", "True", "")


def _status(conditions: Sequence[Object], kind: str) -> str:
    condition = find_condition(conditions, kind)
    return str(condition.get("status")) if condition else "False"


def _names(names: Iterable[str]) -> str:
    return f"[{' '.join(names)}]"


def _container_status(record: ContainerRecord, *, done: bool = False) -> dict[str, Any]:
    """One entry of `containerStatuses`. An init container is ready when it is done."""
    return {
        "name": record.name,
        "image": record.image,
        "imageID": f"kthena-local://{record.image}" if record.container_id else "",
        "ready": record.ready or done,
        "started": record.started,
        "restartCount": record.restarts,
        "state": _state(record.state),
        "lastState": _state(record.last) if record.last else {},
        **({"containerID": record.container_id} if record.container_id else {}),
    }


def _state(state: State) -> dict[str, Any]:
    if isinstance(state, Running):
        return {"running": {"startedAt": format_time(state.started_at)}}
    if isinstance(state, Waiting):
        message = {"message": state.message} if state.message else {}
        return {"waiting": {"reason": state.reason, **message}}
    optional = {"signal": state.signal, "message": state.message, "containerID": state.container_id}
    return {
        "terminated": {
            "exitCode": state.exit_code,
            "reason": state.reason,
            "startedAt": format_time(state.started_at) if state.started_at else None,
            "finishedAt": format_time(state.finished_at),
            **{name: value for name, value in optional.items() if value},
        }
    }
