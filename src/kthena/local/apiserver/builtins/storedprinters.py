"""Tables of the kinds that no controller of the server acts on."""

from datetime import datetime
from typing import Any, Final

from kthena.local.apiserver.builtins.printers import Printer
from kthena.local.apiserver.kinds import Column
from kthena.local.apiserver.tables import AGE, NAME, age
from kthena.machinery.objects import Object, is_terminating, name_of
from kthena.machinery.selectors import SelectorError, label_selector_from_object

_UNSET: Final = "<unset>"
_UNKNOWN: Final = "<unknown>"
_SHOWN_METRICS: Final = 2
_ACCESS_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}
_SOURCES: Final = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _created(obj: Object, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _budget(obj: Object, now: datetime) -> list[Any]:
    spec = obj["spec"]
    bounds = (spec.get(name) for name in ("minAvailable", "maxUnavailable"))
    shown = ["N/A" if bound is None else str(bound) for bound in bounds]
    allowed = obj["status"].get("disruptionsAllowed") or 0
    return [name_of(obj), *shown, allowed, _created(obj, now)]


def _autoscaler(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    target = spec["scaleTargetRef"]
    least = spec.get("minReplicas")
    return [
        name_of(obj),
        f"{target['kind']}/{target['name']}",
        _metrics(spec.get("metrics") or [], status.get("currentMetrics") or []),
        _UNSET if least is None else str(least),
        spec["maxReplicas"],
        status.get("currentReplicas") or 0,
        _created(obj, now),
    ]


def _metrics(specs: list[Object], statuses: list[Object]) -> str:
    if not specs:
        return "<none>"
    shown = [
        _metric(spec, statuses[index] if index < len(statuses) else {})
        for index, spec in enumerate(specs[:_SHOWN_METRICS])
    ]
    hidden = len(specs) - _SHOWN_METRICS
    return ", ".join(shown) + (f" + {hidden} more..." if hidden > 0 else "")


def _metric(spec: Object, status: Object) -> str:
    """The current value and the wanted one."""
    kind = _SOURCES.get(spec["type"])
    if kind is None:
        return "<unknown type>"
    target, current = spec[kind]["target"], (status.get(kind) or {}).get("current") or {}
    average = target.get("averageValue")
    if kind in ("resource", "containerResource"):
        head = f"{spec[kind]['name']}: "
        if average is not None:
            return f"{head}{current.get('averageValue') or _UNKNOWN}/{average}"
        found, wanted = (part.get("averageUtilization") for part in (current, target))
        shown = (_UNKNOWN if found is None else f"{found}%", f"{wanted}%" if wanted else "<auto>")
        return head + "/".join(shown)
    if average is not None:
        suffix = "" if kind == "pods" else " (avg)"
        return f"{current.get('averageValue') or _UNKNOWN}/{average}{suffix}"
    return f"{current.get('value') or _UNKNOWN}/{target.get('value')}"


def _network_policy(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), _selector(obj["spec"].get("podSelector") or {}), _created(obj, now)]


def _selector(selector: Object) -> str:
    try:
        return str(label_selector_from_object(selector)) or "<none>"
    except SelectorError:
        return "<error>"


def _claim(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    bound = bool(spec.get("volumeName"))
    modes = status.get("accessModes") or ()
    annotations = obj["metadata"].get("annotations") or {}
    old_class = annotations.get("volume.beta.kubernetes.io/storage-class")
    return [
        name_of(obj),
        "Terminating" if is_terminating(obj) else status.get("phase"),
        spec.get("volumeName") or "",
        str((status.get("capacity") or {}).get("storage") or "0") if bound else "",
        ",".join(text for mode, text in _ACCESS_MODES.items() if mode in modes) if bound else "",
        old_class if old_class is not None else spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName", _UNSET),
        _created(obj, now),
        spec.get("volumeMode", _UNSET),
    ]


def _binding(obj: Object, now: datetime) -> list[Any]:
    role, subjects = obj["roleRef"], obj.get("subjects") or ()
    names = {
        kind: [subject["name"] for subject in subjects if subject["kind"] == kind]
        for kind in ("User", "Group")
    }
    accounts = [
        f"{subject.get('namespace') or ''}/{subject['name']}"
        for subject in subjects
        if subject["kind"] == "ServiceAccount"
    ]
    shown = (", ".join(found) for found in (names["User"], names["Group"], accounts))
    return [name_of(obj), f"{role['kind']}/{role['name']}", _created(obj, now), *shown]


def _policy(obj: Object, now: datetime) -> list[Any]:
    spec = obj["spec"]
    kind = spec.get("paramKind")
    shown = _UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"
    return [name_of(obj), len(spec.get("validations") or ()), shown, _created(obj, now)]


def _policy_binding(obj: Object, now: datetime) -> list[Any]:
    spec = obj["spec"]
    reference, shown = spec.get("paramRef"), _UNSET
    if reference is not None and reference.get("name"):
        shown = f"{reference.get('namespace') or '*'}/{reference['name']}"
    elif reference is not None and reference.get("selector") is not None:
        shown = _struct_text(reference["selector"])
    return [name_of(obj), spec.get("policyName") or "", shown, _created(obj, now)]


def _struct_text(selector: Object) -> str:
    """A LabelSelector as its Go type prints itself."""
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{expression['key']},Operator:{expression['operator']},"
        f"Values:[{' '.join(expression.get('values') or ())}],}},"
        for expression in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},MatchExpressions:"
        f"[]LabelSelectorRequirement{{{expressions}}},}}"
    )


def _columns(*names: str) -> tuple[Column, ...]:
    return tuple(map(Column, names))


BUDGETS: Final = Printer(
    (
        NAME,
        *_columns("Min Available", "Max Unavailable"),
        Column("Allowed Disruptions", "integer"),
        AGE,
    ),
    _budget,
)
AUTOSCALERS: Final = Printer(
    (NAME, *_columns("Reference", "Targets", "MinPods", "MaxPods", "Replicas"), AGE), _autoscaler
)
NETWORK_POLICIES: Final = Printer((NAME, Column("Pod-Selector"), AGE), _network_policy)
CLAIMS: Final = Printer(
    (
        NAME,
        *_columns("Status", "Volume", "Capacity", "Access Modes", "StorageClass"),
        Column("VolumeAttributesClass"),
        AGE,
        Column("VolumeMode", priority=1),
    ),
    _claim,
)
BINDINGS: Final = Printer(
    (
        NAME,
        Column("Role"),
        AGE,
        *(Column(name, priority=1) for name in ("Users", "Groups", "ServiceAccounts")),
    ),
    _binding,
)
POLICIES: Final = Printer(
    (NAME, Column("Validations", "integer"), Column("ParamKind"), AGE), _policy
)
POLICY_BINDINGS: Final = Printer((NAME, *_columns("PolicyName", "ParamRef"), AGE), _policy_binding)
