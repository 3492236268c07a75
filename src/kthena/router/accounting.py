"""What is kept of a finished request: metrics, and an entry of the access log.

Finished requests are gathered and worked off in batches, within a fifth of a second and before
metrics are read: what is done for each costs far less when it is done for many in a row.
"""

import asyncio
from datetime import timedelta
from typing import Final

from kthena.router.access_log import AccessLog
from kthena.router.call import Call
from kthena.router.clock import Clock
from kthena.router.log_lines import json_line, text_line
from kthena.router.metrics import (
    KNOWN_PATHS,
    OTHER_PATH,
    RequestLabels,
    RouterMetrics,
)
from kthena.router.reasons import SUCCESS
from kthena.router.scheduler.dispatch import Leg

_BATCH: Final = 256
_BATCH_TIME_S: Final = 0.2


class Accounts:
    """Counts and logs requests; it decides nothing, and nothing that it notes on a call steers one.

    Mutable state: the finished requests that are not yet worked off, and the timer that will.
    """

    def __init__(self, metrics: RouterMetrics, log: AccessLog, clock: Clock) -> None:
        self._metrics = metrics
        self._log = log
        self._line = json_line if log.format == "json" else text_line
        self._clock = clock
        self._finished: list[Call] = []
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Open the access log.

        Raises:
            OSError: its file cannot be opened.
        """
        self._log.open()

    def close(self) -> None:
        """Work off what is left and close the access log."""
        self.settle()
        self._log.close()
        if self._timer is not None:
            self._timer.cancel()

    def begun(self) -> None:
        """A request came in."""
        self._metrics.active.value += 1

    def model_known(self, call: Call, *, known: bool) -> None:
        """The model of a request has been read; `known` if some route claims it."""
        if known:
            call.model_label = call.model
        call.downstream = self._metrics.downstream(call.model_label)
        call.downstream.value += 1

    def attempted(self, call: Call, leg: Leg) -> None:
        """An attempt of a request begins."""
        call.upstream.value -= 1
        call.destination, call.upstream = self._metrics.upstream(
            call.match.route.label, leg.backend.label, leg.model or call.model
        )
        call.upstream.value += 1

    def prefill_ended(self, call: Call, status: int, started: float) -> None:
        """The prefill phase of a request is over."""
        seconds = self._clock.monotonic() - started
        self._metrics.phase("prefill", (call.model_label, path_label(call.path), status), seconds)

    def retried(self, reason: str) -> None:
        """A further attempt follows one that failed for this reason."""
        self._metrics.retries.labels(reason).inc()

    def finished(self, call: Call) -> None:
        """A request is over; only the first time counts."""
        if call.ended_at:
            return
        call.close(self._clock.monotonic())
        self._metrics.active.value -= 1
        call.downstream.value -= 1
        call.upstream.value -= 1
        self._finished.append(call)
        if len(self._finished) >= _BATCH:
            self.settle()
        elif self._timer is None:
            self._arm()

    def settle(self) -> None:
        """Work off all finished requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        calls, self._finished = self._finished, []
        self._metrics.finished(
            (request_labels(call), call.ended_at - call.started) for call in calls
        )
        for call in calls:
            if call.decode_started:
                labels = (call.model_label, path_label(call.path), call.status)
                self._metrics.phase("decode", labels, call.ended_at - call.decode_started)
        if self._log.enabled:
            origin = self._clock.now() - timedelta(seconds=self._clock.monotonic())
            self._log.write([self._line(call, origin) for call in calls])
            if self._log.pending:
                self._arm()

    def _arm(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_BATCH_TIME_S, self.settle)


def path_label(path: str) -> str:
    """The path as a label value."""
    return path if path in KNOWN_PATHS else OTHER_PATH


def request_labels(call: Call) -> RequestLabels:
    """The labels under which a finished request is counted."""
    return RequestLabels(
        call.model_label,
        path_label(call.path),
        call.status,
        SUCCESS if call.failure is None else call.failure.reason.word,
        call.destination,
    )
