"""The node: pods that are bound to it run as processes of this machine.

It works against any Kubernetes API server: the embedded one, or a real one as a virtual kubelet.
It registers a Node (and those that it plays beside itself), binds pods of the schedulers that it
stands for, watches pods and Services, and keeps one worker per pod. Pods of an earlier life of the node are taken up again: their old
processes are gone with their launchers, or are ended here; their addresses are kept where they can
be.
"""

import asyncio
import contextlib
import resource
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Final

from kthena.api.kubernetes import PODS, SERVICES
from kthena.api.volcano import POD_GROUPS
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, SystemClock
from kthena.kube.errors import ApiError
from kthena.kube.events import EventRecorder
from kthena.kube.informer import Change, ChangeType, Informer
from kthena.kube.program import Parts, Program
from kthena.local.apiserver.logs import LogError, LogOptions
from kthena.local.node.addresses import AddressPool
from kthena.local.node.claims import claim_directory, claim_subnet, remember_identity
from kthena.local.node.config import NodeConfig
from kthena.local.node.identities import Identities
from kthena.local.node.logs import check_options, read_log
from kthena.local.node.names import EVENT_SOURCE
from kthena.local.node.pod_worker import PodWorker
from kthena.local.node.preparation import NodeContext
from kthena.local.node.processes import Namespace, find_namespace, kill_marked
from kthena.local.node.registration import Machine, capacity
from kthena.local.node.resolution import HostsTable
from kthena.local.node.scheduler import Scheduler
from kthena.local.node.timekeeping import Timekeeping
from kthena.machinery.objects import Object, key_of, uid_of
from kthena.telemetry.logging import get_logger

_log = get_logger("node")

_RETRY_S: Final = 1.0
_FAREWELL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Running:
    worker: PodWorker
    task: "asyncio.Task[None]"


