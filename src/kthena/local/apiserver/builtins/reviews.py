"""Reviews: who a client is, what it may do, and whose a token is.

They are answered and not stored. Nobody's rights are checked, so everything is allowed.
"""

import hmac
from collections.abc import Callable
from typing import Any, Final

from kthena.local.apiserver import errors
from kthena.local.apiserver.builtins import printers
from kthena.local.apiserver.builtins.fielderrors import invalid, required
from kthena.local.apiserver.builtins.representation import builtin
from kthena.local.apiserver.identity import ROOT
from kthena.local.apiserver.kinds import Asker, Kind, Names
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.machinery.fields import ErrorList
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

_AUTHORIZATION: Final = "authorization.k8s.io"
_AUTHENTICATION: Final = "authentication.k8s.io"
_AUDIENCE: Final = "https://kubernetes.default.svc"
_ALLOWED: Final = {"allowed": True}
_ONE_OF: Final = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_EVERYTHING: Final[Object] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}

Answer = Callable[[Object, Asker], Object]


def review_own_access(review: Object, asker: Asker) -> Object:
    """A SelfSubjectAccessReview with its answer.

    Raises:
        ApiError: 422, it asks for nothing or for too much.
    """
    del asker
    _check(_check_access(review["spec"]) + _check_empty(review))
    return {**review, "status": _ALLOWED}


def review_access(review: Object, asker: Asker) -> Object:
    """A SubjectAccessReview with its answer; raises as that of the client itself."""
    del asker
    _check(_check_access(review["spec"], of_others=True) + _check_empty(review))
    return {**review, "status": _ALLOWED}


def review_local_access(review: Object, asker: Asker) -> Object:
    """A LocalSubjectAccessReview with its answer.

    Raises:
        ApiError: 422 as above; 400, it is of another namespace than its path.
    """
    metadata, spec = dict(review.get("metadata") or {}), review["spec"]
    if metadata.setdefault("namespace", asker.namespace) != asker.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    found = _check_access(spec, of_others=True)
    if set(metadata) - {"namespace"}:
        found.append(invalid("metadata", metadata, "must be empty except for namespace"))
    attributes, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if attributes is not None and (attributes.get("namespace") or "") != asker.namespace:
        namespace = attributes.get("namespace") or ""
        path, detail = "spec.resourceAttributes.namespace", "must match metadata.namespace"
        found.append(invalid(path, namespace, detail))
    if other is not None:
        detail = "disallowed on this kind of request"
        found.append(invalid("spec.nonResourceAttributes", _as_printed(other), detail))
    _check(found)
    return {**review, "metadata": metadata, "status": _ALLOWED}


def review_own_rules(review: Object, asker: Asker) -> Object:
    """A SelfSubjectRulesReview with its answer: everything.

    Raises:
        ApiError: 400, it names no namespace.
    """
    del asker
    if not review["spec"].get("namespace"):
        raise errors.bad_request("no namespace on request")
    return {"metadata": {}, "spec": {}, "status": _EVERYTHING}


def review_subject(review: Object, asker: Asker) -> Object:
    """A SelfSubjectReview with its answer."""
    del review
    return {"metadata": {}, "status": {"userInfo": asker.user}}


def token_reviewer(token: str) -> Answer:
    """What answers TokenReviews of a server whose clients have `token`."""

    def review_token(review: Object, asker: Asker) -> Object:
        del asker
        given = review["spec"].get("token") or ""
        if not given:
            raise errors.bad_request("token is required for TokenReview in authentication")
        status: Object = {"user": {}, "error": "invalid bearer token"}
        if hmac.compare_digest(given.encode(), token.encode()):
            audiences = review["spec"].get("audiences") or [_AUDIENCE]
            status = {"authenticated": True, "user": dict(ROOT), "audiences": audiences}
        return {**review, "status": status}

    return review_token


def _check(found: ErrorList) -> None:
    if found:
        raise errors.invalid(_AUTHORIZATION, "", "", found)


def _check_empty(review: Object) -> ErrorList:
    metadata = review.get("metadata")
    return [invalid("metadata", metadata, "must be empty")] if metadata else []


def _check_access(spec: Object, *, of_others: bool = False) -> ErrorList:
    attributes, other = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    errors_found: ErrorList = []
    if attributes is not None and other is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        errors_found.append(invalid("spec.nonResourceAttributes", _as_printed(other), detail))
    if attributes is None and other is None:
        errors_found.append(invalid("spec.resourceAttributes", None, _ONE_OF))
    if of_others and not spec.get("user") and not spec.get("groups"):
        detail = "at least one of user or group must be specified"
        errors_found.append(invalid("spec.user", "", detail))
    for name in ("fieldSelector", "labelSelector"):
        selector = (attributes or {}).get(name)
        if selector is not None:
            errors_found += _check_selector(selector, f"spec.resourceAttributes.{name}")
    return errors_found


def _check_selector(selector: Object, path: str) -> ErrorList:
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or []
    found: ErrorList = []
    if raw and requirements:
        detail = "may not specified at the same time as requirements"
        found.append(invalid(f"{path}.rawSelector", raw, detail))
    if not raw and not requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        found.append(required(f"{path}.requirements", detail))
    for index, requirement in enumerate(requirements):
        below, operator = f"{path}.requirements[{index}]", requirement["operator"]
        if not requirement["key"]:
            found.append(required(f"{below}.key", "must be specified"))
        if operator in ("In", "NotIn") and not requirement.get("values"):
            detail = "must be specified when `operator` is 'In' or 'NotIn'"
            found.append(required(f"{below}.values", detail))
    return found


def _as_printed(attributes: Object) -> dict[str, Any]:
    """Attributes with the names of their fields inside the API server, which its errors show."""
    return {"Path": attributes.get("path") or "", "Verb": attributes.get("verb") or ""}


def review_kinds(token: str) -> list[Kind]:
    """All reviews of a server whose clients have `token`."""
    return [
        _review_kind(_AUTHORIZATION, "SelfSubjectAccessReview", review_own_access),
        _review_kind(_AUTHORIZATION, "SelfSubjectRulesReview", review_own_rules),
        _review_kind(_AUTHORIZATION, "SubjectAccessReview", review_access),
        _review_kind(
            _AUTHORIZATION, "LocalSubjectAccessReview", review_local_access, namespaced=True
        ),
        _review_kind(_AUTHENTICATION, "SelfSubjectReview", review_subject),
        _review_kind(_AUTHENTICATION, "TokenReview", token_reviewer(token)),
    ]


def _review_kind(group: str, name: str, answer: Answer, *, namespaced: bool = False) -> Kind:
    resource = Resource(group, "v1", f"{name.lower()}s", name, namespaced=namespaced)
    return Kind(
        builtin(resource),
        PlainStrategy(),
        printers.PLAIN,
        Names(name.lower()),
        verbs=("create",),
        create=answer,
    )
