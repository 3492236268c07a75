"""States that were recorded on a live cluster load into an API server, and stay there.

Under this project's schemas and under Kthena's own, with the garbage collector running.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from support.crdserver import Substrate, served
from support.programs import until
from support.seeding import (
    RECORDINGS,
    Schemas,
    SeedingError,
    comparable,
    crds_of,
    in_order,
    recorded,
    seed,
    uid_of,
)

pytestmark = pytest.mark.corpus

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def schemas(substrate: Substrate) -> Iterator[Callable[[list[Any], Schemas], None]]:
    """Installs the CRDs that objects need; they go with the test."""
    with ExitStack() as stack:

        def install(objects: list[Any], whose: Schemas) -> None:
            for crd in crds_of(objects, whose):
                stack.enter_context(served(substrate, crd)).install(crd)

        yield install


def orphan(substrate: Substrate, api_version: str, kind: str) -> str:
    """An object whose owner does not exist, for the garbage collector to find; its path."""
    name = f"orphan-{uuid.uuid4().hex[:8]}"
    owner = {"apiVersion": api_version, "kind": kind, "name": name, "uid": str(uuid.uuid4())}
    body = {"metadata": {"name": name, "ownerReferences": [owner]}}
    assert substrate.client.create(MAPS, body).status == 201
    return f"{MAPS}/{name}"


def is_gone(substrate: Substrate, path: str) -> bool:
    return substrate.client.get(path).status == 404


@pytest.mark.parametrize("whose", ["ours", "kthena"])
@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_reads_back_as_it_was(
    substrate: Substrate, schemas: Callable[..., None], name: str, whose: Schemas
) -> None:
    objects = recorded(name)
    schemas(objects, whose)
    seeded = seed(substrate.client, objects)
    try:
        found = seeded.read_back()
        for obj in objects:
            assert found[uid_of(obj)] == comparable(obj)
        assert len(found) == len(objects)
        assert seeded.terminating == []
        assert not set(seeded.uids) & set(seeded.uids.values())

        # Nothing is collected, nor changed by a controller of the control plane.
        gone = orphan(substrate, "v1", "ConfigMap")
        until("an orphan is collected", partial(is_gone, substrate, gone))
        assert seeded.read_back() == found
    finally:
        seeded.clear()
    print(f"recorded state {name} under {whose} schemas: {len(objects)} objects")


@pytest.mark.slow
def test_the_garbage_collector_knows_the_owners_and_spares_their_children(
    substrate: Substrate, schemas: Callable[..., None]
) -> None:
    """Once it has discovered the CRDs: it then collects what has an absent owner of their kinds."""
    objects = recorded("two-modelboosters")
    schemas(objects, "kthena")
    seeded = seed(substrate.client, objects)
    try:
        found = seeded.read_back()
        api_version = "workload.serving.volcano.sh/v1alpha1"
        for kind in ("ModelBooster", "ModelServing"):
            gone = orphan(substrate, api_version, kind)
            until(f"the orphan of a {kind} is collected", partial(is_gone, substrate, gone))
        assert seeded.read_back() == found

        # And the tree hangs together: deleting a booster takes its own, and nothing else.
        (demo,) = (obj for obj in objects if (obj["kind"], obj["metadata"]["name"]) ==
                   ("ModelBooster", "demo"))  # fmt: skip
        substrate.client.delete(seeded.paths[uid_of(demo)], {"propagationPolicy": "Background"})
        kept = {uid for uid in found if "qwen" in found[uid]["metadata"]["name"]}
        until("the children of the booster are gone", lambda: seeded.read_back().keys() == kept,
              report=lambda: seeded.read_back().keys() - kept)  # fmt: skip
    finally:
        seeded.clear()


def test_a_recording_may_be_moved_to_another_namespace(
    substrate: Substrate, schemas: Callable[..., None]
) -> None:
    objects = recorded("partitioned-rollout")
    schemas(objects, "ours")
    namespace = f"moved-{uuid.uuid4().hex[:8]}"
    seeded = seed(substrate.client, objects, {"default": namespace})
    try:
        found = seeded.read_back()
        assert [found[uid_of(obj)] for obj in objects] == [comparable(obj) for obj in objects]
        pods = substrate.client.get(f"/api/v1/namespaces/{namespace}/pods").body["items"]
        entries = {
            env["value"]
            for pod in pods
            for env in pod["spec"]["containers"][0]["env"]
            if env["name"] == "ENTRY_ADDRESS"
        }
        assert len(pods) == 12
        assert all(entry.endswith(f".{namespace}") for entry in entries)
    finally:
        seeded.clear()
        substrate.client.delete(f"/api/v1/namespaces/{namespace}")


def test_owners_come_first_and_circles_are_refused() -> None:
    objects = recorded("two-modelboosters")
    order = [uid_of(obj) for obj in in_order(list(reversed(objects)))]
    for obj in objects:
        for owner in obj["metadata"].get("ownerReferences", ()):
            assert order.index(owner["uid"]) < order.index(uid_of(obj))
    a, b = (
        {"kind": "ConfigMap", "metadata": {"name": one, "uid": one * 9}, "data": {"x": other * 9}}
        for one, other in (("a", "b"), ("b", "a"))
    )
    with pytest.raises(SeedingError, match="name each other"):
        in_order([a, b])


def test_finalizers_stay_and_a_deletion_is_told_and_not_seeded(substrate: Substrate) -> None:
    name = f"seeded-{uuid.uuid4().hex[:8]}"
    obj = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": str(uuid.uuid4()),
            "finalizers": ["kthena.test/hold"],
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "data": {"a": "b"},
    }
    seeded = seed(substrate.client, [obj])
    try:
        assert seeded.terminating == [f"ConfigMap default/{name}"]
        stored = substrate.client.get(f"{MAPS}/{name}").body
        assert stored["metadata"]["finalizers"] == ["kthena.test/hold"]
        assert "deletionTimestamp" not in stored["metadata"]
    finally:
        seeded.clear()
    assert substrate.client.get(f"{MAPS}/{name}").status == 404
