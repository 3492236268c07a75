"""Prefill/decode: each connector's fields, and what becomes of a wrong dialect."""

import asyncio
from typing import Any

import pytest

from kthena.local.engine import kvtransfer
from kthena.local.engine.config import EngineConfig, KVTransfer
from kthena.local.engine.requests import parse_chat
from support.engine import CHAT, chat, engine, metrics_of, post

PARAMS = "kv_transfer_params"
ASK = {"do_remote_decode": True, "do_remote_prefill": False}


def nixl(role: Any, **settings: Any) -> KVTransfer:
    return KVTransfer(role=role, connector="nixl", strict=True, **settings)


def verdict(kv: KVTransfer, **fields: Any) -> str:
    config = EngineConfig(models=("m",), kv=kv)
    body = {"messages": [{"role": "user", "content": "x"}], **fields}
    return kvtransfer.check(parse_chat(body, config), config).verdict


async def test_nixl_hands_the_cache_from_prefill_to_decode() -> None:
    async with engine(kv=nixl("prefill")) as prefill, engine(kv=nixl("decode")) as decode:
        first = await post(prefill, CHAT, chat(max_tokens=1, **{PARAMS: ASK}))
        handed = first.json()[PARAMS]
        second = await post(decode, CHAT, chat(**{PARAMS: handed}))
        wrong = await post(decode, CHAT, chat("other prompt", **{PARAMS: handed}))
        samples = await metrics_of(decode)

    assert handed["do_remote_prefill"] is True
    assert {"remote_block_ids", "remote_engine_id", "remote_host", "remote_port"} <= set(handed)
    assert second.status == 200
    assert second.headers["x-kthena-mock-kv-transfer"] == "ok"
    assert second.json()[PARAMS] is None
    assert wrong.status == 400
    assert "of another prompt or model" in wrong.json()["error"]["message"]
    name = "kthena_mock_kv_transfer_checks_total"
    assert samples[f'{name}{{role="decode",verdict="ok"}}'] == 1
    assert samples[f'{name}{{role="decode",verdict="mismatch"}}'] == 1


async def test_the_pair_answers_as_one_engine_does() -> None:
    async with (
        engine() as alone,
        engine(kv=nixl("prefill")) as first,
        engine(kv=nixl("decode")) as second,
    ):
        expected = (await post(alone, CHAT, chat())).json()["choices"]
        handed = (await post(first, CHAT, chat(max_tokens=1, **{PARAMS: ASK}))).json()[PARAMS]
        answer = (await post(second, CHAT, chat(**{PARAMS: handed}))).json()["choices"]

    assert answer == expected


@pytest.mark.parametrize("connector", ["nixl", "mooncake"])
def test_verdicts_of_connectors_that_pass_parameters(connector: Any) -> None:
    prefill = KVTransfer("prefill", connector)
    decode = KVTransfer("decode", connector)
    both = KVTransfer("both", connector)
    half = {"do_remote_prefill": True, "remote_engine_id": "x"}

    assert verdict(prefill, **{PARAMS: ASK}) == "ok"
    assert verdict(prefill) == "missing"
    assert verdict(prefill, **{PARAMS: half}) == "mismatch"
    assert verdict(decode, **{PARAMS: ASK}) == "mismatch"
    assert verdict(decode) == "missing"
    assert verdict(decode, **{PARAMS: None}) == "missing"
    assert verdict(decode, **{PARAMS: half}) == "missing"
    assert verdict(decode, **{PARAMS: "text"}) == "mismatch"
    assert verdict(decode, bootstrap_room=5) == "foreign"
    assert verdict(both) == "none"
    assert verdict(both, **{PARAMS: ASK}) == "ok"
    assert verdict(both, **{PARAMS: {}}) == "missing"


def test_a_decode_engine_does_not_take_its_own_cache() -> None:
    config = EngineConfig(models=("m",), kv=KVTransfer("both", "nixl"))
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x"}], PARAMS: ASK}
    own = kvtransfer.reply_params(parse_chat(body, config), config)

    found = kvtransfer.check(parse_chat({**body, PARAMS: own}, config), config)

    assert (found.verdict, found.detail) == ("mismatch", "remote_engine_id is this engine's own")


@pytest.mark.parametrize("connector", ["none", "lmcache"])
def test_connectors_without_fields_show_foreign_ones(connector: Any) -> None:
    kv = KVTransfer("decode", connector)

    assert verdict(kv) == "none"
    assert verdict(kv, **{PARAMS: ASK}) == "foreign"
    assert verdict(kv, bootstrap_room=1) == "foreign"


