from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kthena.api.kubernetes import PODS
from kthena.kube.client import ClientConfig, KubeClient
from kthena.kube.errors import Conflict, NotFound
from kthena.kube.status import merge_difference, patch_status
from kthena.machinery.objects import NamespacedName, Object
from support.kube_server import MemoryApi, ScriptedTransport, json_reply


def stored(status: dict[str, Any] | None) -> Object:
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "generation": 4,
        "resourceVersion": "7",
    }
    return {"metadata": metadata, **({} if status is None else {"status": status})}


async def test_only_the_difference_is_written() -> None:
    transport = ScriptedTransport([json_reply({"written": True})])
    client = KubeClient(transport, ClientConfig())
    old = {"observedGeneration": 3, "replicas": 1, "gone": 5, "same": {"a": [1]}, "in": {"x": 1}}
    new = {"replicas": 2, "same": {"a": [1]}, "in": {"x": 1, "y": 2}}

    result = await patch_status(client, PODS, stored(old), new)

    (request,) = transport.requests
    assert result == {"written": True}
    assert request.method == "PATCH"
    assert request.target == "/api/v1/namespaces/ns/pods/p/status?fieldManager=kthena"
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    assert msgspec.json.decode(request.body) == {
        "metadata": {"resourceVersion": "7"},
        "status": {"observedGeneration": 4, "replicas": 2, "gone": None, "in": {"y": 2}},
    }


@pytest.mark.parametrize(
    "status",
    [
        {"observedGeneration": 4, "replicas": 1, "conditions": [{"a": 1, "b": None}]},
        {"conditions": [{"b": None, "a": 1.0}], "replicas": 1.0, "observedGeneration": 4},
        {"observedGeneration": 4, "replicas": 1, "conditions": [{"a": 1}], "empty": None},
    ],
)
async def test_an_equal_status_is_not_written(status: dict[str, Any]) -> None:
    client = KubeClient(ScriptedTransport([]), ClientConfig())
    obj = stored(status)

    assert await patch_status(client, PODS, obj, {"replicas": 1, "conditions": [{"a": 1}]}) is obj


async def test_the_generation_that_was_acted_on_is_observed() -> None:
    """A status that is otherwise equal is written when the spec has changed."""
    transport = ScriptedTransport([json_reply({})])
    client = KubeClient(transport, ClientConfig())

    await patch_status(client, PODS, stored({"observedGeneration": 3, "a": 1}), {"a": 1})

    assert msgspec.json.decode(transport.requests[0].body)["status"] == {"observedGeneration": 4}


async def test_the_precondition_can_be_left_out() -> None:
    transport = ScriptedTransport([json_reply({})])
    client = KubeClient(transport, ClientConfig())

    await patch_status(client, PODS, stored(None), {"a": 1}, only_if_unchanged=False)

    assert msgspec.json.decode(transport.requests[0].body) == {
        "status": {"observedGeneration": 4, "a": 1}
    }


async def test_a_status_never_lands_on_a_successor_of_the_same_name() -> None:
    api = MemoryApi(PODS)
    old = api.put(PODS, {"metadata": {"name": "p", "namespace": "ns"}})
    api.remove(PODS, NamespacedName("ns", "p"))
    with pytest.raises(NotFound):
        await patch_status(api.client(), PODS, old, {"a": 1})

    api.put(PODS, {"metadata": {"name": "p", "namespace": "ns"}})
    with pytest.raises(Conflict):
        await patch_status(api.client(), PODS, old, {"a": 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("xyz"), JSON, max_size=3)


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386, word by word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def without_nulls(value: Any) -> Any:
    """What a server keeps of a merge patch: no null fields, except within lists."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return value


@settings(deadline=None)
@given(old=OBJECTS, new=OBJECTS)
def test_the_difference_makes_the_new_one_of_the_old_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    patch = merge_difference(old, new)

    assert without_nulls(merge(without_nulls(old), patch)) == without_nulls(new)
    assert merge_difference(merge(old, patch), new) == {}


@settings(deadline=None)
@given(value=OBJECTS)
def test_equal_values_have_no_difference(value: dict[str, Any]) -> None:
    assert merge_difference(value, value) == {}


@pytest.mark.parametrize(("old", "new"), [(True, 1), (0, False), ([True], [1]), ("1", 1)])
def test_values_of_different_types_differ(old: Any, new: Any) -> None:
    assert merge_difference({"x": old}, {"x": new}) == {"x": new}
