"""Field ownership as pure functions: the algebra of sets, and what apply promises."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.machinery.managedfields.atoms import Atom, atom_of
from kthena.machinery.managedfields.comparison import compare
from kthena.machinery.managedfields.conformance import find_problems, problems_text
from kthena.machinery.managedfields.entries import (
    EntryError,
    Managed,
    applier,
    read_entries,
    updater,
    write_entries,
)
from kthena.machinery.managedfields.fieldsets import (
    EMPTY,
    FieldSet,
    FieldSetError,
    canonical,
    difference,
    has,
    intersection,
    of_path,
    path_text,
    paths,
    read,
    recursive_difference,
    union,
)
from kthena.machinery.managedfields.merging import merge, remove
from kthena.machinery.managedfields.ownership import fields_of, reconciled, with_named_fields
from kthena.machinery.managedfields.updater import ConflictError, Updater
from kthena.machinery.objects import Object
from kthena.machinery.schema.structural import decode

Path = tuple[str, ...]

ELEMENTS = ["f:a", "f:b", 'k:{"n":1}', 'v:"x"']
PATHS = st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=3).map(tuple)
PATH_SETS = st.frozensets(PATHS, max_size=8)


def set_of(some: frozenset[Path]) -> FieldSet:
    found: FieldSet = EMPTY
    for path in sorted(some):
        found = union(found, of_path(path))
    return found


# --- Sets ---------------------------------------------------------------------------------------


@given(PATH_SETS, PATH_SETS)
def test_sets_are_sets_of_paths(one: frozenset[Path], other: frozenset[Path]) -> None:
    first, second = set_of(one), set_of(other)
    assert set(paths(first)) == one
    assert set(paths(union(first, second))) == one | other
    assert set(paths(intersection(first, second))) == one & other
    assert set(paths(difference(first, second))) == one - other
    covered = {path for path in one if any(path[: len(top)] == top for top in other)}
    assert set(paths(recursive_difference(first, second))) == one - covered
    assert all(has(first, path) == (path in one) for path in one | other)


@given(PATH_SETS)
def test_a_set_is_read_as_it_is_written(some: frozenset[Path]) -> None:
    fields = set_of(some)
    assert read(fields) == fields
    assert list(paths(fields)) == list(paths(read(fields)))


def test_elements_have_one_spelling() -> None:
    assert canonical('k:{"b":1,"a":2.0}') == 'k:{"a":2,"b":1}'
    assert canonical('v: "a<"') == 'v:"a\\u003c"'
    assert canonical("i:07") == "i:7"
    assert canonical("z:future") is None
    assert read({"z:future": {}, "f:a": {"z:future": {}}}) == {"f:a": {}}
    for wrong in ("fa", "k:[]", "v:", "i:x"):
        with pytest.raises(FieldSetError):
            canonical(wrong)
    wrong_sets: list[Any] = [[], {"f:a": 5}]
    for raw in wrong_sets:
        with pytest.raises(FieldSetError):
            read(raw)


def test_paths_come_in_the_order_of_the_api_and_in_its_words() -> None:
    fields: FieldSet = {
        "f:b": {},
        "f:a": {".": {}, 'k:{"p":80}': {"f:x": {}}, 'k:{"p":9}': {}, 'v:"t"': {}, "i:3": {}},
    }
    assert [path_text(path) for path in paths(fields)] == [
        ".a",
        ".b",
        ".a[p=9]",
        '.a[="t"]',
        ".a[3]",
        ".a[p=80].x",
    ]


# --- Entries ------------------------------------------------------------------------------------


def test_entries_are_read_and_written() -> None:
    entries: list[dict[str, Any]] = [
        {
            "manager": "a",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": "2024-01-02T00:00:00Z",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:x": {}},
        },
        {
            "manager": "b",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:y": {}},
            "subresource": "status",
        },
    ]
    managed = read_entries(entries)
    assert set(managed) == {applier("a"), updater("b", "v1", "status")}
    assert write_entries(managed) == entries
    for change, text in (
        ({"operation": "x"}, "operation must be"),
        ({"apiVersion": ""}, "apiVersion must not be empty"),
        ({"fieldsType": ""}, "missing fieldsType in managed fields entry 0"),
        ({"fieldsType": "V2"}, 'invalid fieldsType "V2" in managed fields entry 0'),
        ({"fieldsV1": {"x": {}}}, "error decoding set"),
    ):
        with pytest.raises(EntryError, match=text):
            read_entries([{**entries[0], **change}])


# --- Values along a schema ----------------------------------------------------------------------

_TEXT = {"type": "string"}
_KEYED: dict[str, Any] = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
    "items": {
        "type": "object",
        "required": ["k"],
        "properties": {"k": _TEXT, "v": _TEXT, "w": {"type": "integer"}},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": _TEXT,
        "keyed": _KEYED,
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _TEXT},
        "atomic": {"type": "array", "items": _TEXT},
        "map": {"type": "object", "additionalProperties": _TEXT},
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "additionalProperties": _TEXT,
        },
        "nested": {"type": "object", "properties": {"x": _TEXT, "y": _TEXT}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
ATOM = atom_of(decode(SCHEMA, "schema"))

TEXTS = st.sampled_from(["1", "2", "3"])
NAMES = st.sampled_from(["p", "q", "r"])


def _key_of(item: Any) -> str:
    return str(item["k"])


ITEMS: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"k": NAMES}, optional={"v": TEXTS, "w": st.integers(0, 2)}
)
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "name": TEXTS,
        "keyed": st.lists(ITEMS, max_size=3, unique_by=_key_of),
        "set": st.lists(NAMES, max_size=3, unique=True),
        "atomic": st.lists(TEXTS, max_size=2),
        "map": st.dictionaries(NAMES, TEXTS, max_size=2),
        "whole": st.dictionaries(NAMES, TEXTS, max_size=2),
        "nested": st.fixed_dictionaries({}, optional={"x": TEXTS, "y": TEXTS}),
        "free": st.dictionaries(NAMES, st.one_of(TEXTS, st.lists(TEXTS, max_size=1)), max_size=2),
    },
)


class OneVersion:
    """Every object is of one schema."""

    fixed = True

    def atom(self, version: str) -> Atom | None:
        return ATOM if version == "v1" else None

    def convert(self, obj: Object, source: str, target: str) -> Object:
        raise AssertionError((obj, source, target))


UPDATER = Updater(OneVersion(), "v1")
ONE, TWO, WRITER = applier("one"), applier("two"), updater("writer", "v1")


def apply(
    live: Object, config: Object, managed: Managed, manager: Any, *, force: bool = False
) -> Any:
    new, managed = UPDATER.apply(live, config, managed, manager, force=force)
    return (live if new is None else new), managed


def says(obj: Any, config: Any) -> bool:
    """Whether an object holds all that a configuration says; an empty list says nothing."""
    if config == [] or (config == {} and obj is None):
        return True
    if isinstance(config, dict):
        return isinstance(obj, dict) and all(
            value == [] or (name in obj and says(obj[name], value))
            for name, value in config.items()
        )
    if isinstance(config, list) and isinstance(config[0], dict):
        by_key = {item["k"]: item for item in obj}
        return all(says(by_key.get(item["k"]), item) for item in config)
    return bool(obj == config or (isinstance(config, list) and set(config) <= set(obj)))


@given(OBJECTS, OBJECTS)
def test_a_comparison_tells_all_that_differs(old: Object, new: Object) -> None:
    found = compare(old, new, ATOM)
    mirrored = compare(new, old, ATOM)
    assert (found.removed, found.added) == (mirrored.added, mirrored.removed)
    assert found.modified == mirrored.modified
    if old == new:
        assert not any(found)
    # What is only in one of them is told as such.
    assert not intersection(found.added, found.removed)


@given(OBJECTS, OBJECTS)
def test_an_applied_configuration_is_there(live: Object, config: Object) -> None:
    managed = UPDATER.update({}, live, {}, WRITER)
    new, after = apply(live, config, managed, ONE, force=True)
    assert says(new, config)
    assert after.get(ONE) is None or after[ONE].fields == fields_of(config, ATOM)
    again, same = UPDATER.apply(new, config, after, ONE, force=False)
    assert again is None
    assert {manager: owned.fields for manager, owned in same.items()} == {
        manager: owned.fields for manager, owned in after.items()
    }


@given(OBJECTS, OBJECTS)
def test_without_force_nothing_of_others_changes(live: Object, config: Object) -> None:
    managed = UPDATER.update({}, live, {}, WRITER)
    before = managed[WRITER].fields if WRITER in managed else EMPTY
    new, after = live, managed
    try:
        new, after = apply(live, config, managed, ONE)
    except ConflictError as exc:
        conflicts = exc.conflicts
    else:
        conflicts = []
    if conflicts:
        wanted = fields_of(config, ATOM)
        assert {conflict.manager for conflict in conflicts} == {WRITER}
        assert all(has(before, path) and has(wanted, path) for _, path in conflicts)
        return
    assert (after[WRITER].fields if WRITER in after else EMPTY) == before
    assert says(new, {name: value for name, value in live.items() if name == "name"})


@given(OBJECTS, OBJECTS)
def test_what_is_applied_no_more_goes(first: Object, second: Object) -> None:
    """Only what one applied and nobody else owns is taken away."""
    made, managed = apply({}, first, {}, ONE)
    both, managed = apply(made, second, managed, TWO, force=True)
    left, managed = apply(both, {}, managed, ONE)
    assert ONE not in managed
    assert says(left, second)
    gone, managed = apply(left, {}, managed, TWO)
    assert managed == {}
    assert all(value in (None, {}, []) for value in gone.values()), gone


@given(OBJECTS, OBJECTS, OBJECTS)
def test_an_update_leaves_one_owner_for_what_it_changes(
    first: Object, second: Object, third: Object
) -> None:
    other = updater("other", "v1")
    managed = UPDATER.update({}, first, {}, WRITER)
    managed = UPDATER.update(first, second, managed, other)
    managed = UPDATER.update(second, third, managed, WRITER)
    owned = [entry.fields for entry in managed.values()]
    every = with_named_fields(fields_of(third, ATOM), ATOM)
    for fields in owned:
        assert not difference(with_named_fields(fields, ATOM), every) or third
    changed = compare(second, third, ATOM)
    rest = managed[other].fields if other in managed else EMPTY
    assert not intersection(rest, union(changed.modified, changed.added))
    assert not intersection(rest, changed.removed)


def test_merging_keeps_the_order_of_what_is_named() -> None:
    def names(live: Sequence[str], config: Sequence[str]) -> list[str]:
        merged = merge({"set": list(live)}, {"set": list(config)}, ATOM)
        return list(merged["set"])

    assert names("abc", "") == ["a", "b", "c"]
    assert names("abc", "ca") == ["b", "c", "a"]
    assert names("abcd", "bxd") == ["a", "b", "c", "x", "d"]
    assert names("", "ab") == ["a", "b"]


def test_removing_what_is_below_a_place() -> None:
    value = {"keyed": [{"k": "p", "v": "1"}, {"k": "q"}], "set": ["p"], "whole": {"p": "1"}}
    fields: Mapping[str, Any] = {
        "f:keyed": {'k:{"k":"p"}': {"f:v": {}}, 'k:{"k":"q"}': {}},
        "f:set": {},
    }
    assert remove(value, fields, ATOM) == {"keyed": [{"k": "p"}], "whole": {"p": "1"}}
    assert remove(value, {"f:whole": {"f:p": {}}}, ATOM)["whole"] is None


def test_a_schema_that_turns_to_one_value() -> None:
    granular: FieldSet = {"f:map": {"f:p": {}}, "f:keyed": {'k:{"k":"p"}': {".": {}, "f:k": {}}}}
    changed = {
        **SCHEMA["properties"],
        "map": {**SCHEMA["properties"]["map"], "x-kubernetes-map-type": "atomic"},
        "keyed": {"type": "array", "items": _KEYED["items"]},
    }
    atom = atom_of(decode({"type": "object", "properties": changed}, "schema"))
    assert reconciled(granular, atom) == {"f:map": {}, "f:keyed": {}}
    assert reconciled(granular, ATOM) == granular


@given(OBJECTS)
def test_objects_of_the_schema_fit_it(obj: Object) -> None:
    assert find_problems(obj, ATOM) == []


def test_several_problems_are_listed() -> None:
    found = find_problems({"name": 1, "set": ["p", "p"]}, ATOM)
    assert problems_text(found) == (
        "errors:\n  .name: expected string, got &value.valueUnstructured{Value:1}\n"
        '  .set: duplicate entries for key [="p"]'
    )
