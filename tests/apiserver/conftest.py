"""The servers under test: the embedded one, and the real one that is the truth.

Tests take `api` and `namespace` and so run against both. A server of another release is tried by
hand: `KTHENA_TEST_APISERVER=URL,TOKEN pytest tests/apiserver -m cluster`.
"""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.apiserver import APPLY, CORE, GROUP, Api, Definition, Reply, Server, embedded_server
from support.kubectl import Kubectl, runner
from support.managedfields import Apply


@pytest.fixture(scope="session")
def embedded_apiserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One embedded server for the session."""
    with embedded_server() as server:
        kubeconfig = tmp_path_factory.mktemp("embedded") / "kubeconfig"
        kubeconfig.write_text(json.dumps(server.kubeconfig()))
        yield Server(server.url, server.config.token, kubeconfig, embedded=True)


@pytest.fixture(scope="session")
def real_server(request: pytest.FixtureRequest) -> Server:
    """The real server."""
    given = os.environ.get("KTHENA_TEST_APISERVER")
    if given:
        url, token, *kubeconfig = given.split(",")
        return Server(url, token, Path(kubeconfig[0]) if kubeconfig else None, embedded=False)
    plane = request.getfixturevalue("real_apiserver")
    return Server(plane.url, plane.token, plane.kubeconfig, embedded=False)


@pytest.fixture(
    scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.cluster)]
)
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    name = "embedded_apiserver" if request.param == "embedded" else "real_server"
    found: Server = request.getfixturevalue(name)
    return found


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    """A client of the server."""
    client = Api(server)
    yield client
    client.close()


@pytest.fixture
def unique() -> str:
    """A name that no other test uses."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def namespace(api: Api, unique: str) -> Iterator[str]:
    """A namespace of the test's own."""
    api.create(f"{CORE}/namespaces", {"metadata": {"name": unique}}).expect(201)
    yield unique
    api.delete(f"{CORE}/namespaces/{unique}")


@pytest.fixture
def definition(api: Api, unique: str) -> Iterator[Definition]:
    """A CRD of the test's own, not yet installed."""
    found = Definition(f"{unique}.{GROUP}")
    yield found
    api.delete(found.path)


@pytest.fixture
def widgets(api: Api, definition: Definition) -> Definition:
    """The same, installed."""
    definition.install(api)
    return definition


@pytest.fixture
def kubectl(server: Server, namespace: str, tmp_path: Path) -> Kubectl:
    """Kubectl in the namespace of the test."""
    assert server.kubeconfig is not None
    return runner(server.kubeconfig, namespace, tmp_path)


@pytest.fixture
def apply(api: Api) -> Apply:
    """Applies an object under a manager, at its path."""

    def run(path: str, body: Any, manager: str = "m1", **query: Any) -> Reply:
        return api.patch(path, body, APPLY, fieldManager=manager, **query)

    return run
