"""Deployments, ReplicaSets and ControllerRevisions."""

import re
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
from kthena.local.apiserver.strategies import PlainStrategy, SpecStrategy
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError, format_json
from kthena.machinery.names import check_label_value, check_qualified_name
from kthena.machinery.objects import Object
from kthena.machinery.selectors import SelectorError, label_selector_from_object

_PERCENT: Final = re.compile(r"[0-9]+%")
_STRATEGIES: Final = ("Recreate", "RollingUpdate")
_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


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


class ControllerRevisionStrategy(PlainStrategy):
    """Writes of ControllerRevisions: only the number may change."""

    def validate_create(self, obj: Object) -> ErrorList:
        """The number counts from zero, and there is data."""
        errors = check_not_negative("revision", obj.get("revision") or 0)
        if obj.get("data") is None:
            errors.append(required("data", "data is mandatory"))
        return errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The data is fixed."""
        errors = check_not_negative("revision", new.get("revision") or 0)
        if new.get("data") != old.get("data"):
            errors.append(invalid("data", new.get("data"), IMMUTABLE))
        return errors


def _check_same_selector(new: Object, old: Object) -> ErrorList:
    after, before = new["spec"].get("selector"), old["spec"].get("selector")
    return [] if after == before else [invalid("spec.selector", after, IMMUTABLE)]


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
        return [*errors, invalid(path, selector, "invalid label selector")]
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
