"""What callers pass to the client and get back: plain data, no I/O."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Literal

from kthena.machinery.objects import Object

Propagation = Literal["Background", "Foreground", "Orphan"]
EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How to find the API server, and how to behave towards it.

    With neither `kubeconfig` nor the variable `KUBECONFIG`, the service account of the pod is used,
    and `~/.kube/config` where there is none. `qps` limits the requests per second of this client,
    watches included (0: no limit), with `burst` of them at once.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    field_manager: str = "kthena"
    user_agent: str = "kthena"
    qps: float = 0.0
    burst: int = 10
    request_timeout_s: float = 30.0


class PatchType(Enum):
    """The four patches of the API; the value is the content type."""

    JSON = "application/json-patch+json"
    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class DeleteParams:
    """Preconditions and manner of a deletion. What is None is left to the server."""

    uid: str | None = None
    resource_version: str | None = None
    propagation: Propagation | None = None
    grace_period_s: int | None = None

    def body(self) -> Object:
        """The `DeleteOptions` object."""
        preconditions = {
            name: value
            for name, value in (("uid", self.uid), ("resourceVersion", self.resource_version))
            if value is not None
        }
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        if self.propagation is not None:
            options["propagationPolicy"] = self.propagation
        if self.grace_period_s is not None:
            options["gracePeriodSeconds"] = self.grace_period_s
        return options


@dataclass(frozen=True, slots=True)
class WatchParams:
    """What to watch, from which resource version, and for how long the server lets it run."""

    resource_version: str = ""
    label_selector: str = ""
    field_selector: str = ""
    timeout_s: int | None = None
    bookmarks: bool = True


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change to `object`. A BOOKMARK has only `metadata.resourceVersion`."""

    type: EventType
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """Objects of a list, each with `apiVersion` and `kind` (servers leave them out of items).

    `continue_token` is empty on the last page; `remaining` is the server's count of what follows.
    """

    items: list[Object]
    resource_version: str
    continue_token: str = ""
    remaining: int | None = None


@dataclass(frozen=True, slots=True)
class RawResponse:
    """A successful reply as it came. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes
