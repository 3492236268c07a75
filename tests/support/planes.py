"""A cluster of separate programs: an API server, and kthena's planes and node as processes.

The same test runs against the embedded API server (in a thread of the test) and a real one.
"""

import asyncio
import contextlib
import http.client
import json
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from kthena.api.crd.published import published_crds
from kthena.local.apiserver.server import ApiServer
from support.programs import REPOSITORY, Workspace, until
from support.rest import Answer, RestClient

SERVING = "/apis/workload.serving.volcano.sh/v1alpha1"
NETWORKING = "/apis/networking.serving.volcano.sh/v1alpha1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LEASES = "/apis/coordination.k8s.io/v1"
LEASE = "lease.kthena.controller-manager"
QUICKSTART = REPOSITORY / "examples" / "quickstart"


@dataclass
class Planes:
    """The client of one API server, and the programs that a test has started on it."""

    space: Workspace
    client: RestClient
    kubeconfig: Path
    namespace: str
    image_map: Path

    def path(self, root: str, plural: str, name: str = "") -> str:
        """The request path of a resource in the test's namespace."""
        path = f"{root}/namespaces/{self.namespace}/{plural}"
        return f"{path}/{name}" if name else path

    def items(self, root: str, plural: str) -> list[dict[str, Any]]:
        """Every object of a resource in the test's namespace."""
        answer = self.client.get(self.path(root, plural))
        assert answer.status == 200, answer.text
        return list(answer.body["items"])

    def pods(self) -> list[dict[str, Any]]:
        """Every pod of the test's namespace."""
        return self.items("/api/v1", "pods")

    def create(self, root: str, plural: str, body: dict[str, Any]) -> Answer:
        """Create an object in the test's namespace."""
        body = {**body, "metadata": {**body["metadata"], "namespace": self.namespace}}
        answer = self.client.create(self.path(root, plural), body)
        assert answer.status == 201, answer.text
        return answer

    def node(self, *options: str, kubeconfig: Path | None = None) -> subprocess.Popen[str]:
        """Start `kthena node`."""
        return self.space.start(
            "node", f"--kubeconfig={kubeconfig or self.kubeconfig}",
            f"--image-map={self.image_map}", f"--data-dir={self.space.folder / 'node'}",
            f"--name={self.namespace}", *options,
        )  # fmt: skip

    def controller_manager(
        self, *, kubeconfig: Path | None = None, lease_namespace: str = ""
    ) -> subprocess.Popen[str]:
        """Start `kthena controller-manager`."""
        return self.space.start(
            "controller-manager", f"--kubeconfig={kubeconfig or self.kubeconfig}",
            "--health-host=127.0.0.1", "--health-port=0",
            f"--lease-namespace={lease_namespace or self.namespace}",
        )  # fmt: skip

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as the administrator, in the test's namespace unless another is named."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        for entry in config["contexts"]:
            entry["context"]["namespace"] = self.namespace
        path = self.space.folder / "kubectl.kubeconfig"
        path.write_text(json.dumps(config))
        env = {"KUBECONFIG": str(path)}
        return self.space.run(*arguments, program=("kubectl",), stdin=stdin, env=env)

    def kill_controller(self, process: subprocess.Popen[str]) -> None:
        """Kill the controller manager, and drop its Lease so that the next one need not wait."""
        process.kill()
        process.wait()
        self.client.delete(self.path(_LEASES, "leases", LEASE))

    def clear(self) -> None:
        """Delete the namespace with everything in it; what it holds would be in the way of others.

        Pods go at once, since no node may be there to see to it.
        """
        for plural in ("modelroutes", "modelservers"):
            self.client.delete(self.path(NETWORKING, plural))
        self.client.delete(self.path(SERVING, "modelservings"))
        self.client.delete(f"/api/v1/namespaces/{self.namespace}")
        self.client.delete(self.path("/api/v1", "pods"), {"gracePeriodSeconds": 0})

    def report(self) -> str:
        """What is there, for a failure's report."""
        pods = [
            (pod["metadata"]["name"], pod["metadata"].get("deletionTimestamp"), pod.get("status"))
            for pod in self.pods()
        ]
        servings = [s.get("status") for s in self.items(SERVING, "modelservings")]
        return json.dumps([servings, pods], indent=1) + self.space.logs()


def ask(url: str) -> tuple[int, Any]:
    """Ask the quickstart's model a question: status and answer."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    body = {"model": "qwen3", "messages": [{"role": "user", "content": "hello"}]}
    try:
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


class Router:
    """`kthena router` on the test's cluster."""

    def __init__(self, cluster: Planes) -> None:
        self.port, self.metrics_port = _free_port(), _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] = cluster.space.start(
            "router", f"--kubeconfig={cluster.kubeconfig}", "--host=127.0.0.1",
            f"--port={self.port}", f"--metrics-port={self.metrics_port}",
            f"--lease-namespace={cluster.namespace}",
        )  # fmt: skip


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def planes(kind: str, request: pytest.FixtureRequest, space: Workspace) -> Iterator[Planes]:
    """The API server of that kind with our CRDs, and a namespace that goes with the test."""
    with contextlib.ExitStack() as stack:
        if kind == "embedded":
            server = stack.enter_context(_embedded())
            url, token, ca_file = server.url, server.config.token, None
            kubeconfig = space.folder / "kubeconfig"
            kubeconfig.write_text(json.dumps(server.kubeconfig()))
        else:
            real = request.getfixturevalue("real_apiserver")
            url, token, ca_file, kubeconfig = real.url, real.token, real.ca_file, real.kubeconfig
        client = RestClient(url, token, ca_file)
        stack.callback(client.close)
        for crd in published_crds():
            answer = client.create(_CRDS, crd)
            assert answer.status in {201, 409}, answer.text
        until("the CRDs are served", lambda: client.get(f"{SERVING}/modelservings").status == 200)
        namespace = f"e2e-{uuid.uuid4().hex[:8]}"
        client.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        image_map = space.folder / "images.yaml"
        image_map.write_text("")
        found = Planes(space, client, kubeconfig, namespace, image_map)
        yield found
        # While the server answers: programs that cannot say goodbye wait for a while.
        space.close()
        found.clear()


@contextlib.contextmanager
def _embedded() -> Iterator[ApiServer]:
    """The embedded server, served from a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ApiServer()
    try:
        asyncio.run_coroutine_threadsafe(server.start(), loop).result(20)
        yield server
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
