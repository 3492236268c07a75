"""Whether the router may get requests, and what it waits for.

Parts report by name. A part that is not ready keeps the router from being ready; a part that is only
worth knowing (a CRD that is absent) reports a detail and blocks nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PartState:
    """What one part says of itself."""

    ready: bool
    detail: str


class Readiness:
    """The state of all parts.

    Mutable state: the last report of each part, and whether the router is draining, which is final.
    """

    def __init__(self, *parts: str) -> None:
        self._parts = {part: PartState(ready=False, detail="not yet in sync") for part in parts}
        self.draining = False

    def report(self, part: str, *, ready: bool, detail: str = "") -> None:
        """Replace what is known of a part."""
        self._parts[part] = PartState(ready, detail)

    @property
    def ready(self) -> bool:
        """Whether every part is ready and the router is not draining."""
        return not self.draining and all(state.ready for state in self._parts.values())

    def details(self) -> dict[str, str]:
        """What there is to know of the parts that have something to say."""
        return {
            part: state.detail or "not ready"
            for part, state in sorted(self._parts.items())
            if state.detail or not state.ready
        }
