"""Real manifests are admitted as they are: nothing pruned, nothing added but documented defaults."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kthena.api.crd.definition import definition
from kthena.api.kinds import DEFINITIONS
from support.corpus import corpus_objects
from support.crdserver import Collection, Substrate, served
from support.schemas import crd_schema

pytestmark = pytest.mark.corpus

_METADATA_OF_USERS = {"labels", "annotations"}
FOLDERS = ("modelserving", "networking", "autoscaling", "modelbooster")


@pytest.fixture(scope="module")
def collections(substrate: Substrate) -> Iterator[dict[str, Collection]]:
    with ExitStack() as stack:
        result: dict[str, Collection] = {}
        for kind in DEFINITIONS:
            collection = stack.enter_context(served(substrate, definition(kind)))
            collection.install(definition(kind))
            result[kind.info.resource.kind] = collection
        yield result


def _added(
    schema: dict[str, Any], sent: Any, stored: Any, at: str
) -> Iterator[tuple[str, Any, Any]]:
    """Where the stored value is not what was sent: path, its value, and the default of its schema."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        values = schema.get("additionalProperties") or {}
        for name in sent.keys() | stored.keys():
            child = schema.get("properties", {}).get(name, values)
            path = f"{at}.{name}"
            if name not in sent:
                yield path, stored[name], child.get("default")
            elif name not in stored:
                yield path, None, "pruned"
            else:
                yield from _added(child, sent[name], stored[name], path)
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for index, (before, after) in enumerate(zip(sent, stored, strict=True)):
            yield from _added(schema.get("items", {}), before, after, f"{at}[{index}]")
    elif sent != stored:
        yield at, stored, sent


def _is_default(value: Any, default: Any) -> bool:
    """A default, or an empty default object that was completed by the defaults inside it."""
    return bool(value == default or (default == {} and isinstance(value, dict)))


def test_every_manifest_is_admitted_unchanged_and_a_second_apply_changes_nothing(
    collections: dict[str, Collection],
) -> None:
    cases = 0
    for folder in FOLDERS:
        for number, (file, obj) in enumerate(corpus_objects(folder)):
            if obj["kind"] not in collections:
                continue
            collection = collections[obj["kind"]]
            # Files share names; each object stands for itself.
            name = f"{obj['metadata']['name']}-{folder[0]}{number}"
            metadata = {
                key: value for key, value in obj["metadata"].items() if key in _METADATA_OF_USERS
            }
            named = {**obj, "metadata": {**metadata, "name": name, "namespace": "default"}}
            path = f"{collection.path}/{name}"

            query = {"fieldManager": "test", "fieldValidation": "Strict"}
            first = collection.client.patch(path, named, "apply", **query)
            again = collection.client.patch(path, named, "apply", **query)
            assert first.status == 201, f"{file}: {first.text}"
            assert again.status == 200, f"{file}: {again.text}"

            schema = crd_schema(collection.crd)["properties"]["spec"]
            changes = [
                change
                for change in _added(schema, obj["spec"], first.body["spec"], "spec")
                if not _is_default(*change[1:])
            ]
            assert changes == [], file
            assert (
                again.body["metadata"]["resourceVersion"]
                == (first.body["metadata"]["resourceVersion"])
            ), file
            cases += 1
    print(f"\n{cases} corpus objects admitted unchanged")
    assert cases > 0
