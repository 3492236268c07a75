"""Peers that vanish without a word are found by TCP probes, since HTTP/1.1 has none of its own.

A host that loses power or its network sends neither FIN nor RST. Without probes a reply that is
awaited from it, or a connection to it whose client only waits, would stay for ever.
"""

import asyncio
import socket
from typing import Final

_IDLE_S: Final = 15
_INTERVAL_S: Final = 5
_PROBES: Final = 3


def probe_when_silent(transport: asyncio.Transport) -> None:
    """Let the kernel end the connection when its peer has been unreachable for half a minute."""
    sock = transport.get_extra_info("socket")
    if sock is None:  # a transport without a socket has no peer that could vanish
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
