"""ModelBooster: Kthena's one resource for everything, read here only to leave it.

Nothing reconciles a ModelBooster. The struct serves conversion and migration, and its CRD exists so
that stored objects stay readable; the schema admits what Kthena's does.
"""

from typing import Annotated, Any, Literal

from msgspec import field

from kthena.api.markers import Generation, schema
from kthena.api.meta import ApiStruct, Condition, ObjectMeta
from kthena.api.meta import decode as decode_as
from kthena.api.rules import Rule
from kthena.machinery.objects import Object

_CORE = "io.k8s.api.core.v1."
_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

Replicas = Annotated[int, schema(format="int32", minimum=0, maximum=1_000_000)]
Environment = Annotated[dict[str, Any], schema(component=_CORE + "EnvVar")]
EnvironmentSource = Annotated[dict[str, Any], schema(component=_CORE + "EnvFromSource")]
Resources = Annotated[dict[str, Any], schema(component=_CORE + "ResourceRequirements")]
Affinity = Annotated[dict[str, Any], schema(component=_CORE + "Affinity")]
Toleration = Annotated[dict[str, Any], schema(component=_CORE + "Toleration")]


class Worker(ApiStruct, frozen=True, kw_only=True):
    """One kind of pods of the backend."""

    type: Literal["server", "prefill", "decode", "controller", "coordinator"] = "server"
    """What the pods do."""

    image: str | None = None
    """The image of the engine."""

    replicas: Replicas | None = None
    """Role instances; Kthena takes unset for 0."""

    pods: Replicas | None = None
    """Pods of one instance of a server worker."""

    resources: Resources | None = None
    """Resources of each pod."""

    affinity: Affinity | None = None
    """Where the pods are placed."""

    tolerations: Annotated[list[Toleration], schema(list_type="atomic")] = field(
        default_factory=list
    )
    """Taints that the pods tolerate."""

    config: Annotated[Any, schema(preserve_unknown_fields=True)] = None
    """Flags of the engine."""


class ModelBackend(ApiStruct, frozen=True, kw_only=True):
    """What runs the model."""

    name: Annotated[str, schema(pattern=_NAME)]
    """Part of the names of the generated resources."""

    type: Literal["vLLM", "vLLMDisaggregated"]
    """The engine, and whether prefill and decode are apart."""

    model_uri: Annotated[str, schema(pattern="^(hf://|s3://|obs://|pvc://|ms://).+")] = field(
        name="modelURI"
    )
    """Where the model is."""

    cache_uri: Annotated[str, schema(pattern="^(hostpath://|pvc://).+")] | None = field(
        name="cacheURI", default=None
    )
    """Where the model is kept."""

    env_from: Annotated[list[EnvironmentSource], schema(list_type="atomic")] = field(
        default_factory=list
    )
    """Environment of the downloader and the sidecar."""

    env: Annotated[list[Environment], schema(map_keys=["name"])] = field(default_factory=list)
    """Environment of the engine."""

    replicas: Replicas
    """Serving groups."""

    workers: Annotated[list[Worker], schema(min_items=1, max_items=1000)]
    """The kinds of pods."""

    scheduler_name: str | None = None
    """The scheduler of the pods."""

    runtime_class_name: str | None = None
    """The runtime class of the pods."""


class TextMatch(ApiStruct, frozen=True, kw_only=True):
    """A test of a text."""

    exact: str | None = None
    """The whole text."""

    prefix: str | None = None
    """What the text begins with."""

    regex: str | None = None
    """A regular expression."""


class RequestBodyMatch(ApiStruct, frozen=True, kw_only=True):
    """A test of the request body."""

    model: str | None = None
    """The exact `model` of the request."""


class RequestMatch(ApiStruct, frozen=True, kw_only=True):
    """Tests of a request."""

    headers: dict[str, TextMatch] = field(default_factory=dict)
    """Tests of headers by name."""

    uri: TextMatch | None = None
    """A test of the path."""

    body: RequestBodyMatch | None = None
    """A test of the request body."""


class ModelBoosterSpec(ApiStruct, frozen=True, kw_only=True):
    """What Kthena generates resources from."""

    name: Annotated[str, schema(max_length=64, pattern=_NAME)] | None = None
    """The name that clients ask for."""

    owner: str | None = None
    """Not used."""

    backend: ModelBackend
    """What runs the model."""

    model_match: RequestMatch | None = None
    """Which requests are taken."""


class ModelBoosterStatus(ApiStruct, frozen=True, kw_only=True):
    """What Kthena made of it."""

    observed_generation: Generation = 0
    """The `metadata.generation` that this status speaks of."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Initialized`, `Active` and `Failed`."""


class ModelBooster(ApiStruct, frozen=True, kw_only=True):
    """ModelBooster is deprecated: use ModelServing, ModelServer and ModelRoute.

    Nothing here acts on one.
    """

    metadata: ObjectMeta
    spec: ModelBoosterSpec
    """What Kthena generates resources from."""

    status: ModelBoosterStatus | None = None
    """What Kthena made of it."""


def decode(obj: Object) -> ModelBooster:
    """A typed view of a ModelBooster.

    Raises:
        DecodeError: the object has not the shape of one.
    """
    return decode_as(obj, ModelBooster)


RULES: tuple[Rule, ...] = ()
"""Admission refuses nothing of its own: the kind is read, never served."""
