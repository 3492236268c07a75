import asyncio
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from kthena.api.kubernetes import CONFIG_MAPS, LEASES, NODES, PODS
from kthena.kube.client import (
    BufferedReply,
    ClientConfig,
    DeleteParams,
    KubeClient,
    PatchType,
    Reply,
    WatchParams,
)
from kthena.kube.clock import FakeClock, settle
from kthena.kube.errors import ApiError, ConnectionFailed, Forbidden, Gone, NotFound
from support.kube_server import ScriptedTransport, StreamReply, json_reply, status_reply

POD = {"metadata": {"name": "p", "namespace": "ns"}}


def client_of(
    *replies: Reply | Exception, config: ClientConfig | None = None
) -> tuple[KubeClient, ScriptedTransport]:
    transport = ScriptedTransport(replies)
    return KubeClient(transport, config or ClientConfig(field_manager="me")), transport


def event(kind: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"


async def test_get_asks_for_the_object_and_returns_it_as_it_is() -> None:
    stored = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"unknownField": [1, None]}}
    client, transport = client_of(json_reply(stored))

    assert await client.get(PODS, "p", "ns") == stored

    (request,) = transport.requests
    assert str(request) == "GET /api/v1/namespaces/ns/pods/p"
    assert request.headers["Accept"] == "application/json"
    assert request.body == b""


async def test_an_empty_namespace_is_the_one_of_the_context() -> None:
    client = KubeClient(
        transport := ScriptedTransport([json_reply({}), json_reply({})]),
        ClientConfig(),
        namespace="team",
    )

    await client.get(LEASES, "l")
    await client.get(NODES, "n")

    assert [str(request) for request in transport.requests] == [
        "GET /apis/coordination.k8s.io/v1/namespaces/team/leases/l",
        "GET /api/v1/nodes/n",
    ]


async def test_a_subresource_is_read_below_the_object() -> None:
    client, transport = client_of(json_reply({}))

    await client.get(PODS, "p", "ns", subresource="status")

    assert transport.requests[0].target == "/api/v1/namespaces/ns/pods/p/status"


async def test_an_object_without_a_name_cannot_be_addressed() -> None:
    client, _ = client_of()

    with pytest.raises(ValueError, match=r"pods: an object without metadata\.name"):
        await client.get(PODS, "", "ns")


async def test_create_sends_the_object_with_the_field_manager() -> None:
    client, transport = client_of(json_reply(POD, 201))

    await client.create(PODS, POD, dry_run=True, field_validation="Strict")

    (request,) = transport.requests
    assert request.method == "POST"
    assert request.target == (
        "/api/v1/namespaces/ns/pods?fieldManager=me&dryRun=All&fieldValidation=Strict"
    )
    assert request.headers["Content-Type"] == "application/json"
    assert msgspec.json.decode(request.body) == POD


async def test_update_replaces_the_object_or_its_subresource() -> None:
    client, transport = client_of(json_reply(POD), json_reply(POD))

    await client.update(PODS, POD)
    await client.update(PODS, POD, subresource="status")

    assert [request.target for request in transport.requests] == [
        "/api/v1/namespaces/ns/pods/p?fieldManager=me",
        "/api/v1/namespaces/ns/pods/p/status?fieldManager=me",
    ]
    assert transport.requests[0].method == "PUT"


async def test_apply_names_its_manager_and_may_force() -> None:
    client, transport = client_of(json_reply(POD))

    await client.patch(PODS, "p", "ns", POD, PatchType.APPLY, force=True, field_manager="other")

    (request,) = transport.requests
    assert request.target == "/api/v1/namespaces/ns/pods/p?fieldManager=other&force=true"
    assert request.headers["Content-Type"] == "application/apply-patch+yaml"


async def test_delete_carries_preconditions_and_manner() -> None:
    client, transport = client_of(json_reply({"kind": "Status"}), json_reply({"kind": "Status"}))

    await client.delete(PODS, "p", "ns", DeleteParams("u", "7", "Foreground", 0))
    await client.delete(PODS, "p", "ns")

    assert msgspec.json.decode(transport.requests[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Foreground",
        "gracePeriodSeconds": 0,
    }
    assert msgspec.json.decode(transport.requests[1].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
    }


async def test_delete_collection_stays_within_one_namespace() -> None:
    client, transport = client_of(json_reply({"kind": "Status"}))

    await client.delete_collection(PODS, label_selector="a=b,c in (d)")

    (request,) = transport.requests
    assert request.method == "DELETE"
    assert request.target == ("/api/v1/namespaces/default/pods?labelSelector=a%3Db%2Cc+in+%28d%29")


async def test_items_of_a_list_get_their_kind() -> None:
    body = {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "c"}}]}
    client, transport = client_of(json_reply(body))

    listed = await client.list(CONFIG_MAPS)

    assert listed.items == [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}]
    assert listed.resource_version == "9"
    assert transport.requests[0].target == "/api/v1/configmaps?limit=500"


