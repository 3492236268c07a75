"""What admission refuses of an AutoscalingPolicy beyond the bounds of single fields."""

from kthena.api.markers import GO_DURATION
from kthena.api.rules import INVALID, REQUIRED, Rule, Unchanged, spec_required

_TARGETS = ("homogeneousTarget", "heterogeneousTarget", "disaggregatedTarget")
_ROLES = "self.disaggregatedTarget.roles"
_FIXED = f"{_ROLES}[k].minReplicas == {_ROLES}[k].maxReplicas"
_HAS_METRICS = f"(has({_ROLES}[k].metrics) || (has(self.metrics) && size(self.metrics) > 0))"
_HAS_SOURCES = f"(has({_ROLES}[k].metricSources) && size({_ROLES}[k].metricSources) > 0)"
_IS_METRIC = (
    f"(has({_ROLES}[k].metrics) ? {_ROLES}[k].metrics.exists(m, m.name == n)"
    " : (has(self.metrics) && self.metrics.exists(m, m.name == n)))"
)


def _ratio(field: str) -> str:
    """A quantity as a number; only where `_ratio_is_number` holds."""
    return f"(type({field}) == int ? double({field}) : quantity({field}).asApproximateFloat())"


def _ratio_is_number(field: str) -> str:
    return f"(type({field}) == int || isQuantity({field}))"


_RATIOS_VALID = f"{_ratio_is_number('self.minRatio')} && {_ratio_is_number('self.maxRatio')}"
_CONSTRAINT = "self.ratioConstraint"
_NUMERATOR = f"self.roles[{_CONSTRAINT}.numeratorRole]"
_DENOMINATOR = f"self.roles[{_CONSTRAINT}.denominatorRole]"
_BOTH_EXIST = (
    f"has({_CONSTRAINT}) && {_CONSTRAINT}.numeratorRole in self.roles"
    f" && {_CONSTRAINT}.denominatorRole in self.roles"
)
_RATIO_UNCHANGED = Unchanged(("ratioConstraint", "roles"))


def _role_rule(condition: str, message: str, reason: str = INVALID) -> Rule:
    """A rule over each role that is not fixed."""
    return Rule(
        at="spec",
        expression=(
            f"!has(self.disaggregatedTarget) || {_ROLES}.all(k, {_FIXED} || ({condition}))"
        ),
        message=message,
        guard=Unchanged(("disaggregatedTarget", "metrics")),
        reason=reason,
        field_path=".disaggregatedTarget.roles",
    )


def _source_rules(at: str) -> tuple[Rule, Rule]:
    return (
        Rule(
            at=at,
            expression="has(self.pod) || has(self.prometheus)",
            message="one metric source backend config is required",
        ),
        Rule(
            at=at,
            expression="!(has(self.pod) && has(self.prometheus))",
            message="pod and prometheus configs are mutually exclusive",
        ),
    )


def _params_rule(condition: str, message: str) -> Rule:
    """A rule over the items of an atomic list, which have no old self of their own."""
    return Rule(
        at="spec.heterogeneousTarget.params",
        expression=f"self.all(param, {condition})",
        message=message,
    )


def _duration(at: str) -> Rule:
    return Rule(
        at=at,
        expression=(
            f"!self.matches(r'{GO_DURATION}')"
            " || (duration(self) >= duration('0s') && duration(self) <= duration('30m'))"
        ),
        message="must be a duration from 0s to 30m, for instance 1m30s",
    )


_SOURCES_OF_PARAM = "!has(param.target.metricSources) || param.target.metricSources.all(n, {})"
_SOURCE_OF_PARAM = "param.target.metricSources[n]"

