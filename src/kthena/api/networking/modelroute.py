"""ModelRoute: which requests go to which ModelServer."""

from typing import Annotated, Literal

from msgspec import field

from kthena.api.markers import UINT32_MAX, Generation, schema
from kthena.api.meta import ApiStruct, Condition, ObjectMeta
from kthena.api.meta import decode as decode_as
from kthena.api.rules import REQUIRED, Rule, Transition, Unchanged, spec_required
from kthena.machinery.objects import Object

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"

TokenLimit = Annotated[int, schema(format="int32", minimum=1, maximum=UINT32_MAX)]


class ParentReference(ApiStruct, frozen=True, kw_only=True):
    """A Gateway that a route is attached to."""

    group: Annotated[str, schema(max_length=253, pattern=f"^$|^{_SUBDOMAIN}$")] = (
        "gateway.networking.k8s.io"
    )
    """The API group of the parent."""

    kind: Annotated[
        str, schema(min_length=1, max_length=63, pattern=r"^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$")
    ] = "Gateway"
    """The kind of the parent."""

    namespace: (
        Annotated[
            str, schema(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
        ]
        | None
    ) = None
    """The namespace of the parent; unset means the route's own."""

    name: Annotated[str, schema(min_length=1, max_length=253)]
    """The name of the parent."""

    section_name: (
        Annotated[str, schema(min_length=1, max_length=253, pattern=f"^{_SUBDOMAIN}$")] | None
    ) = None
    """The listener of the Gateway; unset means all."""

    port: Annotated[int, schema(format="int32", minimum=1, maximum=65535)] | None = None
    """The port of the Gateway's listeners; unset means all."""


class StringMatch(ApiStruct, frozen=True, kw_only=True):
    """A test of a text. Set one field.

    Of several, `exact` goes before `prefix` before `regex`; with none set every text passes.
    """

    exact: str | None = None
    """The whole text."""

    prefix: str | None = None
    """What the text begins with."""

    regex: Annotated[str, schema(max_length=4096)] | None = None
    """A regular expression in RE2 syntax, found anywhere in the text."""


class BodyMatch(ApiStruct, frozen=True, kw_only=True):
    """A test of the request body."""

    model: str | None = None
    """The exact `model` of the request; tells the adapters of a route apart."""


class ModelMatch(ApiStruct, frozen=True, kw_only=True):
    """Tests of a request, all of which must pass."""

    headers: Annotated[dict[str, StringMatch], schema(max_properties=64)] = field(
        default_factory=dict
    )
    """Tests of headers by name."""

    uri: StringMatch | None = None
    """A test of the path."""

    body: BodyMatch | None = None
    """A test of the request body."""


class TargetModel(ApiStruct, frozen=True, kw_only=True):
    """One destination of a rule. Give one of the two names."""

    model_server_name: str | None = None
    """A ModelServer of the same namespace."""

    external_model_provider_name: str | None = None
    """An ExternalModelProvider of the same namespace; not for routes with `loraAdapters`."""

    weight: Annotated[int, schema(format="int32", minimum=0, maximum=100)] = 100
    """The share of requests, in proportion to the sum of all weights of the rule."""


class RouteRule(ApiStruct, frozen=True, kw_only=True):
    """Requests that match go to one of the targets."""

    name: str | None = None
    """A name for people and logs."""

    model_match: ModelMatch | None = None
    """Which requests the rule takes; unset means all."""

    target_models: Annotated[list[TargetModel], schema(min_items=1, max_items=16)]
    """Where the requests go, by weight."""


class RedisConfig(ApiStruct, frozen=True, kw_only=True):
    """A Redis server."""

    address: str
    """Host and port, for instance `redis.default.svc:6379`."""


class GlobalRateLimit(ApiStruct, frozen=True, kw_only=True):
    """A limit that all routers share."""

    redis: RedisConfig | None = None
    """Where the balance is kept; unset means that each router keeps its own."""


class RateLimit(ApiStruct, frozen=True, kw_only=True):
    """How many tokens the route may use."""

    input_tokens_per_unit: TokenLimit | None = None
    """The most prompt tokens per unit of time; unset means no limit."""

    output_tokens_per_unit: TokenLimit | None = None
    """The most completion tokens per unit of time; unset means no limit."""

    unit: Annotated[Literal["second", "minute", "hour", "day", "month"], schema(required=True)] = (
        "second"
    )
    """The unit of time; a month has 30 days."""

    global_: GlobalRateLimit | None = field(name="global", default=None)
    """Set for a limit that all routers share."""


class ModelRouteSpec(ApiStruct, frozen=True, kw_only=True):
    """Which requests go where."""

    model_name: str | None = None
    """The `model` of the requests that this route takes. Cannot be changed once set."""

    lora_adapters: Annotated[list[Annotated[str, schema(min_length=1)]], schema(max_items=10)] = (
        field(default_factory=list)
    )
    """LoRA adapters that this route takes, by the names that requests use."""

    parent_refs: list[ParentReference] = field(default_factory=list)
    """Gateways that the route is attached to; empty means the router's own listener."""

    rules: Annotated[list[RouteRule], schema(max_items=16)]
    """The first rule that matches a request decides."""

    rate_limit: RateLimit | None = None
    """How many tokens the route may use."""


class ParentStatus(ApiStruct, frozen=True, kw_only=True):
    """What became of the route at one Gateway."""

    parent_ref: ParentReference
    """The Gateway, as in the spec."""

    controller_name: str
    """Who wrote this entry."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Accepted` and `ResolvedRefs` at this Gateway."""


class ModelRouteStatus(ApiStruct, frozen=True, kw_only=True):
    """What became of the route."""

    observed_generation: Generation = 0
    """The `metadata.generation` that this status speaks of."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Accepted` (no older route claims the model, every rule compiles), `ResolvedRefs` (the
    targets exist) and `Ready`."""

    parents: Annotated[list[ParentStatus], schema(list_type="atomic", max_items=32)] = field(
        default_factory=list
    )
    """What became of the route at each Gateway that it names."""


class ModelRoute(ApiStruct, frozen=True, kw_only=True):
    """ModelRoute says which requests go to which ModelServer."""

    metadata: ObjectMeta
    spec: ModelRouteSpec
    """Which requests go where."""

    status: ModelRouteStatus | None = None
    """What became of the route, written by the router."""


def decode(obj: Object) -> ModelRoute:
    """A typed view of a ModelRoute.

    Raises:
        DecodeError: the object has not the shape of one.
    """
    return decode_as(obj, ModelRoute)


_PROVIDER = "has(t.externalModelProviderName) && t.externalModelProviderName != ''"
_SERVER = "has(t.modelServerName) && t.modelServerName != ''"

RULES = (
    spec_required("ModelRoute"),
    Rule(
        at="spec",
        expression=(
            "(has(self.modelName) && self.modelName != '')"
            " || (has(self.loraAdapters) && size(self.loraAdapters) > 0)"
        ),
        message="a route needs a modelName or loraAdapters",
        guard=Unchanged(("modelName", "loraAdapters")),
        reason=REQUIRED,
        field_path=".modelName",
    ),
    Rule(
        at="spec",
        expression=(
            "!has(self.loraAdapters) || size(self.loraAdapters) == 0"
            f" || self.rules.all(r, r.targetModels.all(t, !({_PROVIDER})))"
        ),
        message="a route with loraAdapters cannot have an externalModelProviderName as target",
        guard=Unchanged(("loraAdapters", "rules")),
        field_path=".rules",
    ),
    Rule(
        at="spec.modelName",
        expression="self == oldSelf",
        message="modelName is immutable",
        guard=Transition(),
    ),
    Rule(
        at="spec.rules",
        expression=f"self.all(r, r.targetModels.all(t, ({_SERVER}) != ({_PROVIDER})))",
        message=(
            "exactly one of modelServerName or externalModelProviderName must be set in each of "
            "targetModels"
        ),
    ),
    Rule(
        at="spec.rules",
        # Weights are never negative, so one above zero makes the sum positive.
        expression=(
            "self.all(r, size(r.targetModels) == 0"
            " || r.targetModels.exists(t, !has(t.weight) || t.weight > 0))"
        ),
        message="the weights of a rule's targetModels must not all be 0",
    ),
    Rule(
        at="spec.rules",
        expression=(
            "self.all(r, !has(r.modelMatch) || !has(r.modelMatch.uri)"
            " || !has(r.modelMatch.uri.regex)"
            " || type(''.matches(r.modelMatch.uri.regex)) == bool)"
        ),
        message="modelMatch.uri.regex must be a regular expression in RE2 syntax",
    ),
    Rule(
        at="spec.rules",
        expression=(
            "self.all(r, !has(r.modelMatch) || !has(r.modelMatch.headers)"
            " || r.modelMatch.headers.all(k, !has(r.modelMatch.headers[k].regex)"
            " || type(''.matches(r.modelMatch.headers[k].regex)) == bool))"
        ),
        message="the regex of each of modelMatch.headers must be in RE2 syntax",
    ),
)
"""What admission refuses beyond the bounds of single fields."""
