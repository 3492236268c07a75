"""Leader election through a Lease, compatible with client-go's.

One of several candidates holds the Lease and renews it; the others watch its record and take over
when it has not changed for the lease duration, measured on their own monotonic clock: the times in
the record are for people, so skewed clocks do no harm. The holder gives up when it could not renew
for the renew deadline, which is shorter, so it has stopped before another starts.

What to do on a loss is the caller's matter (`on_lost`).
"""

import asyncio
import random
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kthena.api.kubernetes import LEASES
from kthena.kube.backoff import Draw
from kthena.kube.client import KubeClient
from kthena.kube.clock import Clock, SystemClock, wait_for
from kthena.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from kthena.kube.metrics import KubeMetrics
from kthena.kube.readiness import ComponentState
from kthena.machinery.objects import Object
from kthena.telemetry.logging import get_logger

log = get_logger("kube.election")

JITTER = 1.2
"""A candidate waits up to this fraction of the retry period longer, by chance."""


@dataclass(frozen=True, slots=True)
class ElectionConfig:
    """The Lease to hold and its times: client-go's defaults, which Kthena uses too."""

    name: str
    namespace: str
    identity: str
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    def __post_init__(self) -> None:
        """Refuse times with which two candidates could lead at once.

        Raises:
            ValueError: the times are not in order, or there is no identity.
        """
        if not self.identity:
            raise ValueError(f"lease {self.namespace}/{self.name}: a candidate needs an identity")
        if not self.lease_duration_s > self.renew_deadline_s > self.retry_period_s * JITTER > 0:
            raise ValueError(
                f"lease {self.namespace}/{self.name}: the lease duration ({self.lease_duration_s:g} "
                f"s) must be longer than the renew deadline ({self.renew_deadline_s:g} s), and that "
                f"longer than {JITTER:g} retry periods ({self.retry_period_s:g} s)"
            )


def default_identity() -> str:
    """`<host name>_<random UUID>`, as client-go's programs use."""
    return f"{socket.gethostname()}_{uuid.uuid4()}"


