"""The shell around the planner: what it waits for, how it fails, and what it says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kthena.api.kubernetes import CONTROLLER_REVISIONS, EVENTS, PODS, SERVICES
from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import Request
from kthena.kube.clock import FakeClock, settle
from kthena.kube.controller import Requeue
from kthena.kube.errors import Conflict, ConnectionFailed, Forbidden
from kthena.kube.events import EventRecorder
from kthena.machinery.objects import NamespacedName, Object, name_of
from kthena.machinery.resources import Resource
from kthena.workload.controller import ModelServingController
from kthena.workload.executor import CONCURRENCY, REFUSALS
from kthena.workload.informers import WorkloadInformers
from kthena.workload.planner.observed import Capabilities
from support.kube_server import MemoryApi, json_reply, status_reply
from support.workload_world import World, role, running_status, serving

KEY = NamespacedName("default", "ms")


class Shell:
    """A controller on an API in memory; each reconciliation is the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.api = MemoryApi(MODEL_SERVINGS, PODS, SERVICES, CONTROLLER_REVISIONS, EVENTS)
        self.client = self.api.client(self.clock)
        self.informers = WorkloadInformers.create(self.client, clock=self.clock)
        self.recorder = EventRecorder(self.client, "test", self.clock)
        self.controller = ModelServingController(
            self.client,
            self.informers,
            self.recorder,
            capabilities=lambda: Capabilities(volcano=True),
            clock=self.clock,
        )
        self.runner = self.controller.build_runner()

    def apply(self, manifest: Object, generation: int = 1) -> None:
        metadata = {**manifest["metadata"], "generation": generation}
        old = self.api.objects(MODEL_SERVINGS).get(KEY, {})
        kept = {"status": old["status"]} if "status" in old else {}
        self.api.put(MODEL_SERVINGS, {**manifest, **kept, "metadata": metadata})

    async def reconcile(self) -> Requeue | None:
        await settle(30)
        result = await self.controller.reconcile(KEY)
        await settle(30)
        return result

    def run_pods(self) -> None:
        for pod in list(self.api.objects(PODS).values()):
            self.api.put(PODS, {**pod, "status": running_status(self.clock.now(), ready=True)})

    def writes(self) -> list[str]:
        """Writes but events since the last time."""
        found = [
            str(request)
            for request in self.api.requests
            if request.method != "GET" and "/events" not in request.target
        ]
        self.api.requests.clear()
        return found

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.api.objects(MODEL_SERVINGS)[KEY].get("status") or {}
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        return next((c for c in self.status["conditions"] if c["type"] == kind), {})

    async def events(self) -> list[str]:
        await settle(200)
        return [event["reason"] for event in self.api.objects(EVENTS).values()]


@asynccontextmanager
async def shell() -> AsyncIterator[Shell]:
    opened = Shell()
    runs = [*(informer.run for informer in opened.informers.required), opened.recorder.run]
    tasks = [asyncio.create_task(run()) for run in runs]
    try:
        await settle(30)
        yield opened
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def creates(name: str) -> Any:
    def matches(request: Request) -> bool:
        if request.method != "POST":
            return False
        return bool(json.loads(request.body)["metadata"]["name"] == name)

    return matches


def deletes(request: Request) -> bool:
    return request.method == "DELETE"


async def test_a_modelserving_becomes_ready_and_then_nothing_is_written() -> None:
    async with shell() as bench:
        bench.apply(serving(role(workers=1), replicas=2))
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        assert bench.condition("Ready")["status"] == "True"
        bench.writes()

        await bench.reconcile()

        assert bench.writes() == []


async def test_one_refused_child_does_not_stop_the_others_and_errors_are_joined() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=4))
        for ordinal in (1, 3):
            refusal = status_reply(403, "Forbidden", "exceeded quota: gpus")
            bench.api.script(creates(f"ms-{ordinal}-decode-0-0"), refusal)

        with pytest.raises(ExceptionGroup) as caught:
            await bench.reconcile()

        assert [type(error) for error in caught.value.exceptions] == [Forbidden, Forbidden]
        assert len(bench.api.objects(PODS)) == 2
        failure = bench.condition("ReplicaFailure")
        assert failure["reason"] == "FailedCreate"
        assert "Pod ms-1-decode-0-0 was not created: exceeded quota: gpus" in failure["message"]
        assert "FailedCreate" in await bench.events()

        await bench.reconcile()
        assert len(bench.api.objects(PODS)) == 4
        assert bench.condition("ReplicaFailure") == {}


