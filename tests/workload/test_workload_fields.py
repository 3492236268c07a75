"""Each field of a ModelServing's spec that acts: changed alone, it changes what happens.

`tests/fields.yaml` names these tests. Each lets two ModelServings, equal but for one field, live
through the same and compares what becomes of them.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kthena.machinery.objects import Object, annotations_of, labels_of, uid_of
from support.workload_view import place_of
from support.workload_world import World, by_roles, container, role, rolling, serving

Path = tuple[str | int, ...]

BASE = serving(
    role("prefill", workers=1),
    role("decode"),
    replicas=4,
    schedulerName="one",
    rolloutStrategy=rolling(),
)
ENTRY: Path = ("template", "roles", 0, "entryTemplate")
WORKER: Path = ("template", "roles", 0, "workerTemplate")
ENTRY_POD, WORKER_POD = "ms-0-prefill-0-0", "ms-0-prefill-0-1"


def manifest(path: Path = (), value: Any = None) -> Object:
    """The base, with one field of its spec changed."""
    changed = copy.deepcopy(BASE)
    if path:
        inner: Any = changed["spec"]
        for step in path[:-1]:
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else inner[step]
        inner[path[-1]] = value
    return changed


def grown(path: Path = (), value: Any = None) -> World:
    world = World()
    world.apply(manifest(path, value))
    world.settle()
    world.take_calls()
    return world


def both(path: Path, value: Any, life: Callable[[World], Any]) -> tuple[Any, Any]:
    """What a life yields with the base, and with the changed field."""
    return life(grown()), life(grown(path, value))


def changed_by(path: Path, value: Any, life: Callable[[World], Any]) -> tuple[Any, Any]:
    """What a life yields when the field stays, and when it is edited on a running object."""

    def edited() -> World:
        world = grown()
        world.apply(manifest(path, value))
        return world

    return life(grown()), life(edited())


def names(world: World) -> set[str]:
    world.settle()
    return set(world.pods())


def pod(name: str, read: Callable[[Object], Any]) -> Callable[[World], Any]:
    """A life without events; then something of one pod."""

    def life(world: World) -> Any:
        world.settle()
        return read(world.pods()[name])

    return life


def image_of(obj: Object) -> str:
    image: str = obj["spec"]["containers"][0]["image"]
    return image


def remade(world: World) -> set[str]:
    """The pods that are made anew when a worker is deleted."""
    before = {name: uid_of(each) for name, each in world.pods().items()}
    world.kill("ms-0-prefill-0-1")
    world.settle()
    return {name for name, each in world.pods().items() if uid_of(each) != before[name]}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("None", {"ms-0-prefill-0-1"}),
        ("ServingGroupRecreate", {"ms-0-prefill-0-0", "ms-0-prefill-0-1", "ms-0-decode-0-0"}),
    ],
)
def test_recovery_policy_says_what_returns_with_a_lost_pod(policy: str, expected: set[str]) -> None:
    assert both(("recoveryPolicy",), policy, remade) == (
        {"ms-0-prefill-0-0", "ms-0-prefill-0-1"},
        expected,
    )


def test_replicas_is_the_number_of_groups() -> None:
    before, after = changed_by(("replicas",), 2, names)

    assert before - after == {
        f"ms-{group}-{rest}" for group in (2, 3) for rest in ("prefill-0-0", "prefill-0-1", "decode-0-0")
    }  # fmt: skip
    assert after < before


def first_deleted(world: World) -> set[int]:
    """The groups that an update takes first."""
    world.set_image("engine:2")
    world.sync()
    calls = [call.split() for call in world.take_calls()]
    return {place_of(call[2]).group for call in calls if call[:2] == ["delete", "Pod"]}


@pytest.mark.parametrize(("value", "expected"), [(2, {2, 3}), ("75%", {1, 2, 3}), ("10%", {3})])
def test_max_unavailable_says_how_many_groups_an_update_takes_at_once(
    value: Any, expected: set[int]
) -> None:
    path = ("rolloutStrategy", "rollingUpdateConfiguration", "maxUnavailable")

    assert both(path, value, first_deleted) == ({3}, expected)


def updated(world: World) -> set[int]:
    """The groups that an update reaches."""
    world.set_image("engine:2")
    world.settle()
    pods = world.pods().items()
    return {place_of(name).group for name, each in pods if image_of(each) == "engine:2"}


@pytest.mark.parametrize(("value", "expected"), [(3, {3}), ("26%", {2, 3}), (4, set())])
def test_partition_keeps_groups_at_their_revision(value: Any, expected: set[int]) -> None:
    path = ("rolloutStrategy", "rollingUpdateConfiguration", "partition")

    assert both(path, value, updated) == ({0, 1, 2, 3}, expected)


def present(world: World) -> set[int]:
    """The groups that there are once an update has begun."""
    world.set_image("engine:2")
    world.sync()
    return {place_of(name).group for name in world.pods()}


@pytest.mark.parametrize(("value", "expected"), [(2, {4, 5}), ("26%", {4, 5}), (0, set())])
def test_max_surge_says_how_many_groups_an_update_adds(value: Any, expected: set[int]) -> None:
    path = ("rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")

    before, after = both(path, value, present)

    assert after - before == expected
    assert before == {0, 1, 2, 3}


def by_role(path: Path, value: Any, life: Callable[[World], Any]) -> tuple[Any, Any]:
    """What a life yields where three instances of `decode` are rolled, and with one field changed."""

    def started(changed: dict[Path, Any]) -> World:
        spec = copy.deepcopy(BASE)["spec"]
        spec.update(replicas=1, rolloutStrategy=by_roles())
        spec["template"]["roles"][1].update(replicas=3)
        world = World()
        world.apply({**BASE, "spec": put(spec, changed)})
        world.settle()
        world.take_calls()
        return world

    return life(started({})), life(started({path: value}))


def put(spec: dict[str, Any], fields: dict[Path, Any]) -> dict[str, Any]:
    for path, value in fields.items():
        inner: Any = spec
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
    return spec


def taken(world: World) -> set[str]:
    """The pods that an update of `decode` takes first."""
    world.set_image("engine:2", "decode")
    world.sync()
    calls = [call.split() for call in world.take_calls()]
    return {call[2] for call in calls if call[:2] == ["delete", "Pod"]}


def test_the_type_of_a_strategy_says_whether_groups_or_instances_are_replaced() -> None:
    groups = {"type": "ServingGroupRollingUpdate"}
    instances = {f"ms-0-decode-{ordinal}-0" for ordinal in range(3)}

    assert by_role(("rolloutStrategy",), groups, taken) == (
        {"ms-0-decode-2-0"},
        instances | {ENTRY_POD, WORKER_POD},
    )


@pytest.mark.parametrize(("value", "expected"), [(2, {1, 2}), ("70%", {1, 2}), ("100%", {0, 1, 2})])
def test_max_unavailable_of_a_role_says_how_many_instances_are_taken_at_once(
    value: Any, expected: set[int]
) -> None:
    path = ("template", "roles", 1, "maxUnavailable")

    assert by_role(path, value, taken) == (
        {"ms-0-decode-2-0"},
        {f"ms-0-decode-{ordinal}-0" for ordinal in expected},
    )


@pytest.mark.parametrize(("value", "expected"), [(2, {2}), ("34%", {2}), (3, set())])
def test_partition_of_a_role_keeps_instances_at_their_revision(
    value: Any, expected: set[int]
) -> None:
    def reached(world: World) -> set[int]:
        world.set_image("engine:2", "decode")
        world.settle()
        pods = world.pods().items()
        return {place_of(name).instance for name, each in pods if image_of(each) == "engine:2"}

    path = ("template", "roles", 1, "partition")

    assert by_role(path, value, reached) == ({0, 1, 2}, expected)


def test_scheduler_name_is_that_of_the_pods() -> None:
    life = pod("ms-0-prefill-0-1", lambda each: each["spec"]["schedulerName"])

    assert both(("schedulerName",), "another", life) == ("one", "another")


def deleted_after_a_crash(world: World) -> bool:
    world.crash("ms-0-decode-0-0")
    world.sync()
    return "delete Pod ms-0-decode-0-0" in world.take_calls()


def test_restart_grace_period_gives_a_failed_pod_time() -> None:
    path = ("template", "restartGracePeriodSeconds")

    assert both(path, 30, deleted_after_a_crash) == (True, False)


def test_the_name_of_a_role_is_part_of_its_pods() -> None:
    before, after = both(("template", "roles", 1, "name"), "other", names)

    assert {name for name in before if "decode" in name} == before - after
    assert {name for name in after if "other" in name} == after - before


def test_replicas_of_a_role_is_the_number_of_its_instances_in_a_group() -> None:
    before, after = changed_by(("template", "roles", 1, "replicas"), 2, names)

    assert after - before == {f"ms-{group}-decode-1-0" for group in range(4)}
    assert before < after


def test_worker_replicas_is_the_number_of_workers_of_an_instance() -> None:
    before, after = changed_by(("template", "roles", 0, "workerReplicas"), 2, names)

    assert after - before == {f"ms-{group}-prefill-0-2" for group in range(4)}
    assert before < after


@pytest.mark.parametrize(
    ("path", "changed", "same"),
    [(ENTRY, ENTRY_POD, WORKER_POD), (WORKER, WORKER_POD, ENTRY_POD)],
    ids=["entry", "worker"],
)
def test_labels_of_a_template_are_those_of_its_pods(path: Path, changed: str, same: str) -> None:
    def label(obj: Object) -> str | None:
        return labels_of(obj).get("team")

    field = (*path, "metadata", "labels")
    assert changed_by(field, {"team": "a"}, pod(changed, label)) == (None, "a")
    assert changed_by(field, {"team": "a"}, pod(same, label)) == (None, None)


@pytest.mark.parametrize(
    ("path", "changed", "same"),
    [(ENTRY, ENTRY_POD, WORKER_POD), (WORKER, WORKER_POD, ENTRY_POD)],
    ids=["entry", "worker"],
)
def test_annotations_of_a_template_are_those_of_its_pods(
    path: Path, changed: str, same: str
) -> None:
    def annotation(obj: Object) -> str | None:
        return annotations_of(obj).get("team")

    field = (*path, "metadata", "annotations")
    assert changed_by(field, {"team": "a"}, pod(changed, annotation)) == (None, "a")
    assert changed_by(field, {"team": "a"}, pod(same, annotation)) == (None, None)


@pytest.mark.parametrize(
    ("path", "changed", "same"),
    [(ENTRY, ENTRY_POD, WORKER_POD), (WORKER, WORKER_POD, ENTRY_POD)],
    ids=["entry", "worker"],
)
def test_the_spec_of_a_template_is_that_of_its_pods(path: Path, changed: str, same: str) -> None:
    field, value = (*path, "spec"), {"containers": [container("engine:2")]}
    before = {ENTRY_POD: "engine:1", WORKER_POD: "engine:1-worker"}

    assert changed_by(field, value, pod(changed, image_of)) == (before[changed], "engine:2")
    assert changed_by(field, value, pod(same, image_of)) == (before[same], before[same])


def test_a_template_for_workers_gives_a_role_its_services() -> None:
    def services(world: World) -> set[str]:
        world.settle()
        return {name for name in world.objects["Service"] if "decode" in name}

    path = ("template", "roles", 1, "workerTemplate")

    assert both(path, {"spec": {"containers": []}}, services) == (
        set(),
        {f"ms-{g}-decode-0-0" for g in range(4)},
    )


GANG: Path = ("template", "gangPolicy", "minRoleReplicas")
GROUP_TOPOLOGY: Path = ("template", "networkTopology", "groupPolicy")
ROLE_TOPOLOGY: Path = ("template", "networkTopology", "rolePolicy")


def pod_group(path: Path, value: Any) -> Any:
    """What the PodGroup of the first group asks for, where a field is set."""
    world = World()
    world.install_volcano()
    changed = manifest(path, value)
    changed["spec"]["schedulerName"] = "volcano"
    world.apply(changed)
    world.settle()
    return world.objects["PodGroup"]["ms-0"]["spec"]


def test_min_role_replicas_say_how_many_instances_a_group_needs_at_once() -> None:
    def minima(path: Path = (), value: Any = None) -> tuple[int, list[int]]:
        spec = pod_group(path, value)
        return spec["minMember"], [each["minSubGroups"] for each in spec["subGroupPolicy"]]

    assert minima() == (3, [1, 1])
    assert minima(GANG, {"prefill": 0}) == (1, [0, 1])
    assert minima(GANG, {"decode": 0}) == (2, [1, 0])


TOPOLOGIES = [
    ("mode", "soft", {"mode": "soft"}),
    ("highestTierAllowed", 2, {"mode": "hard", "highestTierAllowed": 2}),
    ("highestTierName", "rack", {"mode": "hard", "highestTierName": "rack"}),
]


@pytest.mark.parametrize(("field", "value", "expected"), TOPOLOGIES)
def test_the_topology_of_a_group_is_that_of_its_pod_group(
    field: str, value: Any, expected: Any
) -> None:
    assert pod_group(GROUP_TOPOLOGY, {"mode": "hard"})["networkTopology"] == {"mode": "hard"}
    assert pod_group(GROUP_TOPOLOGY, {field: value})["networkTopology"] == expected


@pytest.mark.parametrize(("field", "value", "expected"), TOPOLOGIES)
def test_the_topology_of_roles_is_that_of_their_sub_groups(
    field: str, value: Any, expected: Any
) -> None:
    def topologies(policy: Any) -> list[Any]:
        spec = pod_group(ROLE_TOPOLOGY, policy)
        return [each["networkTopology"] for each in spec["subGroupPolicy"]]

    assert topologies({"mode": "hard"}) == [{"mode": "hard"}] * 2
    assert topologies({field: value}) == [expected] * 2
