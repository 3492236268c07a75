"""The loop that a router process runs on, and how its memory is kept.

uvloop where it is installed, else asyncio's own: nothing depends on which. A request leaves no
reference cycles behind, so the collector has little to find; it runs rarely and does not look at what
was there at the start.
"""

import asyncio
import gc
from typing import Final

_YOUNG_OBJECTS: Final = 20_000
_YOUNG_COLLECTIONS: Final = 50


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop for `asyncio.Runner(loop_factory=...)`."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def settle_memory() -> None:
    """Tell the collector that start-up is over. For a process that runs nothing but a router."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, _YOUNG_COLLECTIONS)