RULES = (
    spec_required("AutoscalingPolicy"),
    Rule(
        at="spec",
        expression=(
            "[has(self.homogeneousTarget), has(self.heterogeneousTarget),"
            " has(self.disaggregatedTarget)].filter(x, x).size() == 1"
        ),
        message=(
            "exactly one of homogeneousTarget, heterogeneousTarget and disaggregatedTarget must "
            "be set"
        ),
        guard=Unchanged(_TARGETS),
    ),
    Rule(
        at="spec",
        expression=(
            "!(has(self.homogeneousTarget) || has(self.heterogeneousTarget))"
            " || (has(self.metrics) && size(self.metrics) > 0)"
        ),
        message="homogeneousTarget and heterogeneousTarget need at least one of spec.metrics",
        guard=Unchanged((*_TARGETS[:2], "metrics")),
        reason=REQUIRED,
        field_path=".metrics",
    ),
    _role_rule(
        _HAS_METRICS,
        "a role whose replicas may change needs metrics of its own or spec.metrics",
        REQUIRED,
    ),
    _role_rule(
        f"!{_HAS_METRICS} || {_HAS_SOURCES}",
        "a role whose replicas may change needs metricSources for its metrics",
    ),
    _role_rule(
        f"!{_HAS_SOURCES} || {_ROLES}[k].metricSources.all(n, {_IS_METRIC})",
        "metricSources of a role names a metric that the role does not scale by",
    ),
    *_source_rules("spec.homogeneousTarget.target.metricSources{}"),
    *_source_rules("spec.disaggregatedTarget.roles{}.metricSources{}"),
    Rule(
        at="spec.homogeneousTarget",
        expression="self.minReplicas <= self.maxReplicas",
        message="minReplicas must not exceed maxReplicas",
        field_path=".minReplicas",
    ),
    _params_rule(
        "param.minReplicas <= param.maxReplicas",
        "minReplicas of a param must not exceed its maxReplicas",
    ),
    _params_rule(
        _SOURCES_OF_PARAM.format(
            f"has({_SOURCE_OF_PARAM}.pod) || has({_SOURCE_OF_PARAM}.prometheus)"
        ),
        "one metric source backend config is required in each of metricSources",
    ),
    _params_rule(
        _SOURCES_OF_PARAM.format(
            f"!(has({_SOURCE_OF_PARAM}.pod) && has({_SOURCE_OF_PARAM}.prometheus))"
        ),
        "pod and prometheus configs are mutually exclusive in each of metricSources",
    ),
    Rule(
        at="spec.disaggregatedTarget.roles",
        expression="self.all(k, k != '')",
        message="the name of a role must not be empty",
    ),
    Rule(
        at="spec.disaggregatedTarget.roles{}",
        expression="self.minReplicas <= self.maxReplicas",
        message="minReplicas must not exceed maxReplicas",
        field_path=".minReplicas",
    ),
    Rule(
        at="spec.disaggregatedTarget",
        expression=f"!has({_CONSTRAINT}) || size(self.roles) >= 2",
        message="roles must contain at least two entries when ratioConstraint is configured",
        guard=_RATIO_UNCHANGED,
    ),
    Rule(
        at="spec.disaggregatedTarget",
        expression=f"!has({_CONSTRAINT}) || {_CONSTRAINT}.numeratorRole in self.roles",
        message="numeratorRole must be one of roles",
        guard=_RATIO_UNCHANGED,
        field_path=".ratioConstraint.numeratorRole",
    ),
    Rule(
        at="spec.disaggregatedTarget",
        expression=f"!has({_CONSTRAINT}) || {_CONSTRAINT}.denominatorRole in self.roles",
        message="denominatorRole must be one of roles",
        guard=_RATIO_UNCHANGED,
        field_path=".ratioConstraint.denominatorRole",
    ),
    Rule(
        at="spec.disaggregatedTarget",
        expression=(
            f"!({_BOTH_EXIST})"
            f" || ({_NUMERATOR}.minReplicas > 0) == ({_DENOMINATOR}.minReplicas > 0)"
        ),
        message="minReplicas of both roles of a ratio must be 0, or both above 0",
        guard=_RATIO_UNCHANGED,
        field_path=".ratioConstraint",
    ),
    Rule(
        at="spec.disaggregatedTarget",
        expression=(
            f"!({_BOTH_EXIST}) || !{_ratio_is_number(f'{_CONSTRAINT}.maxRatio')}"
            f" || double({_NUMERATOR}.minReplicas) / double({_DENOMINATOR}.maxReplicas)"
            f" <= {_ratio(f'{_CONSTRAINT}.maxRatio')}"
        ),
        message="maxRatio can never hold: even the fewest of the numerator are too many",
        guard=_RATIO_UNCHANGED,
        field_path=".ratioConstraint",
    ),
    Rule(
        at="spec.disaggregatedTarget",
        expression=(
            f"!({_BOTH_EXIST}) || !{_ratio_is_number(f'{_CONSTRAINT}.minRatio')}"
            f" || {_DENOMINATOR}.minReplicas == 0"
            f" || double({_NUMERATOR}.maxReplicas) / double({_DENOMINATOR}.minReplicas)"
            f" >= {_ratio(f'{_CONSTRAINT}.minRatio')}"
        ),
        message="minRatio can never hold: even the most of the numerator are too few",
        guard=_RATIO_UNCHANGED,
        field_path=".ratioConstraint",
    ),
    Rule(
        at="spec.disaggregatedTarget.ratioConstraint",
        expression="self.numeratorRole != self.denominatorRole",
        message="numeratorRole and denominatorRole must differ",
    ),
    Rule(
        at="spec.disaggregatedTarget.ratioConstraint",
        expression=(
            f"!({_RATIOS_VALID}) || {_ratio('self.minRatio')} <= {_ratio('self.maxRatio')}"
        ),
        message="minRatio must not exceed maxRatio",
        field_path=".minRatio",
    ),
    Rule(
        at="spec.disaggregatedTarget.ratioConstraint",
        expression=(
            f"!({_RATIOS_VALID})"
            f" || ({_ratio('self.minRatio')} >= 0.0 && {_ratio('self.maxRatio')} > 0.0)"
        ),
        message="minRatio must be at least 0 and maxRatio above 0",
    ),
    _duration("spec.behavior.scaleDown.period"),
    _duration("spec.behavior.scaleDown.stabilizationWindow"),
    _duration("spec.behavior.scaleUp.stablePolicy.period"),
    _duration("spec.behavior.scaleUp.stablePolicy.stabilizationWindow"),
    _duration("spec.behavior.scaleUp.panicPolicy.period"),
    _duration("spec.behavior.scaleUp.panicPolicy.panicModeHold"),
)
"""All rules of the kind."""
