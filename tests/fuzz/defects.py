"""Defects of the embedded server that tests plant, to prove that they would be found.

Each replaces one function of the running server by one that is wrong in one way, and names a test of
the suite that finds it.
"""

# ruff: noqa: ARG005 - what takes the place of a function has its parameters

import contextlib
import importlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple
from unittest import mock

from kthena.local.apiserver.kinds import Step
from kthena.local.apiserver.ownership import OwnerState
from kthena.local.apiserver.store import ChangeType

_SERVER: Final = "kthena.local.apiserver"
_MACHINERY: Final = "kthena.machinery"

Wrong = Callable[[Any], Any]
"""Makes what takes the place of the original."""


class Defect(NamedTuple):
    """What is replaced (`module:name` or `module:class.name`), by what, and who finds it."""

    target: str
    make: Wrong
    test: str


def _constant(value: Any) -> Wrong:
    return lambda original: lambda *args, **kwargs: value


def _property(value: Any) -> Wrong:
    return lambda original: property(lambda self: value)


def _drop_third(original: Any) -> Any:
    seen = 0

    def publish(self: Any, change: Any, obj: Any) -> None:
        nonlocal seen
        seen += change.type is ChangeType.MODIFIED
        if change.type is not ChangeType.MODIFIED or seen % 2:
            original(self, change, obj)

    return publish


def _silent_exit(original: Any) -> Any:
    def event(self: Any, change: Any) -> Any:
        found = original(self, change)
        return None if found is not None and found.lost_at else found

    return event


def _solid_owner(original: Any) -> Any:
    def state(self: Any, reference: Any, namespace: str) -> Any:
        found = original(self, reference, namespace)
        return OwnerState.SOLID if found is OwnerState.ABSENT else found

    return state


def _never_orphan(original: Any) -> Any:
    def policy(finalizers: Any, options: Any) -> str:
        found = str(original(finalizers, options))
        return "Background" if found == "Orphan" else found

    return policy


def _without_last(original: Any) -> Any:
    return lambda managed: original(managed)[:-1]


def _without_versions(original: Any) -> Any:
    def check(self: Any, kind: Any, strategy: Any, new: Any, entry: Any) -> None:
        new["metadata"].pop("resourceVersion", None)
        with contextlib.suppress(Exception):
            original(self, kind, strategy, new, entry)
        new["metadata"]["resourceVersion"] = str(entry.revision)

    return check


def _without_uid(original: Any) -> Any:
    def check(resource: Any, obj: Any, options: Any) -> None:
        original(resource, obj, replace(options, uid=None))

    return check


def _without_warnings(original: Any) -> Any:
    return lambda *args, **kwargs: original(*args, **kwargs)._replace(warnings=[])


def _skipping(original: Any) -> Any:
    def cut(entries: Any, limit: int, *args: Any, **kwargs: Any) -> Any:
        page = original(entries, limit, *args, **kwargs)
        if not page.token:
            return page
        later = original(entries, limit + 1, *args, **kwargs)
        return page._replace(token=later.token)

    return cut


def _stale(original: Any) -> Any:
    def bookmark(self: Any, revision: int, annotations: Any = None) -> Any:
        return original(self, revision - 2, annotations)

    return bookmark


def _test_passes(original: Any) -> Any:
    return {**original, "test": lambda document, operation: document}


def _nulls_kept(original: Any) -> Any:
    def without_nulls(patch: Any) -> Any:
        return {
            key: without_nulls(value) if isinstance(value, dict) else value
            for key, value in patch.items()
            if value is not None
        }

    return lambda document, patch: original(document, without_nulls(patch))


def _by_index(original: Any) -> Any:
    def merge(current: list[Any], patch: list[Any], field: Any) -> list[Any]:
        pairs = [{**old, **new} for old, new in zip(current, patch, strict=False)]
        return [*pairs, *current[len(pairs) :], *patch[len(pairs) :]]

    return merge


