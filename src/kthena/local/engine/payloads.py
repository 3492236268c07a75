"""JSON bodies of replies, in the shapes of the OpenAI API as the engines fill them.

Pure builders over a request and its generated choices. `logprobs` is always null: the mock has no
probabilities and invents none.
"""

import base64
import hashlib
import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kthena.local.engine.generation import Generated
from kthena.local.engine.requests import GenerationRequest

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: `choices` holds `n` choices for each prompt, in order."""

    request: GenerationRequest
    id: str
    model: str
    created: int
    choices: tuple[Generated, ...]
    kv_transfer_params: dict[str, Any] | None = None

    @property
    def completion_tokens(self) -> int:
        """Generated tokens of all choices."""
        return sum(choice.token_count for choice in self.choices)

    def prompt_of(self, index: int) -> str:
        """The prompt of the choice number `index`."""
        return self.request.prompts[index // self.request.n]


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """The usage object of chat and completions."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": None,
    }


def body_of(reply: Reply) -> dict[str, Any]:
    """The body of a reply that is not streamed."""
    if reply.request.endpoint == "responses":
        return response_object(reply, "completed", usage_known=True)
    chat = reply.request.endpoint == "chat"
    body = {
        "id": reply.id,
        "object": "chat.completion" if chat else "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [
            _chat_choice(index, choice) if chat else _text_choice(reply, index, choice)
            for index, choice in enumerate(reply.choices)
        ],
        "usage": usage(reply.request.total_prompt_tokens, reply.completion_tokens),
        "system_fingerprint": None,
    }
    body["kv_transfer_params"] = reply.kv_transfer_params
    return body


def _chat_choice(index: int, choice: Generated) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": choice.text, "tool_calls": []},
        "logprobs": None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }


def _text_choice(reply: Reply, index: int, choice: Generated) -> dict[str, Any]:
    echo = reply.prompt_of(index) if reply.request.echo else ""
    return {
        "index": index,
        "text": echo + choice.text,
        "logprobs": None,
        "finish_reason": choice.finish_reason,
        "stop_reason": choice.stop_reason,
    }


# --- streams: chat and completions -----------------------------------------------------------


def chunk(
    reply: Reply, index: int, text: str, last: Generated | None, generated: int
) -> dict[str, Any]:
    """One stream chunk of one choice; `last` is the choice that ends with this chunk.

    `generated` are the tokens of all choices so far, for `continuous_usage_stats`.
    """
    end = {
        "logprobs": None,
        "finish_reason": last.finish_reason if last else None,
        "stop_reason": last.stop_reason if last else None,
    }
    if reply.request.endpoint == "chat":
        choice = {"index": index, "delta": {"content": text}, **end}
    else:
        choice = {"index": index, "text": text, **end}
    return _envelope(reply, [choice], generated)


def role_chunk(reply: Reply, index: int) -> dict[str, Any]:
    """The chunk that opens a chat choice: the role and empty content."""
    choice = {
        "index": index,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
    return _envelope(reply, [choice], 0)


def usage_chunk(reply: Reply) -> dict[str, Any]:
    """The chunk without choices that carries the usage, sent when `include_usage` asks for it."""
    return {
        **_envelope(reply, [], 0),
        "usage": usage(reply.request.total_prompt_tokens, reply.completion_tokens),
    }


def _envelope(reply: Reply, choices: list[dict[str, Any]], generated: int) -> dict[str, Any]:
    chat = reply.request.endpoint == "chat"
    body: dict[str, Any] = {
        "id": reply.id,
        "object": "chat.completion.chunk" if chat else "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": choices,
    }
    if reply.request.continuous_usage:
        body["usage"] = usage(reply.request.total_prompt_tokens, generated)
    return body


# --- responses API ---------------------------------------------------------------------------


def response_object(reply: Reply, status: str, *, usage_known: bool) -> dict[str, Any]:
    """The `response` object; its output and usage are empty until they are known."""
    choice = reply.choices[0]
    incomplete = status == "completed" and choice.finish_reason == "length"
    return {
        "id": reply.id,
        "object": "response",
        "created_at": reply.created,
        "status": "incomplete" if incomplete else status,
        "incomplete_details": {"reason": "max_output_tokens"} if incomplete else None,
        "model": reply.model,
        "output": [_output_item(reply, choice.text, "completed")] if usage_known else [],
        "usage": {
            "input_tokens": reply.request.total_prompt_tokens,
            "output_tokens": reply.completion_tokens,
            "total_tokens": reply.request.total_prompt_tokens + reply.completion_tokens,
        }
        if usage_known
        else None,
    }


def _output_item(reply: Reply, text: str, status: str) -> dict[str, Any]:
    part: dict[str, Any] = {
        "type": "output_text",
        "text": text,
        "annotations": [],
        "logprobs": None,
    }
    return {
        "id": f"msg_{reply.id.removeprefix('resp_')}",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part] if text or status == "completed" else [],
    }


