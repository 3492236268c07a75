"""Pods of a gang are started together or not at all."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS, PODS
from kthena.api.volcano import ANNOTATION_GROUP_NAME, POD_GROUP_CRD, POD_GROUPS
from kthena.kube.errors import ApiError, NotFound
from kthena.local.node.gangs import find_lack, gang_of
from kthena.local.podgroups import pod_group_crd
from kthena.machinery.objects import Object
from support.node_world import WAIT, World, python


def member(name: str, gang: str = "g", **more: Any) -> Object:
    labels = {"role": name.partition("-")[0], "instance": name.rpartition("-")[0]}
    annotations = {ANNOTATION_GROUP_NAME: gang} if gang else {}
    metadata = {"name": name, "namespace": "n", "labels": labels, "annotations": annotations}
    return {"metadata": {**metadata, **more.pop("metadata", {})}, **more}


def pod_group(minimum: int, **spec: Any) -> Object:
    return {"metadata": {"name": "g", "namespace": "n"}, "spec": {"minMember": minimum, **spec}}


def test_a_pod_is_of_the_gang_that_it_names_in_its_namespace() -> None:
    assert gang_of(member("a-0-0")) == "n/g"
    assert gang_of(member("a-0-0", "")) == ""


def test_members_that_end_or_have_ended_do_not_count() -> None:
    pods = [
        member("a-0-0"),
        member("a-0-1", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        member("a-0-2", status={"phase": "Failed"}),
        member("a-0-3", status={"phase": "Running"}),
    ]

    assert find_lack(pod_group(2), pods) == ""
    assert find_lack(pod_group(3), pods) == "PodGroup g has 2 pods and needs 3"


def test_sub_groups_count_when_they_are_whole() -> None:
    policy = {
        "name": "prefill",
        "labelSelector": {"matchLabels": {"role": "prefill"}},
        "matchLabelKeys": ["instance"],
        "subGroupSize": 2,
        "minSubGroups": 2,
    }
    group = pod_group(4, subGroupPolicy=[policy])
    scattered = [member(f"prefill-{index}-0") for index in range(3)] + [member("prefill-0-1")]
    others = [member("decode-0-0"), member("decode-0-1")]

    assert find_lack(group, [*scattered, *others]) == (
        "PodGroup g has 1 whole sub-groups of prefill and needs 2"
    )
    assert find_lack(group, [*scattered, member("prefill-1-1")]) == ""


@pytest.fixture
async def gang_world(world: World) -> AsyncIterator[World]:
    """A node on a server that has PodGroups."""
    client = world.api.client
    await client.create(CUSTOM_RESOURCE_DEFINITIONS, pod_group_crd())
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(ApiError):
                await client.list(POD_GROUPS, world.api.namespace)
                break
            await asyncio.sleep(0.05)
    try:
        await world.start()
        yield world
    finally:
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, POD_GROUP_CRD)
        async with asyncio.timeout(20):
            while True:
                try:
                    await client.get(CUSTOM_RESOURCE_DEFINITIONS, POD_GROUP_CRD)
                except NotFound:
                    break
                await asyncio.sleep(0.05)


async def run_member(world: World, name: str) -> None:
    pod = {
        "metadata": {"name": name, "annotations": {ANNOTATION_GROUP_NAME: "g"}},
        "spec": {
            "containers": [python(WAIT)],
            "schedulerName": world.scheduler,
            "terminationGracePeriodSeconds": 1,
        },
    }
    await world.api.create(PODS, pod)


async def test_pods_of_a_gang_wait_for_each_other_and_their_pod_group(gang_world: World) -> None:
    api = gang_world.api
    await run_member(gang_world, "one")
    assert "does not exist" in await api.until_event("one", "FailedScheduling")

    await api.create(POD_GROUPS, {"metadata": {"name": "g"}, "spec": {"minMember": 2}})
    await asyncio.sleep(0.5)
    assert not (await api.get(PODS, "one"))["spec"].get("nodeName")

    await run_member(gang_world, "two")
    await api.until_ready("one")
    await api.until_ready("two")

    # Whoever comes later finds enough of them.
    await run_member(gang_world, "three")
    await api.until_ready("three")


async def test_a_pod_without_a_gang_does_not_wait(gang_world: World) -> None:
    await gang_world.run("alone", python(WAIT))
    await gang_world.api.until_ready("alone")
