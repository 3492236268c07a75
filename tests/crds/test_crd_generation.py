"""The generated files match the kinds, and the CRDs have the form that clusters need."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from kthena.api.crd.definition import definition
from kthena.api.crd.podtemplate import IMAGE
from kthena.api.crd.published import published_crds
from kthena.api.crd.reference import is_pod_spec
from kthena.api.kinds import DEFINITIONS, KindDefinition
from kthena.api.openapi import QUANTITY_PATTERN
from kthena.api.registry import KIND_INFOS, KINDS, Plane
from support.crdchecks import BOUNDS
from support.schemas import children, crd_schema

ROOT = Path(__file__).resolve().parent.parent.parent
LAST_APPLIED_LIMIT = 262_144

every_kind = pytest.mark.parametrize("kind", DEFINITIONS, ids=lambda kind: kind.info.resource.kind)


def _check(root: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools/gen_crds.py"), "--check", "--root", str(root)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_generated_files_are_current() -> None:
    assert _check(ROOT).stderr == ""


def test_a_file_that_drifts_is_named_with_the_command_that_mends_it(tmp_path: Path) -> None:
    for folder in ("deploy/kustomize/crds", "src/kthena/api/data", "docs/reference"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    changed = tmp_path / "deploy/kustomize/crds/networking/modelroutes.yaml"
    changed.write_text(changed.read_text().replace("maxItems: 16", "maxItems: 17", 1))
    (tmp_path / "docs/reference/kinds.md").unlink()

    finished = _check(tmp_path)

    assert finished.returncode == 1
    assert "deploy/kustomize/crds/networking/modelroutes.yaml" in finished.stderr
    assert "docs/reference/kinds.md" in finished.stderr
    assert "modelservers" not in finished.stderr
    assert "python tools/gen_crds.py" in finished.stderr


@every_kind
def test_a_plain_apply_can_hold_the_crd_in_its_annotation(kind: KindDefinition) -> None:
    size = len(json.dumps(definition(kind), separators=(",", ":")).encode())
    print(f"\n{kind.info.resource}: {size} bytes of {LAST_APPLIED_LIMIT}")
    assert size < LAST_APPLIED_LIMIT


@cache
def _load(file: Path) -> Any:
    return yaml.load(file.read_text(), yaml.CSafeLoader)


@every_kind
def test_the_package_and_the_manifests_hold_the_same_crd(kind: KindDefinition) -> None:
    plane, plural = kind.info.plane, kind.info.resource.plural
    manifest = ROOT / f"deploy/kustomize/crds/{plane.value}/{plural}.yaml"
    packaged = {crd["metadata"]["name"]: crd for crd in published_crds([plane])}
    assert packaged[str(kind.info.resource)] == definition(kind)
    assert _load(manifest) == definition(kind)


@pytest.mark.parametrize("plane", Plane)
def test_each_kustomization_lists_the_crds_of_its_plane(plane: Plane) -> None:
    folder = ROOT / f"deploy/kustomize/crds/{plane.value}"
    listed = _load(folder / "kustomization.yaml")["resources"]
    assert {path.name for path in folder.glob("*.yaml")} == {*listed, "kustomization.yaml"}
    assert {_load(folder / name)["kind"] for name in listed} == {"CustomResourceDefinition"}


def test_the_served_crds_are_those_of_the_served_kinds() -> None:
    assert [crd["metadata"]["name"] for crd in published_crds()] == [str(kind) for kind in KINDS]
    assert {kind.info.resource for kind in DEFINITIONS} == set(KIND_INFOS)


def test_a_caller_may_change_what_it_is_given() -> None:
    published_crds()[0]["spec"].clear()
    assert published_crds()[0]["spec"] != {}


def _rules(schema: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield at, rule
    for path, child in children(schema, at):
        yield from _rules(child, path)


@every_kind
def test_every_rule_spares_what_is_stored(kind: KindDefinition) -> None:
    """Each looks at the old object; one that is not about transitions takes it as an optional."""
    for at, rule in _rules(crd_schema(definition(kind))):
        assert "oldSelf" in rule["rule"], (at, rule)
        guarded = "oldSelf.hasValue()" in rule["rule"]
        assert rule.get("optionalOldSelf", False) is guarded, (at, rule)


@every_kind
def test_rules_and_fields_explain_themselves(kind: KindDefinition) -> None:
    schema = crd_schema(definition(kind))
    messages = [rule["message"] for _, rule in _rules(schema)]
    assert all(messages)
    undescribed = [
        path
        for part in ("spec", "status")
        for path, node in _described(schema["properties"][part], part)
        if "description" not in node
    ]
    assert undescribed == []


def _described(schema: dict[str, Any], at: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Named fields of our own structs; what Kubernetes defines has its own documentation."""
    for path, child in children(schema, at):
        if not path.endswith(("]", "}")):
            yield path, child
        if not path.endswith(_OF_KUBERNETES):
            yield from _described(child, path)


_OF_KUBERNETES = (
    "Template", ".labelSelector", ".env[]", ".envFrom[]", ".affinity", ".resources",
    ".tolerations[]",
)  # fmt: skip


def test_a_pod_spec_has_no_bounds_but_those_of_quantities_and_images() -> None:
    (serving,) = (
        crd for crd in published_crds() if crd["spec"]["names"]["singular"] == "modelserving"
    )
    bounds = set(_pod_bounds(crd_schema(serving), inside=False))
    assert bounds == {("pattern", QUANTITY_PATTERN), ("pattern", IMAGE)}


def _pod_bounds(schema: dict[str, Any], *, inside: bool) -> Iterator[tuple[str, str]]:
    inside = inside or is_pod_spec(schema)
    if inside:
        yield from ((name, str(schema[name])) for name in BOUNDS & schema.keys())
    for _, child in children(schema, ""):
        yield from _pod_bounds(child, inside=inside)


def test_modelbooster_is_deprecated_and_names_its_successors() -> None:
    (legacy,) = published_crds([Plane.LEGACY])
    (version,) = legacy["spec"]["versions"]
    assert version["deprecated"] is True
    for kind in ("ModelServing", "ModelServer", "ModelRoute"):
        assert kind in version["deprecationWarning"]
    assert len(version["deprecationWarning"]) <= 256
