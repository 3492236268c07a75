"""OpenAPI v3 of what is served: an index, and one document for each group and version.

Enough for clients: the schemas of all kinds with everything that they refer to, and the paths with
the query parameters that kubectl looks for (`fieldValidation`, `dryRun`). A document is made when it is
first asked for, and made anew when the kinds that it is about have changed.

The document in version 2 is empty: kubectl reads it to check lists of objects and kinds that it finds
nowhere else, and leaves them to the server when it learns nothing.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from kthena.api.openapi import (
    component_name,
    described_component,
    kubernetes_release,
    load_components,
)
from kthena.local.apiserver.catalog import Catalog, GroupVersion
from kthena.local.apiserver.customresources.publishing import published_schema
from kthena.local.apiserver.kinds import Kind
from kthena.machinery.objects import Object

_REF: Final = "#/components/schemas/"
_OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LIST_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"
_MODEL: Final = "io.k8s.api.core.v1.Pod"
"""A kind whose common fields are described as those of custom resources are."""

_MORE: Final = (
    "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
_WRITE_PARAMETERS: Final = ("dryRun", "fieldManager", "fieldValidation")
_LIST_PARAMETERS: Final = (
    *("allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit"),
    *("resourceVersion", "resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch"),
)
_DELETE_PARAMETERS: Final = ("dryRun", "gracePeriodSeconds", "propagationPolicy")


_TITLE: Final = "Kubernetes"
V2_ACCEPTED: Final = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
V2_PROTOBUF: Final = V2_ACCEPTED.replace("@", ".")
"""What a reply is called: the name that is asked for is no valid media type."""


def v2_document() -> bytes:
    """`/openapi/v2` as JSON."""
    info = {"title": _TITLE, "version": kubernetes_release()}
    return msgspec.json.encode({"swagger": "2.0", "info": info, "paths": {}})


def v2_protobuf_document() -> bytes:
    """`/openapi/v2` as `openapi.v2.Document` of gnostic, which clients in Go ask for."""
    info = _protobuf_text(1, _TITLE.encode()) + _protobuf_text(2, kubernetes_release().encode())
    return _protobuf_text(1, b"2.0") + _protobuf_text(2, info)


def _protobuf_text(number: int, value: bytes) -> bytes:
    """A field of a message: text, or another message, of less than 128 bytes."""
    return bytes((number << 3 | 2, len(value))) + value


class OpenApi:
    """Mutable state: the documents that were made, and of what; the hashes until the kinds change."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._documents: dict[GroupVersion, tuple[str, bytes]] = {}
        self._hashes: dict[GroupVersion, str] = {}
        catalog.on_change(self._hashes.clear)

    def index(self) -> bytes:
        """`/openapi/v3`: where the documents are, with a hash for clients that keep them."""
        paths = {}
        for group in ("", *self._catalog.groups()):
            for version in self._catalog.versions(group):
                at = GroupVersion(group, version)
                place, digest = _place(at), self._hash(at)
                paths[place] = {"serverRelativeURL": f"/openapi/v3/{place}?hash={digest}"}
        return msgspec.json.encode({"paths": paths})

    def _hash(self, at: GroupVersion) -> str:
        """A hash of what the document is made of."""
        if at not in self._hashes:
            kinds = self._catalog.in_version(at.group, at.version)
            parts = [kubernetes_release(), *map(_outline, kinds)]
            self._hashes[at] = hashlib.sha512(msgspec.json.encode(parts)).hexdigest().upper()
        return self._hashes[at]

    def document(self, group: str, version: str) -> bytes | None:
        """The document of a group and version; None where it is not served."""
        at = GroupVersion(group, version)
        kinds = self._catalog.in_version(group, version)
        if not kinds:
            self._documents.pop(at, None)
            return None
        made = self._documents.get(at)
        digest = self._hash(at)
        if made is None or made[0] != digest:
            made = (digest, msgspec.json.encode(_document(at, list(kinds))))
            self._documents[at] = made
        return made[1]


def _outline(kind: Kind) -> list[Any]:
    """What of a kind its document depends on."""
    subresources = {name: part.verbs for name, part in kind.subresources.items()}
    resource = kind.resource
    names = (resource.plural, resource.kind, kind.list_kind_name, resource.namespaced)
    return [*names, kind.verbs, subresources, kind.open_api_schema]


def _place(at: GroupVersion) -> str:
    return f"apis/{at}" if at.group else f"api/{at.version}"


