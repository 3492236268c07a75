"""Pods: what may be written, how they are deleted, bound, and what their status keeps."""

from collections.abc import Sequence
from datetime import datetime
from fractions import Fraction
from ipaddress import ip_address
from typing import Any, Final

from kthena.local.apiserver.admission import bump_generation, copy_fields
from kthena.local.apiserver.builtins.fielderrors import NO_ADDRESS, forbidden, invalid
from kthena.local.apiserver.builtins.podspec import default_pod, default_pod_spec
from kthena.local.apiserver.builtins.podvalidation import (
    amount,
    check_tolerations,
    validate_pod_spec,
)
from kthena.local.apiserver.builtins.podwarnings import warn_of_pod_spec
from kthena.local.apiserver.deletion import plan_deletion
from kthena.local.apiserver.kinds import Step
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.strategies import (
    STATUS_FIELD,
    PlainStrategy,
    StatusStrategy,
    metadata_field,
)
from kthena.machinery.fields import ErrorList
from kthena.machinery.managedfields.fieldsets import union
from kthena.machinery.names import check_dns1123_label
from kthena.machinery.objects import Object, copy_json, name_of

_UPDATABLE: Final = (
    "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"
    "`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)

_MAX_INT32: Final = 2**31 - 1
_GATED: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
    "lastProbeTime": None,
}


def default(pod: Object) -> None:
    """Set what a pod leaves open."""
    default_pod(pod)
    default_pod_spec(pod["spec"])
    if pod["spec"]["terminationGracePeriodSeconds"] < 0:
        pod["spec"]["terminationGracePeriodSeconds"] = 1
    _agree_on_addresses(pod["status"])


class PodStrategy(PlainStrategy):
    """Writes of pods."""

    repeats_metadata = True

    reset_fields = STATUS_FIELD

    def prepare_create(self, obj: Object) -> None:
        """A pod starts Pending; priorities are those of a cluster without priority classes."""
        obj["metadata"]["generation"] = 1
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
        if obj["spec"].get("schedulingGates"):
            created = obj["metadata"]["creationTimestamp"]
            obj["status"]["conditions"] = [{**_GATED, "lastTransitionTime": created}]
        obj["spec"].setdefault("priority", 0)
        obj["spec"].setdefault("preemptionPolicy", "PreemptLowerPriority")
        _tolerate_lost_nodes(obj["spec"])

    def validate_create(self, obj: Object) -> ErrorList:
        """The rules of a PodSpec, and those that templates are spared."""
        spec = obj["spec"]
        errors = validate_pod_spec(spec, "spec")
        errors += _check_images(spec)
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            detail = "cannot be set until all schedulingGates have been cleared"
            errors.append(forbidden("spec.nodeName", detail))
        return errors

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status, and the priority where it is left out; count a change of the spec."""
        copy_fields(new, old, ("status",))
        for name in ("priority", "preemptionPolicy"):
            if name in old["spec"]:
                new["spec"].setdefault(name, old["spec"][name])
        _tolerate_lost_nodes(new["spec"])
        if new["spec"] != old["spec"]:
            bump_generation(new)

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Nearly all of a pod's spec is fixed."""
        errors = validate_pod_spec(new["spec"], "spec") + _check_images(new["spec"])
        return errors + _check_changes(new["spec"], old["spec"])

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """Of a new pod: a name that makes no host name, and what is odd in its spec."""
        if old is not None:
            return ()
        found = check_dns1123_label(name_of(new))
        warning = (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising "
            f"behavior; a DNS label is recommended: [{' '.join(found)}]"
        )
        return (*((warning,) if found else ()), *warn_of_pod_spec(new["spec"], "spec"))


def _tolerate_lost_nodes(spec: Object) -> None:
    """Let a pod stay for a while on a node that is lost, as the plugin DefaultTolerationSeconds does."""
    tolerations = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(
            (toleration.get("key") or key) == key
            and (toleration.get("effect") or "NoExecute") == "NoExecute"
            for toleration in tolerations
        )
    ]
    if added:
        spec["tolerations"] = [*tolerations, *added]


