"""CRDs and objects on a server, real or embedded.

Installing and swapping schemas, storing objects, and the operations that every stored object must
allow.
"""

import copy
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from support.rest import TABLE, Answer, RestClient

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = "default"
FINALIZER = "kthena.test/hold"
# Generous: a busy machine takes its time to serve a large schema, and nothing is gained by failing.
_WAIT_SECONDS = 90.0


@dataclass(frozen=True)
class Substrate:
    """A server that serves CRDs."""

    name: str
    client: RestClient


@dataclass
class Collection:
    """Objects of one kind in one namespace of a server.

    Mutable state: the number of schemas installed so far, which marks each of them.
    """

    substrate: Substrate
    crd: dict[str, Any]
    installed: int = 0

    @property
    def client(self) -> RestClient:
        """A client of the server."""
        return self.substrate.client

    @property
    def path(self) -> str:
        """The request path of the collection."""
        spec = self.crd["spec"]
        version = spec["versions"][0]["name"]
        return f"/apis/{spec['group']}/{version}/namespaces/{NAMESPACE}/{spec['names']['plural']}"

    def install(self, crd: dict[str, Any]) -> None:
        """Create or replace the CRD, and wait until the server answers by its schema.

        A server takes a moment to serve a new schema. A printer column with a name of its own
        tells when it does; it is the only addition.
        """
        self.installed += 1
        mark = f"Schema-{self.installed}"
        marked = copy.deepcopy(crd)
        columns = marked["spec"]["versions"][0].setdefault("additionalPrinterColumns", [])
        columns.append({"name": mark, "type": "string", "jsonPath": ".metadata.uid"})
        path = f"{CRDS}/{crd['metadata']['name']}"
        current = self.client.get(path)
        if current.status == 404:
            answer = self.client.create(CRDS, marked)
        else:
            marked["metadata"]["resourceVersion"] = current.body["metadata"]["resourceVersion"]
            answer = self.client.put(path, marked)
        assert answer.status in {200, 201}, answer.text
        self._wait_served(mark)

    def _wait_served(self, mark: str) -> None:
        for _ in _until(f"schema {mark} of {self.crd['metadata']['name']} is served"):
            table = self.client.get(self.path, accept=TABLE, limit="1")
            # A whole list comes from the watch cache, which is filled after the schema is served.
            if table.status == 200 and self.client.get(self.path).status == 200:
                columns = {column["name"] for column in table.body["columnDefinitions"]}
                if mark in columns and self._is_established():
                    return

    def _is_established(self) -> bool:
        crd = self.client.get(f"{CRDS}/{self.crd['metadata']['name']}").body
        conditions = crd.get("status", {}).get("conditions", ())
        return any(
            entry["type"] == "Established" and entry["status"] == "True" for entry in conditions
        )

    def remove(self) -> None:
        """Delete the CRD with its objects, held ones too, and wait until it is gone."""
        path = f"{CRDS}/{self.crd['metadata']['name']}"
        if self.client.get(path).status == 404:
            return
        if self._objects():
            self.install(schemaless(self.crd))
        for held in self._objects():
            name = held["metadata"]["name"]
            self.client.patch(f"{self.path}/{name}", {"metadata": {"finalizers": None}})
        self.client.delete(path)
        for _ in _until(f"{self.crd['metadata']['name']} is gone"):
            if self.client.get(path).status == 404:
                return

    def _objects(self) -> list[dict[str, Any]]:
        listed = self.client.get(self.path)
        return list(listed.body["items"]) if listed.status == 200 else []

    def store(self, obj: dict[str, Any]) -> str:
        """Create the object with its status, held by a finalizer; or give it the status.

        Returns why it is not stored as it is; empty when it is.
        """
        path = f"{self.path}/{obj['metadata']['name']}"
        held = copy.deepcopy(obj)
        held["metadata"]["finalizers"] = [FINALIZER]
        answer = self.client.get(path)
        if answer.status == 404:
            answer = self.client.create(self.path, held)
        if answer.status < 400 and "status" in obj:
            answer = self.client.put(f"{path}/status", {**answer.body, "status": obj["status"]})
        if answer.status >= 400:
            return answer.text
        return "" if answer.body.get("status") == obj.get("status") else "its status was pruned"


@contextmanager
def served(substrate: Substrate, crd: dict[str, Any]) -> Iterator[Collection]:
    """A collection without objects, its CRD not yet installed; removed with everything in it.

    A CRD that was there before is there again afterwards, without objects.
    """
    collection, client = Collection(substrate, crd), substrate.client
    before = client.get(f"{CRDS}/{crd['metadata']['name']}")
    if before.status == 200:
        collection.remove()
    yield collection
    collection.remove()
    if before.status == 200:
        again = {**before.body, "metadata": {"name": crd["metadata"]["name"]}}
        again.pop("status", None)
        client.create(CRDS, again)


@contextmanager
def groups_kept(client: RestClient, groups: Iterable[str]) -> Iterator[None]:
    """Keeps the API groups on the server while their CRDs come and go.

    A group whose last CRD is deleted leaves the aggregator a moment later, even when another CRD
    has brought it back by then, and requests for it are answered with 404.
    """
    keepers = [_keeper(group) for group in groups]
    for keeper in keepers:
        answer = client.create(CRDS, keeper)
        assert answer.status in {201, 409}, answer.text
    yield
    for keeper in keepers:
        client.delete(f"{CRDS}/{keeper['metadata']['name']}")


def _keeper(group: str) -> dict[str, Any]:
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"keepers.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "Keeper", "plural": "keepers"},
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def _until(what: str) -> Iterator[None]:
    """Turns of a loop until it is left; fails when the time is up."""
    deadline = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < deadline:
        yield
        time.sleep(0.02)
    raise AssertionError(f"not in {_WAIT_SECONDS:.0f} s: {what}")


def schemaless(crd: dict[str, Any]) -> dict[str, Any]:
    """The CRD with a schema that admits any object: what no schema of the kind could store."""
    result = copy.deepcopy(crd)
    (version,) = result["spec"]["versions"]
    version["schema"] = {
        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    }
    return result


def lifecycle(collection: Collection, name: str, *, scale: bool) -> Iterator[tuple[str, Answer]]:
    """What every stored object must allow: the operations in order, each with its answer.

    Relabel, apply an annotation, scale down, write the status, put it unchanged, delete it, release
    it from its finalizer. All of them must succeed.
    """
    client, path = collection.client, f"{collection.path}/{name}"
    yield "label", client.patch(path, {"metadata": {"labels": {"edited": "yes"}}})
    applied = {
        "apiVersion": f"{collection.crd['spec']['group']}/v1alpha1",
        "kind": collection.crd["spec"]["names"]["kind"],
        "metadata": {"name": name, "annotations": {"applied": "yes"}},
    }
    yield "apply", client.patch(path, applied, "apply", fieldManager="test")
    if scale:
        replicas = client.get(f"{path}/scale").body["spec"].get("replicas", 0)
        smaller = {"spec": {"replicas": max(replicas - 1, 0)}}
        yield "scale down", client.patch(f"{path}/scale", smaller)
    # A controller writes its status as a whole.
    written = {**client.get(path).body, "status": {"observedGeneration": 7}}
    yield "status", client.put(f"{path}/status", written)
    yield "unchanged put", client.put(path, client.get(path).body)
    yield "delete", client.delete(path)
    yield "release", client.patch(path, {"metadata": {"finalizers": None}})
    gone = client.get(path)
    yield "gone", Answer(200 if gone.status == 404 else gone.status, gone.body)
