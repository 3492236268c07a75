"""Admission answers as Kthena's does, but for the differences that the table names."""

from collections import Counter
from collections.abc import Iterator

import pytest

from kthena.api.crd.definition import definition
from kthena.api.kinds import DEFINITIONS
from support.crdserver import Collection, Substrate, served
from support.crdvectors import Verdict, change, verdicts
from support.rest import Answer

VERDICTS = verdicts()


@pytest.fixture(scope="module")
def collections(substrate: Substrate) -> Iterator[dict[str, Collection]]:
    """The collections of all kinds, with our CRDs installed."""
    import contextlib

    with contextlib.ExitStack() as stack:
        result: dict[str, Collection] = {}
        for kind in DEFINITIONS:
            crd = definition(kind)
            collection = stack.enter_context(served(substrate, crd))
            collection.install(crd)
            result[kind.info.resource.kind] = collection
        yield result


def _paths(answer: Answer) -> frozenset[str]:
    """The paths of all errors; the server adds one without a path when it leaves rules out."""
    return frozenset(cause["field"] for cause in answer.causes) - {"<nil>"}


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: f"{verdict.kind}-{verdict.row}")
def test_an_input_gets_its_known_answer(
    verdict: Verdict, collections: dict[str, Collection]
) -> None:
    collection = collections[verdict.kind]
    dry_run = {} if verdict.steps else {"dryRun": "All"}
    answer = collection.client.create(collection.path, verdict.obj, **dry_run)
    assert answer.status == (422 if verdict.denied else 201), answer.text
    assert _paths(answer) == verdict.denied
    stored = answer.body
    for step in verdict.steps:
        updated = change(stored, step.changes, step.removals)
        answer = collection.client.put(f"{collection.path}/{stored['metadata']['name']}", updated)
        assert answer.status == (422 if step.denied else 200), f"{step.name}: {answer.text}"
        assert _paths(answer) == step.denied, step.name
        stored = stored if step.denied else answer.body


def test_the_rows_are_counted() -> None:
    counts = Counter(verdict.kind for verdict in VERDICTS)
    print(f"\nverdict rows: {dict(counts)}")
    assert len(VERDICTS) == len({(verdict.kind, verdict.row) for verdict in VERDICTS})
