"""What a server does with `metadata.managedFields` at each write.

`Tracker.record` is for creates, updates and patches: it says who owns what then, and never refuses.
`Tracker.apply` is server-side apply: it makes the new object. Both are apimachinery's field manager:
metadata that the server sets is nobody's, an object without managers gets none by updates, and one that
was made by client-side apply is taken over without conflicts by kubectl's server-side apply.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from kthena.machinery.managedfields.comparison import MismatchError
from kthena.machinery.managedfields.conformance import find_problems, problems_text
from kthena.machinery.managedfields.elements import ElementError
from kthena.machinery.managedfields.entries import (
    EntryError,
    Managed,
    Manager,
    Owned,
    applier,
    capped,
    read_entries,
    updater,
    write_entries,
)
from kthena.machinery.managedfields.fieldsets import EMPTY, FieldSet, difference, of_path, union
from kthena.machinery.managedfields.updater import Conflict, ConflictError, Updater, Versions
from kthena.machinery.metadata import annotations_fit
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_KUBECTL: Final = "kubectl"
_BEFORE_APPLY: Final = "before-first-apply"
_CURRENT: Final = Manager("current-operation", "Update", "")
_SET_BY_SERVER: Final = (
    *("name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation"),
    *("managedFields", "resourceVersion"),
)


def _unowned() -> FieldSet:
    found: FieldSet = EMPTY
    for path in (["apiVersion"], ["kind"], ["metadata"]):
        found = union(found, of_path([f"f:{name}" for name in path]))
    for name in _SET_BY_SERVER:
        found = union(found, of_path(["f:metadata", f"f:{name}"]))
    return found


_UNOWNED: Final = _unowned()


class ApplyError(Exception):
    """A configuration that cannot be applied; `is_request_wrong` tells a bad request from a failure."""

    def __init__(self, text: str, *, is_request_wrong: bool = False) -> None:
        super().__init__(text)
        self.is_request_wrong = is_request_wrong


class ApplyConflictError(Exception):
    """A configuration that changes fields of other managers."""

    def __init__(self, conflicts: Sequence[Conflict]) -> None:
        super().__init__(conflicts)
        self.conflicts = conflicts


@dataclass(frozen=True, slots=True)
class Tracker:
    """Follows the writes to one resource in one version, or to one of its subresources.

    `empty` is what an object of the kind is before anything is set, `ignored` what such writes do not
    change, `now` the time that entries get.
    """

    resource: Resource
    subresource: str
    versions: Versions
    empty: Object
    ignored: FieldSet
    now: str

    @property
    def _version(self) -> str:
        return self.resource.api_version

    def _updater(self) -> Updater:
        return Updater(self.versions, self._version, self.ignored)

    def record(self, live: Object | None, new: Object, name: str) -> list[dict[str, Any]]:
        """The entries of `new`, which `name` puts in the place of `live`; None where it is created.

        What `new` says of managers counts, where it can be read and the write is to the whole object.
        """
        given = None if self.subresource else _entries_of(new)
        before = _entries_of(live) if live is not None else None
        managed = _managed_by(given, before)
        if not managed and live is not None:
            return []
        try:
            managed = self._record(live, new, managed, name)
        except (MismatchError, ElementError):
            # An object that does not fit its schema is nobody's; validation says what is wrong.
            return []
        return write_entries(managed)

    def _record(self, live: Object | None, new: Object, managed: Managed, name: str) -> Managed:
        old = self.empty if live is None else live
        manager = updater(name, self._version, self.subresource)
        found = dict(self._updater().update(_bare(old), _bare(new), managed, _CURRENT))
        taken = found.pop(_CURRENT, None)
        fields = EMPTY if taken is None else difference(taken.fields, _UNOWNED)
        if fields:
            previous = found.get(manager)
            if previous is not None:
                fields = union(fields, previous.fields)
            found[manager] = Owned(fields, self._version, self.now)
        return capped(found)

    def apply(
        self, live: Object | None, config: Object, name: str, *, force: bool
    ) -> tuple[Object, list[dict[str, Any]]]:
        """The object with the configuration applied, and its entries.

        Raises:
            ApplyError: the configuration, or the live object, does not fit.
            ApplyConflictError: it changes fields of others, and is not forced.
        """
        self._check_config(config)
        old = self.empty if live is None else live
        try:
            managed = read_entries(_entries_of(old), trusted=True)
        except EntryError as exc:
            raise ApplyError(f"failed to decode managed fields: {exc}") from exc
        if not managed and live is not None:
            managed = self._record(None, live, {}, _BEFORE_APPLY)
        bare = _bare(old)
        try:
            new, managed = self._apply(bare, config, managed, name, force=force)
        except ConflictError as exc:
            allowed = self._owned_by_client_side_apply(bare) if name == _KUBECTL else None
            conflicts = exc.conflicts if allowed is None else exc.beyond(allowed)
            if conflicts:
                raise ApplyConflictError(conflicts) from exc
            new, managed = self._apply(bare, config, managed, name, force=True)
        if name == _KUBECTL:
            _renew_last_applied(new, config)
        return new, write_entries(managed)

    def _check_config(self, config: Object) -> None:
        api_version, kind = str(config.get("apiVersion") or ""), str(config.get("kind") or "")
        if (api_version, kind) != (self._version, self.resource.kind):
            raise ApplyError(
                f"invalid object type: {_kind_text(api_version, kind)}", is_request_wrong=True
            )
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
            raise ApplyError("metadata.managedFields must be nil", is_request_wrong=True)
        problems = find_problems(config, self._updater().atom)
        if problems:
            raise ApplyError(
                f"failed to create typed patch object ({describe(config, self.resource)}): "
                f"{problems_text(problems)}"
            )

    def _apply(
        self, live: Object, config: Object, managed: Managed, name: str, *, force: bool
    ) -> tuple[Object, Managed]:
        manager = applier(name, self.subresource)
        try:
            new, found = self._updater().apply(live, config, managed, manager, force=force)
        except (MismatchError, ElementError) as exc:
            raise ApplyError(str(exc)) from exc
        kept = dict(found)
        mine = kept.get(manager)
        if mine is not None:
            fields = difference(mine.fields, _UNOWNED)
            time = mine.time if new is None else self.now
            if fields:
                kept[manager] = Owned(fields, mine.api_version, time)
            else:
                del kept[manager]
        return (live if new is None else new), kept

    def _owned_by_client_side_apply(self, live: Object) -> FieldSet | None:
        """What `kubectl apply` has written and is still so; None where that cannot be told."""
        annotations = (live.get("metadata") or {}).get("annotations") or {}
        try:
            last = msgspec.json.decode(annotations.get(LAST_APPLIED) or "")
        except msgspec.DecodeError:
            return None
        if not isinstance(last, dict) or last.get("apiVersion") != self._version:
            return None
        updates = self._updater()
        if find_problems(last, updates.atom):
            return None
        return updates.comparison(last, live).unchanged(updates.fields_of(last))


def _entries_of(obj: Object) -> Any:
    return (obj.get("metadata") or {}).get("managedFields")


def _managed_by(given: Any, before: Any) -> Managed:
    """The managers that a client gives; those from before where it gives none, or what is none."""
    if _is_reset(given):
        return {}
    if given and given != before:
        try:
            return read_entries(given)
        except EntryError:
            pass
    try:
        return read_entries(before, trusted=True)
    except EntryError:
        return {}


def _is_reset(entries: Any) -> bool:
    """Whether a client asks to forget all managers: an empty list, or one entry that says nothing."""
    if entries is None:
        return False
    return not entries or (len(entries) == 1 and not any(entries[0].values()))


def _bare(obj: Object) -> Object:
    """The object without its entries."""
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**obj, "metadata": kept}


def _renew_last_applied(obj: Object, config: Object) -> None:
    """Bring what client-side apply has left up to date, in place, where it has left anything."""
    metadata = obj.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return
    applied_metadata = dict(config.get("metadata") or {})
    if applied_metadata.get("annotations"):
        others = dict(applied_metadata["annotations"])
        others.pop(LAST_APPLIED, None)
        applied_metadata["annotations"] = others
    body = {**config, "metadata": applied_metadata}
    text = msgspec.json.encode(body, order="deterministic").decode() + "\n"
    renewed = {**annotations, LAST_APPLIED: text}
    if not annotations_fit(renewed):
        renewed.pop(LAST_APPLIED)
    obj["metadata"] = {**metadata, "annotations": renewed}


def kind_text(resource: Resource) -> str:
    """A kind as Go shows it: group, version and kind."""
    return _kind_text(resource.api_version, resource.kind)


def _kind_text(api_version: str, kind: str) -> str:
    group, slash, version = api_version.rpartition("/")
    return f"{group if slash else ''}/{version}, Kind={kind}"


def describe(obj: Object, resource: Resource) -> str:
    """An object as errors of apply name it: namespace, name and kind."""
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name, namespace = (
        value if isinstance(value := metadata.get(field), str) else ""
        for field in ("name", "namespace")
    )
    return f"{namespace}/{name}; {kind_text(resource)}"
