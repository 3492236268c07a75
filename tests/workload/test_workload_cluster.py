"""The controller on an API server, with pods made ready by the test in place of a kubelet."""

import asyncio
from typing import Any

import pytest

from kthena.api.kubernetes import (
    CONTROLLER_REVISIONS,
    PODS,
    SERVICES,
)
from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import PatchType
from kthena.kube.errors import NotFound
from kthena.machinery.objects import Object, controller_of, labels_of, name_of, uid_of
from support.workload_bench import Bench
from support.workload_view import place_of
from support.workload_world import is_ready, role, rolling, serving

PREFIX = "modelserving.volcano.sh/"


def uids(pods: dict[str, Object]) -> dict[str, str]:
    return {name: uid_of(pod) for name, pod in pods.items()}


def status_of(obj: Object) -> dict[str, Any]:
    status: dict[str, Any] = obj["status"]
    return status


async def test_each_object_is_created_with_one_call_and_rest_is_silent(
    workload_bench: Bench,
) -> None:
    recorder = await workload_bench.start()
    manifest = serving(role("prefill", workers=1), role("decode", workers=1), replicas=2)
    await workload_bench.apply(manifest)

    obj = await workload_bench.wait_ready("ms")

    created = [write for write in recorder.writes() if write.startswith("POST")]
    assert len(created) == 8 + 4 + 1
    assert len(await workload_bench.objects(PODS)) == 8
    assert len(await workload_bench.objects(SERVICES)) == 4
    assert status_of(obj)["availableReplicas"] == 2
    print("writes for 2 groups x 2 roles x 2 pods:", len(recorder.writes()))

    recorder.requests.clear()
    pod = (await workload_bench.pods())["ms-0-decode-0-0"]
    note = {"metadata": {"annotations": {"touched": "yes"}}}
    await workload_bench.admin.patch(
        PODS, name_of(pod), workload_bench.namespace, note, PatchType.MERGE
    )
    await asyncio.sleep(0.3)
    assert recorder.requests == []


async def test_children_are_those_of_the_contract(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role("prefill", workers=1), role("decode")))
    await workload_bench.wait_ready("ms")

    pods = await workload_bench.pods()
    assert sorted(pods) == ["ms-0-decode-0-0", "ms-0-prefill-0-0", "ms-0-prefill-0-1"]
    worker = pods["ms-0-prefill-0-1"]
    env = {e["name"]: e["value"] for e in worker["spec"]["containers"][0]["env"]}
    assert env == {
        "GROUP_SIZE": "2",
        "ENTRY_ADDRESS": f"ms-0-prefill-0-0.{workload_bench.namespace}",
        "WORKER_INDEX": "1",
    }
    services = await workload_bench.objects(SERVICES)
    assert sorted(services) == ["ms-0-prefill-0-0"]
    assert services["ms-0-prefill-0-0"]["spec"]["clusterIP"] == "None"
    (revision,) = (await workload_bench.objects(CONTROLLER_REVISIONS)).values()
    assert labels_of(worker)[f"{PREFIX}revision"] == labels_of(revision)[f"{PREFIX}revision"]


async def test_the_scale_subresource_adds_and_removes_groups(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1)))
    await workload_bench.wait_ready("ms")
    await workload_bench.scale("ms", 3)
    await workload_bench.wait_ready("ms")
    assert {place_of(name).group for name in await workload_bench.pods()} == {0, 1, 2}

    await workload_bench.scale("ms", 1)
    await workload_bench.wait_ready("ms")
    assert {place_of(name).group for name in await workload_bench.pods()} == {0}
    scale = await workload_bench.admin.raw(
        "GET", MODEL_SERVINGS.path(workload_bench.namespace, "ms", "scale")
    )
    assert b'"replicas":1' in scale.body.replace(b" ", b"")

    await workload_bench.scale("ms", 0)
    await workload_bench.wait_ready("ms")
    assert await workload_bench.pods() == {}
    assert await workload_bench.objects(SERVICES) == {}


