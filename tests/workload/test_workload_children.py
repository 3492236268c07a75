import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.objects import Object
from kthena.workload.children.pods import PodIdentity, build_pod
from kthena.workload.children.services import build_service
from kthena.workload.identity import (
    InstanceKey,
    PodPlace,
    entry_name,
    parse_place,
    pod_name,
    possible_owners,
)
from kthena.workload.records import ANNOTATION_RECOVERIES, RESERVED_ANNOTATIONS
from kthena.workload.revisions import RoleTemplate, read_roles
from support.workload_world import role, serving

PREFIX = "modelserving.volcano.sh/"
KEY = InstanceKey(2, "prefill", 1)
# Dashes and digits, of which places are made too, are frequent.
NAMES = st.one_of(
    st.sampled_from("az"),
    st.tuples(st.sampled_from("az"), st.text("ab01-", max_size=10), st.sampled_from("b0")).map(
        "".join
    ),
)


def owner(**more: Any) -> Object:
    obj = serving(**more)
    obj["metadata"]["uid"] = "uid-1"
    return obj


def role_of(**fields: Any) -> RoleTemplate:
    roles = read_roles([role("prefill", workers=2) | fields])
    assert roles is not None
    return roles["prefill"]


def make(
    template: RoleTemplate | None = None,
    position: int = 0,
    scheduler: str | None = "volcano",
    **more: str,
) -> Object:
    identity = PodIdentity("rev", "hash", scheduler, more)
    return build_pod(owner(), template or role_of(), PodPlace(KEY, position), identity)