def _latest(original: Any) -> Any:
    return lambda self, bucket, revision, namespace="": self.list(bucket, namespace)


def _without_fields(original: Any) -> Any:
    return lambda self, entry: self.labels.matches(entry.labels)


def _same_suffix(original: Any) -> Any:
    return lambda prefix, choose: f"{prefix}aaaaa"


def _kept_by_nobody(original: Any) -> Any:
    return lambda self, name, kinds, remainder, room: room


DEFECTS: Final[dict[str, Defect]] = {
    "a change of a custom resource counts no generation": Defect(
        f"{_SERVER}.customresources.resource:bump_generation",
        _constant(None),
        "test_apiserver_subresources.py::test_spec_and_status_are_written_apart",
    ),
    "what was invalid before may not stay": Defect(
        f"{_MACHINERY}.schema.correlation:Correlated.unchanged",
        _constant(value=False),
        "test_apiserver_ratcheting.py::test_what_was_invalid_may_stay",
    ),
    "a watcher misses an event": Defect(
        f"{_SERVER}.watch:WatchHub.publish",
        _drop_third,
        "test_apiserver_watch.py::test_watch_of_everything_at_once_and_in_order",
    ),
    "a watcher does not see an object leave its selector": Defect(
        f"{_SERVER}.watch:Selection.event",
        _silent_exit,
        "test_apiserver_watch.py::test_object_that_enters_a_selector_is_added_and_one_that_leaves_is_deleted",
    ),
    "a dependent of an absent owner stays": Defect(
        f"{_SERVER}.garbage:GarbageCollector._state",
        _solid_owner,
        "test_apiserver_garbage.py::test_owner_that_never_was_takes_the_dependent_along",
    ),
    "orphaning is deleting in the background": Defect(
        f"{_SERVER}.deletion:_policy",
        _never_orphan,
        "test_apiserver_garbage.py::test_orphans_are_let_go",
    ),
    "no dependent blocks its owner": Defect(
        f"{_SERVER}.garbage:_blocks",
        _constant(value=False),
        "test_apiserver_garbage.py::test_owner_waits_for_the_dependents_that_block_it",
    ),
    "finalizers hold nothing": Defect(
        f"{_SERVER}.deletion:plan_ungraceful",
        _constant(Step.REMOVE),
        "test_apiserver_deletion.py::test_finalizer_holds_an_object_until_it_is_taken_off",
    ),
    "an entry of the managed fields is lost": Defect(
        f"{_MACHINERY}.managedfields.tracking:write_entries",
        _without_last,
        "test_apiserver_apply.py::test_a_write_makes_its_client_the_owner",
    ),
    "apply takes over without a conflict": Defect(
        f"{_MACHINERY}.managedfields.updater:ConflictError.__init__",
        _constant(None),
        "test_apiserver_apply.py::test_a_conflict_names_managers_and_fields",
    ),
    "keys of list-maps have no defaults": Defect(
        f"{_MACHINERY}.managedfields.atoms:ListAtom.key_defaults",
        _property({}),
        "test_apiserver_apply.py::test_lists_of_pods_and_services_merge_by_their_keys",
    ),
    "a stale update wins": Defect(
        f"{_SERVER}.registry:Registry._check_version",
        _without_versions,
        "test_apiserver_crud.py::test_stale_update_is_a_conflict",
    ),
    "a dry run stores": Defect(
        f"{_SERVER}.registry:Write.dry_run",
        _property(value=False),
        "test_apiserver_options.py::test_dry_run_answers_as_the_write_would_and_stores_nothing",
    ),
    "the uid of a precondition is not compared": Defect(
        f"{_SERVER}.deletion:check_preconditions",
        _without_uid,
        "test_apiserver_deletion.py::test_preconditions",
    ),
    "the status is written with the spec": Defect(
        f"{_SERVER}.customresources.resource:CustomResourceStrategy.prepare_update",
        _constant(None),
        "test_apiserver_subresources.py::test_spec_and_status_are_written_apart",
    ),
    "the spec is written with the status": Defect(
        f"{_SERVER}.customresources.resource:CustomResourceStatusStrategy.prepare_update",
        _constant(None),
        "test_apiserver_subresources.py::test_spec_and_status_are_written_apart",
    ),
    "stored objects do not get new defaults": Defect(
        f"{_SERVER}.kinds:Kind._is_stale",
        _constant(value=False),
        "test_apiserver_definitions.py::test_new_schema_holds_for_old_objects",
    ),
    "unknown fields of custom resources are kept": Defect(
        f"{_SERVER}.customresources.resource:prune",
        lambda original: lambda obj, schema: [],
        "test_apiserver_options.py::test_unknown_fields_of_custom_resources",
    ),
    "nobody is warned of unknown fields": Defect(
        f"{_SERVER}.verbs.writing:decode_body",
        _without_warnings,
        "test_apiserver_options.py::test_unknown_fields_of_built_in_kinds",
    ),
    "a page leaves out an object": Defect(
        f"{_SERVER}.verbs.reading:_cut",
        _skipping,
        "test_apiserver_lists.py::test_pages_show_one_moment",
    ),
    "a bookmark has an old version": Defect(
        f"{_SERVER}.verbs.watching:_Frames.bookmark",
        _stale,
        "test_apiserver_watch.py::test_bookmark_comes_at_the_end_when_wanted",
    ),
    "a namespace goes without its content": Defect(
        f"{_SERVER}.namespaces:NamespaceController._delete",
        _kept_by_nobody,
        "test_apiserver_namespaces.py::test_deletion_takes_everything_along",
    ),
    "a terminating namespace takes new objects": Defect(
        f"{_SERVER}.registry:Registry._check_namespace",
        _constant(None),
        "test_apiserver_namespaces.py::test_nothing_new_comes_into_a_terminating_namespace",
    ),
    "every test of a JSON Patch passes": Defect(
        f"{_MACHINERY}.patches.json_patch:_OPERATIONS",
        _test_passes,
        "test_apiserver_patches.py::test_json_patch_that_does_not_apply_is_invalid",
    ),
    "a null of a merge patch removes nothing": Defect(
        f"{_SERVER}.verbs.patching:apply_merge_patch",
        _nulls_kept,
        "test_apiserver_patches.py::test_merge_patch_sets_and_removes",
    ),
    "a strategic patch merges lists by index": Defect(
        f"{_MACHINERY}.patches.strategic:_merge_by_key",
        _by_index,
        "test_apiserver_patches.py::test_strategic_patch_merges_lists_by_their_key",
    ),
    "sets have duplicates": Defect(
        f"{_MACHINERY}.schema.custom:check_list_types",
        lambda original: lambda value, schema, path="": [],
        "test_apiserver_ratcheting.py::test_sets_and_list_maps_are_unique",
    ),
    "generated names are all the same": Defect(
        f"{_SERVER}.admission:generate_name",
        _same_suffix,
        "test_apiserver_crud.py::test_generated_names_are_unique_and_kept",
    ),
    "a list of an exact version shows the present": Defect(
        f"{_SERVER}.store:Store.list_at",
        _latest,
        "test_apiserver_lists.py::test_exact_version_shows_the_past",
    ),
    "field selectors select everything": Defect(
        f"{_SERVER}.watch:Selection.matches",
        _without_fields,
        "test_apiserver_lists.py::test_field_selectors",
    ),
}


@contextlib.contextmanager
def planted(name: str) -> Iterator[None]:
    """The embedded servers that this process starts meanwhile have a defect; no name is none."""
    if not name:
        yield
        return
    defect = DEFECTS[name]
    module, _, path = defect.target.partition(":")
    owner: Any = importlib.import_module(module)
    *parents, attribute = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = owner.__dict__[attribute]
    with mock.patch.object(owner, attribute, defect.make(original)):
        yield
