"""ModelServer: which pods answer for a model, and how to talk to them."""

from typing import Annotated, Literal

from msgspec import field

from kthena.api.markers import (
    GO_DURATION,
    INT32_MAX,
    LABEL_KEY,
    Duration,
    Generation,
    LabelValue,
    ObservedCount,
    schema,
)
from kthena.api.meta import ApiStruct, Condition, ObjectMeta
from kthena.api.meta import decode as decode_as
from kthena.api.rules import Rule, spec_required
from kthena.machinery.objects import Object

Labels = Annotated[dict[str, LabelValue], schema(min_properties=1, max_properties=256)]


class PDGroup(ApiStruct, frozen=True, kw_only=True):
    """How prefill and decode pods are told apart and paired."""

    group_key: str
    """The label that a prefill and a decode pod share when they work together. Pods of a
    ModelServing carry `modelserving.volcano.sh/group-name`."""

    prefill_labels: Labels
    """The labels of prefill pods."""

    decode_labels: Labels
    """The labels of decode pods."""


class WorkloadSelector(ApiStruct, frozen=True, kw_only=True):
    """Which pods of the same namespace answer."""

    match_labels: Annotated[Labels, schema(required=True)] = field(default_factory=dict)
    """Labels that every pod has."""

    pd_group: PDGroup | None = None
    """Set when prefill and decode run in pods of their own."""


class WorkloadPort(ApiStruct, frozen=True, kw_only=True):
    """Where the pods listen."""

    port: Annotated[int, schema(format="int32", minimum=1, maximum=65535)]
    """The port of the engine's HTTP API."""

    protocol: Literal["http", "https"] = "http"
    """How the router talks to the engine."""


class Retry(ApiStruct, frozen=True, kw_only=True):
    """Further attempts when an endpoint fails before it has answered."""

    attempts: Annotated[int, schema(format="int32", minimum=0, maximum=INT32_MAX)] | None = None
    """How many further attempts a request gets."""

    retry_interval: Duration = "100ms"
    """The pause before a further attempt, for instance `100ms`."""


class TrafficPolicy(ApiStruct, frozen=True, kw_only=True):
    """How requests are sent to the pods."""

    timeout: Duration | None = None
    """How long the engine may take until its response headers, for instance `30s`. Unset or 0
    means no limit."""

    retry: Retry | None = None
    """Further attempts when an endpoint fails before it has answered."""


class KVConnector(ApiStruct, frozen=True, kw_only=True):
    """How prefill pods hand their key-value cache to decode pods."""

    type: Literal["http", "lmcache", "nixl", "mooncake"] = "http"
    """The protocol of the transfer; it must be what the engines are configured for."""


class ModelServerSpec(ApiStruct, frozen=True, kw_only=True):
    """Which pods answer, and how to talk to them."""

    model: Annotated[str, schema(max_length=256)] | None = None
    """The name by which the engine knows the model. Requests are rewritten to it, except those for
    a LoRA adapter. Unset means that the name in the request is right."""

    inference_engine: Literal["vLLM", "SGLang"]
    """The engine that runs in the pods."""

    workload_selector: WorkloadSelector
    """Which pods of the same namespace answer."""

    workload_port: WorkloadPort
    """Where the pods listen."""

    traffic_policy: TrafficPolicy | None = None
    """How requests are sent to the pods."""

    kv_connector: KVConnector | None = None
    """How prefill pods hand their key-value cache to decode pods; for a `pdGroup` only. Unset, and
    with SGLang, it is the engine's own transfer."""


class ModelServerStatus(ApiStruct, frozen=True, kw_only=True):
    """What is there to answer."""

    observed_generation: Generation = 0
    """The `metadata.generation` that this status speaks of."""

    endpoints: ObservedCount = 0
    """Pods that the selector finds."""

    ready_endpoints: ObservedCount = 0
    """Pods that requests are sent to."""

    ready_prefill_endpoints: ObservedCount = 0
    """Ready pods of the prefill side, with a `pdGroup`."""

    ready_decode_endpoints: ObservedCount = 0
    """Ready pods of the decode side, with a `pdGroup`."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Accepted`, `ResolvedRefs` (the selector finds pods of every part) and `Ready`."""


class ModelServer(ApiStruct, frozen=True, kw_only=True):
    """ModelServer says which pods answer for a model, and how to talk to them."""

    metadata: ObjectMeta
    spec: ModelServerSpec
    """Which pods answer, and how to talk to them."""

    status: ModelServerStatus | None = None
    """What is there to answer, written by the router."""


def decode(obj: Object) -> ModelServer:
    """A typed view of a ModelServer.

    Raises:
        DecodeError: the object has not the shape of one.
    """
    return decode_as(obj, ModelServer)


def _label_keys(at: str) -> Rule:
    return Rule(
        at=at,
        expression=f"self.all(k, k.matches(r'{LABEL_KEY}') && k.indexOf('/') <= 253)",
        message="a key is no label key: an optional DNS prefix and a slash, then up to 63 letters, "
        "digits, '-', '_' or '.'",
    )


def _duration(at: str) -> Rule:
    return Rule(
        at=at,
        # The format is the pattern's business; what it refuses must not fail to evaluate here.
        expression=f"!self.matches(r'{GO_DURATION}') || duration(self) >= duration('0s')",
        message="must be a duration of at least 0s and below 2562047h, for instance 30s",
    )


RULES = (
    spec_required("ModelServer"),
    _label_keys("spec.workloadSelector.matchLabels"),
    _label_keys("spec.workloadSelector.pdGroup.prefillLabels"),
    _label_keys("spec.workloadSelector.pdGroup.decodeLabels"),
    Rule(
        at="spec.workloadSelector.pdGroup.groupKey",
        expression=f"self.matches(r'{LABEL_KEY}') && self.indexOf('/') <= 253",
        message="groupKey must be a label key, for instance modelserving.volcano.sh/group-name",
    ),
    _duration("spec.trafficPolicy.timeout"),
    _duration("spec.trafficPolicy.retry.retryInterval"),
)
"""What admission refuses beyond the bounds of single fields."""
