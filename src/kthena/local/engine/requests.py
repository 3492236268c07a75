"""Request bodies of the OpenAI API, checked and reduced to what a generation needs.

Parsing is pure: bytes in, a `GenerationRequest` out, or a `RequestError` with the engine's status
and words. Fields that the mock does not act on (tools, logit bias, penalties) are accepted, as the
real engines accept them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kthena.local.engine import tokens
from kthena.local.engine.config import EngineConfig
from kthena.local.engine.errors import RequestError, context_exceeded, invalid
from kthena.local.engine.generation import Sampling

Endpoint: TypeAlias = Literal["chat", "completions", "responses"]
Body: TypeAlias = dict[str, Any]

_COMPLETIONS_DEFAULT_MAX_TOKENS: Final = 16


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """A request for generated text: `prompts` has one entry per prompt, each with `n` choices."""

    endpoint: Endpoint
    model: str
    prompts: tuple[str, ...]
    prompt_tokens: tuple[int, ...]
    sampling: Sampling
    n: int
    stream: bool
    include_usage: bool
    continuous_usage: bool
    echo: bool
    body: Body

    @property
    def total_prompt_tokens(self) -> int:
        """Tokens of all prompts, each counted once whatever `n` is."""
        return sum(self.prompt_tokens)


def parse_json(raw: bytes) -> Body:
    """The body as an object.

    Raises:
        RequestError: 400 when it is no JSON object.
    """
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise invalid(f"the request body is not valid JSON: {error}") from error
    if not isinstance(body, dict):
        raise invalid(f"the request body must be a JSON object, not {_type_name(body)}")
    return body


def parse_chat(body: Body, config: EngineConfig) -> GenerationRequest:
    """A `/v1/chat/completions` body."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        raise invalid("messages: field required, a list of messages", "messages")
    if not messages:
        raise invalid("messages: must have at least 1 item", "messages")
    prompt = chat_prompt(messages)
    limit = _integer(body, "max_completion_tokens", minimum=1)
    if limit is None:
        limit = _integer(body, "max_tokens", minimum=1)
    return _finish("chat", body, (prompt,), limit, config)


def parse_completion(body: Body, config: EngineConfig) -> GenerationRequest:
    """A `/v1/completions` body; the prompt may be text, token ids, or a list of either."""
    prompts = _completion_prompts(body.get("prompt"))
    limit = _integer(body, "max_tokens", minimum=1)
    if limit is None:
        limit = _COMPLETIONS_DEFAULT_MAX_TOKENS
    return _finish("completions", body, prompts, limit, config)


def parse_response(body: Body, config: EngineConfig) -> GenerationRequest:
    """A `/v1/responses` body; the input may be text or a list of items with a role."""
    given = body.get("input")
    if isinstance(given, str):
        messages: list[Any] = [{"role": "user", "content": given}]
    elif isinstance(given, list) and given:
        messages = given
    else:
        raise invalid("input: field required, a string or a list of items", "input")
    instructions = body.get("instructions")
    if isinstance(instructions, str) and instructions:
        messages = [{"role": "system", "content": instructions}, *messages]
    limit = _integer(body, "max_output_tokens", minimum=1)
    return _finish("responses", body, (chat_prompt(messages),), limit, config)


def chat_prompt(messages: list[Any]) -> str:
    """The messages as one text, each below a line that names its role.

    Raises:
        RequestError: 400 when a message has no role, or content that is no text.
    """
    lines: list[str] = []
    for index, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid(f"messages.{index}.role: field required, a string", "messages")
        lines.append(f"<|{message['role']}|>\n{_content_text(message.get('content'), index)}\n")
    return "".join(lines) + "<|assistant|>\n"


def parse_embedding_input(body: Body) -> tuple[str, ...]:
    """The texts of a `/v1/embeddings` body; token ids count as the text that they stand for."""
    return _completion_prompts(body.get("input"), "input")


def parse_model(body: Body) -> str:
    """`model`, or the empty string where the engine's base model is meant.

    Raises:
        RequestError: 400 when it is no string.
    """
    model = body.get("model")
    if model is None:
        return ""
    if not isinstance(model, str):
        raise invalid(f"model: must be a string, not {_type_name(model)}", "model")
    return model


