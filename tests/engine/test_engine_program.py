"""The mock engine as a process of its own, as the node starts it."""

import asyncio
import os
import signal
import socket
import sys
from typing import Any

import pytest

from kthena.local.node.httpget import HttpGetError, http_get
from support.node import free_port


async def start(*argv: str, **env: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-m", "kthena.local.engine", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={"PATH": os.environ["PATH"], **env},
    )


async def wait_healthy(host: str, port: int) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                if (await http_get(host, port, "/health", timeout_s=1)).status == 200:
                    return
            except HttpGetError:
                await asyncio.sleep(0.02)


async def output_of(process: asyncio.subprocess.Process) -> str:
    out, _ = await process.communicate()
    return out.decode()


async def test_it_binds_the_pods_address_only_and_ends_on_sigterm() -> None:
    host = "127.9.8.7"
    port = free_port(host)
    command = f"exec python3 -m vllm.entrypoints.openai.api_server --host 0.0.0.0 --port {port}"
    process = await start(
        *("--dialect", "vllm", "--", "sh", "-c", f"{command} --model org/m"), KTHENA_POD_IP=host
    )
    try:
        await wait_healthy(host, port)
        models: Any = (await http_get(host, port, "/v1/models", timeout_s=2)).body
        with pytest.raises(HttpGetError):
            await http_get("127.0.0.1", port, "/health", timeout_s=1)
    finally:
        process.send_signal(signal.SIGTERM)
    out = await output_of(process)

    assert b'"id":"org/m"' in models
    assert process.returncode == 0
    assert "mock engine serves" in out


async def test_a_taken_address_ends_it_with_a_clear_line() -> None:
    with socket.socket() as sock:
        sock.bind(("127.9.8.6", 0))
        sock.listen()
        port = sock.getsockname()[1]
        process = await start(
            *("--dialect", "vllm", "--", "vllm", "serve", "m", "--port", str(port)),
            KTHENA_POD_IP="127.9.8.6",
        )
        out = await output_of(process)

    assert process.returncode == 1
    assert f"cannot listen on 127.9.8.6:{port}" in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    "argv", [[], ["--dialect", "tgi", "--"], ["--dialect", "vllm", "--", "ls"]]
)
async def test_a_wrong_command_line_ends_it_with_status_2(argv: list[str]) -> None:
    process = await start(*argv)
    out = await output_of(process)

    assert process.returncode == 2
    assert "Traceback" not in out
