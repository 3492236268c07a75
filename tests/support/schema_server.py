"""Asks a real API server for the answers of golden schemas: CRDs and objects that are tried on it."""

import http.client
import json
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from support.golden_schemas import GROUP, KIND, VERSION, Case, Causes, complete, content_of

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LOOSE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_SELF_TYPE = re.compile(r"selfType[0-9]+")
_PATIENCE_S = 30.0


class SchemaServer:
    """A real API server that may be written to, reached by a kubeconfig with a token.

    Mutable state: the open connection, and `warnings`, those of the last answer.
    """

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        url = urlsplit(config["clusters"][0]["cluster"]["server"])
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._connection = http.client.HTTPSConnection(
            url.hostname or "", url.port, context=context, timeout=60
        )
        self._token = config["users"][0]["user"]["token"]
        self.warnings: list[str] = []

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        """The status code and the decoded answer."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        payload = None if body is None else json.dumps(body)
        self._connection.request(method, path, payload, headers)
        response = self._connection.getresponse()
        self.warnings = [
            _unquote_warning(value)
            for name, value in response.getheaders()
            if name.lower() == "warning"
        ]
        content = response.read()
        is_json = "json" in (response.getheader("Content-Type") or "")
        return response.status, json.loads(content) if is_json else {}

    def refusal(self, case: Case) -> Causes:
        """The causes for which the server refuses a schema; empty if it does not."""
        code, answer = self.request(
            "POST", f"{_CRDS}?dryRun=All", definition("refused", case["schema"], case)
        )
        return [] if code == 201 else _causes(answer)

    def answers(self, resource: Case, name: str) -> list[Case]:
        """The server's answers to all writes of a golden resource.

        Objects that are to be updated are stored under a schema that accepts everything.
        """
        plural = f"{name}s"
        url = f"/apis/{GROUP}/{VERSION}/{plural}"
        writes = list(enumerate(resource["writes"]))
        self._delete(plural)
        try:
            self._create(definition(name, _LOOSE, {}), url)
            stored = [self._store(url, index, write) for index, write in writes]
            self._tighten(name, resource, url)
            return [self._write(url, index, write, stored[index]) for index, write in writes]
        finally:
            self._delete(plural)

    def _delete(self, plural: str) -> None:
        path = f"{_CRDS}/{plural}.{GROUP}"
        self.request("DELETE", path)
        self._wait(lambda: self.request("GET", path)[0] == 404, "the definition to be gone")

    def _create(self, crd: dict[str, Any], url: str) -> None:
        code, answer = self.request("POST", _CRDS, crd)
        assert code == 201, answer
        self._wait(lambda: self.request("GET", url)[0] == 200, "the resource to be served")

    def _store(self, url: str, index: int, write: Case) -> str:
        """Stores the old object; returns its resource version."""
        if write["operation"] == "create":
            return ""
        old = complete(write["old"])
        old["metadata"]["name"] = f"probe-{index}"
        code, answer = self.request("POST", url, old)
        assert code == 201, answer
        return str(answer["metadata"]["resourceVersion"])

    def _tighten(self, name: str, resource: Case, url: str) -> None:
        """Gives the definition its schema, and waits until the server uses it."""
        path = f"{_CRDS}/{name}s.{GROUP}"
        crd = definition(name, resource["schema"], resource)

        def is_written() -> bool:
            _, current = self.request("GET", path)
            code, answer = self.request("PUT", path, {**crd, "metadata": current["metadata"]})
            # The server itself writes the conditions of the definition meanwhile.
            assert code in (200, 409), answer
            return code == 200

        self._wait(is_written, "the definition to be changed")
        probe = {**complete({}), "unknownToTheSchema": True}

        def is_strict() -> bool:
            code, _ = self.request("POST", f"{url}?dryRun=All&fieldValidation=Strict", probe)
            return code == 400

        self._wait(is_strict, "the new schema to be used")

    def _write(self, url: str, index: int, write: Case, resource_version: str) -> Case:
        new = complete(write["object"])
        if write["operation"] == "create":
            code, answer = self.request("POST", f"{url}?dryRun=All", new)
        else:
            name = f"probe-{index}"
            new["metadata"] = {**new["metadata"], "name": name, "resourceVersion": resource_version}
            suffix = "/status" if write["operation"] == "status" else ""
            code, answer = self.request("PUT", f"{url}/{name}{suffix}?dryRun=All", new)
        if code in (200, 201):
            return {"object": content_of(answer), "warnings": sorted(self.warnings)}
        assert code == 422, (code, answer, write)
        return {"causes": _causes(answer)}

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + _PATIENCE_S
        while not done():
            assert time.monotonic() < end, f"waited in vain for {what}"
            time.sleep(0.05)


def definition(name: str, schema: dict[str, Any], options: Case) -> dict[str, Any]:
    """A CRD of the probing kind; `options` are the subresources of a golden resource."""
    subresources: dict[str, Any] = {}
    if options.get("status"):
        subresources["status"] = {}
    if options.get("scale"):
        paths = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        subresources["scale"] = dict(zip(paths, options["scale"], strict=False))
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
    }
    names = {"plural": f"{name}s", "singular": name, "kind": KIND, "listKind": f"{KIND}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}s.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Cluster", "names": names, "versions": [version]},
    }


def _causes(status: dict[str, Any]) -> Causes:
    """Sorted, as the order of the server's is random; the names of its types are made stable."""
    causes = (status.get("details") or {}).get("causes") or []
    assert causes, status
    return sorted(
        [c.get("field", ""), c["reason"], _SELF_TYPE.sub("selfType", c["message"])] for c in causes
    )


def _unquote_warning(value: str) -> str:
    """The text of a Warning header."""
    return value.split(" ", 2)[2][1:-1].replace('\\"', '"').replace("\\\\", "\\")
