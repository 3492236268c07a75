"""What the status says in every phase, read as kstatus, autoscalers and people read it."""

import copy
from typing import Any

import pytest

from kthena.api.workload.modelserving import decode
from kthena.kube.status import merge_difference
from support.workload_world import World, role, rolling, serving

PREFIX = "modelserving.volcano.sh/"


def settled(*roles: dict[str, Any], **more: Any) -> World:
    world = World()
    world.apply(serving(*roles, **more))
    world.settle()
    world.take_calls()
    return world


def status_of(world: World) -> dict[str, Any]:
    status: dict[str, Any] = world.objects["ModelServing"]["ms"]["status"]
    return status


def counters(world: World) -> tuple[int, int, int, int]:
    status = status_of(world)
    return (
        status["replicas"],
        status["currentReplicas"],
        status["updatedReplicas"],
        status["availableReplicas"],
    )


def true_conditions(world: World) -> set[str]:
    return {c["type"] for c in status_of(world)["conditions"] if c["status"] == "True"}


def condition(world: World, kind: str) -> dict[str, Any]:
    return next(c for c in status_of(world)["conditions"] if c["type"] == kind)


def kstatus(obj: dict[str, Any]) -> str:
    """The rules of sigs.k8s.io/cli-utils/pkg/kstatus for a custom resource."""
    if obj["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = obj.get("status") or {}
    if (
        status.get("observedGeneration", obj["metadata"]["generation"])
        != (obj["metadata"]["generation"])
    ):
        return "InProgress"
    for each in status.get("conditions") or ():
        if each["type"] == "Reconciling" and each["status"] == "True":
            return "InProgress"
        if each["type"] == "Stalled" and each["status"] == "True":
            return "Failed"
    for each in status.get("conditions") or ():
        if each["type"] == "Ready":
            return {"True": "Current", "False": "InProgress"}.get(each["status"], "InProgress")
    return "Current"


def read(world: World) -> str:
    return kstatus(world.objects["ModelServing"]["ms"])


def test_a_new_modelserving_progresses_and_becomes_ready() -> None:
    world = World()
    world.apply(serving(role(workers=1), replicas=2))
    world.sync()
    assert true_conditions(world) - {"Accepted"} == {"Reconciling", "Progressing"}
    assert read(world) == "InProgress"

    world.settle()

    assert true_conditions(world) - {"Accepted"} == {"Ready", "Available"}
    assert read(world) == "Current"
    assert counters(world) == (2, 2, 2, 2)


def test_every_condition_speaks_of_the_generation_that_was_acted_on() -> None:
    world = settled()
    world.scale(2)
    world.settle()

    assert {c["observedGeneration"] for c in status_of(world)["conditions"]} == {2}
    assert status_of(world)["observedGeneration"] == 2


def test_a_status_from_a_stale_cache_speaks_of_the_old_generation() -> None:
    world = settled()
    world.freeze("ModelServing")
    world.scale(3)
    world.start("ms-0-decode-0-0", ready=False)
    world.sync()

    assert status_of(world)["observedGeneration"] == 1


def test_the_trace_of_a_rollout() -> None:
    world = settled(replicas=2)
    old = status_of(world)["updateRevision"]
    world.set_image("engine:2")
    trace = []
    for _ in range(6):
        world.sync()
        trace.append((counters(world), *sorted(true_conditions(world) - {"Accepted"})))
        world.end_terminations()
        world.run_pods()

    updating = ("Reconciling", "UpdateInProgress")
    assert trace == [
        ((2, 1, 0, 1), *updating),
        ((1, 1, 0, 1), *updating),
        ((2, 0, 1, 1), *updating),
        ((1, 0, 1, 1), "Progressing", "Reconciling"),
        ((2, 2, 2, 2), "Available", "Ready"),
        ((2, 2, 2, 2), "Available", "Ready"),
    ]
    new = status_of(world)["updateRevision"]
    assert new != old
    assert status_of(world)["currentRevision"] == new


def test_waiting_for_the_end_of_an_update_waits_for_every_pod() -> None:
    world = settled(role(workers=1), replicas=3)
    world.set_image("engine:2")
    for _ in range(40):
        world.sync()
        entries = [pod for name, pod in world.pods().items() if name.endswith("-0")]
        images = {pod["spec"]["containers"][0]["image"] for pod in entries}
        if "UpdateInProgress" not in true_conditions(world):
            assert images == {"engine:2"}
        if "Ready" in true_conditions(world):
            assert images == {"engine:2"}
            assert len(world.pods()) == 6
            return
        world.end_terminations()
        world.run_pods()
    raise AssertionError("the rollout has no end")


def test_a_group_that_loses_readiness_is_not_available() -> None:
    world = settled(replicas=2)
    world.start("ms-1-decode-0-0", ready=False)

    world.sync()

    assert counters(world)[3] == 1
    assert true_conditions(world) - {"Accepted"} == {"Reconciling", "Progressing"}
    assert "groups not ready: 1" in condition(world, "Ready")["message"]


def test_a_group_with_a_missing_role_instance_is_not_available() -> None:
    world = settled(role("prefill"), role("decode"))
    world.scale_role("decode", 2)

    world.sync()

    assert counters(world)[3] == 0
    assert read(world) == "InProgress"


@pytest.mark.parametrize("refused", [False, True], ids=["deleted", "deletion refused"])
def test_a_group_with_a_role_instance_too_many_serves_and_is_not_at_rest(refused: bool) -> None:
    world = settled(role("prefill"), role("decode", replicas=2))
    world.scale_role("decode", 1)
    if refused:
        world.fault = lambda call: "refuse" if call.verb == "delete" else None

    world.sync()
    world.sync()

    assert counters(world)[3] == 1
    assert condition(world, "Ready")["status"] == "False"
    assert read(world) == "InProgress"
    world.fault = lambda _call: None
    world.settle()
    assert read(world) == "Current"


def test_a_group_without_its_service_is_not_at_rest() -> None:
    world = settled(role(workers=1), replicas=2)
    world.remove("Service", "ms-1-decode-0-0")
    world.fault = lambda call: "refuse" if call.kind == "Service" else None

    world.sync()

    assert counters(world)[3] == 2
    assert read(world) == "InProgress"
    assert "removed: 1" in condition(world, "Ready")["message"]
    world.fault = lambda _call: None
    world.settle()
    assert read(world) == "Current"


@pytest.mark.parametrize(("revision", "stays"), [("", False), ("another", True)])
def test_a_pod_beyond_its_instance_is_waited_for_when_it_is_to_go(
    revision: str, stays: bool
) -> None:
    world = settled(role())
    extra = copy.deepcopy(world.objects["Pod"]["ms-0-decode-0-0"])
    extra["metadata"]["name"] = "ms-0-decode-0-1"
    if revision:
        extra["metadata"]["labels"][f"{PREFIX}revision"] = revision
    world.put(extra)

    world.sync()

    assert read(world) == ("Current" if stays else "InProgress")
    world.settle()
    assert read(world) == "Current"
    assert len(world.pods()) == (2 if stays else 1)


@pytest.mark.parametrize(
    ("reason", "stalled"), [("ErrImagePull", "False"), ("CrashLoopBackOff", "True")]
)
def test_what_keeps_a_container_from_running_is_said(reason: str, stalled: str) -> None:
    world = settled(role(), replicas=2, recoveryPolicy="None")
    world.start("ms-1-decode-0-0", ready=False)
    pod = copy.deepcopy(world.objects["Pod"]["ms-1-decode-0-0"])
    waiting = {"waiting": {"reason": reason, "message": "m" * 1000}}
    pod["status"]["containerStatuses"] = [{"name": "c", "state": waiting}]
    world.put(pod)

    world.sync()

    message = condition(world, "Ready")["message"]
    assert f"groups not ready: 1; pod ms-1-decode-0-0: {reason}: mmm" in message
    assert len(message) < 600
    assert condition(world, "Stalled")["status"] == stalled


def test_a_partition_that_holds_a_rollout_is_at_rest() -> None:
    world = settled(replicas=3, rolloutStrategy=rolling(partition=2))
    world.set_image("engine:2")
    world.settle()

    assert counters(world) == (3, 2, 1, 3)
    status = status_of(world)
    assert status["currentRevision"] != status["updateRevision"]
    assert read(world) == "Current"


def test_transition_times_move_only_with_the_status() -> None:
    world = settled()
    before = condition(world, "Available")["lastTransitionTime"]
    world.advance(100)
    world.scale(1)
    world.edit(lambda spec: spec.update(recoveryPolicy="None"))
    world.sync()
    assert condition(world, "Available")["lastTransitionTime"] == before

    world.advance(100)
    world.start("ms-0-decode-0-0", ready=False)
    world.sync()
    assert condition(world, "Available")["lastTransitionTime"] != before


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ([("prefill", 1), ("decode", 2)], "prefill"),
        ([("prefill", 0), ("decode", 2)], "decode"),
        ([("prefill", 0), ("decode", 0)], "prefill"),
    ],
)
def test_the_selector_names_the_first_role_with_replicas(
    roles: list[tuple[str, int]], expected: str
) -> None:
    world = settled(*(role(name, replicas=count) for name, count in roles))

    assert status_of(world)["labelSelector"] == (
        f"{PREFIX}entry=true,{PREFIX}name=ms,{PREFIX}role-id={expected}-0,{PREFIX}role={expected}"
    )


