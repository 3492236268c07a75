"""What is written down: revisions, the records on them, and the counters of recoveries.

Everything here precedes the pods that it speaks of. A record is not added to a ControllerRevision
that Kthena wrote as long as all groups are of one revision and nothing is created: then it would say
nothing that cannot be seen.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from kthena.machinery.objects import Object, annotations_of, controller_of, name_of, uid_of
from kthena.workload.identity import InstanceKey
from kthena.workload.planner.formation import Formation
from kthena.workload.planner.plan import (
    AnnotateModelServing,
    AnnotateRevision,
    CreateRevision,
    DeleteRevision,
)
from kthena.workload.planner.recovery import is_fresh
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot
from kthena.workload.records import (
    ANNOTATION_RECOVERIES,
    ANNOTATION_SLOTS,
    Forming,
    Recoveries,
    SlotRecord,
    format_recoveries,
)
from kthena.workload.revisions import Revision, build_revision


class Books:
    """The groups of a plan, by what becomes of them. Read-only.

    `staying` are the groups that keep their slot, those included that are deleted to be made again.
    `disturbed` says whether pods are deleted or terminating.
    """

    def __init__(
        self,
        situation: Situation,
        staying: Collection[Slot],
        formation: Formation,
        *,
        disturbed: bool,
    ) -> None:
        self.situation = situation
        self.formation = formation
        self.disturbed = disturbed
        groups: dict[str, set[int]] = {}
        for slot in staying:
            if slot.revision is not None:
                groups.setdefault(slot.revision.name, set()).add(slot.ordinal)
        for ordinal, revision in formation.groups.items():
            groups.setdefault(revision.name, set()).add(ordinal)
        self.groups = {name: frozenset(ordinals) for name, ordinals in groups.items()}
        """The groups of each revision that has any."""
        self.surge = {slot.ordinal for slot in staying if slot.surge} | formation.surge
        """The groups that an update adds to the count."""
        self.instances = self._instances_of_mixed(staying)
        """The instances of each revision in groups that are not of one alone."""

    def _instances_of_mixed(self, staying: Iterable[Slot]) -> Mapping[str, frozenset[InstanceKey]]:
        situation, formation = self.situation, self.formation
        owners = {slot.ordinal: slot.revision for slot in staying} | formation.groups
        made_of = {key: revision.name for key, revision in formation.made.items()}
        for slot in staying:
            for instance in slot.group.instances:
                made_of[instance.key] = instance.revision
        # What has no pods and was not reached yet is to be made as it was: the rest of a batch, and
        # of a group that is on its way out.
        reached = set() if formation.is_full else formation.filled | formation.groups.keys()
        for key, revision in situation.recorded_instances.items():
            if key.group in owners and key.group not in reached:
                made_of.setdefault(key, revision.name)
        mixed = set()
        for key, name in made_of.items():
            owner = owners.get(key.group)
            if owner is not None and owner.name != name:
                mixed.add(key.group)
        instances: dict[str, set[InstanceKey]] = {}
        for key, name in made_of.items():
            if key.group in mixed and name in situation.history.known:
                instances.setdefault(name, set()).add(key)
        return {name: frozenset(keys) for name, keys in instances.items()}


def plan_revisions(books: Books) -> list[CreateRevision | AnnotateRevision]:
    """ControllerRevisions to write, and records to bring up to date.

    A revision that gains groups comes before one that loses them: a group that moves is recorded
    twice for a moment, never not at all.
    """
    situation, history = books.situation, books.situation.history
    creations: list[CreateRevision] = []
    gains: list[AnnotateRevision] = []
    moves: list[AnnotateRevision] = []
    losses: list[AnnotateRevision] = []
    number = max((revision.number for revision in history.known.values()), default=0)
    for revision in history.known.values():
        record = _record(books, revision)
        if revision.stored is None:
            if _is_needed(books, revision) and history.is_usable(revision):
                number += 1
                stored = build_revision(
                    situation.modelserving, revision, number=number, record=record
                )
                creations.append(CreateRevision(stored))
        elif record != revision.record and (revision.record or _must_record(books)):
            note = AnnotateRevision(
                name_of(revision.stored),
                uid_of(revision.stored),
                {ANNOTATION_SLOTS: record.format()},
            )
            before = revision.record or SlotRecord()
            gained = record.groups - before.groups
            moved = record.instances - before.instances
            (gains if gained else moves if moved else losses).append(note)
    return [*creations, *gains, *moves, *losses]


def plan_history(books: Books, old: Object, new: Object) -> tuple[list[DeleteRevision], bool]:
    """ControllerRevisions that no pod, no slot and neither status refers to.

    And whether others will be that once the new status has taken the old one's place.
    """
    unused = list(_unused_revisions(books, _named_in(new)))
    named = _named_in(old)
    deletions = [
        DeleteRevision(name_of(stored), uid_of(stored))
        for revision in unused
        if revision.name not in named and (stored := revision.stored) is not None
    ]
    return deletions, len(deletions) < len(unused)


def _named_in(status: Object) -> set[str]:
    return {str(status.get(field) or "") for field in ("currentRevision", "updateRevision")}


def _unused_revisions(books: Books, referenced: Collection[str]) -> Iterator[Revision]:
    situation = books.situation
    kept = {situation.history.update.name, *books.groups, *books.instances, *referenced}
    for slot in situation.slots.values():
        for instance in slot.group.instances:
            kept.update(pod.revision for pod in instance.pods.values())
    for revision in situation.history.known.values():
        stored = revision.stored
        if stored is not None and revision.name not in kept and controller_of(stored) is not None:
            yield revision


def plan_counters(
    books: Books, carried: Mapping[InstanceKey, Recoveries]
) -> AnnotateModelServing | None:
    """The counters to keep on the ModelServing while pods are being replaced."""
    situation = books.situation
    kept = {
        key: counter
        for key, counter in situation.recoveries.items()
        if is_fresh(counter, situation.now) and not _is_whole(situation, key)
    }
    counters = {**kept, **carried}
    text = format_recoveries(counters) if counters else None
    if text == annotations_of(situation.modelserving).get(ANNOTATION_RECOVERIES):
        return None
    return AnnotateModelServing({ANNOTATION_RECOVERIES: text})


def _record(books: Books, revision: Revision) -> SlotRecord:
    groups = books.groups.get(revision.name, frozenset())
    replicas = books.situation.replicas_of(revision) if groups else {}
    if books.formation.is_full:
        # Some instances are not begun yet: none may be taken for lost.
        before = revision.record.replicas if revision.record else {}
        replicas = {role: min(wanted, before.get(role, 0)) for role, wanted in replicas.items()}
    return SlotRecord(
        groups,
        _forming(books, revision, groups),
        replicas,
        books.instances.get(revision.name, frozenset()),
        groups & books.surge,
    )


def _forming(books: Books, revision: Revision, groups: frozenset[int]) -> Forming:
    """What is begun now, and what was begun and is not whole yet."""
    situation, formation = books.situation, books.formation
    before = situation.forming
    podless = situation.is_podless(revision)
    forming_groups = set()
    for ordinal in groups & (before.groups | formation.groups.keys()):
        slot = situation.slots.get(ordinal)
        # A group whose roles are all scaled to zero is whole without a pod.
        whole = podless if slot is None else situation.is_whole_group(slot)
        if not whole:
            forming_groups.add(ordinal)
    instances = {key for key in formation.instances if key.group in groups}
    for key in before.instances:
        instance = situation.find_instance(key)
        if key.group in groups and instance is not None and not situation.is_whole(instance):
            instances.add(key)
    alone = {key for key in instances if key.group not in forming_groups}
    return Forming(frozenset(forming_groups), frozenset(alone))


def _is_whole(situation: Situation, key: InstanceKey) -> bool:
    instance = situation.find_instance(key)
    return instance is not None and situation.is_whole(instance)


def _is_needed(books: Books, revision: Revision) -> bool:
    """Whether a revision has to be written: pods carry its name, or may do so next."""
    situation = books.situation
    live = revision.name == situation.history.update.name
    used = revision.name in books.groups or revision.name in books.instances
    return not live or situation.accepted or used


def _must_record(books: Books) -> bool:
    """Whether something would be forgotten: pods come or go, or groups are of several revisions."""
    formation = books.formation
    if formation.groups or formation.instances or books.instances or books.disturbed:
        return True
    return bool(books.groups.keys() - {books.situation.history.update.name})