@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
@pytest.mark.parametrize(
    ("policy", "remade"),
    [
        ("None", {"ms-0-prefill-0-1"}),
        ("RoleRecreate", {"ms-0-prefill-0-0", "ms-0-prefill-0-1"}),
        ("ServingGroupRecreate", {"ms-0-prefill-0-0", "ms-0-prefill-0-1", "ms-0-decode-0-0"}),
    ],
)
async def test_a_deleted_pod_is_healed_as_the_policy_says(
    workload_bench: Bench, policy: str, remade: set[str], stopped: bool
) -> None:
    await workload_bench.start()
    await workload_bench.apply(
        serving(role("prefill", workers=1), role("decode"), replicas=2, recoveryPolicy=policy)
    )
    await workload_bench.wait_ready("ms")
    before = uids(await workload_bench.pods())
    if stopped:
        await workload_bench.kill()
    await workload_bench.delete_pods(["ms-0-prefill-0-1"])
    if stopped:
        await workload_bench.start()

    async def healed() -> bool:
        after = uids(await workload_bench.pods())
        changed = {name for name in before if after.get(name) != before[name]}
        return after.keys() == before.keys() and changed == remade

    await workload_bench.wait("the pod is healed", healed)
    await workload_bench.wait_ready("ms")
    assert await healed()


@pytest.mark.parametrize("writes", range(0, 18, 3))
async def test_a_controller_that_is_killed_between_two_calls_goes_on(
    workload_bench: Bench, writes: int
) -> None:
    recorder = await workload_bench.start(writes=writes)
    manifest = serving(role("prefill", workers=1), role("decode", workers=1), replicas=2)
    await workload_bench.apply(manifest)
    await asyncio.wait_for(recorder.killed.wait(), 20)
    await workload_bench.kill()

    await workload_bench.start()
    await workload_bench.wait_ready("ms")

    assert len(await workload_bench.pods()) == 8
    assert len(await workload_bench.objects(SERVICES)) == 4
    assert len(await workload_bench.objects(CONTROLLER_REVISIONS)) == 1


@pytest.mark.parametrize("writes", [0, 1, 2, 4, 6])
async def test_a_rollout_survives_a_killed_controller_within_its_budget(
    workload_bench: Bench, writes: int
) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), replicas=3, rolloutStrategy=rolling()))
    await workload_bench.wait_ready("ms")
    await workload_bench.kill()

    def change(spec: dict[str, Any]) -> None:
        spec["template"]["roles"][0]["entryTemplate"]["spec"]["containers"][0]["image"] = "new"

    await workload_bench.edit("ms", change)
    recorder = await workload_bench.start(writes=writes)
    fewest = 3

    async def available() -> int:
        groups: dict[int, list[bool]] = {}
        for name, pod in (await workload_bench.pods()).items():
            groups.setdefault(place_of(name).group, []).append(is_ready(pod))
        return sum(all(states) and len(states) == 2 for states in groups.values())

    await asyncio.wait_for(recorder.killed.wait(), 20)
    fewest = min(fewest, await available())
    await workload_bench.kill()
    await workload_bench.start()

    async def rolled() -> bool:
        nonlocal fewest
        fewest = min(fewest, await available())
        images = {
            pod["spec"]["containers"][0]["image"]
            for name, pod in (await workload_bench.pods()).items()
            if name.endswith("-0-0")
        }
        return images == {"new"}

    await workload_bench.wait("the rollout is over", rolled)
    await workload_bench.wait_ready("ms")
    assert fewest >= 2


async def test_deleting_the_modelserving_removes_everything(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), replicas=2))
    await workload_bench.wait_ready("ms")

    await workload_bench.delete(MODEL_SERVINGS, "ms", propagation="Background")

    for resource in (PODS, SERVICES, CONTROLLER_REVISIONS):
        await workload_bench.wait_gone(resource)


async def test_foreground_deletion_is_not_fought(workload_bench: Bench) -> None:
    recorder = await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), replicas=2))
    await workload_bench.wait_ready("ms")
    recorder.requests.clear()

    await workload_bench.delete(MODEL_SERVINGS, "ms", propagation="Foreground")

    async def gone() -> bool:
        listed = await workload_bench.admin.list(MODEL_SERVINGS, workload_bench.namespace)
        return not listed.items

    await workload_bench.wait("the ModelServing is gone", gone)
    await workload_bench.wait_gone(PODS)
    assert [write for write in recorder.writes() if write.startswith("POST")] == []


async def test_deleting_and_creating_again_ends_with_new_pods(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), replicas=2))
    await workload_bench.wait_ready("ms")
    before = set(uids(await workload_bench.pods()).values())

    await workload_bench.delete(MODEL_SERVINGS, "ms", propagation="Background")
    await workload_bench.apply(serving(role(workers=1), replicas=2))
    await workload_bench.wait_ready("ms")

    after = await workload_bench.pods()
    assert len(after) == 4
    assert not before & set(uids(after).values())


