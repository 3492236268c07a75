"""What the controller writes on objects because it cannot be derived: three annotations.

On a ControllerRevision, `slots` says which groups are at that revision (also while they have no
pods), which instances are being formed, and how many instances of each role had been asked for; of
groups whose instances are of several revisions, which instances are at that one; and which groups
are there only for the time of an update. On a pod and, while the pod is being replaced, on the ModelServing, `recoveries` counts how often an
instance was made anew after a failure. On a failing pod, `failing-since` dates the failure.

An annotation that cannot be read counts as absent: it only ever makes the controller more careful.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from kthena.api.workload.names import LABEL_PREFIX
from kthena.machinery.conditions import format_time, parse_time
from kthena.workload.identity import InstanceKey

ANNOTATION_SLOTS: Final = f"{LABEL_PREFIX}slots"
ANNOTATION_RECOVERIES: Final = f"{LABEL_PREFIX}recoveries"
ANNOTATION_FAILING_SINCE: Final = f"{LABEL_PREFIX}failing-since"

RESERVED_ANNOTATIONS: Final = frozenset(
    {ANNOTATION_SLOTS, ANNOTATION_RECOVERIES, ANNOTATION_FAILING_SINCE}
)
"""Annotations that only the controller writes: a template's are not taken over."""

_WHOLE_GROUP: Final = "*"
_MAX_ORDINAL: Final = 2**31 - 1


def format_ordinals(ordinals: Iterable[int]) -> str:
    """Sorted ordinals as ranges: `0-4,7`."""
    ranges: list[list[int]] = []
    for ordinal in sorted(set(ordinals)):
        if ranges and ranges[-1][1] == ordinal - 1:
            ranges[-1][1] = ordinal
        else:
            ranges.append([ordinal, ordinal])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def parse_ordinals(text: str) -> frozenset[int]:
    """The ordinals of a text that `format_ordinals` wrote.

    Raises:
        ValueError: the text is none of its, or a range is larger than any ModelServing.
    """
    ordinals: set[int] = set()
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        first, last = int(low), int(high or low)
        if not 0 <= first <= last <= _MAX_ORDINAL or last - first > _MAX_RANGE:
            raise ValueError(f"{part!r} is no range of ordinals")
        ordinals.update(range(first, last + 1))
    return frozenset(ordinals)


_MAX_RANGE: Final = 1_000_000
"""Guards against an edited annotation that would fill the memory."""


@dataclass(frozen=True, slots=True)
class Forming:
    """The parts of groups whose pods have been asked for and have not all existed yet.

    A pod that is missing from a forming part is created alone; one that is missing from any other
    part was lost, and the recovery policy says what returns with it.
    """

    groups: frozenset[int] = frozenset()
    instances: frozenset[InstanceKey] = frozenset()

    def covers(self, key: InstanceKey) -> bool:
        """Whether the instance is being formed, alone or with its group."""
        return key.group in self.groups or key in self.instances


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """The annotation of one ControllerRevision."""

    groups: frozenset[int] = frozenset()
    forming: Forming = field(default_factory=Forming)
    replicas: Mapping[str, int] = field(default_factory=dict)
    """Instances per role that the groups of this revision had been asked for."""
    instances: frozenset[InstanceKey] = frozenset()
    """Instances at this revision in groups, of whatever revision, that are not of one alone."""
    surge: frozenset[int] = frozenset()
    """Those of `groups` that an update has added to the count."""

    def format(self) -> str:
        """The annotation's text; equal records have equal texts."""
        forming = _format_instances(self.forming.instances)
        if self.forming.groups:
            forming[_WHOLE_GROUP] = format_ordinals(self.forming.groups)
        content: dict[str, object] = {
            "groups": format_ordinals(self.groups),
            "forming": forming,
            "replicas": dict(self.replicas),
        }
        if self.instances:
            content["instances"] = _format_instances(self.instances)
        if self.surge:
            content["surge"] = format_ordinals(self.surge)
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str | None) -> "SlotRecord | None":
        """The record of an annotation; None where it is absent or cannot be read."""
        if text is None:
            return None
        try:
            content = json.loads(text)
            return cls(
                groups=parse_ordinals(content["groups"]),
                forming=_parse_forming(content["forming"]),
                replicas={str(role): int(count) for role, count in content["replicas"].items()},
                instances=frozenset(_parse_instances(content.get("instances", {}))),
                surge=parse_ordinals(content.get("surge", "")),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _parse_forming(content: Mapping[str, str]) -> Forming:
    instances = {key: text for key, text in content.items() if key != _WHOLE_GROUP}
    groups = parse_ordinals(content.get(_WHOLE_GROUP, ""))
    return Forming(groups, frozenset(_parse_instances(instances)))


def _format_instances(instances: Iterable[InstanceKey]) -> dict[str, str]:
    """The groups of each instance by its place in a group: `{"decode/0": "0-4"}`."""
    groups: dict[str, set[int]] = {}
    for key in instances:
        groups.setdefault(f"{key.role}/{key.ordinal}", set()).add(key.group)
    return {place: format_ordinals(ordinals) for place, ordinals in groups.items()}


def _parse_instances(content: Mapping[str, str]) -> Iterator[InstanceKey]:
    for place, text in content.items():
        role, _, ordinal = place.rpartition("/")
        for group in parse_ordinals(text):
            yield InstanceKey(group, role, int(ordinal))


@dataclass(frozen=True, slots=True)
class Recoveries:
    """How often an instance was made anew after failures, and when last."""

    count: int
    at: datetime

    def format(self) -> str:
        """`3@2026-01-01T00:00:00Z`."""
        return f"{self.count}@{format_time(self.at)}"

    @classmethod
    def parse(cls, text: str | None) -> "Recoveries | None":
        """The counter of an annotation; None where it is absent or cannot be read."""
        count, _, at = (text or "").partition("@")
        moment = time_or_none(at)
        if moment is None or not count.isascii() or not count.isdigit():
            return None
        return cls(int(count[:4]), moment)


def parse_recoveries(text: str | None) -> dict[InstanceKey, Recoveries]:
    """The counters that a ModelServing keeps for instances that are being made anew."""
    try:
        content = json.loads(text or "{}").items()
    except (ValueError, AttributeError):
        return {}
    counters: dict[InstanceKey, Recoveries] = {}
    for key, value in content:
        group, _, rest = key.partition("/")
        role, _, ordinal = rest.rpartition("/")
        counter = Recoveries.parse(value) if isinstance(value, str) else None
        if counter is not None and role and group.isdecimal() and ordinal.isdecimal():
            counters[InstanceKey(int(group), role, int(ordinal))] = counter
    return counters


def format_recoveries(counters: Mapping[InstanceKey, Recoveries]) -> str:
    """The inverse of `parse_recoveries`."""
    content = {
        f"{key.group}/{key.role}/{key.ordinal}": counter.format()
        for key, counter in counters.items()
    }
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def time_or_none(text: object) -> datetime | None:
    """A time of the API, or None where it is absent or unreadable."""
    try:
        return parse_time(text)
    except ValueError:
        return None
