"""How an API server is set up."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random, SystemRandom

from kthena.local.apiserver.store import DEFAULT_LOG_LENGTH
from kthena.local.apiserver.watch import DEFAULT_QUEUE_LENGTH

SYSTEM_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


def _utc_now() -> datetime:
    return datetime.now(UTC)


def _new_token() -> str:
    return secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class ApiServerConfig:
    """Everything that an API server is told.

    `host` must be a loopback address. `hosts` are further names under which clients may call it.
    `token` is a secret that every request but those for health has to carry. `random` makes uids
    and generated names. `head_timeout_s` is how long a client may take to say what it wants. Objects
    are kept in `data_dir` over restarts; None keeps them in memory only.
    """

    host: str = "127.0.0.1"
    port: int = 0
    token: str = field(default_factory=_new_token)
    hosts: tuple[str, ...] = ()
    now: Callable[[], datetime] = _utc_now
    random: Random = field(default_factory=SystemRandom)
    namespaces: tuple[str, ...] = SYSTEM_NAMESPACES
    log_length: int = DEFAULT_LOG_LENGTH
    watch_queue_length: int = DEFAULT_QUEUE_LENGTH
    watch_timeout_s: float = 1800
    bookmark_interval_s: float = 60
    head_timeout_s: float = 32
    data_dir: Path | None = None
