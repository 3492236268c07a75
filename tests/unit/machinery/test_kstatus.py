from typing import Any

import pytest

from kthena.machinery.kstatus import status_of


def condition(kind: str, status: str, reason: str = "R", message: str = "m") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message}


def obj(kind: str, spec: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"generation": 2}, "spec": spec or {}, "status": status}


READY = condition("Ready", "True")
NOT_READY = condition("Ready", "False")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (obj("Any"), "Current"),
        (obj("Any", observedGeneration=1, conditions=[READY]), "InProgress"),
        (obj("Any", observedGeneration=2, conditions=[READY]), "Current"),
        (obj("Any", conditions=[NOT_READY]), "InProgress"),
        (obj("Any", conditions=[READY, condition("Reconciling", "True")]), "InProgress"),
        (obj("Any", conditions=[READY, condition("Stalled", "True")]), "Failed"),
        (obj("Any", conditions=[READY, condition("Stalled", "False")]), "Current"),
        (obj("Pod", phase="Pending"), "InProgress"),
        (obj("Pod", phase="Running", conditions=[READY]), "Current"),
        (obj("Pod", phase="Running", conditions=[NOT_READY]), "InProgress"),
        (obj("Pod", phase="Succeeded", conditions=[NOT_READY]), "Current"),
        (obj("Pod", phase="Failed"), "Failed"),
        (
            obj(
                "Pod",
                phase="Running",
                containerStatuses=[{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
            ),
            "Failed",
        ),
        (obj("CustomResourceDefinition"), "InProgress"),
        (
            obj("CustomResourceDefinition", conditions=[condition("Established", "True")]),
            "Current",
        ),
        (
            obj("CustomResourceDefinition", conditions=[condition("NamesAccepted", "False")]),
            "Failed",
        ),
        (obj("Deployment", {"replicas": 0}), "InProgress"),
        (obj("Deployment", {"replicas": 0}, observedGeneration=2), "Current"),
    ],
)
def test_states(given: dict[str, Any], expected: str) -> None:
    assert status_of(given).state == expected


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ((2, 2, 2, 2), "Current"),
        ((2, 1, 2, 2), "InProgress"),
        ((2, 2, 1, 2), "InProgress"),
        ((2, 2, 2, 1), "InProgress"),
        ((3, 2, 2, 2), "InProgress"),
    ],
    ids=["all", "not updated", "not ready", "not available", "old ones left"],
)
def test_a_deployment_is_current_when_every_count_is_reached(
    counts: tuple[int, int, int, int], expected: str
) -> None:
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    given = obj(
        "Deployment", {"replicas": 2}, observedGeneration=2, **dict(zip(names, counts, strict=True))
    )
    assert status_of(given).state == expected


def test_a_deployment_that_is_stuck_has_failed() -> None:
    stuck = condition("Progressing", "False", "ProgressDeadlineExceeded")
    given = obj("Deployment", {"replicas": 2}, observedGeneration=2, conditions=[stuck])
    assert status_of(given).state == "Failed"


def test_an_object_that_is_being_deleted_is_terminating() -> None:
    given = obj("Any", conditions=[READY])
    given["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert status_of(given).state == "Terminating"


def test_a_kind_that_reports_ready_is_in_progress_until_it_does() -> None:
    assert status_of(obj("Any"), expects_ready=True).state == "InProgress"
    without = obj("Any", observedGeneration=2)
    assert status_of(without, expects_ready=True).state == "InProgress"
    ready = obj("Any", observedGeneration=2, conditions=[READY])
    assert status_of(ready, expects_ready=True).state == "Current"
    assert status_of(ready, expects_ready=True).message == "R: m"
