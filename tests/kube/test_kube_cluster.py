"""The client side against a real kube-apiserver."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kthena.api.kubernetes import (
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    EVENTS,
    LEASES,
    NAMESPACES,
    SERVICE_ACCOUNTS,
)
from kthena.kube.client import (
    ClientConfig,
    DeleteParams,
    KubeClient,
    PatchType,
    WatchParams,
)
from kthena.kube.client.http import Anonymous, Endpoint, HttpTransport
from kthena.kube.client.kubeconfig import load_endpoint
from kthena.kube.election import ElectionConfig, LeaderElector
from kthena.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Unauthorized,
)
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Informer, InformerConfig, InformerState
from kthena.kube.status import patch_status
from kthena.machinery.objects import NamespacedName, Object, name_of
from kthena.machinery.resources import Resource
from support.kube_proxy import ApiProxy, proxy_of, through

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
QUICK = InformerConfig(silence_timeout_s=120)
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def kubeconfig(request: pytest.FixtureRequest) -> Path:
    """Of the server under test: the variable's, or one that is started for the tests."""
    path = os.environ.get("KUBECONFIG_UNDER_TEST")
    return Path(path) if path else request.getfixturevalue("real_apiserver").kubeconfig


@pytest.fixture
async def client(kubeconfig: Path) -> AsyncIterator[KubeClient]:
    async with KubeClient.connect(ClientConfig(kubeconfig=kubeconfig)) as client:
        yield client


@pytest.fixture
async def namespace(client: KubeClient) -> AsyncIterator[str]:
    created = await client.create(NAMESPACES, {"metadata": {"generateName": "kube-test-"}})
    yield name_of(created)
    await client.delete(NAMESPACES, name_of(created))


@pytest.fixture
async def proxy(kubeconfig: Path) -> AsyncIterator[ApiProxy]:
    async with proxy_of(kubeconfig) as proxy:
        yield proxy


@pytest.fixture
async def proxied(kubeconfig: Path, proxy: ApiProxy) -> AsyncIterator[KubeClient]:
    """A client that goes through the proxy."""
    config = ClientConfig(request_timeout_s=5)
    async with KubeClient(through(proxy, kubeconfig), config) as client:
        yield client


@asynccontextmanager
async def running(informer: Informer) -> AsyncIterator[Informer]:
    task = asyncio.create_task(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool], within_s: float = 30.0) -> float:
    """Wait for the condition; the seconds that it took."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < within_s, "the condition does not come true"
        await asyncio.sleep(0.01)
    return time.monotonic() - started


def config_map(namespace: str, name: str, **data: str) -> Object:
    return {"metadata": {"name": name, "namespace": namespace}, "data": data}


def is_watch(head: bytes) -> bool:
    return b"watch=true" in head


async def crowd(client: KubeClient, namespace: str, count: int) -> None:
    """So many ConfigMaps, made with some concurrency."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await client.create(CONFIG_MAPS, config_map(namespace, f"m{number}", n="x" * 100))

    async with asyncio.TaskGroup() as workers:
        for _ in range(16):
            workers.create_task(work())


async def test_verbs_and_their_errors(client: KubeClient, namespace: str) -> None:
    created = await client.create(CONFIG_MAPS, config_map(namespace, "a", x="1"))
    with pytest.raises(AlreadyExists):
        await client.create(CONFIG_MAPS, config_map(namespace, "a"))
    updated = await client.update(CONFIG_MAPS, {**created, "data": {"x": "2"}})
    with pytest.raises(Conflict):
        await client.update(CONFIG_MAPS, {**created, "data": {"x": "3"}})
    assert await client.get(CONFIG_MAPS, "a", namespace) == updated

    patched = await client.patch(
        CONFIG_MAPS, "a", namespace, {"data": {"x": None, "y": "1"}}, PatchType.MERGE
    )
    assert patched["data"] == {"y": "1"}
    operations = [{"op": "add", "path": "/data/z", "value": "1"}]
    await client.patch(CONFIG_MAPS, "a", namespace, operations, PatchType.JSON)
    applied = await client.patch(
        CONFIG_MAPS,
        "a",
        namespace,
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"z": "2"}},
        PatchType.APPLY,
        force=True,
        field_manager="tester",
    )
    assert applied["data"] == {"y": "1", "z": "2"}
    managers = {entry["manager"] for entry in applied["metadata"]["managedFields"]}
    assert managers == {"kthena", "tester"}

    uid = applied["metadata"]["uid"]
    with pytest.raises(Conflict):
        await client.delete(CONFIG_MAPS, "a", namespace, DeleteParams(uid="another"))
    await client.delete(CONFIG_MAPS, "a", namespace, DeleteParams(uid, propagation="Background"))
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", namespace)


