"""Lists: order, selectors, pages, and the versions at which they are read."""

import base64
import json
from typing import Any

import pytest

from support.apiserver import CORE, Api, Definition, Server, config_map, pod


@pytest.fixture
def maps(api: Api, namespace: str) -> str:
    path = f"{CORE}/namespaces/{namespace}/configmaps"
    for index in range(7):
        labels = {"n": str(index), "parity": "odd" if index % 2 else "even"}
        api.create(path, config_map(f"m{index}", labels=labels)).expect(201)
    return path


def names(body: Any) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def test_list_is_ordered_and_has_a_version(api: Api, maps: str) -> None:
    body = api.get(maps).expect(200)
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert names(body) == [f"m{index}" for index in range(7)]
    newest = max(int(item["metadata"]["resourceVersion"]) for item in body["items"])
    assert int(body["metadata"]["resourceVersion"]) >= newest
    assert "kind" not in body["items"][0]


def test_empty_list(api: Api, namespace: str) -> None:
    body = api.get(f"{CORE}/namespaces/{namespace}/secrets").expect(200)
    assert body["items"] == []


def test_items_of_custom_resources_name_their_kind(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    body = api.get(path).expect(200)
    assert body["kind"] == "WidgetList"
    assert body["items"][0]["kind"] == "Widget"


def test_list_over_all_namespaces(api: Api, maps: str, namespace: str) -> None:
    body = api.get(f"{CORE}/configmaps", labelSelector="n=3").expect(200)
    places = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in body["items"]]
    assert (namespace, "m3") in places


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("n=1", "1"),
        ("n==1", "1"),
        ("n!=1", "023456"),
        ("n in (1,2)", "12"),
        ("n notin (1,2)", "03456"),
        ("parity=odd,n!=1", "35"),
        ("nosuch", ""),
        ("!nosuch", "0123456"),
        ("n>4", "56"),
        ("", "0123456"),
    ],
)
def test_label_selectors(api: Api, maps: str, selector: str, expected: str) -> None:
    body = api.get(maps, labelSelector=selector).expect(200)
    assert names(body) == [f"m{digit}" for digit in expected]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [("metadata.name=m3", ["m3"]), ("metadata.name!=m0,metadata.name!=m1", ["m2", "m3"])],
)
def test_field_selectors(api: Api, maps: str, selector: str, expected: list[str]) -> None:
    body = api.get(maps, fieldSelector=selector, labelSelector="n in (0,1,2,3)").expect(200)
    assert names(body) == expected


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ({"labelSelector": "a in"}, "unable to parse requirement: "),
        ({"labelSelector": "a=b=c"}, "found '=', expected: ',' or 'end of string'"),
        ({"labelSelector": "-a"}, "unable to parse requirement: "),
        ({"fieldSelector": "a"}, "invalid selector: 'a'; can't understand 'a'"),
        ({"fieldSelector": "spec.nosuch=1"}, '"spec.nosuch" is not a known field selector'),
    ],
)
def test_malformed_selectors_are_bad_requests(
    api: Api, maps: str, query: dict[str, str], message: str
) -> None:
    for path in (maps, f"{CORE}/configmaps"):
        reply = api.get(path, **query)
        assert (reply.status, reply.reason) == (400, "BadRequest")
        assert message in reply.message


