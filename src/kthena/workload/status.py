"""The status of a ModelServing: counters, revisions, selector and conditions, from one plan.

Types and reasons of Kthena's conditions stay (`Available`/`AllGroupsReady`,
`Progressing`/`GroupProgressing`, `UpdateInProgress`/`GroupsUpdating`). `Ready`, `Reconciling` and
`Stalled` say the same for kstatus, `Accepted` speaks of the spec, and `ReplicaFailure` of children
that could not be created or deleted. Every condition carries the generation that it speaks of.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kthena.api.conditions import (
    ACCEPTED,
    AVAILABLE,
    PROGRESSING,
    READY,
    RECONCILING,
    REPLICA_FAILURE,
    STALLED,
    UPDATE_IN_PROGRESS,
)
from kthena.api.unsupported import REASON as NOT_SUPPORTED
from kthena.api.unsupported import Unsupported
from kthena.api.workload.names import LABEL_ENTRY, LABEL_NAME, LABEL_ROLE, LABEL_ROLE_ID
from kthena.machinery.conditions import FALSE, TRUE, Condition, remove_condition, set_condition
from kthena.machinery.objects import Object, generation_of

ALL_GROUPS_READY: Final = "AllGroupsReady"
GROUP_PROGRESSING: Final = "GroupProgressing"
GROUPS_UPDATING: Final = "GroupsUpdating"
GROUPS_NOT_READY: Final = "GroupsNotReady"
SCHEDULER_FALLBACK: Final = "SchedulerFallback"
POD_GROUPS_MISSING: Final = "PodGroupsMissing"
POD_GROUPS_TOO_OLD: Final = "PodGroupsTooOld"
CRASH_LOOP: Final = "CrashLoopBackOff"
UNKNOWN_REVISION: Final = "UnknownRevision"

_LISTED = 10
_QUOTED = 400
"""How much of a node's words a condition repeats."""
"""Names that a message lists at most."""


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a child from being created, updated or deleted: for a condition and an event."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class HeldUp:
    """A container that does not run, and why, in its node's words."""

    pod: str
    reason: str
    message: str

    def __str__(self) -> str:
        """For a condition."""
        text = f"pod {self.pod}: {self.reason}"
        return f"{text}: {self.message[:_QUOTED]}" if self.message else text


@dataclass(frozen=True, slots=True)
class Counters:
    """What a status counts: serving groups."""

    replicas: int
    current: int
    updated: int
    available: int


@dataclass(frozen=True, slots=True)
class Findings:
    """What a plan found out about a ModelServing. Groups are given by ordinal."""

    counters: Counters
    current_revision: str
    update_revision: str
    selector_role: str
    missing: int
    """How many groups do not exist."""
    unready: Sequence[int]
    """Groups that exist and are not available, or are terminating."""
    unfinished: Sequence[int]
    """Groups that are available and lack a service, or have more pods than they should."""
    outdated: Sequence[int]
    """Groups that are to be replaced, or whose pods are being replaced."""
    refused: Sequence[Unsupported] = ()
    falls_back: bool = False
    waits_for_pod_groups: bool = False
    """Whether new groups and updates wait for the PodGroups that the spec needs."""
    unheard: str = ""
    """What the spec asks of PodGroups and the installed ones cannot say."""
    crash_looping: Sequence[str] = ()
    """Role instances that wait in back-off."""
    held_up: Sequence["HeldUp"] = ()
    """What keeps containers of groups that are not ready from running."""
    unknown: Sequence[int] = ()
    """Groups whose revision is unknown and that lack something."""
    problems: Sequence[Problem] = ()


def build_status(modelserving: Object, findings: Findings, now: datetime) -> Object:
    """The whole status. Equal to the present one when there is nothing new to say."""
    previous = modelserving.get("status") or {}
    generation = generation_of(modelserving)
    conditions: list[Object] = list(previous.get("conditions") or ())
    for condition in _conditions(findings):
        conditions = set_condition(conditions, _at(condition, generation), now)
    counters = findings.counters
    status = {
        **previous,
        "observedGeneration": generation,
        "replicas": counters.replicas,
        "currentReplicas": counters.current,
        "updatedReplicas": counters.updated,
        "availableReplicas": counters.available,
        "currentRevision": findings.current_revision,
        "updateRevision": findings.update_revision,
        "labelSelector": format_selector(modelserving, findings.selector_role),
        "conditions": conditions,
    }
    return with_failures(modelserving, status, findings.problems, now)


def with_failures(
    modelserving: Object, status: Object, problems: Sequence[Problem], now: datetime
) -> Object:
    """The status with what stands in the way of children; without the condition if nothing does."""
    conditions = remove_condition(status.get("conditions") or (), REPLICA_FAILURE)
    if not problems:
        return {**status, "conditions": conditions}
    previous = (modelserving.get("status") or {}).get("conditions") or ()
    conditions += [each for each in previous if each.get("type") == REPLICA_FAILURE]
    # Sorted, so that the same failures read the same whichever came first.
    reasons = sorted({problem.reason for problem in problems})
    texts = sorted({problem.message for problem in problems})
    message = "; ".join(texts[:_LISTED]) + (" ..." if len(texts) > _LISTED else "")
    failure = Condition(REPLICA_FAILURE, TRUE, reasons[0], message)
    failure = _at(failure, generation_of(modelserving))
    return {**status, "conditions": set_condition(conditions, failure, now)}


