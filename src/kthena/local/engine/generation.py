"""What the mock engine answers: a pure function of model, prompt and parameters.

The same request gives the same text in every process, so that a client can compare the answer of
two replicas, or of a prefill/decode pair with that of one engine. Another model, prompt, seed or
choice index gives another text. Time plays no part here; `service` paces the tokens.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

from kthena.local.engine import tokens

FinishReason = Literal["stop", "length"]

_SHORTEST: Final = 8
_SPREAD: Final = 24
_SENTENCE: Final = 9


@dataclass(frozen=True, slots=True)
class Sampling:
    """The parameters of a request that shape its answer. `max_tokens` is the resolved limit."""

    max_tokens: int
    min_tokens: int = 0
    seed: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """One choice: the text that each generated token adds, and why generation ended.

    `stop_reason` is the stop string or stop token id that ended it, as vLLM reports it.
    """

    pieces: tuple[str, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None = None

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)

    @property
    def token_count(self) -> int:
        """Generated tokens, those of a cut-off stop string included."""
        return len(self.pieces)


def generate(model: str, prompt: str, sampling: Sampling, index: int = 0) -> Generated:
    """The answer of `model` to `prompt`, for the choice number `index`."""
    digest = _digest(model, prompt, sampling, index)
    natural = _SHORTEST + digest[0] % _SPREAD
    opening = tokens.tokenize(f"This is a mock answer from {model}.")
    length = max(len(opening) + natural, sampling.min_tokens)
    limit = sampling.max_tokens if sampling.ignore_eos else min(length, sampling.max_tokens)
    ids: list[int] = []
    for token in islice(_stream(opening, digest), limit):
        ids.append(token)
        if token in sampling.stop_token_ids and len(ids) > sampling.min_tokens:
            return Generated(tuple(tokens.pieces(ids)), "stop", token)
    parts = tuple(tokens.pieces(ids))[:limit]
    cut = _cut_at_stop(parts, sampling)
    if cut is not None:
        return cut
    return Generated(parts, "stop" if limit == length and not sampling.ignore_eos else "length")


def _digest(model: str, prompt: str, sampling: Sampling, index: int) -> bytes:
    identity = (model, prompt, sampling.seed, sampling.temperature, sampling.top_p, index)
    return hashlib.blake2b(repr(identity).encode("utf-8", "surrogatepass")).digest()


def _stream(opening: list[int], digest: bytes) -> Iterator[int]:
    """Endless token ids: the opening, then sentences of words drawn from the digest."""
    yield from opening
    state = int.from_bytes(digest[1:9], "big")
    position = 0
    while True:
        # The multiplier and increment are Knuth's MMIX generator.
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        word = tokens.WORDS[(state >> 33) % len(tokens.WORDS)]
        last = position % _SENTENCE == _SENTENCE - 1
        if last:
            yield tokens.tokenize(".")[0]
        else:
            yield tokens.tokenize(f" {word.capitalize() if position % _SENTENCE == 0 else word}")[0]
        position += 1


def _cut_at_stop(parts: tuple[str, ...], sampling: Sampling) -> Generated | None:
    """The answer up to the earliest stop string after `min_tokens`; None when there is none."""
    text = "".join(parts)
    start = len("".join(parts[: sampling.min_tokens]))
    found = [(text.find(stop, start), stop) for stop in sampling.stop if stop]
    hits = sorted((position, stop) for position, stop in found if position >= 0)
    if not hits:
        return None
    position, stop = hits[0]
    end = position + len(stop)
    kept: list[str] = []
    seen = 0
    shown = end if sampling.include_stop else position
    for part in parts:
        if seen >= end:
            break
        kept.append(part[: max(shown - seen, 0)])
        seen += len(part)
    return Generated(tuple(kept), "stop", stop)