async def test_a_list_without_items_is_empty() -> None:
    client, _ = client_of(json_reply({"metadata": {}, "items": None}))

    assert (await client.list(CONFIG_MAPS)).items == []


async def test_list_reads_all_pages() -> None:
    client, transport = client_of(
        json_reply({"metadata": {"continue": "t/1", "resourceVersion": "5"}, "items": [{"a": 1}]}),
        json_reply({"metadata": {"resourceVersion": "5"}, "items": [{"a": 2}]}),
    )

    listed = await client.list(CONFIG_MAPS, "ns", label_selector="x", field_selector="y=z")

    assert [item["a"] for item in listed.items] == [1, 2]
    assert transport.requests[1].target == (
        "/api/v1/namespaces/ns/configmaps"
        "?labelSelector=x&fieldSelector=y%3Dz&limit=500&continue=t%2F1"
    )


async def test_an_expired_continue_token_restarts_the_list_in_one_page() -> None:
    client, transport = client_of(
        json_reply({"metadata": {"continue": "t", "resourceVersion": "5"}, "items": [{"a": 1}]}),
        status_reply(410, "Expired"),
        json_reply({"metadata": {"resourceVersion": "8"}, "items": [{"a": 1}, {"a": 3}]}),
    )

    listed = await client.list(CONFIG_MAPS)

    assert [item["a"] for item in listed.items] == [1, 3]
    assert listed.resource_version == "8"
    assert transport.requests[2].target == "/api/v1/configmaps"


async def test_a_list_that_cannot_begin_is_gone() -> None:
    client, _ = client_of(status_reply(410, "Expired"))

    with pytest.raises(Gone):
        await client.list(CONFIG_MAPS)


async def test_watch_yields_events_however_the_bytes_are_cut() -> None:
    stream = StreamReply()
    client, transport = client_of(stream)
    data = event("ADDED", POD) + b"\n" + event("BOOKMARK", {"metadata": {"resourceVersion": "8"}})
    for index in range(0, len(data), 7):
        stream.feed(data[index : index + 7])
    stream.end()

    seen = [
        (found.type, found.object)
        async for found in client.watch(PODS, "ns", WatchParams("7", "a=b", timeout_s=30))
    ]

    assert seen == [("ADDED", POD), ("BOOKMARK", {"metadata": {"resourceVersion": "8"}})]
    assert transport.requests[0].target == (
        "/api/v1/namespaces/ns/pods?watch=true&allowWatchBookmarks=true"
        "&resourceVersion=7&labelSelector=a%3Db&timeoutSeconds=30"
    )
    assert transport.requests[0].streamed
    assert stream.closed


async def test_an_error_event_is_raised() -> None:
    stream = StreamReply()
    client, _ = client_of(stream)
    stream.feed(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))

    with pytest.raises(Gone):
        await anext(client.watch(PODS))

    assert stream.closed


async def test_a_watch_that_is_cut_within_an_event_is_no_good_end() -> None:
    stream = StreamReply()
    client, _ = client_of(stream)
    stream.feed(event("ADDED", POD) + b'{"type":"ADD')
    stream.end()

    watch = client.watch(PODS)
    await anext(watch)
    with pytest.raises(ConnectionFailed, match="in the middle of an event"):
        await anext(watch)


@pytest.mark.parametrize(
    "line", [b"nonsense\n", b'{"type":"ADDED"}\n', b'{"type":"OTHER","object":{}}\n', b"\xff\n"]
)
async def test_an_event_that_is_none_is_an_error(line: bytes) -> None:
    stream = StreamReply()
    client, _ = client_of(stream)
    stream.feed(line)

    with pytest.raises(ApiError, match="no object of the API"):
        await anext(client.watch(PODS))

    assert stream.closed


async def test_leaving_a_watch_closes_its_connection() -> None:
    stream = StreamReply()
    client, _ = client_of(stream)
    stream.feed(event("ADDED", POD))

    async with aclosing(client.watch(PODS)) as events:
        async for _event in events:
            break

    assert stream.closed


async def test_a_watch_that_is_refused_raises_before_anything_is_yielded() -> None:
    client, _ = client_of(status_reply(403, "Forbidden", "pods is forbidden"))

    with pytest.raises(Forbidden, match="pods is forbidden"):
        await client.open_watch(PODS)