class PodStatusStrategy(StatusStrategy):
    """`pods/status`. Labels and annotations may change with it, owners may not."""

    def __init__(self) -> None:
        super().__init__(kept_metadata=("ownerReferences",))
        self.reset_fields = union(self.reset_fields, metadata_field("deletionTimestamp"))

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the QoS class and the observed generation where the writer does not know them."""
        super().prepare_update(new, old)
        new["metadata"].pop("deletionTimestamp", None)
        status, before = new.setdefault("status", {}), old.get("status") or {}
        for name in ("qosClass", "observedGeneration"):
            if not status.get(name) and before.get(name):
                status[name] = before[name]
        known: dict[str, list[Any]] = {}
        for condition in before.get("conditions") or ():
            known.setdefault(condition["type"], []).append(condition.get("observedGeneration"))
        for condition in status.get("conditions") or ():
            generations = known.get(condition["type"])
            generation = generations.pop(0) if generations else None
            if generation and not condition.get("observedGeneration"):
                condition["observedGeneration"] = generation

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The class is fixed at creation; addresses are such, one of each family."""
        errors = _check_addresses(new["status"].get("podIPs") or ())
        after = new["status"].get("qosClass")
        before = (old.get("status") or {}).get("qosClass")
        if after != before:
            errors.append(invalid("status.qosClass", after or "", "field is immutable"))
        return errors


def _agree_on_addresses(status: Object) -> None:
    """`podIP` and the first of `podIPs` are one; where both are given and differ, `podIP` counts."""
    address, addresses = status.get("podIP"), status.get("podIPs")
    if address:
        if not addresses or addresses[0].get("ip") != address:
            status["podIPs"] = [{"ip": address}]
    elif addresses and addresses[0].get("ip"):
        status["podIP"] = addresses[0]["ip"]


def _check_addresses(addresses: Sequence[Object]) -> ErrorList:
    texts = [entry.get("ip") or "" for entry in addresses]
    errors = [
        invalid(f"status.podIPs[{index}]", text, NO_ADDRESS)
        for index, text in enumerate(texts)
        if not _is_address(text)
    ]
    families = {":" in text for text in texts}
    if not errors and len(families) < len(texts):
        shown = [{"IP": text} for text in texts]
        detail = "may specify no more than one IP for each IP family"
        errors.append(invalid("status.podIPs", shown, detail))
    return errors


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _check_images(spec: Object) -> ErrorList:
    detail = "must not have leading or trailing whitespace"
    return [
        invalid(f"spec.{name}[{index}].image", container["image"], detail)
        for name in ("containers", "initContainers")
        for index, container in enumerate(spec.get(name) or ())
        if container.get("image") and container["image"] != container["image"].strip()
    ]


def _check_changes(new: Object, old: Object) -> ErrorList:
    for name in ("containers", "initContainers"):
        if len(new.get(name) or ()) != len(old.get(name) or ()):
            return [forbidden(f"spec.{name}", "pod updates may not add or remove containers")]
    errors = _check_deadline(new, old)
    if errors and new.get("activeDeadlineSeconds") is not None:
        return errors
    errors += _keep_tolerations(new, old) + _keep_gates(new, old)
    if new == old:
        return errors
    munged = copy_json(new)
    for name in ("containers", "initContainers"):
        for container, before in zip(munged.get(name) or (), old.get(name) or (), strict=True):
            container["image"] = before.get("image")
    copy_fields(munged, old, ("activeDeadlineSeconds", "tolerations", "schedulingGates"))
    if (old.get("terminationGracePeriodSeconds") or 0) < 0 and munged[
        "terminationGracePeriodSeconds"
    ] == 1:
        copy_fields(munged, old, ("terminationGracePeriodSeconds",))
    if old.get("schedulingGates"):
        errors += _keep_node_selector(munged, old)
    if munged != old:
        changed = sorted(name for name in {*munged, *old} if munged.get(name) != old.get(name))
        detail = (
            f"pod updates may not change fields other than {_UPDATABLE}\n"
            f"changed: {', '.join(changed)}\n"
        )
        errors.append(forbidden("spec", detail))
    return errors