def test_verdicts_of_sglang() -> None:
    prefill, decode = KVTransfer("prefill", "sglang"), KVTransfer("decode", "sglang")
    none = KVTransfer("none", "sglang")

    assert verdict(prefill, bootstrap_room=5) == "ok"
    assert verdict(prefill) == "missing"
    assert verdict(decode, bootstrap_room=5) == "missing"
    assert verdict(decode, bootstrap_room=5, bootstrap_host="127.0.0.9") == "ok"
    assert verdict(decode, bootstrap_room=[5], bootstrap_host=["127.0.0.9"]) == "ok"
    assert verdict(decode, bootstrap_room="5", bootstrap_host="h") == "mismatch"
    assert verdict(decode, bootstrap_room=-1, bootstrap_host="h") == "mismatch"
    assert verdict(decode, bootstrap_room=5, bootstrap_host="h", bootstrap_port="x") == "mismatch"
    assert verdict(prefill, **{PARAMS: ASK}) == "foreign"
    assert verdict(none) == "none"


async def test_without_strictness_a_wrong_dialect_is_served_and_shown() -> None:
    async with engine(kv=KVTransfer("decode", "nixl")) as server:
        missing = await post(server, CHAT, chat())
        foreign = await post(server, CHAT, chat(bootstrap_room=5))

    assert [missing.status, foreign.status] == [200, 200]
    assert missing.headers["x-kthena-mock-kv-transfer"] == "missing"
    assert foreign.headers["x-kthena-mock-kv-transfer"] == "foreign"


async def test_a_strict_decode_engine_refuses_a_request_without_prefill() -> None:
    async with engine(kv=nixl("decode")) as server:
        reply = await post(server, CHAT, chat())

    assert reply.status == 400
    assert reply.json()["error"]["param"] == PARAMS


def sglang(role: Any, port: int = 0, timeout_s: float = 5) -> KVTransfer:
    return KVTransfer(role, "sglang", bootstrap_port=port, timeout_s=timeout_s)


async def pair(
    first_text: str = "hello", second_text: str = "hello", room: int = 7
) -> tuple[Any, Any]:
    """Both legs of one request at the same time; their replies."""
    async with (
        engine(engine="sglang", kv=sglang("prefill")) as prefill,
        engine(engine="sglang", kv=sglang("decode")) as decode,
    ):
        assert prefill.engine.bootstrap is not None
        host = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.engine.bootstrap.port}
        return await asyncio.gather(
            post(prefill, CHAT, chat(first_text, bootstrap_room=7, max_tokens=1)),
            post(decode, CHAT, chat(second_text, bootstrap_room=room, **host)),
        )


async def test_sglang_legs_meet_in_their_room() -> None:
    first, second = await pair()

    assert [first.status, second.status] == [200, 200]
    assert second.json()["usage"]["completion_tokens"] > 1


async def test_sglang_legs_of_different_prompts_do_not_match() -> None:
    first, second = await pair(second_text="something else")

    assert first.status == 200
    assert second.status == 500
    assert "another prompt or model" in second.json()["message"]
    assert second.json()["type"] == "KVTransferError"


async def test_sglang_needs_a_room_in_either_role() -> None:
    async with engine(engine="sglang", kv=sglang("prefill")) as prefill:
        reply = await post(prefill, CHAT, chat())

    assert reply.status == 400
    assert "without bootstrap room id" in reply.json()["message"]


async def test_an_sglang_leg_without_its_partner_fails_in_time() -> None:
    kv = sglang("prefill", timeout_s=0.1)
    async with engine(engine="sglang", kv=kv) as prefill:
        assert prefill.engine.bootstrap is not None
        alone = await post(prefill, CHAT, chat(bootstrap_room=1))
        async with engine(engine="sglang", kv=sglang("decode", timeout_s=1)) as decode:
            host = {"bootstrap_host": "127.0.0.1", "bootstrap_port": prefill.engine.bootstrap.port}
            late = await post(decode, CHAT, chat(bootstrap_room=1, **host))
            lost = await post(
                decode, CHAT, chat(bootstrap_room=1, bootstrap_host="127.0.0.1", bootstrap_port=1)
            )

    assert alone.status == 500
    assert "no decode engine took the KV cache" in alone.json()["message"]
    assert late.status == 500
    assert "no prefill request came" in late.json()["message"]
    assert "cannot be reached" in lost.json()["message"]


async def test_a_streamed_leg_that_fails_has_a_status_too() -> None:
    async with engine(engine="sglang", kv=sglang("prefill", timeout_s=0.1)) as prefill:
        reply = await post(prefill, CHAT, chat(bootstrap_room=1, stream=True))

    assert reply.status == 500
    assert reply.json()["type"] == "KVTransferError"


async def test_a_room_is_free_again_after_its_legs_and_taken_while_in_use() -> None:
    async with engine(engine="sglang", kv=sglang("prefill")) as prefill:
        bootstrap = prefill.engine.bootstrap
        assert bootstrap is not None
        first = asyncio.create_task(post(prefill, CHAT, chat(bootstrap_room=3)))
        await asyncio.sleep(0.05)
        second = await post(prefill, CHAT, chat(bootstrap_room=3))
        async with engine(engine="sglang", kv=sglang("decode")) as decode:
            body = chat(bootstrap_room=3, bootstrap_host="127.0.0.1", bootstrap_port=bootstrap.port)
            assert (await post(decode, CHAT, body)).status == 200
        assert (await first).status == 200

    assert second.status == 500
    assert "in use" in second.json()["message"]
    assert bootstrap._rooms == {}
