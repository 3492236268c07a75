"""A model of what surrounds the planner: API server, kubelet, users, caches, and a shell.

Synchronous and deterministic. It keeps one namespace, hands out UIDs and resource versions, checks
preconditions, and terminates pods slowly. `sync` is one turn of a controller: observe, plan, carry
out. Faults are injected per call.
"""

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from kthena.machinery.conditions import format_time
from kthena.machinery.objects import (
    Object,
    controller_of,
    is_terminating,
    name_of,
    uid_of,
)
from kthena.workload.children.identity import possible_owners
from kthena.workload.planner.observed import Capabilities, Observed
from kthena.workload.planner.plan import (
    Action,
    Adopt,
    AnnotateModelServing,
    AnnotatePod,
    AnnotateRevision,
    CreatePod,
    CreateRevision,
    CreateService,
    DeletePod,
    DeleteRevision,
    DeleteService,
    DeleteStale,
    Plan,
    Problem,
    Stage,
)
from kthena.workload.planner.planner import plan
from kthena.workload.status import with_failures

NAMESPACE = "default"
START = datetime(2026, 1, 1, tzinfo=UTC)
API_VERSION = "workload.serving.volcano.sh/v1alpha1"
KINDS = ("ModelServing", "Pod", "Service", "ControllerRevision")


class RefusedError(Exception):
    """The API server refused a call, or its reply was lost."""


class CrashedError(Exception):
    """The controller ended in the middle of a plan."""


@dataclass(frozen=True)
class Call:
    """One write of the controller."""

    verb: str
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.verb} {self.kind} {self.name}"


Fault = Callable[[Call], str | None]
"""For each call: None, `refuse`, `lose-reply`, `crash-before` or `crash-after`."""


def container(image: str = "engine:1", name: str = "main", **fields: Any) -> dict[str, Any]:
    return {"name": name, "image": image, **fields}


def template(image: str = "engine:1", **fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [container(image)]}, **fields}


def role(
    name: str = "decode",
    *,
    replicas: int = 1,
    workers: int = 0,
    image: str = "engine:1",
    **more: Any,
) -> dict[str, Any]:
    """A role; it has a worker template when it has workers."""
    result: dict[str, Any] = {
        "name": name,
        "replicas": replicas,
        "entryTemplate": template(image),
        "workerReplicas": workers,
        **more,
    }
    if workers:
        result.setdefault("workerTemplate", template(f"{image}-worker"))
    return result


def serving(
    *roles: dict[str, Any], name: str = "ms", replicas: int = 1, **more: Any
) -> dict[str, Any]:
    """A ModelServing as a user writes it; keys of `more` go to spec, or to its template."""
    in_template = ("restartGracePeriodSeconds", "gangPolicy", "networkTopology")
    spec: dict[str, Any] = {
        "replicas": replicas,
        "schedulerName": "volcano",
        "recoveryPolicy": "RoleRecreate",
        "template": {"roles": list(roles) or [role()]},
    }
    for key, value in more.items():
        (spec["template"] if key in in_template else spec)[key] = value
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelServing",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def rolling(**configuration: Any) -> dict[str, Any]:
    """A rolloutStrategy by groups."""
    return {
        "type": "ServingGroupRollingUpdate",
        "rollingUpdateConfiguration": {"maxUnavailable": 1, **configuration},
    }


