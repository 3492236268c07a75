"""Deployments, ReplicaSets and ControllerRevisions."""

import re
from collections.abc import Sequence
from typing import Final

from kthena.local.apiserver.admission import bump_generation, copy_fields
from kthena.local.apiserver.builtins.fielderrors import (
    IMMUTABLE,
    check_not_negative,
    check_text,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.local.apiserver.builtins.podspec import default_pod_spec
from kthena.local.apiserver.builtins.podvalidation import validate_pod_spec
from kthena.local.apiserver.builtins.podwarnings import warn_of_template
from kthena.local.apiserver.strategies import PlainStrategy, SpecStrategy, StatusStrategy
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import format_json
from kthena.machinery.names import check_label_value, check_qualified_name
from kthena.machinery.objects import Object, name_of
from kthena.machinery.selectors import SelectorError, label_selector_from_object

_PERCENT: Final = re.compile(r"[0-9]+%")
_STRATEGIES: Final = ("Recreate", "RollingUpdate")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")

_PARTS: Final = ("updatedReplicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")

DEPLOYMENT_COUNTS: Final = (
    *("observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas"),
    *("unavailableReplicas", "terminatingReplicas", "collisionCount"),
)
REPLICA_SET_COUNTS: Final = (
    *("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"),
    *("observedGeneration", "terminatingReplicas"),
)


def default_deployment(obj: Object) -> None:
    """Set what a Deployment leaves open."""
    spec = obj["spec"]
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec["strategy"]
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    default_pod_spec(spec["template"]["spec"])


def default_replica_set(obj: Object) -> None:
    """Set what a ReplicaSet leaves open."""
    obj["spec"].setdefault("replicas", 1)
    default_pod_spec(obj["spec"]["template"]["spec"])


class DeploymentStrategy(SpecStrategy):
    """Writes of Deployments. Annotations count as a generation, since rollouts depend on them."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status; count a change of spec or annotations."""
        copy_fields(new, old, ("status",))
        annotations = (obj["metadata"].get("annotations") or {} for obj in (new, old))
        if new["spec"] != old["spec"] or next(annotations) != next(annotations):
            bump_generation(new)

    def validate_create(self, obj: Object) -> ErrorList:
        """The rules of a DeploymentSpec."""
        spec = obj["spec"]
        errors = check_not_negative("spec.replicas", spec["replicas"])
        errors += _check_selector(spec, "deployment")
        errors += _check_strategy(spec["strategy"], "spec.strategy")
        minimum, deadline = spec.get("minReadySeconds") or 0, spec["progressDeadlineSeconds"]
        errors += check_not_negative("spec.minReadySeconds", minimum)
        errors += check_not_negative("spec.revisionHistoryLimit", spec["revisionHistoryLimit"])
        errors += check_not_negative("spec.progressDeadlineSeconds", deadline)
        if deadline <= minimum:
            detail = "must be greater than minReadySeconds"
            errors.append(invalid("spec.progressDeadlineSeconds", deadline, detail))
        return errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The selector is fixed."""
        return self.validate_create(new) + _check_same_selector(new, old)

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """What is odd in the template, where it is new."""
        return _warn_of_template(new, old)


class WorkloadStatusStrategy(StatusStrategy):
    """The status of a workload: `counts` are the names of its counts, in the order of the API."""

    def __init__(self, counts: Sequence[str], kept_metadata: tuple[str, ...] = ()) -> None:
        super().__init__(kept_metadata)
        self._counts = counts

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """No count is negative, and no part larger than the whole."""
        del old
        status = new.get("status") or {}
        errors: ErrorList = []
        for name in self._counts:
            errors += check_not_negative(f"status.{name}", status.get(name) or 0)
        total, ready = (status.get(name) or 0 for name in ("replicas", "readyReplicas"))
        for name in _PARTS:
            part = status.get(name) or 0
            if name in self._counts and part > total:
                detail = "cannot be greater than status.replicas"
                errors.append(invalid(f"status.{name}", part, detail))
        available = status.get("availableReplicas") or 0
        if available > ready:
            detail = "cannot be greater than readyReplicas"
            errors.append(invalid("status.availableReplicas", available, detail))
        return errors


class DeploymentStatusStrategy(WorkloadStatusStrategy):
    """The status of Deployments."""

    def __init__(self) -> None:
        super().__init__(DEPLOYMENT_COUNTS, ("labels",))

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Collisions are only ever added to."""
        errors = super().validate_update(new, old)
        after, before = ((obj.get("status") or {}).get("collisionCount") for obj in (new, old))
        if before is not None and (after or 0) < before:
            errors.append(invalid("status.collisionCount", after or 0, "cannot be decremented"))
        return errors


class ReplicaSetStrategy(SpecStrategy):
    """Writes of ReplicaSets."""

    def prepare_create(self, obj: Object) -> None:
        """The status counts from zero."""
        super().prepare_create(obj)
        obj["status"] = {"replicas": 0}

    def validate_create(self, obj: Object) -> ErrorList:
        """The rules of a ReplicaSetSpec."""
        spec = obj["spec"]
        errors = check_not_negative("spec.replicas", spec["replicas"])
        errors += check_not_negative("spec.minReadySeconds", spec.get("minReadySeconds") or 0)
        return errors + _check_selector(spec, "deployment")

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The selector is fixed."""
        return self.validate_create(new) + _check_same_selector(new, old)

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """What is odd in the template, where it is new."""
        return _warn_of_template(new, old)


class ControllerRevisionStrategy(PlainStrategy):
    """Writes of ControllerRevisions: only the number may change."""

    repeats_metadata = True

    def validate_create(self, obj: Object) -> ErrorList:
        """The number counts from zero, and there is data."""
        errors = check_not_negative("revision", obj.get("revision") or 0)
        data = obj.get("data")
        if data is None:
            errors.append(required("data", "data is mandatory"))
        elif not isinstance(data, dict):
            errors.append(required("data", "data must be a valid JSON object"))
        return errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The data is fixed."""
        errors = check_not_negative("revision", new.get("revision") or 0)
        if new.get("data") != old.get("data"):
            errors.append(invalid("data", new.get("data"), IMMUTABLE))
        return errors


def _warn_of_template(new: Object, old: Object | None) -> Sequence[str]:
    if old and new["metadata"].get("generation") == old["metadata"].get("generation"):
        return ()
    return warn_of_template(name_of(new), new["spec"]["template"], created=old is None)


def _invalid_selector(path: str, selector: Object | None, detail: str) -> FieldError:
    """An error that shows a selector with its fields in the order of the API's struct."""
    if selector is None:
        return invalid(path, None, detail)
    names = [name for name in ("matchLabels", "matchExpressions") if name in selector]
    members = ",".join(f'"{name}":{format_json(selector[name])}' for name in names)
    return FieldError(path, ErrorType.INVALID, OMITTED, f"{{{members}}}: {detail}")


def _check_same_selector(new: Object, old: Object) -> ErrorList:
    after, before = new["spec"].get("selector"), old["spec"].get("selector")
    return [] if after == before else [_invalid_selector("spec.selector", after, IMMUTABLE)]


def _check_selector(spec: Object, owner: str) -> ErrorList:
    """The selector, and the template that it has to select."""
    selector, path = spec.get("selector"), "spec.selector"
    labels = spec["template"]["metadata"].get("labels")
    template_errors = _check_template(spec["template"], "spec.template")
    if selector is None:
        return [required(path), _mismatch(labels), *template_errors]
    errors = check_label_selector(selector, path)
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        errors.append(invalid(path, selector, f"empty selector is invalid for {owner}"))
    try:
        parsed = label_selector_from_object(selector)
    except SelectorError:
        return [*errors, _invalid_selector(path, selector, "invalid label selector")]
    if not parsed.empty and not parsed.matches(labels or {}):
        errors.append(_mismatch(labels))
    return errors + template_errors


def _mismatch(labels: Object | None) -> FieldError:
    detail = "`selector` does not match template `labels`"
    return invalid("spec.template.metadata.labels", labels, detail)


def check_label_selector(selector: Object, path: str) -> ErrorList:
    """What is wrong with a LabelSelector."""
    errors: ErrorList = []
    for key, value in (selector.get("matchLabels") or {}).items():
        errors += check_text(f"{path}.matchLabels", key, check_qualified_name)
        errors += check_text(f"{path}.matchLabels", value, check_label_value)
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        below, operator = f"{path}.matchExpressions[{index}]", expression["operator"]
        values = expression.get("values") or []
        if operator in ("In", "NotIn") and not values:
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(required(f"{below}.values", detail))
        elif operator in ("Exists", "DoesNotExist") and values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(f"{below}.values", detail))
        elif operator not in _OPERATORS:
            errors.append(invalid(f"{below}.operator", operator, "not a valid selector operator"))
        errors += check_text(f"{below}.key", expression["key"], check_qualified_name)
        for place, value in enumerate(values):
            errors += check_text(f"{below}.values[{place}]", value, check_label_value)
    return errors


