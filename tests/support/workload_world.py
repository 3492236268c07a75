"""What surrounds the ModelServing controller: API server, kubelet, users, and time.

The controller is the real one, on a transport that this model answers. `sync` is one turn of it:
observe, plan, carry out, report. Nothing here waits; all is deterministic.
"""

import asyncio
import atexit
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import ClientConfig, KubeClient
from kthena.kube.errors import ApiError
from kthena.kube.events import EventRecorder
from kthena.local.node.gangs import find_lack, gang_of
from kthena.local.podgroups import pod_group_crd
from kthena.machinery.conditions import format_time
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    controller_of,
    is_terminating,
    key_of,
    name_of,
    uid_of,
)
from kthena.workload.children.podgroups import PodGroupForm
from kthena.workload.controller import ModelServingController
from kthena.workload.informers import WorkloadInformers
from kthena.workload.planner.observed import Capabilities, Observed
from kthena.workload.planner.plan import Plan
from kthena.workload.planner.planner import plan
from support.workload_api import KINDS, NAMESPACE, ApiModel, CrashedError

API_VERSION = MODEL_SERVINGS.api_version

_FORM = PodGroupForm.of(pod_group_crd())
assert _FORM is not None
POD_GROUPS_FORM = _FORM
"""PodGroups as local mode has them."""

_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


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


def by_roles() -> dict[str, Any]:
    """A rolloutStrategy by role instances."""
    return {"type": "RoleRollingUpdate"}