@dataclass
class World:
    """Objects by kind and name, the time, and what the controller has written."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    now: datetime = START
    objects: dict[str, dict[str, Object]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    calls: list[Call] = field(default_factory=list)
    fault: Fault = lambda _call: None
    frozen: dict[str, tuple[int, dict[str, Object]]] = field(default_factory=dict)
    """Caches that lag: their version and what they hold."""
    awaited: dict[str, int] = field(default_factory=dict)
    """The version of the controller's own last write, by kind."""
    version: int = 0
    _uids: Any = field(default_factory=itertools.count)

    # What users do.

    def apply(self, modelserving: Object) -> Object:
        """Create the ModelServing, or replace its spec."""
        name = name_of(modelserving)
        old = self.objects["ModelServing"].get(name)
        if old is None:
            return self._store({**copy.deepcopy(modelserving)}, generation=1)
        if old["spec"] == modelserving["spec"]:
            return old
        new = copy.deepcopy(old)
        new["spec"] = copy.deepcopy(modelserving["spec"])
        new["metadata"]["generation"] += 1
        return self._touch(new)

    def edit(self, change: Callable[[dict[str, Any]], None], name: str = "ms") -> Object:
        """Change the spec of a ModelServing in place."""
        new = copy.deepcopy(self.objects["ModelServing"][name])
        change(new["spec"])
        return self.apply(new)

    def set_image(self, image: str, role_name: str | None = None, name: str = "ms") -> None:
        """Change the entry image of one role, or of all."""

        def change(spec: dict[str, Any]) -> None:
            for each in spec["template"]["roles"]:
                if role_name in (None, each["name"]):
                    each["entryTemplate"]["spec"]["containers"][0]["image"] = image

        self.edit(change, name)

    def scale(self, replicas: int, name: str = "ms") -> None:
        self.edit(lambda spec: spec.update(replicas=replicas), name)

    def scale_role(self, role_name: str, replicas: int, name: str = "ms") -> None:
        def change(spec: dict[str, Any]) -> None:
            for each in spec["template"]["roles"]:
                if each["name"] == role_name:
                    each["replicas"] = replicas

        self.edit(change, name)

    def delete_modelserving(self, name: str = "ms", *, foreground: bool = False) -> None:
        old = self.objects["ModelServing"][name]
        if foreground:
            new = copy.deepcopy(old)
            new["metadata"]["deletionTimestamp"] = format_time(self.now)
            new["metadata"]["finalizers"] = ["foregroundDeletion"]
            self._touch(new)
        else:
            self._drop("ModelServing", name)

    def orphan(self, name: str = "ms") -> None:
        """Delete the ModelServing and leave its children, as `--cascade=orphan` does."""
        uid = uid_of(self.objects["ModelServing"][name])
        self._drop("ModelServing", name)
        for kind in KINDS:
            for child in list(self.objects[kind].values()):
                owner = controller_of(child)
                if owner is not None and owner["uid"] == uid:
                    new = copy.deepcopy(child)
                    new["metadata"]["ownerReferences"] = []
                    self._touch(new)

    def collect_garbage(self) -> None:
        """Delete children whose owner is gone, as the garbage collector does."""
        alive = {uid_of(obj) for obj in self.objects["ModelServing"].values()}
        for kind in ("Pod", "Service", "ControllerRevision"):
            for child in list(self.objects[kind].values()):
                owner = controller_of(child)
                if owner and owner["kind"] == "ModelServing" and owner["uid"] not in alive:
                    self.remove(kind, name_of(child))

    def put(self, obj: Object) -> Object:
        """Create an object as somebody else."""
        return self._store(copy.deepcopy(obj))

    def seed(self, objects: Iterable[Object]) -> None:
        """Put objects with their own UIDs and status, as recorded elsewhere."""
        for obj in objects:
            self.objects.setdefault(obj["kind"], {})[name_of(obj)] = copy.deepcopy(obj)
            version = int(obj["metadata"].get("resourceVersion") or 0)
            self.version = max(self.version, version)

    def kill(self, name: str) -> None:
        """Delete a pod by hand."""
        self.remove("Pod", name)

    def remove(self, kind: str, name: str) -> None:
        """Ask for deletion: a pod that runs terminates slowly."""
        obj = self.objects[kind][name]
        if kind == "Pod" and (obj.get("status") or {}).get("phase") == "Running":
            if not is_terminating(obj):
                new = copy.deepcopy(obj)
                new["metadata"]["deletionTimestamp"] = format_time(self.now)
                self._touch(new)
        else:
            self._drop(kind, name)

    def patch(self, kind: str, name: str, change: Callable[[Object], None]) -> None:
        """Change an object as somebody else."""
        new = copy.deepcopy(self.objects[kind][name])
        change(new)
        self._touch(new)

    # What the kubelet does.

    def pods(self, name: str = "ms") -> dict[str, Object]:
        """Pods that the ModelServing owns, by name, sorted."""
        owner = self.objects["ModelServing"].get(name)
        uid = uid_of(owner) if owner else ""
        owned = {
            name_of(pod): pod
            for pod in self.objects["Pod"].values()
            if (controller_of(pod) or {}).get("uid") == uid
        }
        return dict(sorted(owned.items()))

    def set_status(self, pod_name: str, status: Mapping[str, Any]) -> None:
        self.patch("Pod", pod_name, lambda pod: pod.update(status=dict(status)))

    def start(self, pod_name: str, *, ready: bool = True) -> None:
        """The pod runs."""
        old = self.objects["Pod"][pod_name].get("status") or {}
        restarts = sum(c.get("restartCount", 0) for c in old.get("containerStatuses") or ())
        last = [c.get("lastState") or {} for c in old.get("containerStatuses") or ()]
        status = running_status(
            self._since(old, ready=ready),
            ready=ready,
            restarts=restarts,
            last=last[0] if last else {},
        )
        self.set_status(pod_name, status)

    def _since(self, old: Mapping[str, Any], *, ready: bool) -> datetime:
        for condition in old.get("conditions") or ():
            if condition["type"] == "Ready" and (condition["status"] == "True") == ready:
                return datetime.fromisoformat(condition["lastTransitionTime"])
        return self.now

    def crash(self, pod_name: str) -> None:
        """A container of the pod ends and is started again by the kubelet."""
        old = self.objects["Pod"][pod_name].get("status") or {}
        restarts = sum(c.get("restartCount", 0) for c in old.get("containerStatuses") or ())
        last = {"terminated": {"exitCode": 1, "finishedAt": format_time(self.now)}}
        status = running_status(
            self._since(old, ready=False), ready=False, restarts=restarts + 1, last=last
        )
        self.set_status(pod_name, status)

    def fail(self, pod_name: str) -> None:
        """The pod ends in failure."""
        ended = {"terminated": {"exitCode": 1, "finishedAt": format_time(self.now)}}
        condition = {
            "type": "Ready",
            "status": "False",
            "lastTransitionTime": format_time(self.now),
        }
        status = {
            "phase": "Failed",
            "conditions": [condition],
            "containerStatuses": [{"name": "main", "restartCount": 0, "state": ended}],
        }
        self.set_status(pod_name, status)

    def run_pods(self) -> None:
        """Every pod that is not terminating, and has not failed, becomes ready."""
        for pod in list(self.objects["Pod"].values()):
            phase = (pod.get("status") or {}).get("phase")
            if not is_terminating(pod) and phase != "Failed" and not is_ready(pod):
                self.start(name_of(pod))

    def end_terminations(self) -> None:
        """Every terminating pod is gone."""
        for pod in list(self.objects["Pod"].values()):
            if is_terminating(pod):
                self._drop("Pod", name_of(pod))

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    # What the controller does.

    def freeze(self, *kinds: str) -> None:
        """From now on the controller's caches of these kinds lag."""
        for kind in kinds or KINDS:
            self.frozen.setdefault(kind, (self.version, dict(self.objects[kind])))

    def thaw(self, *kinds: str) -> None:
        """The caches catch up."""
        for kind in kinds or KINDS:
            self.frozen.pop(kind, None)

    def cache(self, kind: str) -> dict[str, Object]:
        return self.frozen[kind][1] if kind in self.frozen else self.objects[kind]

    def observe(self, name: str = "ms") -> Observed | None:
        modelserving = self.cache("ModelServing").get(name)
        if modelserving is None:
            return None

        def children(kind: str) -> list[Object]:
            found = self.cache(kind).values()
            return [obj for obj in found if any(key.name == name for key in possible_owners(obj))]

        return Observed.of(
            modelserving,
            pods=children("Pod"),
            services=children("Service"),
            revisions=children("ControllerRevision"),
            capabilities=self.capabilities,
        )

    def is_waiting(self) -> bool:
        """Whether a cache has not shown the controller's own writes yet."""
        return any(
            kind in self.frozen and self.frozen[kind][0] < version
            for kind, version in self.awaited.items()
        )

    def restart_controller(self) -> None:
        """A new process lists everything anew and expects nothing."""
        self.thaw()
        self.awaited.clear()

    def sync(self, name: str = "ms") -> Plan | None:
        """One turn; None when there is nothing to act on, or own writes are not seen yet."""
        if self.is_waiting():
            return None
        observed = self.observe(name)
        if observed is None:
            return None
        decision = plan(observed, self.now)
        self.carry_out(observed, decision)
        return decision

    def carry_out(self, observed: Observed, decision: Plan) -> list[Problem]:
        """What the shell does with a plan; what it could not do."""
        failures: list[Problem] = []
        owner = self.objects["ModelServing"].get(observed.name)
        same = owner is not None and uid_of(owner) == uid_of(observed.modelserving)
        if decision.confirms_owner and (not same or (owner and is_terminating(owner))):
            return failures
        failed_services: set[str] = set()
        for stage in Stage:
            before = len(failures)
            for action in decision.in_stage(stage):
                if isinstance(action, CreatePod) and action.service in failed_services:
                    continue
                try:
                    self._perform(observed, action)
                except RefusedError as error:
                    failures.append(Problem("Failed", str(error)))
                    if isinstance(action, CreateService):
                        failed_services.add(name_of(action.service))
                    if stage is Stage.RECORDS:
                        break
            if stage.is_barrier and len(failures) > before:
                break
        self._write_status(observed, decision, failures)
        return failures

    def settle(self, name: str = "ms", rounds: int = 60) -> None:
        """Let everything happen until nothing does; fails when it does not come to rest."""
        for _ in range(rounds):
            self.thaw()
            before = self.version
            decision = self.sync(name)
            self.run_pods()
            self.end_terminations()
            if self.version == before:
                if decision is None or decision.requeue_after_s is None:
                    return
                self.advance(decision.requeue_after_s)
        raise AssertionError(f"no rest after {rounds} rounds; last calls: {self.calls[-10:]}")

    def take_calls(self) -> list[str]:
        """The controller's writes since the last time, as text."""
        calls = [str(call) for call in self.calls]
        self.calls.clear()
        return calls

    # Inside.

    def _perform(self, observed: Observed, action: Action) -> None:
        match action:
            case CreateRevision(obj) | CreateService(obj) | CreatePod(obj):
                self._create(obj)
            case Adopt():
                self._call("adopt", action.resource.kind, action.name, lambda: self._adopt(action))
            case AnnotateModelServing():
                uid = uid_of(observed.modelserving)
                self._annotate("ModelServing", observed.name, uid, action.annotations)
            case AnnotateRevision() | AnnotatePod():
                self._annotate(_kind_of(action), action.name, action.uid, action.annotations)
            case DeleteStale() | DeletePod() | DeleteService() | DeleteRevision():
                kind = _kind_of(action)
                self._call("delete", kind, action.name, lambda: self._delete(kind, action))

    def _call(self, verb: str, kind: str, name: str, effect: Callable[[], None]) -> None:
        call = Call(verb, kind, name)
        self.calls.append(call)
        fault = self.fault(call)
        if fault == "crash-before":
            raise CrashedError(str(call))
        if fault == "refuse":
            raise RefusedError(f"{call}: refused")
        effect()
        if fault != "lose-reply":
            self.awaited[kind] = self.version
        if fault == "crash-after":
            raise CrashedError(str(call))
        if fault == "lose-reply":
            raise RefusedError(f"{call}: no reply")

    def _create(self, obj: Object) -> None:
        kind, name = obj["kind"], name_of(obj)

        def effect() -> None:
            if name in self.objects[kind]:
                raise RefusedError(f"{kind} {name}: AlreadyExists")
            self._store(copy.deepcopy(obj))

        self._call("create", kind, name, effect)

    def _delete(self, kind: str, action: Any) -> None:
        obj = self.objects[kind].get(action.name)
        if obj is None:
            return
        if uid_of(obj) != action.uid:
            raise RefusedError(f"{kind} {action.name}: Conflict")
        self.remove(kind, action.name)

    def _adopt(self, action: Adopt) -> None:
        obj = self.objects[action.resource.kind].get(action.name)
        if obj is None or uid_of(obj) != action.uid:
            raise RefusedError(f"{action.name}: Conflict")
        if obj["metadata"]["resourceVersion"] != action.resource_version:
            raise RefusedError(f"{action.name}: Conflict")
        new = copy.deepcopy(obj)
        new["metadata"]["ownerReferences"] = list(action.owner_references)
        self._touch(new)

    def _annotate(
        self, kind: str, name: str, uid: str, annotations: Mapping[str, str | None]
    ) -> None:
        def effect() -> None:
            obj = self.objects[kind].get(name)
            if obj is None or uid_of(obj) != uid:
                raise RefusedError(f"{kind} {name}: NotFound")
            new = copy.deepcopy(obj)
            merged = {**(new["metadata"].get("annotations") or {}), **annotations}
            kept = {key: value for key, value in merged.items() if value is not None}
            new["metadata"]["annotations"] = kept
            self._touch(new)

        self._call("annotate", kind, name, effect)

    def _write_status(self, observed: Observed, decision: Plan, failures: list[Problem]) -> None:
        if decision.status is None:
            return
        own = observed.modelserving
        status = decision.status
        if failures:
            status = with_failures(own, status, failures, self.now)
        current = self.objects["ModelServing"].get(observed.name)
        if status == own.get("status") or current is None or uid_of(current) != uid_of(own):
            return

        def effect() -> None:
            new = copy.deepcopy(current)
            new["status"] = copy.deepcopy(status)
            self._touch(new)

        try:
            self._call("status", "ModelServing", observed.name, effect)
        except RefusedError as error:
            failures.append(Problem("Failed", str(error)))

    def _store(self, obj: Object, **metadata: Any) -> Object:
        obj["metadata"] = {
            **obj["metadata"],
            "uid": f"uid-{next(self._uids)}",
            "namespace": NAMESPACE,
            "creationTimestamp": format_time(self.now),
            **metadata,
        }
        return self._touch(obj)

    def _touch(self, obj: Object) -> Object:
        self.version += 1
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[obj["kind"]][name_of(obj)] = obj
        return obj

    def _drop(self, kind: str, name: str) -> None:
        self.version += 1
        del self.objects[kind][name]


def _kind_of(action: Action) -> str:
    if isinstance(action, DeleteStale):
        return action.resource.kind
    if isinstance(action, DeletePod | AnnotatePod):
        return "Pod"
    return "Service" if isinstance(action, DeleteService) else "ControllerRevision"


def running_status(
    since: datetime, *, ready: bool, restarts: int = 0, last: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The status of a running pod with one container."""
    condition = {
        "type": "Ready",
        "status": "True" if ready else "False",
        "lastTransitionTime": format_time(since),
    }
    main = {
        "name": "main",
        "ready": ready,
        "restartCount": restarts,
        "state": {"running": {"startedAt": format_time(since)}},
        "lastState": dict(last or {}),
    }
    return {"phase": "Running", "conditions": [condition], "containerStatuses": [main]}


def is_ready(pod: Object) -> bool:
    """Whether the pod is Running and Ready."""
    status = pod.get("status") or {}
    return status.get("phase") == "Running" and any(
        condition["type"] == "Ready" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
