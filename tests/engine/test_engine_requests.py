import json
from typing import Any

import pytest

from kthena.local.engine import requests
from kthena.local.engine.config import EngineConfig
from kthena.local.engine.errors import RequestError

CONFIG = EngineConfig(models=("m",), max_model_len=200)
MESSAGES = [{"role": "user", "content": "hi"}]


def problem(parse: Any, body: Any, config: EngineConfig = CONFIG) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parse(body, config)
    return caught.value


@pytest.mark.parametrize(
    ("body", "field", "text"),
    [
        ({}, "messages", "field required"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": ["hi"]}, "messages", "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages", "messages.0.content"),
        ({"messages": [{"role": "user", "content": [5]}]}, "messages", "parts must be objects"),
        ({"messages": MESSAGES, "n": 0}, "n", "n must be at least 1, got 0"),
        ({"messages": MESSAGES, "n": True}, "n", "must be an integer, not a boolean"),
        ({"messages": MESSAGES, "max_tokens": 0}, "max_tokens", "at least 1, got 0"),
        ({"messages": MESSAGES, "max_tokens": "5"}, "max_tokens", "must be an integer"),
        ({"messages": MESSAGES, "temperature": -1}, "temperature", "non-negative, got -1"),
        ({"messages": MESSAGES, "top_p": 0}, "top_p", "top_p must be in (0, 1], got 0"),
        ({"messages": MESSAGES, "stream": 1}, "stream", "must be a boolean, not a number"),
        ({"messages": MESSAGES, "stop": [1]}, "stop", "string or a list of strings"),
        ({"messages": MESSAGES, "stop_token_ids": "x"}, "stop_token_ids", "list of integers"),
        ({"messages": MESSAGES, "model": 5}, "model", "must be a string, not a number"),
        ({"messages": MESSAGES, "stream_options": {}}, "stream_options", "only be defined when"),
        ({"messages": MESSAGES, "stream": True, "stream_options": 1}, "stream_options", "object"),
    ],
)
def test_an_invalid_chat_body_is_refused_with_the_field(body: Any, field: str, text: str) -> None:
    error = problem(requests.parse_chat, body)

    assert error.status == 400
    assert error.param == field
    assert text in error.message


@pytest.mark.parametrize("raw", [b"", b"{", b"[1]", b'"x"', b"\xff", b"[" * 100000])
def test_a_body_that_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        requests.parse_json(raw)
    assert caught.value.status == 400


@pytest.mark.parametrize("prompt", [None, 5, [], [[]] * 0, [True], ["a", 5], [["a"]]])
def test_an_invalid_prompt_is_refused(prompt: Any) -> None:
    assert problem(requests.parse_completion, {"prompt": prompt}).param == "prompt"


def test_prompts_may_be_text_lists_and_token_ids() -> None:
    def prompts(value: Any) -> tuple[str, ...]:
        return requests.parse_completion({"prompt": value}, CONFIG).prompts

    from kthena.local.engine.tokens import tokenize

    ids = tokenize("a house")
    assert prompts("a house") == ("a house",)
    assert prompts(["a", "b"]) == ("a", "b")
    assert prompts(ids) == ("a house",)
    assert prompts([ids, ids]) == ("a house", "a house")
    assert problem(requests.parse_completion, {"prompt": [-1]}).status == 400


def test_completions_default_to_sixteen_tokens_and_chat_to_the_context() -> None:
    completion = requests.parse_completion({"prompt": "x"}, CONFIG)
    chat = requests.parse_chat({"messages": MESSAGES}, CONFIG)

    assert completion.sampling.max_tokens == 16
    assert chat.sampling.max_tokens == 200 - chat.prompt_tokens[0]


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    body = {"messages": MESSAGES, "max_tokens": 5, "max_completion_tokens": 7}
    assert requests.parse_chat(body, CONFIG).sampling.max_tokens == 7


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("limit", [None, 199])
def test_a_context_that_is_too_long_is_refused_in_the_engines_words(
    engine: Any, limit: int | None
) -> None:
    config = EngineConfig(engine=engine, models=("m",), max_model_len=200)
    length = 5 if limit else 5000
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x " * length}]}
    if limit:
        body["max_tokens"] = limit

    error = problem(requests.parse_chat, body, config)

    assert error.status == 400
    assert "maximum context length" in error.message
    assert "200 tokens" in error.message


def test_a_context_that_fits_exactly_is_served() -> None:
    tokens = requests.parse_chat({"messages": MESSAGES}, CONFIG).prompt_tokens[0]
    body = {"messages": MESSAGES, "max_tokens": 200 - tokens}

    assert requests.parse_chat(body, CONFIG).sampling.max_tokens == 200 - tokens
    problem(requests.parse_chat, {"messages": MESSAGES, "max_tokens": 201 - tokens})


def test_responses_take_text_items_and_instructions() -> None:
    text = requests.parse_response({"input": "hi"}, CONFIG)
    items = requests.parse_response({"input": MESSAGES}, CONFIG)
    guided = requests.parse_response({"input": "hi", "instructions": "be brief"}, CONFIG)

    assert text.prompts == items.prompts
    assert guided.prompts[0].startswith("<|system|>\nbe brief\n")
    assert problem(requests.parse_response, {"input": []}).param == "input"


def test_content_parts_are_joined_and_other_media_named() -> None:
    parts = [{"type": "text", "text": "look: "}, {"type": "image_url", "image_url": {"url": "x"}}]
    body = {"messages": [{"role": "user", "content": parts}]}

    assert "look: <image_url>" in requests.parse_chat(body, CONFIG).prompts[0]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_errors_have_the_shape_of_the_engine(engine: Any) -> None:
    body = RequestError(404, "no", kind="NotFoundError", param="model").body(engine)

    inner = {"message": "no", "type": "NotFoundError", "param": "model", "code": 404}
    expected = {"error": inner} if engine == "vllm" else {"object": "error", **inner}
    assert body == expected
    assert json.dumps(body)
