"""The bundled stand-ins, as the node starts them."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from kthena.local.node.httpget import HttpGetError, http_get
from kthena.local.node.standins.downloader import locate
from kthena.local.node.standins.runtime import STANDARD_NAMES, standardise
from support.engine import CHAT, chat, engine, post
from support.node import free_port, wait_for_text

MODULE = "kthena.local.node.standins"


async def start(name: str, *argv: str, log: Path | None = None, **env: str) -> Any:
    with (log or Path(os.devnull)).open("wb") as out:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-m", f"{MODULE}.{name}", *argv),
            stdout=out if log else asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], **env},
        )


async def finish(process: Any) -> tuple[int, str]:
    out, _ = await process.communicate()
    return process.returncode, (out or b"").decode()


async def test_the_downloader_makes_its_directory_inside_a_volume(tmp_path: Path) -> None:
    process = await start(
        *("downloader", "--source", "Qwen/Qwen3-0.6B", "--output-dir", "/models/Qwen3-0.6B/"),
        KTHENA_MOUNTS=f"/models={tmp_path}:/other=/nowhere",
    )
    code, text = await finish(process)

    assert code == 0
    assert "would fetch hf://Qwen/Qwen3-0.6B into /models/Qwen3-0.6B" in text
    marker = tmp_path / "Qwen3-0.6B" / ".kthena-mock-download"
    assert json.loads(marker.read_text()) == {"source": "hf://Qwen/Qwen3-0.6B"}


async def test_the_downloader_writes_nothing_outside_volumes(tmp_path: Path) -> None:
    target = tmp_path / "out"
    code, text = await finish(await start("downloader", "-s", "s3://b/m", "-o", str(target)))

    assert code == 0
    assert "is in no volume, so nothing is written" in text
    assert not target.exists()


@pytest.mark.parametrize(("argv", "code"), [([], 2), (["-s", "x", "-c", "[1]"], 1), (["-x"], 2)])
async def test_the_downloader_fails_as_the_real_one(argv: list[str], code: int) -> None:
    assert (await finish(await start("downloader", *argv)))[0] == code


def test_the_closest_mount_counts() -> None:
    mounts = "/models=/a:/models/deep=/b"
    assert locate("/models/x", mounts) == Path("/a/x")
    assert locate("/models/deep/x", mounts) == Path("/b/x")
    assert locate("/models/deeper", mounts) == Path("/a/deeper")
    assert locate("/modelsx", mounts) is None
    assert locate("/models", "") is None


async def test_a_ray_worker_stays_alive_until_sigterm(tmp_path: Path) -> None:
    log = tmp_path / "log"
    process = await start(
        *("ray", "sh", "-c", "bash x/multi-node-serving.sh worker --ray_address=e.ns"),
        log=log,
        KTHENA_POD_NAME="p-1",
    )
    await wait_for_text(log, "mock ray: p-1 runs in place of")
    process.send_signal(signal.SIGTERM)

    assert await process.wait() == 0


async def test_other_ray_commands_end_at_once() -> None:
    code, text = await finish(await start("ray", "ray", "stop"))
    assert (code, "nothing to do" in text) == (0, True)


async def test_the_runtime_serves_health_metrics_and_adapters(tmp_path: Path) -> None:
    host = "127.6.5.4"
    async with engine(host=host) as server:
        await post(server, CHAT, chat())
        port = free_port(host)
        process = await start(
            *("runtime", "--port", str(port), "--engine", "vLLM", "--pod", "p.ns", "--model", "m"),
            *("--engine-base-url", f"http://localhost:{server.port}"),
            log=tmp_path / "log",
            KTHENA_POD_IP=host,
        )
        try:
            await wait_for_text(tmp_path / "log", "serves on")
            health = await http_get(host, port, "/health", timeout_s=5)
            metrics = (await http_get(host, port, "/metrics", timeout_s=5)).body.decode()
            loaded = await _post(host, port, "/v1/load_lora_adapter",
                                 {"lora_name": "a", "source": "s", "output_dir": "/a"})  # fmt: skip
            adapters = dict(server.engine.adapters)
            unloaded = await _post(host, port, "/v1/unload_lora_adapter", {"lora_name": "a"})
            again = await _post(host, port, "/v1/unload_lora_adapter", {"lora_name": "a"})
            missing = await http_get(host, port, "/nothing", timeout_s=5)
            with pytest.raises(HttpGetError):
                await http_get("127.0.0.1", port, "/health", timeout_s=1)
        finally:
            process.send_signal(signal.SIGTERM)
    code = await process.wait()

    assert json.loads(health.body) == {"status": "healthy", "service": "runtime"}
    for name in set(STANDARD_NAMES["vllm"].values()):
        assert f"# TYPE {name} " in metrics
    assert 'kthena:generation_tokens_total{engine="0"' in metrics
    assert 'vllm:generation_tokens_total{engine="0"' in metrics
    assert (loaded[0], adapters) == (200, {"a": "/a"})
    assert (unloaded[0], again[0]) == (200, 404)
    assert missing.status == 404
    assert code == 0


async def test_the_runtime_says_when_its_engine_is_gone(tmp_path: Path) -> None:
    host = "127.6.5.3"
    port = free_port(host)
    process = await start(
        *(
            "runtime",
            "-P",
            str(port),
            "-E",
            "sglang",
            "-I",
            "p",
            "-N",
            "m",
            "-B",
            "http://localhost:1",
        ),
        log=tmp_path / "log",
        KTHENA_POD_IP=host,
    )
    try:
        await wait_for_text(tmp_path / "log", "serves on")
        reply = await http_get(host, port, "/metrics", timeout_s=5)
    finally:
        process.terminate()
        await process.wait()

    assert reply.status == 502


async def test_an_unknown_engine_is_refused() -> None:
    code, text = await finish(await start("runtime", "-E", "tgi", "-I", "p", "-N", "m"))
    assert code == 1
    assert "known: vllm, sglang" in text


def test_each_family_is_copied_once_with_all_its_lines() -> None:
    text = (
        "# HELP vllm:num_requests_waiting W.\n# TYPE vllm:num_requests_waiting gauge\n"
        'vllm:num_requests_waiting{a="vllm:num_requests_waiting"} 1.0\n'
        "# TYPE other counter\nother_total 5\n"
    )
    lines = standardise(text, STANDARD_NAMES["vllm"]).splitlines()

    assert lines == [
        "# HELP vllm:num_requests_waiting W.",
        "# TYPE vllm:num_requests_waiting gauge",
        'vllm:num_requests_waiting{a="vllm:num_requests_waiting"} 1.0',
        "# HELP kthena:num_requests_waiting W.",
        "# TYPE kthena:num_requests_waiting gauge",
        'kthena:num_requests_waiting{a="vllm:num_requests_waiting"} 1.0',
        "# TYPE other counter",
        "other_total 5",
    ]
    assert standardise("", STANDARD_NAMES["vllm"]) == ""


async def _post(host: str, port: int, path: str, body: Any) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection(host, port)
    raw = json.dumps(body).encode()
    writer.write(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Length: {len(raw)}\r\n\r\n".encode()
        + raw
    )
    reply = await reader.read()
    writer.close()
    head, _, rest = reply.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest
