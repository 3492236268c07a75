"""Logs of pods, through the nodes that registered themselves."""

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from kthena.local.apiserver.logs import LogError, LogOptions
from kthena.machinery.objects import Object, name_of
from support.apiserver import CORE, Api, embedded_api, eventually, pod

PODS = f"{CORE}/namespaces/default/pods"


class Node:
    """A node that keeps the options it was asked with, and whether its stream was closed."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, LogOptions]] = []
        self.closed = threading.Event()

    async def stream(self, pod: Object, options: LogOptions) -> AsyncIterator[bytes]:
        self.asked.append((name_of(pod), options))
        if options.previous:
            raise LogError(f"previous terminated container {options.container!r} not found")
        try:
            yield b"one\n"
            yield b"two\n"
            if options.follow:
                await asyncio.Event().wait()
        finally:
            self.closed.set()


def make(api: Api, *containers: str) -> None:
    spec = {
        "nodeName": "n1",
        "containers": [{"name": name, "image": "x"} for name in containers or ("main",)],
    }
    api.create(PODS, pod("p", spec)).expect(201)


def test_log_comes_from_the_node_of_the_pod() -> None:
    node = Node()
    with embedded_api() as (server, api):
        server.register_log_source("n1", node)
        make(api)
        reply = api.get(f"{PODS}/p/log")
        assert (reply.status, reply.body) == (200, "one\ntwo\n")
        assert reply.headers["content-type"] == "text/plain"
        assert node.asked == [("p", LogOptions("main"))]
        assert node.closed.is_set()


def test_options_reach_the_node() -> None:
    node = Node()
    with embedded_api() as (server, api):
        server.register_log_source("n1", node)
        make(api, "a", "b")
        query = {
            "container": "b",
            "timestamps": "true",
            "tailLines": "3",
            "sinceSeconds": "4",
            "limitBytes": "5",
        }
        api.get(f"{PODS}/p/log", **query).expect(200)
        ((_, options),) = node.asked
        assert options == LogOptions("b", timestamps=True, since_s=4, tail_lines=3, limit_bytes=5)


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ({}, 400, "a container name must be specified for pod p, choose one of: [a b]"),
        ({"container": "c"}, 400, "container c is not valid for pod p"),
        ({"container": "a", "tailLines": -1}, 422, "tailLines: Invalid value: -1"),
        ({"container": "a", "limitBytes": 0}, 422, "limitBytes: Invalid value: 0"),
        ({"container": "a", "previous": "true"}, 400, "previous terminated container 'a'"),
    ],
)
def test_mistakes_are_named(query: dict[str, str], status: int, message: str) -> None:
    with embedded_api() as (server, api):
        server.register_log_source("n1", Node())
        make(api, "a", "b")
        reply = api.get(f"{PODS}/p/log", **query)
        assert reply.status == status
        assert message in reply.message


def test_node_that_is_not_there() -> None:
    with embedded_api() as (_, api):
        make(api)
        reply = api.get(f"{PODS}/p/log")
        assert (reply.status, reply.reason) == (503, "ServiceUnavailable")
        assert 'node "n1"' in reply.message


def test_followed_log_ends_when_the_client_leaves() -> None:
    node = Node()
    with embedded_api() as (server, api):
        server.register_log_source("n1", node)
        make(api)
        connection = api.connect()
        headers = {"Authorization": f"Bearer {server.config.token}"}
        connection.request("GET", f"{PODS}/p/log?follow=true", headers=headers)
        response = connection.getresponse()
        assert (response.readline(), response.readline()) == (b"one\n", b"two\n")
        assert not node.closed.is_set()
        response.close()
        connection.close()
        eventually(node.closed.is_set)
