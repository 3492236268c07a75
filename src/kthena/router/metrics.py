"""The router's Prometheus metrics: Kthena's names and labels, with label values that are bounded.

`model` is a name that some route claims, else `unknown`; `path` is one of the paths of OpenAI's API
and its relatives, else `other`. Children are looked up once per combination and kept.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kthena.telemetry.metrics import Counter, Histogram, Metrics

PREFIX: Final = "kthena_router_"
UNKNOWN_MODEL: Final = "unknown"
OTHER_PATH: Final = "other"
NONE: Final = "none"
_MODEL_SERVER: Final = "model_server"

_DURATION_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
_WATCHED: Final = {
    "access_log_lost_lines": "Lines that a slow output has cost",
    "buffered_request_bytes": "Bytes of request bodies that are held",
    "client_connections": "Connections of clients",
    "upstream_connections": "Connections to engines, in use or idle",
    "upstream_resends": "Requests sent once more since their pooled connection was dead",
}
_DESTINATION_LABELS: Final = ("model_route", "backend_type", "backend_name", "upstream_model")

KNOWN_PATHS: Final = frozenset(
    {
        "/v1/audio/speech",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/images/generations",
        "/v1/messages",
        "/v1/models",
        "/v1/moderations",
        "/v1/pooling",
        "/v1/rerank",
        "/v1/responses",
        "/v1/score",
    }
)


class Destination(NamedTuple):
    """Where a request went, as labels."""

    model_route: str
    backend_type: str
    backend_name: str
    upstream_model: str


UNRESOLVED: Final = Destination(NONE, "unresolved", NONE, NONE)


class RequestLabels(NamedTuple):
    """A finished request, as labels of `requests_total`."""

    model: str
    path: str
    status_code: int
    error_type: str
    destination: Destination


class Level:
    """A number that goes up and down, read when metrics are scraped: counting costs an addition."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def __call__(self) -> float:
        """The number."""
        return self.value


class RouterMetrics:
    """The metrics of one router.

    Mutable state: the children that were looked up, and the levels.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._requests = metrics.counter(
            "requests",
            "Requests that were answered",
            ("model", "path", "status_code", "error_type", *_DESTINATION_LABELS),
        )
        self._durations = metrics.histogram(
            "request_duration_seconds",
            "Time from the receipt of a request to the end of its reply",
            ("model", "path", "status_code", *_DESTINATION_LABELS),
            _DURATION_BUCKETS,
        )
        phase_labels = ("model", "path", "status_code")
        self._phases = {
            phase: metrics.histogram(
                f"request_{phase}_duration_seconds",
                f"Time of the {phase} phase of requests to disaggregated servers",
                phase_labels,
                _DURATION_BUCKETS,
            )
            for phase in ("prefill", "decode")
        }
        self._downstream = metrics.gauge(
            "active_downstream_requests", "Requests of clients in progress", ("model",)
        )
        self._upstream = metrics.gauge(
            "active_upstream_requests",
            "Requests to engines in progress",
            ("model_server", *_DESTINATION_LABELS),
        )
        self.retries = metrics.counter(
            "upstream_retries", "Attempts on a further endpoint", ("reason",)
        )
        self._watched = {
            name: metrics.gauge(name, documentation) for name, documentation in _WATCHED.items()
        }
        self.active = Level()
        """Requests in progress."""
        metrics.gauge("active_requests", "Requests in progress").set_function(self.active)
        self._finished: dict[RequestLabels, tuple[Counter, Histogram]] = {}
        self._downstream_of: dict[str, Level] = {}
        self._upstream_of: dict[tuple[str, str, str], tuple[Destination, Level]] = {}

    def watch(self, name: str, read: Callable[[], float]) -> None:
        """Ask for one of the values that somebody else keeps, by its metric's name, when scraped."""
        self._watched[name].set_function(read)

    def downstream(self, model: str) -> Level:
        """Requests in progress for a model."""
        level = self._downstream_of.get(model)
        if level is None:
            level = self._downstream_of[model] = Level()
            self._downstream.labels(model).set_function(level)
        return level

    def upstream(self, route: str, server: str, model: str) -> "tuple[Destination, Level]":
        """The labels of requests that go from a route to a server, and how many are in progress."""
        key = (route, server, model)
        found = self._upstream_of.get(key)
        if found is None:
            destination = Destination(route, _MODEL_SERVER, server, model)
            found = self._upstream_of[key] = (destination, Level())
            self._upstream.labels(server, *destination).set_function(found[1])
        return found

    def finished(self, requests: Iterable[tuple[RequestLabels, float]]) -> None:
        """Count requests whose replies have ended, each with the seconds it took."""
        counts: dict[RequestLabels, int] = {}
        for labels, seconds in requests:
            counts[labels] = counts.get(labels, 0) + 1
            self._children(labels)[1].observe(seconds)
        for labels, count in counts.items():
            self._children(labels)[0].inc(count)

    def _children(self, labels: RequestLabels) -> tuple[Counter, Histogram]:
        children = self._finished.get(labels)
        if children is None:
            model, path, status, error_type, destination = labels
            children = self._finished[labels] = (
                self._requests.labels(model, path, status, error_type, *destination),
                self._durations.labels(model, path, status, *destination),
            )
        return children

    def phase(self, phase: str, labels: tuple[str, str, int], seconds: float) -> None:
        """Record a phase (`prefill` or `decode`) of a disaggregated request."""
        self._phases[phase].labels(*labels).observe(seconds)