async def test_orphans_are_adopted_without_a_restart(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), replicas=2))
    await workload_bench.wait_ready("ms")
    before = uids(await workload_bench.pods())
    await workload_bench.kill()
    await workload_bench.delete(MODEL_SERVINGS, "ms", propagation="Orphan")

    async def orphaned() -> bool:
        return all(controller_of(pod) is None for pod in (await workload_bench.pods()).values())

    async def gone() -> bool:
        try:
            await workload_bench.admin.get(MODEL_SERVINGS, "ms", workload_bench.namespace)
        except NotFound:
            return True
        return False

    await workload_bench.wait("the pods have no owner", orphaned)
    # The finalizer of the owner goes last.
    await workload_bench.wait("the ModelServing is gone", gone)
    created = await workload_bench.apply(serving(role(workers=1), replicas=2))
    await workload_bench.start()
    await workload_bench.wait_ready("ms")

    pods = await workload_bench.pods()
    assert uids(pods) == before
    owners = {(controller_of(pod) or {}).get("uid") for pod in pods.values()}
    assert owners == {uid_of(created)}
    assert "Adopted" in {reason for reason, _ in await workload_bench.events()}


async def test_a_refused_pod_is_a_condition_and_an_event_and_others_live(
    workload_bench: Bench,
) -> None:
    # The CRD lets a template pass that the API server refuses as a pod.
    await workload_bench.start()
    broken = role("broken")
    broken["entryTemplate"]["spec"]["restartPolicy"] = "Sometimes"
    await workload_bench.apply(serving(broken, role("decode")))

    async def shown() -> bool:
        obj = await workload_bench.admin.get(MODEL_SERVINGS, "ms", workload_bench.namespace)
        conditions = {c["type"]: c for c in (obj.get("status") or {}).get("conditions") or ()}
        failure = conditions.get("ReplicaFailure") or {}
        return failure.get("status") == "True" and "restartPolicy" in failure.get("message", "")

    await workload_bench.wait("the failure is shown", shown)
    assert list(await workload_bench.pods()) == ["ms-0-decode-0-0"]

    async def told() -> bool:
        return "FailedCreate" in {reason for reason, _ in await workload_bench.events()}

    await workload_bench.wait("the event is written", told)


async def test_there_is_an_event_for_each_role_instance_that_runs(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role("prefill"), role("decode", replicas=2)))
    await workload_bench.wait_ready("ms")

    async def told() -> bool:
        running = [
            text for reason, text in await workload_bench.events() if reason == "RoleRunning"
        ]
        return len(running) == 3

    await workload_bench.wait("three instances run", told)
    reasons = [reason for reason, _ in await workload_bench.events()]
    assert reasons.count("RoleCreating") == 3


async def test_two_modelservings_do_not_mind_each_other(workload_bench: Bench) -> None:
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), name="a"))
    await workload_bench.apply(serving(role(), name="a-0", replicas=2))
    await workload_bench.wait_ready("a")
    await workload_bench.wait_ready("a-0")

    assert sorted(await workload_bench.pods()) == [
        "a-0-0-decode-0-0",
        "a-0-1-decode-0-0",
        "a-0-decode-0-0",
        "a-0-decode-0-1",
    ]
    await workload_bench.delete(MODEL_SERVINGS, "a", propagation="Background")

    async def gone() -> bool:
        return len(await workload_bench.pods()) == 2

    await workload_bench.wait("the pods of one are gone", gone)


async def test_names_at_the_limit_are_valid_everywhere(workload_bench: Bench) -> None:
    name = "m" * (63 - len("-1-decode-1-1"))
    await workload_bench.start()
    await workload_bench.apply(serving(role(workers=1), name=name))

    await workload_bench.wait_ready(name)

    pods = await workload_bench.pods()
    assert max(map(len, pods)) == 63
    assert list(await workload_bench.objects(SERVICES)) == [f"{name}-0-decode-0-0"]


async def test_percentages_act_as_counts_of_groups(workload_bench: Bench) -> None:
    await workload_bench.start()
    strategy = rolling(maxUnavailable="34%", partition="50%")
    await workload_bench.apply(serving(replicas=3, rolloutStrategy=strategy))
    await workload_bench.wait_ready("ms")

    def change(spec: dict[str, Any]) -> None:
        spec["template"]["roles"][0]["entryTemplate"]["spec"]["containers"][0]["image"] = "new"

    await workload_bench.edit("ms", change)
    obj = await workload_bench.wait_ready("ms")

    images = {
        place_of(name).group: pod["spec"]["containers"][0]["image"]
        for name, pod in (await workload_bench.pods()).items()
    }
    assert images == {0: "engine:1", 1: "engine:1", 2: "new"}
    assert status_of(obj)["updatedReplicas"] == 1
