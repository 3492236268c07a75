"""The load of one mock engine: who runs, who waits, what was served.

The figures are the ones that routers and autoscalers scrape, so they move with the requests: a
request waits while `max_num_seqs` others run, holds KV blocks for its tokens while it runs, and
leaves all gauges when it ends for whatever reason, the client's leaving included.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from kthena.local.engine.exposition import Histogram

KV_CAPACITY_TOKENS: Final = 131072
"""Tokens whose keys and values fit into the mock's cache."""

_TTFT_BOUNDS: Final = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
)  # fmt: skip
_ITL_BOUNDS: Final = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
)  # fmt: skip
_E2E_BOUNDS: Final = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
)  # fmt: skip


class Load:
    """Counters, gauges and histograms of one engine.

    Mutable state: everything below; touched from one event loop only. `finished` counts requests
    by the reason they ended: `stop`, `length`, `abort`, `error`. `kv_checks` counts verdicts on
    KV-transfer fields.
    """

    def __init__(self, max_running: int) -> None:
        self.running = 0
        self.waiting = 0
        self.kv_tokens = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.finished: Counter[str] = Counter()
        self.kv_checks: Counter[str] = Counter()
        self.running_models: Counter[str] = Counter()
        self.time_to_first_token = Histogram(_TTFT_BOUNDS)
        self.inter_token = Histogram(_ITL_BOUNDS)
        self.end_to_end = Histogram(_E2E_BOUNDS)
        self._slots = asyncio.Semaphore(max_running)

    @property
    def kv_usage(self) -> float:
        """Used share of the KV cache, 0 to 1."""
        return min(self.kv_tokens / KV_CAPACITY_TOKENS, 1.0)

    @asynccontextmanager
    async def slot(self, model: str, prompt_tokens: int) -> AsyncIterator["Slot"]:
        """Wait for a place among the running requests, in order of arrival, and hold it."""
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        slot = Slot(self, prompt_tokens)
        self.running += 1
        self.running_models[model] += 1
        self.kv_tokens += prompt_tokens
        self.prompt_tokens += prompt_tokens
        try:
            yield slot
        finally:
            self.running -= 1
            self.running_models[model] -= 1
            self.kv_tokens -= slot.held_tokens
            self._slots.release()


class Slot:
    """The place of one running request; `held_tokens` is its share of the KV cache."""

    def __init__(self, load: Load, held_tokens: int) -> None:
        self._load = load
        self.held_tokens = held_tokens

    def add_tokens(self, count: int) -> None:
        """Account tokens as they are generated."""
        self.held_tokens += count
        self._load.kv_tokens += count
        self._load.generation_tokens += count