def test_the_selector_matches_one_pod_of_each_group() -> None:
    world = settled(role("prefill", replicas=2, workers=1), role("decode"), replicas=3)
    wanted = dict(part.split("=") for part in status_of(world)["labelSelector"].split(","))

    matched = [
        name
        for name, pod in world.pods().items()
        if wanted.items() <= pod["metadata"]["labels"].items()
    ]

    assert matched == [f"ms-{group}-prefill-0-0" for group in range(3)]


def test_zero_replicas_are_ready() -> None:
    world = settled(replicas=0)

    assert counters(world) == (0, 0, 0, 0)
    assert read(world) == "Current"
    assert status_of(world)["updateRevision"]
    assert world.take_calls() == []


def test_a_refused_child_is_shown_and_the_condition_goes_when_it_is_there() -> None:
    world = World()
    world.apply(serving(replicas=2))
    world.fault = lambda call: "refuse" if call.name == "ms-1-decode-0-0" else None
    world.sync()
    first = copy.deepcopy(condition(world, "ReplicaFailure"))
    world.advance(60)
    world.sync()
    assert condition(world, "ReplicaFailure") == first

    world.fault = lambda _call: None
    world.settle()

    assert all(c["type"] != "ReplicaFailure" for c in status_of(world)["conditions"])


