"""Policies applied to requests: those that are stored, with their bindings and parameters.

A policy counts from the moment at which it and a binding of it are stored. Audit annotations are
evaluated, since failures to do so can deny a request, and go nowhere: the server keeps no audit log.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kthena.api.kubernetes import NAMESPACES
from kthena.local.apiserver import errors
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.policies.compilation import Policy, compile_policy
from kthena.local.apiserver.policies.evaluation import Denial, evaluate
from kthena.local.apiserver.policies.matching import Attributes, Match, is_exempt, match
from kthena.local.apiserver.store import Change, Key, Store
from kthena.machinery.cel.library import authorization
from kthena.machinery.objects import Object, labels_of, name_of
from kthena.machinery.resources import Resource
from kthena.machinery.selectors import label_selector_from_object

POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
_BUCKETS: Final = (str(POLICIES), str(BINDINGS))
_NAMESPACE_BUCKET: Final = str(NAMESPACES)
_ALLOWED: Final = authorization.Decision(allowed=True)


class _ConfigurationError(Exception):
    """A policy or a binding that cannot be applied; the text is for the user."""


class _Bound(NamedTuple):
    """A policy with its bindings."""

    policy: Policy
    bindings: list[Object]


@dataclass(slots=True)
class _Outcome:
    """Mutable state of one request: what speaks against it, and what its client is told."""

    denied: list[tuple[str, Denial]]
    warnings: list[str]


class Enforcer:
    """Mutable state: the compiled policies with bindings, until a policy or a binding changes."""

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store = store
        self._catalog = catalog
        self._bound: list[_Bound] | None = None

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        del obj
        if change.bucket in _BUCKETS:
            self._bound = None

    @property
    def active(self) -> bool:
        """Whether there is any policy to apply."""
        return bool(self._policies())

    def _policies(self) -> list[_Bound]:
        if self._bound is None:
            self._bound = list(self._load())
        return self._bound

    def _load(self) -> Iterable[_Bound]:
        bindings: dict[str, list[Object]] = {}
        for stored in self._store.list(_BUCKETS[1]):
            binding = stored.decode()
            bindings.setdefault(binding["spec"].get("policyName") or "", []).append(binding)
        for name, found in sorted(bindings.items()):
            entry = self._store.get(_BUCKETS[0], Key("", name))
            if entry is not None:
                yield _Bound(compile_policy(name, entry.decode()["spec"]), found)

    def review(self, attributes: Attributes, warnings: list[str]) -> None:
        """Apply all policies to a request; what its client should know is added to `warnings`.

        Raises:
            ApiError: 422 or what a policy gives as the reason, it is denied.
        """
        if is_exempt(attributes):
            return
        outcome = _Outcome([], [])
        namespace = self._namespace(attributes)
        labels = self._namespace_labels(attributes, namespace)
        for bound in self._policies():
            self._apply(bound, attributes, namespace, labels, outcome)
        warnings += [text for text in outcome.warnings if text not in warnings]
        if outcome.denied:
            subject, denial = outcome.denied[0]
            message = f"{subject} denied request: {denial.message}"
            shown = attributes.name or _name_to_be(attributes.object) or "Unknown"
            reason = denial.reason or "Invalid"
            raise errors.denied_by_policy(attributes.resource, shown, message, reason)

    def _apply(
        self,
        bound: _Bound,
        attributes: Attributes,
        namespace: Object | None,
        labels: dict[str, str],
        outcome: _Outcome,
    ) -> None:
        policy = bound.policy
        subject = f"ValidatingAdmissionPolicy '{policy.name}'"
        found = match(policy.spec.get("matchConstraints") or {}, attributes, labels)
        if found is None:
            return
        try:
            kind = self._param_kind(policy)
        except _ConfigurationError as exc:
            _refuse(policy, subject, f"failed to configure policy: {exc}", outcome)
            return
        seen = _seen_as(attributes, found)
        for binding in bound.bindings:
            resources = binding["spec"].get("matchResources")
            if resources is not None and match(resources, attributes, labels) is None:
                continue
            text = f"{subject} with binding '{name_of(binding)}'"
            try:
                params = self._params(kind, binding["spec"].get("paramRef"), attributes.namespace)
            except _ConfigurationError as exc:
                _refuse(policy, text, f"failed to configure binding: {exc}", outcome)
                continue
            for param in params:
                verdict = evaluate(policy, seen, found, param, namespace, _authorize)
                for denial in verdict.denials:
                    _act(binding, text, denial, outcome)
                outcome.denied += [(text, failure) for failure in verdict.annotation_failures]

    def _namespace(self, attributes: Attributes) -> Object | None:
        """The namespace of the object, as expressions see it."""
        if not attributes.namespace or attributes.kind == ("", "v1", "Namespace"):
            return None
        entry = self._store.get(_NAMESPACE_BUCKET, Key("", attributes.namespace))
        if entry is None:
            return None
        found = entry.decode()
        hidden = ("managedFields", "ownerReferences")
        metadata = {key: value for key, value in found["metadata"].items() if key not in hidden}
        return {"metadata": metadata, "spec": found["spec"], "status": found["status"]}

    def _namespace_labels(self, attributes: Attributes, namespace: Object | None) -> dict[str, str]:
        if attributes.resource.plural != "namespaces":
            return dict(labels_of(namespace)) if namespace is not None else {}
        if attributes.object is not None and not attributes.subresource:
            return dict(labels_of(attributes.object))
        return dict(labels_of(attributes.old_object or {"metadata": {}}))

    def _param_kind(self, policy: Policy) -> Kind | None:
        wanted = policy.spec.get("paramKind")
        if wanted is None:
            return None
        version, name = wanted.get("apiVersion") or "", wanted.get("kind") or ""
        kind = self._catalog.find_by_kind(version, name)
        if kind is None or kind.create is not None:
            shown = version if "/" in version else f"/{version}"
            text = f"failed to find resource referenced by paramKind: '{shown}, Kind={name}'"
            raise _ConfigurationError(text)
        return kind

    def _params(
        self, kind: Kind | None, reference: Object | None, namespace: str
    ) -> list[Object | None]:
        """The parameters of a binding; one that is None where it has none."""
        if kind is None or reference is None:
            return [None]
        given = reference.get("namespace") or ""
        if kind.resource.namespaced:
            place = given or namespace
            if not place:
                raise _ConfigurationError(
                    "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                    "resources"
                )
        elif given:
            raise _ConfigurationError(
                "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
            )
        else:
            place = ""
        found = self._find_params(kind, reference, place)
        if not found and reference.get("parameterNotFoundAction") == "Deny":
            raise _ConfigurationError(
                "no params found for policy binding with `Deny` parameterNotFoundAction"
            )
        return list(found)

    def _find_params(self, kind: Kind, reference: Object, namespace: str) -> list[Object]:
        if reference.get("name"):
            entry = self._store.get(kind.bucket, Key(namespace, reference["name"]))
            return [] if entry is None else [kind.named(kind.read(entry))]
        selector = label_selector_from_object(reference.get("selector"))
        return [
            kind.named(kind.read(entry))
            for entry in self._store.list(kind.bucket, namespace)
            if selector.matches(entry.labels)
        ]


def _authorize(asked: authorization.Attributes) -> authorization.Decision:
    """The server lets whoever has the token do everything."""
    del asked
    return _ALLOWED


def _name_to_be(obj: Object | None) -> str:
    if obj is None:
        return ""
    return str(name_of(obj) or obj["metadata"].get("generateName") or "")


def _seen_as(attributes: Attributes, found: Match) -> Attributes:
    """The request with its objects in the version of the resource that was matched."""
    if found.resource is attributes.resource or attributes.convert is None:
        return attributes
    pair = (attributes.object, attributes.old_object)
    new, old = (None if obj is None else attributes.convert(obj, found.resource) for obj in pair)
    return replace(attributes, object=new, old_object=old)


def _refuse(policy: Policy, subject: str, text: str, outcome: _Outcome) -> None:
    if not policy.ignores_failures:
        outcome.denied.append((subject, Denial(text, "")))


def _act(binding: Object, subject: str, denial: Denial, outcome: _Outcome) -> None:
    """Do what a binding wants done with a denial."""
    for action in binding["spec"].get("validationActions") or ():
        if action == "Deny":
            outcome.denied.append((subject, denial))
        elif action == "Warn":
            outcome.warnings.append(f"Validation failed for {subject}: {denial.message}")
