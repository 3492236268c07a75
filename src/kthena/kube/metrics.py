"""The figures of the Kubernetes client side, for one program.

Names and meanings follow client-go and controller-runtime (`workqueue_*`, `reconcile_*`,
`rest_client_*`), below the program's own prefix. Labels are bounded: controllers, informers,
methods, status codes and the words of enums.
"""

from collections.abc import Iterable

from kthena.telemetry.metrics import Counter, Gauge, Histogram, Metrics

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


class KubeMetrics:
    """Created once for each registry and passed to clients, informers and controllers."""

    def __init__(self, metrics: Metrics) -> None:
        self._calls = metrics.counter(
            "rest_client_requests", "API calls by method and status code", ("method", "code")
        )
        self._call_seconds = metrics.histogram(
            "rest_client_request_duration_seconds",
            "Time to the head of the API's reply",
            ("method",),
            _SECONDS,
        )
        self._informer_state = metrics.gauge(
            "informer_state", "1 for the state that the informer is in", ("informer", "state")
        )
        self._lists = metrics.counter(
            "informer_lists", "Full lists, the first one included", ("informer",)
        )
        self._controller_state = metrics.gauge(
            "controller_state", "1 for the state that the controller is in", ("controller", "state")
        )
        self._leader = metrics.gauge("leader", "1 while this process holds the lease", ("lease",))
        self._events_dropped = metrics.counter(
            "events_dropped", "Events that were not written", ("cause",)
        )
        labels = ("controller",)
        self._depth = metrics.gauge("workqueue_depth", "Keys that wait for a worker", labels)
        self._adds = metrics.counter("workqueue_adds", "Keys that were added", labels)
        self._retries = metrics.counter(
            "workqueue_retries", "Keys added again by a failure", labels
        )
        self._wait_seconds = metrics.histogram(
            "workqueue_queue_duration_seconds", "Time from add to worker", labels, _SECONDS
        )
        self._reconciles = metrics.counter(
            "reconcile", "Reconciliations by result", ("controller", "result")
        )
        self._reconcile_seconds = metrics.histogram(
            "reconcile_time_seconds", "Time of one reconciliation", labels, _SECONDS
        )

    def api_call(self, method: str, code: int, seconds: float) -> None:
        """An observer for `KubeClient`; code 0 is no reply."""
        self._calls.labels(method, str(code)).inc()
        self._call_seconds.labels(method).observe(seconds)

    def informer_state(self, informer: str, state: str, states: Iterable[str]) -> None:
        """The informer has entered `state`, one of `states`."""
        _enter(self._informer_state, informer, state, states)

    def listed(self, informer: str) -> None:
        """The informer has read a full list."""
        self._lists.labels(informer).inc()

    def controller_state(self, controller: str, state: str, states: Iterable[str]) -> None:
        """The controller has entered `state`, one of `states`."""
        _enter(self._controller_state, controller, state, states)

    def leading(self, lease: str, *, held: bool) -> None:
        """Whether this process holds the lease."""
        self._leader.labels(lease).set(held)

    def event_dropped(self, cause: str) -> None:
        """An event was not written, for one of a few causes."""
        self._events_dropped.labels(cause).inc()

    def controller(self, name: str) -> "ControllerMetrics":
        """The figures of one controller and its queue."""
        return ControllerMetrics(
            depth=self._depth.labels(name),
            adds=self._adds.labels(name),
            retries=self._retries.labels(name),
            wait_seconds=self._wait_seconds.labels(name),
            results={result: self._reconciles.labels(name, result) for result in RESULTS},
            seconds=self._reconcile_seconds.labels(name),
        )


RESULTS = ("success", "requeue_after", "error", "terminal_error")
"""How a reconciliation can end."""


class ControllerMetrics:
    """The figures of one controller, with their labels bound."""

    def __init__(
        self,
        *,
        depth: Gauge,
        adds: Counter,
        retries: Counter,
        wait_seconds: Histogram,
        results: dict[str, Counter],
        seconds: Histogram,
    ) -> None:
        self._depth = depth
        self._adds = adds
        self._retries = retries
        self._wait_seconds = wait_seconds
        self._results = results
        self._seconds = seconds

    def added(self) -> None:
        """A key was added that did not wait already."""
        self._adds.inc()

    def retried(self) -> None:
        """A key was added by a failure."""
        self._retries.inc()

    def waited(self, seconds: float) -> None:
        """A worker got a key that had waited so long."""
        self._wait_seconds.observe(seconds)

    def depth(self, keys: int) -> None:
        """So many keys wait for a worker."""
        self._depth.set(keys)

    def reconciled(self, result: str, seconds: float) -> None:
        """A reconciliation has ended with one of `RESULTS`."""
        self._results[result].inc()
        self._seconds.observe(seconds)


def _enter(gauge: Gauge, name: str, state: str, states: Iterable[str]) -> None:
    for other in states:
        gauge.labels(name, other).set(other == state)