@given(NAMES, NAMES, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_name_leads_back_to_its_place(
    owner_name: str, role_name: str, group: int, ordinal: int, position: int
) -> None:
    place = PodPlace(InstanceKey(group, role_name, ordinal), position)

    assert parse_place(owner_name, pod_name(owner_name, place)) == place


@pytest.mark.parametrize(
    "name",
    ["ms", "ms-0", "ms-0-a-0", "ms-00-a-0-0", "ms-0-a-0-01", "ms-x-a-0-0", "other-0-a-0-0",
     "ms-0--0-0", "ms-0-a-0-0-", "ms-0-a-0-0\n", "ms-0-a-0-99999999999"],
)  # fmt: skip
def test_other_names_have_no_place(name: str) -> None:
    assert parse_place("ms", name) is None


def test_roles_with_dashes_and_digits_are_told_apart() -> None:
    assert parse_place("ms", "ms-0-a-1-2-3") == PodPlace(InstanceKey(0, "a-1", 2), 3)


def test_the_entry_pod_has_all_labels_and_the_owner() -> None:
    pod = make()

    assert pod["metadata"]["name"] == "ms-2-prefill-1-0"
    assert pod["metadata"]["labels"] == {
        f"{PREFIX}name": "ms",
        f"{PREFIX}group-name": "ms-2",
        f"{PREFIX}role": "prefill",
        f"{PREFIX}role-id": "prefill-1",
        f"{PREFIX}entry": "true",
        f"{PREFIX}revision": "rev",
        f"{PREFIX}role-template-hash": "hash",
    }
    assert pod["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "workload.serving.volcano.sh/v1alpha1",
            "kind": "ModelServing",
            "name": "ms",
            "uid": "uid-1",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def test_a_worker_has_no_entry_label_and_its_own_template() -> None:
    pod = make(position=2)

    assert f"{PREFIX}entry" not in pod["metadata"]["labels"]
    assert pod["metadata"]["name"] == "ms-2-prefill-1-2"
    assert pod["spec"]["containers"][0]["image"] == "engine:1-worker"


def test_environment_is_appended_in_order_and_replaces_that_of_users() -> None:
    template = role_of()
    container = template.entry_template["spec"]["containers"][0]
    container["env"] = [{"name": "WORKER_INDEX", "value": "9"}, {"name": "MINE", "value": "x"}]
    template.entry_template["spec"]["initContainers"] = [{"name": "init", "image": "i"}]
    template.entry_template["spec"]["ephemeralContainers"] = [{"name": "debug"}]

    pod = make(template)

    own = [
        {"name": "GROUP_SIZE", "value": "3"},
        {"name": "ENTRY_ADDRESS", "value": "ms-2-prefill-1-0.default"},
        {"name": "WORKER_INDEX", "value": "0"},
    ]
    assert pod["spec"]["containers"][0]["env"] == [{"name": "MINE", "value": "x"}, *own]
    assert pod["spec"]["initContainers"][0]["env"] == own
    assert pod["spec"]["ephemeralContainers"] == [{"name": "debug"}]


def test_reserved_labels_of_users_lose_and_others_stay() -> None:
    template = role_of()
    labels = {f"{PREFIX}group-name": "group-0", f"{PREFIX}rolename": "P", "app": "x"}
    template.entry_template["metadata"] = {"labels": labels, "annotations": {"note": "y"}}  # type: ignore[index]  # a plain dict in truth

    metadata = make(template)["metadata"]

    assert metadata["labels"][f"{PREFIX}group-name"] == "ms-2"
    assert metadata["labels"][f"{PREFIX}rolename"] == "P"
    assert metadata["labels"]["app"] == "x"
    assert metadata["annotations"] == {"note": "y"}


def test_a_template_does_not_speak_for_the_controller() -> None:
    # A template that was copied from a live pod carries the controller's notes about that pod.
    notes = dict.fromkeys(RESERVED_ANNOTATIONS, "5@2026-01-01T00:00:00Z")
    template = role_of(
        entryTemplate={"metadata": {"annotations": {**notes, "mine": "kept"}}, "spec": {}}
    )

    assert make(template)["metadata"]["annotations"] == {"mine": "kept"}
    own = {ANNOTATION_RECOVERIES: "1@2026-01-01T00:00:00Z"}
    counted = build_pod(owner(), template, PodPlace(KEY, 0), PodIdentity("rev", "hash", None, own))
    assert counted["metadata"]["annotations"] == {"mine": "kept", **own}


def test_the_scheduler_is_that_of_the_modelserving_or_the_default() -> None:
    template = role_of()
    template.entry_template["spec"]["schedulerName"] = "mine"

    assert make(template)["spec"]["schedulerName"] == "volcano"
    assert "schedulerName" not in make(template, scheduler=None)["spec"]


def test_a_pod_is_the_template_but_for_a_listed_few() -> None:
    spec = {
        "hostAliases": [
            {"ip": "1.1.1.1", "hostnames": ["a"]},
            {"ip": "1.1.1.1", "hostnames": ["b"]},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "fieldOfTomorrow": {"x": [1, 2]},
        "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": 1}}}],
    }
    template = role_of(entryTemplate={"spec": copy.deepcopy(spec)})

    pod = make(template)

    made = copy.deepcopy(pod["spec"])
    del made["schedulerName"]
    for container in made["containers"]:
        del container["env"]
    assert made == spec


def test_a_pod_shares_nothing_with_its_template() -> None:
    template = role_of()
    before = copy.deepcopy(template.entry_template)

    pods = [make(template), make(template)]
    pods[0]["spec"]["containers"][0]["env"].append("x")

    assert template.entry_template == before
    assert len(pods[1]["spec"]["containers"][0]["env"]) == 3


def test_a_worker_without_a_template_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="no workerTemplate"):
        make(role_of(workerTemplate=None), position=1)


def test_the_service_is_headless_and_selects_the_entry_pod() -> None:
    service = build_service(owner(), KEY)

    assert service["metadata"]["name"] == entry_name("ms", KEY)
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {
            f"{PREFIX}group-name": "ms-2",
            f"{PREFIX}role": "prefill",
            f"{PREFIX}role-id": "prefill-1",
            f"{PREFIX}entry": "true",
        },
    }
    pod_labels = make()["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= pod_labels.items()


def test_a_child_concerns_its_controller_and_the_owner_that_its_label_names() -> None:
    pod = make()
    pod["metadata"]["labels"][f"{PREFIX}name"] = "other"

    assert [key.name for key in possible_owners(pod)] == ["ms", "other"]
    pod["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    assert [key.name for key in possible_owners(pod)] == ["other"]
    assert possible_owners({"metadata": {"name": "x"}}) == []
