"""The ModelServing controller: collects what can be observed, plans, carries out, says how it went.

Nothing is decided here. What this module remembers (own writes that the caches do not show yet, the
last states for events) only saves work: without it the next plan comes to the same end.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kthena.api.meta import DecodeError
from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, SystemClock
from kthena.kube.controller import ControllerRunner, Requeue
from kthena.kube.errors import ApiError, NotFound
from kthena.kube.events import EventRecorder
from kthena.kube.expecting import ExpectingClient
from kthena.kube.informer import Change, Informer
from kthena.kube.metrics import KubeMetrics
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    is_terminating,
    key_of,
    metadata_of,
    uid_of,
)
from kthena.telemetry.logging import get_logger
from kthena.workload.events import Event, condition_events, instance_events, ownership_events
from kthena.workload.executor import CONCURRENCY, Executor, Outcome
from kthena.workload.identity import InstanceKey
from kthena.workload.informers import WorkloadInformers, owners_of
from kthena.workload.planner.observed import Capabilities, Observed
from kthena.workload.planner.plan import InstanceState, Plan
from kthena.workload.planner.planner import plan
from kthena.workload.status import unreadable_status, with_failures

log = get_logger("workload.controller")

NAME: Final = "modelserving"
_STALE_CACHE_S: Final = 1.0
_UNKNOWN_CLUSTER_S: Final = 0.5


@dataclass(slots=True)
class _Memory:
    """What was last said about one ModelServing."""

    uid: str
    states: Mapping[InstanceKey, InstanceState] = field(default_factory=dict)


class ModelServingController:
    """Makes pods, services, PodGroups and revisions agree with each ModelServing.

    `capabilities` is asked for each plan, since a scheduler may be installed at any time; nothing is
    planned while it answers None.
    """

    name = NAME

    def __init__(
        self,
        client: KubeClient,
        informers: WorkloadInformers,
        recorder: EventRecorder,
        *,
        capabilities: Callable[[], Capabilities | None] = Capabilities,
        clock: Clock | None = None,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._client = client
        self._informers = informers
        self._recorder = recorder
        self._capabilities = capabilities
        self._clock = clock or SystemClock()
        stores = {informer.resource: informer.store for informer in informers.all}
        self._writes = ExpectingClient(client, stores, self._clock)
        self._executor = Executor(client, self._writes, concurrency=concurrency)
        self._memories: dict[NamespacedName, _Memory] = {}

    def build_runner(
        self, *, workers: int = 5, metrics: KubeMetrics | None = None
    ) -> ControllerRunner:
        """The runner of this controller, fed by its informers. Call once, before they run."""
        runner = ControllerRunner(
            self, self._informers.required, workers=workers, clock=self._clock, metrics=metrics
        )
        runner.careful = True
        runner.enqueue_on(self._informers.modelservings, self._keys_of_modelserving)
        for informer in self._informers.of_children:
            runner.enqueue_on(informer, self._keys_of_children(informer))
        return runner

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """One plan for one ModelServing, carried out as far as the API lets it."""
        # 1. See whether there is something to plan for, and whether the caches are up to it.
        modelserving = self._informers.modelservings.store.get(key)
        if modelserving is None:
            self._forget(key)
            return None
        wait = self._writes.wait_s(key)
        if wait > 0:
            return Requeue(wait)
        capabilities = self._capabilities()
        if capabilities is None:
            return Requeue(_UNKNOWN_CLUSTER_S)

        # 2. Observe and plan.
        try:
            observed = self._observe(key, modelserving, capabilities)
        except DecodeError as error:
            await self._report_unreadable(modelserving, str(error))
            return None
        decision = plan(observed, self._clock.now())

        # 3. Change owners only on the server's word.
        if decision.confirms_owner and not await self._is_confirmed(modelserving):
            return Requeue(_STALE_CACHE_S)

        # 4. Carry out, then say how things stand.
        outcome = await self._executor.carry_out(modelserving, decision)
        errors: list[ApiError] = list(outcome.errors)
        try:
            await self._report(decision, outcome)
        except ApiError as error:
            errors.append(error)
        if errors:
            raise ExceptionGroup(f"ModelServing {key}", errors)
        after = decision.requeue_after_s
        return None if after is None else Requeue(after)

    def _observe(
        self, key: NamespacedName, modelserving: Object, capabilities: Capabilities
    ) -> Observed:
        informers = self._informers
        return Observed.of(
            modelserving,
            pods=informers.children(informers.pods, key),
            services=informers.children(informers.services, key),
            revisions=informers.children(informers.revisions, key),
            pod_groups=(
                informers.children(informers.pod_groups, key) if capabilities.pod_groups else ()
            ),
            capabilities=capabilities,
        )

    async def _is_confirmed(self, modelserving: Object) -> bool:
        """Whether the server still has this ModelServing, and it is not being deleted."""
        key = key_of(modelserving)
        try:
            live = await self._client.get(MODEL_SERVINGS, key.name, key.namespace)
        except NotFound:
            return False
        return uid_of(live) == uid_of(modelserving) and not is_terminating(live)

    async def _report(self, decision: Plan, outcome: Outcome) -> None:
        """Record the transitions, and write the status where it differs."""
        modelserving = outcome.modelserving
        key, uid = key_of(modelserving), uid_of(modelserving)
        memory = self._memories.get(key)
        if memory is None or memory.uid != uid:
            memory = self._memories[key] = _Memory(uid, decision.before)
        self._record(modelserving, instance_events(key.name, memory.states, decision.after))
        memory.states = decision.after
        self._record(modelserving, ownership_events(decision))
        if decision.status is None:
            return
        status = decision.status
        if outcome.problems:
            status = with_failures(modelserving, status, outcome.problems, self._clock.now())
        await self._write_status(modelserving, status)

    async def _report_unreadable(self, modelserving: Object, message: str) -> None:
        log.warning("object cannot be read", key=str(key_of(modelserving)), error=message)
        status = unreadable_status(modelserving, message, self._clock.now())
        await self._write_status(modelserving, status)

    async def _write_status(self, modelserving: Object, status: Object) -> None:
        """Write the status where it differs, then record what it says that is new."""
        try:
            written = await self._writes.patch_status(
                key_of(modelserving), MODEL_SERVINGS, modelserving, status
            )
        except NotFound:
            return  # it is gone, and so is what there was to say
        if written is not modelserving:
            before = modelserving.get("status") or {}
            self._record(modelserving, condition_events(before, status))

    def _record(self, modelserving: Object, events: Iterable[Event]) -> None:
        for event in events:
            self._recorder.record(modelserving, event.type, event.reason, event.message)

    def _keys_of_modelserving(self, change: Change) -> Iterable[NamespacedName]:
        """The key, unless only the status has changed and nothing waits for that."""
        key = change.key
        waited = self._writes.observe(key, MODEL_SERVINGS, change)
        same = (
            change.old is not None
            and change.new is not None
            and _intent(change.old) == _intent(change.new)
        )
        return () if same and not waited else (key,)

    def _keys_of_children(self, informer: Informer) -> Callable[[Change], Iterable[NamespacedName]]:
        def keys_of(change: Change) -> Iterable[NamespacedName]:
            keys = list(owners_of(change))
            for key in keys:
                self._writes.observe(key, informer.resource, change)
            return keys

        return keys_of

    def _forget(self, key: NamespacedName) -> None:
        self._writes.forget(key)
        self._memories.pop(key, None)


def _intent(modelserving: Object) -> tuple[object, ...]:
    """What of a ModelServing a plan follows from, beside the status."""
    metadata = metadata_of(modelserving)
    return (
        metadata.get("uid"),
        metadata.get("generation"),
        metadata.get("deletionTimestamp"),
        metadata.get("annotations"),
        modelserving.get("spec"),
    )
