"""HorizontalPodAutoscalers (`autoscaling/v2`). They are stored; nothing scales by them."""

from typing import Any, Final

from kthena.local.apiserver.builtins.fielderrors import (
    check_not_negative,
    check_text,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.local.apiserver.strategies import SpecStrategy, StatusStrategy
from kthena.machinery.fields import ErrorList
from kthena.machinery.names import check_dns1123_label, check_path_segment
from kthena.machinery.objects import Object, copy_json
from kthena.machinery.quantity import Quantity

_DEFAULT_METRICS: Final = [
    {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    }
]
_BY_SHARE: Final = {"type": "Percent", "value": 100, "periodSeconds": 15}
_BY_NUMBER: Final = {"type": "Pods", "value": 4, "periodSeconds": 15}
_DEFAULT_RULES: Final[dict[str, Object]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [_BY_NUMBER, _BY_SHARE],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [_BY_SHARE]},
}
_SELECTIONS: Final = ("Disabled", "Max", "Min")
_POLICIES: Final = ("Percent", "Pods")
_SOURCES: Final = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
"""Types of metrics and the fields that describe them, in the order in which they are looked at."""

_TARGETS: Final = ("Utilization", "Value", "AverageValue")
_MAX_PERIOD_S: Final = 1800
_MAX_WINDOW_S: Final = 3600
_POSITIVE: Final = "must be greater than zero"
_RAW_OR_SHARE: Final = "may not set both a target raw value and a target utilization"
_NEEDS_RAW_OR_SHARE: Final = "must set either a target raw value or a target utilization"


def default(obj: Object) -> None:
    """One replica at least, CPU as the metric, and rules of scaling where any are given."""
    spec = obj["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = copy_json(_DEFAULT_METRICS)
    behavior = spec.get("behavior")
    if behavior is not None:
        for name, rules in _DEFAULT_RULES.items():
            given = behavior.get(name) or {}
            behavior[name] = {**copy_json(rules), **given}


class AutoscalerStrategy(SpecStrategy):
    """Writes of HorizontalPodAutoscalers, which have no generation."""

    counts_generation = False

    def prepare_create(self, obj: Object) -> None:
        """The status counts from zero."""
        super().prepare_create(obj)
        obj["status"] = {"currentMetrics": None, "desiredReplicas": 0}

    def validate_create(self, obj: Object) -> ErrorList:
        """Bounds, the target, metrics and rules."""
        return self._check(obj, None)

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The same; what was taken before is no mistake now."""
        return self._check(new, old)

    def _check(self, obj: Object, old: Object | None) -> ErrorList:
        spec = obj["spec"]
        before = {} if old is None else old["spec"]
        least, most = spec["minReplicas"], spec["maxReplicas"]
        bound = 0 if before.get("minReplicas") == 0 else 1
        errors: ErrorList = []
        if least < bound:
            detail = f"must be greater than or equal to {bound}"
            errors.append(invalid("spec.minReplicas", least, detail))
        if most < 1:
            errors.append(invalid("spec.maxReplicas", most, "must be greater than 0"))
        if most < least:
            detail = "must be greater than or equal to `minReplicas`"
            errors.append(invalid("spec.maxReplicas", most, detail))
        target = spec["scaleTargetRef"]
        known = before.get("scaleTargetRef")
        unchanged = known is not None and all(
            known.get(name) == target.get(name) for name in ("apiVersion", "kind")
        )
        allows_core = target["kind"] == "ReplicationController"
        errors += _check_reference(
            target, "spec.scaleTargetRef", checks_group=not unchanged, allows_core=allows_core
        )
        errors += _check_metrics(spec)
        for name in _DEFAULT_RULES:
            rules = (spec.get("behavior") or {}).get(name)
            if rules is not None:
                errors += _check_rules(rules, f"spec.behavior.{name}")
        return errors


class AutoscalerStatusStrategy(StatusStrategy):
    """The status of a HorizontalPodAutoscaler."""

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Counts are not negative."""
        del old
        errors: ErrorList = []
        for name in ("currentReplicas", "desiredReplicas"):
            errors += check_not_negative(f"status.{name}", new["status"].get(name) or 0)
        return errors


def _check_reference(
    reference: Object, path: str, *, checks_group: bool = True, allows_core: bool = True
) -> ErrorList:
    errors: ErrorList = []
    for name in ("kind", "name"):
        if reference[name]:
            errors += check_text(f"{path}.{name}", reference[name], check_path_segment)
        else:
            errors.append(required(f"{path}.{name}"))
    version = reference.get("apiVersion") or ""
    if not checks_group:
        return errors
    if version.count("/") > 1:
        detail = f"unexpected GroupVersion string: {version}"
        errors.append(invalid(f"{path}.apiVersion", version, detail))
    elif not version.rpartition("/")[0] and not allows_core:
        detail = "apiVersion must specify API group"
        errors.append(invalid(f"{path}.apiVersion", version, detail))
    return errors


def _check_metrics(spec: Object) -> ErrorList:
    errors: ErrorList = []
    for index, metric in enumerate(spec["metrics"]):
        errors += _check_metric(metric, f"spec.metrics[{index}]")
    kinds = {metric["type"] for metric in spec["metrics"]}
    if spec["minReplicas"] == 0 and not kinds & {"Object", "External"}:
        detail = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden("spec.metrics", detail))
    return errors


