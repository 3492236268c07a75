"""PodDisruptionBudgets. They are stored; no controller counts pods for them."""

import re
from typing import Any, Final

from kthena.local.apiserver.builtins.conditions import check_conditions
from kthena.local.apiserver.builtins.fielderrors import (
    check_not_negative,
    invalid,
    unsupported,
)
from kthena.local.apiserver.builtins.workloads import check_label_selector
from kthena.local.apiserver.strategies import SpecStrategy, StatusStrategy
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import format_json
from kthena.machinery.objects import Object

_PERCENT: Final = re.compile(r"[0-9]+%")
_EVICTION_POLICIES: Final = ("AlwaysAllow", "IfHealthyBudget")
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_EMPTY_STATUS: Final = dict.fromkeys(sorted(_COUNTS), 0)


class BudgetStrategy(SpecStrategy):
    """Writes of PodDisruptionBudgets: always against a version."""

    allow_unconditional_update = False
    repeats_changes = False

    def prepare_create(self, obj: Object) -> None:
        """The status counts from zero."""
        super().prepare_create(obj)
        obj["status"] = dict(_EMPTY_STATUS)

    def validate_create(self, obj: Object) -> ErrorList:
        """One bound, which is a number of pods or a share."""
        spec = obj["spec"]
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        errors: ErrorList = []
        if least is not None and most is not None:
            detail = "minAvailable and maxUnavailable cannot be both set"
            errors.append(_invalid_spec(spec, detail))
        for name, amount in (("minAvailable", least), ("maxUnavailable", most)):
            if amount is not None:
                errors += _check_amount(f"spec.{name}", amount)
        if spec.get("selector") is not None:
            errors += check_label_selector(spec["selector"], "spec.selector")
        policy = spec.get("unhealthyPodEvictionPolicy")
        if policy is not None and policy not in _EVICTION_POLICIES:
            path = "spec.unhealthyPodEvictionPolicy"
            errors.append(unsupported(path, policy, _EVICTION_POLICIES))
        return errors


class BudgetStatusStrategy(StatusStrategy):
    """The status of a PodDisruptionBudget."""

    allow_unconditional_update = False
    repeats_changes = False

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Conditions are whole, and counts are not negative."""
        del old
        errors = check_conditions(new["status"].get("conditions"), "status.conditions")
        for name in _COUNTS:
            errors += check_not_negative(f"status.{name}", new["status"].get(name) or 0)
        return errors


def _invalid_spec(spec: Object, detail: str) -> FieldError:
    """The error of the API, which shows the struct in Go's names and order."""
    shown = {
        "MinAvailable": spec.get("minAvailable"),
        "Selector": spec.get("selector"),
        "MaxUnavailable": spec.get("maxUnavailable"),
        "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
    }
    text = ",".join(f'"{name}":{format_json(value)}' for name, value in shown.items())
    return FieldError("spec", ErrorType.INVALID, OMITTED, f"{{{text}}}: {detail}")


def _check_amount(path: str, value: Any) -> ErrorList:
    if isinstance(value, int):
        return check_not_negative(path, value)
    if not _PERCENT.fullmatch(value):
        detail = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. "
            "'1%',  or '93%', regex used for validation is '[0-9]+%')"
        )
        return [invalid(path, value, detail)]
    if int(value[:-1]) > 100:
        return [invalid(path, value, "must not be greater than 100%")]
    return []
