"""Many sequences, several at a time, until there are enough operations or it is time to stop."""

import itertools
import threading
import time
import traceback
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from fuzz.client import Client
from fuzz.definitions import definitions
from fuzz.generator import make_sequence
from fuzz.journal import SENTINEL
from fuzz.kinds import CONFIG_MAPS, KINDS, FuzzKind
from fuzz.operations import Operation
from fuzz.runner import Difference, Pair, Side, sentinel
from fuzz.shrinking import shrink
from support.apiserver import CRDS, Server, eventually

_READY_S = 90.0
_REPLAYS = 3


@dataclass
class Finding:
    """A difference, and the shortest sequence that was found to show it."""

    seed: int
    kinds: Sequence[FuzzKind]
    operations: list[Operation]
    difference: Difference

    def __str__(self) -> str:
        steps = "\n".join(f"  {operation}" for operation in self.operations)
        return f"seed {self.seed}:\n{steps}\n{self.difference}"


@dataclass
class Outcome:
    """What a campaign did. Mutable state: workers add to it."""

    operations: int = 0
    succeeded: int = 0
    sequences: int = 0
    unanswered: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    unsteady: int = 0
    """Differences that did not show again: what a controller of a server did first, then."""

    errors: list[str] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """The share of operations that succeeded."""
        return self.succeeded / self.operations if self.operations else 0.0

    def __str__(self) -> str:
        rate = self.operations / self.seconds if self.seconds else 0.0
        return (
            f"{self.operations} operations in {self.sequences} sequences, {self.share:.0%} succeeded, "
            f"{len(self.findings)} differences and {self.unsteady} that did not show again, "
            f"{self.unanswered} left unanswered by the real server, "
            f"{rate:.0f} operations/s"
        )


@dataclass(frozen=True)
class Limits:
    """When to stop: whichever comes first. `seconds` 0 is no limit."""

    operations: int
    seconds: float = 0.0
    findings: int = 1
    shrinks: bool = True


class Campaign:
    """Sequences of consecutive seeds on both servers."""

    def __init__(self, embedded: Server, real: Server, limits: Limits, workers: int = 4) -> None:
        self._servers = (embedded, real)
        self._limits = limits
        self._workers = workers
        self._lock = threading.Lock()
        self._outcome = Outcome()
        self._seeds: Iterator[int] = itertools.count()
        self._end = 0.0

    def run(self, seed: int) -> Outcome:
        """Run from a seed on."""
        started = time.monotonic()
        self._end = started + (self._limits.seconds or 1e9)
        self._seeds = itertools.count(seed)
        threads = [threading.Thread(target=self._work) for _ in range(self._workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self._outcome.seconds = time.monotonic() - started
        return self._outcome

    def _over(self) -> bool:
        outcome, limits = self._outcome, self._limits
        return (
            outcome.operations >= limits.operations
            or len(outcome.findings) >= limits.findings
            or bool(outcome.errors)
            or time.monotonic() > self._end
        )

    def _work(self) -> None:
        pair = Pair(*self._servers, f"fuzz-{uuid.uuid4().hex[:8]}")
        try:
            while not self._over():
                self._one(pair, next(self._seeds))
        except Exception:  # noqa: BLE001 - a thread: what went wrong is told by the outcome
            with self._lock:
                self._outcome.errors.append(traceback.format_exc())
        finally:
            pair.close()

    def _one(self, pair: Pair, seed: int) -> None:
        kinds, operations = make_sequence(seed)
        before = (pair.counts.operations, pair.counts.succeeded)
        difference = pair.run(kinds, operations)
        with self._lock:
            outcome = self._outcome
            outcome.sequences += 1
            outcome.operations += pair.counts.operations - before[0]
            outcome.succeeded += pair.counts.succeeded - before[1]
            outcome.unanswered += pair.counts.unanswered
            pair.counts.unanswered = 0
            for status, count in pair.counts.statuses.items():
                outcome.statuses[status] = outcome.statuses.get(status, 0) + count
            pair.counts.statuses.clear()
        if difference is None:
            return
        if not self._shows_again(pair, kinds, operations, difference):
            with self._lock:
                self._outcome.unsteady += 1
                print(f"seed {seed}, not again: {difference}", end="\n\n", flush=True)
            return
        if self._limits.shrinks:
            operations, difference = self._shorten(pair, kinds, operations, difference)
        finding = Finding(seed, kinds, operations, difference)
        with self._lock:
            self._outcome.findings.append(finding)
            print(finding, end="\n\n", flush=True)

    @staticmethod
    def _shows_again(
        pair: Pair, kinds: Sequence[FuzzKind], operations: list[Operation], difference: Difference
    ) -> bool:
        """Whether the same operations lead to the same difference once more."""
        for _ in range(_REPLAYS):
            again = pair.run(kinds, operations)
            if again is not None and again.signature == difference.signature:
                return True
        return False

    @staticmethod
    def _shorten(
        pair: Pair, kinds: Sequence[FuzzKind], operations: list[Operation], difference: Difference
    ) -> tuple[list[Operation], Difference]:
        if difference.index >= 0:
            # What comes later has nothing to do with it.
            operations = operations[: difference.index + 1]
        found = [difference]

        def fails(candidate: Sequence[Operation]) -> bool:
            again = pair.run(kinds, candidate)
            if again is None or again.signature != difference.signature:
                return False
            found.append(again)
            return True

        return shrink(operations, fails), found[-1]


def replay(
    embedded: Server, real: Server, kinds: Sequence[FuzzKind], operations: Sequence[Operation]
) -> Difference | None:
    """Run one sequence."""
    pair = Pair(embedded, real, f"fuzz-{uuid.uuid4().hex[:8]}")
    try:
        return pair.run(kinds, operations)
    finally:
        pair.close()


def prepare(*servers: Server) -> None:
    """Install the CRDs on servers, and wait until they serve and collect their objects."""
    for server in servers:
        side = Side(server, "default")
        for crd in definitions():
            answer = side.call("POST", CRDS, crd)
            if answer.status not in (201, 409):
                raise RuntimeError(f"a CRD is refused: {answer}")
        for kind in KINDS:
            _wait_for(side, kind.collection("default"), 200)
        _wait_collected(side)
        side.client.close()


def _wait_collected(side: Side) -> None:
    """Wait until the garbage collector knows every kind: it looks for new ones now and then."""
    owner = {"metadata": {"name": "fuzz-owner"}}
    path = f"{CONFIG_MAPS.collection('default')}/fuzz-owner"
    kinds = [kind for kind in KINDS if kind.custom]
    made = side.call("POST", CONFIG_MAPS.collection("default"), owner).body
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "fuzz-owner",
        "uid": made["metadata"]["uid"],
    }
    for kind in kinds:
        body = sentinel(kind, "default")
        body["metadata"]["ownerReferences"] = [reference]
        side.call("POST", kind.collection("default"), body)
    side.call("DELETE", path)
    for kind in kinds:
        _wait_for(side, f"{kind.collection('default')}/{SENTINEL}", 404)


def _wait_for(side: Side, path: str, status: int) -> None:
    eventually(lambda: side.call("GET", path).status == status, _READY_S)


def remove(*servers: Server) -> None:
    """Remove the CRDs."""
    for server in servers:
        client = Client(server)
        for crd in definitions():
            client.send("DELETE", f"{CRDS}/{crd['metadata']['name']}")
            client.receive()
        client.close()