def _finish(
    endpoint: Endpoint,
    body: Body,
    prompts: tuple[str, ...],
    limit: int | None,
    config: EngineConfig,
) -> GenerationRequest:
    """Check the fields that all three endpoints share, and the context length."""
    model = parse_model(body)
    stream = _boolean(body, "stream")
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise invalid("stream_options: must be an object", "stream_options")
    if options is not None and not stream:
        raise invalid("Stream options can only be defined when `stream=True`.", "stream_options")
    counts = tuple(len(tokens.tokenize(prompt)) for prompt in prompts)
    longest = max(counts)
    max_tokens = max(config.max_model_len - longest, 0) if limit is None else limit
    if longest + max(max_tokens, 1) > config.max_model_len:
        raise context_exceeded(config.engine, config.max_model_len, longest, max_tokens)
    return GenerationRequest(
        endpoint=endpoint,
        model=model,
        prompts=prompts,
        prompt_tokens=counts,
        sampling=_sampling(body, max_tokens),
        n=_integer(body, "n", minimum=1) or 1,
        stream=stream,
        include_usage=stream and _boolean(options or {}, "include_usage"),
        continuous_usage=stream and _boolean(options or {}, "continuous_usage_stats"),
        echo=endpoint == "completions" and _boolean(body, "echo"),
        body=body,
    )


def _sampling(body: Body, max_tokens: int) -> Sampling:
    temperature = _number(body, "temperature")
    if temperature is not None and temperature < 0:
        raise invalid(f"temperature must be non-negative, got {temperature}.", "temperature")
    top_p = _number(body, "top_p")
    if top_p is not None and not 0 < top_p <= 1:
        raise invalid(f"top_p must be in (0, 1], got {top_p}.", "top_p")
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=min(_integer(body, "min_tokens", minimum=0) or 0, max_tokens),
        seed=_integer(body, "seed"),
        temperature=temperature,
        top_p=top_p,
        stop=_stop_strings(body.get("stop")),
        stop_token_ids=_stop_tokens(body.get("stop_token_ids")),
        include_stop=_boolean(body, "include_stop_str_in_output"),
        ignore_eos=_boolean(body, "ignore_eos"),
    )


def _content_text(content: object, index: int) -> str:
    """The text of a message; parts that are no text stand as `<type>`."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"messages.{index}.content: must be a string or a list", "messages")
    texts = []
    for part in content:
        if not isinstance(part, dict):
            raise invalid(f"messages.{index}.content: parts must be objects", "messages")
        text = part.get("text")
        texts.append(text if isinstance(text, str) else f"<{part.get('type')}>")
    return "".join(texts)


def _completion_prompts(prompt: object, field: str = "prompt") -> tuple[str, ...]:
    problem = invalid(
        f"{field}: field required, a string, a list of strings, or a list of token ids", field
    )
    if isinstance(prompt, str):
        return (prompt,)
    if not isinstance(prompt, list) or not prompt:
        raise problem
    if all(isinstance(item, str) for item in prompt):
        return tuple(prompt)
    lists = [prompt] if all(_is_integer(item) for item in prompt) else prompt
    if not all(isinstance(ids, list) and all(_is_integer(item) for item in ids) for ids in lists):
        raise problem
    try:
        return tuple(tokens.detokenize(ids) for ids in lists)
    except ValueError as error:
        raise RequestError(400, str(error), param=field) from error


def _stop_strings(stop: object) -> tuple[str, ...]:
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,)
    if isinstance(stop, list) and all(isinstance(item, str) for item in stop):
        return tuple(stop)
    raise invalid("stop: must be a string or a list of strings", "stop")


def _stop_tokens(stop: object) -> tuple[int, ...]:
    if stop is None:
        return ()
    if isinstance(stop, list) and all(_is_integer(item) for item in stop):
        return tuple(stop)
    raise invalid("stop_token_ids: must be a list of integers", "stop_token_ids")


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integer(body: Mapping[str, Any], name: str, *, minimum: int | None = None) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not _is_integer(value):
        raise invalid(f"{name}: must be an integer, not {_type_name(value)}", name)
    number = int(value)
    if minimum is not None and number < minimum:
        raise invalid(f"{name} must be at least {minimum}, got {number}.", name)
    return number


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid(f"{name}: must be a number, not {_type_name(value)}", name)
    return float(value)


def _boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise invalid(f"{name}: must be a boolean, not {_type_name(value)}", name)
    return value


def _type_name(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
