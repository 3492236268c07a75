"""What becomes of an object when its owners go: the decisions of the garbage collector."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class OwnerState(Enum):
    """What an owner reference points to."""

    SOLID = "an owner that stays"
    ABSENT = "nothing"
    WAITING = "an owner that waits for its dependents to go"
    UNKNOWN = "a kind that is not served, or that cannot own the object"


class Verdict(Enum):
    """What becomes of a dependent."""

    KEEP = "it stays as it is"
    RELEASE = "it stays, and loses the references to owners that do not"
    DELETE = "it goes"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, the uids of references to drop, and whether an owner waits for the object."""

    verdict: Verdict
    dropped: frozenset[str] = frozenset()
    awaited: bool = False


def judge(states: Mapping[str, OwnerState]) -> Judgement:
    """Decide on a dependent by the states of its owners, by uid."""
    if not states or OwnerState.UNKNOWN in states.values():
        return Judgement(Verdict.KEEP)
    gone = frozenset(uid for uid, state in states.items() if state is not OwnerState.SOLID)
    if not gone:
        return Judgement(Verdict.KEEP)
    if len(gone) < len(states):
        return Judgement(Verdict.RELEASE, gone)
    return Judgement(Verdict.DELETE, awaited=OwnerState.WAITING in states.values())
