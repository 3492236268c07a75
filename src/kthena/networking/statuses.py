"""Statuses of ModelServers and ModelRoutes: the view's conditions, written where they differ.

Only the replica that holds the lease runs these; all replicas route alike without them.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import NamedTuple

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


class Reported(NamedTuple):
    """What the view says of one object: its conditions, and other fields of its status."""

    conditions: Iterable[Condition]
    fields: Object


class StatusController:
    """Writes the statuses of one kind; `find` tells what to write, or None for an unknown object."""

    def __init__(
        self,
        name: str,
        client: KubeClient,
        informer: Informer,
        find: Callable[[NamespacedName], Reported | None],
        clock: Clock,
    ) -> None:
        self.name = name
        self._client = client
        self._informer = informer
        self._find = find
        self._clock = clock

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Bring the status of one object up to what the view says."""
        obj, found = self._informer.store.get(key), self._find(key)
        if obj is None or found is None:
            return None
        status = merge_conditions(obj.get("status") or {}, found.conditions, self._clock)
        # An object that is gone has no status to write.
        with suppress(NotFound):
            await patch_status(self._client, self._informer.resource, obj, status | found.fields)
        return None


def routes_of(view: NetworkView) -> Callable[[NamespacedName], Reported | None]:
    """What the view says of ModelRoutes."""

    def find(key: NamespacedName) -> Reported | None:
        conditions = view.conditions_of_route(key)
        return None if conditions is None else Reported(conditions, {})

    return find


def servers_of(view: NetworkView) -> Callable[[NamespacedName], Reported | None]:
    """What the view says of ModelServers, with the counts of their endpoints."""

    def find(key: NamespacedName) -> Reported | None:
        found = view.conditions_of_server(key)
        return None if found is None else Reported(found[0], found[1].as_status())

    return find


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