class LeaderElector:
    """One candidate for one Lease.

    Mutable state: the Lease as last read or written, when its record was seen to change, whether
    this candidate leads and when it last renewed, and the last trouble (so that it is logged once).
    """

    def __init__(
        self,
        client: KubeClient,
        config: ElectionConfig,
        clock: Clock | None = None,
        *,
        draw: Draw = random.random,
        metrics: KubeMetrics | None = None,
    ) -> None:
        self._client = client
        self._config = config
        self._clock = clock or SystemClock()
        self._draw = draw
        self._metrics = metrics
        self._lease: Object = {}
        self._observed_at = 0.0
        self._renewed_at = 0.0
        self._trouble = ""
        self.is_leader = False

    @property
    def holder(self) -> str:
        """The identity in the record as last seen; empty when nobody holds the Lease."""
        return str(self._spec.get("holderIdentity") or "")

    def readiness(self) -> ComponentState:
        """Who leads. A standby candidate is ready, and so is one that cannot reach the Lease."""
        detail = "leader" if self.is_leader else f"standby; held by {self.holder or 'nobody'}"
        if self._trouble:
            detail = f"{detail}; {self._trouble}"
        return ComponentState(f"lease {self._config.name}", ready=True, detail=detail)

    async def run(self, on_started: Callable[[], None], on_lost: Callable[[], None]) -> None:
        """Campaign, lead and campaign again, until cancelled.

        `on_started` is called when the Lease has been won and `on_lost` when it has been lost. When
        cancelled while leading, the Lease stays held: stop what acts as leader, then `release`.
        """
        while True:
            await self._campaign()
            self._set_leader(leader=True)
            on_started()
            keeps = False
            try:
                await self._lead()
            except asyncio.CancelledError:
                keeps = True
                raise
            finally:  # a mistake that ends the term is a loss, too
                if not keeps:
                    self._set_leader(leader=False)
                    on_lost()

    async def release(self) -> None:
        """Give the Lease up, if this candidate holds it, so that another need not wait.

        Call it after `run` was cancelled, and after everything that acts as leader has ended. A
        failure is logged; the Lease then expires.
        """
        if not self.is_leader:
            return
        self._set_leader(leader=False)
        now = _micro_time(self._clock)
        spec = {
            "leaseDurationSeconds": 1,
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": self._spec.get("leaseTransitions", 0),
        }
        try:
            await wait_for(self._clock, self._write(spec), self._config.retry_period_s)
        except (ApiError, TimeoutError) as exc:
            log.warning("lease not released", lease=self._config.name, error=str(exc) or "timeout")

    async def _campaign(self) -> None:
        """Return when the Lease is won."""
        while True:
            started = self._clock.monotonic()
            if await self._attempt(self._config.renew_deadline_s):
                self._renewed_at = started
                return
            period = self._config.retry_period_s
            await self._clock.sleep(period * (1 + JITTER * self._draw()))

    async def _lead(self) -> None:
        """Renew the Lease; return when it is lost."""
        config = self._config
        while True:
            left = self._renewed_at + config.renew_deadline_s - self._clock.monotonic()
            await self._clock.sleep(min(config.retry_period_s, left))
            started = self._clock.monotonic()
            left = self._renewed_at + config.renew_deadline_s - started
            if left <= 0:
                return
            if await self._attempt(left):
                self._renewed_at = started
            elif self.holder != config.identity:
                return

    async def _attempt(self, limit_s: float) -> bool:
        """Acquire or renew once; whether the Lease is held. Trouble is logged when it changes."""
        try:
            held = await wait_for(self._clock, self._acquire_or_renew(), limit_s)
        except (Conflict, AlreadyExists):
            return False  # another candidate was faster; the next attempt reads what it wrote
        except TimeoutError:
            trouble = f"no reply within {limit_s:.1f} s"
        except ApiError as exc:
            trouble = str(exc)
        else:
            self._trouble = ""
            return held
        if trouble != self._trouble:
            log.warning("lease cannot be reached", lease=self._config.name, error=trouble)
        self._trouble = trouble
        return False

    async def _acquire_or_renew(self) -> bool:
        config = self._config
        if self.is_leader:
            try:
                await self._write(self._record())
            except (Conflict, NotFound):
                pass  # changed or deleted by someone: look at it
            else:
                return True
        try:
            lease = await self._client.get(LEASES, config.name, config.namespace)
        except NotFound:
            self._lease = {}
            await self._write(self._record())
            return True
        self._observe(lease)
        expires = self._observed_at + float(self._spec.get("leaseDurationSeconds") or 0)
        others = self.holder not in ("", config.identity)
        if others and expires > self._clock.monotonic():
            return False
        await self._write(self._record())
        return True

    def _record(self) -> dict[str, Any]:
        """The spec to write: this candidate as the holder, from now on."""
        now = _micro_time(self._clock)
        spec = dict(self._spec)
        if spec.get("holderIdentity") != self._config.identity:
            spec["acquireTime"] = now
            transitions = int(spec.get("leaseTransitions") or 0)
            spec["leaseTransitions"] = transitions + 1 if self._lease else 0
        spec["holderIdentity"] = self._config.identity
        spec["leaseDurationSeconds"] = int(self._config.lease_duration_s)
        spec["renewTime"] = now
        return spec

    async def _write(self, spec: dict[str, Any]) -> None:
        if self._lease:
            lease = await self._client.update(LEASES, {**self._lease, "spec": spec})
        else:
            metadata = {"name": self._config.name, "namespace": self._config.namespace}
            lease = await self._client.create(
                LEASES,
                {
                    "apiVersion": LEASES.api_version,
                    "kind": LEASES.kind,
                    "metadata": metadata,
                    "spec": spec,
                },
            )
        self._observe(lease)

    def _observe(self, lease: Object) -> None:
        if lease.get("spec") != self._lease.get("spec"):
            self._observed_at = self._clock.monotonic()
        self._lease = lease

    @property
    def _spec(self) -> dict[str, Any]:
        return self._lease.get("spec") or {}

    def _set_leader(self, *, leader: bool) -> None:
        self.is_leader = leader
        if self._metrics is not None:
            self._metrics.leading(self._config.name, held=leader)
        message = "lease acquired" if leader else "lease given up"
        log.info(message, lease=self._config.name, identity=self._config.identity)


def _micro_time(clock: Clock) -> str:
    return clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
