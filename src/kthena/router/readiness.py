"""Whether the router may get requests, and what it waits for.

Parts report by name. A part that is not ready keeps the router from being ready. What is only worth
knowing (a CRD that is absent, who writes statuses) is asked for when somebody reads, and blocks
nothing.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Component(Protocol):
    """Something beside the router that has a state."""

    @property
    def name(self) -> str:
        """Its name, one among all parts and components."""
        ...

    @property
    def detail(self) -> str:
        """Its state, in one line."""
        ...


@dataclass(frozen=True, slots=True)
class PartState:
    """What one part says of itself."""

    ready: bool
    detail: str


class Readiness:
    """The state of all parts.

    Mutable state: the last report of each part, where to ask for components, and whether the router
    is draining, which is final.
    """

    def __init__(self, *parts: str) -> None:
        self._parts = {part: PartState(ready=False, detail="not yet in sync") for part in parts}
        self._components: Callable[[], Iterable[Component]] = tuple
        self.draining = False

    def show(self, components: Callable[[], Iterable[Component]]) -> None:
        """Let readers see the states of these, which do not decide whether the router is ready."""
        self._components = components

    def report(self, part: str, *, ready: bool, detail: str = "") -> None:
        """Replace what is known of a part."""
        self._parts[part] = PartState(ready, detail)

    @property
    def ready(self) -> bool:
        """Whether every part is ready and the router is not draining."""
        return not self.draining and all(state.ready for state in self._parts.values())

    def details(self) -> dict[str, str]:
        """What there is to know of parts that have something to say, and of all components."""
        found = {
            part: state.detail or "not ready"
            for part, state in self._parts.items()
            if state.detail or not state.ready
        }
        found |= {component.name: component.detail for component in self._components()}
        return dict(sorted(found.items()))
