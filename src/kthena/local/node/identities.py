"""The node names that a node answers to: its own, and those of other nodes that it plays.

Pods may be bound to nodes that are elsewhere or no more, as in a state that was recorded on another
cluster. A node that plays those nodes registers them beside itself, with a label that says who does,
and runs their pods.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from kthena.api.kubernetes import NODES
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock
from kthena.kube.errors import ApiError, NotFound
from kthena.local.node.config import NodeConfig
from kthena.local.node.names import LABEL_PLAYED_BY
from kthena.local.node.registration import Machine, lease_holder, register, renew_lease, unregister
from kthena.machinery.objects import Object, labels_of
from kthena.telemetry.logging import get_logger

_log = get_logger("node.identities")

_RETRY_S: Final = 1.0


class AdoptionError(RuntimeError):
    """A node that is to be adopted is alive; the message says who keeps it so."""


class Identities:
    """The names of one node.

    Mutable state: the Node object of each name that is registered; the names that pods are bound to,
    as far as they were looked at (once each), and those that still are to be; and what this machine
    says of itself.
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

    async def register(self, machine: Machine) -> None:
        """Register the node and the nodes that it was told to play.

        Raises:
            AdoptionError: one of those is alive.
            ApiError: the API server refuses or cannot be reached.
        """
        self._machine = machine
        await self._add(self._config.name)
        for name in self._config.adopted:
            holder = await lease_holder(self._client, name, self._clock.now())
            if holder not in {"", self._config.name}:
                raise AdoptionError(
                    f"node {name} cannot be adopted: it is alive, its Lease is renewed by {holder}"
                )
            await self._add(name)

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
                    await renew_lease(self._client, node, self._config.name, duration_s, now)
                except ApiError as error:
                    _log.debug("node lease is not renewed", node=name, error=str(error))
            await self._clock.sleep(duration_s)

    async def unregister(self) -> None:
        """Say that none of the nodes is ready any more.

        Raises:
            ApiError: the API server refuses or cannot be reached.
        """
        for name in self._nodes:
            await unregister(self._client, name, self._clock.now())

    async def _consider(self, name: str) -> None:
        """Play a node that does not exist, or that an earlier life of this one has played."""
        try:
            if await self._is_free(name):
                await self._add(name)
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
        self._nodes[name] = await register(self._client, name, self._machine, now, labels)
