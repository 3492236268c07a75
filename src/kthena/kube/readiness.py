"""What a part of the program says about itself to `/readyz`, to logs and to metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ComponentState:
    """Whether a component can be counted on, and in what state it is, in one line.

    A controller that sleeps, because its CRD is absent or its list is forbidden, counts as ready:
    it must not take the rest of the program out of service. Its `detail` says that it sleeps.
    """

    name: str
    ready: bool
    detail: str
