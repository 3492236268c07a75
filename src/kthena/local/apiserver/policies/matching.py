"""Which requests a policy, or a binding of one, is for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kthena.machinery.objects import Object, labels_of
from kthena.machinery.resources import Resource
from kthena.machinery.selectors import label_selector_from_object


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is known of a request when its object is admitted."""

    operation: str
    """`CREATE`, `UPDATE`, `DELETE` or `CONNECT`."""

    resource: Resource
    """What the path names; the kind is that of `object`."""

    subresource: str
    kind: tuple[str, str, str]
    """Group, version and kind of what is sent to the path."""

    namespace: str
    """For a namespace itself, its name."""

    name: str
    """Empty where the server generates it, or where a collection is deleted."""

    object: Object | None
    old_object: Object | None
    options: Object
    user: Object
    dry_run: bool
    equivalents: Sequence[Resource] = ()
    """Other resources that show the same objects."""

    convert: Callable[[Object, Resource], Object] | None = None
    """Gives an object the form of an equivalent resource."""


_EXEMPT_GROUP: Final = "admissionregistration.k8s.io"
_EXEMPT_KINDS: Final = frozenset(
    {
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    }
)


class Match(NamedTuple):
    """As which resource a request is looked at: the one that was asked for, or an equivalent."""

    resource: Resource
    kind: tuple[str, str, str]


def is_exempt(attributes: Attributes) -> bool:
    """Whether no policy is ever asked: what configures admission could otherwise lock itself in."""
    group, _, kind = attributes.kind
    return group == _EXEMPT_GROUP and kind in _EXEMPT_KINDS


def match(
    criteria: Object, attributes: Attributes, namespace_labels: Mapping[str, str]
) -> Match | None:
    """Whether `matchConstraints` or `matchResources` are for a request, and as what it is seen."""
    if not _selects_namespace(criteria, attributes, namespace_labels):
        return None
    if not _selects_object(criteria.get("objectSelector") or {}, attributes):
        return None
    policy = criteria.get("matchPolicy")
    excluded = criteria.get("excludeResourceRules") or ()
    if _match_rules(excluded, policy, attributes) is not None:
        return None
    rules = criteria.get("resourceRules") or ()
    if not rules:
        return Match(attributes.resource, attributes.kind)
    return _match_rules(rules, policy, attributes)


def _selects_namespace(criteria: Object, attributes: Attributes, labels: Mapping[str, str]) -> bool:
    if not attributes.namespace and attributes.resource.plural != "namespaces":
        # Selectors of namespaces exempt no cluster-scoped object.
        return True
    selector = label_selector_from_object(criteria.get("namespaceSelector") or {})
    return selector.empty or selector.matches(labels)


def _selects_object(selector: Object, attributes: Attributes) -> bool:
    parsed = label_selector_from_object(selector)
    if parsed.empty:
        return True
    return any(
        obj is not None and parsed.matches(labels_of(obj))
        for obj in (attributes.object, attributes.old_object)
    )


def _match_rules(
    rules: Iterable[Object], policy: str | None, attributes: Attributes
) -> Match | None:
    rules = list(rules)
    if any(_matches_rule(rule, attributes.resource, attributes) for rule in rules):
        return Match(attributes.resource, attributes.kind)
    if policy != "Equivalent":
        return None
    for rule in rules:
        for resource in attributes.equivalents:
            if _matches_rule(rule, resource, attributes):
                return Match(resource, _kind_at(resource, attributes))
    return None


def _kind_at(resource: Resource, attributes: Attributes) -> tuple[str, str, str]:
    """What is sent to the same path of an equivalent resource."""
    sent = attributes.resource
    if attributes.kind != (sent.group, sent.version, sent.kind):
        return attributes.kind
    return (resource.group, resource.version, resource.kind)


def _matches_rule(rule: Object, resource: Resource, attributes: Attributes) -> bool:
    names = rule.get("resourceNames") or ()
    return (
        _matches_scope(rule.get("scope") or "*", resource, attributes)
        and _is_among(rule.get("operations"), attributes.operation)
        and _is_among(rule.get("apiGroups"), resource.group)
        and _is_among(rule.get("apiVersions"), resource.version)
        and any(
            _matches_resource(text, resource.plural, attributes.subresource)
            for text in rule.get("resources") or ()
        )
        and (not names or attributes.name in names)
    )


def _is_among(items: Sequence[str] | None, wanted: str) -> bool:
    return any(item in ("*", wanted) for item in items or ())


def _matches_resource(text: str, plural: str, subresource: str) -> bool:
    resource, _, sub = text.partition("/")
    return resource in ("*", plural) and sub in ("*", subresource)


def _matches_scope(scope: str, resource: Resource, attributes: Attributes) -> bool:
    if scope == "*":
        return True
    is_namespace = (resource.group, resource.plural) == ("", "namespaces")
    is_cluster_wide = is_namespace or not attributes.namespace
    return is_cluster_wide == (scope == "Cluster")
