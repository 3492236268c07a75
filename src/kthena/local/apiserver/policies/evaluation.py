"""What a policy says of a request: evaluation over plain data."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kthena.local.apiserver.policies.compilation import Expression, Policy, Validation
from kthena.local.apiserver.policies.matching import Attributes, Match
from kthena.local.apiserver.policies.variables import REQUEST_RESOURCE
from kthena.machinery.cel.evaluator import TURNS
from kthena.machinery.cel.library import authorization
from kthena.machinery.cel.library.authorization import Authorize, Authorizer, ResourceCheck
from kthena.machinery.cel.values import CelCancelledError, CelError, MapValue, equal
from kthena.machinery.objects import Object

_MAX_MESSAGE_BYTES: Final = 5 * 1024
_TURNS_PER_EXPRESSION: Final = 500_000


class Denial(NamedTuple):
    """Why a request is not to be admitted."""

    message: str
    reason: str
    """The reason of a Status; empty where the evaluation failed."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a policy says with one parameter."""

    denials: list[Denial]
    annotation_failures: list[Denial]
    """Audit annotations that could not be made; they deny whatever a binding wants done."""


_NOTHING_TO_SAY: Final = Verdict([], [])


class _FailedError(Exception):
    """An expression that gave no value; the text is for the user."""


class _Variables(MapValue):
    """The variables of a policy. Mutable state: the values of those that were asked for."""

    __slots__ = ("_expressions", "_known", "_scope")

    def __init__(self, expressions: Mapping[str, Expression], scope: dict[str, Any]) -> None:
        self._expressions = expressions
        self._scope = scope
        self._known: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._expressions)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._expressions)

    def find(self, key: Any) -> tuple[bool, Any]:
        """The value of a variable; its expression is evaluated once."""
        expression = self._expressions.get(key)
        if expression is None:
            return False, None
        if key not in self._known:
            self._known[key] = self._evaluate(key, expression)
        return True, self._known[key]

    def _evaluate(self, name: str, expression: Expression) -> Any:
        if expression.program is None:
            text = f'composited variable "{name}" fails to compile: {expression.problem}'
            raise CelError(text)
        try:
            return expression.program.evaluate(self._scope)
        except CelError as exc:
            text = f'composited variable "{name}" fails to evaluate: {exc}'
            raise CelError(text) from exc

    def equals(self, other: Any) -> bool:
        """Equality with another map."""
        return equal(self.raw(), other.raw() if isinstance(other, MapValue) else other)

    def raw(self) -> dict[str, Any]:
        """All values."""
        return {name: self.find(name)[1] for name in self._expressions}


def evaluate(
    policy: Policy,
    attributes: Attributes,
    match: Match,
    params: Object | None,
    namespace: Object | None,
    authorize: Authorize,
) -> Verdict:
    """What a policy says of a request that it matches."""
    scope = _scope(attributes, match, params, authorize)
    try:
        # Conditions do not see the namespace.
        conditions = {**scope, "namespaceObject": None}
        conditions["variables"] = _Variables(policy.variables, conditions)
        if not _meets_conditions(policy, conditions):
            return _NOTHING_TO_SAY
    except _FailedError as exc:
        return _NOTHING_TO_SAY if policy.ignores_failures else Verdict([Denial(str(exc), "")], [])
    scope["namespaceObject"] = namespace
    scope["variables"] = _Variables(policy.variables, scope)
    denials = [
        denial
        for validation in policy.validations
        if (denial := _judge(policy, validation, scope)) is not None
    ]
    failures = []
    for annotation in policy.annotations:
        try:
            _value(annotation, scope)
        except _FailedError as exc:
            if not policy.ignores_failures:
                failures.append(Denial(str(exc), ""))
    return Verdict(denials, failures)


def _scope(
    attributes: Attributes, match: Match, params: Object | None, authorize: Authorize
) -> dict[str, Any]:
    user = str(attributes.user.get("username") or "")
    resource = attributes.resource
    asked = authorization.Attributes(
        user,
        group=resource.group,
        resource=resource.plural,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )
    return {
        "object": attributes.object,
        "oldObject": attributes.old_object,
        "request": _request(attributes, match),
        "params": params,
        "authorizer": Authorizer(authorize, user),
        REQUEST_RESOURCE: ResourceCheck(authorize, asked),
    }


def _request(attributes: Attributes, match: Match) -> Object:
    resource = attributes.resource
    request: Object = {
        "uid": "",
        "kind": _kind(match.kind),
        "resource": _resource(match.resource.group, match.resource.version, match.resource.plural),
        "requestKind": _kind(attributes.kind),
        "requestResource": _resource(resource.group, resource.version, resource.plural),
        "operation": attributes.operation,
        "userInfo": attributes.user,
        "dryRun": attributes.dry_run,
        "options": attributes.options,
    }
    if attributes.subresource:
        request["subResource"] = request["requestSubResource"] = attributes.subresource
    for name, value in (("name", attributes.name), ("namespace", attributes.namespace)):
        if value:
            request[name] = value
    return request


def _kind(kind: tuple[str, str, str]) -> Object:
    return dict(zip(("group", "version", "kind"), kind, strict=True))


def _resource(*parts: str) -> Object:
    return dict(zip(("group", "version", "resource"), parts, strict=True))


def _meets_conditions(policy: Policy, scope: dict[str, Any]) -> bool:
    """Whether no condition is false; raises _FailedError where that cannot be said."""
    problems = []
    for condition in policy.match_conditions:
        try:
            if _value(condition, scope) is False:
                return False
        except _FailedError as exc:
            problems.append(str(exc))
    if not problems:
        return True
    distinct = list(dict.fromkeys(problems))
    text = distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
    if policy.ignores_failures:
        return False
    raise _FailedError(text)


def _judge(policy: Policy, validation: Validation, scope: dict[str, Any]) -> Denial | None:
    try:
        if _value(validation.condition, scope) is True:
            return None
    except _FailedError as exc:
        return None if policy.ignores_failures else Denial(str(exc), "")
    return Denial(_message(validation, scope), validation.reason)


def _message(validation: Validation, scope: dict[str, Any]) -> str:
    text = ""
    if validation.message_expression is not None:
        try:
            value = _value(validation.message_expression, scope)
        except _FailedError:
            value = ""
        text = value.strip() if isinstance(value, str) else ""
        if "\n" in text or len(text.encode("utf-8", "surrogatepass")) > _MAX_MESSAGE_BYTES:
            text = ""
    fallback = f"failed expression: {validation.condition.source.strip()}"
    return text or validation.message.strip() or fallback


def _value(expression: Expression, scope: dict[str, Any]) -> Any:
    if expression.program is None:
        raise _FailedError(f"compilation error: {expression.problem}")
    scope[TURNS] = [_TURNS_PER_EXPRESSION]
    evaluate_one: Callable[[dict[str, Any]], Any] = expression.program.evaluate
    try:
        return evaluate_one(scope)
    except (CelError, CelCancelledError) as exc:
        text = f"expression '{expression.source}' resulted in error: {exc}"
        raise _FailedError(text) from exc
