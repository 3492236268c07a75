import base64
import json
import struct
from typing import Any

import pytest

from kthena.local.engine.config import LoRAModule
from support.engine import CHAT, MODEL, call, chat, engine, metrics_of, post, send, stream_of


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_chat_answers_and_repeats_itself(dialect: Any) -> None:
    async with engine(engine=dialect) as server, engine(engine=dialect) as other:
        first = (await post(server, CHAT, chat(), x_request_id="r1")).json()
        second = (await post(other, CHAT, chat(), x_request_id="r1")).json()

    choice = first["choices"][0]
    assert first["id"] == "chatcmpl-r1"
    assert first["object"] == "chat.completion"
    assert first["model"] == MODEL
    assert choice["message"]["role"] == "assistant"
    assert MODEL in choice["message"]["content"]
    assert choice["finish_reason"] == "stop"
    assert choice["logprobs"] is None
    usage = first["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert second["choices"] == first["choices"]


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize(
    ("path", "body"),
    [(CHAT, {"messages": [{"role": "user", "content": "hi"}]}),
     ("/v1/completions", {"prompt": ["a", "b"], "max_tokens": 30, "echo": True})],
)  # fmt: skip
async def test_a_stream_carries_the_same_text_as_the_whole_answer(
    path: str, body: dict[str, Any], n: int
) -> None:
    async with engine() as server:
        whole = (await post(server, path, {**body, "n": n})).json()
        options = {"stream_options": {"include_usage": True}}
        chunks = await stream_of(server, path, {**body, "n": n, **options})

    assert chunks[-1] == "[DONE]"
    assert chunks[-2]["choices"] == []
    assert chunks[-2]["usage"] == whole["usage"]
    texts: dict[int, str] = {}
    reasons: dict[int, Any] = {}
    for chunk in chunks[:-2]:
        assert "usage" not in chunk
        (choice,) = chunk["choices"]
        piece = choice["text"] if path != CHAT else choice["delta"]["content"]
        texts[choice["index"]] = texts.get(choice["index"], "") + piece
        assert reasons.get(choice["index"]) is None, "a chunk after the last one"
        reasons[choice["index"]] = choice["finish_reason"]
    expected = {
        choice["index"]: choice["text"] if path != CHAT else choice["message"]["content"]
        for choice in whole["choices"]
    }
    assert texts == expected
    assert reasons == {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}


async def test_usage_is_streamed_only_when_asked_for() -> None:
    async with engine() as server:
        plain = await stream_of(server, CHAT, chat())
        every = await stream_of(server, CHAT, chat(stream_options={"continuous_usage_stats": True}))

    assert all("usage" not in chunk for chunk in plain[:-1])
    counts = [chunk["usage"]["completion_tokens"] for chunk in every[:-1]]
    assert counts == list(range(len(counts)))


async def test_a_stop_string_is_cut_off_in_a_stream_too() -> None:
    async with engine() as server:
        text = (await post(server, CHAT, chat())).json()["choices"][0]["message"]["content"]
        chunks = await stream_of(server, CHAT, chat(stop=text[10:14]))

    streamed = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks[:-1])
    assert streamed == text[: text.find(text[10:14])]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-2]["choices"][0]["stop_reason"] == text[10:14]


async def test_an_answer_that_a_stop_string_empties_still_ends() -> None:
    async with engine() as server:
        text = (await post(server, CHAT, chat())).json()["choices"][0]["message"]["content"]
        chunks = await stream_of(server, CHAT, chat(stop=text[:1]))

    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[:-1]][-1] == "stop"


async def test_the_responses_api_answers_and_streams() -> None:
    async with engine() as server:
        whole = (await post(server, "/v1/responses", {"model": MODEL, "input": "hi"})).json()
        events = await stream_of(server, "/v1/responses", {"model": MODEL, "input": "hi"})
        short = (
            await post(server, "/v1/responses", {"input": "hi", "max_output_tokens": 2})
        ).json()

    text = whole["output"][0]["content"][0]["text"]
    assert whole["status"] == "completed"
    assert whole["usage"]["output_tokens"] > 0
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[-1]["type"] == "response.completed"
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == text
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(event["delta"] for event in deltas) == text
    assert short["status"] == "incomplete"
    assert short["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
async def test_an_unknown_model_is_404_in_the_engines_shape(dialect: Any) -> None:
    async with engine(engine=dialect) as server:
        reply = await post(server, CHAT, {**chat(), "model": "other"})

    detail = reply.json()["error"] if dialect == "vllm" else reply.json()
    assert reply.status == 404
    assert detail["message"] == "The model `other` does not exist."
    assert (detail["type"], detail["code"]) == ("NotFoundError", 404)


async def test_no_model_means_the_base_model() -> None:
    async with engine(models=("first", "second")) as server:
        reply = await post(server, CHAT, {"messages": [{"role": "user", "content": "x"}]})
        second = await post(server, CHAT, {**chat(), "model": "second"})

    assert reply.json()["model"] == "first"
    assert second.json()["model"] == "second"


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"messages": 5}'])
async def test_an_invalid_body_is_400(raw: bytes) -> None:
    async with engine() as server:
        reply = await call(server, "POST", CHAT, raw)

    assert reply.status == 400
    assert reply.json()["error"]["type"] == "Bad Request"


