"""The revisions that matter to a ModelServing, and where each of its groups stands.

The revision of the live spec is looked up among the ControllerRevisions by content. A revision whose
ControllerRevision is missing is recognised by comparing its pods with what the live spec would make;
if they differ it stays unknown, and nothing is restarted for it.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kthena.machinery.objects import Object, name_of
from kthena.workload.canonical import canonical_value
from kthena.workload.children.pods import PodIdentity, build_pod
from kthena.workload.identity import revision_object_name
from kthena.workload.planner.groups import Group, Instance, Pod
from kthena.workload.planner.observed import Observed
from kthena.workload.revisions import (
    Revision,
    RoleTemplate,
    find_revision,
    name_revision,
    read_revision,
    read_roles,
)
from kthena.workload.status import Problem


@dataclass(frozen=True, slots=True)
class History:
    """The known revisions of a ModelServing by name, that of the live spec among them."""

    update: Revision
    known: Mapping[str, Revision]
    current_names: frozenset[str]
    """Revisions that make the same pods as the live spec."""
    problems: Mapping[str, Problem]
    """Revisions that cannot be written because the name of their ControllerRevision is taken."""

    def is_usable(self, revision: Revision) -> bool:
        """Whether pods may be made from a revision: it has a ControllerRevision, or can get one."""
        return revision.name not in self.problems

    def template_of(self, instance: Instance) -> RoleTemplate | None:
        """What the instance was made from; None where that is unknown."""
        revision = self.known.get(instance.revision)
        return revision.roles.get(instance.key.role) if revision else None

    def size_of(self, instance: Instance) -> int:
        """The number of pods that make the instance."""
        template = self.template_of(instance)
        return template.size if template else instance.declared_size

    def is_whole(self, instance: Instance) -> bool:
        """Whether all pods that make the instance exist and none of them is terminating."""
        return instance.is_complete(self.size_of(instance))

    def is_available(self, instance: Instance) -> bool:
        """Whether all pods that make the instance are ready."""
        return instance.is_available(self.size_of(instance))

    def revision_of(self, group: Group) -> Revision | None:
        """The revision of a group; None where none of its pods' revisions is known.

        Pods of several revisions can only be found, never made: they count as the live revision
        when its roles would make each instance as it is, else as the revision of most instances
        (the older one of equals).
        """
        names = [instance.revision for instance in group.instances]
        found = {name: self.known[name] for name in names if name in self.known}
        if not found:
            return None
        if len(set(names)) == 1:
            return found[names[0]]
        if not any(map(self.differs, group.instances)):
            return self.update
        return max(
            found.values(), key=lambda revision: (names.count(revision.name), -revision.number)
        )

    def is_outdated(self, group: Group, revision: Revision) -> bool:
        """Whether a group of this revision differs from what the live spec would make."""
        if revision.name not in self.current_names:
            return True
        names = {instance.revision for instance in group.instances}
        return not names <= self.current_names and any(map(self.differs, group.instances))

    def differs(self, instance: Instance) -> bool:
        """Whether an instance is known not to be what the live spec would make in its place."""
        own, live = self.template_of(instance), self.update.roles.get(instance.key.role)
        return own is not None and (live is None or own.form != live.form)


def read_history(
    observed: Observed, revisions: Iterable[Object], groups: Collection[Group]
) -> History:
    """The history of a ModelServing from its own ControllerRevisions and, where they lack, its pods."""
    modelserving = observed.modelserving
    roles = read_roles(modelserving["spec"]["template"]["roles"])
    assert roles is not None  # noqa: S101 - `Observed.of` has read the same roles
    known = {}
    for stored in revisions:
        revision = read_revision(stored, modelserving=observed.name)
        if revision is not None:
            known[revision.name] = revision
    for name in _unrecorded_but_alike(observed, groups, known, roles):
        known[name] = Revision(name, roles)
    preferred = str((modelserving.get("status") or {}).get("updateRevision") or "")
    update = find_revision(roles, known.values(), preferred=preferred)
    if update is None:
        update = Revision(name_revision(roles, observed.name, observed.revisions), roles)
    # The live spec's list gives the order of roles, and its fields that make no other pods.
    update = replace(update, roles=roles)
    known[update.name] = update
    current = frozenset(name for name, revision in known.items() if revision.is_same(update))
    taken = {name_of(stored) for stored in observed.revisions}
    problems = {
        revision.name: Problem(
            "RevisionConflict",
            f"ControllerRevision {name} exists and holds no roles of this ModelServing; delete it",
        )
        for revision in known.values()
        if revision.stored is None
        and (name := revision_object_name(observed.name, revision.name)) in taken
    }
    return History(update, known, current, problems)


def _unrecorded_but_alike(
    observed: Observed,
    groups: Iterable[Group],
    known: Mapping[str, Revision],
    roles: Mapping[str, RoleTemplate],
) -> list[str]:
    """Revisions of pods that have no ControllerRevision and whose pods are as the live spec's."""
    pods: dict[str, list[Pod]] = {}
    for group in groups:
        for instance in group.instances:
            for pod in instance.pods.values():
                if pod.revision and pod.revision not in known:
                    pods.setdefault(pod.revision, []).append(pod)
    return [
        name
        for name, members in pods.items()
        if all(_is_alike(observed, roles, pod) for pod in members)
    ]


def _is_alike(observed: Observed, roles: Mapping[str, RoleTemplate], pod: Pod) -> bool:
    role = roles.get(pod.place.instance.role)
    if role is None or pod.place.position >= role.size:
        return False
    if pod.place.position and role.worker_template is None:
        return False
    identity = PodIdentity(pod.revision, "", None, {})
    expected = build_pod(observed.modelserving, role, pod.place, identity)
    return _contains(canonical_value(pod.obj.get("spec")), canonical_value(expected["spec"]))


def _contains(actual: Any, expected: Any) -> bool:
    """Whether everything expected is there; what admission added does not count."""
    match expected:
        case dict():
            return isinstance(actual, dict) and all(
                _contains(actual.get(key), value) for key, value in expected.items()
            )
        case list():
            return isinstance(actual, list) and all(
                any(_contains(item, wanted) for item in actual) for wanted in expected
            )
    return bool(actual == expected)
