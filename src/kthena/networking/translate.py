"""ModelRoutes and ModelServers as the router takes them.

An object that cannot be followed to the letter is translated with a fault: an unsupported field, a
value that has no meaning, a shape that is not the kind's. A route with a fault serves nothing and a
server with one takes no traffic; clients and status say why in the same words.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kthena.api.meta import DecodeError
from kthena.api.networking import modelroute, modelserver
from kthena.api.unsupported import REASON as NOT_SUPPORTED
from kthena.api.unsupported import Unsupported, unsupported_fields
from kthena.machinery.durations import SECOND, DurationError, parse_duration
from kthena.machinery.fields import ErrorType, FieldError
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    generation_of,
    key_of,
    metadata_of,
)
from kthena.networking.pods import PodView
from kthena.router.routes.compile import CompiledRoute, compile_route
from kthena.router.routes.spec import (
    EndpointSpec,
    Role,
    Route,
    Rule,
    RuleMatch,
    Server,
    StringMatch,
    Target,
)

INVALID: Final = "Invalid"

Refusals = Callable[[Object], Iterable[Unsupported]]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why an object is not followed: a reason for conditions, and the text."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ObservedRoute:
    """A ModelRoute. Without a readable spec its route claims no name and has no rules."""

    key: NamespacedName
    generation: int
    created: str
    """`creationTimestamp`; such texts sort by time."""
    compiled: CompiledRoute
    fault: Fault | None
    warnings: tuple[str, ...]
    """What the object says that acts otherwise than its author may think."""

    @property
    def route(self) -> Route:
        """The route before compilation."""
        return self.compiled.route


@dataclass(frozen=True, slots=True)
class PairLabels:
    """How the pods of a disaggregated server are told apart and paired."""

    group_key: str
    prefill: Mapping[str, str]
    decode: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ObservedServer:
    """A ModelServer, and which pods it selects."""

    key: NamespacedName
    generation: int
    server: Server
    labels: Mapping[str, str]
    pairs: PairLabels | None
    fault: Fault | None


def observe_route(
    obj: Object,
    *,
    refusals: Refusals = unsupported_fields,
    previous: ObservedRoute | None = None,
) -> ObservedRoute:
    """Translate a ModelRoute.

    What is equal to `previous` keeps its compiled form; of a route that differs, rules that are
    equal keep the state of their draws.
    """
    key = key_of(obj)
    rules: tuple[Rule, ...] = ()
    model_name = ""
    adapters: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    fault: Fault | None = None
    try:
        spec = modelroute.decode(obj).spec
    except DecodeError as error:
        fault = Fault(INVALID, str(error))
    else:
        fault = _unsupported(obj, refusals)
        model_name = spec.model_name or ""
        adapters = tuple(dict.fromkeys(spec.lora_adapters))
        rules = tuple(_rule_of(rule, key.namespace) for rule in spec.rules)
        warnings = tuple(_warnings_of(spec))
    refusal = None if fault is None else f"ModelRoute {key} is not served: {fault.message}"
    route = Route(key, model_name, adapters, rules, refusal)
    before = None if previous is None else previous.compiled
    if before is not None and before.route == route:
        compiled = before
    else:
        compiled = compile_route(route, before)
    created = str(metadata_of(obj).get("creationTimestamp") or "")
    return ObservedRoute(key, generation_of(obj), created, compiled, fault, warnings)


def observe_server(obj: Object, *, refusals: Refusals = unsupported_fields) -> ObservedServer:
    """Translate a ModelServer."""
    key, generation = key_of(obj), generation_of(obj)
    fault: Fault | None = None
    try:
        spec = modelserver.decode(obj).spec
    except DecodeError as error:
        fault = Fault(INVALID, str(error))
        return ObservedServer(
            key, generation, Server(key, None, 0, refusal=str(error)), {}, None, fault
        )
    fault = _unsupported(obj, refusals)
    timeout_s = None
    try:
        timeout_s = _timeout_of(spec.traffic_policy)
    except DurationError as error:
        fault = fault or _invalid_timeout(spec.traffic_policy, error)
    selector = spec.workload_selector
    pairs = None
    if selector.pd_group is not None:
        group = selector.pd_group
        pairs = PairLabels(group.group_key, group.prefill_labels, group.decode_labels)
    server = Server(
        key,
        spec.model or None,
        spec.workload_port.port,
        timeout_s=timeout_s,
        disaggregated=pairs is not None,
        refusal=None if fault is None else fault.message,
    )
    return ObservedServer(key, generation, server, selector.match_labels, pairs, fault)


def endpoint_of(server: ObservedServer, pod: PodView) -> EndpointSpec:
    """A ready pod of the server as an endpoint, with its group and role where there are any.

    A pod that has the labels of both roles decodes, as with Kthena; one without a group has no role.
    """
    port = server.server.port
    pairs = server.pairs
    if pairs is not None:
        group = pod.labels.get(pairs.group_key, "")
        role = _role_of(pod.labels, pairs)
        if group and role is not None:
            return EndpointSpec(pod.key, pod.uid, pod.host, port, group, role)
    return EndpointSpec(pod.key, pod.uid, pod.host, port)


def _role_of(labels: Mapping[str, str], pairs: PairLabels) -> Role | None:
    for role, wanted in ((Role.DECODE, pairs.decode), (Role.PREFILL, pairs.prefill)):
        if wanted and wanted.items() <= labels.items():
            return role
    return None


def _unsupported(obj: Object, refusals: Refusals) -> Fault | None:
    found = list(refusals(obj))
    return Fault(NOT_SUPPORTED, "; ".join(map(str, found))) if found else None


def _timeout_of(policy: modelserver.TrafficPolicy | None) -> float | None:
    """Seconds until the reply must begin; None where that is unlimited (unset, or not positive)."""
    if policy is None or policy.timeout is None:
        return None
    nanoseconds = parse_duration(policy.timeout)
    return nanoseconds / SECOND if nanoseconds > 0 else None


def _invalid_timeout(policy: modelserver.TrafficPolicy | None, error: DurationError) -> Fault:
    """A schema without the pattern let this one in."""
    value = None if policy is None else policy.timeout
    where = "spec.trafficPolicy.timeout"
    return Fault(INVALID, str(FieldError(where, ErrorType.INVALID, value, str(error))))


def _rule_of(rule: modelroute.RouteRule, namespace: str) -> Rule:
    match = None
    if rule.model_match is not None:
        conditions = rule.model_match
        match = RuleMatch(
            tuple((name, _string_match(test)) for name, test in conditions.headers.items()),
            None if conditions.uri is None else _string_match(conditions.uri),
            None if conditions.body is None else conditions.body.model,
        )
    targets = tuple(
        Target(NamespacedName(namespace, target.model_server_name or ""), target.weight)
        for target in rule.target_models
    )
    return Rule(rule.name or "", match, targets)


def _string_match(test: modelroute.StringMatch) -> StringMatch:
    return StringMatch(test.exact, test.prefix, test.regex)


def _warnings_of(spec: modelroute.ModelRouteSpec) -> Iterable[str]:
    for index, rule in enumerate(spec.rules):
        if rule.model_match is None:
            continue
        where = f"spec.rules[{index}].modelMatch"
        tests = [
            (f"{where}.headers[{name}]", test) for name, test in rule.model_match.headers.items()
        ]
        if rule.model_match.uri is not None:
            tests.append((f"{where}.uri", rule.model_match.uri))
        for path, test in tests:
            given = [
                name for name in ("exact", "prefix", "regex") if getattr(test, name) is not None
            ]
            if len(given) > 1:
                yield f"{path} has {' and '.join(given)}; only {given[0]} counts"
