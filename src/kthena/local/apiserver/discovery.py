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
from kthena.local.apiserver.content import MediaType, parse_accept
from kthena.local.apiserver.kinds import STATUS_VERBS, Kind
from kthena.local.apiserver.replies import not_found_page, object_reply
from kthena.machinery.objects import Object

AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_CUSTOM_VERBS: Final = (
    *("delete", "deletecollection", "get", "list", "patch"),
    *("create", "update", "watch"),
)


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
        if not group or any(kind.builtin for kind in catalog.in_group(group)):
            raise errors.no_such_resource()
        return not_found_page()
    resources = [entry for kind in kinds for entry in _resources(kind)]
    head: Object = {"kind": "APIResourceList"}
    if group:
        head["apiVersion"] = "v1"
    return object_reply(
        {**head, "groupVersion": str(GroupVersion(group, version)), "resources": resources}
    )


def _verbs(kind: Kind) -> Sequence[str]:
    return kind.verbs if kind.builtin else _CUSTOM_VERBS


def _resources(kind: Kind) -> list[Object]:
    entry: Object = {
        "name": kind.resource.plural,
        "singularName": kind.singular,
        "namespaced": kind.resource.namespaced,
        "kind": kind.resource.kind,
        "verbs": list(_verbs(kind)),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    return [entry, *(_legacy_subresource(kind, name) for name in subresources(kind))]


def subresources(kind: Kind) -> list[str]:
    """The names of a kind's subresources."""
    offered = {"status": kind.status, "scale": kind.scale}
    names = [name for name, rules in offered.items() if rules is not None]
    return sorted([*names, *kind.other_subresources]) if kind.builtin else names


def _subresource_kind(kind: Kind, name: str) -> tuple[str, str, str]:
    """The group, version and kind that a subresource answers with."""
    if name == "scale":
        return "autoscaling", "v1", "Scale"
    if name == "binding":
        return kind.resource.group, kind.resource.version, "Binding"
    return kind.resource.group, kind.resource.version, kind.resource.kind


def _legacy_subresource(kind: Kind, name: str) -> Object:
    group, version, kind_name = _subresource_kind(kind, name)
    entry: Object = {
        "name": f"{kind.resource.plural}/{name}",
        "singularName": "",
        "namespaced": kind.resource.namespaced,
    }
    if name == "scale":
        entry |= {"group": group, "version": version}
    verbs = kind.other_subresources.get(name, STATUS_VERBS)
    return {**entry, "kind": kind_name, "verbs": list(verbs)}


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
        "responseKind": _response_kind(kind, ""),
        "scope": "Namespaced" if kind.resource.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(_verbs(kind)),
    }
    if kind.short_names:
        entry["shortNames"] = list(kind.short_names)
    if kind.categories:
        entry["categories"] = list(kind.categories)
    names = subresources(kind)
    if names:
        entry["subresources"] = [
            {
                "subresource": name,
                "responseKind": _response_kind(kind, name),
                "verbs": list(kind.other_subresources.get(name, STATUS_VERBS)),
            }
            for name in names
        ]
    return entry


def _response_kind(kind: Kind, subresource: str) -> Object:
    group, version, name = _subresource_kind(kind, subresource)
    if kind.builtin and subresource != "scale":
        # Empty parts stand for those of the list.
        group, version = "", ""
    return {"group": group, "version": version, "kind": name}
