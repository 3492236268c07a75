"""The end of a PersistentVolumeClaim: it goes when no pod uses it.

The work of kube-controller-manager's protection of claims: a terminating claim loses the finalizer
that admission gave it as soon as no unfinished pod names it.
"""

from typing import Final

from kthena.api.kubernetes import PODS
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.builtins.claims import PROTECTION, RESOURCE
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.fieldmanagement import CONTROLLER_MANAGER
from kthena.local.apiserver.options import WriteOptions
from kthena.local.apiserver.registry import Registry, Write
from kthena.local.apiserver.store import Change, Key
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.machinery.objects import Object, is_terminating

BUCKET: Final = str(RESOURCE)
_POD_BUCKET: Final = str(PODS)
_FINISHED: Final = ("Succeeded", "Failed")
_METADATA_ONLY: Final = PlainStrategy()


class ClaimProtection:
    """Mutable state: the terminating claims that keep the finalizer."""

    def __init__(self, registry: Registry, catalog: Catalog, background: Background) -> None:
        self._registry = registry
        self._catalog = catalog
        self._background = background
        self._waiting: set[Key] = set()

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        key = change.entry.key
        if change.bucket == BUCKET and is_terminating(obj):
            self._waiting.add(key)
            self._background.add(self.sync, key)
        elif change.bucket == _POD_BUCKET and self._waiting:
            for claim in self._waiting:
                if claim.namespace == key.namespace:
                    self._background.add(self.sync, claim)

    def sync(self, key: Key) -> None:
        """Let a terminating claim go that no pod uses."""
        entry = self._registry.store.get(BUCKET, key)
        kind = self._catalog.find_by_bucket(BUCKET)
        metadata = {} if entry is None else entry.decode()["metadata"]
        if kind is None or PROTECTION not in (metadata.get("finalizers") or ()):
            self._waiting.discard(key)
            return
        if not metadata.get("deletionTimestamp") or self._is_used(key):
            return
        self._waiting.discard(key)
        write = Write(WriteOptions(field_manager=CONTROLLER_MANAGER))
        self._registry.update(kind, key, _unprotected, _METADATA_ONLY, write)

    def _is_used(self, key: Key) -> bool:
        pods = self._registry.store.list(_POD_BUCKET, key.namespace)
        return any(_uses(entry.decode(), key.name) for entry in pods)


def _uses(pod: Object, claim: str) -> bool:
    if (pod.get("status") or {}).get("phase") in _FINISHED:
        return False
    return any(
        (volume.get("persistentVolumeClaim") or {}).get("claimName") == claim
        for volume in pod["spec"].get("volumes") or ()
    )


def _unprotected(old: Object | None) -> Object:
    new = dict(old or {})
    metadata = dict(new["metadata"])
    rest = [name for name in metadata.get("finalizers") or () if name != PROTECTION]
    if rest:
        metadata["finalizers"] = rest
    else:
        metadata.pop("finalizers", None)
    new["metadata"] = metadata
    return new
