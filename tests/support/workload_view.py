"""What pods, ControllerRevisions and a spec say to somebody who knows the API and no code of ours."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kthena.machinery.objects import Object, is_terminating, labels_of, name_of
from kthena.workload.records import parse_ordinals
from support.workload_world import World, is_ready

PREFIX = "modelserving.volcano.sh/"
Roles = list[dict[str, Any]]


@dataclass(frozen=True)
class Place:
    group: int
    role: str
    instance: int
    index: int


def place_of(pod_name: str, owner: str = "ms") -> Place:
    parts = pod_name.removeprefix(f"{owner}-").split("-")
    return Place(int(parts[0]), "-".join(parts[1:-2]), int(parts[-2]), int(parts[-1]))


def form(role: dict[str, Any] | None) -> str:
    """What pods of a role are made from, in a form that can be compared; of none, the empty text."""
    settings = ("replicas", "maxUnavailable", "partition")
    kept = {key: value for key, value in (role or {}).items() if key not in settings}
    return json.dumps(kept, sort_keys=True) if role else ""


def forms(roles: Roles) -> list[str]:
    return sorted(map(form, roles))


def find(roles: Roles, name: str) -> dict[str, Any] | None:
    return next((role for role in roles if role["name"] == name), None)


def revision_of(obj: Object) -> str:
    return labels_of(obj).get(f"{PREFIX}revision", "")


def revisions(stored: Iterable[Object]) -> dict[str, Roles]:
    """Roles by revision."""
    return {revision_of(each): each["data"]["data"] for each in stored}


@dataclass
class Group:
    """Pods of a group."""

    pods: list[Object] = field(default_factory=list)

    @property
    def living(self) -> list[Object]:
        return [pod for pod in self.pods if not is_terminating(pod)]

    def instances(self) -> dict[tuple[str, int], list[Object]]:
        found: dict[tuple[str, int], list[Object]] = {}
        for pod in self.pods:
            place = place_of(name_of(pod))
            found.setdefault((place.role, place.instance), []).append(pod)
        return found

    def without(self, uids: set[str]) -> "Group":
        return Group([pod for pod in self.pods if pod["metadata"]["uid"] not in uids])


def groups_of(pods: Iterable[Object]) -> dict[int, Group]:
    groups: dict[int, Group] = {}
    for pod in pods:
        groups.setdefault(place_of(name_of(pod)).group, Group()).pods.append(pod)
    return groups


class Records:
    """What is written on ControllerRevisions."""

    def __init__(self, stored: Iterable[Object]) -> None:
        kept = list(stored)
        self.revisions = revisions(kept)
        self.contents: dict[str, dict[str, Any]] = {}
        for each in kept:
            text = (each["metadata"].get("annotations") or {}).get(f"{PREFIX}slots")
            if text:
                self.contents[revision_of(each)] = json.loads(text)

    @classmethod
    def stored(cls, world: World) -> "Records":
        return cls(world.objects["ControllerRevision"].values())

    @property
    def surge(self) -> set[int]:
        """Groups that are noted as added to the count."""
        texts = (content.get("surge", "") for content in self.contents.values())
        return {ordinal for text in texts for ordinal in parse_ordinals(text)}

    @property
    def mixed(self) -> set[int]:
        """Groups of whose instances each has its own note."""
        return {
            group
            for content in self.contents.values()
            for text in content.get("instances", {}).values()
            for group in parse_ordinals(text)
        }

    def names_of(self, group: int) -> list[str]:
        """The revisions that a group is noted at."""
        return [
            name
            for name, content in self.contents.items()
            if group in parse_ordinals(content["groups"])
        ]

    def is_forming(self, place: Place) -> bool:
        for content in self.contents.values():
            forming = content.get("forming", {})
            for key in ("*", f"{place.role}/{place.instance}"):
                if place.group in parse_ordinals(forming.get(key, "")):
                    return True
        return False

    def role_of(self, pods: list[Object]) -> dict[str, Any] | None:
        """What an instance is made from: what its first pod that is not terminating names."""
        living = [pod for pod in pods if not is_terminating(pod)]
        first = min(living or pods, key=lambda pod: place_of(name_of(pod)).index)
        return find(self.revisions.get(revision_of(first), []), place_of(name_of(first)).role)


class Asked:
    """What a spec asks for."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.replicas = int(spec["replicas"])
        self.roles: Roles = spec["template"]["roles"]
        self.counts = {str(role["name"]): int(role["replicas"]) for role in self.roles}
        self.policy: str = spec["recoveryPolicy"]
        strategy = spec.get("rolloutStrategy") or {}
        self.by_roles = strategy.get("type") == "RoleRollingUpdate"
        self._rolling = strategy.get("rollingUpdateConfiguration") or {}

    @property
    def max_unavailable(self) -> int:
        down = _share(self._rolling.get("maxUnavailable", 1), self.replicas, up=False)
        return max(0 if self.max_surge else 1, down)

    @property
    def max_surge(self) -> int:
        return _share(self._rolling.get("maxSurge") or 0, self.replicas, up=True)

    def protects(self, ordinal: int) -> bool:
        kept = _share(self._rolling.get("partition") or 0, self.replicas, up=True)
        return ordinal < kept or 0 < self.replicas <= kept

    def max_unavailable_of(self, role: dict[str, Any]) -> int:
        return max(1, _share(role.get("maxUnavailable", 1), role["replicas"], up=False))

    def protects_instance(self, role: str, instance: int) -> bool:
        known = find(self.roles, role)
        if known is None or not self.by_roles:
            return False
        kept = _share(known.get("partition") or 0, known["replicas"], up=True)
        return instance < kept or 0 < known["replicas"] <= kept

    def form_of(self, role: str) -> str:
        return form(find(self.roles, role))

    def may_be_podless(self, known: Iterable[Roles]) -> bool:
        """Whether a group of one of these revisions has no pods."""
        kinds = [self.roles, *known]
        return any(not any(self.counts.get(r["name"], 0) for r in roles) for roles in kinds)


