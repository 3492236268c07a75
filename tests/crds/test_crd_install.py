"""The CRDs on a server: they install by a plain apply, and kubectl finds and prints the kinds."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kthena.api.crd.definition import definition
from kthena.api.kinds import DEFINITIONS
from kthena.api.registry import Plane
from support.corpus import require_reference_crd
from support.crdserver import CRDS, Collection, Substrate, served
from support.crdvectors import valid_objects
from support.rest import TABLE, RestClient

CRD_FOLDER = Path(__file__).resolve().parent.parent.parent / "deploy/kustomize/crds"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


@pytest.fixture
def empty(substrate: Substrate) -> Iterator[dict[str, Collection]]:
    """All kinds, none of them installed."""
    with ExitStack() as stack:
        yield {
            kind.info.resource.kind: stack.enter_context(served(substrate, definition(kind)))
            for kind in DEFINITIONS
        }


Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(substrate: Substrate, tmp_path: Path) -> Kubectl:
    """Runs kubectl against the server; what fails, fails the test."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(_kubeconfig(substrate.client)))

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", f"--kubeconfig={kubeconfig}", *arguments]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
        assert finished.returncode == 0, finished.stderr
        return finished

    return run


def _kubeconfig(client: RestClient) -> dict[str, Any]:
    cluster: dict[str, Any] = {"server": client.url, "insecure-skip-tls-verify": True}
    if client.url.startswith("http:"):
        # kubectl sends no bearer token over plain HTTP, but what stands in the URL.
        cluster = {"server": client.url.replace("://", f"://test:{client.token}@")}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": {"token": client.token}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "current-context": "it",
    }


@pytest.mark.kubectl
def test_a_plain_apply_installs_all_and_a_second_changes_nothing(
    kubectl: Kubectl, substrate: Substrate, empty: dict[str, Collection]
) -> None:
    del empty
    folders = [f"-k={CRD_FOLDER / plane.value}" for plane in Plane]
    for folder in folders:
        kubectl("apply", folder)
    for folder in folders:
        again = kubectl("apply", folder).stdout.splitlines()
        assert all(line.endswith("unchanged") for line in again), again
    for kind in DEFINITIONS:
        crd = substrate.client.get(f"{CRDS}/{kind.info.resource}").body
        assert len(crd["metadata"]["annotations"][LAST_APPLIED]) < 262_144


@pytest.fixture(params=DEFINITIONS, ids=lambda kind: kind.info.resource.kind)
def one(request: pytest.FixtureRequest, substrate: Substrate) -> Iterator[tuple[Any, Collection]]:
    """A kind and its collection, not installed."""
    with served(substrate, definition(request.param)) as collection:
        yield request.param, collection


def test_the_names_are_accepted_and_the_schema_is_structural(
    one: tuple[Any, Collection], substrate: Substrate
) -> None:
    kind, collection = one
    collection.install(definition(kind))
    crd = substrate.client.get(f"{CRDS}/{kind.info.resource}").body
    conditions = {entry["type"]: entry["status"] for entry in crd["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["acceptedNames"] == crd["spec"]["names"]


@pytest.mark.corpus
def test_kthenas_own_crd_installs(one: tuple[Any, Collection]) -> None:
    kind, collection = one
    collection.install(require_reference_crd(str(kind.info.resource)))


def test_a_table_has_the_columns_of_the_kind(one: tuple[Any, Collection]) -> None:
    kind, collection = one
    collection.install(definition(kind))
    table = collection.client.get(collection.path, accept=TABLE).body
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[1:-1] == [column.name for column in kind.info.columns]
    assert names[0] == "Name"


@pytest.mark.kubectl
def test_kubectl_finds_the_kinds_by_short_name_and_category(
    kubectl: Kubectl, empty: dict[str, Collection]
) -> None:
    for kind in DEFINITIONS:
        collection = empty[kind.info.resource.kind]
        collection.install(definition(kind))
        if kind.info.plane is not Plane.LEGACY:
            obj = next(iter(valid_objects(kind.info.resource.kind).values()))
            assert collection.store({key: obj[key] for key in obj if key != "status"}) == ""
    short_names = [name for kind in DEFINITIONS for name in kind.info.short_names]
    found = kubectl("get", ",".join(short_names), "-o", "name").stdout.split()
    assert [line.partition("/")[0] for line in found] == [
        f"{kind.info.singular}.{kind.info.resource.group}"
        for kind in DEFINITIONS
        if kind.info.short_names
    ]
    listed = kubectl("get", "kthena", "-o", "name").stdout.split()
    assert sorted(listed) == sorted(found)


@pytest.mark.kubectl
def test_a_modelbooster_is_admitted_with_a_warning(
    kubectl: Kubectl, empty: dict[str, Collection], tmp_path: Path
) -> None:
    (legacy,) = (kind for kind in DEFINITIONS if kind.info.plane is Plane.LEGACY)
    empty["ModelBooster"].install(definition(legacy))
    manifest = tmp_path / "booster.yaml"
    manifest.write_text(
        "apiVersion: workload.serving.volcano.sh/v1alpha1\n"
        "kind: ModelBooster\n"
        "metadata: {name: old}\n"
        "spec: {backend: {name: a, type: vLLM, modelURI: 'hf://a', replicas: 1, workers: [{}]}}\n"
    )
    applied = kubectl("apply", "-f", str(manifest))
    assert (
        "Warning: workload.serving.volcano.sh/v1alpha1 ModelBooster is deprecated" in applied.stderr
    )
