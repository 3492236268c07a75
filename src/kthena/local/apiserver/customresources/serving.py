"""From a CustomResourceDefinition to the kinds that the server offers for it.

Compiled schemas are kept by their text, since an update of a CRD mostly leaves them alone, and a CRD
is checked and then installed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kthena.local.apiserver.builtins.representation import object_meta_schema
from kthena.local.apiserver.builtins.subresources import SCALE
from kthena.local.apiserver.catalog import version_priority
from kthena.local.apiserver.customresources.checks import schema_path
from kthena.local.apiserver.customresources.resource import (
    CustomResourceCodec,
    CustomResourceStatusStrategy,
    CustomResourceStrategy,
)
from kthena.local.apiserver.dialect import CUSTOM
from kthena.local.apiserver.kinds import (
    Conversion,
    Kind,
    Names,
    Refresh,
    Representation,
    Subresource,
)
from kthena.local.apiserver.store import encode
from kthena.local.apiserver.tables import CustomResourcePrinter
from kthena.machinery.jsonpath import JsonPath, compile_jsonpath
from kthena.machinery.managedfields.atoms import resource_atom
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource
from kthena.machinery.schema.custom import CustomResourceSchema
from kthena.machinery.schema.scale import ScalePaths

_KEPT_SCHEMAS: Final = 64
_VERBS: Final = (
    *("delete", "deletecollection", "get", "list", "patch"),
    *("create", "update", "watch"),
)
"""In the order in which discovery tells them for custom resources."""


class SchemaCache:
    """Compiles schemas of CRDs. Mutable state: those used last."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[bytes, CustomResourceSchema] = OrderedDict()

    def compile(self, crd: Object, index: int, path: str) -> CustomResourceSchema:
        """The schema of one version.

        Raises:
            SchemaError: it, or one of its rules, is not accepted.
        """
        version = crd["spec"]["versions"][index]
        subresources = version.get("subresources") or {}
        key = encode({"path": path, "schema": version["schema"], "subresources": subresources})
        found = self._schemas.get(key)
        if found is None:
            found = CustomResourceSchema(
                version["schema"]["openAPIV3Schema"],
                path=path,
                status_subresource="status" in subresources,
                scale=_scale_paths(subresources.get("scale")),
            )
            self._schemas[key] = found
            if len(self._schemas) > _KEPT_SCHEMAS:
                self._schemas.popitem(last=False)
        self._schemas.move_to_end(key)
        return found


def _scale_paths(scale: Object | None) -> ScalePaths | None:
    if scale is None:
        return None
    return ScalePaths(
        scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath")
    )


def kinds_of(crd: Object, schemas: SchemaCache, revision: int) -> list[Kind]:
    """The served versions of a CRD; objects stored at `revision` or before need refreshing.

    The names are those of the spec: the caller has checked that they are free. What is stored, and
    what is read back, has the form of the storage version, whichever version a client speaks.
    """
    versions = crd["spec"]["versions"]
    storage = next(index for index, version in enumerate(versions) if version["storage"])
    stored_as = CustomResourceCodec(schemas.compile(crd, storage, schema_path(crd, storage)))
    refresh = Refresh(stored_as.refresh, revision)
    kinds = []
    for index, version in enumerate(versions):
        if version["served"]:
            schema = schemas.compile(crd, index, schema_path(crd, index))
            kind = replace(_kind(crd, index, schema), refresh=refresh)
            if version["schema"] != versions[storage]["schema"]:
                kind = replace(kind, conversion=Conversion(stored_as.refresh, _unchanged))
            kinds.append(kind)
    return kinds


def _unchanged(obj: Object) -> Object:
    return obj


def _kind(crd: Object, index: int, schema: CustomResourceSchema) -> Kind:
    spec = crd["spec"]
    names, version = spec["names"], spec["versions"][index]
    resource = Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
    )
    subresources = dict(_subresources(resource, schema, version))
    return Kind(
        Representation(
            resource,
            CustomResourceCodec(schema),
            schema.schema,
            CUSTOM,
            _component(resource),
            resource_atom(schema.schema, object_meta_schema()),
        ),
        CustomResourceStrategy(resource, schema, has_status="status" in subresources),
        CustomResourcePrinter(version.get("additionalPrinterColumns") or ()),
        Names(
            names["singular"],
            tuple(names.get("shortNames") or ()),
            tuple(names.get("categories") or ()),
            names["listKind"],
        ),
        verbs=_VERBS,
        subresources=subresources,
        selectable={name: _SelectableField(path) for name, path in _fields(*spec["versions"])},
        field_labels={name: name for name, _ in _fields(version)},
        open_api_schema=version["schema"]["openAPIV3Schema"],
        deprecation=_deprecation(resource, version, spec["versions"]),
    )


def _component(resource: Resource) -> str:
    reversed_group = ".".join(reversed(resource.group.split(".")))
    return f"{reversed_group}.{resource.version}.{resource.kind}"


def _subresources(
    resource: Resource, schema: CustomResourceSchema, version: Object
) -> Iterator[tuple[str, Subresource]]:
    declared = version.get("subresources") or {}
    if "status" in declared:
        strategy = CustomResourceStatusStrategy(resource, schema)
        yield "status", Subresource(strategy=strategy)
    if declared.get("scale") is not None:
        yield "scale", Subresource(representation=SCALE, scale=_scale_paths(declared["scale"]))


def _fields(*versions: Object) -> Iterator[tuple[str, str]]:
    """The selectable fields of versions, each with its JSONPath."""
    for version in versions:
        for field in version.get("selectableFields") or ():
            yield field["jsonPath"].removeprefix("."), field["jsonPath"]


def _deprecation(resource: Resource, version: Object, versions: list[Object]) -> str:
    """The warning of a deprecated version; it recommends the best one that is not."""
    if not version.get("deprecated"):
        return ""
    if version.get("deprecationWarning"):
        return str(version["deprecationWarning"])
    text = f"{resource.api_version} {resource.kind} is deprecated"
    good = [other["name"] for other in versions if other["served"] and not other.get("deprecated")]
    best = max(good, key=version_priority, default="")
    if best and version_priority(best) > version_priority(resource.version):
        text += f"; use {resource.group}/{best} {resource.kind}"
    return text


class _SelectableField:
    """Reads a field by its JSONPath, as text."""

    def __init__(self, path: str) -> None:
        self._path: JsonPath = compile_jsonpath(path)

    def __call__(self, obj: Object) -> str:
        found = self._path.find(obj)
        return _text(found[0]) if found else ""


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