async def test_refusals_name_the_fields(client: KubeClient, namespace: str) -> None:
    with pytest.raises(Invalid) as caught:
        await client.create(CONFIG_MAPS, config_map(namespace, "Not_A_Name"))
    assert caught.value.causes[0]["field"] == "metadata.name"

    unknown = {**config_map(namespace, "a"), "nonsense": 1}
    with pytest.raises(ApiError, match="strict decoding error"):
        await client.create(CONFIG_MAPS, unknown, field_validation="Strict")
    await client.create(CONFIG_MAPS, unknown, dry_run=True, field_validation="Ignore")
    with pytest.raises(NotFound):
        await client.get(CONFIG_MAPS, "a", namespace)


async def test_a_wrong_token_is_unauthorized(kubeconfig: Path) -> None:
    endpoint = load_endpoint(ClientConfig(kubeconfig=kubeconfig))

    class Wrong(Anonymous):
        async def authorization(self) -> str:
            return "Bearer wrong"

    transport = HttpTransport(replace(endpoint, credentials=Wrong()))
    async with KubeClient(transport, ClientConfig()) as client:
        with pytest.raises(Unauthorized):
            await client.list(CONFIG_MAPS)


async def test_lists_and_collections(client: KubeClient, namespace: str) -> None:
    await crowd(client, namespace, 12)

    first = await client.list_page(CONFIG_MAPS, namespace, limit=5)
    assert (len(first.items), first.remaining) == (5, 7)
    assert first.items[0]["kind"] == "ConfigMap"
    named = await client.list(CONFIG_MAPS, namespace, field_selector="metadata.name=m3")
    assert [name_of(obj) for obj in named.items] == ["m3"]

    await client.delete_collection(CONFIG_MAPS, namespace)
    assert (await client.list(CONFIG_MAPS, namespace)).items == []


async def test_a_watch_ends_at_its_time_limit(client: KubeClient, namespace: str) -> None:
    listed = await client.list(CONFIG_MAPS, namespace)
    params = WatchParams(listed.resource_version, timeout_s=1)
    await client.create(CONFIG_MAPS, config_map(namespace, "a"))

    seen = [event.type async for event in client.watch(CONFIG_MAPS, namespace, params)]

    assert seen[0] == "ADDED"
    assert set(seen[1:]) <= {"BOOKMARK"}


async def test_what_an_outage_hid_is_found_within_seconds(
    client: KubeClient, proxied: KubeClient, proxy: ApiProxy, namespace: str
) -> None:
    """Field report B022, with 2,000 objects in pages."""
    await crowd(client, namespace, 2000)
    config = replace(QUICK, namespace=namespace, page_size=300)
    informer = Informer(proxied, CONFIG_MAPS, config)
    changes: list[str] = []
    async with running(informer):
        await until(informer.synced.is_set)
        assert len(informer.store) == 2000
        informer.add_handler(lambda change: changes.append(f"{change.type} {change.key.name}"))
        changes.clear()

        proxy.cut()
        await client.delete(CONFIG_MAPS, "m7", namespace)
        await client.create(CONFIG_MAPS, config_map(namespace, "newcomer"))
        await until(lambda: informer.state is InformerState.FAILING)
        assert changes == []
        proxy.restore()
        took = await until(lambda: informer.state is InformerState.SYNCED)

        assert changes == ["DELETED m7", "ADDED newcomer"]
        assert informer.store.get(NamespacedName(namespace, "m7")) is None
        assert took < 5


@pytest.mark.parametrize("statuses", [[410], [504], [410, 504, 504]])
async def test_watches_that_are_answered_with_errors(
    client: KubeClient,
    proxied: KubeClient,
    proxy: ApiProxy,
    namespace: str,
    statuses: list[int],
) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "ghost"))
    informer = Informer(proxied, CONFIG_MAPS, replace(QUICK, namespace=namespace))
    async with running(informer):
        await until(informer.synced.is_set)
        for status in statuses:
            proxy.answer(status, is_watch)
        proxy.cut()
        await client.delete(CONFIG_MAPS, "ghost", namespace)
        await client.create(CONFIG_MAPS, config_map(namespace, "newcomer"))
        proxy.restore()
        await until(lambda: proxy.answered == len(statuses))

        took = await until(lambda: informer.state is InformerState.SYNCED)

        assert [name_of(obj) for obj in informer.store] == ["newcomer"]
        assert took < 5
        await client.create(CONFIG_MAPS, config_map(namespace, "another"))
        await until(lambda: len(informer.store) == 2)


