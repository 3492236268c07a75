"""One pod on the node, from binding to deletion, as the kubelet's pod worker.

Order: volumes and hosts file, init containers one by one (sidecars stay), then the containers; on
deletion the hooks and signals within the grace period, the last status, and the removal of the
object. The worker writes the pod's status, only when it differs, and ends when the pod is gone.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final

from kthena.api.kubernetes import PODS
from kthena.kube.client import DeleteParams
from kthena.kube.clock import wait_for
from kthena.kube.errors import ApiError, Conflict, NotFound
from kthena.local.apiserver.logs import LogError
from kthena.local.node.addresses import AddressesExhausted
from kthena.local.node.container import ContainerRunner
from kthena.local.node.environment import ConfigError
from kthena.local.node.notifier import Notifier
from kthena.local.node.observer import Prepared
from kthena.local.node.podfields import judge
from kthena.local.node.podstatus import (
    ContainerRecord,
    PodRecord,
    Running,
    Terminated,
    Waiting,
    initial_records,
    is_sidecar,
    restart_policy,
)
from kthena.local.node.preparation import NodeContext, PodPreparation
from kthena.local.node.status_writer import StatusWriter
from kthena.machinery.conditions import parse_time
from kthena.machinery.objects import (
    NamespacedName,
    Object,
    is_terminating,
    key_of,
    metadata_of,
    uid_of,
)
from kthena.telemetry.logging import get_logger

_log = get_logger("node.pod")

_RETRY_S: Final = 1.0
_DEADLINE: Final = (
    "DeadlineExceeded",
    "Pod was active on the node longer than the specified deadline",
)


class PodWorker:
    """Runs one pod.

    Mutable state: the runner of each container that has begun, how the pod failed as a whole, and
    what is asked of the worker: deletion, the node's stop, or the object's disappearance. `changed`
    wakes the status writer and whoever waits for a container's progress.
    """

    def __init__(self, pod: Object, node: NodeContext) -> None:
        self.uid = uid_of(pod)
        self.key: NamespacedName = key_of(pod)
        self._status = StatusWriter(pod, node.client, node.time.wall, self.record)
        self._node = node
        self._time = node.time
        self._preparation: PodPreparation | None = None
        self._changed = Notifier()
        self._deleting = asyncio.Event()
        self._gone = asyncio.Event()
        self._written = asyncio.Event()
        self._leaving = False
        self._over = (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}
        self._grace_cap_s = float("inf")
        self._failed: tuple[str, str] | None = None
        self._records = {
            name: initial_records(self._spec, pod.get("status") or {}, name, node.time.wall.now())
            for name in ("initContainers", "containers")
        }
        self._runners: dict[str, list[ContainerRunner]] = {"initContainers": [], "containers": []}
        self._start_time = self._time.wall.now()
        with contextlib.suppress(ValueError):
            self._start_time = parse_time((pod.get("status") or {}).get("startTime"))
        self.update(pod)

    # What the node tells the worker.

    def update(self, pod: Object) -> None:
        """A newer version of the pod was seen."""
        if not self._status.update(pod):
            return
        if is_terminating(pod):
            self._deleting.set()
        self._changed.notify()

    def removed(self) -> None:
        """The object is gone: nothing of the pod may go on."""
        self._gone.set()
        self._written.set()
        self._deleting.set()
        for runner in self._all_runners():
            runner.kill()

    def shut_down(self, grace_s: float) -> None:
        """The node stops: stop the containers, keep the object and the directories."""
        self._grace_cap_s = grace_s
        self._leaving = True
        # What a stop does to the containers is not the pod's doing: its phase stays.
        self._status.mute()
        self._deleting.set()

    # The containers' view of the pod (ContainerHost).

    @property
    def description(self) -> str:
        """`pod=NAME_NAMESPACE(UID)`."""
        return f"pod={self.key.name}_{self.key.namespace}({self.uid})"

    @property
    def grace_s(self) -> float:
        """The pod's grace period, capped when the node stops."""
        asked = metadata_of(self._pod).get("deletionGracePeriodSeconds")
        if asked is None:
            asked = self._spec.get("terminationGracePeriodSeconds")
        return min(30.0 if asked is None else float(asked), self._grace_cap_s)

    async def prepare(self, container: Mapping[str, Any], attempt: int) -> Prepared:
        """What the next start of a container needs."""
        if self._preparation is None:
            raise ConfigError("the pod's volumes are not ready")
        return await self._preparation.prepare(self._pod, container, attempt)

    def event(self, kind: str, reason: str, message: str) -> None:
        """Record an event of the pod."""
        self._node.events.record(
            self._pod, "Warning" if kind == "Warning" else "Normal", reason, message
        )

    # Life.

    async def run(self) -> None:
        """Run the pod until its object is gone or the node stops; no process of it is left."""
        writer = asyncio.create_task(self._write_statuses())
        containers = asyncio.create_task(self._guard(self._run_containers()))
        try:
            await self._deleting.wait()
            await self._stop(containers)
            if not self._gone.is_set():
                await self._finish()
        finally:
            for task in (containers, writer):
                task.cancel()
            await asyncio.gather(containers, writer, return_exceptions=True)
            for runner in self._all_runners():
                await runner.dispose()
            self._node.release(self.uid)
        if not self._leaving:
            shutil.rmtree(self._node.dirs.pod(self.uid), ignore_errors=True)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """A fault of the node's own must not end the worker: the pod can still be deleted."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the worker loop of one pod
            _log.exception("pod worker failed", pod=str(self.key))
            self.event("Warning", "FailedSync", f"the node failed to run the pod: {error}")
            for runner in self._all_runners():
                runner.kill()

    async def _run_containers(self) -> None:
        """Everything up to the end of the containers; the pod's status says how it went."""
        if self._over or self._deleting.is_set() or not self._accepted():
            return
        self._preparation = await self._prepare_pod()
        self._changed.notify()
        async with asyncio.TaskGroup() as group:
            deadline = group.create_task(self._watch_deadline())
            if await self._initialise(group):
                await self._run_apps()
            for runner in reversed(self._runners["initContainers"]):
                await runner.stop(self.grace_s)
            deadline.cancel()
        self._changed.notify()

    def _accepted(self) -> bool:
        """Judge the fields: name what is ignored, refuse what cannot be."""
        judgement = judge(self._spec)
        if judgement.ignored:
            fields = ", ".join(judgement.ignored)
            self.event("Warning", "FieldsIgnored", f"the local node ignores spec fields: {fields}")
        if judgement.refused:
            text = "; ".join(judgement.refused)
            self.event("Warning", "Failed", f"Error: CreateContainerConfigError: {text}")
            self._records = {
                name: tuple(record.waits("CreateContainerConfigError", text) for record in records)
                for name, records in self._records.items()
            }
            self._changed.notify()
        return not judgement.refused

    async def _prepare_pod(self) -> PodPreparation:
        """Address, volumes and hosts file; waits for what is missing."""
        said = ""
        while True:
            try:
                return await self._node.prepare_pod(self._pod)
            except (ConfigError, AddressesExhausted) as error:
                if str(error) != said:
                    said = str(error)
                    self.event("Warning", "FailedMount", f"MountVolume.SetUp failed: {error}")
            await self._time.wall.sleep(_RETRY_S)

    async def _initialise(self, group: asyncio.TaskGroup) -> bool:
        """Run the init containers; False when the pod cannot go on."""
        for container, record in zip(
            self._spec.get("initContainers") or (), self._records["initContainers"], strict=True
        ):
            if self._ending:
                return False
            runner = self._runner("initContainers", container, record)
            if is_sidecar(container):
                group.create_task(runner.run("Always"))
                await self._changed.until(partial(self._may_go_on, runner))
                continue
            policy = restart_policy(self._spec, container)
            await runner.run("Never" if policy == "Never" else "OnFailure")
            end = runner.record.state
            if not isinstance(end, Terminated) or end.exit_code != 0:
                return False
        return not self._ending

    def _may_go_on(self, sidecar: ContainerRunner) -> bool:
        return sidecar.record.started or self._ending

    async def _run_apps(self) -> None:
        async with asyncio.TaskGroup() as group:
            for container, record in zip(
                self._spec.get("containers") or (), self._records["containers"], strict=True
            ):
                runner = self._runner("containers", container, record)
                group.create_task(runner.run(restart_policy(self._spec, container)))

    async def _watch_deadline(self) -> None:
        seconds = self._spec.get("activeDeadlineSeconds")
        if seconds is None:
            return
        used = (self._time.wall.now() - self._start_time).total_seconds()
        await self._time.scaled.sleep(float(seconds) - used)
        self._failed = _DEADLINE
        self.event("Normal", _DEADLINE[0], _DEADLINE[1])
        await self._stop_runners()

    async def _stop(self, containers: "asyncio.Task[None]") -> None:
        """Stop the containers within the grace period; a shorter one set meanwhile counts."""
        if any(isinstance(runner.record.state, Running) for runner in self._all_runners()):
            self.event("Normal", "Killing", "Stopping the pod's containers")
        stopping = asyncio.ensure_future(self._stop_runners())
        grace_s = self.grace_s
        deadline = self._time.wall.monotonic() + grace_s
        while not stopping.done():
            now = self._time.wall.monotonic()
            if self.grace_s < grace_s:
                grace_s = self.grace_s
                deadline = min(deadline, now + grace_s)
            if now >= deadline:
                for runner in self._all_runners():
                    runner.kill()
                break
            with contextlib.suppress(TimeoutError):
                turn = min(deadline - now, _RETRY_S)
                await wait_for(self._time.wall, asyncio.shield(stopping), turn)
        await stopping
        if not any(self._runners.values()):
            containers.cancel()  # It still waits for what the pod needs.
        await asyncio.wait({containers})

    async def _stop_runners(self) -> None:
        """The containers together, then the sidecars from last to first."""
        async with asyncio.TaskGroup() as group:
            for runner in self._runners["containers"]:
                group.create_task(runner.stop(self.grace_s))
        for runner in reversed(self._runners["initContainers"]):
            await runner.stop(self.grace_s)

    async def _finish(self) -> None:
        """Write the last status, then remove the object: this one, not another of its name.

        When the node stops, the object stays, and its status says that nothing runs.
        """
        if self._leaving:
            text = f"node {self._node.config.name} stopped"
            await self._status.say_not_running("NodeStopped", text)
            return
        self._changed.notify()
        await self._written.wait()
        params = DeleteParams(uid=self.uid, grace_period_s=0)
        while not self._gone.is_set():
            try:
                await self._node.client.delete(PODS, self.key.name, self.key.namespace, params)
            except (NotFound, Conflict):
                return
            except ApiError as error:
                _log.warning("pod is not removed yet", pod=str(self.key), error=str(error))
                await self._time.wall.sleep(_RETRY_S)
            else:
                # Finalizers may still hold the object; it is no longer the node's.
                return

    # Status.

    async def _write_statuses(self) -> None:
        if not self._over:
            try:
                await self._status.follow(self._changed, self._all_ended)
            except NotFound:
                self.removed()
        self._written.set()

    def record(self) -> PodRecord:
        """What is known of the pod now."""
        preparation = self._preparation
        return PodRecord(
            address=preparation.address if preparation else "",
            node_address=self._node.address,
            start_time=self._start_time,
            init=self._present("initContainers"),
            app=self._present("containers"),
            sandbox_ready=preparation is not None and not self._all_ended(),
            failed=self._failed,
        )

    def _present(self, name: str) -> tuple[ContainerRecord, ...]:
        runners = self._runners[name]
        records = self._records[name]
        return (*(runner.record for runner in runners), *records[len(runners) :])

    def _all_ended(self) -> bool:
        """Whether the pod is being deleted and nothing of it runs."""
        running = any(isinstance(runner.record.state, Running) for runner in self._all_runners())
        return self._deleting.is_set() and not running

    # Logs.

    def log_of(self, container: str, *, previous: bool) -> tuple[str, int]:
        """The container and the run whose log is meant.

        Raises:
            LogError: there is no such container or run, or several to choose from.
        """
        records = {record.name: record for record in (*self.record().app, *self.record().init)}
        name = container
        if not name:
            apps = [record.name for record in self.record().app]
            if len(apps) > 1:
                raise LogError(
                    f"a container name must be specified for pod {self.key.name}, choose one of: "
                    f"[{' '.join(apps)}]"
                )
            name = apps[0]
        if name not in records:
            raise LogError(f"container {name} is not valid for pod {self.key.name}")
        attempt = records[name].restarts - int(previous)
        if attempt < 0:
            raise LogError(
                f'previous terminated container "{name}" in pod "{self.key.name}" not found'
            )
        return name, attempt

    def waiting_reason(self, name: str) -> str:
        """Why that container does not run."""
        for record in (*self.record().app, *self.record().init):
            if record.name == name and isinstance(record.state, Waiting):
                return record.state.reason
        return "ContainerCreating"

    def run_is_over(self, name: str, attempt: int) -> bool:
        """Whether that run of the container has ended."""
        for record in (*self.record().app, *self.record().init):
            if record.name == name:
                return record.restarts > attempt or not isinstance(record.state, Running)
        return True

    # Small things.

    @property
    def _pod(self) -> Object:
        return self._status.pod

    @property
    def _spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self._pod.get("spec") or {}
        return spec

    @property
    def _ending(self) -> bool:
        return self._deleting.is_set() or self._failed is not None

    def _runner(
        self, name: str, container: Mapping[str, Any], record: ContainerRecord
    ) -> ContainerRunner:
        runner = ContainerRunner(container, record, self, self._time, self._changed.notify)
        self._runners[name].append(runner)
        return runner

    def _all_runners(self) -> list[ContainerRunner]:
        return [*self._runners["initContainers"], *self._runners["containers"]]
