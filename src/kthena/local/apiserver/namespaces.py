"""The end of a namespace: its content goes, then its finalizer, then it.

The work of kube-controller-manager's namespace controller. Objects are deleted as a client would
delete them, so those with finalizers, and pods that have to stop, hold the namespace until they are
gone.
"""

from typing import Final

from kthena.api.kubernetes import NAMESPACES
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.builtins.core import NAMESPACE_FINALIZER, NamespaceFinalizeStrategy
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.errors import ApiError
from kthena.local.apiserver.fieldmanagement import CONTROLLER_MANAGER
from kthena.local.apiserver.options import DeleteOptions, WriteOptions
from kthena.local.apiserver.registry import Registry, Write
from kthena.local.apiserver.store import Change, Key
from kthena.machinery.objects import Object, is_terminating

BUCKET: Final = str(NAMESPACES)
_DELETED_AT_ONCE: Final = 64
_BACKGROUND: Final = DeleteOptions(propagation="Background")


class NamespaceController:
    """Mutable state: the namespaces that are terminating."""

    def __init__(self, registry: Registry, catalog: Catalog, background: Background) -> None:
        self._registry = registry
        self._catalog = catalog
        self._background = background
        self._terminating: set[str] = set()

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        if change.bucket == BUCKET and is_terminating(obj):
            self._terminating.add(change.entry.key.name)
            self._background.add(self.sync, change.entry.key.name)
        elif change.entry.key.namespace in self._terminating:
            self._background.add(self.sync, change.entry.key.namespace)

    def sync(self, name: str) -> None:
        """Empty a terminating namespace; let it go when it is empty."""
        entry = self._registry.store.get(BUCKET, Key("", name))
        if entry is None:
            self._terminating.discard(name)
            return
        if self._delete_content(name):
            return
        kind = self._catalog.find_by_bucket(BUCKET)
        if kind is not None:
            write = Write(WriteOptions(field_manager=CONTROLLER_MANAGER), subresource="finalize")
            strategy = NamespaceFinalizeStrategy()
            self._registry.update(kind, entry.key, _finalized, strategy, write)

    def _delete_content(self, name: str) -> bool:
        """Delete what is left, some at a time; whether anything is."""
        store, found, deleted = self._registry.store, False, 0
        for kind in self._catalog.namespaced():
            for entry in store.list(kind.bucket, name):
                found = True
                if is_terminating(entry.decode()):
                    continue
                if deleted == _DELETED_AT_ONCE:
                    self._background.add(self.sync, name)
                    return True
                deleted += 1
                try:
                    self._registry.delete(kind, entry.key, _BACKGROUND)
                except ApiError:
                    # Gone meanwhile, with its owner or by its CRD.
                    continue
        if found and deleted:
            self._background.add(self.sync, name)
        return found


def _finalized(old: Object | None) -> Object:
    new = dict(old or {})
    finalizers = new["spec"].get("finalizers") or ()
    rest = [finalizer for finalizer in finalizers if finalizer != NAMESPACE_FINALIZER]
    new["spec"] = {**new["spec"], "finalizers": rest}
    if not rest:
        del new["spec"]["finalizers"]
    return new
