"""What connections may cost, on either side of the router."""

from dataclasses import dataclass
from typing import Final

MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client connection may cost. Sizes in bytes, times in seconds."""

    max_headers: int = 100
    max_head_bytes: int = 64 * 1024
    max_target_bytes: int = 8 * 1024
    max_body_bytes: int = 32 * MIB
    max_buffered_bytes: int = 1024 * MIB
    """All request bodies together; a request that would pass it is answered 503."""
    max_pipelined_bytes: int = 64 * 1024
    """Bytes of further requests kept while one is being answered; beyond, reading pauses."""
    head_timeout_s: float = 10.0
    """From the first byte of a request (or the connection's start) to the end of its head."""
    body_idle_timeout_s: float = 30.0
    """Between two pieces of a request body."""
    idle_timeout_s: float = 75.0
    """Between two requests of a connection."""
    write_stall_timeout_s: float = 120.0
    """How long a client may leave a full send buffer untouched."""
    linger_s: float = 5.0
    """How long the rest of a refused request is read and dropped, so that the refusal arrives."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """How connections to engines are opened and kept. Times in seconds."""

    connect_timeout_s: float = 3.0
    max_idle_per_endpoint: int = 512
    idle_timeout_s: float = 60.0