def _share(value: Any, total: int, *, up: bool) -> int:
    if isinstance(value, str):
        part = int(value[:-1]) * total
        return -(-part // 100) if up else part // 100
    return int(value)


class View:
    """Groups under a spec and the records."""

    def __init__(self, asked: Asked, records: Records, *, held: bool = False) -> None:
        self.asked = asked
        self.records = records
        self.held = held
        """Whether updates wait, because gangs are asked for and cannot be told."""

    def roles(self, ordinal: int, group: Group) -> Roles:
        """The roles that a group should have: those of its own revision until its turn."""
        if self.asked.by_roles and not self.held:
            return self.asked.roles
        known = self.records.revisions
        noted = [known[name] for name in self.records.names_of(ordinal) if name in known]
        if ordinal in self.records.mixed and noted:
            # Noted twice, it was to become what the spec makes and has not got that far.
            return min(noted, key=lambda roles: forms(roles) == forms(self.asked.roles))
        for pod in group.living or group.pods:
            if revision_of(pod) in known:
                return known[revision_of(pod)]
        return self.asked.roles

    def ready(self, pods: list[Object]) -> bool:
        """Whether all pods of an instance are there and ready."""
        role = self.records.role_of(pods)
        size = 1 + role["workerReplicas"] if role else 0
        counted = [pod for pod in pods if place_of(name_of(pod)).index < size]
        alive = all(is_ready(pod) and not is_terminating(pod) for pod in counted)
        return size > 0 and len(counted) == size and alive

    def ready_by_role(self, group: Group) -> dict[str, int]:
        found: dict[str, int] = {}
        for (name, _), pods in group.instances().items():
            found[name] = found.get(name, 0) + self.ready(pods)
        return found

    def is_available(self, ordinal: int, group: Group, like: Group | None = None) -> bool:
        """Whether each role has as many ready instances as it should; `like` says which roles."""
        ready = self.ready_by_role(group)
        roles = self.roles(ordinal, like or group)
        return all(
            ready.get(role["name"], 0) >= self.asked.counts.get(role["name"], int(role["replicas"]))
            for role in roles
        )

    def differs(self, pods: list[Object]) -> bool:
        """Whether an instance is not what the spec would make in its place."""
        return form(self.records.role_of(pods)) != self.asked.form_of(
            place_of(name_of(pods[0])).role
        )

    def must_roll(self, pods: list[Object]) -> bool:
        """Whether an instance is to be replaced by itself."""
        place = place_of(name_of(pods[0]))
        kept = self.asked.protects_instance(place.role, place.instance)
        return self.asked.by_roles and not self.held and self.differs(pods) and not kept

    def is_outdated(self, ordinal: int, group: Group) -> bool:
        """Whether a group is not what the spec would make."""
        if forms(self.roles(ordinal, group)) != forms(self.asked.roles):
            return True
        return any(self.differs(pods) for pods in group.instances().values())

    def is_protected(self, ordinal: int) -> bool:
        return not self.is_surge(ordinal) and self.asked.protects(ordinal)

    def is_surge(self, ordinal: int) -> bool:
        return ordinal >= self.asked.replicas and ordinal in self.records.surge

    def is_scaled(self, group: Group, role: str = "") -> bool:
        """Whether a group has more instances of a role, or of any, than it should."""
        present: dict[str, int] = {}
        for name, _ in group.instances():
            present[name] = present.get(name, 0) + 1
        return any(
            count > self.asked.counts.get(name, 0)
            for name, count in present.items()
            if role in ("", name)
        )

    def lacks(self, group: Group) -> bool:
        """Whether a role has fewer instances than it should, those on their way out not counted."""
        present: dict[str, int] = {}
        for (name, _), pods in group.instances().items():
            present[name] = present.get(name, 0) + any(not is_terminating(pod) for pod in pods)
        return any(present.get(name, 0) < count for name, count in self.asked.counts.items())