def unreadable_status(modelserving: Object, message: str, now: datetime) -> Object:
    """The status of an object that does not have the shape of a ModelServing."""
    previous = modelserving.get("status") or {}
    generation = generation_of(modelserving)
    conditions: list[Object] = list(previous.get("conditions") or ())
    for condition in (
        Condition(ACCEPTED, FALSE, "Invalid", message),
        Condition(READY, FALSE, "Invalid", message),
        Condition(RECONCILING, FALSE, "Invalid", message),
        Condition(STALLED, TRUE, "Invalid", message),
    ):
        conditions = set_condition(conditions, _at(condition, generation), now)
    return {**previous, "observedGeneration": generation, "conditions": conditions}


def format_selector(modelserving: Object, role: str) -> str:
    """The selector of one pod per group: the entry pod of the role's first instance."""
    labels = {
        LABEL_ENTRY: "true",
        LABEL_NAME: modelserving["metadata"]["name"],
        LABEL_ROLE: role,
        LABEL_ROLE_ID: f"{role}-0",
    }
    return ",".join(sorted(f"{key}={value}" for key, value in labels.items()))


def _at(condition: Condition, generation: int) -> Condition:
    return Condition(
        condition.type, condition.status, condition.reason, condition.message, generation
    )


def _conditions(found: Findings) -> list[Condition]:
    """At most one of Available, Progressing and UpdateInProgress is True.

    None is where a refused spec keeps missing groups from being created.
    """
    held_back = bool(found.refused) or found.waits_for_pod_groups
    outdated = bool(found.outdated) and not held_back
    unsettled = bool(found.unready or found.unfinished)
    moving = outdated or unsettled or (found.missing > 0 and not held_back)
    ready = not (found.missing or unsettled or found.outdated)
    stalled = _stalled(found)
    message = _progress(found)
    moving_reason = GROUPS_UPDATING if outdated else GROUP_PROGRESSING
    unready_reason = stalled.reason if stalled.status == TRUE else moving_reason
    reconciling = moving and stalled.status == FALSE
    return [
        _accepted(found),
        _flag(READY, ready, ALL_GROUPS_READY if ready else unready_reason, message),
        stalled,
        _flag(RECONCILING, reconciling, moving_reason if moving else ALL_GROUPS_READY, message),
        _flag(AVAILABLE, ready, ALL_GROUPS_READY if ready else GROUPS_NOT_READY, message),
        _flag(PROGRESSING, moving and not outdated, GROUP_PROGRESSING, message),
        _flag(UPDATE_IN_PROGRESS, outdated, GROUPS_UPDATING, message),
    ]


def _flag(type_: str, holds: object, reason: str, message: str) -> Condition:
    return Condition(type_, TRUE if holds else FALSE, reason, message)


def _accepted(found: Findings) -> Condition:
    if found.refused:
        return Condition(
            ACCEPTED,
            FALSE,
            NOT_SUPPORTED,
            f"no group is created and no update rolled out: {_list(found.refused)}",
        )
    if found.falls_back:
        return Condition(
            ACCEPTED,
            TRUE,
            SCHEDULER_FALLBACK,
            "the PodGroup CRD of Volcano is not found: new pods go to the default scheduler, "
            "although schedulerName is volcano",
        )
    if found.waits_for_pod_groups:
        return Condition(
            ACCEPTED,
            TRUE,
            POD_GROUPS_MISSING,
            "gangPolicy or networkTopology needs PodGroups of Volcano, whose CRD is not found or "
            "which cannot be read: no new group is created and no update rolled out until then",
        )
    if found.unheard:
        return Condition(
            ACCEPTED,
            TRUE,
            POD_GROUPS_TOO_OLD,
            f"the PodGroup CRD of the installed Volcano cannot say {found.unheard}: it has no effect",
        )
    return Condition(ACCEPTED, TRUE, ACCEPTED, "")


def _stalled(found: Findings) -> Condition:
    if found.refused:
        return Condition(STALLED, TRUE, NOT_SUPPORTED, _list(found.refused))
    if found.unknown:
        return Condition(
            STALLED,
            TRUE,
            UNKNOWN_REVISION,
            f"groups {_list(found.unknown)} cannot be healed: the ControllerRevision that they were "
            "made from is missing; delete their pods to have them made from the present spec",
        )
    if found.waits_for_pod_groups and (found.missing or found.outdated):
        return Condition(
            STALLED,
            TRUE,
            POD_GROUPS_MISSING,
            "groups or updates wait for PodGroups of Volcano; install it, or remove gangPolicy and "
            "networkTopology",
        )
    if found.crash_looping:
        return Condition(
            STALLED,
            TRUE,
            CRASH_LOOP,
            f"role instances {_list(found.crash_looping)} keep failing and wait before they are "
            "made anew; see the logs of their pods",
        )
    ending = [each for each in found.held_up if each.reason == CRASH_LOOP]
    if ending:
        return Condition(STALLED, TRUE, CRASH_LOOP, f"{ending[0]}; see the log of the pod")
    return Condition(STALLED, FALSE, "NotStalled", "")


def _progress(found: Findings) -> str:
    parts = []
    if found.outdated:
        groups = _list(found.outdated)
        parts.append(f"groups not of revision {found.update_revision}: {groups}")
    if found.unready:
        parts.append(f"groups not ready: {_list(found.unready)}")
    if found.unfinished:
        groups = _list(found.unfinished)
        parts.append(f"groups with pods or services to be added or removed: {groups}")
    if found.missing:
        parts.append(f"groups that do not exist: {found.missing}")
    if found.held_up:
        first, *others = found.held_up
        parts.append(f"{first}, and {len(others)} more" if others else str(first))
    return "; ".join(parts) or "all serving groups are ready"


def _list(items: Sequence[object]) -> str:
    more = f" and {len(items) - _LISTED} more" if len(items) > _LISTED else ""
    return ", ".join(str(item) for item in items[:_LISTED]) + more
