"""Gangs: which groups have a PodGroup, what it says, and which pods name it.

A group is a gang from its first pods on or never: a pod that joined later, beside pods that name no
PodGroup, would wait for members that never come. So a group that was begun before Volcano could tell
gangs goes on as it is, until all its pods are gone. Minima follow from the group's own revision, since
a PodGroup that asks for more pods than its group has would never be placed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from kthena.api.volcano import ANNOTATION_GROUP_NAME, ANNOTATION_TASK_SPEC, POD_GROUPS
from kthena.api.workload.names import SCHEDULER_VOLCANO
from kthena.machinery.objects import Object, annotations_of, is_terminating, name_of, uid_of
from kthena.workload.children.podgroups import (
    PodGroupForm,
    Share,
    build_pod_group,
    pod_group_patch,
    pod_group_spec,
)
from kthena.workload.identity import InstanceKey, group_name, parse_group
from kthena.workload.planner.groups import Pod
from kthena.workload.planner.plan import CreatePodGroup, DeletePodGroup, UpdatePodGroup
from kthena.workload.planner.scheduling import scheduler_of
from kthena.workload.planner.situation import Situation
from kthena.workload.planner.slots import Slot
from kthena.workload.revisions import Revision


class Gangs:
    """The gangs of one situation. Read-only."""

    def __init__(self, situation: Situation) -> None:
        self._situation = situation
        self._form = situation.observed.capabilities.pod_groups
        self._applies = scheduler_of(situation.observed) == SCHEDULER_VOLCANO
        self._specs: dict[str, dict[str, Any]] = {}
        self._joining: dict[int, bool] = {}

    def pod_group_of(self, group: int) -> str | None:
        """The PodGroup that new pods of a group need; None where they need none."""
        if self._form is None or not self._joins(group):
            return None
        return group_name(self._situation.name, group)

    def annotations(self, key: InstanceKey) -> dict[str, str]:
        """What a new pod of an instance says of its gang."""
        if not self._joins(key.group):
            return {}
        return {
            ANNOTATION_GROUP_NAME: group_name(self._situation.name, key.group),
            ANNOTATION_TASK_SPEC: key.role_id,
        }

    def is_held_up(self, group: int) -> bool:
        """Whether the PodGroup that new pods of a group need has to go before it can be made."""
        stored = self._pod_groups.get(group)
        return self._joins(group) and stored is not None and is_terminating(stored)

    def _joins(self, group: int) -> bool:
        """Whether new pods of a group are members of its gang, as all its living ones are."""
        joins = self._joining.get(group)
        if joins is None:
            joins = self._joining[group] = self._applies and self._may_join(group)
        return joins

    def _may_join(self, group: int) -> bool:
        found = self._situation.groups.get(group)
        living = found.living if found else ()
        return all(map(self._is_member, living)) if living else self._form is not None

    def _is_member(self, pod: Pod) -> bool:
        name = group_name(self._situation.name, pod.place.instance.group)
        return annotations_of(pod.obj).get(ANNOTATION_GROUP_NAME) == name

    def plan_upserts(
        self, staying: Iterable[Slot], begun: Mapping[int, Revision]
    ) -> Iterator[CreatePodGroup | UpdatePodGroup]:
        """PodGroups to write for groups that keep their pods, and for those that get their first.

        Groups whose pods are on their way out are none of these.
        """
        if self._form is None or not self._applies:
            return
        for ordinal in self.begun_with_pods(begun):
            yield from self._upsert(ordinal, self._spec_of(begun[ordinal]))
        for slot in staying:
            if slot.revision is not None and any(map(self._is_member, slot.group.living)):
                yield from self._upsert(slot.ordinal, self._spec_of_slot(slot, slot.revision))

    def begun_with_pods(self, begun: Mapping[int, Revision]) -> set[int]:
        """Those of the groups that get pods."""
        podless = self._situation.is_podless
        return {ordinal for ordinal, revision in begun.items() if not podless(revision)}

    def plan_deletions(self, kept: Collection[int]) -> Iterator[DeletePodGroup]:
        """PodGroups of other groups than these."""
        for ordinal, pod_group in self._pod_groups.items():
            if ordinal not in kept and not is_terminating(pod_group):
                yield DeletePodGroup(name_of(pod_group), uid_of(pod_group))

    def find_unheard(self) -> str:
        """What the spec asks of gangs and the installed PodGroups cannot say; empty if nothing."""
        template = self._situation.spec.template
        topology, gang = template.network_topology, template.gang_policy
        if self._form is None or not self._applies:
            return ""
        dropped = self._form.shape(pod_group_spec(self._situation.modelserving, ()))[1]
        unheard = []
        if any(path.startswith("networkTopology") for path in dropped):
            unheard.append("networkTopology.groupPolicy")
        if not self._form.has_sub_groups:
            if topology is not None and topology.role_policy is not None:
                unheard.append("networkTopology.rolePolicy")
            if gang is not None and gang.min_role_replicas:
                unheard.append("the minimum of each single role in gangPolicy")
        return ", ".join(unheard)

    def _upsert(
        self, group: int, spec: Mapping[str, Any]
    ) -> Iterator[CreatePodGroup | UpdatePodGroup]:
        situation = self._situation
        stored = self._pod_groups.get(group)
        if stored is None:
            if (POD_GROUPS, group_name(situation.name, group)) not in situation.taken_names:
                yield CreatePodGroup(build_pod_group(situation.modelserving, group, spec))
        elif not is_terminating(stored):
            patch = pod_group_patch(situation.modelserving, stored, spec)
            if patch is not None:
                yield UpdatePodGroup(name_of(stored), uid_of(stored), patch)

    @cached_property
    def _pod_groups(self) -> Mapping[int, Object]:
        """Our PodGroups by the ordinal of their group."""
        found = {}
        for pod_group in self._situation.held(POD_GROUPS):
            group = parse_group(self._situation.name, name_of(pod_group))
            if group is not None:
                found[group] = pod_group
        return found

    def _spec_of_slot(self, slot: Slot, revision: Revision) -> dict[str, Any]:
        shares = None
        if not all(map(self._is_member, slot.group.living)):
            # Members that never come are not waited for.
            shares = [replace(share, minimum=0) for share in self._shares(revision, slot)]
        elif any(instance.revision != revision.name for instance in slot.group.instances):
            shares = self._shares(revision, slot)
        return self._spec_of(revision) if shares is None else self._shaped(shares)

    def _spec_of(self, revision: Revision) -> dict[str, Any]:
        spec = self._specs.get(revision.name)
        if spec is None:
            spec = self._specs[revision.name] = self._shaped(self._shares(revision))
        return spec

    def _shaped(self, shares: list[Share]) -> dict[str, Any]:
        form: PodGroupForm | None = self._form
        assert form is not None  # noqa: S101 - without a form nothing is upserted
        return form.shape(pod_group_spec(self._situation.modelserving, shares))[0]

    def _shares(self, revision: Revision, slot: Slot | None = None) -> list[Share]:
        """What the roles of a group bring.

        Instances of other revisions than their group's may be smaller: then these are counted on.
        """
        situation = self._situation
        gang = situation.spec.template.gang_policy
        minima = (gang.min_role_replicas if gang else None) or {}
        shares = []
        for name, replicas in situation.replicas_of(revision).items():
            instances = slot.group.roles.get(name, {}) if slot else {}
            templates = [
                own
                for instance in instances.values()
                if (own := situation.history.template_of(instance)) is not None
            ]
            if len(templates) < replicas or not templates:
                templates.append(revision.roles[name])
            role = min(templates, key=lambda each: each.size)
            shares.append(Share(role, max(0, min(minima.get(name, replicas), replicas))))
        return shares
