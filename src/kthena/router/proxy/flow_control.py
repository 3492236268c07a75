"""Back-pressure: a transport is read only while nobody who depends on it asks to wait.

Memory stays flat because a full send buffer on one side stops reading on the other. Several parties
may ask at once (a pipelined request waits, the peer of a relay is slow), so each has its own hold.
"""

import asyncio
from typing import Final

PEER_IS_SLOW: Final = 1
"""The hold of whoever takes what is read."""
REQUEST_IN_PROGRESS: Final = 2
"""The hold of a request whose successors wait."""


class ReadGate:
    """Reading of one transport: on while no hold is placed."""

    __slots__ = ("_holds", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._holds = 0

    def hold(self, hold: int) -> None:
        """Stop reading until this hold, and every other, is lifted."""
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds |= hold

    def lift(self, hold: int) -> None:
        """Take this hold away; reading goes on when it was the last."""
        if not self._holds & hold:
            return
        self._holds &= ~hold
        if not self._holds and not self._transport.is_closing():
            self._transport.resume_reading()
