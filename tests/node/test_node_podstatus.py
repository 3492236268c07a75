from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kthena.local.node.podstatus import (
    ContainerRecord,
    PodRecord,
    Running,
    State,
    Terminated,
    Waiting,
    build_status,
    initial_records,
    not_running_status,
    phase_of,
)
from kthena.machinery.conditions import find_condition

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
RUNNING = Running(NOW)
OK = Terminated(0, "Completed", NOW, NOW)
BAD = Terminated(1, "Error", NOW, NOW)
WAIT = Waiting("ContainerCreating")


def entry(name: str, state: State = RUNNING, **fields: Any) -> ContainerRecord:
    return ContainerRecord(name, "image", state, **fields)


def record(*app: ContainerRecord, init: tuple[ContainerRecord, ...] = ()) -> PodRecord:
    return PodRecord("127.2.0.9", "127.2.0.1", NOW, init, app, sandbox_ready=True)


def pod(*names: str, init: Any = (), policy: str = "Always", **fields: Any) -> dict[str, Any]:
    spec = {
        "containers": [{"name": name} for name in names],
        "initContainers": [{"name": name} if isinstance(name, str) else name for name in init],
        "restartPolicy": policy,
        **fields.pop("spec", {}),
    }
    return {"metadata": {}, "spec": spec, **fields}


@pytest.mark.parametrize(
    ("policy", "states", "phase"),
    [
        ("Always", [RUNNING], "Running"),
        ("Always", [WAIT], "Pending"),
        ("Always", [WAIT, RUNNING], "Pending"),
        ("Always", [RUNNING, OK], "Running"),
        ("Always", [OK], "Running"),
        ("Always", [BAD], "Running"),
        ("OnFailure", [OK], "Succeeded"),
        ("OnFailure", [BAD], "Running"),
        ("OnFailure", [OK, RUNNING], "Running"),
        ("Never", [OK, OK], "Succeeded"),
        ("Never", [OK, BAD], "Failed"),
        ("Never", [BAD, RUNNING], "Running"),
    ],
)
def test_the_phase_of_started_pods(policy: str, states: list[State], phase: str) -> None:
    names = [f"c{number}" for number in range(len(states))]
    made = record(*(entry(name, state) for name, state in zip(names, states, strict=True)))

    assert phase_of(pod(*names, policy=policy), made) == phase


def test_a_crash_looping_pod_is_running() -> None:
    looping = entry("c", Waiting("CrashLoopBackOff"), last=BAD, restarts=3)
    assert phase_of(pod("c"), record(looping)) == "Running"


@pytest.mark.parametrize(
    ("state", "phase"), [(OK, "Succeeded"), (BAD, "Failed"), (RUNNING, "Running")]
)
def test_a_terminating_pod_ends_by_its_containers(state: State, phase: str) -> None:
    leaving = pod("c")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert phase_of(leaving, record(entry("c", state))) == phase


@pytest.mark.parametrize(
    ("policy", "state", "phase"),
    [
        ("Always", RUNNING, "Pending"),
        ("Always", BAD, "Pending"),
        ("Never", BAD, "Failed"),
        ("Never", OK, "Running"),
    ],
)
def test_init_containers_hold_the_pod_back(policy: str, state: State, phase: str) -> None:
    made = record(entry("c"), init=(entry("i", state),))
    assert phase_of(pod("c", init=["i"], policy=policy), made) == phase


def test_a_sidecar_lets_the_pod_pass_once_it_has_started() -> None:
    side = {"name": "s", "restartPolicy": "Always"}
    subject = pod("c", init=[side])

    assert phase_of(subject, record(entry("c"), init=(entry("s"),))) == "Pending"
    assert phase_of(subject, record(entry("c"), init=(entry("s", started=True),))) == "Running"
    crashed = entry("s", Waiting("CrashLoopBackOff"), last=BAD)
    assert phase_of(subject, record(entry("c"), init=(crashed,))) == "Running"


def conditions(subject: dict[str, Any], made: PodRecord, now: datetime = NOW) -> dict[str, Any]:
    status = build_status(subject, made, now)
    return {condition["type"]: condition for condition in status["conditions"]}


def test_conditions_of_a_pod_that_is_coming_up() -> None:
    made = record(entry("a", ready=True), entry("b"))
    found = conditions(pod("a", "b"), made)

    assert found["Initialized"]["status"] == "True"
    assert found["PodScheduled"]["status"] == "True"
    assert found["PodReadyToStartContainers"]["status"] == "True"
    for kind in ("Ready", "ContainersReady"):
        assert found[kind]["status"] == "False"
        assert found[kind]["reason"] == "ContainersNotReady"
        assert found[kind]["message"] == "containers with unready status: [b]"


def test_conditions_while_initialising() -> None:
    made = record(entry("c", WAIT), init=(entry("i", OK), entry("j")))
    found = conditions(pod("c", init=["i", "j"]), made)

    assert found["Initialized"]["reason"] == "ContainersNotInitialized"
    assert found["Initialized"]["message"] == "containers with incomplete status: [j]"


def test_a_ready_pod_and_its_readiness_gates() -> None:
    made = record(entry("c", ready=True, started=True))
    gate = {"readinessGates": [{"conditionType": "example.com/feature"}]}
    foreign = {"type": "example.com/feature", "status": "False", "lastTransitionTime": "x"}

    assert conditions(pod("c"), made)["Ready"]["status"] == "True"
    closed = conditions(pod("c", spec=gate, status={"conditions": [foreign]}), made)
    assert closed["Ready"]["reason"] == "ReadinessGatesNotReady"
    assert "example.com/feature" in closed["Ready"]["message"]
    assert closed["ContainersReady"]["status"] == "True"
    assert closed["example.com/feature"] == foreign
    opened = pod("c", spec=gate, status={"conditions": [{**foreign, "status": "True"}]})
    assert conditions(opened, made)["Ready"]["status"] == "True"


