"""Change a JSON body by cutting bytes, never by encoding it anew.

Numbers keep their digits, strings their escapes, members their order: whatever is not meant to
change reaches the engine as the client wrote it. Results are pieces that are sent one after the
other, so that large bodies are not copied.
"""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

import msgspec

from kthena.router.body.piece import Piece
from kthena.router.body.scan import JsonBody

_MODEL: Final = "model"
_ONE: Final = b"1"

_PREFILL_DROPPED: Final = frozenset({"stream", "stream_options", "logprobs", "top_logprobs"})
_PREFILL_ONE_IF_PRESENT: Final = ("max_completion_tokens", "max_output_tokens", "n", "best_of")


def rename_model(body: JsonBody, model: str | None) -> tuple[Piece, ...]:
    """The body with every top-level `model` set to `model`, all other bytes as they were.

    None leaves the body alone.
    """
    raw = body.raw
    if model is None:
        return (raw,)
    encoded = msgspec.json.encode(model)
    view = memoryview(raw)
    pieces: list[Piece] = []
    position = 0
    for start, end in body.spans(_MODEL):
        pieces += (view[position:start], encoded)
        position = end
    pieces.append(view[position:])
    return tuple(pieces)


def edit(
    body: JsonBody, *, dropped: AbstractSet[str], values: Mapping[str, bytes]
) -> tuple[Piece, ...]:
    """The body without the members `dropped`, and with each member of `values` set to that value.

    No name is in both.
    Members of `values` that the body does not have are added. Other values are copied as they are;
    names are spelled anew, and blanks between members are left out.
    """
    view = memoryview(body.raw)
    pieces: list[Piece] = []
    found = set()
    for name, start, end in body.members:
        if name in dropped:
            continue
        # A name may hold a lone surrogate, which only json can spell.
        pieces += (b"," if pieces else b"{", json.dumps(name).encode(), b":")
        if name in values:
            found.add(name)
            pieces.append(values[name])
        else:
            pieces.append(view[start:end])
    for name, value in values.items():
        if name not in found:
            pieces += (b"," if pieces else b"{", json.dumps(name).encode(), b":", value)
    if not pieces:
        pieces.append(b"{")
    pieces.append(b"}")
    return tuple(pieces)


def prefill_body(body: JsonBody, model: str | None) -> tuple[Piece, ...]:
    """The body of a prefill request: one token, not streamed, and nothing that contradicts that.

    As Kthena's connectors: `stream` and `stream_options` go, `max_tokens` is 1, and so is
    `max_completion_tokens` where the client set it. Beyond them, what an engine would refuse
    beside one token or what would cost for nothing: `min_tokens` is clamped, `n`, `best_of` and
    `max_output_tokens` become 1, `logprobs` go.
    """
    values = {"max_tokens": _ONE}
    if model is not None:
        values[_MODEL] = msgspec.json.encode(model)
    for name in _PREFILL_ONE_IF_PRESENT:
        if body.value(name) not in {None, b"null"}:
            values[name] = _ONE
    if body.value("min_tokens") not in {None, b"null", b"0", _ONE}:
        values["min_tokens"] = _ONE
    return edit(body, dropped=_PREFILL_DROPPED, values=values)
