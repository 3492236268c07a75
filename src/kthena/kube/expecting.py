"""Writing with expectations: what a controller writes for a key, and until when the key has to wait.

Each call notes what it is about to change before the request is sent, and takes the note back where
the server refused. Where nobody knows whether the request was carried out the note stays, so that
nothing rests on caches that may lack it. The exception are creations that may be `repeated`.
"""

from collections.abc import Mapping
from typing import Any, Final

from kthena.kube.client import DeleteParams, KubeClient, PatchType
from kthena.kube.client.options import Propagation
from kthena.kube.clock import Clock
from kthena.kube.errors import ApiError, ConnectionFailed, NotFound, ServerTimeout
from kthena.kube.expectations import Expectations
from kthena.kube.informer import Change
from kthena.kube.status import patch_status
from kthena.kube.store import Store
from kthena.machinery.objects import NamespacedName, Object, key_of
from kthena.machinery.resources import Resource

UNCERTAIN: Final = (ConnectionFailed, ServerTimeout)
"""Errors after which nobody knows whether the request was carried out."""


class ExpectingClient:
    """The writes of one controller. Everything is noted for the key that it is done for.

    `stores` are those that the controller decides from. Every method may raise any `ApiError`.
    """

    def __init__(
        self, client: KubeClient, stores: Mapping[Resource, Store], clock: Clock | None = None
    ) -> None:
        self._client = client
        self._stores = stores
        self._expectations: Expectations[NamespacedName] = Expectations(clock)

    def wait_s(self, key: NamespacedName) -> float:
        """Seconds until the key may be acted on at the latest; 0 when the stores show its writes."""
        if self._expectations.wait_s(key) <= 0:
            return 0.0
        for resource, name in self._expectations.awaited(key):
            cached = self._stores[resource].get(name)
            if cached is not None:
                self._expectations.see(key, resource, cached)
        return self._expectations.wait_s(key)

    def observe(self, key: NamespacedName, resource: Resource, change: Change) -> bool:
        """Call with every change to an object of this key, before the key is queued.

        Returns whether the key was waiting: it may go on now, so it has to be queued whatever else
        the change means to it.
        """
        # What the stores hold does not count here: they show this change already.
        waited = self._expectations.wait_s(key) > 0
        self._expectations.observe(key, resource, change)
        return waited

    def forget(self, key: NamespacedName) -> None:
        """The object of this key is gone: nothing is expected for it."""
        self._expectations.forget(key)

    def expect(self, key: NamespacedName, resource: Resource, live: Object) -> None:
        """The key waits until this object, as the server has it now, is seen."""
        self._expectations.expect_version(key, resource, live)

    async def create(
        self, key: NamespacedName, resource: Resource, obj: Object, *, repeated: bool = False
    ) -> Object:
        """The object as stored; the key waits until it is seen.

        `repeated` says that the same thing always gets the same name. When the outcome is unknown
        the key then need not wait: a second create is answered with `AlreadyExists`.
        """
        name = key_of(obj)
        self._expectations.expect_creation(key, resource, name)
        try:
            return await self._client.create(resource, obj)
        except ApiError as error:
            if repeated or not isinstance(error, UNCERTAIN):
                self._expectations.creation_failed(key, resource, name)
            raise

    async def delete(
        self,
        key: NamespacedName,
        resource: Resource,
        name: NamespacedName,
        uid: str,
        propagation: Propagation | None = None,
    ) -> None:
        """Delete the object if it has this UID; the key waits until it is seen to go.

        One that is gone already is what was wanted.
        """
        self._expectations.expect_deletion(key, uid)
        params = DeleteParams(uid=uid, propagation=propagation)
        try:
            await self._client.delete(resource, name.name, name.namespace, params)
        except NotFound:
            self._expectations.deletion_failed(key, uid)
        except ApiError as error:
            if not isinstance(error, UNCERTAIN):
                self._expectations.deletion_failed(key, uid)
            raise

    async def patch(
        self, key: NamespacedName, resource: Resource, name: NamespacedName, body: Any
    ) -> Object:
        """Merge the body into the object; the key waits until the result is seen."""
        patched = await self._client.patch(
            resource, name.name, name.namespace, body, PatchType.MERGE
        )
        self.expect(key, resource, patched)
        return patched

    async def patch_status(
        self, key: NamespacedName, resource: Resource, obj: Object, status: dict[str, Any]
    ) -> Object:
        """`kube.status.patch_status`; the key waits until what was written is seen."""
        written = await patch_status(self._client, resource, obj, status)
        if written is not obj:
            self.expect(key, resource, written)
        return written