def test_pods_are_found_by_their_fields(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    api.create(path, pod("p")).expect(201)
    api.create(path, pod("q", {"nodeName": "n1", "restartPolicy": "Never"})).expect(201)
    for selector, expected in (
        ("spec.nodeName=n1", ["q"]),
        ("spec.nodeName=", ["p"]),
        ("spec.nodeName!=", ["q"]),
        ("status.phase=Pending", ["p", "q"]),
        ("status.phase!=Pending", []),
        ("spec.restartPolicy=Never,metadata.name=q", ["q"]),
    ):
        body = api.get(path, fieldSelector=selector).expect(200)
        assert names(body) == expected, selector


def test_pages_show_one_moment(api: Api, maps: str) -> None:
    first = api.get(maps, limit=3).expect(200)
    assert names(first) == ["m0", "m1", "m2"]
    assert first["metadata"]["remainingItemCount"] == 4
    # What happens between two pages does not change what they show.
    api.delete(f"{maps}/m3").expect(200)
    api.create(maps, config_map("m4a")).expect(201)
    api.patch(f"{maps}/m5", {"data": {"new": "1"}}).expect(200)
    second = api.get(maps, limit=3, **{"continue": first["metadata"]["continue"]}).expect(200)
    assert names(second) == ["m3", "m4", "m5"]
    assert "data" not in second["items"][2]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    last = api.get(maps, limit=3, **{"continue": second["metadata"]["continue"]}).expect(200)
    assert names(last) == ["m6"]
    assert "continue" not in last["metadata"]
    assert names(api.get(maps).body) == ["m0", "m1", "m2", "m4", "m4a", "m5", "m6"]


def test_pages_of_a_selector_count_what_they_show(api: Api, maps: str) -> None:
    first = api.get(maps, limit=2, labelSelector="parity=even").expect(200)
    assert names(first) == ["m0", "m2"]
    assert "remainingItemCount" not in first["metadata"]
    rest = api.get(
        maps, labelSelector="parity=even", **{"continue": first["metadata"]["continue"]}
    ).expect(200)
    assert names(rest) == ["m4", "m6"]


def test_pages_over_all_namespaces(api: Api, maps: str) -> None:
    found: list[str] = []
    token = ""
    while True:
        query = {"continue": token} if token else {}
        body = api.get(f"{CORE}/configmaps", limit=2, **query).expect(200)
        found += [f"{i['metadata']['namespace']}/{i['metadata']['name']}" for i in body["items"]]
        token = body["metadata"].get("continue", "")
        if not token:
            break
    assert found == sorted(found)
    assert len(found) == len(set(found)) >= 7


def token_of(value: object) -> str:
    """A token of some content."""
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("token", "cause"),
    [
        ("garbage!", "illegal base64 data at input byte 7"),
        ("x", "illegal base64 data at input byte 0"),
        ("abcde", "illegal base64 data at input byte 4"),
        ("YWJj", "invalid character 'a' looking for beginning of value"),
        (token_of({}), "server does not recognize this encoded version "),
        (token_of({"v": "v9"}), "server does not recognize this encoded version v9"),
        (
            token_of({"v": "meta.k8s.io/v1"}),
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        (
            token_of({"v": "meta.k8s.io/v1", "rv": 1}),
            "encoded start key empty (version meta.k8s.io/v1)",
        ),
        (token_of({"v": "meta.k8s.io/v1", "rv": 1, "start": "/a/../b"}), "/a/../b"),
    ],
)
def test_broken_tokens_are_bad_requests(api: Api, maps: str, token: str, cause: str) -> None:
    reply = api.get(maps, limit=1, **{"continue": token})
    assert (reply.status, reply.reason) == (400, "BadRequest")
    assert reply.message == f"invalid continue token: continue key is not valid: {cause}"


def test_version_may_not_come_with_a_token(api: Api, maps: str) -> None:
    token = api.get(maps, limit=1).body["metadata"]["continue"]
    reply = api.get(maps, limit=1, resourceVersion="5", **{"continue": token})
    assert reply.status == 400
    assert "specifying resource version is not allowed when using continue" in reply.message


def test_exact_version_shows_the_past(api: Api, maps: str) -> None:
    version = api.get(maps).body["metadata"]["resourceVersion"]
    api.delete(f"{maps}/m0").expect(200)
    api.create(maps, config_map("n")).expect(201)
    past = api.get(maps, resourceVersion=version, resourceVersionMatch="Exact").expect(200)
    assert names(past) == [f"m{index}" for index in range(7)]
    assert past["metadata"]["resourceVersion"] == version


def test_version_is_a_lower_bound_otherwise(api: Api, maps: str) -> None:
    version = api.get(maps).body["metadata"]["resourceVersion"]
    api.delete(f"{maps}/m0").expect(200)
    newest = api.get(maps).body["metadata"]["resourceVersion"]
    body = api.get(maps, resourceVersion=newest).expect(200)
    assert "m0" not in names(body)
    query = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    body = api.get(maps, **query).expect(200)
    assert int(body["metadata"]["resourceVersion"]) >= int(version)
    api.get(maps, resourceVersion="0").expect(200)


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"resourceVersion": "abc"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersion": "5", "resourceVersionMatch": "Sometimes"}, 422),
        ({"resourceVersion": "0", "resourceVersionMatch": "Exact"}, 422),
        ({"sendInitialEvents": "true"}, 422),
    ],
)
def test_wrong_versions_are_refused(
    api: Api, maps: str, query: dict[str, str], status: int
) -> None:
    assert api.get(maps, **query).status == status


def test_future_version_is_a_timeout_that_clients_retry(
    api: Api, maps: str, server: Server
) -> None:
    future = str(int(api.get(maps).body["metadata"]["resourceVersion"]) + 1_000_000)
    reply = api.get(maps, resourceVersion=future)
    assert (reply.status, reply.reason) == (504, "Timeout")
    assert reply.message.startswith("Timeout: Too large resource version: ")
    assert reply.causes == [("", "ResourceVersionTooLarge")]
    assert reply.headers["retry-after"] == "1"


def test_get_at_a_version(api: Api, maps: str) -> None:
    api.get(f"{maps}/m0", resourceVersion="0").expect(200)
    # Not a good status for a mistake of the client, but it is the one that the API has.
    assert api.get(f"{maps}/m0", resourceVersion="x").status == 500
