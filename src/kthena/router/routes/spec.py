"""What the networking plane tells the router: routes, servers and their endpoints, as plain data.

Nothing here is a Kubernetes object. Equal data means equal behaviour, so whatever did not change
keeps its compiled form, its connections and its counters when a new set is put in place.
"""

from dataclasses import dataclass
from enum import Enum

from kthena.machinery.objects import NamespacedName


@dataclass(frozen=True, slots=True)
class StringMatch:
    """A condition on one string.

    Of several set fields `exact` counts before `prefix` before `regex` (RE2, unanchored); with none
    set, everything matches.
    """

    exact: str | None = None
    prefix: str | None = None
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """What a request must be like; all conditions hold together."""

    headers: tuple[tuple[str, StringMatch], ...] = ()
    uri: StringMatch | None = None
    body_model: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A ModelServer and its share of the rule's requests."""

    server: NamespacedName
    weight: int = 100


@dataclass(frozen=True, slots=True)
class Rule:
    """Conditions and targets. Without conditions it takes everything."""

    name: str
    match: RuleMatch | None
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """One ModelRoute. With a `refusal` it serves nothing, and clients are told that text."""

    key: NamespacedName
    model_name: str
    adapters: tuple[str, ...]
    rules: tuple[Rule, ...]
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Server:
    """One ModelServer. `model` replaces the client's model name, except for LoRA adapters.

    `timeout_s` bounds the time from dispatch to the first byte of the reply. With a `refusal` it
    takes no traffic.
    """

    key: NamespacedName
    model: str | None
    port: int
    timeout_s: float | None = None
    disaggregated: bool = False
    connector: str = "http"
    refusal: str | None = None


class Role(Enum):
    """What an endpoint of a disaggregated server does."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class EndpointSpec:
    """One ready pod of a server. `group` and `role` are set for disaggregated servers only.

    The uid makes a pod that was replaced under the same name and address a new endpoint.
    """

    pod: NamespacedName
    uid: str
    host: str
    port: int
    group: str = ""
    role: Role | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """A server with the endpoints that are ready for it."""

    server: Server
    endpoints: tuple[EndpointSpec, ...]
