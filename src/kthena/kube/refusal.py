"""The status of kinds that nothing implements: refused in their status, never ignored.

Each plane runs one of these controllers for every kind of its own that `api.unsupported` lists as a
whole, so that whoever creates such an object is told.
"""

from kthena.api.conditions import ACCEPTED, READY, STALLED
from kthena.api.unsupported import REASON, unsupported_fields
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.controller import Requeue
from kthena.kube.errors import NotFound
from kthena.kube.informer import Informer
from kthena.kube.status import patch_status
from kthena.machinery.conditions import FALSE, TRUE, Condition, set_condition
from kthena.machinery.objects import NamespacedName, Object, generation_of


class RefusedKindController:
    """Writes `Accepted=False` with the reason `NotSupported` on every object of one kind."""

    def __init__(self, client: KubeClient, informer: Informer, clock: Clock) -> None:
        self.name = f"{informer.resource.kind.lower()}-refusal"
        self._client = client
        self._informer = informer
        self._clock = clock

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """Write the refusal on the object, unless it is there."""
        obj = self._informer.store.get(key)
        if obj is None:
            return None
        old = obj.get("status") or {}
        conditions: list[Object] = old.get("conditions") or []
        for condition in refused_conditions(obj):
            conditions = set_condition(conditions, condition, self._clock.now())
        try:
            await patch_status(
                self._client, self._informer.resource, obj, {**old, "conditions": conditions}
            )
        except NotFound:
            return None  # it is gone, and so is what there was to say
        return None


def refused_conditions(obj: Object) -> tuple[Condition, ...]:
    """The conditions of an object of which nothing is done."""
    message = "; ".join(map(str, unsupported_fields(obj)))
    generation = generation_of(obj)
    return (
        Condition(ACCEPTED, FALSE, REASON, message, generation),
        Condition(READY, FALSE, REASON, message, generation),
        Condition(STALLED, TRUE, REASON, message, generation),
    )