def test_a_settled_status_is_not_written_again() -> None:
    world = settled(role(workers=1), replicas=2, rolloutStrategy=rolling(partition=1))
    world.advance(10_000)
    before = copy.deepcopy(status_of(world))

    decision = world.sync()

    assert decision is not None
    assert merge_difference(before, decision.status or {}) == {}
    assert world.take_calls() == []


def test_fields_of_a_status_that_others_wrote_stay() -> None:
    world = settled()

    def change(obj: dict[str, Any]) -> None:
        obj["status"]["conditions"].append(
            {"type": "Audited", "status": "True", "reason": "X", "message": "",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}
        )  # fmt: skip

    world.patch("ModelServing", "ms", change)
    world.start("ms-0-decode-0-0", ready=False)
    world.sync()

    assert condition(world, "Audited")["status"] == "True"


def test_the_status_has_the_shape_of_the_api() -> None:
    world = settled(replicas=2)
    view = decode(world.objects["ModelServing"]["ms"])

    assert view.status is not None
    assert view.status.available_replicas == 2
    assert {c.type for c in view.status.conditions} == {
        "Accepted",
        "Ready",
        "Stalled",
        "Reconciling",
        "Available",
        "Progressing",
        "UpdateInProgress",
    }


def test_kthenas_stale_conditions_are_brought_up_to_date() -> None:
    world = settled()

    def change(obj: dict[str, Any]) -> None:
        obj["status"]["conditions"] = [
            {"type": "Progressing", "status": "True", "reason": "GroupProgressing",
             "message": "Some groups is progressing: [0]",
             "lastTransitionTime": "2025-01-01T00:00:00Z"},
        ]  # fmt: skip

    world.patch("ModelServing", "ms", change)
    world.sync()

    assert condition(world, "Progressing")["status"] == "False"
    assert "[0]" not in condition(world, "Progressing")["message"]
    assert read(world) == "Current"
