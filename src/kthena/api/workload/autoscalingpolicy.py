"""AutoscalingPolicy: how many replicas a ModelServing, or each of its roles, should have.

Defaults are one set, whatever the shape in which a behaviour is written: what is absent and what is
empty mean the same. Panic scaling is off unless `panicPolicy` is present. The rules of admission
are in `autoscalingpolicy_rules`.
"""

from typing import Annotated, Any, Literal

from msgspec import field

from kthena.api.markers import (
    INT32_MAX,
    Duration,
    Generation,
    ObservedCount,
    Quantity,
    schema,
)
from kthena.api.meta import ApiStruct, Condition, ObjectMeta
from kthena.api.meta import decode as decode_as
from kthena.machinery.objects import Object

_POSITIVE_QUANTITY = (
    r"^\+?([0-9]*[1-9][0-9]*(\.[0-9]*)?|[0-9]*\.[0-9]*[1-9][0-9]*)"
    r"([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"
)

MinReplicas = Annotated[int, schema(format="int32", minimum=0, maximum=1_000_000)]
MaxReplicas = Annotated[int, schema(format="int32", minimum=1, maximum=1_000_000)]
Percent1000 = Annotated[int, schema(format="int32", minimum=0, maximum=1000)]
Instances = Annotated[int, schema(format="int32", minimum=0, maximum=INT32_MAX)]


class Metric(ApiStruct, frozen=True, kw_only=True):
    """One figure that decides the number of replicas."""

    name: Annotated[str, schema(min_length=1)]
    """The name of the metric; its source is found under this name."""

    target_value: Annotated[int | str, schema(minimum=1, pattern=_POSITIVE_QUANTITY)]
    """The value per replica that scaling aims at; above 0."""


Metrics = Annotated[list[Metric], schema(max_items=64, map_keys=["name"])]


class PodMetricSource(ApiStruct, frozen=True, kw_only=True):
    """A metric that pods expose."""

    name: str | None = None
    """The name of the series; unset means the name of the metric."""

    uri: Annotated[str, schema(pattern="^/")] = "/metrics"
    """The path of the metrics endpoint."""

    port: Annotated[int, schema(format="int32", minimum=1, maximum=65535)] = 8100
    """The port of the metrics endpoint."""

    label_selector: (
        Annotated[
            dict[str, Any],
            schema(component="io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"),
        ]
        | None
    ) = None
    """Which of the target's entry pods are asked; unset means all."""


class PrometheusAuth(ApiStruct, frozen=True, kw_only=True):
    """Reserved; nothing can be set."""


class PrometheusMetricSource(ApiStruct, frozen=True, kw_only=True):
    """A metric that a Prometheus server computes."""

    server_url: Annotated[str, schema(min_length=1, format="uri")] = field(name="serverURL")
    """The URL of the server."""

    query: Annotated[str, schema(min_length=1)]
    """An instant query that gives one number, the total over all replicas."""

    auth: PrometheusAuth | None = None
    """Reserved; nothing can be set."""


class MetricSource(ApiStruct, frozen=True, kw_only=True):
    """Where a metric is read: from pods or from Prometheus."""

    pod: PodMetricSource | None = None
    """Read from the target's entry pods."""

    prometheus: PrometheusMetricSource | None = None
    """Read from a Prometheus server."""


MetricSources = Annotated[dict[str, MetricSource], schema(max_properties=64)]


class TargetReference(ApiStruct, frozen=True, kw_only=True):
    """A reference to the ModelServing that is scaled."""

    api_version: str | None = None
    """`workload.serving.volcano.sh/v1alpha1`, or unset."""

    field_path: str | None = None
    """Not used."""

    kind: Annotated[str, schema(enum=["", "ModelServing"])] | None = None
    """`ModelServing`, or unset."""

    name: Annotated[str, schema(min_length=1)]
    """The name of the ModelServing."""

    namespace: str | None = None
    """Its namespace; unset means the policy's own."""

    resource_version: str | None = None
    """Not used."""

    uid: str | None = None
    """Not used."""


ObjectReference = Annotated[TargetReference, schema(map_type="atomic")]


class Target(ApiStruct, frozen=True, kw_only=True):
    """A ModelServing, and where its metrics are read."""

    target_ref: ObjectReference
    """The ModelServing that is scaled."""

    metric_sources: MetricSources = field(default_factory=dict)
    """For each metric by name, where it is read."""


