"""Discovery: which groups, versions and resources there are.

Both forms: the lists that every client understands, and the aggregated one that kubectl asks for
first, which tells everything in two requests.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response

from kthena.local.apiserver import errors
from kthena.local.apiserver.catalog import Catalog, GroupVersion
from kthena.local.apiserver.kinds import Kind, Subresource
from kthena.local.apiserver.negotiation import MediaType, parse_accept
from kthena.local.apiserver.replies import not_found_page, object_reply
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def api_versions(address: str) -> Object:
    """`/api`."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(catalog: Catalog) -> Object:
    """`/apis`."""
    groups = [_group(catalog, name) for name in catalog.groups()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def _group(catalog: Catalog, name: str) -> Object:
    versions = [
        {"groupVersion": str(GroupVersion(name, version)), "version": version}
        for version in catalog.versions(name)
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def group_reply(catalog: Catalog, name: str) -> Response:
    """`/apis/GROUP`."""
    if name not in catalog.groups():
        return not_found_page()
    return object_reply({"kind": "APIGroup", "apiVersion": "v1", **_group(catalog, name)})


def resource_list_reply(catalog: Catalog, group: str, version: str) -> Response:
    """`/api/v1` and `/apis/GROUP/VERSION`.

    Raises:
        ApiError: 404, the group is built in and has no such version.
    """
    kinds = catalog.in_version(group, version)
    if not kinds:
        if not group or catalog.is_builtin(group):
            raise errors.no_such_resource()
        return not_found_page()
    resources = [entry for kind in kinds for entry in _resources(kind)]
    head: Object = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return object_reply(
        {**head, "groupVersion": str(GroupVersion(group, version)), "resources": resources}
    )


def _resources(kind: Kind) -> list[Object]:
    entry: Object = {
        "name": kind.resource.plural,
        "singularName": kind.names.singular,
        "namespaced": kind.resource.namespaced,
        "kind": kind.resource.kind,
        "verbs": list(kind.verbs),
    }
    if kind.names.short:
        entry["shortNames"] = list(kind.names.short)
    if kind.names.categories:
        entry["categories"] = list(kind.names.categories)
    return [entry, *(_legacy_subresource(kind, name) for name in kind.subresources)]


def _answered_by(kind: Kind, subresource: Subresource | None) -> Resource:
    """What a kind, or one of its subresources, answers with."""
    other = subresource.representation if subresource is not None else None
    return kind.resource if other is None else other.resource


def _is_elsewhere(resource: Resource, kind: Kind) -> bool:
    """Whether a resource is of another group and version than a kind that answers with it."""
    return resource.api_version != kind.resource.api_version


def _legacy_subresource(kind: Kind, name: str) -> Object:
    subresource = kind.subresources[name]
    answer = _answered_by(kind, subresource)
    entry: Object = {
        "name": f"{kind.resource.plural}/{name}",
        "singularName": "",
        "namespaced": kind.resource.namespaced,
    }
    if _is_elsewhere(answer, kind):
        entry |= {"group": answer.group, "version": answer.version}
    return {**entry, "kind": answer.kind, "verbs": list(subresource.verbs)}


def wants_aggregated(accept: str) -> bool:
    """Whether a client asks for the aggregated form before any other that there is."""
    return any(map(_is_aggregated, parse_accept(accept)[:1]))


def _is_aggregated(media: MediaType) -> bool:
    wanted = {"g": "apidiscovery.k8s.io", "v": "v2", "as": "APIGroupDiscoveryList"}
    return media.type == "application/json" and wanted.items() <= media.parameters.items()


def aggregated_reply(catalog: Catalog, groups: Sequence[str], known_etag: str) -> Response:
    """The aggregated form of some groups; `known_etag` is what the client has."""
    items = [_aggregated_group(catalog, name) for name in groups]
    body = msgspec.json.encode(
        {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }
    )
    etag = f'"{hashlib.sha512(body).hexdigest().upper()}"'
    headers = {"Cache-Control": "public", "ETag": etag, "Vary": "Accept"}
    if etag == known_etag:
        return Response(b"", 304, headers)
    return Response(body, 200, {**headers, "Content-Type": AGGREGATED})


def _aggregated_group(catalog: Catalog, name: str) -> Object:
    versions = [
        {
            "version": version,
            "resources": [_aggregated(kind) for kind in catalog.in_version(name, version)],
            "freshness": "Current",
        }
        for version in catalog.versions(name)
    ]
    return {"metadata": {"name": name} if name else {}, "versions": versions}


def _aggregated(kind: Kind) -> Object:
    entry: dict[str, Any] = {
        "resource": kind.resource.plural,
        "responseKind": _response_kind(kind, None),
        "scope": "Namespaced" if kind.resource.namespaced else "Cluster",
        "singularResource": kind.names.singular,
        "verbs": list(kind.verbs),
    }
    if kind.names.short:
        entry["shortNames"] = list(kind.names.short)
    if kind.names.categories:
        entry["categories"] = list(kind.names.categories)
    if kind.subresources:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(kind, subresource),
                "verbs": list(subresource.verbs),
            }
            for name, subresource in kind.subresources.items()
        ]
    return entry


def _response_kind(kind: Kind, subresource: Subresource | None) -> Object:
    answer = _answered_by(kind, subresource)
    group, version = answer.group, answer.version
    if kind.dialect.abbreviates_kinds and not _is_elsewhere(answer, kind):
        # Empty parts stand for those of the list.
        group, version = "", ""
    return {"group": group, "version": version, "kind": answer.kind}
