"""The kinds of this project, in one place: what a client may read, write, list and print."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from kthena.api.networking import names as networking
from kthena.api.workload import names as workload
from kthena.machinery.resources import Resource

MODEL_SERVINGS = Resource(workload.GROUP, workload.VERSION, "modelservings", "ModelServing")
AUTOSCALING_POLICIES = Resource(
    workload.GROUP, workload.VERSION, "autoscalingpolicies", "AutoscalingPolicy"
)
MODEL_BOOSTERS = Resource(workload.GROUP, workload.VERSION, "modelboosters", "ModelBooster")
MODEL_SERVERS = Resource(networking.GROUP, networking.VERSION, "modelservers", "ModelServer")
MODEL_ROUTES = Resource(networking.GROUP, networking.VERSION, "modelroutes", "ModelRoute")
EXTERNAL_MODEL_PROVIDERS = Resource(
    networking.GROUP, networking.VERSION, "externalmodelproviders", "ExternalModelProvider"
)

WORKLOAD_KINDS = (MODEL_SERVINGS, AUTOSCALING_POLICIES)
NETWORKING_KINDS = (MODEL_SERVERS, MODEL_ROUTES, EXTERNAL_MODEL_PROVIDERS)
KINDS = WORKLOAD_KINDS + NETWORKING_KINDS
"""The kinds that this project serves. ModelBooster is not among them: it is only read, to leave it."""

CATEGORY: Final = "kthena"
"""`kubectl get kthena` lists all kinds."""


class Plane(Enum):
    """Which program reconciles a kind and writes its status."""

    WORKLOAD = "workload"
    NETWORKING = "networking"
    LEGACY = "legacy"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; priority 1 shows with `-o wide` only."""

    name: str
    json_path: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Scale:
    """The paths of a scale subresource."""

    spec_replicas: str
    status_replicas: str
    label_selector: str


@dataclass(frozen=True, slots=True)
class KindInfo:
    """What the API server tells clients about a kind. Each kind has a status subresource."""

    resource: Resource
    plane: Plane
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = (CATEGORY,)
    scale: Scale | None = None
    columns: tuple[Column, ...] = ()
    deprecation: str = ""

    @property
    def singular(self) -> str:
        """The name for one object, as kubectl takes it."""
        return self.resource.kind.lower()


def _condition(name: str, *, condition: str = "Ready", field: str = "status") -> Column:
    return Column(name, f".status.conditions[?(@.type=='{condition}')].{field}")


_READY = _condition("Ready")
_REASON = _condition("Reason", field="reason")
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

_INFOS = (
    KindInfo(
        MODEL_SERVINGS,
        Plane.WORKLOAD,
        short_names=("mss",),
        scale=Scale(".spec.replicas", ".status.replicas", ".status.labelSelector"),
        columns=(
            _READY,
            Column("Replicas", ".status.replicas", "integer"),
            Column("Available", ".status.availableReplicas", "integer"),
            Column("Updated", ".status.updatedReplicas", "integer"),
            _REASON,
            _AGE,
        ),
    ),
    KindInfo(
        AUTOSCALING_POLICIES,
        Plane.WORKLOAD,
        short_names=("asp",),
        columns=(_READY, _REASON, _AGE),
    ),
    KindInfo(
        MODEL_SERVERS,
        Plane.NETWORKING,
        short_names=("msv",),
        columns=(
            _READY,
            Column("Endpoints", ".status.readyEndpoints", "integer"),
            Column("Model", ".spec.model"),
            Column("Engine", ".spec.inferenceEngine"),
            Column("Port", ".spec.workloadPort.port", "integer"),
            Column("Protocol", ".spec.workloadPort.protocol"),
            _REASON,
            _AGE,
        ),
    ),
    KindInfo(
        MODEL_ROUTES,
        Plane.NETWORKING,
        short_names=("mr",),
        columns=(_READY, Column("Model", ".spec.modelName"), _REASON, _AGE),
    ),
    KindInfo(
        EXTERNAL_MODEL_PROVIDERS,
        Plane.NETWORKING,
        short_names=("emp",),
        columns=(
            _READY,
            Column("Type", ".spec.providerType"),
            Column("Model", ".spec.model"),
            Column("URL", ".spec.baseURL"),
            _REASON,
            _AGE,
        ),
    ),
    KindInfo(
        MODEL_BOOSTERS,
        Plane.LEGACY,
        categories=(),
        columns=(_condition("Active", condition="Active"), _AGE),
        deprecation=(
            "workload.serving.volcano.sh/v1alpha1 ModelBooster is deprecated and has no "
            "controller here; use ModelServing, ModelServer and ModelRoute"
        ),
    ),
)

KIND_INFOS: Mapping[Resource, KindInfo] = MappingProxyType({info.resource: info for info in _INFOS})
"""Every kind that a CRD is generated for, ModelBooster included."""
