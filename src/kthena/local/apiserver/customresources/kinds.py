"""From a CustomResourceDefinition to the kinds that the server offers for it.

Compiled schemas are kept by their text, since an update of a CRD mostly leaves them alone, and a CRD
is checked and then installed.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from kthena.local.apiserver.catalog import version_priority
from kthena.local.apiserver.customresources.checks import schema_path
from kthena.local.apiserver.customresources.resource import (
    CustomResourceCodec,
    CustomResourceStatusStrategy,
    CustomResourceStrategy,
)
from kthena.local.apiserver.kinds import Conversion, Kind, ScalePaths
from kthena.local.apiserver.store import encode
from kthena.local.apiserver.tables import CustomResourcePrinter
from kthena.machinery.jsonpath import JsonPath, compile_jsonpath
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource
from kthena.machinery.schema.custom import CustomResourceSchema
from kthena.machinery.schema.scale import ScalePaths as SchemaScalePaths

_KEPT_SCHEMAS: Final = 64


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
                scale=_schema_scale(subresources.get("scale")),
            )
            self._schemas[key] = found
            if len(self._schemas) > _KEPT_SCHEMAS:
                self._schemas.popitem(last=False)
        self._schemas.move_to_end(key)
        return found


def _schema_scale(scale: Object | None) -> SchemaScalePaths | None:
    if scale is None:
        return None
    return SchemaScalePaths(
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
    kinds = []
    for index, version in enumerate(versions):
        if version["served"]:
            schema = schemas.compile(crd, index, schema_path(crd, index))
            kind = replace(
                _kind(crd, index, schema), refresh=stored_as.refresh, fresh_after=revision
            )
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
    subresources = version.get("subresources") or {}
    has_status, scale = "status" in subresources, subresources.get("scale")
    status = CustomResourceStatusStrategy(resource, schema, has_status=True)
    return Kind(
        resource,
        CustomResourceCodec(schema),
        CustomResourceStrategy(resource, schema, has_status=has_status),
        CustomResourcePrinter(version.get("additionalPrinterColumns") or ()),
        singular=names["singular"],
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status=status if has_status else None,
        scale=None if scale is None else _scale(scale),
        selectable={name: _SelectableField(path) for name, path in _fields(*spec["versions"])},
        field_labels={name: name for name, _ in _fields(version)},
        builtin=False,
        list_kind=names["listKind"],
        open_api_schema=version["schema"]["openAPIV3Schema"],
        deprecation=_deprecation(resource, version, spec["versions"]),
    )


def _fields(*versions: Object) -> Iterator[tuple[str, str]]:
    """The selectable fields of versions, each with its JSONPath."""
    for version in versions:
        for field in version.get("selectableFields") or ():
            yield field["jsonPath"].removeprefix("."), field["jsonPath"]


def _scale(scale: Object) -> ScalePaths:
    return ScalePaths(
        scale["specReplicasPath"].removeprefix("."),
        scale["statusReplicasPath"].removeprefix("."),
        (scale.get("labelSelectorPath") or "").removeprefix("."),
    )


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
