"""Namespaces that come to their end: what they say of it, and what holds them up."""

import time
from pathlib import Path

from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.core import Core
from support.apiserver import (
    CORE,
    Api,
    config_map,
    embedded_api,
    eventually,
    owned_by,
    pod,
)

HOLD = "test.kthena.io/hold"
NAMESPACES = f"{CORE}/namespaces"


def conditions(api: Api, namespace: str) -> dict[str, tuple[str, str, str]]:
    """Status, reason and message of each condition, in order."""
    found = api.get(f"{NAMESPACES}/{namespace}").body["status"].get("conditions") or ()
    return {each["type"]: (each["status"], each["reason"], each["message"]) for each in found}


def test_conditions_tell_what_is_left(api: Api, namespace: str) -> None:
    inside = f"{NAMESPACES}/{namespace}"
    other = "test.kthena.io/other"
    api.create(f"{inside}/configmaps", config_map("a", finalizers=[HOLD])).expect(201)
    api.create(f"{inside}/configmaps", config_map("b", finalizers=[HOLD, other])).expect(201)
    secret = {"metadata": {"name": "s", "finalizers": [other]}}
    api.create(f"{inside}/secrets", secret).expect(201)
    api.delete(inside).expect(200)
    found = eventually(lambda: conditions(api, namespace))
    assert list(found.items()) == [
        (
            "NamespaceDeletionDiscoveryFailure",
            ("False", "ResourcesDiscovered", "All resources successfully discovered"),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            ("False", "ParsedGroupVersions", "All legacy kube types successfully parsed"),
        ),
        (
            "NamespaceDeletionContentFailure",
            (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        (
            "NamespaceContentRemaining",
            (
                "True",
                "SomeResourcesRemain",
                (
                    "Some resources are remaining: configmaps. has 2 resource instances, "
                    "secrets. has 1 resource instances"
                ),
            ),
        ),
        (
            "NamespaceFinalizersRemaining",
            (
                "True",
                "SomeFinalizersRemain",
                (
                    f"Some content in the namespace has finalizers remaining: {HOLD} in 2 resource "
                    f"instances, {other} in 2 resource instances"
                ),
            ),
        ),
    ]
    entries = api.get(inside).body["metadata"]["managedFields"]
    (entry,) = (each for each in entries if each["manager"] == "kube-controller-manager")
    assert (entry["operation"], entry["subresource"]) == ("Update", "status")
    assert set(entry["fieldsV1"]) == {"f:status"}
    for path in ("configmaps/a", "configmaps/b", "secrets/s"):
        api.patch(f"{inside}/{path}", {"metadata": {"finalizers": None}}).expect(200)


def test_nothing_goes_before_the_pods(api: Api, namespace: str) -> None:
    inside = f"{NAMESPACES}/{namespace}"
    api.create(f"{inside}/configmaps", config_map("a")).expect(201)
    api.create(f"{inside}/pods", pod("p", {"nodeName": "n1"})).expect(201)
    api.delete(inside).expect(200)
    found = eventually(lambda: conditions(api, namespace))
    assert {status for status, _, _ in found.values()} == {"False"}
    assert api.get(f"{inside}/pods/p").expect(200)["metadata"]["deletionTimestamp"]
    assert "deletionTimestamp" not in api.get(f"{inside}/configmaps/a").expect(200)["metadata"]
    api.delete(f"{inside}/pods/p", gracePeriodSeconds=0).expect(200)


def test_what_cannot_be_deleted_is_told_and_tried_later(tmp_path: Path) -> None:
    config = ApiServerConfig(data_dir=tmp_path)
    with embedded_api(config) as (server, api):
        inside = f"{NAMESPACES}/stuck"
        api.create(NAMESPACES, {"metadata": {"name": "stuck"}}).expect(201)
        _fill(api, f"{inside}/configmaps")
        api.create(f"{inside}/configmaps", config_map("z")).expect(201)
        api.delete(inside).expect(200)
        eventually(lambda: "NamespaceDeletionContentFailure" in conditions(api, "stuck"))
        status, reason, message = conditions(api, "stuck")["NamespaceDeletionContentFailure"]
        assert (status, reason) == ("True", "ContentDeletionFailed")
        assert message.startswith("Failed to delete all resource types, 1 remaining: ")
        assert "too large" in message
        # Others of the kind are gone, and the server rests until it tries again.
        assert api.get(f"{inside}/configmaps/z").status == 404
        eventually(lambda: len(server.core.background) == 0)
        revision = server.core.store.revision
        api.get(inside).expect(200)
        assert server.core.store.revision == revision
    started = time.monotonic()
    core = Core(config)
    assert time.monotonic() - started < 5
    core.stop()
    assert core.journal is not None
    core.journal.abandon()


def _fill(api: Api, path: str) -> None:
    """Create an object that its deletion mark makes too large."""
    body = config_map("full", finalizers=[HOLD])
    body["binaryData"] = {"k": "A" * 1_386_668}
    length = 0
    for step in (2**power for power in range(17, -1, -1)):
        body["metadata"]["annotations"] = {"a": "x" * (length + step)}
        reply = api.put(f"{path}/full", body) if length else api.create(path, body)
        length += step if reply.status in (200, 201) else 0


def test_release_of_many_dependents_lets_others_be_served(api: Api, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}/configmaps"
    owner = api.create(path, config_map("owner")).expect(201)
    for number in range(100):
        body = config_map(f"d{number}", ownerReferences=owned_by(owner))
        api.create(path, body).expect(201)
    api.delete(f"{path}/owner", propagationPolicy="Orphan").expect(200)
    eventually(lambda: api.get(f"{path}/owner").status == 404)
    left = [each for each in api.get(path).body["items"] if each["metadata"]["name"][0] == "d"]
    assert len(left) == 100
    assert not any("ownerReferences" in each["metadata"] for each in left)