async def test_a_watch_that_falls_silent_is_restarted(
    client: KubeClient, proxied: KubeClient, proxy: ApiProxy, namespace: str
) -> None:
    await client.create(CONFIG_MAPS, config_map(namespace, "ghost"))
    config = replace(QUICK, namespace=namespace, silence_timeout_s=1.5)
    informer = Informer(proxied, CONFIG_MAPS, config)
    async with running(informer):
        await until(informer.synced.is_set)
        proxy.swallow()
        await client.delete(CONFIG_MAPS, "ghost", namespace)
        await client.create(CONFIG_MAPS, config_map(namespace, "newcomer"))
        await until(lambda: informer.state is InformerState.FAILING)
        proxy.restore()

        took = await until(lambda: informer.state is InformerState.SYNCED)

        assert [name_of(obj) for obj in informer.store] == ["newcomer"]
        assert took < 5


def definition(number: int) -> tuple[Resource, Object]:
    """A CRD with a status subresource."""
    plural = f"things{number}"
    resource = Resource("kube.test", "v1", plural, "Thing")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    spec = {
        "group": "kube.test",
        "scope": "Namespaced",
        "names": {"plural": plural, "kind": "Thing", "listKind": "ThingList"},
        "versions": [version],
    }
    return resource, {"metadata": {"name": f"{plural}.kube.test"}, "spec": spec}


@pytest.fixture
async def things(client: KubeClient) -> AsyncIterator[tuple[Resource, Object]]:
    resource, crd = definition(next(_numbers))
    yield resource, crd
    with suppress(NotFound):
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, name_of(crd))


async def served(client: KubeClient, resource: Resource) -> None:
    for _ in range(200):
        try:
            await client.list(resource)
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_crd_that_appears_is_used_within_five_seconds_and_may_disappear(
    client: KubeClient, namespace: str, things: tuple[Resource, Object]
) -> None:
    resource, crd = things
    informer = Informer(client, resource, QUICK)
    other = Informer(client, CONFIG_MAPS, replace(QUICK, namespace=namespace))
    async with running(informer), running(other):
        await until(lambda: informer.state is InformerState.ABSENT)
        await until(other.synced.is_set)

        await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
        assert await until(informer.synced.is_set) < 5
        thing = {
            "apiVersion": "kube.test/v1",
            "kind": "Thing",
            "metadata": {"name": "t", "namespace": namespace},
        }
        await client.create(resource, thing)
        await until(lambda: len(informer.store) == 1)

        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, name_of(crd))
        await until(lambda: informer.state is InformerState.ABSENT)
        assert len(informer.store) == 0
        assert other.state is InformerState.SYNCED


async def token_client(kubeconfig: Path, client: KubeClient, namespace: str) -> KubeClient:
    """A client with the token of a new service account."""
    account = {"metadata": {"name": "limited", "namespace": namespace}}
    await client.create(SERVICE_ACCOUNTS, account)
    path = SERVICE_ACCOUNTS.path(namespace, "limited", "token")
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    reply = await client.raw("POST", path, body=request)
    token = msgspec.json.decode(reply.body)["status"]["token"]
    endpoint = load_endpoint(ClientConfig(kubeconfig=kubeconfig))

    class Limited(Anonymous):
        async def authorization(self) -> str:
            return f"Bearer {token}"

    limited: Endpoint = replace(endpoint, credentials=Limited())
    return KubeClient(HttpTransport(limited), ClientConfig())


async def test_a_right_that_is_granted_is_used_within_five_seconds(
    kubeconfig: Path, client: KubeClient, namespace: str
) -> None:
    async with await token_client(kubeconfig, client, namespace) as limited:
        with pytest.raises(Forbidden):
            await limited.list(CONFIG_MAPS, namespace)
        config = replace(QUICK, namespace=namespace)
        informer = Informer(limited, CONFIG_MAPS, config)
        async with running(informer):
            await until(lambda: informer.state is InformerState.FORBIDDEN)
            assert "limited" in informer.reason
            await grant(client, namespace, ["list"])
            await asyncio.sleep(4)
            assert not informer.synced.is_set()  # listing without watching is not enough
            await client.delete(ROLES, "reader", namespace)
            await client.delete(ROLE_BINDINGS, "reader", namespace)

            await grant(client, namespace, ["list", "watch"])

            assert await until(informer.synced.is_set) < 5


