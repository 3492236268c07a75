"""The end of a namespace: its content goes, then its finalizer, then it.

The work of kube-controller-manager's namespace controller. Objects are deleted as a client would
delete them, so those with finalizers, and pods that have to stop, hold the namespace until they are
gone; nothing else goes before the pods have gone. What is left is told in the conditions of the
namespace. An object that cannot be deleted is tried again later, ever more seldom.
"""

from typing import Final

import msgspec

from kthena.api.kubernetes import NAMESPACES, PODS
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.builtins.core import NAMESPACE_FINALIZER, NamespaceFinalizeStrategy
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.errors import ApiError
from kthena.local.apiserver.fieldmanagement import CONTROLLER_MANAGER
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.namespaceconditions import Remainder
from kthena.local.apiserver.options import DeleteOptions, WriteOptions
from kthena.local.apiserver.registry import Registry, Write
from kthena.local.apiserver.store import Change, Entry, Key
from kthena.local.apiserver.strategies import StatusStrategy
from kthena.machinery.objects import Object, is_terminating

BUCKET: Final = str(NAMESPACES)
FIRST_RETRY_S: Final = 0.1
LAST_RETRY_S: Final = 60.0

_POD_BUCKET: Final = str(PODS)
_DELETED_AT_ONCE: Final = 64
_BACKGROUND: Final = DeleteOptions(propagation="Background")
_STATUS: Final = StatusStrategy()


class _Metadata(msgspec.Struct):
    """What decides on an object; the rest of it is not decoded."""

    deletionTimestamp: str = ""  # noqa: N815 - the name in the API
    finalizers: list[str] = []


class _Outline(msgspec.Struct):
    metadata: _Metadata


_OUTLINES: Final = msgspec.json.Decoder(_Outline)


class NamespaceController:
    """Mutable state: the namespaces that are terminating, and how long each waits after a failure."""

    def __init__(self, registry: Registry, catalog: Catalog, background: Background) -> None:
        self._registry = registry
        self._catalog = catalog
        self._background = background
        self._terminating: set[str] = set()
        self._delays: dict[str, float] = {}

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        if change.bucket == BUCKET and is_terminating(obj):
            self._terminating.add(change.entry.key.name)
            self._background.add(self.sync, change.entry.key.name)
        elif change.entry.key.namespace in self._terminating:
            self._background.add(self.sync, change.entry.key.namespace)

    def sync(self, name: str) -> None:
        """Empty a terminating namespace; let it go when it is empty."""
        kind = self._catalog.find_by_bucket(BUCKET)
        entry = self._registry.store.get(BUCKET, Key("", name))
        if entry is None or kind is None:
            self._terminating.discard(name)
            self._delays.pop(name, None)
            return
        if NAMESPACE_FINALIZER not in (entry.decode()["spec"].get("finalizers") or ()):
            return
        try:
            failed = self._advance(kind, name)
        except ApiError:
            failed = True
        if failed:
            delay_s = self._delays.get(name, FIRST_RETRY_S)
            self._delays[name] = min(2 * delay_s, LAST_RETRY_S)
            self._background.add_later(self.sync, name, delay_s)

    def _advance(self, kind: Kind, name: str) -> bool:
        """Take the next step; whether something failed.

        Raises:
            ApiError: the namespace cannot be written.
        """
        remainder = Remainder()
        kinds = self._catalog.namespaced()
        pods = [each for each in kinds if each.bucket == _POD_BUCKET]
        others = [each for each in kinds if each.bucket != _POD_BUCKET]
        room = self._delete(name, pods, remainder, _DELETED_AT_ONCE)
        wait_for_pods = bool(self._registry.store.list(_POD_BUCKET, name))
        if not wait_for_pods:
            room = self._delete(name, others, remainder, room)
        if room < _DELETED_AT_ONCE and not remainder.failures:
            # Some have gone, and there may be more.
            self._background.add(self.sync, name)
            return False
        # The controller tells of the rest only when it comes to it.
        told = remainder
        if wait_for_pods:
            why = f"failed to delete pods for namespace: {name}, err: "
            told = Remainder(failures=[f"{why}{failure}" for failure in remainder.failures])
        self._write_conditions(kind, name, told)
        if remainder.failures:
            return True
        if not remainder.instances:
            write = Write(WriteOptions(field_manager=CONTROLLER_MANAGER), subresource="finalize")
            strategy = NamespaceFinalizeStrategy()
            self._registry.update(kind, Key("", name), _finalized, strategy, write)
        return False

    def _delete(self, name: str, kinds: list[Kind], remainder: Remainder, room: int) -> int:
        """Delete objects of some kinds, no more than there is room for; the room that is left.

        What stays is added to the remainder; of a kind that fails, the failure.
        """
        for kind in kinds:
            held: list[list[str]] = []
            failure = ""
            for entry in self._registry.store.list(kind.bucket, name):
                outline = _OUTLINES.decode(entry.data).metadata
                if outline.deletionTimestamp:
                    held.append(outline.finalizers)
                elif room:
                    problem = self._delete_object(kind, entry)
                    failure = failure or problem
                    room -= 1
            if failure:
                remainder.failures.append(failure)
                continue
            for finalizers in held:
                remainder.add(kind.resource, finalizers)
        return room

    def _delete_object(self, kind: Kind, entry: Entry) -> str:
        """Delete an object; why that is not possible, or nothing."""
        try:
            self._registry.delete(kind, entry.key, _BACKGROUND)
        except ApiError as exc:
            # Gone meanwhile, with its owner or by its CRD.
            return "" if exc.code in (404, 409) else exc.message
        return ""

    def _write_conditions(self, kind: Kind, name: str, remainder: Remainder) -> None:
        def transform(old: Object | None) -> Object:
            new = dict(old or {})
            status = new.get("status") or {}
            before = status.get("conditions") or ()
            after = remainder.conditions(before, self._registry.now())
            new["status"] = {**status, "conditions": after}
            return new

        write = Write(WriteOptions(field_manager=CONTROLLER_MANAGER), subresource="status")
        self._registry.update(kind, Key("", name), transform, _STATUS, write)


def _finalized(old: Object | None) -> Object:
    new = dict(old or {})
    finalizers = new["spec"].get("finalizers") or ()
    rest = [finalizer for finalizer in finalizers if finalizer != NAMESPACE_FINALIZER]
    new["spec"] = {**new["spec"], "finalizers": rest}
    if not rest:
        del new["spec"]["finalizers"]
    return new
