"""Probe parsing and verdicts; the actions over real sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.node.actions import Outcome, Target, run_action
from kthena.local.node.probes import Probe, ProbeError, Verdict, parse_probe, probe_host, probe_port

CONTAINER = {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]}


def test_defaults_are_the_apis() -> None:
    probe = parse_probe({"name": "c", "livenessProbe": {"tcpSocket": {"port": 1}}}, "liveness")

    assert probe == Probe("liveness", "tcpSocket", {"port": 1}, 0, 10, 1, 1, 3, None)
    assert parse_probe({"name": "c"}, "startup") is None


def test_all_fields_are_read() -> None:
    spec = {
        "grpc": {"port": 1},
        "initialDelaySeconds": 180,
        "periodSeconds": 5,
        "timeoutSeconds": 2,
        "successThreshold": 2,
        "failureThreshold": 30,
        "terminationGracePeriodSeconds": 0,
    }
    probe = parse_probe({"name": "c", "readinessProbe": spec}, "readiness")

    assert probe == Probe("readiness", "grpc", {"port": 1}, 180, 5, 2, 2, 30, 0)


@pytest.mark.parametrize("spec", [{"periodSeconds": 5}, {"exec": {}, "tcpSocket": {}}])
def test_a_probe_has_one_action(spec: Any) -> None:
    with pytest.raises(ProbeError, match="livenessProbe of container c"):
        parse_probe({"name": "c", "livenessProbe": spec}, "liveness")


@pytest.mark.parametrize("host", ["", None, "localhost", "127.0.0.1", "::1"])
def test_local_hosts_mean_the_pod(host: Any) -> None:
    assert probe_host(host, "127.2.0.5") == "127.2.0.5"


def test_other_hosts_stay() -> None:
    assert probe_host("127.0.0.2", "127.2.0.5") == "127.0.0.2"


@pytest.mark.parametrize(("value", "port"), [(80, 80), ("80", 80), ("http", 8080)])
def test_ports_by_number_and_name(value: Any, port: int) -> None:
    assert probe_port(value, CONTAINER) == port


def test_an_unknown_port_name_is_refused() -> None:
    with pytest.raises(ProbeError, match="no port named 'nope'"):
        probe_port("nope", CONTAINER)


@given(
    st.lists(st.booleans(), max_size=40),
    st.integers(min_value=1, max_value=5),
    st.integers(min_value=1, max_value=5),
)
def test_a_verdict_changes_only_after_enough_equal_results(
    results: list[bool], successes: int, failures: int
) -> None:
    probe = Probe("readiness", "exec", {}, success_threshold=successes, failure_threshold=failures)
    verdict = Verdict()
    expected: bool | None = None
    for index, result in enumerate(results):
        verdict = verdict.after(probe, success=result)
        needed = successes if result else failures
        tail = results[max(index + 1 - needed, 0) : index + 1]
        if len(tail) == needed and set(tail) == {result}:
            expected = result
        assert verdict.healthy is expected


@asynccontextmanager
async def listener(reply: bytes, host: str = "127.3.4.5") -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server that answers every connection with `reply`, and keeps what it was sent."""
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if reply:
                seen.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(reply)
                await writer.drain()
            else:
                await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, host, 0)
    async with server:
        yield server.sockets[0].getsockname()[1], seen


async def no_exec(command: Any, timeout_s: float) -> Outcome:
    return Outcome(success=list(command) == ["true"], text="ran")


TARGET = Target(CONTAINER, "127.3.4.5", no_exec)


@pytest.mark.parametrize(
    ("status", "success"),
    [
        ("200 OK", True),
        ("204 No Content", True),
        ("302 Found", True),
        ("404 x", False),
        ("500 x", False),
    ],
)
async def test_http_success_is_200_to_399(status: str, success: bool) -> None:
    async with listener(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()) as (port, seen):
        handler = {"path": "/health", "port": port, "host": "localhost",
                   "httpHeaders": [{"name": "X-A", "value": "b"}]}  # fmt: skip
        outcome = await run_action("httpGet", handler, TARGET, 1)

    assert outcome.success is success
    assert b"GET /health HTTP/1.1\r\n" in seen[0]
    assert b"\r\nX-A: b\r\n" in seen[0]
    assert b"\r\nUser-Agent: kube-probe/" in seen[0]
    if not success:
        assert outcome.text == f"HTTP probe failed with statuscode: {status[:3]}"


async def test_a_chunked_reply_is_read() -> None:
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    async with listener(reply) as (port, _):
        assert (await run_action("httpGet", {"port": port}, TARGET, 1)).success


@pytest.mark.parametrize("reply", [b"nonsense\r\n\r\n", b"HTTP/1.1 2\r\n\r\n" * 0 + b"\r\n\r\n"])
async def test_a_reply_that_is_not_http_fails(reply: bytes) -> None:
    async with listener(reply) as (port, _):
        outcome = await run_action("httpGet", {"port": port}, TARGET, 1)
    assert not outcome.success
    assert "not HTTP" in outcome.text


async def test_silence_fails_by_timeout_and_refusal_at_once() -> None:
    async with listener(b"") as (port, _):
        silent = await run_action("httpGet", {"port": port}, TARGET, 0.1)
        open_port = await run_action("tcpSocket", {"port": port}, TARGET, 1)
        grpc = await run_action("grpc", {"port": port}, TARGET, 1)
    closed = await run_action("tcpSocket", {"port": port}, TARGET, 1)

    assert not silent.success
    assert "no reply within 0.1 s" in silent.text
    assert open_port.success
    assert grpc.success
    assert not closed.success
    assert f"dial tcp 127.3.4.5:{port}" in closed.text


async def test_a_named_port_that_does_not_exist_is_a_failure() -> None:
    outcome = await run_action("httpGet", {"port": "nope"}, TARGET, 1)
    assert not outcome.success
    assert "no port named" in outcome.text


async def test_commands_go_to_the_container() -> None:
    assert (await run_action("exec", {"command": ["true"]}, TARGET, 1)).success
    assert not (await run_action("exec", {"command": ["false"]}, TARGET, 1)).success