async def grant(client: KubeClient, namespace: str, verbs: list[str]) -> None:
    metadata = {"name": "reader", "namespace": namespace}
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]
    await client.create(ROLES, {"metadata": metadata, "rules": rules})
    await client.create(
        ROLE_BINDINGS,
        {
            "metadata": metadata,
            "roleRef": {"apiGroup": ROLES.group, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "limited", "namespace": namespace}],
        },
    )


async def test_the_lease_passes_from_one_to_another(
    client: KubeClient, proxied: KubeClient, proxy: ApiProxy, namespace: str
) -> None:
    def elector(through: KubeClient, identity: str) -> LeaderElector:
        config = ElectionConfig("l", namespace, identity, 3.0, 2.0, 0.3)
        return LeaderElector(through, config)

    journal: list[str] = []

    def run(elector: LeaderElector, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(
            elector.run(
                lambda: journal.append(f"{name} started"), lambda: journal.append(f"{name} lost")
            )
        )

    first, second = elector(proxied, "first"), elector(client, "second")
    tasks = [run(first, "first")]
    await until(lambda: first.is_leader)
    tasks.append(run(second, "second"))
    await asyncio.sleep(4)
    assert first.is_leader
    assert not second.is_leader

    proxy.swallow()
    await until(lambda: second.is_leader)
    assert journal == ["first started", "first lost", "second started"]
    proxy.restore()

    tasks[1].cancel()
    await asyncio.gather(tasks[1], return_exceptions=True)
    await second.release()
    assert await until(lambda: first.is_leader) < 2
    lease = await client.get(LEASES, "l", namespace)
    assert lease["spec"]["holderIdentity"] == "first"
    assert lease["spec"]["leaseTransitions"] == 2
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_events_are_accepted_and_counted(client: KubeClient, namespace: str) -> None:
    recorder = EventRecorder(client, "kube-test")
    writing = asyncio.create_task(recorder.run())
    subject = await client.create(CONFIG_MAPS, config_map(namespace, "a"))
    scope = await client.get(NAMESPACES, namespace)
    for _ in range(3):
        recorder.record(subject, "Warning", "Tested", "it was tested")
        await recorder.flush(5)
    recorder.record(scope, "Normal", "Tested", "it was tested")
    await recorder.flush(5)

    (event,) = (await client.list(EVENTS, namespace)).items
    assert (event["count"], event["type"], event["reason"]) == (3, "Warning", "Tested")
    assert event["involvedObject"]["uid"] == subject["metadata"]["uid"]
    selector = f"involvedObject.name={namespace},involvedObject.kind=Namespace"
    (event,) = (await client.list(EVENTS, "default", field_selector=selector)).items
    assert event["source"] == {"component": "kube-test"}
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_status_is_written_with_its_preconditions(
    client: KubeClient, namespace: str, things: tuple[Resource, Object]
) -> None:
    resource, crd = things
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
    await served(client, resource)
    thing: dict[str, Any] = {
        "apiVersion": "kube.test/v1",
        "kind": "Thing",
        "metadata": {"name": "t", "namespace": namespace},
        "spec": {"a": 1},
    }
    created = await client.create(resource, thing)

    written = await patch_status(client, resource, created, {"ready": 1, "x": {"y": 1}})
    assert written["status"] == {"observedGeneration": 1, "ready": 1, "x": {"y": 1}}
    assert await patch_status(client, resource, written, {"ready": 1, "x": {"y": 1}}) is written
    shorter = await patch_status(client, resource, written, {"ready": 2})
    assert shorter["status"] == {"observedGeneration": 1, "ready": 2}
    with pytest.raises(Conflict):
        await patch_status(client, resource, written, {"ready": 3})
    forced = await patch_status(client, resource, written, {"a": 1}, only_if_unchanged=False)
    assert forced["status"] == {"observedGeneration": 1, "a": 1}

    await client.delete(resource, "t", namespace)
    with pytest.raises(NotFound):
        await patch_status(client, resource, forced, {"ready": 4})
    await client.create(resource, thing)
    with pytest.raises(Conflict):
        await patch_status(client, resource, forced, {"ready": 4})
    assert "status" not in await client.get(resource, "t", namespace)