class HomogeneousTarget(ApiStruct, frozen=True, kw_only=True):
    """One ModelServing whose serving groups are counted."""

    target: Target
    """The ModelServing, and where its metrics are read."""

    min_replicas: MinReplicas
    """The fewest serving groups."""

    max_replicas: MaxReplicas
    """The most serving groups."""


class HeterogeneousTargetParam(ApiStruct, frozen=True, kw_only=True):
    """One of several ModelServings that serve the same model."""

    target: Target
    """The ModelServing, and where its metrics are read."""

    cost: Annotated[int, schema(format="int32", minimum=0, maximum=INT32_MAX)] | None = None
    """What one of its groups costs, in relation to the others."""

    min_replicas: MinReplicas
    """The fewest serving groups."""

    max_replicas: MaxReplicas
    """The most serving groups."""


class HeterogeneousTarget(ApiStruct, frozen=True, kw_only=True):
    """Several ModelServings on different hardware that share the load."""

    params: Annotated[list[HeterogeneousTargetParam], schema(min_items=1, max_items=128)] = field(
        default_factory=list
    )
    """The ModelServings, cheapest capacity first used."""

    cost_expansion_rate_percent: Instances = 200
    """How fast the blocks grow in which capacity is handed out, in percent."""


class RoleScaling(ApiStruct, frozen=True, kw_only=True):
    """How one role of a ModelServing is scaled."""

    min_replicas: MinReplicas
    """The fewest instances of the role."""

    max_replicas: MaxReplicas
    """The most instances of the role. Equal to `minReplicas`, the number is fixed."""

    metrics: Annotated[Metrics, schema(min_items=1)] | None = None
    """The metrics of this role, in place of those of the spec."""

    metric_sources: MetricSources = field(default_factory=dict)
    """For each metric by name, where it is read."""


class RatioConstraint(ApiStruct, frozen=True, kw_only=True):
    """Bounds of the ratio between the replicas of two roles."""

    numerator_role: str
    """The role above the line."""

    denominator_role: str
    """The role below the line."""

    min_ratio: Quantity
    """The lowest ratio, for instance `500m`."""

    max_ratio: Quantity
    """The highest ratio."""


class DisaggregatedTarget(ApiStruct, frozen=True, kw_only=True):
    """One ModelServing whose roles are scaled one by one."""

    target_ref: ObjectReference
    """The ModelServing that is scaled."""

    roles: Annotated[dict[str, RoleScaling], schema(min_properties=1, max_properties=2)]
    """For each role by name, how it is scaled."""

    ratio_constraint: RatioConstraint | None = None
    """Bounds of the ratio between the replicas of the two roles."""


class ScaleDownPolicy(ApiStruct, frozen=True, kw_only=True):
    """How fast replicas go."""

    instances: Instances = 0
    """The most replicas that go within a period."""

    percent: Percent1000 = 100
    """The most replicas that go within a period, in percent."""

    period: Duration = "1m0s"
    """The period of `instances` and `percent`; at most 30m."""

    select_policy: Literal["Or", "And"] = "Or"
    """Which of the two limits counts: the looser (`Or`) or the stricter (`And`)."""

    stabilization_window: Duration = "5m0s"
    """Scale down only to the highest recommendation within this window; at most 30m."""


class StablePolicy(ApiStruct, frozen=True, kw_only=True):
    """How fast replicas come in normal times."""

    instances: Instances = 4
    """The most replicas that come within a period."""

    percent: Percent1000 = 100
    """The most replicas that come within a period, in percent."""

    period: Duration = "1m0s"
    """The period of `instances` and `percent`; at most 30m."""

    select_policy: Literal["Or", "And"] = "Or"
    """Which of the two limits counts: the looser (`Or`) or the stricter (`And`)."""

    stabilization_window: Duration = "0s"
    """Scale up only to the lowest recommendation within this window; at most 30m."""


