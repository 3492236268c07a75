"""ModelServing: which pods run a model.

A ModelServing has `replicas` serving groups, each able to answer on its own. A group is made of
roles (such as prefill and decode), a role of `replicas` instances, an instance of one entry pod and
`workerReplicas` worker pods.
"""

from typing import Annotated, Any, Literal

from msgspec import field

from kthena.api.markers import (
    PERCENT,
    Count,
    CountOrPercent,
    Generation,
    ObservedCount,
    schema,
)
from kthena.api.meta import ApiStruct, Condition, ObjectMeta
from kthena.api.meta import decode as decode_as
from kthena.api.rules import (
    FORBIDDEN,
    REQUIRED,
    AlreadyBroken,
    Rule,
    SelfGuarded,
    Transition,
    Unchanged,
    spec_required,
)
from kthena.machinery.objects import Object

DNS_LABEL = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
NAME_PATTERN = DNS_LABEL
"""Of `metadata.name`, which is part of pod and service names."""

PodTemplate = Annotated[dict[str, Any], schema(component="PodTemplate")]
"""Plain JSON: `metadata` with labels and annotations, and `spec`, a PodSpec."""


class PluginScope(ApiStruct, frozen=True, kw_only=True):
    """Which pods a plugin acts on."""

    roles: list[str] = field(default_factory=list)
    """Names of the roles that it acts on; empty means all."""

    target: str | None = None
    """Which pods of a role instance it acts on: `All` (also when unset), `Entry` or `Worker`. With
    another text the plugin never runs."""


class Plugin(ApiStruct, frozen=True, kw_only=True):
    """One step of the chain that adjusts pods before they are created."""

    name: str
    """The plugin to run, for instance `lws-standard-labels`."""

    type: Annotated[Literal["BuiltIn"], schema(required=True)] = "BuiltIn"
    """Where the plugin comes from."""

    config: Annotated[Any, schema(preserve_unknown_fields=True)] = None
    """Settings of the plugin, in its own form."""

    scope: PluginScope | None = None
    """Which pods the plugin acts on; unset means all."""


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """What must be schedulable at once."""

    min_role_replicas: (
        Annotated[
            # A value above a role's replicas breaks a rule, so no other maximum is needed.
            dict[str, Annotated[int, schema(format="int32", minimum=0)]],
            schema(max_properties=4),
        ]
        | None
    ) = None
    """For each role by name, how many of its instances a group needs before any of its pods is
    placed. A role that is not named counts with all its replicas. Cannot be changed once set."""


class TopologyPolicy(ApiStruct, frozen=True, kw_only=True):
    """How closely pods are placed."""

    mode: Literal["hard", "soft"] = "hard"
    """`hard` keeps pods pending rather than place them apart; `soft` prefers nearness."""

    highest_tier_allowed: Annotated[int, schema(minimum=0)] | None = None
    """The highest network tier, by number, that the pods may span."""

    highest_tier_name: Annotated[str, schema(max_length=253)] | None = None
    """The highest network tier, by name, that the pods may span. Give a number or a name."""


class NetworkTopology(ApiStruct, frozen=True, kw_only=True):
    """Placement by network distance. It needs the scheduler `volcano`."""

    group_policy: TopologyPolicy | None = None
    """For all pods of a serving group."""

    role_policy: TopologyPolicy | None = None
    """For the pods of one role of a group."""


class Role(ApiStruct, frozen=True, kw_only=True):
    """One part of a serving group, for instance the prefill side."""

    name: Annotated[str, schema(max_length=12, pattern=DNS_LABEL)]
    """The name, unique within the ModelServing. It is part of pod names."""

    replicas: Count = 1
    """How many instances of the role each serving group has."""

    entry_template: PodTemplate
    """The pod that answers requests. Each role instance has one."""

    worker_replicas: Count
    """How many worker pods stand beside each entry pod."""

    worker_template: PodTemplate | None = None
    """The worker pods. Needed when `workerReplicas` is above 0."""

    max_unavailable: CountOrPercent = 1
    """With `RoleRollingUpdate`: how many instances of the role may be unavailable while it rolls,
    as a number or as a percentage of its replicas (rounded down)."""

    partition: CountOrPercent | None = None
    """With `RoleRollingUpdate`: instances with an ordinal below this number keep their revision.
    A percentage counts from the replicas of the role (rounded up)."""


class ServingGroupTemplate(ApiStruct, frozen=True, kw_only=True):
    """What each serving group looks like."""

    restart_grace_period_seconds: Annotated[int, schema(format="int64", minimum=0)] = 0
    """How long a failed pod may take to recover before its role or group is made anew, in
    seconds."""

    gang_policy: GangPolicy | None = None
    """Place the pods of a group together or not at all. It needs the scheduler `volcano`, may be
    added later and cannot be dropped."""

    network_topology: NetworkTopology | None = None
    """Place the pods of a group near each other. It needs the scheduler `volcano`."""

    roles: Annotated[list[Role], schema(min_items=1, max_items=4, map_keys=["name"])]
    """The roles of a group. The first with replicas gives the pods that autoscalers count."""


