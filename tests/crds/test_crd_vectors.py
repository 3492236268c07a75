"""Every check of the installed CRDs denies its vector, and bricks nothing that is stored.

The checks are counted on the CRD that the server gives back. For each there is a vector that it
alone denies. The same object is then stored under Kthena's CRD, the CRD is replaced by ours, and
all that must be possible with a stored object is done. What Kthena's schema refuses as well is
stored under a CRD without a schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kthena.api.crd.definition import definition
from kthena.api.kinds import DEFINITIONS, KindDefinition
from support.corpus import reference_crd
from support.crdchecks import Check, checks_of, why_not_denied
from support.crdserver import CRDS, Collection, Substrate, lifecycle, schemaless, served
from support.crdvectors import Vector, load, valid_objects
from support.rest import Answer

# A bench holds hundreds of objects, and a busy machine takes its time with each.
pytestmark = pytest.mark.timeout(600)

SERVED = [kind for kind in DEFINITIONS if kind.info.resource.kind != "ModelBooster"]


@dataclass
class Bench:
    """A server with the CRD of one kind, and its vectors stored before the CRD came."""

    kind: KindDefinition
    collection: Collection
    vectors: list[Vector]
    installed: dict[str, Any]
    under_kthena: int = 0
    without_schema: list[Vector] = field(default_factory=list)

    @property
    def stored(self) -> list[Vector]:
        return [vector for vector in self.vectors if not vector.not_stored]


@pytest.fixture(scope="module", params=SERVED, ids=lambda kind: kind.info.resource.kind)
def bench(request: pytest.FixtureRequest, substrate: Substrate) -> Iterator[Bench]:
    kind: KindDefinition = request.param
    crd = definition(kind)
    with served(substrate, crd) as collection:
        vectors = load(kind.info.resource.kind)
        bench = Bench(kind, collection, vectors, {})
        _store(bench, crd)
        collection.install(crd)
        bench.installed = substrate.client.get(f"{CRDS}/{crd['metadata']['name']}").body
        yield bench


def _store(bench: Bench, crd: dict[str, Any]) -> None:
    refused = bench.stored
    kthenas = reference_crd(crd["metadata"]["name"])
    if kthenas is not None:
        bench.collection.install(kthenas)
        refused = [vector for vector in bench.stored if bench.collection.store(vector.stored)]
    bench.collection.install(schemaless(crd))
    for vector in refused:
        why = bench.collection.store(vector.stored)
        assert not why, f"{vector}: {why}"
    bench.without_schema = refused
    bench.under_kthena = len(bench.stored) - len(refused)


def test_the_valid_objects_are_admitted(bench: Bench) -> None:
    for name, obj in valid_objects(bench.kind.info.resource.kind).items():
        answer = bench.collection.client.create(
            bench.collection.path, obj, dryRun="All", fieldValidation="Strict"
        )
        assert answer.status == 201, f"{name}: {answer.text}"


def test_every_check_has_a_vector_and_every_vector_a_check(bench: Bench) -> None:
    checks = set(checks_of(bench.installed))
    covered = {Check(vector.at, vector.check) for vector in bench.vectors}
    assert {str(check) for check in checks - covered} == set()
    assert {str(check) for check in covered - checks} == set()
    print(
        f"\n{bench.kind.info.resource.kind}: rules {len(checks)}, vectors {len(bench.vectors)} "
        f"({bench.under_kthena} stored under Kthena's CRD, {len(bench.without_schema)} without a "
        f"schema, {len(bench.vectors) - len(bench.stored)} that no server can hold)"
    )


def test_each_vector_is_denied_by_its_check_alone(bench: Bench) -> None:
    wrong = [text for vector in bench.vectors if (text := _why_not_denied(bench, vector))]
    assert wrong == []


def _why_not_denied(bench: Bench, vector: Vector) -> str:
    answer = _try(bench, vector)
    if answer.status != 422:
        return f"{vector}: {answer.status} {answer.text}"
    return why_not_denied(vector, [(cause["field"], cause["message"]) for cause in answer.causes])


def _try(bench: Bench, vector: Vector) -> Answer:
    """A create, or an update of what is stored; nothing is kept."""
    client, path = bench.collection.client, bench.collection.path
    if vector.is_update:
        current = client.get(f"{path}/{vector.name}").body
        updated = {**vector.denied, "metadata": current["metadata"]}
        return client.put(f"{path}/{vector.name}", updated, dryRun="All")
    if not vector.in_status:
        return client.create(path, vector.denied, dryRun="All")
    probe = {key: value for key, value in vector.denied.items() if key != "status"}
    probe["metadata"] = {"name": f"{vector.name}-status"}
    created = client.create(path, probe)
    assert created.status == 201, f"{vector}: {created.text}"
    written = {**created.body, "status": vector.denied["status"]}
    return client.put(f"{path}/{vector.name}-status/status", written, dryRun="All")


def test_a_stored_object_that_breaks_a_check_can_be_lived_with(bench: Bench) -> None:
    """Relabel, apply, scale down, write the status, put unchanged, delete, release."""
    wrong: list[str] = []
    operations = 0
    for vector in bench.stored:
        scale = bench.kind.info.scale is not None and not vector.no_scale
        for operation, answer in lifecycle(bench.collection, vector.name, scale=scale):
            operations += 1
            if answer.status >= 400:
                wrong.append(f"{vector}: {operation}: {answer.status} {answer.text}")
    assert wrong == []
    print(
        f"\n{bench.kind.info.resource.kind}: {operations} operations on {len(bench.stored)} objects"
    )