async def test_unknown_paths_and_methods_are_json() -> None:
    async with engine() as server:
        missing = await call(server, "GET", "/nothing")
        method = await call(server, "GET", CHAT)

    assert (missing.status, missing.json()) == (404, {"detail": "Not Found"})
    assert (method.status, method.json()) == (405, {"detail": "Method Not Allowed"})


async def test_models_name_the_base_and_its_adapters() -> None:
    adapter = LoRAModule("sql", "/adapters/sql")
    async with engine(models=(MODEL,), lora_modules=(adapter,), model_path="/models/m") as server:
        cards = (await call(server, "GET", "/v1/models")).json()["data"]
        reply = await post(server, CHAT, {**chat(), "model": "sql"})

    assert [(card["id"], card["root"], card["parent"]) for card in cards] == [
        (MODEL, "/models/m", None),
        ("sql", "/adapters/sql", MODEL),
    ]
    assert reply.json()["model"] == "sql"


async def test_vllm_loads_and_unloads_adapters() -> None:
    load, unload = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
    body = {"lora_name": "a", "lora_path": "/a"}
    async with engine() as server:
        replies = [
            await post(server, load, body),
            await post(server, load, body),
            await post(server, load, {**body, "load_inplace": True}),
            await post(server, load, {"lora_name": "a"}),
            await post(server, CHAT, {**chat(), "model": "a"}),
            await post(server, unload, {"lora_name": "a"}),
            await post(server, unload, {"lora_name": "a"}),
            await post(server, CHAT, {**chat(), "model": "a"}),
        ]
        other = await post(server, "/load_lora_adapter", body)

    assert [reply.status for reply in replies] == [200, 400, 200, 400, 200, 200, 404, 404]
    assert replies[0].body == b"Success: LoRA adapter 'a' added successfully."
    assert replies[1].json()["error"]["type"] == "InvalidUserInput"
    assert other.status == 404


async def test_sglang_loads_and_unloads_adapters_under_its_own_paths() -> None:
    load, unload = "/load_lora_adapter", "/unload_lora_adapter"
    body = {"lora_name": "a", "lora_path": "/a"}
    async with engine(engine="sglang") as server:
        replies = [
            await post(server, load, body),
            await post(server, load, body),
            await post(server, CHAT, {**chat(), "model": f"{MODEL}:a"}),
            await post(server, unload, {"lora_name": "a"}),
            await post(server, unload, {"lora_name": "a"}),
        ]
        other = await post(server, "/v1/load_lora_adapter", body)

    assert [reply.status for reply in replies] == [200, 400, 200, 200, 400]
    assert replies[0].json() == {
        "success": True,
        "error_message": "",
        "loaded_adapters": {"a": "/a"},
    }
    assert other.status == 404


async def test_tokenize_and_detokenize_are_inverse() -> None:
    async with engine() as server:
        count = (
            await post(server, "/tokenize", {"model": MODEL, "prompt": "a house, naïve"})
        ).json()
        text = (await post(server, "/detokenize", {"tokens": count["tokens"]})).json()
        chatted = (await post(server, "/tokenize", chat())).json()
        answer = (await post(server, CHAT, chat())).json()
        wrong = await post(server, "/detokenize", {"tokens": [True]})

    assert count["count"] == len(count["tokens"])
    assert count["max_model_len"] == 32768
    assert text == {"prompt": "a house, naïve"}
    assert chatted["count"] == answer["usage"]["prompt_tokens"]
    assert wrong.status == 400


