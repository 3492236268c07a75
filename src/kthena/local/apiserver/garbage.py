"""The garbage collector: objects go when their owners have gone, as owner references say.

The decisions are those of kube-controller-manager's collector. An object whose owners are all absent
is deleted; one with an owner left loses its references to absent ones. An owner deleted in the
foreground waits for dependents that block it, and its dependents go first; one deleted with orphaning
releases them. An owner is looked up by apiVersion, kind and name in the dependent's namespace (or
cluster-wide for cluster-scoped kinds) and must have the uid of the reference; a reference to a
kind that is not served decides nothing until it is, unless just that object was seen to go.

Mutable state: which objects refer to which uid, what those among these were that have been seen to go,
the terminating objects by uid, the dependents that each of them has yet to release, and the objects
whose owners are of unknown kinds; all of it follows from the changes of the store.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kthena.api.kubernetes import EVENTS
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.errors import ApiError
from kthena.local.apiserver.fieldmanagement import CONTROLLER_MANAGER
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.options import DeleteOptions, WriteOptions
from kthena.local.apiserver.ownership import OwnerState, Verdict, judge
from kthena.local.apiserver.registry import Registry, Write
from kthena.local.apiserver.store import Change, ChangeType, Entry, Key
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.machinery.metadata import FINALIZER_FOREGROUND, FINALIZER_ORPHAN
from kthena.machinery.objects import Object, is_terminating, metadata_of, name_of, uid_of


class Place(NamedTuple):
    """Where an object lives."""

    bucket: str
    key: Key


class _Identity(NamedTuple):
    """What an owner reference says of its owner, and where that is."""

    api_version: str
    kind: str
    name: str
    namespace: str


_IGNORED: Final = str(EVENTS)
"""Events come and go on their own."""

_RELEASED_AT_ONCE: Final = 32

_METADATA_ONLY: Final = PlainStrategy()


class GarbageCollector:
    """Follows the store and deletes what has lost its owners."""

    def __init__(self, registry: Registry, catalog: Catalog, background: Background) -> None:
        self._registry = registry
        self._catalog = catalog
        self._background = background
        self._dependents: dict[str, set[Place]] = defaultdict(set)
        self._owners: dict[Place, tuple[str, ...]] = {}
        self._waiting: dict[str, Place] = {}
        self._orphans: dict[str, list[Place]] = {}
        self._gone: dict[str, _Identity] = {}
        self._undecided: set[Place] = set()
        catalog.on_change(self._retry)

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        if change.bucket == _IGNORED:
            return
        place = Place(change.bucket, change.entry.key)
        if change.type is ChangeType.DELETED:
            self._forget(place, obj)
            return
        references = metadata_of(obj).get("ownerReferences") or ()
        uids = tuple(reference["uid"] for reference in references)
        if uids != self._owners.get(place, ()):
            self._index(place, uids)
            self._background.add(self._check, place)
        else:
            self._settle_waiting(uids)
        if is_terminating(obj):
            self._waiting[uid_of(obj)] = place
            self._background.add(self._settle_owner, place)

    def _index(self, place: Place, uids: tuple[str, ...]) -> None:
        before = self._owners.pop(place, ())
        for uid in before:
            self._dependents[uid].discard(place)
            if not self._dependents[uid]:
                del self._dependents[uid]
                self._gone.pop(uid, None)
        for uid in uids:
            self._dependents[uid].add(place)
        if uids:
            self._owners[place] = uids
        self._settle_waiting(before)

    def _settle_waiting(self, uids: tuple[str, ...]) -> None:
        """Look again at terminating owners: one of their dependents has changed."""
        for uid in uids:
            if uid in self._waiting:
                self._background.add(self._settle_owner, self._waiting[uid])

    def _forget(self, place: Place, obj: Object) -> None:
        self._index(place, ())
        self._undecided.discard(place)
        self._waiting.pop(uid_of(obj), None)
        self._orphans.pop(uid_of(obj), None)
        if self._dependents.get(uid_of(obj)):
            # With the last object of a kind its CRD may go, and then nobody can ask for the owner.
            kind = self._catalog.find_by_bucket(place.bucket)
            if kind is not None:
                self._gone[uid_of(obj)] = _Identity(
                    kind.resource.api_version, kind.resource.kind, name_of(obj), place.key.namespace
                )
        for dependent in self._dependents.get(uid_of(obj), ()):
            self._background.add(self._check, dependent)

    def _retry(self) -> None:
        """Look again at what depends on kinds that were not served."""
        for place in self._undecided:
            self._background.add(self._check, place)
        self._undecided.clear()

    def _find_owner(self, reference: Object, namespace: str) -> Place | None:
        kind = self._catalog.find_by_kind(reference["apiVersion"], reference["kind"])
        if kind is None:
            return None
        scope = namespace if kind.resource.namespaced else ""
        return Place(kind.bucket, Key(scope, reference["name"]))

    def _state(self, reference: Object, namespace: str) -> OwnerState:
        owner = self._find_owner(reference, namespace)
        if owner is None:
            gone = self._gone.get(reference["uid"])
            named = (reference["apiVersion"], reference["kind"], reference["name"])
            was_it = gone in (_Identity(*named, ""), _Identity(*named, namespace))
            return OwnerState.ABSENT if was_it else OwnerState.UNKNOWN
        if not namespace and self._is_namespaced(owner.bucket):
            return OwnerState.UNKNOWN
        entry = self._registry.store.get(owner.bucket, owner.key)
        if entry is None or entry.uid != reference["uid"]:
            return OwnerState.ABSENT
        if self._terminates_with(entry, FINALIZER_FOREGROUND):
            return OwnerState.WAITING
        return OwnerState.SOLID

    def _is_namespaced(self, bucket: str) -> bool:
        kind = self._catalog.find_by_bucket(bucket)
        return kind is not None and kind.resource.namespaced

    @staticmethod
    def _terminates_with(entry: Entry, finalizer: str) -> bool:
        if finalizer.encode() not in entry.data:
            # Owners are often large, and looked at for each of their dependents.
            return False
        obj = entry.decode()
        return is_terminating(obj) and finalizer in (metadata_of(obj).get("finalizers") or ())

    def _check(self, place: Place) -> None:
        """Decide on one dependent, and act."""
        entry, kind = self._find(place)
        if entry is None or kind is None:
            return
        obj = entry.decode()
        if is_terminating(obj):
            return
        references = metadata_of(obj).get("ownerReferences") or ()
        states: dict[str, OwnerState] = {}
        for reference in references:
            state = self._state(reference, place.key.namespace)
            # Two references with one uid: what is unknown of either forbids a decision.
            if states.get(reference["uid"]) is not OwnerState.UNKNOWN:
                states[reference["uid"]] = state
        if OwnerState.UNKNOWN in states.values():
            self._undecided.add(place)
        judgement = judge(states)
        if judgement.verdict is Verdict.RELEASE:
            self._edit(kind, entry, _without_owners(judgement.dropped))
        elif judgement.verdict is Verdict.DELETE:
            awaited = judgement.awaited and bool(self._dependents.get(entry.uid))
            self._delete(kind, entry, obj, foreground=awaited)

    def _find(self, place: Place) -> tuple[Entry | None, Kind | None]:
        entry = self._registry.store.get(place.bucket, place.key)
        return entry, self._catalog.find_by_bucket(place.bucket)

    def _delete(self, kind: Kind, entry: Entry, obj: Object, *, foreground: bool) -> None:
        finalizers = metadata_of(obj).get("finalizers") or ()
        policy = "Background"
        if foreground or FINALIZER_FOREGROUND in finalizers:
            policy = "Foreground"
        elif FINALIZER_ORPHAN in finalizers:
            policy = "Orphan"
        options = DeleteOptions(propagation=policy, uid=entry.uid)
        self._attempt(lambda: self._registry.delete(kind, entry.key, options))

    def _settle_owner(self, place: Place) -> None:
        """Carry out what the finalizers of a terminating owner stand for."""
        entry, kind = self._find(place)
        if entry is None or kind is None:
            return
        if self._terminates_with(entry, FINALIZER_ORPHAN):
            self._orphan(kind, entry)
        elif self._terminates_with(entry, FINALIZER_FOREGROUND):
            self._delete_dependents(kind, entry)

    def _orphan(self, kind: Kind, owner: Entry) -> None:
        """Release dependents, some at a time; then let the owner go."""
        if owner.uid not in self._orphans:
            self._orphans[owner.uid] = list(self._dependents.get(owner.uid, ()))
        waiting = self._orphans[owner.uid]
        for _ in range(min(_RELEASED_AT_ONCE, len(waiting))):
            place = waiting.pop()
            entry, dependent_kind = self._find(place)
            if entry is not None and dependent_kind is not None:
                self._edit(dependent_kind, entry, _without_owners(frozenset({owner.uid})))
        if waiting:
            self._background.add(self._settle_owner, self._waiting[owner.uid])
            return
        del self._orphans[owner.uid]
        self._edit(kind, owner, _without_finalizer(FINALIZER_ORPHAN))

    def _delete_dependents(self, kind: Kind, owner: Entry) -> None:
        blocked = False
        for place in tuple(self._dependents.get(owner.uid, ())):
            entry, _ = self._find(place)
            if entry is None:
                continue
            obj = entry.decode()
            blocked = blocked or _blocks(obj, owner.uid)
            if not is_terminating(obj):
                self._background.add(self._check, place)
        if not blocked:
            self._edit(kind, owner, _without_finalizer(FINALIZER_FOREGROUND))

    def _edit(self, kind: Kind, entry: Entry, change: Callable[[Object], None]) -> None:
        """Change metadata of an object."""

        def transform(old: Object | None) -> Object:
            new = {**(old or {}), "metadata": dict(metadata_of(old or {}))}
            change(new["metadata"])
            return new

        write = Write(WriteOptions(field_manager=CONTROLLER_MANAGER))
        self._attempt(
            lambda: self._registry.update(kind, entry.key, transform, _METADATA_ONLY, write)
        )

    @staticmethod
    def _attempt(action: Callable[[], Any]) -> None:
        """An object that is already gone, or may not be changed, is left alone."""
        try:
            action()
        except ApiError as exc:
            if exc.code not in (403, 404, 409):
                raise


def _blocks(obj: Object, uid: str) -> bool:
    return any(
        reference["uid"] == uid and reference.get("blockOwnerDeletion")
        for reference in metadata_of(obj).get("ownerReferences") or ()
    )


def _without_owners(uids: frozenset[str]) -> Callable[[Object], None]:
    def change(meta: Object) -> None:
        references = meta.get("ownerReferences") or ()
        rest = [reference for reference in references if reference["uid"] not in uids]
        _set_or_drop(meta, "ownerReferences", rest)

    return change


def _without_finalizer(name: str) -> Callable[[Object], None]:
    def change(meta: Object) -> None:
        rest = [finalizer for finalizer in meta.get("finalizers") or () if finalizer != name]
        _set_or_drop(meta, "finalizers", rest)

    return change


def _set_or_drop(meta: Object, name: str, value: list[Any]) -> None:
    if value:
        meta[name] = value
    else:
        meta.pop(name, None)
