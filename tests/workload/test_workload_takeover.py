"""Taking over what Kthena left running: nothing restarts, and what it recorded goes on to count."""

import copy
import json
from typing import Any

import pytest
import yaml

from kthena.machinery.objects import Object, labels_of, name_of, namespace_of, uid_of
from kthena.workload.planner.observed import Capabilities
from support.corpus import require_corpus
from support.workload_world import World, role, rolling, serving

pytestmark = pytest.mark.corpus

PREFIX = "modelserving.volcano.sh/"
RECORDED = ("steady", "partitioned-rollout", "two-modelboosters")


def recorded(name: str) -> list[Object]:
    """The workload objects that were recorded on a real cluster."""
    path = require_corpus() / "live" / f"{name}.json"
    items = json.loads(path.read_text(encoding="utf-8"))["items"]
    kinds = ("ModelServing", "Pod", "Service", "ControllerRevision")
    return [item for item in items if item["kind"] in kinds]


def load(name: str, *, volcano: bool = False) -> World:
    world = World(capabilities=Capabilities(volcano=volcano))
    world.seed(recorded(name))
    return world


def modelservings(world: World) -> list[str]:
    return sorted(world.objects["ModelServing"])


def sync_all(world: World) -> list[str]:
    """Three turns for each ModelServing; the writes."""
    for name in modelservings(world):
        for _ in range(3):
            world.sync(name)
    return world.take_calls()


@pytest.mark.parametrize("volcano", [False, True])
@pytest.mark.parametrize("name", RECORDED)
def test_nothing_but_the_status_and_records_of_mixed_revisions_is_written(
    name: str, volcano: bool
) -> None:
    world = load(name, volcano=volcano)
    before = copy.deepcopy(world.objects)

    calls = sync_all(world)

    verbs = {tuple(call.split()[:2]) for call in calls}
    mixed = {("annotate", "ControllerRevision")} if name == "partitioned-rollout" else set()
    assert verbs == {("status", "ModelServing")} | mixed
    for kind in ("Pod", "Service"):
        assert world.objects[kind] == before[kind]
    for key, obj in world.objects["ModelServing"].items():
        assert obj["spec"] == before["ModelServing"][key]["spec"]
    for key, obj in world.objects["ControllerRevision"].items():
        assert obj["data"] == before["ControllerRevision"][key]["data"]


@pytest.mark.parametrize("name", RECORDED)
def test_the_status_goes_on_as_kthena_left_it(name: str) -> None:
    world = load(name)
    before = {key: obj["status"] for key, obj in world.objects["ModelServing"].items()}

    sync_all(world)

    for key, obj in world.objects["ModelServing"].items():
        same = ("replicas", "currentReplicas", "updatedReplicas", "availableReplicas",
                "currentRevision", "updateRevision", "labelSelector", "observedGeneration")  # fmt: skip
        assert {field: obj["status"][field] for field in same} == {
            field: before[key][field] for field in same
        }
        available = [c for c in obj["status"]["conditions"] if c["type"] == "Available"]
        assert [c["status"] for c in available] == ["True"]


def test_a_second_look_writes_nothing() -> None:
    world = load("partitioned-rollout")
    sync_all(world)

    assert sync_all(world) == []


def test_a_later_change_rolls_exactly_what_it_should() -> None:
    world = load("steady")
    world.edit(lambda spec: spec.pop("rolloutStrategy"), "sample")
    assert [call for call in sync_all(world) if "Pod" in call] == []
    others = {name: uid_of(pod) for name, pod in world.pods("llama-multinode").items()}
    world.set_image("nginx:1.28", "decode", name="sample")
    world.sync("sample")
    deleted = [call.split()[2] for call in world.take_calls() if call.startswith("delete Pod")]
    assert sorted(deleted) == [
        f"sample-1-{role}-0-{i}" for role in ("decode", "prefill") for i in (0, 1)
    ]

    world.settle("sample")

    images = {
        pod["spec"]["containers"][0]["image"]
        for name, pod in world.pods("sample").items()
        if "decode-0-0" in name
    }
    assert images == {"nginx:1.28"}
    assert others == {name: uid_of(pod) for name, pod in world.pods("llama-multinode").items()}