def _check_template(template: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    meta, spec = template["metadata"], template["spec"]
    for key, value in (meta.get("labels") or {}).items():
        errors += check_text(f"{path}.labels", key, check_qualified_name)
        errors += check_text(f"{path}.labels", value, check_label_value)
    for key in meta.get("annotations") or ():
        errors += check_text(f"{path}.annotations", key.lower(), check_qualified_name)
    errors += validate_pod_spec(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(f"{path}.spec.ephemeralContainers", detail))
    policy = spec["restartPolicy"]
    if policy != "Always":
        errors.append(unsupported(f"{path}.spec.restartPolicy", policy, ("Always",)))
    if spec.get("activeDeadlineSeconds") is not None:
        detail = "activeDeadlineSeconds in ReplicaSet is not Supported"
        errors.append(forbidden(f"{path}.spec.activeDeadlineSeconds", detail))
    return errors


def _check_strategy(strategy: Object, path: str) -> ErrorList:
    kind, rolling = strategy["type"], strategy.get("rollingUpdate") or {}
    if kind == "Recreate":
        if "rollingUpdate" not in strategy:
            return []
        detail = "may not be specified when strategy `type` is 'Recreate'"
        return [forbidden(f"{path}.rollingUpdate", detail)]
    if kind != "RollingUpdate":
        return [_unsupported_strategy(path, strategy)]
    below = f"{path}.rollingUpdate"
    errors: ErrorList = []
    for name in ("maxUnavailable", "maxSurge"):
        errors += _check_amount(f"{below}.{name}", rolling[name])
    unavailable, surge = rolling["maxUnavailable"], rolling["maxSurge"]
    if _is_zero(unavailable) and _is_zero(surge):
        detail = "may not be 0 when `maxSurge` is 0"
        errors.append(invalid(f"{below}.maxUnavailable", unavailable, detail))
    percent = _PERCENT.fullmatch(unavailable) if isinstance(unavailable, str) else None
    if percent and int(unavailable[:-1]) > 100:
        detail = "must not be greater than 100%"
        errors.append(invalid(f"{below}.maxUnavailable", unavailable, detail))
    return errors


def _unsupported_strategy(path: str, strategy: Object) -> FieldError:
    """The error of the API, which shows the struct in Go's names."""
    shown = f'{{"Type":{format_json(strategy["type"])},"RollingUpdate":'
    rolling = strategy.get("rollingUpdate")
    if rolling is None:
        shown += "null}"
    else:
        amounts = (format_json(rolling.get(name)) for name in ("maxUnavailable", "maxSurge"))
        shown += '{{"MaxUnavailable":{},"MaxSurge":{}}}}}'.format(*amounts)
    texts = ", ".join(f'"{name}"' for name in _STRATEGIES)
    return FieldError(path, ErrorType.NOT_SUPPORTED, OMITTED, f"{shown}: supported values: {texts}")


def _is_zero(value: int | str) -> bool:
    if isinstance(value, int):
        return value == 0
    return bool(_PERCENT.fullmatch(value)) and int(value[:-1]) == 0


def _check_amount(path: str, value: int | str) -> ErrorList:
    if isinstance(value, int):
        return check_not_negative(path, value)
    if _PERCENT.fullmatch(value):
        return []
    detail = (
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  "
        "or '93%', regex used for validation is '[0-9]+%')"
    )
    return [invalid(path, value, detail)]
