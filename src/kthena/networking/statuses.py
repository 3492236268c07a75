"""Statuses of ModelServers and ModelRoutes: the view's conditions, written where they differ.

Only the replica that holds the lease runs these; all replicas route alike without them.
"""

from collections.abc import Iterable

from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.controller import Requeue
from kthena.kube.errors import NotFound
from kthena.kube.informer import Informer
from kthena.kube.status import patch_status
from kthena.machinery.conditions import Condition, remove_condition, set_condition
from kthena.machinery.objects import NamespacedName, Object
from kthena.networking.conditions import OWNED_TYPES
from kthena.networking.view import NetworkView


class RouteStatusController:
    """Writes the status of ModelRoutes."""

    name = "modelroute-status"

    def __init__(
        self, client: KubeClient, informer: Informer, view: NetworkView, clock: Clock
    ) -> None:
        self._client = client
        self._informer = informer
        self._view = view
        self._clock = clock

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Bring the status of one ModelRoute up to what the view says."""
        obj, conditions = self._informer.store.get(key), self._view.conditions_of_route(key)
        if obj is not None and conditions is not None:
            await _write(self._client, self._informer, obj, conditions, {}, self._clock)
        return None


class ServerStatusController:
    """Writes the status of ModelServers."""

    name = "modelserver-status"

    def __init__(
        self, client: KubeClient, informer: Informer, view: NetworkView, clock: Clock
    ) -> None:
        self._client = client
        self._informer = informer
        self._view = view
        self._clock = clock

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Bring the status of one ModelServer up to what the view says."""
        obj, found = self._informer.store.get(key), self._view.conditions_of_server(key)
        if obj is not None and found is not None:
            conditions, counts = found
            await _write(
                self._client, self._informer, obj, conditions, counts.as_status(), self._clock
            )
        return None


async def _write(
    client: KubeClient,
    informer: Informer,
    obj: Object,
    conditions: Iterable[Condition],
    fields: Object,
    clock: Clock,
) -> None:
    status = merge_conditions(obj.get("status") or {}, conditions, clock) | fields
    try:
        await patch_status(client, informer.resource, obj, status)
    except NotFound:
        return  # it is gone, and so is what there was to say


def merge_conditions(status: Object, reported: Iterable[Condition], clock: Clock) -> Object:
    """The status with the reported conditions in it, and without those of ours that are not."""
    found = {condition.type: condition for condition in reported}
    conditions: list[Object] = status.get("conditions") or []
    for owned in OWNED_TYPES:
        if owned in found:
            conditions = set_condition(conditions, found[owned], clock.now())
        else:
            conditions = remove_condition(conditions, owned)
    return {**status, "conditions": conditions}