def test_a_held_group_keeps_the_revision_that_kthena_gave_it() -> None:
    world = load("partitioned-rollout")
    sync_all(world)
    old = labels_of(world.pods("sample")["sample-0-prefill-0-0"])[f"{PREFIX}revision"]
    for name in list(world.pods("sample")):
        world.kill(name)
    world.end_terminations()
    world.restart_controller()
    world.settle("sample")

    pods = world.pods("sample")
    assert len(pods) == 8
    for name, pod in pods.items():
        image = pod["spec"]["containers"][0]["image"]
        if name.endswith("-0-0"):
            assert image == ("nginx" if name.startswith("sample-0") else "nginx:1.27")
    assert labels_of(pods["sample-0-prefill-0-0"])[f"{PREFIX}revision"] == old


def test_taking_the_partition_away_finishes_the_rollout() -> None:
    world = load("partitioned-rollout")
    sync_all(world)
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling()), "sample")
    world.settle("sample")

    revisions = {labels_of(pod)[f"{PREFIX}revision"] for pod in world.pods("sample").values()}
    assert revisions == {"5d5cc4bff8"}
    kept = [name for name in world.objects["ControllerRevision"] if name.startswith("sample-")]
    assert kept == ["sample-5d5cc4bff8"]


def test_going_back_to_the_former_template_uses_its_old_name() -> None:
    world = load("partitioned-rollout")
    sync_all(world)
    world.set_image("nginx", name="sample")
    world.settle("sample")

    revisions = {labels_of(pod)[f"{PREFIX}revision"] for pod in world.pods("sample").values()}
    assert revisions == {"55c8b6fcdd"}


@pytest.mark.parametrize("policy", ["RoleRecreate", "ServingGroupRecreate", "None"])
def test_a_pod_of_a_gang_is_healed_without_the_crd_of_gangs(policy: str) -> None:
    world = load("steady")
    world.edit(lambda spec: spec.update(recoveryPolicy=policy), "llama-multinode")
    sync_all(world)
    lost = "llama-multinode-0-llama-405b-0-1"
    labels = labels_of(world.pods("llama-multinode")[lost])
    world.kill(lost)

    world.settle("llama-multinode")

    pods = world.pods("llama-multinode")
    assert len(pods) == 4
    kept = ["revision", "group-name", "role", "role-id", "name"]
    if policy != "ServingGroupRecreate":
        kept.append("role-template-hash")
    for key in kept:
        assert labels_of(pods[lost])[PREFIX + key] == labels[PREFIX + key]
    assert pods[lost]["spec"]["schedulerName"] == "volcano"


def test_a_missing_revision_is_recognised_by_its_pods_and_written() -> None:
    world = load("steady")
    world.drop("ControllerRevision")

    calls = sync_all(world)

    assert [call for call in calls if "Pod" in call] == []
    created = sorted(call for call in calls if call.startswith("create"))
    assert created == [
        "create ControllerRevision llama-multinode-6fb5f58447",
        "create ControllerRevision sample-55c8b6fcdd",
    ]


def test_an_unknown_revision_restarts_nothing_until_its_group_is_broken() -> None:
    world = load("steady")
    world.drop("ControllerRevision")
    world.edit(lambda spec: spec.pop("rolloutStrategy"), "sample")
    world.set_image("nginx:1.28", name="sample")
    assert [call for call in sync_all(world) if "Pod" in call] == []
    status = world.objects["ModelServing"]["sample"]["status"]
    assert (status["updatedReplicas"], status["availableReplicas"]) == (0, 2)

    world.kill("sample-1-decode-0-1")
    world.settle("sample")

    images = {
        name: pod["spec"]["containers"][0]["image"] for name, pod in world.pods("sample").items()
    }
    assert images["sample-1-decode-0-0"] == "nginx:1.28"
    assert images["sample-0-decode-0-0"] == "nginx"


def test_a_broken_group_of_unknown_revision_that_is_held_is_shown() -> None:
    world = load("steady")
    world.drop("ControllerRevision")
    world.edit(lambda spec: spec.update(rolloutStrategy=rolling(partition=2)), "sample")
    world.set_image("nginx:1.28", name="sample")
    sync_all(world)
    world.kill("sample-1-decode-0-1")
    world.end_terminations()
    calls = sync_all(world)

    assert [call for call in calls if "Pod" in call] == []
    conditions = {
        c["type"]: c for c in world.objects["ModelServing"]["sample"]["status"]["conditions"]
    }
    assert conditions["Stalled"]["reason"] == "UnknownRevision"
    assert conditions["Ready"]["status"] == "False"