@pytest.mark.parametrize(("state", "reason"), [(OK, "PodCompleted"), (BAD, "PodFailed")])
def test_a_finished_pod_is_not_ready(state: State, reason: str) -> None:
    found = conditions(pod("c", policy="Never"), record(entry("c", state)))
    assert (found["Ready"]["status"], found["Ready"]["reason"]) == ("False", reason)


def test_transition_times_move_only_with_the_status() -> None:
    subject, later = pod("c"), NOW + timedelta(minutes=5)
    subject["status"] = build_status(subject, record(entry("c")), NOW)
    ready = replace(record(entry("c")), app=(entry("c", ready=True),))

    same = conditions(subject, record(entry("c")), later)
    moved = conditions(subject, ready, later)

    assert same["Ready"]["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert moved["Ready"]["lastTransitionTime"] == "2026-01-01T12:05:00Z"
    assert moved["Initialized"]["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    assert build_status(subject, record(entry("c")), later) == subject["status"]


def test_container_statuses() -> None:
    waiting = entry("w", Waiting("CrashLoopBackOff", "back-off 10s"), last=BAD, restarts=2)
    killed = Terminated(137, "Error", NOW, NOW, signal=9, container_id="kthena://1")
    ended = entry("t", killed, container_id="kthena://1")
    running = entry("r", ready=True, started=True, container_id="kthena://2")
    status = build_status(pod("w", "t", "r"), record(waiting, ended, running), NOW)

    first, second, third = status["containerStatuses"]
    assert first["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    assert first["lastState"]["terminated"]["exitCode"] == 1
    assert (first["restartCount"], first["ready"], first["started"]) == (2, False, False)
    assert "containerID" not in first
    assert second["state"]["terminated"] == {
        "exitCode": 137, "reason": "Error", "signal": 9, "containerID": "kthena://1",
        "startedAt": "2026-01-01T12:00:00Z", "finishedAt": "2026-01-01T12:00:00Z",
    }  # fmt: skip
    assert third["state"] == {"running": {"startedAt": "2026-01-01T12:00:00Z"}}
    assert third["containerID"] == "kthena://2"
    assert third["imageID"]


def test_a_done_init_container_is_ready() -> None:
    made = record(entry("c"), init=(entry("i", OK),))
    (init,) = build_status(pod("c", init=["i"]), made, NOW)["initContainerStatuses"]
    assert init["ready"] is True


def test_addresses_appear_with_the_sandbox() -> None:
    before = replace(record(entry("c", WAIT)), address="", sandbox_ready=False)
    assert "podIP" not in build_status(pod("c"), before, NOW)
    after = build_status(pod("c"), record(entry("c")), NOW)
    assert (after["podIP"], after["podIPs"]) == ("127.2.0.9", [{"ip": "127.2.0.9"}])
    assert after["hostIP"] == "127.2.0.1"


def test_a_pod_that_the_node_ended() -> None:
    made = replace(record(entry("c")), failed=("DeadlineExceeded", "too long"))
    status = build_status(pod("c"), made, NOW)

    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed", "DeadlineExceeded", "too long",
    )  # fmt: skip
    again = pod("c", status={"reason": "Old", "message": "old"})
    assert build_status(again, record(entry("c")), NOW)["reason"] is None


def test_restart_counts_of_an_earlier_life() -> None:
    status = {
        "containerStatuses": [
            {
                "name": "ours", "restartCount": 2, "containerID": "kthena://abc",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            },
            {"name": "seeded", "restartCount": 1, "containerID": "containerd://abc"},
            {"name": "new", "restartCount": 0},
        ]
    }  # fmt: skip
    spec = pod("ours", "seeded", "new", "unseen")["spec"]

    records = initial_records(spec, status, "containers", NOW)

    assert {r.name: r.restarts for r in records} == {"ours": 3, "seeded": 1, "new": 0, "unseen": 0}
    assert [r.last is not None for r in records] == [True, False, False, False]
    built = build_status(pod("ours"), record(records[0]), NOW)
    assert built["phase"] == "Running"
    ended = built["containerStatuses"][0]["lastState"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (255, "Unknown")
    assert ended["startedAt"] == "2026-01-01T00:00:00Z"


def test_a_run_that_none_is_to_follow_is_begun_anew_without_a_verdict() -> None:
    running = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    entries = [{"name": "c", "restartCount": 0, "containerID": "kthena://a", "state": running}]
    spec = {**pod("c")["spec"], "restartPolicy": "Never"}

    (found,) = initial_records(spec, {"containerStatuses": entries}, "containers", NOW)

    assert found.last is None


def test_the_first_reason_says_what_is_waited_for() -> None:
    (plain,) = initial_records(pod("c")["spec"], {}, "containers", NOW)
    (held,) = initial_records(pod("c", init=["i"])["spec"], {}, "containers", NOW)

    assert plain.state == Waiting("ContainerCreating")
    assert held.state == Waiting("PodInitializing")


def test_when_the_node_stops_nothing_is_ready() -> None:
    subject = pod("c")
    subject["status"] = build_status(subject, record(entry("c", ready=True)), NOW)
    status = not_running_status(subject, "NodeStopped", "gone", NOW)

    ready = find_condition(status["conditions"], "Ready")
    assert ready is not None
    assert (ready["status"], ready["reason"]) == ("False", "NodeStopped")
    assert status["containerStatuses"][0]["ready"] is False
    assert "phase" not in status
