"""A cluster of separate programs: an API server, and kthena's planes and node as processes.

The same test runs against the embedded API server (in a thread of the test) and a real one.
"""

import asyncio
import contextlib
import json
import subprocess
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kthena.api.crd.published import published_crds
from kthena.local.apiserver.server import ApiServer
from support.programs import Workspace, until
from support.rest import Answer, RestClient

SERVING = "/apis/workload.serving.volcano.sh/v1alpha1"
NETWORKING = "/apis/networking.serving.volcano.sh/v1alpha1"
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LEASES = "/apis/coordination.k8s.io/v1"
LEASE = "lease.kthena.controller-manager"


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

    def node(self) -> subprocess.Popen[str]:
        """Start `kthena node`."""
        return self.space.start(
            "node", f"--kubeconfig={self.kubeconfig}", f"--image-map={self.image_map}",
            f"--data-dir={self.space.folder / 'node'}", f"--name={self.namespace}",
        )  # fmt: skip

    def controller_manager(self) -> subprocess.Popen[str]:
        """Start `kthena controller-manager`."""
        return self.space.start(
            "controller-manager", f"--kubeconfig={self.kubeconfig}", "--health-host=127.0.0.1",
            "--health-port=0", f"--lease-namespace={self.namespace}",
        )  # fmt: skip

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