class Node:
    """One node.

    Mutable state: a worker for each pod by UID, from the first sight of the pod until it is gone.
    """

    def __init__(self, client: KubeClient, config: NodeConfig, clock: Clock | None = None) -> None:
        self.config = replace(config, data_dir=config.data_dir.resolve())
        self.ready = asyncio.Event()
        """Set once the node is registered and knows the pods and Services of the cluster."""
        self._client = client
        self._clock = clock or SystemClock()
        self._pods = Informer(client, PODS, clock=self._clock)
        self._services = Informer(client, SERVICES, clock=self._clock)
        self._pod_groups = Informer(client, POD_GROUPS, clock=self._clock)
        self._events = EventRecorder(client, EVENT_SOURCE, self._clock, host=config.name)
        self._identities = Identities(client, self.config, self._clock, self._adopted)
        self._hosts = HostsTable(self._clock)
        self._workers: dict[str, _Running] = {}
        self._stopping = asyncio.Event()
        self._context: NodeContext | None = None

    async def run(self) -> None:
        """Run until `stop`, or until cancelled. No process of a pod is left in either case.

        Raises:
            ClaimError: another node uses the data directory, or no loopback subnet is free.
            NameTakenError: another process runs a node of this name, or one that is to be adopted.
        """
        directory = self.config.data_dir
        _raise_descriptor_limit()
        with claim_directory(directory), claim_subnet(directory, self.config.subnet) as subnet:
            await kill_marked(f"{directory}:")
            namespace, limit = await self._find_namespace()
            if limit:
                _log.warning("pods get no private mounts on this host", reason=limit)
            self._context = NodeContext(
                config=self.config,
                client=self._client,
                time=Timekeeping(self._clock, self.config.time_scale, self.config.parallel_starts),
                events=self._events,
                pool=AddressPool(subnet),
                hosts=self._hosts,
                namespace=namespace,
                limit=limit,
                allocatable=capacity(),
            )
            limit = f"no private mounts: {limit}" if limit else ""
            machine = Machine(self._context.address, limit)
            await self._register(machine, remember_identity(directory))
            await self._work(self._context)

    def stop(self) -> None:
        """Stop all pods within `stop_grace_s` and end `run`; objects stay."""
        self._stopping.set()

    async def stream(self, pod: Object, options: LogOptions) -> AsyncIterator[bytes]:
        """The log of a container of a pod on this node, as `kubectl logs` asks for it.

        Raises:
            LogError: there is no such pod, container or run, or it has not started.
        """
        check_options(options)
        running = self._workers.get(uid_of(pod))
        if running is None or self._context is None:
            raise LogError(f"pod {key_of(pod)} does not run on node {self.config.name}")
        worker = running.worker
        name, attempt = worker.log_of(options.container, previous=options.previous)
        path = self._context.dirs.log(worker.uid, name, attempt)
        if not path.exists():
            raise LogError(
                f'container "{name}" in pod "{worker.key.name}" is waiting to start: '
                f"{worker.waiting_reason(name)}"
            )
        async for chunk in read_log(path, options, lambda: worker.run_is_over(name, attempt)):
            yield chunk

    # Work.

    async def _find_namespace(self) -> tuple[Namespace, str]:
        """The way to private mounts, or none and why."""
        if not self.config.private_mounts:
            return "", "they are switched off"
        scratch = self.config.data_dir / "probe"
        scratch.mkdir(exist_ok=True)
        return await find_namespace(scratch)

    async def _register(self, machine: Machine, identity: str) -> None:
        """Register, however long the API server takes to answer."""
        while not self._stopping.is_set():
            try:
                await self._identities.register(machine, identity, self._stopping)
            except ApiError as error:
                _log.warning("node is not registered yet", error=str(error))
                await self._clock.sleep(_RETRY_S)
            else:
                return

    async def _work(self, context: NodeContext) -> None:
        self._pods.add_handler(self._on_pod)
        self._services.add_handler(self._on_service)
        program = Program(self._parts(context), self._clock)
        running = asyncio.create_task(program.run())
        stopping = asyncio.create_task(self._stopping.wait())
        taken = asyncio.create_task(self._identities.wait_taken())
        try:
            await asyncio.wait([running, stopping, taken], return_when=asyncio.FIRST_COMPLETED)
            if taken.done():
                # The pods are another's to speak of: what runs of them here ends without a word.
                self._stopping.set()
                await self._abandon()
            await self._farewell()
            program.stop()
            await running
            if taken.done():
                await taken
        finally:
            for task in (stopping, running, taken):
                task.cancel()
            await asyncio.gather(stopping, running, taken, return_exceptions=True)
            await self._abandon()

    def _parts(self, context: NodeContext) -> Parts:
        scheduler = Scheduler(
            self._client, self._pods, self._pod_groups, self._events, self.config, self._clock
        )
        return Parts(
            informers=(self._pods, self._services, self._pod_groups),
            controllers=(scheduler.runner(),),
            recorders=(self._events,),
            others={
                "hosts": self._hosts.run,
                "node identities": self._identities.run,
                "node lease": self._identities.renew,
                "node readiness": lambda: self._announce(context),
            },
        )

    async def _announce(self, context: NodeContext) -> None:
        """Say that the node is ready; sweep directories of pods that are no more."""
        await self._pods.synced.wait()
        await self._services.synced.wait()
        known = {uid_of(pod) for pod in self._pods.store}
        if context.dirs.pods.is_dir():
            for path in context.dirs.pods.iterdir():
                if path.name not in known:
                    shutil.rmtree(path, ignore_errors=True)
        self.ready.set()
        _log.info("node is ready", node=self.config.name, address=context.address)

    async def _farewell(self) -> None:
        """Stop every pod within the grace of a stop, and say that the node is gone.

        An API server that does not answer holds nothing up: what could not be said stays unsaid.
        """
        for running in self._workers.values():
            running.worker.shut_down(self.config.stop_grace_s)
        tasks = [running.task for running in self._workers.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=self.config.stop_grace_s + _FAREWELL_S)
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._identities.unregister()

    async def _abandon(self) -> None:
        """End what is left, at once."""
        tasks = [running.task for running in self._workers.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # Changes.

    def _on_service(self, change: Change) -> None:
        self._hosts.set_service(change.key, change.new)

    def _on_pod(self, change: Change) -> None:
        self._hosts.set_pod(change.key, change.new)
        pod = change.object
        node_name = str((pod.get("spec") or {}).get("nodeName") or "")
        if node_name not in self._identities:
            if node_name and change.type is not ChangeType.DELETED:
                self._identities.offer(node_name)
            return
        running = self._workers.get(uid_of(pod))
        if change.type is ChangeType.DELETED:
            if running is not None:
                running.worker.removed()
        elif running is not None:
            running.worker.update(pod)
        elif not self._stopping.is_set():
            self._start(pod)

    def _adopted(self, node_name: str) -> None:
        """Pods that are bound to that node are ours from now on."""
        for pod in list(self._pods.store):
            if (pod.get("spec") or {}).get("nodeName") == node_name:
                self._on_pod(Change(ChangeType.ADDED, None, pod))

    def _start(self, pod: Object) -> None:
        if self._context is None:
            return
        worker = PodWorker(pod, self._context)
        task = asyncio.create_task(worker.run())
        self._workers[worker.uid] = _Running(worker, task)
        task.add_done_callback(lambda done: self._ended(worker, done))

    def _ended(self, worker: PodWorker, task: "asyncio.Task[None]") -> None:
        self._workers.pop(worker.uid, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("pod worker ended with an error", pod=str(worker.key), error=repr(error))


def _raise_descriptor_limit() -> None:
    """Allow as many descriptors as this process may have: each container takes two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
