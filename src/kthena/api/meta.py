"""What all kinds share: the struct base, metadata as a typed view, conditions, and decoding."""

from typing import Annotated, Literal, TypeVar

import msgspec

from kthena.api.markers import schema
from kthena.machinery.objects import Object, key_of

_CONDITION_TYPE = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)


class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an API object as a read-only view.

    What it does not know is dropped, so nothing is ever written back from it.
    """


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """The metadata that controllers read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: list[str] = []


class Condition(ApiStruct, frozen=True, kw_only=True):
    """One condition of an object, as Kubernetes defines it."""

    type: Annotated[str, schema(max_length=316, pattern=_CONDITION_TYPE)]
    """The name of the condition, for instance `Ready`. One object has at most one of each."""

    status: Literal["True", "False", "Unknown"]
    """Whether the condition holds."""

    reason: Annotated[
        str,
        schema(min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
    ]
    """Why, in one word for programs."""

    message: Annotated[str, schema(max_length=32768)]
    """Why, in a sentence for people; may be empty."""

    last_transition_time: Annotated[str, schema(format="date-time")]
    """When the status last changed."""

    observed_generation: Annotated[int, schema(format="int64", minimum=0)] = 0
    """The `metadata.generation` of the object that the condition speaks of."""


Kind = TypeVar("Kind", bound=ApiStruct)


class DecodeError(ValueError):
    """A stored object does not have the shape of its kind; the text names object, field and cause."""


def decode(obj: Object, kind: type[Kind]) -> Kind:
    """A typed view of the object, defaults filled in as the CRD has them.

    Bounds, patterns and rules are not checked, so what an older schema let in still decodes.

    Raises:
        DecodeError: a field is missing that everything rests on, or has another type.
    """
    try:
        return msgspec.convert(obj, type=kind)
    except msgspec.ValidationError as error:
        raise DecodeError(
            f"{kind.__name__} {key_of(obj)} cannot be read: {error}; correct the field, "
            "or delete the object and create it anew"
        ) from error