def test_a_revision_in_the_bare_form_is_read() -> None:
    world = load("steady")
    for stored in world.objects["ControllerRevision"].values():
        stored["data"] = stored["data"]["data"]

    calls = sync_all(world)

    assert {call.split()[0] for call in calls} == {"status"}


def test_a_group_of_two_revisions_that_make_the_same_pods_is_up_to_date() -> None:
    # What Kthena's RoleRollingUpdate leaves: unchanged roles keep their old revision label.
    world = World()
    world.apply(serving(role("prefill"), role("decode"), replicas=2))
    world.settle()
    old = next(iter(world.objects["ControllerRevision"].values()))
    world.set_image("engine:2", "decode")
    for name, pod in world.pods().items():
        if "decode" in name:
            world.patch("Pod", name, lambda pod: _become(pod, "engine:2", "bbbb"))
        del pod
    world.put(_revision(old, world, "bbbb"))
    before = {name: uid_of(pod) for name, pod in world.pods().items()}

    world.settle()

    assert {name: uid_of(pod) for name, pod in world.pods().items()} == before
    assert world.objects["ModelServing"]["ms"]["status"]["updatedReplicas"] == 2


def test_a_half_rolled_group_is_outdated() -> None:
    world = World()
    world.apply(serving(role("prefill"), role("decode", replicas=2)))
    world.settle()
    old = next(iter(world.objects["ControllerRevision"].values()))
    world.set_image("engine:2", "decode")
    world.patch("Pod", "ms-0-decode-1-0", lambda pod: _become(pod, "engine:2", "bbbb"))
    world.put(_revision(old, world, "bbbb"))

    world.settle()

    images = {
        pod["spec"]["containers"][0]["image"] for n, pod in world.pods().items() if "decode" in n
    }
    assert images == {"engine:2"}


def _become(pod: Object, image: str, revision: str) -> None:
    pod["spec"]["containers"][0]["image"] = image
    pod["metadata"]["labels"][f"{PREFIX}revision"] = revision


def _revision(like: Object, world: World, name: str) -> Object:
    stored = copy.deepcopy(like)
    stored["metadata"]["name"] = f"ms-{name}"
    stored["metadata"]["labels"][f"{PREFIX}revision"] = name
    stored["metadata"].pop("annotations", None)
    stored["data"] = {"data": world.objects["ModelServing"]["ms"]["spec"]["template"]["roles"]}
    return stored


def test_pods_whose_template_sets_reserved_labels_are_taken_over() -> None:
    # Kthena lets the template win, so its pods carry the template's group name.
    path = require_corpus() / "networking" / "ModelServing-ds1.5b-pd-disaggregation.yaml"
    manifest: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    world = World(capabilities=Capabilities(volcano=True))
    world.apply(manifest)
    world.settle("deepseek-r1-1-5b")
    theirs = {f"{PREFIX}group-name": "group-0"}
    for name in list(world.pods("deepseek-r1-1-5b")):
        world.patch("Pod", name, lambda pod: labels_of(pod).update(theirs))
    world.take_calls()

    world.settle("deepseek-r1-1-5b")
    assert world.take_calls() == []

    world.kill("deepseek-r1-1-5b-0-decode-0-0")
    world.settle("deepseek-r1-1-5b")
    labels = labels_of(world.pods("deepseek-r1-1-5b")["deepseek-r1-1-5b-0-decode-0-0"])
    assert labels[f"{PREFIX}group-name"] == "deepseek-r1-1-5b-0"
    assert labels[f"{PREFIX}rolename"] == "D-instance"


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_children_are_found_by_their_owners(name: str) -> None:
    world = load(name)
    owned = sum(len(world.pods(owner)) for owner in modelservings(world))

    assert owned == len(world.objects["Pod"])
    assert {namespace_of(obj) for obj in recorded(name)} == {"default"}
    assert all(name_of(obj) for obj in recorded(name))
