"""The servers that the CRDs are tried on.

Tests speak HTTP through `substrate.client`, so the same code runs against each of them. A server of
another release is tried by hand: `KTHENA_TEST_APISERVER=URL,TOKEN pytest tests/crds -m cluster`.
"""

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from kthena.api.registry import KINDS
from kthena.local.apiserver.server import ApiServer
from support.crdserver import Substrate, groups_kept
from support.rest import RestClient


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.cluster)]
)
def substrate(request: pytest.FixtureRequest) -> Iterator[Substrate]:
    """Each server in turn; the fixture `<name>_client` gives the client of one."""
    client: RestClient = request.getfixturevalue(f"{request.param}_client")
    with groups_kept(client, {kind.group for kind in KINDS}):
        yield Substrate(request.param, client)
    client.close()


@pytest.fixture(scope="session")
def real_client(request: pytest.FixtureRequest) -> RestClient:
    """A client of the real kube-apiserver."""
    given = os.environ.get("KTHENA_TEST_APISERVER")
    if given:
        url, token, *_ = given.split(",")
        return RestClient(url, token)
    plane = request.getfixturevalue("real_apiserver")
    return RestClient(plane.url, plane.token, plane.ca_file)


@pytest.fixture(scope="session")
def embedded_client() -> Iterator[RestClient]:
    """A client of the embedded API server, which runs on a loop of its own in a thread."""
    server = ApiServer()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="embedded-apiserver")
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(timeout=10)
        yield RestClient(server.url, server.config.token)
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(timeout=10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()
