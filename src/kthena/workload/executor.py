"""Carries out plans: stage by stage, a few calls at a time, and goes on where one call fails.

Every deletion carries the UID of the object that was meant. No plan is made before the caches show
what the last one has written.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kthena.api.kubernetes import CONTROLLER_REVISIONS, PODS, SERVICES
from kthena.api.registry import MODEL_SERVINGS
from kthena.api.volcano import POD_GROUPS
from kthena.api.workload.names import LABEL_NAME, LABEL_ROLE
from kthena.kube.client import KubeClient
from kthena.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
)
from kthena.kube.expecting import UNCERTAIN, ExpectingClient
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    controller_of,
    generation_of,
    key_of,
    labels_of,
    name_of,
    uid_of,
)
from kthena.machinery.resources import Resource
from kthena.workload.planner.plan import (
    Action,
    Adopt,
    AnnotateModelServing,
    AnnotatePod,
    AnnotateRevision,
    CreatePod,
    CreatePodGroup,
    CreateRevision,
    CreateService,
    DeletePod,
    DeletePodGroup,
    DeleteRevision,
    DeleteService,
    DeleteStale,
    Plan,
    Stage,
    UpdatePodGroup,
)
from kthena.workload.status import Problem

CONCURRENCY: Final = 16
"""Calls of one plan that run at once."""

REFUSALS: Final = 10
"""Refused pods of one role after which the others of that role wait for the next plan."""

_PASSING = (*UNCERTAIN, Conflict, NotFound, ServiceUnavailable, TooManyRequests)
"""Errors that say nothing of the object: the caches lag, or the server is busy."""


@dataclass(slots=True)
class Outcome:
    """What could not be done, and what became of the ModelServing."""

    modelserving: Object
    """As the plan saw it, or as it was after the plan's own patch."""
    errors: list[ApiError] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """Those that the server refused, for the condition; passing troubles are only tried again."""

    def add(self, action: Action, error: ApiError) -> None:
        """Note a failure."""
        self.errors.append(error)
        if not isinstance(error, _PASSING):
            self.problems.append(_problem(action, error))


class Executor:
    """Carries out plans of one controller. It keeps nothing between two plans."""

    def __init__(
        self, client: KubeClient, writes: ExpectingClient, *, concurrency: int = CONCURRENCY
    ) -> None:
        self._client = client
        self._writes = writes
        self._concurrency = concurrency

    async def carry_out(self, modelserving: Object, plan: Plan) -> Outcome:
        """Do what the plan says. Failures are collected; cancellation passes at once."""
        run = _Run(self._client, self._writes, modelserving)
        for stage in Stage:
            actions = plan.in_stage(stage)
            concurrency = 1 if stage is Stage.RECORDS else self._concurrency
            await self._side_by_side(run, actions, concurrency)
            if stage.is_barrier and run.outcome.errors:
                break
        return run.outcome

    async def _side_by_side(self, run: "_Run", actions: Sequence[Action], concurrency: int) -> None:
        remaining = iter(actions)

        async def work() -> None:
            for action in remaining:
                await run.perform(action)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(actions))):
                group.create_task(work())