@dataclass
class World(ApiModel):
    """An API server with users, kubelets, and a controller that may be started anew."""

    capabilities: Capabilities = field(default_factory=Capabilities)
    requeue_after_s: float | None = None
    """What the last turn of the controller asked for; its errors ask for a second."""

    def __post_init__(self) -> None:
        self.restart_controller()

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
            self.drop("ModelServing", name)

    def orphan(self, name: str = "ms") -> None:
        """Delete the ModelServing and leave its children, as `--cascade=orphan` does."""
        uid = uid_of(self.objects["ModelServing"][name])
        self.drop("ModelServing", name)
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
        for kind in ("Pod", "Service", "ControllerRevision", "PodGroup"):
            for child in list(self.objects[kind].values()):
                owner = controller_of(child)
                if owner and owner["kind"] == "ModelServing" and owner["uid"] not in alive:
                    self.remove(kind, name_of(child))

    def install_volcano(self, form: PodGroupForm = POD_GROUPS_FORM) -> None:
        """The PodGroup CRD of Volcano appears."""
        self.pod_groups = form
        self._offer(volcano=True, pod_groups=form)

    def remove_volcano(self) -> None:
        """The CRD goes, and all PodGroups with it."""
        self.thaw("PodGroup")
        self.drop("PodGroup")
        self.pod_groups = None
        self._offer(volcano=False, pod_groups=None)

    def _offer(self, **capabilities: Any) -> None:
        """What the controller sees of the cluster changes, and it looks at everything again."""
        self.capabilities = replace(self.capabilities, **capabilities)
        for name in self.cache("ModelServing"):
            self.queue.add(self.key(name))

    def kill(self, name: str) -> None:
        """Delete a pod by hand."""
        self.remove("Pod", name)

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
        """Every pod that is not terminating, and has not failed, becomes ready.

        One that was never placed only becomes so with its gang.
        """
        for pod in list(self.objects["Pod"].values()):
            phase = (pod.get("status") or {}).get("phase")
            if is_terminating(pod) or phase == "Failed" or is_ready(pod):
                continue
            if phase == "Running" or not self._waits_for_gang(pod):
                self.start(name_of(pod))

    def _waits_for_gang(self, pod: Object) -> bool:
        gang = gang_of(pod)
        if self.pod_groups is None or not gang:
            return False
        pod_group = self.objects["PodGroup"].get(gang.rpartition("/")[2])
        members = [each for each in self.objects["Pod"].values() if gang_of(each) == gang]
        return pod_group is None or bool(find_lack(pod_group, members))

    def end_terminations(self) -> None:
        """Every terminating pod is gone."""
        for pod in list(self.objects["Pod"].values()):
            if is_terminating(pod):
                self.drop("Pod", name_of(pod))

    def advance(self, seconds: float) -> None:
        _LOOP.run_until_complete(self.clock.advance(seconds))

    # What the controller does.

    def restart_controller(self) -> None:
        """A new process lists everything anew and expects nothing."""
        client = KubeClient(self, ClientConfig(), namespace=NAMESPACE, clock=self.clock)
        informers = WorkloadInformers.create(client, clock=self.clock)
        self.controller = ModelServingController(
            client,
            informers,
            EventRecorder(client, "world", self.clock),
            capabilities=lambda: self.capabilities,
            clock=self.clock,
        )
        self.queue = self.controller.build_runner().queue
        self._relist({informer.resource.kind: informer for informer in informers.all})

    def key(self, name: str = "ms") -> NamespacedName:
        """The key of a ModelServing, also of one that is gone."""
        known = self.objects["ModelServing"].get(name) or self.cache("ModelServing").get(name)
        return key_of(known) if known else NamespacedName(NAMESPACE, name)

    def is_waiting(self, name: str = "ms") -> bool:
        """Whether the controller has not seen its own writes yet."""
        return self.controller._writes.wait_s(self.key(name)) > 0

    def thaw(self, *kinds: str) -> None:
        """The caches catch up; a controller that has waited for that takes notice."""
        waited = self.is_waiting()
        super().thaw(*kinds)
        taken = not waited or self.is_waiting() or self.is_queued()
        assert taken, "own writes are seen, and nothing asks for the turn that waited for them"

    def is_queued(self, name: str = "ms") -> bool:
        """Whether something has happened that asks for a turn."""
        return self.key(name) in self.queue._waiting

    def observe(self, name: str = "ms") -> Observed | None:
        """What the controller would plan from; None when there is nothing."""
        modelserving = self.cache("ModelServing").get(name)
        if modelserving is None:
            return None
        return self.controller._observe(self.key(name), modelserving, self.capabilities)

    def sync(self, name: str = "ms") -> Plan | None:
        """One turn; its plan, None when there is nothing to act on, or own writes are not seen yet.

        What the API refuses is left to the next turn.

        Raises:
            CrashedError: a fault has ended the controller; it has to be started anew.
        """
        observed = None if self.is_waiting(name) else self.observe(name)
        decision = None if observed is None else plan(observed, self.now)
        self.requeue_after_s = None
        self.queue._waiting.pop(self.key(name), None)
        crashed = False
        try:
            requeue = _LOOP.run_until_complete(self.controller.reconcile(self.key(name)))
            self.requeue_after_s = None if requeue is None else requeue.after_s
        except* ApiError:
            self.requeue_after_s = 1.0
        except* CrashedError:
            crashed = True
        if crashed:
            raise CrashedError
        if name not in self.cache("ModelServing"):
            self.unseen.clear()  # with a ModelServing goes what was expected of its children
        return decision

    def settle(self, name: str = "ms", rounds: int = 60) -> None:
        """Let everything happen until nothing does; fails when it does not come to rest.

        The controller only gets its turn when its own queue asks for it.
        """
        due = self.requeue_after_s is not None
        for _ in range(rounds):
            self.thaw()
            before = self.version
            if due or self.is_queued(name):
                self.sync(name)
            due = False
            self.run_pods()
            self.end_terminations()
            if self.version == before and not self.is_queued(name):
                if self.requeue_after_s is None:
                    return
                self.advance(self.requeue_after_s)
                self.sync(name)
        raise AssertionError(f"no rest after {rounds} rounds; last calls: {self.calls[-10:]}")

    def take_calls(self) -> list[str]:
        """The controller's writes since the last time, as text."""
        calls = [str(call) for call in self.calls]
        self.calls.clear()
        return calls


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
