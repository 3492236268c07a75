"""Who owns what after a write: the rules of structured-merge-diff's `Updater`.

Objects are those of a version that the write uses; `Versions` brings them into the versions in which
other managers own fields. Everything is a value: the managers that come in are not changed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from kthena.machinery.managedfields.atoms import Atom
from kthena.machinery.managedfields.comparison import Comparison, MismatchError, compare
from kthena.machinery.managedfields.entries import Managed, Manager, Owned
from kthena.machinery.managedfields.fieldsets import (
    EMPTY,
    FieldSet,
    difference,
    has,
    intersection,
    paths,
    recursive_difference,
    union,
)
from kthena.machinery.managedfields.merging import merge, remove
from kthena.machinery.managedfields.ownership import fields_of, reconciled, with_named_fields
from kthena.machinery.objects import Object, equal_json


class Versions(Protocol):
    """The versions of a kind. `fixed` says that their schemas never change."""

    fixed: bool

    def atom(self, version: str) -> Atom | None:
        """The schema of a version; None for one that there is not any more.

        Raises:
            MismatchError: the version was never one of the kind.
        """
        ...

    def convert(self, obj: Object, source: str, target: str) -> Object:
        """An object of one version in another that there is."""
        ...


class Conflict(NamedTuple):
    """A field that an apply would change, and who owns it."""

    manager: Manager
    path: tuple[str, ...]


class ConflictError(Exception):
    """An apply that changes fields of others."""

    def __init__(self, conflicts: list[Conflict]) -> None:
        super().__init__(conflicts)
        self.conflicts = conflicts

    def beyond(self, allowed: FieldSet) -> list[Conflict]:
        """The conflicts over fields that are not in a set."""
        return [conflict for conflict in self.conflicts if not has(allowed, conflict.path)]


class Updater:
    """The rules for writes in one version. `ignored` are fields that such writes do not change."""

    def __init__(self, versions: Versions, version: str, ignored: FieldSet = EMPTY) -> None:
        atom = versions.atom(version)
        if atom is None:
            raise MismatchError(f"there is no schema of the version {version} of the request")
        self._versions = versions
        self._version = version
        self._ignored = ignored
        self.atom = atom
        """The schema of the version."""

    def update(self, live: Object, new: Object, managed: Managed, manager: Manager) -> Managed:
        """Who owns what after `manager` has put `new` in the place of `live`.

        What the manager owned before is kept apart: its entry is what this write took.
        """
        found, comparison = self._settle(live, new, self._reconciled(managed), manager, force=True)
        mine = found[manager].fields if manager in found else EMPTY
        mine = difference(mine, comparison.removed)
        mine = union(union(mine, comparison.modified), comparison.added)
        mine = recursive_difference(mine, self._ignored)
        return _with(found, manager, Owned(mine, self._version))

    def apply(
        self, live: Object, config: Object, managed: Managed, manager: Manager, *, force: bool
    ) -> tuple[Object | None, Managed]:
        """The live object with a configuration applied, and who owns what then.

        The object is None where nothing changes. What the manager applied last time and leaves out now
        is removed, unless others own it.

        Raises:
            ConflictError: it changes fields of others, and is not forced.
        """
        known = self._reconciled(managed)
        merged: Object = merge(live, config, self.atom)
        last = known.get(manager)
        mine = recursive_difference(fields_of(config, self.atom), self._ignored)
        time = None if last is None else last.time
        known = {**known, manager: Owned(mine, self._version, time)}
        new = self._pruned(merged, known, last)
        found, _ = self._settle(live, new, known, manager, force=force)
        return (None if equal_json(live, new) else new), found

    def comparison(self, old: Object, new: Object) -> Comparison:
        """What differs between two objects of the version."""
        return compare(old, new, self.atom)

    def fields_of(self, obj: Object) -> FieldSet:
        """The fields that an object of the version says something of."""
        return fields_of(obj, self.atom)

    def _in(self, obj: Object, version: str) -> Object:
        if version == self._version:
            return obj
        return self._versions.convert(obj, self._version, version)

    def _reconciled(self, managed: Managed) -> Managed:
        """The managers after changes of the schema; those of versions that are gone are left out."""
        found = {}
        for manager, owned in managed.items():
            atom = self._versions.atom(owned.api_version)
            if atom is not None and self._versions.fixed:
                found[manager] = owned
            elif atom is not None:
                found[manager] = owned.of(reconciled(owned.fields, atom))
        return found

    def _settle(
        self, old: Object, new: Object, managed: Managed, manager: Manager, *, force: bool
    ) -> tuple[Managed, Comparison]:
        """Take from all others what a change of the object took from them."""
        mine = compare(old, new, self.atom).without(self._ignored)
        comparisons = {self._version: mine}
        found = dict(managed)
        conflicts: dict[Manager, FieldSet] = {}
        for other, owned in managed.items():
            if other == manager:
                continue
            version = owned.api_version
            if version not in comparisons:
                atom = self._versions.atom(version)
                if atom is None:
                    del found[other]
                    continue
                before, after = self._in(old, version), self._in(new, version)
                comparisons[version] = compare(before, after, atom).without(self._ignored)
            changed = comparisons[version]
            taken = intersection(owned.fields, union(changed.modified, changed.added))
            if taken:
                conflicts[other] = taken
            kept = difference(difference(owned.fields, taken), changed.removed)
            found[other] = owned.of(kept)
        if conflicts and not force:
            raise ConflictError(list(_conflicts(conflicts)))
        return {other: owned for other, owned in found.items() if owned.fields}, mine

    def _pruned(self, merged: Object, managed: Managed, last: Owned | None) -> Object:
        """The object without what its applier no longer says and nobody else owns."""
        if last is None or not last.fields:
            return merged
        version = last.api_version
        atom = self._versions.atom(version)
        if atom is None:
            return merged
        whole = self._in(merged, version)
        fields = with_named_fields(last.fields, atom)
        pruned = remove(whole, fields, atom)
        pruned = self._with_owned(whole, pruned, version, managed)
        # Of an object of which nothing is left there is still the object.
        pruned = _with_dangling(whole, pruned, last.fields, atom) or {}
        return (
            pruned
            if version == self._version
            else self._versions.convert(pruned, version, self._version)
        )

    def _with_owned(self, whole: Object, pruned: Object, version: str, managed: Managed) -> Object:
        """The pruned object with all that a manager owns; versions in the order of the API."""
        owned_in: dict[str, FieldSet] = {}
        for owned in managed.values():
            owned_in[owned.api_version] = union(
                owned_in.get(owned.api_version, EMPTY), owned.fields
            )
        others = [other for other in owned_in if other != version]
        for current in ([version] if version in owned_in else []) + others:
            atom = self._versions.atom(current)
            if atom is None:
                continue
            here = whole if current == version else self._versions.convert(whole, version, current)
            left = (
                pruned if current == version else self._versions.convert(pruned, version, current)
            )
            restored = _without_unowned(here, left, owned_in[current], atom)
            pruned = (
                restored
                if current == version
                else self._versions.convert(restored, current, version)
            )
        return pruned


def _without_unowned(whole: Any, pruned: Any, owned: FieldSet, atom: Atom) -> Any:
    """The whole object without what was pruned, as far as it is not owned."""
    all_fields = with_named_fields(fields_of(whole, atom), atom)
    kept = union(with_named_fields(fields_of(pruned, atom), atom), with_named_fields(owned, atom))
    return remove(whole, difference(all_fields, kept), atom)


def _with_dangling(whole: Any, pruned: Any, last: FieldSet, atom: Atom) -> Any:
    """The whole object without what was pruned, as far as its applier has owned it."""
    gone = difference(
        with_named_fields(fields_of(whole, atom), atom),
        with_named_fields(fields_of(pruned, atom), atom),
    )
    return remove(whole, intersection(gone, with_named_fields(last, atom)), atom)


def _conflicts(taken: Mapping[Manager, FieldSet]) -> Iterator[Conflict]:
    for manager, fields in taken.items():
        for path in paths(fields):
            yield Conflict(manager, path)


def _with(managed: Managed, manager: Manager, owned: Owned) -> Managed:
    rest = {other: entry for other, entry in managed.items() if other != manager}
    return {**rest, manager: owned} if owned.fields else rest