async def test_a_role_that_is_refused_again_and_again_does_not_flood_the_server() -> None:
    async with shell() as bench:
        bench.apply(serving(role("bad"), role("good"), replicas=200))
        quota = status_reply(403, "Forbidden", "no")

        def is_bad(request: Request) -> bool:
            is_pod = request.method == "POST" and "/pods" in request.target
            return is_pod and "-bad-" in json.loads(request.body)["metadata"]["name"]

        bench.api.script(is_bad, *[quota] * 200)

        with pytest.raises(ExceptionGroup):
            await bench.reconcile()

        attempts = sum(is_bad(request) for request in bench.api.requests)
        assert attempts <= REFUSALS + CONCURRENCY
        assert len(bench.api.objects(PODS)) == 200


async def test_no_plan_is_made_before_own_creations_are_seen() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=2))
        await settle(30)
        bench.api.silence_watches()
        await bench.reconcile()
        assert len(bench.api.objects(PODS)) == 2
        bench.writes()

        result = await bench.reconcile()

        assert result is not None
        assert result.after_s > 0
        assert bench.writes() == []


async def test_own_writes_that_are_never_seen_stop_a_modelserving_for_a_minute_only() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=2))
        await settle(30)
        bench.api.silence_watches()
        await bench.reconcile()
        await bench.clock.advance(61)
        bench.api.requests.clear()

        with pytest.raises(ExceptionGroup) as caught:
            await bench.reconcile()

        assert {type(error) for error in caught.value.exceptions} == {Conflict}


def is_create(request: Request, resource: Resource) -> bool:
    path = request.target.partition("?")[0]
    return request.method == "POST" and path.endswith(f"/{resource.plural}")


def lost(bench: Shell, request: Request) -> Object:
    """The object of a create whose reply is lost, as the server has it and no cache shows it."""
    bench.api.silence_watches()
    every = (PODS, SERVICES, CONTROLLER_REVISIONS)
    resource = next(each for each in every if is_create(request, each))
    return bench.api.put(resource, json.loads(request.body))


@pytest.mark.parametrize(
    ("name", "resource"), [("ms-0-decode-0-1", PODS), ("ms-0-decode-0-0", SERVICES)], ids=str
)
async def test_a_creation_whose_reply_was_lost_is_no_failure(name: str, resource: Resource) -> None:
    def matches(request: Request) -> bool:
        return is_create(request, resource) and bool(creates(name)(request))

    async with shell() as bench:
        bench.apply(serving(role(workers=1)))
        bench.api.script(matches, ConnectionFailed("no reply"))
        with pytest.raises(ExceptionGroup):
            await bench.reconcile()
        lost(bench, next(each for each in bench.api.requests if matches(each)))

        await bench.reconcile()

        assert bench.condition("ReplicaFailure") == {}
        assert "FailedCreate" not in await bench.events()
        result = await bench.reconcile()
        assert result is not None
        assert result.after_s > 0


async def test_a_revision_whose_reply_was_lost_is_seen_before_a_pod_is_made() -> None:
    def matches(request: Request) -> bool:
        return is_create(request, CONTROLLER_REVISIONS)

    async with shell() as bench:
        bench.apply(serving())
        bench.api.script(matches, ConnectionFailed("no reply"))
        with pytest.raises(ExceptionGroup):
            await bench.reconcile()
        lost(bench, next(each for each in bench.api.requests if matches(each)))

        with pytest.raises(ExceptionGroup):
            await bench.reconcile()

        assert bench.api.objects(PODS) == {}
        assert bench.condition("ReplicaFailure") == {}


async def test_a_name_that_somebody_has_whom_no_cache_shows_is_shown() -> None:
    async with shell() as bench:
        stranger = {"metadata": {"name": "ms-0-decode-0-0", "namespace": "default"}}
        bench.api.put(PODS, stranger)
        bench.apply(serving())

        with pytest.raises(ExceptionGroup):
            await bench.reconcile()

        failure = bench.condition("ReplicaFailure")
        assert failure["reason"] == "FailedCreate"
        assert "Pod ms-0-decode-0-0" in failure["message"]


async def test_a_status_that_is_not_seen_yet_is_waited_for() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await bench.reconcile()
        bench.run_pods()
        await settle(30)
        watch = bench.api.hold(
            lambda request: request.method == "PATCH" and "status" in request.target
        )
        running = asyncio.create_task(bench.controller.reconcile(KEY))
        await settle(30)
        bench.api.silence_watches()
        watch.set()
        await running

        assert await bench.reconcile() is not None


