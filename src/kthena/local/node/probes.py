"""Startup, liveness and readiness: when to probe, and what the results mean.

The state machine is the kubelet's: a probe starts `initialDelaySeconds` after its container, runs
every `periodSeconds`, and changes its verdict after `successThreshold` or `failureThreshold` equal
results in a row; liveness and readiness wait until the startup probe has succeeded. Pure: it is
told results and asked for the time of the next probe.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

ProbeKind: TypeAlias = Literal["startup", "liveness", "readiness"]
Action: TypeAlias = Literal["exec", "httpGet", "tcpSocket", "grpc"]

_ACTIONS: Final[tuple[Action, ...]] = ("exec", "httpGet", "tcpSocket", "grpc")
POD_HOSTS: Final = frozenset({"", "localhost", "127.0.0.1", "::1"})
"""Hosts of a probe or hook that mean the pod itself."""


class ProbeError(ValueError):
    """A probe that cannot be run; the message names the field."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A probe of a container. Times are seconds; `handler` is the field of `action`."""

    kind: ProbeKind
    action: Action
    handler: Mapping[str, Any]
    initial_delay_s: float = 0
    period_s: float = 10
    timeout_s: float = 1
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results so far: how many equal ones in a row, and what they amount to.

    `healthy` is None until a threshold was reached for the first time.
    """

    healthy: bool | None = None
    streak: int = 0
    last: bool | None = None

    def after(self, probe: Probe, *, success: bool) -> "Verdict":
        """The verdict once one more result is known."""
        streak = self.streak + 1 if success == self.last else 1
        threshold = probe.success_threshold if success else probe.failure_threshold
        healthy = success if streak >= threshold else self.healthy
        return Verdict(healthy, streak, success)


def parse_probe(container: Mapping[str, Any], kind: ProbeKind) -> Probe | None:
    """The container's probe of that kind, None when it has none.

    Raises:
        ProbeError: it has no action or several.
    """
    spec = container.get(f"{kind}Probe")
    if not spec:
        return None
    actions = [action for action in _ACTIONS if spec.get(action) is not None]
    where = f"{kind}Probe of container {container.get('name')}"
    if len(actions) != 1:
        raise ProbeError(f"{where}: must have one of {', '.join(_ACTIONS)}")
    grace = spec.get("terminationGracePeriodSeconds")
    return Probe(
        kind=kind,
        action=actions[0],
        handler=spec[actions[0]],
        initial_delay_s=float(spec.get("initialDelaySeconds") or 0),
        period_s=float(spec.get("periodSeconds") or 10),
        timeout_s=float(spec.get("timeoutSeconds") or 1),
        success_threshold=int(spec.get("successThreshold") or 1),
        failure_threshold=int(spec.get("failureThreshold") or 3),
        termination_grace_s=None if grace is None else float(grace),
    )


def probe_port(value: object, container: Mapping[str, Any]) -> int:
    """The number of a port given as a number or as the name of a container port.

    Raises:
        ProbeError: no port of the container has the name.
    """
    if isinstance(value, int):
        return value
    text = str(value)
    if text.isdecimal():
        return int(text)
    for port in container.get("ports") or ():
        if port.get("name") == text:
            return int(port["containerPort"])
    raise ProbeError(f"container {container.get('name')} has no port named {text!r}")


def probe_host(value: object, address: str) -> str:
    """The address to connect to: the pod's own for no host and for `localhost`."""
    text = str(value or "")
    return address if text in POD_HOSTS else text