class _Run:
    """One plan being carried out.

    Mutable state: what failed, the services and PodGroups among it, and how many pods of each role
    were refused.
    """

    def __init__(self, client: KubeClient, writes: ExpectingClient, modelserving: Object) -> None:
        self.outcome = Outcome(modelserving)
        self._client = client
        self._writes = writes
        self._modelserving = modelserving
        self._key = key_of(modelserving)
        self._failed_services: set[str] = set()
        self._failed_pod_groups: set[str] = set()
        self._refused: Counter[str] = Counter()

    async def perform(self, action: Action) -> None:
        """Carry out one action, or note why it failed."""
        if isinstance(action, CreatePod) and self._is_held_back(action):
            return
        try:
            await self._perform(action)
        except ApiError as error:
            self.outcome.add(action, error)
            if isinstance(action, CreateService):
                self._failed_services.add(name_of(action.service))
            if isinstance(action, CreatePodGroup):
                self._failed_pod_groups.add(name_of(action.pod_group))
            if isinstance(action, UpdatePodGroup):
                self._failed_pod_groups.add(action.name)
            if isinstance(action, CreatePod):
                self._refused[labels_of(action.pod)[LABEL_ROLE]] += 1

    def _is_held_back(self, action: CreatePod) -> bool:
        refused = self._refused[labels_of(action.pod)[LABEL_ROLE]]
        return (
            refused >= REFUSALS
            or action.service in self._failed_services
            or action.pod_group in self._failed_pod_groups
        )

    async def _perform(self, action: Action) -> None:
        match action:
            case CreateRevision(obj) | CreateService(obj) | CreatePodGroup(obj) | CreatePod(obj):
                await self._create(_resource_of(action), obj)
            case Adopt():
                metadata: dict[str, Any] = {
                    "uid": action.uid,
                    "resourceVersion": action.resource_version,
                    "ownerReferences": list(action.owner_references),
                }
                await self._patch(action.resource, action.name, metadata)
            case UpdatePodGroup():
                metadata = {**action.patch.get("metadata", {}), "uid": action.uid}
                body = {**action.patch, "metadata": metadata}
                name = self._named(action.name)
                await self._writes.patch(self._key, POD_GROUPS, name, body)
            case AnnotateModelServing():
                uid = uid_of(self._modelserving)
                metadata = {"uid": uid, "annotations": dict(action.annotations)}
                patched = await self._patch(MODEL_SERVINGS, self._key.name, metadata)
                if generation_of(patched) == generation_of(self._modelserving):
                    self.outcome.modelserving = patched
            case AnnotateRevision() | AnnotatePod():
                metadata = {"uid": action.uid, "annotations": dict(action.annotations)}
                await self._patch(_resource_of(action), action.name, metadata)
            case (
                DeleteStale() | DeletePod() | DeletePodGroup() | DeleteService() | DeleteRevision()
            ):
                await self._delete(_resource_of(action), action.name, action.uid)

    async def _create(self, resource: Resource, obj: Object) -> None:
        try:
            # The name says all of what is created, so that it cannot be created twice.
            await self._writes.create(self._key, resource, obj, repeated=True)
        except AlreadyExists:
            live = await self._read_own(resource, key_of(obj))
            if live is None:
                raise
            # The reply to an earlier call was lost; the caches are about to show the object.
            self._writes.expect(self._key, resource, live)
            if resource is CONTROLLER_REVISIONS:
                # Its record is not the one that this plan rests on.
                name = name_of(obj)
                raise Conflict(409, "Conflict", f"ControllerRevision {name} exists") from None

    async def _read_own(self, resource: Resource, name: NamespacedName) -> Object | None:
        """The object that has the name, if it is this ModelServing's and caches can show it."""
        try:
            live = await self._client.get(resource, name.name, name.namespace)
        except ApiError:
            return None
        owner = controller_of(live) or {}
        is_own = owner.get("uid") == uid_of(self._modelserving) and LABEL_NAME in labels_of(live)
        return live if is_own else None

    async def _patch(self, resource: Resource, name: str, metadata: Object) -> Object:
        """Merge metadata into the object, which must have the UID; the object as it is then."""
        body = {"metadata": metadata}
        return await self._writes.patch(self._key, resource, self._named(name), body)

    async def _delete(self, resource: Resource, name: str, uid: str) -> None:
        # Where the reply is lost, nothing else of this ModelServing is disturbed until it is seen
        # whether the object is terminating, or ruled out by time.
        await self._writes.delete(self._key, resource, self._named(name), uid)

    def _named(self, name: str) -> NamespacedName:
        return NamespacedName(self._key.namespace, name)


def _resource_of(action: Action) -> Resource:
    match action:
        case DeleteStale() | Adopt():
            return action.resource
        case CreatePod() | DeletePod() | AnnotatePod():
            return PODS
        case CreateService() | DeleteService():
            return SERVICES
        case CreatePodGroup() | UpdatePodGroup() | DeletePodGroup():
            return POD_GROUPS
    return CONTROLLER_REVISIONS


def _problem(action: Action, error: ApiError) -> Problem:
    """What a failed call means to the user."""
    match action:
        case CreateRevision(obj) | CreateService(obj) | CreatePodGroup(obj) | CreatePod(obj):
            return Problem(
                "FailedCreate", f"{obj['kind']} {name_of(obj)} was not created: {error.message}"
            )
        case AnnotateModelServing():
            return Problem("FailedUpdate", f"the ModelServing was not annotated: {error.message}")
    kind = _resource_of(action).kind
    if action.stage is Stage.DELETIONS or isinstance(action, DeleteStale | DeleteRevision):
        return Problem("FailedDelete", f"{kind} {action.name} was not deleted: {error.message}")
    return Problem("FailedUpdate", f"{kind} {action.name} was not updated: {error.message}")
