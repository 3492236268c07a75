"""What is common to all built-in kinds: Go's decoding, their OpenAPI schemas, their dialect."""

from collections.abc import Callable, Mapping
from typing import Any

from kthena.api.openapi import load_components
from kthena.local.apiserver.codec import Decoded
from kthena.local.apiserver.dialect import BUILTIN
from kthena.local.apiserver.gotypes import decoder_for
from kthena.local.apiserver.kinds import Representation
from kthena.machinery.managedfields.atoms import atom_of
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource
from kthena.machinery.schema.openapi import COMPONENT_PREFIX, OpenApiSchema

Default = Callable[[Object], None]
"""Sets what an object leaves open."""


_OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


class BuiltinCodec:
    """Decodes to the struct of a kind and sets what the object leaves open."""

    def __init__(self, struct: str, kind: str, default: Default | None) -> None:
        self._decoder = decoder_for(struct, kind)
        self._default = default

    def decode(self, value: Any, *, converts: bool = False) -> Decoded:
        """The object in its normal form, with defaults, and what was dropped from it."""
        decoded = self._decoder.decode(value, converts=converts)
        if self._default is not None:
            self._default(decoded.obj)
        return decoded

    def empty(self) -> Object:
        """The zero value of the struct."""
        return self._decoder.decode({}).obj


def builtin(
    resource: Resource, default: Default | None = None, *, package: str = "io.k8s.api"
) -> Representation:
    """The representation of a built-in kind; `package` is where its Go types are published."""
    group = resource.group.partition(".")[0] or "core"
    struct = f"{group}.{resource.version}.{resource.kind}"
    component = f"{package}.{struct}"
    codec = BuiltinCodec(struct, resource.kind, default)
    schema = OpenApiSchema.of_component(component, _resolve)
    return Representation(resource, codec, schema, BUILTIN, component, atom_of(schema))


def object_meta_schema() -> OpenApiSchema:
    """The schema of the metadata of any object."""
    return OpenApiSchema.of_component(_OBJECT_META, _resolve)


def _resolve(reference: str) -> Mapping[str, Any]:
    return load_components()[reference.removeprefix(COMPONENT_PREFIX)]