class RollingUpdateConfiguration(ApiStruct, frozen=True, kw_only=True):
    """How serving groups are replaced."""

    max_unavailable: CountOrPercent = 1
    """How many groups may be unavailable during an update, as a number or as a percentage of
    `replicas` (rounded down). At least 1, unless `maxSurge` adds groups."""

    # No default in the schema: it would appear in every object that was stored without the field.
    max_surge: CountOrPercent | None = None
    """How many groups an update may add to `replicas` for its time, as a number or as a percentage
    of `replicas` (rounded up). Unset means none."""

    partition: CountOrPercent | None = None
    """Groups with an ordinal below this number keep their revision. A percentage counts from
    `replicas` (rounded up)."""


class RolloutStrategy(ApiStruct, frozen=True, kw_only=True):
    """How a change of the template reaches the pods."""

    type: Annotated[
        Literal["ServingGroupRollingUpdate", "RoleRollingUpdate"], schema(required=True)
    ] = "ServingGroupRollingUpdate"
    """`ServingGroupRollingUpdate` replaces whole groups, `RoleRollingUpdate` only the instances of
    the roles that changed."""

    rolling_update_configuration: RollingUpdateConfiguration | None = None
    """How groups are replaced; for `ServingGroupRollingUpdate` only."""


class ModelServingSpec(ApiStruct, frozen=True, kw_only=True):
    """What should run."""

    # The scale subresource makes the API server itself refuse what is no count.
    replicas: Annotated[int, schema(format="int32")] = 1
    """The number of serving groups."""

    scheduler_name: str = "volcano"
    """The scheduler of all pods, whatever their templates say. Gangs and topology need
    `volcano`."""

    plugins: list[Plugin] = field(default_factory=list)
    """Adjustments of the pods before they are created, in this order."""

    template: ServingGroupTemplate
    """What each serving group looks like."""

    rollout_strategy: RolloutStrategy | None = None
    """How a change of the template reaches the pods. Unset means by whole groups, one at a time."""

    recovery_policy: Literal["ServingGroupRecreate", "RoleRecreate", "None"] = "RoleRecreate"
    """What is made anew when a pod fails or is deleted: its whole group, its role instance, or
    only the pod (`None`)."""


class ModelServingStatus(ApiStruct, frozen=True, kw_only=True):
    """What runs."""

    observed_generation: Generation = 0
    """The `metadata.generation` that this status speaks of."""

    replicas: ObservedCount = 0
    """Serving groups that exist."""

    current_replicas: ObservedCount = 0
    """Serving groups of the current revision."""

    updated_replicas: ObservedCount = 0
    """Serving groups of the update revision."""

    available_replicas: ObservedCount = 0
    """Serving groups with all their pods ready."""

    current_revision: str = ""
    """The revision that groups had before the update."""

    update_revision: str = ""
    """The revision of the present template."""

    label_selector: str = ""
    """The selector of one pod per serving group, for autoscalers that read the scale
    subresource."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Ready`, `Reconciling`, `Stalled`, `Available`, `Progressing`, `UpdateInProgress`,
    `ReplicaFailure`, and `Accepted` when the spec asks for what is not supported."""


class ModelServing(ApiStruct, frozen=True, kw_only=True):
    """ModelServing runs a model as groups of pods."""

    metadata: ObjectMeta
    spec: ModelServingSpec
    """What should run."""

    status: ModelServingStatus | None = None
    """What runs, written by the controller."""


def decode(obj: Object) -> ModelServing:
    """A typed view of a ModelServing.

    Raises:
        DecodeError: the object has not the shape of one.
    """
    return decode_as(obj, ModelServing)


_ROLE_STRATEGY = "has(self.rolloutStrategy) && self.rolloutStrategy.type == 'RoleRollingUpdate'"
_CONFIGURATION = "self.rolloutStrategy.rollingUpdateConfiguration"
_MINIMA = "self.gangPolicy.minRoleReplicas"
_NO_MINIMA = "!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas)"


def _digits(of: str, role: str) -> str:
    """The number of digits in a pod name: group count, role count and worker count."""
    return (
        f"size(string({of}.spec.replicas)) + size(string({role}.replicas))"
        f" + size(string({role}.workerReplicas))"
    )


