"""The controllers of Deployments and ReplicaSets: read from stores, plan, execute, write statuses.

Both wait until their own last writes have come back through the watch, so that nothing is created
twice. What is not theirs (another owner's, or another UID's) is never touched.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from kthena.api.kubernetes import DEPLOYMENTS, PODS, REPLICA_SETS
from kthena.kube.client import DeleteParams, KubeClient, PatchType
from kthena.kube.clock import Clock
from kthena.kube.controller import ControllerRunner, Requeue, own_key, owner_keys
from kthena.kube.errors import AlreadyExists, ApiError, ConnectionFailed, NotFound, ServerTimeout
from kthena.kube.expectations import Expectations
from kthena.kube.informer import Change, Informer
from kthena.kube.status import patch_status
from kthena.local.deployments.planner import (
    REVISION,
    new_pod,
    plan_deployment,
    plan_replica_set,
)
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    annotations_of,
    controller_of,
    is_terminating,
    key_of,
    name_of,
    namespace_of,
    uid_of,
)
from kthena.machinery.resources import Resource

_BY_OWNER = "deployments-by-owner"
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
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
        self._client = client
        self._deployments = informers.deployments.store
        self._replica_sets = informers.replica_sets.store
        self._clock = clock
        self.expectations: Expectations[NamespacedName] = Expectations(clock)

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """One step towards the Deployment's spec."""
        deployment = self._deployments.get(key)
        if deployment is None:
            self.expectations.forget(key)
            return None
        wait_s = self.expectations.wait_s(key)
        if is_terminating(deployment) or wait_s:
            return Requeue(wait_s) if wait_s else None
        owned = self._replica_sets.by_index(_BY_OWNER, uid_of(deployment))
        plan = plan_deployment(deployment, owned, self._clock.now())
        if plan.create is not None:
            await _create(self._client, REPLICA_SETS, plan.create, key, self.expectations)
        for replica_set, size in plan.resize:
            await self._resize(replica_set, size)
        for replica_set in plan.delete:
            await _delete(self._client, REPLICA_SETS, replica_set, key, self.expectations)
        if annotations_of(deployment).get(REVISION) != plan.revision:
            note = {"metadata": {"annotations": {REVISION: plan.revision}}}
            await self._client.patch(DEPLOYMENTS, key.name, key.namespace, note, PatchType.MERGE)
        await patch_status(self._client, DEPLOYMENTS, deployment, plan.status)
        return None if plan.requeue_s is None else Requeue(plan.requeue_s)

    async def _resize(self, replica_set: Object, size: int) -> None:
        body = {"metadata": {"uid": uid_of(replica_set)}, "spec": {"replicas": size}}
        await self._client.patch(
            REPLICA_SETS, name_of(replica_set), namespace_of(replica_set), body, PatchType.MERGE
        )


class ReplicaSetController:
    """Makes and removes pods for ReplicaSets."""

    name = "replicaset"

    def __init__(self, client: KubeClient, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._replica_sets = informers.replica_sets.store
        self._pods = informers.pods.store
        self._clock = clock
        self._random = random.Random()  # noqa: S311 - suffixes of names, not secrets
        self.expectations: Expectations[NamespacedName] = Expectations(clock)

    async def reconcile(self, key: NamespacedName) -> Requeue | None:
        """One step towards the ReplicaSet's size."""
        replica_set = self._replica_sets.get(key)
        if replica_set is None:
            self.expectations.forget(key)
            return None
        wait_s = self.expectations.wait_s(key)
        if is_terminating(replica_set) or wait_s:
            return Requeue(wait_s) if wait_s else None
        owned = self._pods.by_index(_BY_OWNER, uid_of(replica_set))
        plan = plan_replica_set(replica_set, owned, self._clock.now())
        for _ in range(plan.create):
            suffix = "".join(self._random.choices(_SUFFIX, k=_SUFFIX_LENGTH))
            pod = new_pod(replica_set, suffix)
            await _create(self._client, PODS, pod, key, self.expectations)
        for pod in plan.delete:
            await _delete(self._client, PODS, pod, key, self.expectations)
        await patch_status(self._client, REPLICA_SETS, replica_set, plan.status)
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
    _observe(informers.replica_sets, REPLICA_SETS, DEPLOYMENTS, deployments.expectations)
    _observe(informers.pods, PODS, REPLICA_SETS, replica_sets.expectations)
    deployment_runner.enqueue_on(informers.deployments, own_key)
    deployment_runner.enqueue_on(informers.replica_sets, owner_keys(DEPLOYMENTS))
    replica_set_runner.enqueue_on(informers.replica_sets, own_key)
    replica_set_runner.enqueue_on(informers.pods, owner_keys(REPLICA_SETS))
    return deployment_runner, replica_set_runner


def _observe(
    informer: Informer,
    resource: Resource,
    owner: Resource,
    expectations: Expectations[NamespacedName],
) -> None:
    """Tell the expectations what the informer sees."""
    keys_of = owner_keys(owner)

    def handle(change: Change) -> None:
        for key in keys_of(change):
            expectations.observe(key, resource, change)

    informer.add_handler(handle)


def _owner_uid(obj: Object) -> Iterable[str]:
    owner = controller_of(obj)
    return () if owner is None else (str(owner.get("uid")),)


async def _create(
    client: KubeClient,
    resource: Resource,
    obj: Object,
    key: NamespacedName,
    expectations: Expectations[NamespacedName],
) -> None:
    name = key_of(obj)
    expectations.expect_creation(key, resource, name)
    try:
        await client.create(resource, obj)
    except (ConnectionFailed, ServerTimeout):
        raise  # It may have been created; the expectation's time limit decides.
    except AlreadyExists:
        expectations.creation_failed(key, resource, name)
    except ApiError:
        expectations.creation_failed(key, resource, name)
        raise


async def _delete(
    client: KubeClient,
    resource: Resource,
    obj: Object,
    key: NamespacedName,
    expectations: Expectations[NamespacedName],
) -> None:
    uid = uid_of(obj)
    expectations.expect_deletion(key, uid)
    try:
        params = DeleteParams(uid=uid, propagation="Background")
        await client.delete(resource, name_of(obj), namespace_of(obj), params)
    except (ConnectionFailed, ServerTimeout):
        raise  # As above.
    except NotFound:
        expectations.deletion_failed(key, uid)
    except ApiError:
        expectations.deletion_failed(key, uid)
        raise
