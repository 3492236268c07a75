"""Prometheus text for the mock engine: three metric types, rendered without a client library.

A pod starts one engine process, so start-up counts more than features here; the text is small and
its names belong to the engines, not to this project's own metrics.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

Labels = Mapping[str, str]


class Histogram:
    """Cumulative buckets over fixed upper bounds.

    Mutable state: one count per bound plus one for everything above, and the sum.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: Labels) -> Iterable[str]:
        """The sample lines, the `+Inf` bucket, sum and count included."""
        total = 0
        for bound, count in zip((*self._bounds, None), self._counts, strict=True):
            total += count
            le = "+Inf" if bound is None else repr(float(bound))
            yield sample(f"{name}_bucket", {**labels, "le": le}, total)
        yield sample(f"{name}_sum", labels, self._sum)
        yield sample(f"{name}_count", labels, total)


def sample(name: str, labels: Labels, value: float) -> str:
    """One sample line."""
    inner = ",".join(f'{key}="{_escape(text)}"' for key, text in labels.items())
    return f"{name}{{{inner}}} {float(value)!r}" if inner else f"{name} {float(value)!r}"


def family(name: str, kind: str, help_text: str, lines: Iterable[str]) -> Iterable[str]:
    """HELP and TYPE, then the samples."""
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
    yield from lines


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