async def test_errors_name_the_call_and_carry_retry_after() -> None:
    client, _ = client_of(status_reply(429, "TooManyRequests", "slow down", {"retry-after": "3"}))

    with pytest.raises(ApiError) as caught:
        await client.get(PODS, "p", "ns")

    assert caught.value.retry_after_s == 3.0
    assert str(caught.value) == ("GET /api/v1/namespaces/ns/pods/p: 429 TooManyRequests: slow down")


async def test_a_retry_after_that_is_a_date_is_no_number_of_seconds() -> None:
    headers = {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}
    client, _ = client_of(status_reply(503, headers=headers))

    with pytest.raises(ApiError) as caught:
        await client.get(PODS, "p", "ns")

    assert caught.value.retry_after_s is None


@pytest.mark.parametrize("body", [b"", b"[1]", b"<html>", b"null", b"\xff\xfe"])
async def test_a_success_that_is_no_object_is_an_error(body: bytes) -> None:
    client, _ = client_of(BufferedReply(200, body))

    with pytest.raises(ApiError, match="no object of the API"):
        await client.get(PODS, "p", "ns")


async def test_raw_passes_bytes_and_json() -> None:
    client, transport = client_of(
        BufferedReply(200, b"ok", {"x": "y"}), BufferedReply(201, b"made"), BufferedReply(200)
    )

    reply = await client.raw("GET", "/readyz", params={"verbose": "1", "none": ""})
    await client.raw("POST", "/x", body={"a": 1})
    await client.raw("POST", "/x?a=b", params={"c": "d"}, body=b"\x00", content_type="a/b")

    assert (reply.status, reply.headers, reply.body) == (200, {"x": "y"}, b"ok")
    assert transport.requests[0].target == "/readyz?verbose=1"
    assert transport.requests[1].body == b'{"a":1}'
    assert transport.requests[2].target == "/x?a=b&c=d"
    assert transport.requests[2].headers["Content-Type"] == "a/b"


async def test_raw_may_ask_for_another_form() -> None:
    client, transport = client_of(BufferedReply(200, b"{}"))

    await client.raw("GET", "/x", accept="application/json;as=Table;v=v1;g=meta.k8s.io")

    assert transport.requests[0].headers["Accept"] == (
        "application/json;as=Table;v=v1;g=meta.k8s.io"
    )


async def test_raw_raises_on_failure() -> None:
    client, _ = client_of(BufferedReply(404, b"404 page not found"))

    with pytest.raises(NotFound):
        await client.raw("GET", "/nope")


@pytest.mark.parametrize("path", ["/a b", "/a\r\nX: y", "a", "/ä", ""])
async def test_a_path_that_is_not_encoded_is_refused(path: str) -> None:
    client, transport = client_of()

    with pytest.raises(ValueError, match="percent-encoded"):
        await client.raw("GET", path)

    assert not transport.requests


async def test_methods_are_limited_to_those_of_the_api() -> None:
    client, _ = client_of()

    with pytest.raises(ValueError, match="'HEAD' is none of"):
        await client.raw("HEAD", "/x")


async def test_stream_gives_the_body_as_it_arrives() -> None:
    stream = StreamReply()
    client, transport = client_of(stream)
    stream.feed(b"line 1\n")

    async with aclosing(client.stream("/log", {"follow": "true"})) as chunks:
        assert await anext(chunks) == b"line 1\n"
        stream.feed(b"line 2\n")
        assert await anext(chunks) == b"line 2\n"

    assert transport.requests[0].target == "/log?follow=true"
    assert stream.closed


async def test_the_rate_limit_holds_requests_back() -> None:
    clock = FakeClock()
    transport = ScriptedTransport([json_reply({})] * 4)
    client = KubeClient(transport, ClientConfig(qps=1, burst=2), clock=clock)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(client.get(NODES, "n"))
        await settle()
        assert len(transport.requests) == 2
        await clock.advance(1.0)
        assert len(transport.requests) == 3
        await clock.advance(1.0)
        assert len(transport.requests) == 4


async def test_the_observer_is_told_of_every_call() -> None:
    seen: list[tuple[str, int]] = []
    transport = ScriptedTransport([json_reply({}), status_reply(404), ConnectionFailed("no route")])
    client = KubeClient(
        transport,
        ClientConfig(),
        observer=lambda method, status, _: seen.append((method, status)),
    )

    await client.get(NODES, "n")
    with pytest.raises(NotFound):
        await client.get(NODES, "n")
    with pytest.raises(ConnectionFailed):
        await client.delete(NODES, "n")

    assert seen == [("GET", 200), ("GET", 404), ("DELETE", 0)]
