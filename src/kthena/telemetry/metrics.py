"""Prometheus metrics: the seam to prometheus_client.

Each program owns one registry and passes it to its parts; there is no global one, so two routers in
one process keep their figures apart.
"""

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

__all__ = ["CONTENT_TYPE", "Counter", "Gauge", "Histogram", "Metrics"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call, unused-ignore]


class Metrics:
    """A registry of metrics that share a name prefix, for instance `kthena_router_`."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._registry = CollectorRegistry()

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        """A counter named `<prefix><name>`, exposed with the suffix `_total`."""
        return Counter(self._prefix + name, help_text, labels, registry=self._registry)

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        """A gauge named `<prefix><name>`."""
        return Gauge(self._prefix + name, help_text, labels, registry=self._registry)

    def histogram(
        self, name: str, help_text: str, labels: Sequence[str], buckets: Sequence[float]
    ) -> Histogram:
        """A histogram named `<prefix><name>` with the given upper bounds."""
        return Histogram(
            self._prefix + name, help_text, labels, buckets=buckets, registry=self._registry
        )

    def render(self) -> bytes:
        """The exposition text of all metrics of this registry."""
        return generate_latest(self._registry)