async def test_a_deletion_whose_reply_is_lost_is_waited_for() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=3))
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        bench.apply(serving(role(image="engine:2"), replicas=3), generation=2)
        bench.api.script(deletes, ConnectionFailed("no reply"))
        with pytest.raises(ExceptionGroup):
            await bench.reconcile()
        bench.writes()

        result = await bench.reconcile()

        assert result is not None
        assert bench.writes() == []


async def test_a_pod_that_is_gone_already_is_no_error() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=2))
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        bench.apply(serving(replicas=1), generation=2)
        bench.api.script(deletes, status_reply(404, "NotFound"))

        await bench.reconcile()

        assert bench.status["observedGeneration"] == 2


async def test_deletions_carry_the_uid_of_the_pod_that_was_meant() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=2))
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        bench.apply(serving(replicas=1), generation=2)
        uid = bench.api.objects(PODS)[NamespacedName("default", "ms-1-decode-0-0")]["metadata"][
            "uid"
        ]

        await bench.reconcile()

        (request,) = [request for request in bench.api.requests if deletes(request)]
        assert json.loads(request.body)["preconditions"] == {"uid": uid}


async def test_a_cancelled_reconciliation_goes_on_later() -> None:
    async with shell() as bench:
        bench.apply(serving(role(workers=1), replicas=2))
        gate = bench.api.hold(creates("ms-1-decode-0-0"))
        running = asyncio.create_task(bench.controller.reconcile(KEY))
        await settle(60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.set()
        await bench.clock.advance(61)

        await bench.reconcile()

        assert len(bench.api.objects(PODS)) == 4


async def test_an_object_that_cannot_be_read_gets_a_condition_and_no_retry() -> None:
    async with shell() as bench:
        manifest = serving()
        manifest["spec"]["template"] = {"roles": [{"name": 7}]}
        bench.apply(manifest)

        assert await bench.reconcile() is None

        assert bench.condition("Accepted")["reason"] == "Invalid"
        assert "ModelServing default/ms cannot be read" in bench.condition("Accepted")["message"]
        assert await bench.events() == ["Invalid"]
        bench.writes()
        await bench.reconcile()
        assert bench.writes() == []


async def test_orphans_are_left_alone_when_the_server_has_no_such_modelserving() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await bench.reconcile()
        pod = bench.api.objects(PODS)[NamespacedName("default", "ms-0-decode-0-0")]
        metadata = {
            key: value for key, value in pod["metadata"].items() if key != "ownerReferences"
        }
        bench.api.put(PODS, {**pod, "metadata": metadata})
        await settle(30)
        bench.writes()
        gone = status_reply(404, "NotFound")
        bench.api.script(
            lambda r: r.method == "GET" and r.target.endswith("/modelservings/ms"), gone
        )

        result = await bench.reconcile()

        assert result is not None
        assert bench.writes() == []


async def test_an_orphan_is_adopted_with_a_guarded_patch() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await bench.reconcile()
        key = NamespacedName("default", "ms-0-decode-0-0")
        pod = bench.api.objects(PODS)[key]
        metadata = {
            name: value for name, value in pod["metadata"].items() if name != "ownerReferences"
        }
        stored = bench.api.put(PODS, {**pod, "metadata": metadata})
        bench.writes()

        await bench.reconcile()

        patches = [
            json.loads(r.body)
            for r in bench.api.requests
            if r.method == "PATCH" and "/pods/" in r.target
        ]
        assert patches[0]["metadata"]["uid"] == stored["metadata"]["uid"]
        assert patches[0]["metadata"]["resourceVersion"] == stored["metadata"]["resourceVersion"]
        assert bench.api.objects(PODS)[key]["metadata"]["ownerReferences"][0]["name"] == "ms"
        assert "Adopted" in await bench.events()


async def test_each_transition_is_one_event() -> None:
    async with shell() as bench:
        bench.apply(serving(role("prefill"), role("decode")))
        for _ in range(3):
            await bench.reconcile()
        bench.run_pods()
        for _ in range(3):
            await bench.reconcile()

        assert sorted(await bench.events()) == ["RoleCreating"] * 2 + ["RoleRunning"] * 2


async def test_a_restarted_controller_does_not_repeat_itself() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        before = await bench.events()
        other = ModelServingController(
            bench.client, bench.informers, bench.recorder, clock=bench.clock
        )

        await other.reconcile(KEY)

        assert [e for e in await bench.events() if e.startswith("Role")] == before


async def test_a_modelserving_that_is_gone_is_forgotten() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await bench.reconcile()
        bench.api.remove(MODEL_SERVINGS, KEY)

        assert await bench.reconcile() is None


async def test_only_changes_of_intent_queue_a_modelserving() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await settle(30)
        assert len(bench.runner.queue) == 1
        await bench.runner.queue.get()
        bench.runner.queue.done(KEY)
        stored = bench.api.objects(MODEL_SERVINGS)[KEY]
        bench.api.put(MODEL_SERVINGS, {**stored, "status": {"replicas": 7}})
        await settle(30)
        assert len(bench.runner.queue) == 0

        metadata = {**stored["metadata"], "annotations": {"a": "b"}}
        bench.api.put(MODEL_SERVINGS, {**stored, "metadata": metadata})
        await settle(30)
        assert len(bench.runner.queue) == 1


def test_a_turn_that_waited_for_an_own_status_is_queued_when_it_is_seen() -> None:
    world = World()
    world.apply(serving())
    world.freeze("ModelServing")
    world.sync()
    assert world.is_waiting()
    world.sync()
    assert not world.is_queued()

    world.thaw()

    assert world.is_queued()


async def test_a_change_to_a_child_queues_its_owner() -> None:
    async with shell() as bench:
        bench.apply(serving(role(workers=1)))
        await bench.reconcile()
        for resource in (PODS, SERVICES, CONTROLLER_REVISIONS):
            await settle(30)
            while len(bench.runner.queue):
                bench.runner.queue.done(await bench.runner.queue.get())
            child = next(iter(bench.api.objects(resource).values()))
            bench.api.remove(resource, NamespacedName("default", name_of(child)))
            await settle(30)
            assert len(bench.runner.queue) == 1, resource


async def test_the_whole_runs_by_itself() -> None:
    async with shell() as bench:
        bench.api.script(creates("ms-0-decode-0-0"), status_reply(500, "InternalError"))
        running = asyncio.create_task(bench.runner.run())
        bench.apply(serving(replicas=2))
        for _ in range(20):
            await bench.clock.advance(1)
            bench.run_pods()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

        assert bench.condition("Ready")["status"] == "True"


async def test_a_reply_of_a_patch_is_awaited_by_its_version() -> None:
    async with shell() as bench:
        bench.apply(serving())
        await bench.reconcile()
        await bench.reconcile()
        stored = bench.api.objects(MODEL_SERVINGS)[KEY]
        future = {**stored, "metadata": {**stored["metadata"], "resourceVersion": "999999"}}
        bench.api.script(
            lambda r: r.method == "PATCH" and "/status" in r.target, json_reply(future)
        )
        bench.run_pods()
        await bench.reconcile()

        assert await bench.reconcile() is not None
        await bench.clock.advance(61)
        assert await bench.reconcile() is None


async def test_a_recovery_writes_its_counter_and_its_status_without_a_conflict() -> None:
    async with shell() as bench:
        bench.apply(serving(role(workers=1)))
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        key = NamespacedName("default", "ms-0-decode-0-1")
        pod = bench.api.objects(PODS)[key]
        bench.api.put(PODS, {**pod, "status": {"phase": "Failed"}})

        await bench.reconcile()

        assert bench.status["availableReplicas"] == 0
        annotations = bench.api.objects(MODEL_SERVINGS)[KEY]["metadata"]["annotations"]
        assert "decode" in annotations["modelserving.volcano.sh/recoveries"]


async def test_a_passing_trouble_is_tried_again_and_shown_to_nobody() -> None:
    async with shell() as bench:
        bench.apply(serving(replicas=2))
        await bench.reconcile()
        bench.run_pods()
        await bench.reconcile()
        bench.apply(serving(replicas=1), generation=2)
        bench.api.script(deletes, status_reply(409, "Conflict"))

        with pytest.raises(ExceptionGroup):
            await bench.reconcile()
        assert bench.condition("ReplicaFailure") == {}

        await bench.reconcile()
        assert len(bench.api.objects(PODS)) == 1


async def test_a_modelserving_without_roles_is_shown_and_not_retried() -> None:
    async with shell() as bench:
        manifest = serving()
        manifest["spec"]["template"]["roles"] = []
        bench.apply(manifest)

        assert await bench.reconcile() is None

        assert "has no roles" in bench.condition("Accepted")["message"]
