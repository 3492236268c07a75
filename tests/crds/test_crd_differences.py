"""Our schemas against Kthena's, node by node and keyword by keyword.

`ALLOWED` is the whole list of what may differ and why. A difference that no row covers fails, and so
does a row that covers none. Descriptions are not compared: the reference has none.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from kthena.api.crd.definition import definition
from kthena.api.kinds import DEFINITIONS
from support.corpus import require_reference_crd
from support.schemas import children, crd_schema, keywords

pytestmark = pytest.mark.corpus

ANY = "*"
ADDED, REMOVED, CHANGED = "added", "removed", "changed"


class Difference(NamedTuple):
    """One keyword of one node, or a field, that only one side has or that differs."""

    kind: str
    at: str
    keyword: str
    change: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.at or '<root>'} [{self.keyword}] {self.change}"


@dataclass(frozen=True)
class Allowed:
    """A row: which differences it covers (a `*` stands for any text) and why they are there."""

    kind: str
    at: str
    keyword: str
    change: str
    reason: str

    def covers(self, difference: Difference) -> bool:
        pairs = zip((self.kind, self.at, self.keyword, self.change), difference, strict=True)
        return all(_matches(pattern, text) for pattern, text in pairs)


def _matches(pattern: str, text: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split(ANY)), text) is not None


WEBHOOK = "a check of Kthena's webhook, as a rule with a guard"
WEBHOOK_SCHEMA = "a check of Kthena's webhook that a schema keyword can make"
GUARDED = "Kthena's rule, with the guard that lets a stored object be edited elsewhere"
COST = "the API server refuses the CRD without it: a rule over this field would cost too much"
INT32 = "Kthena fails to decode a larger number (400 without a path); here it is a field error"
NEVER_ACTS = "a negative number can never act"
ONE_DEFAULT = "one set of defaults, whatever the shape it is written in; the webhook had another"

ALLOWED = (
    # --- all kinds
    Allowed(ANY, "", "rule: * needs a spec", ADDED, WEBHOOK),
    Allowed("ModelServing", "status.conditions", "x-kubernetes-list-*", ADDED, "one condition of each type; several writers can own theirs"),
    Allowed("ExternalModelProvider", "status.conditions", "x-kubernetes-list-*", ADDED, "one condition of each type; several writers can own theirs"),
    # --- ModelServing
    Allowed("ModelServing", "metadata.name", "field", ADDED, "the webhook's DNS-1035 check of names, where it ratchets; names become part of pod names"),
    Allowed("ModelServing", "", "rule: pod names would exceed*", ADDED, WEBHOOK + "; it covers /scale too"),
    Allowed("ModelServing", "spec", "rule: *", ADDED, WEBHOOK),
    Allowed("ModelServing", "spec.rolloutStrategy", "rule: rollingUpdateConfiguration acts only*", ADDED, WEBHOOK),
    Allowed("ModelServing", "spec.template", "rule: minRoleReplicas *", ADDED, WEBHOOK),
    Allowed("ModelServing", "spec.template.roles[]", "rule: a role with workerReplicas*", ADDED, WEBHOOK),
    Allowed("ModelServing", "spec.template.roles[].replicas", "minimum", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.template.roles[].workerReplicas", "minimum", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.template.roles[].*eplicas", "maximum", ADDED, INT32),
    Allowed("ModelServing", "spec.template.gangPolicy.minRoleReplicas{}", "minimum", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.template.gangPolicy.minRoleReplicas", "maxProperties", ADDED, COST + "; more than 4 roles cannot be named"),
    Allowed("ModelServing", "spec.template.restartGracePeriodSeconds", "minimum", ADDED, NEVER_ACTS),
    Allowed("ModelServing", "spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge", "field", ADDED, "Kthena took it in after the reference"),
    Allowed("ModelServing", "spec.rolloutStrategy.rollingUpdateConfiguration.*", "minimum", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.rolloutStrategy.rollingUpdateConfiguration.*", "pattern", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.rolloutStrategy.rollingUpdateConfiguration.*", "maximum", ADDED, INT32),
    Allowed("ModelServing", "spec.template.roles[].partition", "*", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.template.roles[].maxUnavailable", "*", ADDED, WEBHOOK_SCHEMA + "; under the group strategy too, where Kthena ignores the field"),
    Allowed("ModelServing", "spec.template.roles[].name", "pattern", CHANGED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "spec.template.roles", "x-kubernetes-list-*", ADDED, "roles are a map by name: server-side apply can own one role's replicas"),
    Allowed("ModelServing", "spec.template.roles", "rule: roles name must be unique", REMOVED, "a list-map is unique by its key"),
    Allowed("ModelServing", "*.spec.containers[].image", "pattern", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServing", "*.workloadRef", "field", ADDED, "a field of the PodSpec of Kubernetes 1.35"),
    Allowed("ModelServing", "*.podCertificate.userAnnotations", "field", ADDED, "a field of the PodSpec of Kubernetes 1.35"),
    Allowed("ModelServing", "*.volumeClaimTemplate.metadata.*", "field", ADDED, "Kubernetes copies labels and annotations to the claim; Kthena's CRD drops them"),
    Allowed("*", "*.envFrom[].configMapRef", "x-kubernetes-map-type", REMOVED, "as kube-apiserver publishes the PodSpec"),
    Allowed("*", "*.envFrom[].secretRef", "x-kubernetes-map-type", REMOVED, "as kube-apiserver publishes the PodSpec"),
    Allowed("ModelServing", "*.volumes[].configMap", "x-kubernetes-map-type", REMOVED, "as kube-apiserver publishes the PodSpec"),
    Allowed("ModelServing", "*.volumes[].projected.sources[].*", "x-kubernetes-map-type", REMOVED, "as kube-apiserver publishes the PodSpec"),
    # --- AutoscalingPolicy
    Allowed("AutoscalingPolicy", "spec", "rule: *", ADDED, WEBHOOK),
    Allowed("AutoscalingPolicy", "spec.behavior*", "default", ADDED, ONE_DEFAULT),
    Allowed("AutoscalingPolicy", "spec.behavior*.instances", "default", CHANGED, ONE_DEFAULT),
    Allowed("AutoscalingPolicy", "spec.behavior*.period", "default", CHANGED, ONE_DEFAULT),
    Allowed("AutoscalingPolicy", "spec.behavior*", "pattern", ADDED, "a text that is no duration is a field error; Kthena fails to decode it"),
    Allowed("AutoscalingPolicy", "spec.behavior*", "rule: must be a duration*", ADDED, WEBHOOK),
    Allowed("AutoscalingPolicy", "spec.behavior*.instances", "maximum", ADDED, INT32),
    Allowed("AutoscalingPolicy", "spec.heterogeneousTarget.costExpansionRatePercent", "maximum", ADDED, INT32),
    Allowed("AutoscalingPolicy", "spec.heterogeneousTarget.params[].cost", "maximum", ADDED, INT32),
    Allowed("AutoscalingPolicy", "*metrics", "x-kubernetes-list-*", ADDED, WEBHOOK_SCHEMA + ": metrics are unique by name"),
    Allowed("AutoscalingPolicy", "*metrics", "maxItems", ADDED, COST),
    Allowed("AutoscalingPolicy", "*metrics[].targetValue", "minimum", ADDED, WEBHOOK_SCHEMA),
    Allowed("AutoscalingPolicy", "*metrics[].targetValue", "pattern", CHANGED, WEBHOOK_SCHEMA + ": a quantity above 0"),
    Allowed("AutoscalingPolicy", "*metricSources", "maxProperties", ADDED, COST),
    Allowed("AutoscalingPolicy", "*metricSources{}", "rule: *", CHANGED, GUARDED),
    Allowed("AutoscalingPolicy", "spec.heterogeneousTarget.params[].target.metricSources{}", "rule: *", REMOVED, "stands at params: items of an atomic list have no old value to compare with"),
    Allowed("AutoscalingPolicy", "spec.heterogeneousTarget.params", "rule: * in each of metricSources", ADDED, GUARDED),
    Allowed("AutoscalingPolicy", "spec.heterogeneousTarget.params", "rule: minReplicas*", ADDED, "bounds that nothing satisfies can never act"),
    Allowed("AutoscalingPolicy", "spec.heterogeneousTarget.params", "maxItems", ADDED, COST),
    Allowed("AutoscalingPolicy", "spec.homogeneousTarget", "rule: minReplicas*", ADDED, "bounds that nothing satisfies can never act"),
    Allowed("AutoscalingPolicy", "spec.h*Target*", "required", CHANGED, WEBHOOK_SCHEMA + ": a target"),
    Allowed("AutoscalingPolicy", "*.targetRef", "required", ADDED, WEBHOOK_SCHEMA + ": a name"),
    Allowed("AutoscalingPolicy", "*.targetRef.name", "minLength", ADDED, WEBHOOK_SCHEMA),
    Allowed("AutoscalingPolicy", "*.targetRef.kind", "enum", ADDED, WEBHOOK_SCHEMA),
    Allowed("AutoscalingPolicy", "spec.disaggregatedTarget", "rule: roles must contain*", CHANGED, GUARDED),
    Allowed("AutoscalingPolicy", "spec.disaggregatedTarget*", "rule: *", ADDED, WEBHOOK),
    Allowed("AutoscalingPolicy", "spec.disaggregatedTarget.ratioConstraint", "rule: numeratorRole and*", CHANGED, GUARDED),
    # --- ModelServer
    Allowed("ModelServer", "spec.trafficPolicy.*", "pattern", ADDED, "a text that is no duration is a field error; Kthena fails to decode it"),
    Allowed("ModelServer", "spec.trafficPolicy.*", "rule: must be a duration*", ADDED, NEVER_ACTS),
    Allowed("ModelServer", "spec.trafficPolicy.retry.attempts", "minimum", ADDED, NEVER_ACTS),
    Allowed("ModelServer", "spec.trafficPolicy.retry.attempts", "maximum", ADDED, INT32),
    Allowed("ModelServer", "spec.workloadSelector", "required", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServer", "spec.workloadSelector.*abels", "minProperties", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelServer", "spec.workloadSelector.*abels", "maxProperties", ADDED, COST),
    Allowed("ModelServer", "spec.workloadSelector.*abels", "rule: *", ADDED, WEBHOOK),
    Allowed("ModelServer", "spec.workloadSelector.*abels{}", "*", ADDED, WEBHOOK_SCHEMA + ": label values"),
    Allowed("ModelServer", "spec.workloadSelector.pdGroup.groupKey", "rule: *", ADDED, "no pod can carry a label that is none; Kthena asks only that it is not empty"),
    Allowed("ModelServer", "status.*", "field", ADDED, "Kthena's status is an empty object: nothing can be stored"),
    # --- ModelRoute
    Allowed("ModelRoute", "", "required", REMOVED, "the rule says it; `required` at the root would lock what was stored without a spec"),
    Allowed("ModelRoute", "spec", "rule: ModelName and LoraAdapters*", REMOVED, "its expression fails where a field is absent"),
    Allowed("ModelRoute", "spec", "rule: a route needs*", ADDED, "in place of Kthena's, with presence tests and a guard"),
    Allowed("ModelRoute", "spec", "rule: a route with loraAdapters*", ADDED, WEBHOOK),
    Allowed("ModelRoute", "spec.loraAdapters[]", "minLength", ADDED, WEBHOOK_SCHEMA),
    Allowed("ModelRoute", "spec.rateLimit.*TokensPerUnit", "maximum", ADDED, INT32),
    Allowed("ModelRoute", "spec.rateLimit.unit", "allOf", REMOVED, "Kthena's schema has the same enumeration twice"),
    Allowed("ModelRoute", "spec.rateLimit.unit", "enum", ADDED, "Kthena's schema has the same enumeration twice"),
    Allowed("ModelRoute", "spec.rules[].targetModels[]", "rule: *", REMOVED, "stands at rules: items of an atomic list have no old value to compare with"),
    Allowed("ModelRoute", "spec.rules", "rule: exactly one*", ADDED, GUARDED),
    Allowed("ModelRoute", "spec.rules", "rule: the weights*", ADDED, WEBHOOK),
    Allowed("ModelRoute", "spec.rules", "rule: *RE2*", ADDED, WEBHOOK),
    Allowed("ModelRoute", "spec.rules[].modelMatch.headers", "maxProperties", ADDED, COST),
    Allowed("ModelRoute", "spec.rules[].modelMatch.*regex", "maxLength", ADDED, COST),
    Allowed("ModelRoute", "status.*", "field", ADDED, "Kthena's status is an empty object: nothing can be stored"),
    # --- ExternalModelProvider
    Allowed("ExternalModelProvider", "spec.auth", "rule: secretRef needs*", ADDED, WEBHOOK),
    Allowed("ExternalModelProvider", "spec.auth", "rule: secretRef.optional*", CHANGED, GUARDED),
    Allowed("ExternalModelProvider", "spec.auth.secretRef.key", "minLength", ADDED, WEBHOOK_SCHEMA),
    Allowed("ExternalModelProvider", "spec.baseURL", "pattern", CHANGED, WEBHOOK_SCHEMA + ": no user info, query or fragment"),
    Allowed("ExternalModelProvider", "spec.baseURL", "rule: *", ADDED, WEBHOOK),
    Allowed("ExternalModelProvider", "spec.headers", "rule: *", ADDED, WEBHOOK),
    Allowed("ExternalModelProvider", "spec.headers", "maxProperties", ADDED, COST),
    Allowed("ExternalModelProvider", "spec.headers{}", "pattern", ADDED, WEBHOOK_SCHEMA + ": no line breaks"),
)  # fmt: skip
"""The differences table."""


def compare(
    kind: str, theirs: dict[str, Any], ours: dict[str, Any], at: str = ""
) -> Iterator[Difference]:
    """All differences of two schemas. A field that one side lacks is one difference."""
    yield from _differing(kind, at, dict(keywords(theirs)), dict(keywords(ours)))
    their_nodes, our_nodes = dict(children(theirs, at)), dict(children(ours, at))
    for path in sorted(their_nodes | our_nodes):
        if path not in our_nodes:
            yield Difference(kind, path, "field", REMOVED)
        elif path not in their_nodes:
            yield Difference(kind, path, "field", ADDED)
        else:
            yield from compare(kind, their_nodes[path], our_nodes[path], path)


def _differing(
    kind: str, at: str, theirs: dict[str, Any], ours: dict[str, Any]
) -> Iterator[Difference]:
    for name in sorted(theirs | ours):
        if name not in ours:
            yield Difference(kind, at, name, REMOVED)
        elif name not in theirs:
            yield Difference(kind, at, name, ADDED)
        elif theirs[name] != ours[name]:
            yield Difference(kind, at, name, CHANGED)


def _all_differences() -> list[Difference]:
    found: list[Difference] = []
    for kind in DEFINITIONS:
        ours = definition(kind)
        theirs = require_reference_crd(ours["metadata"]["name"])
        name = kind.info.resource.kind
        found += compare(name, crd_schema(theirs), crd_schema(ours))
    return found


def test_every_difference_to_kthena_is_a_row_and_every_row_a_difference() -> None:
    differences = _all_differences()
    unlisted = [
        str(difference)
        for difference in differences
        if not any(row.covers(difference) for row in ALLOWED)
    ]
    unused = [row for row in ALLOWED if not any(row.covers(found) for found in differences)]
    assert unlisted == []
    assert unused == []
    print(f"\n{len(differences)} differences to Kthena's schemas, {len(ALLOWED)} rows")


def test_no_field_of_kthena_is_missing() -> None:
    removed = [str(found) for found in _all_differences() if found[2:] == ("field", REMOVED)]
    assert removed == []


@pytest.mark.parametrize("kind", DEFINITIONS, ids=lambda kind: kind.info.resource.kind)
def test_names_columns_and_subresources_of_kthena_are_there(kind: Any) -> None:
    ours = definition(kind)
    theirs = require_reference_crd(ours["metadata"]["name"])
    assert theirs["spec"]["names"].items() <= ours["spec"]["names"].items()
    assert theirs["spec"]["scope"] == ours["spec"]["scope"]
    (their_version,), (our_version,) = theirs["spec"]["versions"], ours["spec"]["versions"]
    assert their_version["subresources"] == our_version["subresources"]
    our_columns = {column["name"]: column for column in our_version["additionalPrinterColumns"]}
    for column in their_version.get("additionalPrinterColumns", ()):
        assert our_columns[column["name"]] == column
