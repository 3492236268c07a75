"""Finding the resource that a user or a manifest means.

Kinds of this project and common built-in ones are known by heart; any other is asked of the server's
discovery, once per group and version.
"""

from typing import Any

import msgspec

from kthena.api import kubernetes
from kthena.api.registry import KIND_INFOS
from kthena.cli.errors import CliError, ExitCode
from kthena.kube.client import KubeClient
from kthena.kube.errors import NotFound
from kthena.machinery.resources import Resource

_BUILT_IN = {
    kubernetes.PODS: ("po",),
    kubernetes.SERVICES: ("svc",),
    kubernetes.CONFIG_MAPS: ("cm",),
    kubernetes.SECRETS: (),
    kubernetes.EVENTS: ("ev",),
    kubernetes.NODES: ("no",),
    kubernetes.NAMESPACES: ("ns",),
    kubernetes.DEPLOYMENTS: ("deploy",),
    kubernetes.REPLICA_SETS: ("rs",),
    kubernetes.CONTROLLER_REVISIONS: (),
    kubernetes.LEASES: (),
    kubernetes.SERVICE_ACCOUNTS: ("sa",),
    kubernetes.CUSTOM_RESOURCE_DEFINITIONS: ("crd", "crds"),
}


def _known_names() -> dict[str, Resource]:
    names: dict[str, Resource] = {}
    for resource, short in _BUILT_IN.items():
        names.update(dict.fromkeys((resource.plural, resource.kind.lower(), *short), resource))
    for resource, info in KIND_INFOS.items():
        names.update(dict.fromkeys((resource.plural, info.singular, *info.short_names), resource))
    return names


_NAMES = _known_names()
_KINDS = {(resource.api_version, resource.kind): resource for resource in _NAMES.values()}


class ResourceFinder:
    """Resources by the names that users type and by the kinds that manifests carry."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._discovered: dict[str, list[dict[str, Any]]] = {}

    async def by_name(self, text: str) -> Resource:
        """The resource of a plural, singular or short name, with or without its group.

        Raises:
            CliError: the server has no such resource.
        """
        name, _, group = text.lower().partition(".")
        known = _NAMES.get(name)
        if known is not None and group in ("", known.group):
            return known
        for api_version in await self._api_versions():
            if group and api_version.partition("/")[0] != group:
                continue
            for entry in await self._resources(api_version):
                if name in (entry["name"], entry.get("singularName"), *entry.get("shortNames", ())):
                    return _resource(api_version, entry)
        raise CliError(
            f"the server has no resource {text!r}",
            hint="kubectl api-resources lists what it has",
            exit_code=ExitCode.NOT_FOUND,
        )

    async def for_kind(self, api_version: str, kind: str) -> Resource:
        """The resource of a manifest's `apiVersion` and `kind`.

        Raises:
            CliError: the server has no such kind.
        """
        known = _KINDS.get((api_version, kind))
        if known is not None:
            return known
        for entry in await self._resources(api_version):
            if entry.get("kind") == kind and "/" not in entry["name"]:
                return _resource(api_version, entry)
        raise CliError(
            f"the server has no kind {kind} in {api_version}",
            hint="install its CustomResourceDefinition first, or mend apiVersion and kind",
            exit_code=ExitCode.NOT_FOUND,
        )

    async def _api_versions(self) -> list[str]:
        groups = await self._get("/apis")
        listed = groups.get("groups") or []
        return ["v1", *(str(group["preferredVersion"]["groupVersion"]) for group in listed)]

    async def _resources(self, api_version: str) -> list[dict[str, Any]]:
        if api_version not in self._discovered:
            root = "/apis" if "/" in api_version else "/api"
            found = await self._get(f"{root}/{api_version}")
            self._discovered[api_version] = found.get("resources") or []
        return self._discovered[api_version]

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            reply = await self._client.raw("GET", path)
        except NotFound:
            return {}
        decoded: dict[str, Any] = msgspec.json.decode(reply.body)
        return decoded


def _resource(api_version: str, entry: dict[str, Any]) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(
        group, version, entry["name"], entry["kind"], namespaced=bool(entry.get("namespaced"))
    )
