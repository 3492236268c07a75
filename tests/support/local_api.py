"""API servers for tests of the node and the Deployment controllers: the embedded one and a real one."""

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kthena.api.kubernetes import EVENTS, NAMESPACES, PODS
from kthena.kube.client import ClientConfig, DeleteParams, KubeClient
from kthena.kube.errors import ApiError, NotFound
from kthena.local.apiserver.server import ApiServer
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

SERVERS = [
    pytest.param("embedded", id="embedded"),
    pytest.param("real", id="real", marks=pytest.mark.cluster),
]


class Api:
    """A client of the server under test, in a namespace of its own."""

    def __init__(
        self, client: KubeClient, namespace: str, kubeconfig: Path, embedded: ApiServer | None
    ) -> None:
        self.client = client
        self.namespace = namespace
        self.kubeconfig = kubeconfig
        self.embedded = embedded

    async def create(self, resource: Resource, obj: Object) -> Object:
        metadata = {"namespace": self.namespace, **obj["metadata"]}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        return await self.client.create(resource, {**body, "metadata": metadata})

    async def get(self, resource: Resource, name: str) -> Object:
        return await self.client.get(resource, name, self.namespace)

    async def delete(self, resource: Resource, name: str, grace_s: int | None = None) -> None:
        params = DeleteParams(grace_period_s=grace_s)
        await self.client.delete(resource, name, self.namespace, params)

    async def until(
        self,
        resource: Resource,
        name: str,
        condition: Callable[[Object], Any],
        timeout_s: float = 20,
    ) -> Object:
        """The object once the condition holds."""
        obj: Object = {}
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    with contextlib.suppress(NotFound):
                        obj = await self.get(resource, name)
                        if condition(obj):
                            return obj
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"{resource} {name}: {json.dumps(obj.get('status'), indent=1)}")

    async def until_gone(self, resource: Resource, name: str, timeout_s: float = 20) -> None:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    await self.get(resource, name)
                except NotFound:
                    return
                await asyncio.sleep(0.02)

    async def until_ready(self, name: str) -> Object:
        return await self.until(PODS, name, is_ready)

    async def raw_events(self) -> list[Object]:
        """Every event of the namespace."""
        return (await self.client.list(EVENTS, self.namespace)).items

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Reason and message of an object's events."""
        return [
            (event["reason"], event["message"])
            for event in await self.raw_events()
            if (event.get("involvedObject") or event.get("regarding") or {}).get("name") == name
        ]

    async def until_event(self, name: str, reason: str) -> str:
        async with asyncio.timeout(20):
            while True:
                for found, message in await self.events(name):
                    if found == reason:
                        return message
                await asyncio.sleep(0.05)


def is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


@asynccontextmanager
async def open_api(kind: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Api]:
    """The server of that kind, with a namespace that is emptied afterwards."""
    async with contextlib.AsyncExitStack() as stack:
        embedded = None
        if kind == "embedded":
            embedded = ApiServer()
            await embedded.start()
            stack.push_async_callback(embedded.stop)
            kubeconfig = folder / "kubeconfig"
            kubeconfig.write_text(json.dumps(embedded.kubeconfig()))
        else:
            kubeconfig = request.getfixturevalue("real_apiserver").kubeconfig
        client = await stack.enter_async_context(
            KubeClient.connect(ClientConfig(kubeconfig=kubeconfig))
        )
        namespace = f"t-{uuid.uuid4().hex[:8]}"
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        )
        yield Api(client, namespace, kubeconfig, embedded)
        with contextlib.suppress(ApiError):
            await client.delete(NAMESPACES, namespace)
