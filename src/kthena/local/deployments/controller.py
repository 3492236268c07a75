"""The controllers of Deployments and ReplicaSets: read from stores, plan, execute, write statuses.

Both wait until their own last writes have come back through the watch, so that nothing is created
twice. What is not theirs (another owner's, or another UID's) is never touched.
"""

import random
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from kthena.api.kubernetes import DEPLOYMENTS, PODS, REPLICA_SETS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.controller import ControllerRunner, KeysOf, Requeue, own_key, owner_keys
from kthena.kube.errors import AlreadyExists
from kthena.kube.expecting import ExpectingClient
from kthena.kube.informer import Change, Informer
from kthena.local.deployments.planner import (
    REVISION,
    new_pod,
    plan_deployment,
    plan_replica_set,
)
from kthena.machinery.names import GENERATED_ALPHABET
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    annotations_of,
    controller_of,
    generation_of,
    is_terminating,
    key_of,
    uid_of,
)

_BY_OWNER = "deployments-by-owner"
_SUFFIX_LENGTH = 5


@dataclass(frozen=True, slots=True)
class Informers:
    """The stores that the controllers read."""

    deployments: Informer
    replica_sets: Informer
    pods: Informer


class DeploymentController:
    """Makes and sizes ReplicaSets for Deployments."""

    name = "deployment"

    def __init__(self, client: KubeClient, informers: Informers, clock: Clock) -> None:
        self._deployments = informers.deployments.store
        self._replica_sets = informers.replica_sets.store
        self._clock = clock
        stores = {DEPLOYMENTS: self._deployments, REPLICA_SETS: self._replica_sets}
        self.writes = ExpectingClient(client, stores, clock)

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """One step towards the Deployment's spec."""
        deployment = self._deployments.get(key)
        if deployment is None:
            self.writes.forget(key)
            return None
        wait_s = self.writes.wait_s(key)
        if is_terminating(deployment) or wait_s:
            return Requeue(wait_s) if wait_s else None
        owned = self._replica_sets.by_index(_BY_OWNER, uid_of(deployment))
        plan = plan_deployment(deployment, owned, self._clock.now())
        if plan.create is not None:
            with suppress(AlreadyExists):
                await self.writes.create(key, REPLICA_SETS, plan.create)
        for replica_set, size in plan.resize:
            resized = {"metadata": {"uid": uid_of(replica_set)}, "spec": {"replicas": size}}
            await self.writes.patch(key, REPLICA_SETS, key_of(replica_set), resized)
        for replica_set in plan.delete:
            name, uid = key_of(replica_set), uid_of(replica_set)
            await self.writes.delete(key, REPLICA_SETS, name, uid, "Background")
        if annotations_of(deployment).get(REVISION) != plan.revision:
            note = {"metadata": {"annotations": {REVISION: plan.revision}}}
            noted = await self.writes.patch(key, DEPLOYMENTS, key, note)
            if generation_of(noted) == generation_of(deployment):
                deployment = noted
        await self.writes.patch_status(key, DEPLOYMENTS, deployment, plan.status)
        return None if plan.requeue_s is None else Requeue(plan.requeue_s)


class ReplicaSetController:
    """Makes and removes pods for ReplicaSets."""

    name = "replicaset"

    def __init__(self, client: KubeClient, informers: Informers, clock: Clock) -> None:
        self._replica_sets = informers.replica_sets.store
        self._pods = informers.pods.store
        self._clock = clock
        self._random = random.Random()  # noqa: S311 - suffixes of names, not secrets
        stores = {REPLICA_SETS: self._replica_sets, PODS: self._pods}
        self.writes = ExpectingClient(client, stores, clock)

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """One step towards the ReplicaSet's size."""
        replica_set = self._replica_sets.get(key)
        if replica_set is None:
            self.writes.forget(key)
            return None
        wait_s = self.writes.wait_s(key)
        if is_terminating(replica_set) or wait_s:
            return Requeue(wait_s) if wait_s else None
        owned = self._pods.by_index(_BY_OWNER, uid_of(replica_set))
        plan = plan_replica_set(replica_set, owned, self._clock.now())
        for _ in range(plan.create):
            suffix = "".join(self._random.choices(GENERATED_ALPHABET, k=_SUFFIX_LENGTH))
            pod = new_pod(replica_set, suffix)
            with suppress(AlreadyExists):
                await self.writes.create(key, PODS, pod)
        for pod in plan.delete:
            await self.writes.delete(key, PODS, key_of(pod), uid_of(pod), "Background")
        await self.writes.patch_status(key, REPLICA_SETS, replica_set, plan.status)
        return None if plan.requeue_s is None else Requeue(plan.requeue_s)


def deployment_runners(
    client: KubeClient, informers: Informers, clock: Clock
) -> tuple[ControllerRunner, ControllerRunner]:
    """The runners of both controllers, fed by the given informers; whoever calls runs them all."""
    deployments = DeploymentController(client, informers, clock)
    replica_sets = ReplicaSetController(client, informers, clock)
    for informer in (informers.replica_sets, informers.pods):
        informer.store.add_index(_BY_OWNER, _owner_uid)
    every = (informers.deployments, informers.replica_sets, informers.pods)
    deployment_runner = ControllerRunner(deployments, every[:2], clock=clock)
    replica_set_runner = ControllerRunner(replica_sets, every[1:], clock=clock)
    deployment_runner.careful = replica_set_runner.careful = True
    _observe(informers.deployments, own_key, deployments.writes)
    _observe(informers.replica_sets, owner_keys(DEPLOYMENTS), deployments.writes)
    _observe(informers.replica_sets, own_key, replica_sets.writes)
    _observe(informers.pods, owner_keys(REPLICA_SETS), replica_sets.writes)
    deployment_runner.enqueue_on(informers.deployments, own_key)
    deployment_runner.enqueue_on(informers.replica_sets, owner_keys(DEPLOYMENTS))
    replica_set_runner.enqueue_on(informers.replica_sets, own_key)
    replica_set_runner.enqueue_on(informers.pods, owner_keys(REPLICA_SETS))
    return deployment_runner, replica_set_runner


def _observe(informer: Informer, keys_of: KeysOf, writes: ExpectingClient) -> None:
    """Tell what the informer sees; it must come before the keys are queued."""

    def handle(change: Change) -> None:
        for key in keys_of(change):
            writes.observe(key, informer.resource, change)

    informer.add_handler(handle)


def _owner_uid(obj: Object) -> Iterable[str]:
    owner = controller_of(obj)
    return () if owner is None else (str(owner.get("uid")),)