def _keep_tolerations(new: Object, old: Object) -> ErrorList:
    """Tolerations may be added, and change for how long they hold."""
    tolerations, path = new.get("tolerations") or [], "spec.tolerations"
    kept = [_without_seconds(toleration) for toleration in tolerations]
    if all(_without_seconds(before) in kept for before in old.get("tolerations") or ()):
        return check_tolerations(tolerations, path)
    detail = "existing toleration can not be modified except its tolerationSeconds"
    return [forbidden(path, detail)]


def _without_seconds(toleration: Object) -> Object:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _keep_gates(new: Object, old: Object) -> ErrorList:
    """Scheduling gates may only go."""
    gates = {gate.get("name") or "" for gate in old.get("schedulingGates") or ()}
    return [
        forbidden(
            f"spec.schedulingGates[{index}].name",
            f"only deletion is allowed, but found new scheduling gate '{gate.get('name') or ''}'",
        )
        for index, gate in enumerate(new.get("schedulingGates") or ())
        if (gate.get("name") or "") not in gates
    ]


def _keep_node_selector(munged: Object, old: Object) -> ErrorList:
    """Let a pod that is not yet scheduled ask for more of its node, but not for something else."""
    after, before = munged.get("nodeSelector") or {}, old.get("nodeSelector") or {}
    copy_fields(munged, old, ("nodeSelector",))
    if before.items() <= after.items():
        return []
    detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
    return [invalid("spec.nodeSelector", after or None, detail)]


def _check_deadline(new: Object, old: Object) -> ErrorList:
    after, before = new.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    path = "spec.activeDeadlineSeconds"
    if after is not None and not 0 <= after <= _MAX_INT32:
        return [invalid(path, after, f"must be between 0 and {_MAX_INT32}, inclusive")]
    if after is None and before is not None:
        return [invalid(path, None, "must not update from a positive integer to nil value")]
    if after is not None and before is not None and before < after:
        return [invalid(path, after, "must be less than or equal to previous value")]
    return []


def qos_class(spec: Object) -> str:
    """The quality of service that a pod's requests and limits give it."""
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    requests: dict[str, Fraction] = {}
    limits: dict[str, Fraction] = {}
    guaranteed = True
    for container in containers:
        resources = container.get("resources") or {}
        _add(requests, resources.get("requests") or {})
        if _add(limits, resources.get("limits") or {}) != {"cpu", "memory"}:
            guaranteed = False
    if not requests and not limits:
        return "BestEffort"
    if guaranteed and requests == limits:
        return "Guaranteed"
    return "Burstable"


def _add(total: dict[str, Fraction], resources: Object) -> set[str]:
    """Add the positive amounts of cpu and memory; the result is which there were."""
    found = set()
    for name in ("cpu", "memory"):
        value = amount(resources[name]) if name in resources else 0
        if value > 0:
            found.add(name)
            total[name] = total.get(name, Fraction(0)) + value
    return found


def grace_period(obj: Object, requested_s: int | None) -> int:
    """How long the pod may take to stop; nothing runs of one that is unbound or has finished."""
    seconds = requested_s
    if seconds is None:
        seconds = obj["spec"].get("terminationGracePeriodSeconds") or 0
    finished = (obj.get("status") or {}).get("phase") in ("Failed", "Succeeded")
    if not obj["spec"].get("nodeName") or finished:
        return 0
    return 1 if seconds < 0 else seconds


def plan_pod_deletion(obj: Object, options: DeleteOptions, now: datetime) -> Step:
    """The plan of a deletion."""
    return plan_deletion(obj, options, grace_period, now)


def bind(pod: Object, node: str, annotations: Object) -> None:
    """Assign the pod to a node, as `pods/binding` does."""
    pod["spec"]["nodeName"] = node
    if annotations:
        known = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**known, **annotations}


def scheduled_condition(now: str) -> Object:
    """The condition that binding sets."""
    return {
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
    }