def _check_metric(metric: Object, path: str) -> ErrorList:
    kind, errors = metric["type"], []
    if not kind:
        errors.append(required(f"{path}.type", "must specify a metric source type"))
    unknown = [] if kind in _SOURCES else [unsupported(f"{path}.type", kind, sorted(_SOURCES))]
    errors += unknown
    given = [name for name in _SOURCES.values() if metric.get(name) is not None]
    if given:
        errors += _check_source(given[0], metric[given[0]], f"{path}.{given[0]}")
    expected = _SOURCES.get(kind, "")
    if expected and expected not in given:
        detail = "must populate information for the given metric source"
        errors.append(required(f"{path}.{expected}", detail))
    errors += unknown
    if len(given) != 1:
        detail = "must populate the given metric source only"
        errors += [forbidden(f"{path}.{name}", detail) for name in given if name != expected]
    return errors


def _check_source(kind: str, source: Object, path: str) -> ErrorList:
    if kind in ("resource", "containerResource"):
        return _check_resource(kind, source, path)
    errors: ErrorList = []
    if kind == "object":
        errors += _check_reference(source["describedObject"], f"{path}.describedObject")
    name = source["metric"]["name"]
    if name:
        errors += check_text(f"{path}.metric.name", name, check_path_segment)
    else:
        errors.append(required(f"{path}.metric.name", "must specify a metric name"))
    target = source["target"]
    errors += _check_target(target, f"{path}.target")
    value, average = target.get("value"), target.get("averageValue")
    if kind == "pods":
        if average is None:
            detail = "must specify a positive target averageValue"
            errors.append(required(f"{path}.target.averageValue", detail))
        return errors
    if value is None and average is None:
        detail = "must set either a target value or averageValue"
        if kind == "external":
            detail = "must set either a target value for metric or a per-pod target"
        errors.append(required(f"{path}.target.averageValue", detail))
    if kind == "external" and value is not None and average is not None:
        detail = "may not set both a target value for metric and a per-pod target"
        errors.append(forbidden(f"{path}.target.value", detail))
    return errors


def _check_resource(kind: str, source: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    if not source["name"]:
        errors.append(required(f"{path}.name", "must specify a resource name"))
    if kind == "containerResource":
        if source["container"]:
            errors += check_text(f"{path}.container", source["container"], check_dns1123_label)
        else:
            errors.append(required(f"{path}.container", "must specify a container"))
    target = source["target"]
    errors += _check_target(target, f"{path}.target")
    share, average = target.get("averageUtilization"), target.get("averageValue")
    if share is None and average is None:
        errors.append(required(f"{path}.target.averageUtilization", _NEEDS_RAW_OR_SHARE))
    if share is not None and average is not None:
        errors.append(forbidden(f"{path}.target.averageValue", _RAW_OR_SHARE))
    return errors


def _check_target(target: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    if not target["type"]:
        errors.append(required(f"{path}.type", "must specify a metric target type"))
    if target["type"] not in _TARGETS:
        detail = "must be either Utilization, Value, or AverageValue"
        errors.append(invalid(f"{path}.type", target["type"], detail))
    for name in ("value", "averageValue"):
        amount = target.get(name)
        if amount is not None and Quantity.parse(amount).value <= 0:
            errors.append(invalid(f"{path}.{name}", amount, "must be positive"))
    share = target.get("averageUtilization")
    if share is not None and share < 1:
        errors.append(invalid(f"{path}.averageUtilization", share, "must be greater than 0"))
    return errors


def _check_rules(rules: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    window = rules.get("stabilizationWindowSeconds")
    if window is not None and not 0 <= window <= _MAX_WINDOW_S:
        detail = (
            "must be greater than or equal to zero"
            if window < 0
            else f"must be less than or equal to {_MAX_WINDOW_S}"
        )
        errors.append(invalid(f"{path}.stabilizationWindowSeconds", window, detail))
    selection = rules.get("selectPolicy")
    if selection is not None and selection not in _SELECTIONS:
        errors.append(unsupported(f"{path}.selectPolicy", selection, _SELECTIONS))
    policies: list[Any] = rules.get("policies") or []
    if not policies:
        errors.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(policies):
        errors += _check_policy(policy, f"{path}.policies[{index}]")
    tolerance = rules.get("tolerance")
    if tolerance is not None and Quantity.parse(tolerance).value < 0:
        detail = "must be greater than or equal to 0"
        errors.append(invalid(f"{path}.tolerance", tolerance, detail))
    return errors


def _check_policy(policy: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    if policy["type"] not in _POLICIES:
        errors.append(unsupported(f"{path}.type", policy["type"], _POLICIES))
    if policy["value"] <= 0:
        errors.append(invalid(f"{path}.value", policy["value"], _POSITIVE))
    period = policy["periodSeconds"]
    if period <= 0:
        errors.append(invalid(f"{path}.periodSeconds", period, _POSITIVE))
    if period > _MAX_PERIOD_S:
        detail = f"must be less than or equal to {_MAX_PERIOD_S}"
        errors.append(invalid(f"{path}.periodSeconds", period, detail))
    return errors
