"""The networking plane as a program, on an API server: what it watches, serves and writes."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kthena.api.kubernetes import LEASES, PODS
from kthena.api.networking.names import LEASE_NAME
from kthena.api.registry import EXTERNAL_MODEL_PROVIDERS, MODEL_ROUTES, MODEL_SERVERS
from kthena.kube.client import Request
from kthena.kube.faults import Answer, Cut, Fault
from kthena.machinery.objects import Object
from support.networking import model_route, model_server, pod, targets
from support.networking_live import (
    Cluster,
    api_server,
    apply,
    engine_objects,
    plane,
)
from support.router_fleet import eventually
from support.router_upstream import Upstream


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with api_server(tmp_path) as found:
        yield found


def row(condition: Object) -> tuple[str, str]:
    return condition["status"], condition["reason"]


async def test_objects_that_were_there_before_are_served_with_the_first_table(
    cluster: Cluster,
) -> None:
    async with Upstream() as engine:
        await apply(cluster, engine_objects(engine.port))
        async with plane(cluster) as replica:
            assert (await replica.fleet.ask({"model": "chat"})).status == 200
            assert replica.swaps == 1


async def test_a_change_is_served_within_a_second(cluster: Cluster) -> None:
    """A pod that becomes ready, is relabelled, loses readiness, returns and goes; a selector edit."""
    async with Upstream() as engine, plane(cluster) as replica:
        await apply(cluster, engine_objects(engine.port))
        await replica.until_status("chat", 200, 1)
        await cluster.patch(PODS, "p", {"metadata": {"labels": {"app": "other"}}})
        await replica.until_status("chat", 503, 1)
        selector = {"workloadSelector": {"matchLabels": {"app": "other"}}}
        await cluster.patch(MODEL_SERVERS, "s", {"spec": selector})
        await replica.until_status("chat", 200, 1)
        one = await cluster.client.get(PODS, "p", "default")
        unready = {"conditions": [{"type": "Ready", "status": "False"}]}
        await cluster.set_status(PODS, one, unready)
        await replica.until_status("chat", 503, 1)
        await cluster.set_status(PODS, one, {"conditions": [{"type": "Ready", "status": "True"}]})
        await replica.until_status("chat", 200, 1)
        await cluster.delete(PODS, "p")
        await replica.until_status("chat", 503, 1)
        await cluster.delete(MODEL_ROUTES, "r")
        await replica.until_status("chat", 404, 1)


async def test_statuses_follow_what_can_be_served(cluster: Cluster) -> None:
    """A selector that matches nothing, then pods that appear, become ready and leave."""
    async with plane(cluster) as replica:
        route, server, first = engine_objects(8000)
        await cluster.create(server)
        waiting = await cluster.until_condition(MODEL_SERVERS, "s", "ResolvedRefs", "False")
        assert row(waiting) == ("False", "NoPods")
        assert "no pod in default has the labels" in waiting["message"]
        assert row((await cluster.conditions(MODEL_SERVERS, "s"))["Accepted"]) == (
            "True",
            "Accepted",
        )
        await cluster.create(route)
        unready = await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "False")
        assert row(unready) == ("False", "TargetsNotReady")
        assert "default/s" in unready["message"]

        await cluster.run_pod(first)
        await cluster.until_condition(MODEL_SERVERS, "s", "Ready", "True", 1)
        await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "True", 1)
        found = await cluster.client.get(MODEL_SERVERS, "s", "default")
        status = found["status"]
        assert (status["endpoints"], status["readyEndpoints"]) == (1, 1)
        assert status["observedGeneration"] == found["metadata"]["generation"]

        await cluster.delete(PODS, "p")
        gone = await cluster.until_condition(MODEL_SERVERS, "s", "Ready", "False", 1)
        assert gone["reason"] == "NoReadyEndpoints"
        await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "False", 1)
        assert replica.detail("route-table") == "published"


async def test_every_condition_carries_the_generation_that_it_speaks_of(cluster: Cluster) -> None:
    async with plane(cluster):
        await apply(cluster, engine_objects(8000))
        await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "True")
        await cluster.patch(MODEL_ROUTES, "r", {"spec": {"rules": targets("absent")}})
        absent = await cluster.until_condition(MODEL_ROUTES, "r", "ResolvedRefs", "False")
        assert absent["reason"] == "ModelServerNotFound"
        assert "default/absent" in absent["message"]
        obj = await cluster.client.get(MODEL_ROUTES, "r", "default")
        assert obj["metadata"]["generation"] == 2
        assert obj["status"]["observedGeneration"] == 2
        assert {one["observedGeneration"] for one in obj["status"]["conditions"]} == {2}


async def test_of_two_routes_for_one_model_the_younger_names_the_other(cluster: Cluster) -> None:
    """Whichever name comes first in the alphabet; deleting the older promotes the younger."""
    older = model_route("b", {"modelName": "chat", "rules": targets("s")})
    younger = model_route("a", {"modelName": "chat", "rules": targets("s")})
    async with plane(cluster):
        await apply(cluster, engine_objects(8000)[1:])
        await cluster.create(older)
        await cluster.until_condition(MODEL_ROUTES, "b", "Ready", "True")
        cluster.clock.by += timedelta(seconds=1)  # which is what creation times are made of
        await cluster.create(younger)
        lost = await cluster.until_condition(MODEL_ROUTES, "a", "Accepted", "False")
        assert lost["reason"] == "Conflict"
        assert "default/b" in lost["message"]
        kept = await cluster.conditions(MODEL_ROUTES, "b")
        assert row(kept["Accepted"]) == ("True", "Accepted")
        await cluster.delete(MODEL_ROUTES, "b")
        await cluster.until_condition(MODEL_ROUTES, "a", "Ready", "True", 1)


async def test_a_status_is_written_only_when_it_differs(cluster: Cluster) -> None:
    """Not on a restart, not when labels change, not for pods that change nothing that is said."""
    async with plane(cluster) as replica:
        await apply(cluster, engine_objects(8000))
        await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "True")
        await cluster.until_condition(MODEL_SERVERS, "s", "Ready", "True")
        before = replica.wire.status_writes()
        await cluster.patch(MODEL_ROUTES, "r", {"metadata": {"labels": {"team": "a"}}})
        await cluster.patch(MODEL_SERVERS, "s", {"metadata": {"labels": {"team": "a"}}})
        await cluster.patch(PODS, "p", {"metadata": {"annotations": {"seen": "yes"}}})
        await cluster.status_of_another("t")
        assert set(replica.wire.status_writes()[len(before) :]) == {"modelservers/t"}
    async with plane(cluster) as replica:
        await cluster.status_of_another("u")
        assert set(replica.wire.status_writes()) == {"modelservers/u"}


async def test_a_status_that_somebody_edits_is_put_right(cluster: Cluster) -> None:
    async with plane(cluster):
        await apply(cluster, engine_objects(8000))
        await cluster.until_condition(MODEL_SERVERS, "s", "Ready", "True")
        obj = await cluster.client.get(MODEL_SERVERS, "s", "default")
        foreign = {"type": "Audited", "status": "True", "reason": "Yes", "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        ready = next(one for one in obj["status"]["conditions"] if one["type"] == "Ready")
        forged = [foreign, {**ready, "status": "False", "reason": "Forged"}]
        await cluster.set_status(MODEL_SERVERS, obj, {"conditions": forged, "endpoints": 9})
        await cluster.until_condition(MODEL_SERVERS, "s", "Ready", "True")
        found = await cluster.conditions(MODEL_SERVERS, "s")
        assert {"Accepted", "ResolvedRefs", "Ready", "Audited"} <= set(found)


async def test_pods_are_watched_only_in_namespaces_that_have_a_server(cluster: Cluster) -> None:
    await cluster.namespace("a")
    await cluster.namespace("b")
    await cluster.run_pod(pod("p", {"app": "s"}, namespace="b"))
    async with plane(cluster) as replica:
        assert replica.wire.paths("/pods") == set()
        await cluster.create(model_server("s", namespace="a"))
        await eventually(lambda: replica.wire.paths("/pods") == {"/api/v1/namespaces/a/pods"})
        await cluster.create(model_server("s", namespace="b"))
        await eventually(lambda: len(replica.wire.paths("/pods")) == 2)
        view = replica.program._publisher.view
        await eventually(lambda: len(view._pods) == 1)
        await cluster.delete(MODEL_SERVERS, "s", "b")
        await eventually(lambda: len(view._pods) == 0)
        assert set(replica.program._publisher._watches) == {"a"}


async def test_the_workload_kinds_are_never_asked_for(cluster: Cluster) -> None:
    async with plane(cluster) as replica:
        await apply(cluster, engine_objects(8000))
        await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "True")
        assert replica.wire.paths("workload") == set()


async def test_only_the_holder_of_the_lease_writes_and_all_route(cluster: Cluster) -> None:
    """When the holder ends, the other goes on with what was left to write."""
    async with Upstream() as engine, plane(cluster, lease_namespace="default") as first:
        await eventually(lambda: "leader" in first.detail(f"lease {LEASE_NAME}"))
        async with plane(cluster, lease_namespace="default") as second:
            await apply(cluster, engine_objects(engine.port))
            await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "True")
            await second.until_status("chat", 200)
            await cluster.status_of_another("t")
            assert first.wire.status_writes()
            assert second.wire.status_writes() == []
            assert "standby" in second.detail("modelroute-status")

            first.program.stop()
            await eventually(lambda: "leader" in second.detail(f"lease {LEASE_NAME}"), 10)
            await cluster.delete(PODS, "p")
            await cluster.until_condition(MODEL_SERVERS, "s", "Ready", "False")
            assert second.wire.status_writes()


async def test_losing_the_lease_stops_the_writing_and_not_the_routing(cluster: Cluster) -> None:
    async with Upstream() as engine, plane(cluster, lease_namespace="default") as replica:
        await apply(cluster, engine_objects(engine.port))
        await cluster.until_condition(MODEL_ROUTES, "r", "Ready", "True")
        lease = await cluster.client.get(LEASES, LEASE_NAME, "default")
        stolen = {**lease["spec"], "holderIdentity": "somebody", "leaseDurationSeconds": 3600}
        await cluster.client.update(LEASES, {**lease, "spec": stolen})
        await eventually(lambda: "standby" in replica.detail(f"lease {LEASE_NAME}"), 15)
        writes = len(replica.wire.status_writes())
        await cluster.delete(PODS, "p")
        await replica.until_status("chat", 503)
        await cluster.create(model_route("t", {"modelName": "t", "rules": targets("s")}))
        await replica.until_status("t", 503)
        assert len(replica.wire.status_writes()) == writes


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[Cluster]:
    """An API server without any of our kinds."""
    async with api_server(tmp_path, install=False) as found:
        yield found


async def test_a_kind_whose_crd_is_absent_sleeps_says_so_and_starts_within_five_seconds(
    bare: Cluster,
) -> None:
    """The other kinds are served meanwhile, and the absent one keeps nothing from being ready."""
    await bare.install("ModelServer")
    async with Upstream() as engine, plane(bare) as replica:
        route, server, one = engine_objects(engine.port)
        await bare.create(server)
        await bare.run_pod(one)
        await bare.until_condition(MODEL_SERVERS, "s", "Ready", "True")
        assert "sleeping" in replica.detail("modelroute-status")
        assert "its CRD is not installed" in replica.detail("modelroute-status")
        assert "modelroutes" in replica.detail("route-table")
        status, details = await replica.readyz()
        assert status == 200
        assert "its CRD is not installed" in details["modelroute-status"]
        assert details["modelserver-status"] == "running"
        await bare.install("ModelRoute")
        await bare.create(route)
        await replica.until_status("chat", 200, 5)
        await bare.until_condition(MODEL_ROUTES, "r", "Ready", "True", 1)
        assert replica.detail("modelroute-status") == "running"


async def test_pods_that_may_not_be_listed_are_named_and_stop_no_other_namespace(
    cluster: Cluster,
) -> None:
    await cluster.namespace("closed")

    def forbid(request: Request) -> Fault | None:
        closed = "/namespaces/closed/pods" in request.target
        return Answer(403, "Forbidden") if closed else None

    async with Upstream() as engine:
        await apply(cluster, engine_objects(engine.port))
        await cluster.create(model_server("s", namespace="closed"))
        async with plane(cluster, wait=False) as replica:
            replica.wire.fault = forbid
            await replica.until_status("chat", 200)
            assert "injected fault" in replica.detail("route-table")


async def test_an_object_of_a_kind_that_nothing_implements_says_so(cluster: Cluster) -> None:
    spec = {"providerType": "OpenAI", "baseURL": "https://provider.example"}
    obj = {
        "apiVersion": "networking.serving.volcano.sh/v1alpha1",
        "kind": "ExternalModelProvider",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": spec,
    }
    async with plane(cluster):
        await cluster.client.create(EXTERNAL_MODEL_PROVIDERS, obj)
        found = await cluster.until_condition(EXTERNAL_MODEL_PROVIDERS, "x", "Accepted", "False")
        assert found["reason"] == "NotSupported"


def pod_watches(fault: Fault | None) -> Any:
    """Gives the fault to whatever is asked about pods."""
    return lambda request: fault if "/pods" in request.target else None


async def test_a_deletion_that_the_watch_missed_leaves_no_ghost(cluster: Cluster) -> None:
    """The watch breaks, a pod goes and another comes, and the next attempts fail.

    test_networking_outages.py has further ways to fail. When the API server is back the old pod gets nothing and the new one does, within seconds.
    """
    async with Upstream() as old:
        new = Upstream(host="127.0.0.2")
        new.port = old.port
        async with new, plane(cluster) as replica:
            await apply(cluster, engine_objects(old.port))
            await replica.until_status("chat", 200)
            replica.wire.fault = pod_watches(Cut(0))
            cluster.server.core.hub.close_bucket(str(PODS))  # ends the watch; the next is at fault
            await eventually(lambda: "/pods" in replica.wire.requests[-1].target)
            await cluster.delete(PODS, "p")
            await cluster.run_pod(pod("q", {"app": "s"}, ip="127.0.0.2"))
            asked = len(replica.wire.requests)
            await eventually(lambda: len(replica.wire.requests) > asked)
            assert (await replica.fleet.ask({"model": "chat"})).status == 200
            assert not new.requests  # the router knows of neither change
            replica.wire.fault = pod_watches(None)
            seen = len(old.requests)
            async with asyncio.timeout(10):
                while not new.requests:
                    seen = len(old.requests)
                    await replica.fleet.ask({"model": "chat"})
                    await asyncio.sleep(0.05)
            for _ in range(10):
                assert (await replica.fleet.ask({"model": "chat"})).status == 200
            assert len(old.requests) == seen


async def test_a_publication_that_fails_is_made_again(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """A mistake in one publication ends neither the program nor what it watches."""
    async with Upstream() as engine, plane(cluster) as replica:
        await apply(cluster, engine_objects(engine.port))
        await replica.until_status("chat", 200)
        publisher = replica.program._publisher
        swap, failures = publisher._swap, iter([True])

        def failing(*tables: Any) -> None:
            if next(failures, False):
                raise RuntimeError("this publication fails")
            swap(*tables)

        publisher._swap = failing
        await cluster.patch(PODS, "p", {"metadata": {"labels": {"app": "other"}}})
        await eventually(lambda: "this publication fails" in caplog.text)
        await replica.until_status("chat", 503)
        await cluster.patch(PODS, "p", {"metadata": {"labels": {"app": "s"}}})
        await replica.until_status("chat", 200)