class PanicPolicy(ApiStruct, frozen=True, kw_only=True):
    """How fast replicas come when load jumps."""

    percent: Percent1000 = 1000
    """The most replicas that come within a period, in percent."""

    period: Duration
    """The period of `percent`; at most 30m."""

    panic_threshold_percent: Annotated[int, schema(format="int32", minimum=110, maximum=1000)] = 200
    """Panic begins when the recommendation is this far above the present replicas, in percent."""

    panic_mode_hold: Duration = "60s"
    """How long panic lasts after its last cause; at most 30m. 0 turns it off."""


class ScaleUpPolicy(ApiStruct, frozen=True, kw_only=True):
    """How fast replicas come."""

    stable_policy: StablePolicy = field(default_factory=StablePolicy)
    """In normal times."""

    panic_policy: PanicPolicy | None = None
    """When load jumps; unset means that this makes no difference."""


class Behavior(ApiStruct, frozen=True, kw_only=True):
    """How fast replicas come and go."""

    scale_up: ScaleUpPolicy = field(default_factory=ScaleUpPolicy)
    """How fast replicas come."""

    scale_down: ScaleDownPolicy = field(default_factory=ScaleDownPolicy)
    """How fast replicas go."""


class AutoscalingPolicySpec(ApiStruct, frozen=True, kw_only=True):
    """What is scaled, by which metrics, and how fast. Give one of the three targets."""

    tolerance_percent: Annotated[int, schema(format="int32", minimum=0, maximum=100)] = 10
    """No scaling while the metrics are this near to their targets, in percent."""

    metrics: Metrics = field(default_factory=list)
    """The metrics that decide; the one that asks for most replicas wins."""

    behavior: Behavior = field(default_factory=Behavior)
    """How fast replicas come and go."""

    homogeneous_target: HomogeneousTarget | None = None
    """Scale the serving groups of one ModelServing."""

    heterogeneous_target: HeterogeneousTarget | None = None
    """Scale the serving groups of several ModelServings that share the load."""

    disaggregated_target: DisaggregatedTarget | None = None
    """Scale the roles of one ModelServing one by one."""


class TargetScalingStatus(ApiStruct, frozen=True, kw_only=True):
    """How one target is scaled."""

    name: str = ""
    """The ModelServing, or the role."""

    current_replicas: ObservedCount
    """Replicas that the target asks for."""

    desired_replicas: ObservedCount
    """Replicas that the metrics ask for, before limits of speed and ratio."""

    mode: str = ""
    """`Stable` or `Panic`."""

    last_scale_time: Annotated[str, schema(format="date-time")] | None = None
    """When the number last changed."""


class RatioStatus(ApiStruct, frozen=True, kw_only=True):
    """The ratio between two roles."""

    numerator_role: str
    """The role above the line."""

    denominator_role: str
    """The role below the line."""

    current_ratio: str = ""
    """The ratio as a decimal number; empty when it has none."""


class DisaggregatedStatus(ApiStruct, frozen=True, kw_only=True):
    """How the roles of a ModelServing are scaled."""

    roles: list[TargetScalingStatus]
    """The roles, by name."""

    ratio_status: RatioStatus | None = None
    """The ratio between the two roles."""

    ratio_adjusted: bool = False
    """Whether the constraint of the ratio changed a number."""


class AutoscalingPolicyStatus(ApiStruct, frozen=True, kw_only=True):
    """How the targets are scaled."""

    observed_generation: Generation = 0
    """The `metadata.generation` that this status speaks of."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Ready` and `TargetFound`, and `Accepted` when the kind is not supported."""

    homogeneous_status: TargetScalingStatus | None = None
    """How the one ModelServing is scaled."""

    heterogeneous_status: list[TargetScalingStatus] = field(default_factory=list)
    """How each ModelServing is scaled."""

    disaggregated_status: DisaggregatedStatus | None = None
    """How the roles are scaled."""


class AutoscalingPolicy(ApiStruct, frozen=True, kw_only=True):
    """AutoscalingPolicy decides how many replicas a ModelServing, or each of its roles, has."""

    metadata: ObjectMeta
    spec: AutoscalingPolicySpec
    """What is scaled, by which metrics, and how fast."""

    status: AutoscalingPolicyStatus | None = None
    """How the targets are scaled, written by the autoscaler."""


def decode(obj: Object) -> AutoscalingPolicy:
    """A typed view of an AutoscalingPolicy.

    Raises:
        DecodeError: the object has not the shape of one.
    """
    return decode_as(obj, AutoscalingPolicy)