async def test_embeddings_are_unit_vectors_that_follow_from_the_text() -> None:
    async with engine() as server:
        body = {"model": MODEL, "input": ["a", "b", "a"], "dimensions": 100}
        plain = (await post(server, "/v1/embeddings", body)).json()
        packed = (
            await post(server, "/v1/embeddings", {**body, "encoding_format": "base64"})
        ).json()
        refused = await post(server, "/v1/embeddings", {**body, "dimensions": 0})

    vectors = [entry["embedding"] for entry in plain["data"]]
    assert vectors[0] == vectors[2] != vectors[1]
    assert len(vectors[0]) == 100
    assert sum(value * value for value in vectors[0]) == pytest.approx(1, rel=1e-5)
    raw = base64.b64decode(packed["data"][0]["embedding"])
    assert list(struct.unpack("<100f", raw)) == vectors[0]
    assert plain["usage"]["prompt_tokens"] == 3
    assert refused.status == 400


@pytest.mark.parametrize(
    ("dialect", "paths"),
    [
        ("vllm", ["/health", "/ping", "/version", "/metrics"]),
        (
            "sglang",
            ["/health", "/health_generate", "/get_model_info", "/get_server_info", "/metrics"],
        ),
    ],
)
async def test_each_engine_has_the_endpoints_that_its_clients_ask(
    dialect: Any, paths: list[str]
) -> None:
    async with engine(engine=dialect) as server:
        statuses = [(await call(server, "GET", path)).status for path in paths]
        card = await call(server, "GET", f"/v1/models/{MODEL}")

    assert statuses == [200] * len(paths)
    assert card.status == (200 if dialect == "sglang" else 404)


async def test_the_pod_is_named_in_a_header() -> None:
    async with engine(pod="pod-1") as server:
        good = await post(server, CHAT, chat())
        bad = await post(server, CHAT, {**chat(), "model": "x"})

    assert good.headers["x-kthena-mock-pod"] == "pod-1"
    assert bad.headers["x-kthena-mock-pod"] == "pod-1"


async def test_large_integers_and_odd_texts_survive() -> None:
    body = (
        '{"messages": [{"role": "user", "content": "\\ud800 \\u00e9"}], "seed": 9007199254740993}'
    )
    async with engine() as server:
        reply = await call(server, "POST", CHAT, body.encode())
        again = await call(server, "POST", CHAT, body.replace("993}", "992}").encode())

    assert reply.status == 200
    assert reply.json()["choices"] != again.json()["choices"]


async def test_metrics_have_the_names_that_routers_read() -> None:
    async with engine() as vllm, engine(engine="sglang") as sglang:
        await post(vllm, CHAT, chat())
        await post(sglang, CHAT, chat())
        left, right = await metrics_of(vllm), await metrics_of(sglang)

    def value(samples: dict[str, float], name: str) -> float:
        return sum(count for key, count in samples.items() if key.split("{")[0] == name)

    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        assert value(left, f"vllm:{name}") == 0
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage"):
        assert value(right, f"sglang:{name}") == 0
    for samples, prefix in ((left, "vllm"), (right, "sglang")):
        assert value(samples, f"{prefix}:time_to_first_token_seconds_count") == 1
        assert value(samples, f"{prefix}:e2e_request_latency_seconds_count") == 1
        assert value(samples, f"{prefix}:generation_tokens_total") > 0
        assert value(samples, f"{prefix}:prompt_tokens_total") > 0
    assert (
        left[
            'vllm:request_success_total{engine="0",model_name="mock/model",finished_reason="stop"}'
        ]
        == 1
    )


async def test_the_exposition_is_what_prometheus_reads() -> None:
    from prometheus_client.parser import text_string_to_metric_families

    async with engine(models=('we"ird\\na\nme',)) as server:
        await post(server, CHAT, {"messages": [{"role": "user", "content": "x"}]})
        text = (await call(server, "GET", "/metrics")).body.decode()

    families = {family.name: family for family in text_string_to_metric_families(text)}
    histogram = families["vllm:time_to_first_token_seconds"]
    assert histogram.type == "histogram"
    assert histogram.samples[0].labels["model_name"] == 'we"ird\\na\nme'
    buckets = [s.value for s in histogram.samples if s.name.endswith("_bucket")]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 1


async def test_a_stream_is_sent_as_events() -> None:
    async with engine() as server:
        stream = await send(server, "POST", CHAT, chat(stream=True))
        await stream.rest()
        stream.writer.close()

    assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert json.loads(stream.events[0])["object"] == "chat.completion.chunk"