RULES = (
    spec_required("ModelServing"),
    Rule(
        at="",
        # Four dashes join the parts of a name of at most 63 characters. What is stored may stay as
        # long as it is, so that an object with an overlong name can still be scaled down.
        expression=(
            "!has(self.spec) || !has(self.spec.template)"
            " || (oldSelf.hasValue() && [oldSelf.orValue(self)].all(p, has(p.spec)"
            " && has(p.spec.template) && p.spec.template == self.spec.template"
            " && size(string(p.spec.replicas)) >= size(string(self.spec.replicas))))"
            " || [oldSelf.orValue(self)].all(p, self.spec.template.roles.all(r,"
            f" size(self.metadata.name) + size(r.name) + {_digits('self', 'r')} <= 59"
            " || (oldSelf.hasValue() && has(p.spec) && has(p.spec.template)"
            " && p.spec.template.roles.exists(o,"
            f" o.name == r.name && {_digits('p', 'o')} >= {_digits('self', 'r')}))))"
        ),
        message=(
            "pod names would exceed 63 characters: <name>-<replicas>-<role>-<role replicas>-"
            "<workerReplicas> must fit for each role; choose a shorter name, role name or count"
        ),
        guard=SelfGuarded(),
        field_path=".metadata.name",
    ),
    Rule(
        at="spec",
        expression=(
            f"!has(self.rolloutStrategy)"
            " || self.rolloutStrategy.type != 'ServingGroupRollingUpdate'"
            f" || !has({_CONFIGURATION}) || self.replicas == 0"
            # A percentage of groups to add rounds up: any but 0 % adds one.
            f" || (has({_CONFIGURATION}.maxSurge) && (type({_CONFIGURATION}.maxSurge) == int"
            f" ? {_CONFIGURATION}.maxSurge != 0"
            f" : !{_CONFIGURATION}.maxSurge.matches('^0+%$')))"
            f" || (type({_CONFIGURATION}.maxUnavailable) == int"
            f" ? {_CONFIGURATION}.maxUnavailable != 0"
            f" : (!{_CONFIGURATION}.maxUnavailable.matches('^[0-9]{{1,9}}%$')"
            f" || int({_CONFIGURATION}.maxUnavailable.replace('%', '')) * self.replicas >= 100))"
        ),
        message=(
            "maxUnavailable comes to 0 groups and maxSurge to none, so no update could ever proceed; "
            "use at least 1, a percentage that comes to 1 or more of spec.replicas, or maxSurge"
        ),
        guard=Unchanged(("rolloutStrategy",)),
        field_path=".rolloutStrategy.rollingUpdateConfiguration",
    ),
    Rule(
        at="spec",
        expression=f"({_ROLE_STRATEGY}) || self.template.roles.all(r, !has(r.partition))",
        message="a role's partition acts only with rolloutStrategy.type RoleRollingUpdate",
        guard=Unchanged(("rolloutStrategy", "template.roles")),
        reason=FORBIDDEN,
        field_path=".template.roles",
    ),
    Rule(
        at="spec",
        expression=(
            f"!({_ROLE_STRATEGY}) || self.template.roles.all(r, r.replicas == 0"
            " || (type(r.maxUnavailable) == int"
            " ? (r.maxUnavailable > 0 && r.maxUnavailable <= r.replicas)"
            f" : (r.maxUnavailable.matches(r'{PERCENT}')"
            " && int(r.maxUnavailable.replace('%', '')) * r.replicas >= 100)))"
        ),
        message=(
            "with RoleRollingUpdate, maxUnavailable of each role must come to at least 1 and at "
            "most its replicas"
        ),
        guard=Unchanged(("rolloutStrategy", "template.roles")),
        field_path=".template.roles",
    ),
    Rule(
        at="spec",
        expression=f"self.recoveryPolicy != 'ServingGroupRecreate' || !({_ROLE_STRATEGY})",
        message=(
            "RoleRollingUpdate cannot be combined with recoveryPolicy ServingGroupRecreate; "
            "use RoleRecreate or None"
        ),
        guard=Unchanged(("rolloutStrategy", "recoveryPolicy")),
        field_path=".rolloutStrategy.type",
    ),
    Rule(
        at="spec.rolloutStrategy",
        expression=("self.type != 'RoleRollingUpdate' || !has(self.rollingUpdateConfiguration)"),
        message=(
            "rollingUpdateConfiguration acts only with ServingGroupRollingUpdate; "
            "set maxUnavailable and partition of each role instead"
        ),
        reason=FORBIDDEN,
        field_path=".rollingUpdateConfiguration",
    ),
    Rule(
        at="spec.template",
        expression="!has(oldSelf.gangPolicy) || has(self.gangPolicy)",
        message="gangPolicy is required once set",
        guard=Transition(),
    ),
    Rule(
        at="spec.template",
        expression=f"{_NO_MINIMA} || {_MINIMA}.all(k, self.roles.exists(r, r.name == k))",
        message="minRoleReplicas names a role that is not in template.roles",
        guard=AlreadyBroken(),
        field_path=".gangPolicy.minRoleReplicas",
    ),
    Rule(
        at="spec.template",
        expression=(
            f"{_NO_MINIMA} || self.roles.all(r,"
            f" !(r.name in {_MINIMA}) || {_MINIMA}[r.name] <= r.replicas)"
        ),
        message="minRoleReplicas asks for more instances than the role has replicas",
        guard=AlreadyBroken(),
        field_path=".gangPolicy.minRoleReplicas",
    ),
    Rule(
        at="spec.template.gangPolicy.minRoleReplicas",
        expression="self == oldSelf",
        message="minRoleReplicas is immutable",
        guard=Transition(),
    ),
    Rule(
        at="spec.template.roles[]",
        expression="self.workerReplicas <= 0 || has(self.workerTemplate)",
        message="a role with workerReplicas above 0 needs a workerTemplate",
        reason=REQUIRED,
        field_path=".workerTemplate",
    ),
)
"""What admission refuses beyond the bounds of single fields."""
