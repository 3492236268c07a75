"""The node names that a node answers to: its own, and those of other nodes that it plays.

Pods may be bound to nodes that are elsewhere or no more, as in a state that was recorded on another
cluster. A node that plays those nodes registers them beside itself, with a label that says who does,
and runs their pods.

A name is run by one process at a time: the one that renews its Lease.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from kthena.api.kubernetes import NODES
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, wait_for
from kthena.kube.errors import ApiError, NotFound
from kthena.local.node.config import NodeConfig
from kthena.local.node.names import LABEL_PLAYED_BY
from kthena.local.node.registration import (
    LeaseHeldError,
    Machine,
    holder_of,
    read_lease,
    register,
    release_lease,
    renew_lease,
    unregister,
)
from kthena.machinery.objects import Object, labels_of
from kthena.telemetry.logging import get_logger

_log = get_logger("node.identities")

_RETRY_S: Final = 1.0
_JOINT: Final = "_"
"""Between the name and the identity of a holder: no node name has one."""


class NameTakenError(RuntimeError):
    """Another process runs a node of this name; the message says who."""


class AdoptionError(NameTakenError):
    """A node that is to be adopted is alive; the message says who keeps it so."""


class Identities:
    """The names of one node.

    Mutable state: the Node object of each name that is registered; the names that pods are bound to,
    as far as they were looked at (once each), and those that still are to be; and what this machine
    and this process say of themselves.
    """

    def __init__(
        self,
        client: KubeClient,
        config: NodeConfig,
        clock: Clock,
        on_adopted: Callable[[str], None],
    ) -> None:
        """`on_adopted` is called with each name that was added after `register`."""
        self._client = client
        self._config = config
        self._clock = clock
        self._on_adopted = on_adopted
        self._machine = Machine("")
        self._holder = ""
        self._lost = asyncio.Event()
        self._loss: NameTakenError | None = None
        self._nodes: dict[str, Object] = {}
        self._offered: dict[str, None] = {}
        self._seen: set[str] = set()
        self._wanted = asyncio.Event()

    def __contains__(self, name: str) -> bool:
        """Whether pods that are bound to a node of this name are to be run here."""
        return name in self._nodes

    def offer(self, name: str) -> None:
        """A pod is bound to a node of another name; play it if it does not exist."""
        if self._config.adopt_missing and name not in self._seen:
            self._seen.add(name)
            self._offered[name] = None
            self._wanted.set()

    async def register(self, machine: Machine, identity: str, stopping: asyncio.Event) -> None:
        """Register the node and the nodes that it was told to play, or none of them.

        `identity` tells this node from others of its name. A Lease that a process of this name has
        left behind is waited out, unless the process had this identity too; `stopping` ends that.

        Raises:
            NameTakenError: another process renews the Lease of the node.
            AdoptionError: one of the others is alive.
            ApiError: the API server refuses or cannot be reached.
        """
        self._machine = machine
        self._holder = f"{self._config.name}{_JOINT}{identity}"
        names = (self._config.name, *self._config.adopted)
        for name in names:
            await self._wait_free(name, stopping)
        for name in names:
            if stopping.is_set():
                return
            try:
                await self._add(name)
            except LeaseHeldError as error:
                await self.unregister()
                raise self._taken_error(name, str(error)) from error

    async def run(self) -> None:
        """See to the names that are offered, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            while self._offered:
                await self._consider(next(iter(self._offered)))

    async def renew(self) -> None:
        """Renew the Lease of every name, until cancelled; nothing is done without leases."""
        duration_s = self._config.lease_s
        while duration_s:
            for name, node in list(self._nodes.items()):
                now = self._clock.now()
                try:
                    await renew_lease(self._client, node, self._holder, duration_s, now)
                except LeaseHeldError as error:
                    self._lose(name, str(error))
                except ApiError as error:
                    _log.debug("node lease is not renewed", node=name, error=str(error))
            await self._clock.sleep(duration_s)

    async def unregister(self) -> None:
        """Say that none of the nodes is ready any more, and let others have the names.

        Raises:
            ApiError: the API server refuses or cannot be reached.
        """
        for name in self._nodes:
            await unregister(self._client, name, self._clock.now())
            await release_lease(self._client, name, self._holder, self._clock.now())

    async def wait_taken(self) -> None:
        """Wait until another process runs one of the names.

        Raises:
            NameTakenError: always, when that is so.
        """
        await self._lost.wait()
        if self._loss is not None:
            raise self._loss

    async def _wait_free(self, name: str, stopping: asyncio.Event) -> None:
        """Wait until no process that could be alive renews the Lease of a node.

        Raises:
            NameTakenError: one does, or it is that of a node of another name.
        """
        seen = None
        while not stopping.is_set():
            lease = await read_lease(self._client, name)
            holder = holder_of(lease, self._clock.now())
            if holder in {"", self._holder}:
                return
            renewed = lease.get("renewTime")
            ours = holder.partition(_JOINT)[0] == self._config.name
            if not ours or seen not in {None, renewed}:
                raise self._taken_error(name, holder)
            if seen is None:
                _log.warning("waiting for the end of a lease", node=name, holder=holder)
            seen = renewed
            with contextlib.suppress(TimeoutError):
                await wait_for(self._clock, stopping.wait(), _RETRY_S)

    def _taken_error(self, name: str, holder: str) -> NameTakenError:
        if name == self._config.name:
            return NameTakenError(
                f"node {name} is run by another process: its Lease is renewed by {holder}"
            )
        return AdoptionError(
            f"node {name} cannot be adopted: it is alive, its Lease is renewed by {holder}"
        )

    def _lose(self, name: str, holder: str) -> None:
        """Another process runs the name, after this one did not renew its Lease for long."""
        del self._nodes[name]
        self._loss = self._loss or self._taken_error(name, holder)
        self._lost.set()

    async def _consider(self, name: str) -> None:
        """Play a node that does not exist, or that an earlier life of this one has played."""
        try:
            if await self._is_free(name):
                await self._add(name)
        except LeaseHeldError as error:
            _log.info("node is another's", node=name, holder=str(error))
        except ApiError as error:
            _log.warning("node is not adopted yet", node=name, error=str(error))
            await self._clock.sleep(_RETRY_S)
            return
        del self._offered[name]
        if name in self:
            _log.info("node adopted", node=name)
            self._on_adopted(name)

    async def _is_free(self, name: str) -> bool:
        try:
            node = await self._client.get(NODES, name)
        except NotFound:
            return True
        return labels_of(node).get(LABEL_PLAYED_BY) == self._config.name

    async def _add(self, name: str) -> None:
        labels = {} if name == self._config.name else {LABEL_PLAYED_BY: self._config.name}
        now = self._clock.now()
        node = await register(self._client, name, self._machine, now, labels)
        if self._config.lease_s:
            await renew_lease(self._client, node, self._holder, self._config.lease_s, now)
        self._nodes[name] = node
