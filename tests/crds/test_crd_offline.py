"""The vectors and verdicts on our own schema engine, without a server: the quick answer.

The same data runs against servers in `test_crd_vectors.py` and `test_crd_verdicts.py`.
"""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kthena.api.crd.published import published_crds
from kthena.machinery.fields import FieldError
from kthena.machinery.schema.custom import CustomResourceSchema
from kthena.machinery.schema.scale import ScalePaths
from support.corpus import require_corpus
from support.crdchecks import Check, checks_of, why_not_denied
from support.crdvectors import Vector, change, load, valid_objects, verdicts
from support.schemas import crd_schema

CRDS = {crd["spec"]["names"]["kind"]: crd for crd in published_crds()}

every_kind = pytest.mark.parametrize("kind", CRDS)


@cache
def _schema(kind: str) -> CustomResourceSchema:
    crd = CRDS[kind]
    scale = crd["spec"]["versions"][0]["subresources"].get("scale")
    paths = scale and ScalePaths(
        scale["specReplicasPath"], scale["statusReplicasPath"], scale["labelSelectorPath"]
    )
    return CustomResourceSchema(crd_schema(crd), status_subresource=True, scale=paths)


@every_kind
def test_the_valid_objects_are_admitted_whole(kind: str) -> None:
    for name, obj in valid_objects(kind).items():
        admitted = _schema(kind).admit_create(obj)
        assert [str(error) for error in admitted.errors] == [], name
        assert admitted.pruned == [], name


@every_kind
def test_every_check_has_a_vector(kind: str) -> None:
    checks = set(checks_of(CRDS[kind]))
    assert checks == {Check(vector.at, vector.check) for vector in load(kind)}


@every_kind
def test_each_vector_is_denied_by_its_check_alone(kind: str) -> None:
    wrong = [
        text
        for vector in load(kind)
        if (text := why_not_denied(vector, _causes(_errors(_schema(kind), vector))))
    ]
    assert wrong == []


def _errors(schema: CustomResourceSchema, vector: Vector) -> list[FieldError]:
    if vector.is_update:
        return schema.admit_update(vector.denied, schema.default(vector.stored)).errors
    if vector.in_status:
        before = {key: value for key, value in vector.denied.items() if key != "status"}
        return schema.admit_status_update(vector.denied, schema.default(before)).errors
    return schema.admit_create(vector.denied).errors


def _causes(errors: list[FieldError]) -> list[tuple[str, str]]:
    return [(error.path, error.message) for error in errors]


@every_kind
def test_a_stored_object_that_breaks_a_check_can_be_edited(kind: str) -> None:
    schema = _schema(kind)
    wrong = [
        f"{vector}: {edit}: {error}"
        for vector in load(kind)
        if not vector.not_stored
        for edit, errors in _edits(schema, vector)
        for error in errors
    ]
    assert wrong == []


def _edits(schema: CustomResourceSchema, vector: Vector) -> Iterator[tuple[str, list[FieldError]]]:
    old = schema.default(vector.stored)
    labelled = copy.deepcopy(old)
    labelled["metadata"]["labels"] = {"a": "b"}
    yield "label", schema.admit_update(labelled, old).errors
    written = {**old, "status": {"observedGeneration": 7}}
    yield "status", schema.admit_status_update(written, old).errors
    if vector.kind == "ModelServing" and not vector.no_scale:
        smaller = change(old, {"spec.replicas": max(old["spec"]["replicas"] - 1, 0)})
        yield "scale down", schema.admit_update(smaller, old).errors


@pytest.mark.parametrize("verdict", verdicts(), ids=lambda verdict: f"{verdict.kind}-{verdict.row}")
def test_an_input_gets_its_known_answer(verdict: Any) -> None:
    schema = _schema(verdict.kind)
    admitted = schema.admit_create(verdict.obj)
    assert _paths(admitted.errors) == verdict.denied
    stored = admitted.object
    for step in verdict.steps:
        updated = schema.admit_update(change(stored, step.changes, step.removals), stored)
        assert _paths(updated.errors) == step.denied, step.name
        stored = stored if step.denied else updated.object


def _paths(errors: list[FieldError]) -> frozenset[str]:
    return frozenset(error.path for error in errors) - {"<nil>"}


@pytest.mark.corpus
def test_live_objects_of_kthena_read_as_they_were_stored() -> None:
    """Taking over a cluster changes no spec: no default appears and nothing is pruned."""
    read = 0
    for path in sorted((require_corpus() / "live").glob("*.json")):
        for obj in json.loads(path.read_text(encoding="utf-8"))["items"]:
            if obj["kind"] in CRDS:
                schema = _schema(obj["kind"])
                assert schema.default(obj) == obj, path.name
                assert schema.admit_update(obj, obj).errors == [], path.name
                read += 1
    print(f"\n{read} live objects read unchanged")
    assert read > 0