def _document(at: GroupVersion, kinds: list[Kind]) -> Object:
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for kind in kinds:
        name = _add_schemas(kind, schemas)
        paths |= dict(_paths(kind, name, f"/{_place(at)}"))
    return {
        "openapi": "3.0.0",
        "info": {"title": _TITLE, "version": kubernetes_release()},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _add_schemas(kind: Kind, schemas: dict[str, Any]) -> str:
    """Add the schema of a kind, of its list, and all that they refer to; the result is its name."""
    name = kind.representation.component
    resource = kind.resource
    if kind.open_api_schema is None:
        _add(name, schemas)
        # A kind whose fields nobody describes; a reference to it must lead somewhere.
        unknown = {"x-kubernetes-group-version-kind": [_gvk(kind, resource.kind)]}
        schemas.setdefault(name, {"type": "object", **unknown})
    else:
        schemas[name] = _custom_schema(kind, kind.open_api_schema)
        _add(_OBJECT_META, schemas)
    if "list" in kind.verbs:
        listed = component_name(resource.group, resource.version, kind.list_kind_name)
        if listed is None:
            schemas[f"{name}List"] = _list_schema(kind, name)
            _add(_LIST_META, schemas)
        else:
            _add(listed, schemas)
    return name


def _add(name: str, schemas: dict[str, Any]) -> None:
    components = load_components()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        if name not in schemas and name in components:
            schemas[name] = described_component(name)
            waiting += _references(components[name])


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                yield value.removeprefix(_REF)
            else:
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _gvk(kind: Kind, name: str) -> Object:
    return {"group": kind.resource.group, "kind": name, "version": kind.resource.version}


def _common_fields(model: str) -> dict[str, Any]:
    """The fields of all objects, or of all lists, with their descriptions."""
    properties = described_component(model)["properties"]
    fields = {name: dict(properties[name]) for name in ("apiVersion", "kind", "metadata")}
    fields["metadata"].pop("default", None)
    return fields


def _custom_schema(kind: Kind, declared: Object) -> Object:
    """The schema of a custom resource with the fields that all objects have."""
    common = _common_fields(_MODEL)
    schema = published_schema(declared, common["metadata"])
    properties = dict(schema.get("properties") or {}) | common
    schema["properties"] = properties
    schema["x-kubernetes-group-version-kind"] = [_gvk(kind, kind.resource.kind)]
    return schema


def _list_schema(kind: Kind, name: str) -> Object:
    listed, named = kind.resource, kind.list_kind_name
    items = {"type": "array", "items": {"$ref": _REF + name}}
    return {
        "description": f"{named} is a list of {listed.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            **_common_fields(f"{_MODEL}List"),
            "items": {"description": f"List of {listed.plural}. {_MORE}", **items},
        },
        "x-kubernetes-group-version-kind": [_gvk(kind, kind.list_kind_name)],
    }


def _paths(kind: Kind, schema: str, base: str) -> Iterator[tuple[str, Object]]:
    plural = kind.resource.plural
    scope = f"{base}/namespaces/{{namespace}}" if kind.resource.namespaced else base
    operations = _Operations(kind, schema)
    collection = operations.collection()
    if collection:
        yield f"{scope}/{plural}", collection
    if kind.resource.namespaced and "list" in kind.verbs:
        yield f"{base}/{plural}", {"get": operations.operation("list", _LIST_PARAMETERS)}
    item = operations.item()
    if item:
        yield f"{scope}/{plural}/{{name}}", item
    for name in kind.subresources:
        yield f"{scope}/{plural}/{{name}}/{name}", operations.subresource(name)


class _Operations:
    """The operations of one kind."""

    def __init__(self, kind: Kind, schema: str) -> None:
        self._kind = kind
        self._schema = schema

    def collection(self) -> Object:
        """The operations on the collection in its namespace."""
        return self._pick(
            ("get", "list", _LIST_PARAMETERS),
            ("post", "create", _WRITE_PARAMETERS),
            ("delete", "deletecollection", (*_LIST_PARAMETERS, *_DELETE_PARAMETERS)),
        )

    def item(self) -> Object:
        """The operations on one object."""
        return self._pick(
            ("get", "get", ()),
            ("put", "update", _WRITE_PARAMETERS),
            ("patch", "patch", (*_WRITE_PARAMETERS, "force")),
            ("delete", "delete", _DELETE_PARAMETERS),
        )

    def subresource(self, name: str) -> Object:
        """The operations on a subresource."""
        verbs = self._kind.subresources[name].verbs
        methods = {"get": "get", "create": "post", "update": "put", "patch": "patch"}
        return {methods[verb]: self.operation(verb, _WRITE_PARAMETERS) for verb in verbs}

    def _pick(self, *operations: tuple[str, str, tuple[str, ...]]) -> Object:
        return {
            method: self.operation(verb, parameters)
            for method, verb, parameters in operations
            if verb in self._kind.verbs
        }

    def operation(self, verb: str, parameters: tuple[str, ...]) -> Object:
        """One operation, with the schema of what it takes and answers."""
        name = f"{self._schema}List" if verb == "list" else self._schema
        content = {"application/json": {"schema": {"$ref": _REF + name}}}
        operation: Object = {
            "parameters": [
                {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                for name in parameters
            ],
            "responses": {"200": {"description": "OK", "content": content}},
            "x-kubernetes-action": {"create": "post", "update": "put"}.get(verb, verb),
            "x-kubernetes-group-version-kind": _gvk(self._kind, self._kind.resource.kind),
        }
        if verb in ("create", "update"):
            operation["requestBody"] = {"content": {"*/*": content["application/json"]}}
        if verb == "patch":
            types = {
                media: {"schema": {"type": "object"}} for media in self._kind.dialect.patch_types
            }
            operation["requestBody"] = {"content": types}
        return operation