def response_opening(reply: Reply) -> Iterator[dict[str, Any]]:
    """The events of a responses stream before its first delta."""
    started = response_object(reply, "in_progress", usage_known=False)
    yield {"type": "response.created", "response": started}
    yield {"type": "response.in_progress", "response": started}
    item = _output_item(reply, "", "in_progress")
    yield {"type": "response.output_item.added", "output_index": 0, "item": item}
    part: dict[str, Any] = {
        "type": "output_text",
        "text": "",
        "annotations": [],
        "logprobs": [],
    }
    yield {"type": "response.content_part.added", **_position(reply), "part": part}


def response_delta(reply: Reply, text: str) -> dict[str, Any]:
    """The event of one piece of text."""
    return {"type": "response.output_text.delta", **_position(reply), "delta": text, "logprobs": []}


def response_closing(reply: Reply) -> Iterator[dict[str, Any]]:
    """The events after the last delta."""
    text = reply.choices[0].text
    item = _output_item(reply, text, "completed")
    yield {"type": "response.output_text.done", **_position(reply), "text": text, "logprobs": []}
    yield {"type": "response.content_part.done", **_position(reply), "part": item["content"][0]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    done = response_object(reply, "completed", usage_known=True)
    yield {"type": f"response.{done['status']}", "response": done}


def _position(reply: Reply) -> dict[str, Any]:
    item = f"msg_{reply.id.removeprefix('resp_')}"
    return {"item_id": item, "output_index": 0, "content_index": 0}


# --- server-sent events ----------------------------------------------------------------------


def data_event(body: dict[str, Any]) -> bytes:
    """One `data:` event, compact as the engines write it."""
    return b"data: " + _compact(body) + b"\n\n"


def named_event(body: dict[str, Any], sequence: int) -> bytes:
    """One event of a responses stream: the name is the body's type."""
    body = {**body, "sequence_number": sequence}
    return b"event: " + str(body["type"]).encode() + b"\ndata: " + _compact(body) + b"\n\n"


def _compact(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


# --- embeddings ------------------------------------------------------------------------------


def embedding(model: str, text: str, dimensions: int) -> list[float]:
    """A unit vector that follows from model and text; values are exact in 32 bits."""
    seed = hashlib.blake2b(repr((model, text)).encode("utf-8", "surrogatepass")).digest()
    values: list[float] = []
    block = 0
    while len(values) < dimensions:
        raw = hashlib.blake2b(seed + block.to_bytes(4, "big")).digest()
        values += [number / 2**31 for number in struct.unpack(">16i", raw)]
        block += 1
    values = values[:dimensions]
    norm = math.sqrt(sum(value * value for value in values)) or 1.0
    packed = struct.pack(f"<{dimensions}f", *(value / norm for value in values))
    return list(struct.unpack(f"<{dimensions}f", packed))


def encode_embedding(vector: Sequence[float], encoding: str) -> list[float] | str:
    """The vector as a list, or as base64 of little-endian 32-bit floats."""
    if encoding != "base64":
        return list(vector)
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
