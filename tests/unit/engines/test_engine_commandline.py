import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.engines.commandline import EngineArguments, parse_engine_command
from kthena.engines.dialects import DIALECTS, Engine, engine_of_image
from kthena.machinery.yaml import load_documents
from support.corpus import corpus_files, corpus_root, require_corpus

VLLM = ("vllm", "serve")
SGLANG = ("python3", "-m", "sglang.launch_server")


def parse(*argv: str, **env: str) -> EngineArguments:
    found = parse_engine_command(argv, env)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("argv", "engine"),
    [
        (("vllm", "serve", "m"), Engine.VLLM),
        (("/usr/local/bin/vllm", "serve", "m"), Engine.VLLM),
        (("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"), Engine.VLLM),
        (
            ("python3.12", "-u", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
            Engine.VLLM,
        ),
        (
            ("python3", "-X", "dev", "-m", "vllm.entrypoints.api_server", "--model", "m"),
            Engine.VLLM,
        ),
        (("python3", "/x/vllm/entrypoints/openai/api_server.py", "--model", "m"), Engine.VLLM),
        (("python3", "-m", "vllm.entrypoints.cli.main", "serve", "m"), Engine.VLLM),
        (("python3", "-m", "sglang.launch_server", "--model-path", "m"), Engine.SGLANG),
        (("sglang", "serve", "--model-path", "m"), Engine.SGLANG),
        (("sh", "-c", "vllm serve m"), Engine.VLLM),
        (("/bin/bash", "-lc", "exec vllm serve m"), Engine.VLLM),
        (("bash", "-e", "-c", "vllm serve m | tee log"), Engine.VLLM),
        (("bash", "-euo", "pipefail", "-c", "vllm serve m"), Engine.VLLM),
        (("sh", "-c", 'exec "$@"', "sh", "vllm", "serve", "m"), Engine.VLLM),
        (("sh", "-c", "bash -c 'nohup vllm serve m'"), Engine.VLLM),
        (("tini", "--", "vllm", "serve", "m"), Engine.VLLM),
        (("numactl", "--cpunodebind=0", "vllm", "serve", "m"), Engine.VLLM),
        (("env", "A=b", "vllm", "serve", "m"), Engine.VLLM),
        (("timeout", "60", "vllm", "serve", "m"), Engine.VLLM),
        (("sh", "-c", "pip install x && VLLM_USE_V1=1 vllm serve m --port 8000"), Engine.VLLM),
    ],
)
def test_an_engine_is_recognised_however_it_is_started(
    argv: tuple[str, ...], engine: Engine
) -> None:
    found = parse(*argv)
    assert (found.engine, found.role, found.models) == (engine, "server", ("m",))


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("nginx", "-g", "daemon off;"),
        ("vllm", "bench", "serve"),
        ("vllm",),
        ("python3", "-m", "http.server"),
        ("python3",),
        ("python3", "-m"),
        ("python3", "-m", "vllm.entrypoints.cli.main", "bench"),
        ("sh",),
        ("sh", "-c"),
        ("sh", "script.sh"),
        ("sh", "-c", "echo vllm serve m"),
        ("sh", "-c", "# vllm serve m"),
        ("sh", "-c", "false && vllm serve m"),
        ("--port", "8900", "--engine", "vllm", "--model", "m"),
        ("--source", "hf://m", "--output-dir", "/m"),
        ("ray", "start", "--head"),
    ],
)
def test_other_programs_are_no_engines(argv: tuple[str, ...]) -> None:
    assert parse_engine_command(argv, {}) is None


def test_absent_flags_have_the_engine_s_defaults() -> None:
    vllm = parse(*VLLM, "m")
    assert (vllm.port, vllm.host, vllm.tensor_parallel_size) == (8000, "", 1)
    assert (vllm.max_model_len, vllm.enable_lora, dict(vllm.extra)) == (None, False, {})
    assert parse(*SGLANG, "--model-path", "m").port == 30000


def test_names_model_host_and_port() -> None:
    found = parse(*VLLM, "/models/m", "--served-model-name", "a", "b", "--host=::", "--port", "81")
    assert found.models == ("a", "b")
    assert (found.model_path, found.host, found.port) == ("/models/m", "::", 81)
    found = parse(*SGLANG, "--model", "x", "--served-model-name", "y", "--port=82")
    assert (found.models, found.model_path, found.port) == (("y",), "x", 82)


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "$(PORT)", "٨", "9" * 5000])
def test_a_port_that_is_none_is_the_default(port: str) -> None:
    assert parse(*VLLM, "m", "--port", port).port == 8000


def test_spellings_of_flags() -> None:
    found = parse(*VLLM, "m", "--served_model_name=n", "-tp", "4", "--pipeline_parallel_size", "2")
    assert found.models == ("n",)
    assert (found.tensor_parallel_size, found.pipeline_parallel_size) == (4, 2)
    found = parse(*SGLANG, "--tp", "8", "--dp-size", "2", "--model-path", "m")
    assert (found.tensor_parallel_size, found.data_parallel_size) == (8, 2)
    assert parse(*VLLM, "m", "-dp", "2", "--data-parallel-rank", "1").data_parallel_rank == 1


def test_the_last_use_of_a_flag_counts() -> None:
    assert parse(*VLLM, "m", "--port", "1", "--port", "2").port == 2
    assert not parse(*VLLM, "m", "--enable-lora", "--no-enable-lora").enable_lora
    assert not parse(*VLLM, "m", "--enable-lora=False").enable_lora


def test_switches_take_no_value_and_values_may_look_like_words() -> None:
    found = parse(*VLLM, "--enforce-eager", "m", "--seed", "-1", "--enable-chunked-prefill", "x")
    assert found.model_path == "m"
    assert dict(found.extra) == {
        "--enforce-eager": (),
        "--seed": ("-1",),
        "--enable-chunked-prefill": (),
    }


def test_lora_modules_in_both_forms() -> None:
    found = parse(
        *(*VLLM, "m", "--enable-lora", "--lora-modules", "a=/a", "b=/x=y"),
        '{"name": "c", "path": "/c", "base_model_name": "m"}',
    )
    assert found.enable_lora
    assert dict(found.lora_modules) == {"a": "/a", "b": "/x=y", "c": "/c"}
    found = parse(*SGLANG, "--model-path", "m", "--lora-paths", "a=/a", "/b")
    assert found.enable_lora
    assert dict(found.lora_modules) == {"a": "/a", "/b": "/b"}


def test_kv_transfer_config() -> None:
    config = {"kv_connector": "NixlConnector", "kv_role": "kv_producer", "kv_rank": 0}
    found = parse(*VLLM, "m", "--kv-transfer-config", json.dumps(config, indent=1))
    assert (found.kv_connector, found.kv_role) == ("NixlConnector", "kv_producer")
    assert found.kv_transfer == config
    found = parse(*VLLM, "m", "--kv-transfer-config.kv_role=kv_both", "--kv_transfer_config.x", "y")
    assert found.kv_transfer == {"kv_role": "kv_both", "x": "y"}
    for broken in ("{", "[1]", '{"kv_role": 5}', "[" * 100_000):
        found = parse(*VLLM, "m", "--kv-transfer-config", broken)
        assert (found.kv_connector, found.kv_role) == ("", "")


def test_sglang_disaggregation() -> None:
    flags = ("--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", "9000")
    found = parse(*SGLANG, "--model-path", "m", *flags)
    assert (found.disaggregation_mode, found.bootstrap_port) == ("prefill", 9000)
    found = parse(*SGLANG, "--model-path", "m", "--disaggregation-mode", "null")
    assert (found.disaggregation_mode, found.bootstrap_port) == ("", 8998)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("8k", 8000), ("8K", 8192), ("1.5k", 1500), ("1M", 2**20), ("auto", None)],
)
def test_lengths_may_have_units(text: str, tokens: int | None) -> None:
    assert parse(*VLLM, "m", "--max-model-len", text).max_model_len == tokens


@pytest.mark.parametrize(
    "argv",
    [
        (*VLLM, "m", "--headless", "--data-parallel-size", "4"),
        (*SGLANG, "--model-path", "m", "--nnodes", "2", "--node-rank", "1"),
        ("ray", "start", "--address=10.0.0.1:6379", "--block"),
        ("sh", "-c", "ray start --address $LEADER:6379 --block"),
        ("bash", "/vllm/multi-node-serving.sh", "worker", "--ray_address=x"),
        ("sh", "-c", "chmod u+x a/multi-node-serving.sh && a/multi-node-serving.sh worker"),
    ],
)
def test_workers_answer_no_requests(argv: tuple[str, ...]) -> None:
    assert parse(*argv, LEADER="x").role == "worker"


def test_the_first_node_of_sglang_serves() -> None:
    flags = ("--model-path", "m", "--nnodes", "2", "--node-rank", "0")
    assert parse(*SGLANG, *flags).role == "server"


def test_a_server_counts_before_a_worker_of_the_same_script() -> None:
    script = "if [ -f /leader ]; then vllm serve m; else ray start --address=x; fi"
    assert parse("sh", "-c", script).role == "server"
    script = 'if [ "$WORKER_INDEX" = "0" ]; then vllm serve m; else ray start --address=x; fi'
    assert parse("sh", "-c", script, WORKER_INDEX="0").role == "server"
    assert parse("sh", "-c", script, WORKER_INDEX="1").role == "worker"


def test_variables_of_environment_and_script_reach_the_flags() -> None:
    script = """
        set -e
        export PORT=${PORT:-8081}
        EXTRA="--max-model-len 2048 --enable-lora"
        if [ "$ROLE" = "prefill" ]; then
          KV='{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'
        else
          KV='{"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
        fi
        exec vllm serve "$MODEL" \\
          --port "$PORT" $EXTRA \\
          --kv-transfer-config "$KV"
    """
    found = parse("bash", "-c", script, MODEL="org/m", ROLE="prefill")
    assert (found.models, found.port, found.max_model_len) == (("org/m",), 8081, 2048)
    assert (found.enable_lora, found.kv_role) == (True, "kv_producer")
    assert parse("bash", "-c", script, MODEL="org/m", PORT="90").kv_role == "kv_consumer"


def test_the_environment_names_the_model_of_an_image_without_a_command() -> None:
    assert parse(MODEL_NAME="m").models == ("m",)
    assert parse(*VLLM, MODEL_NAME="m").models == ("m",)
    assert parse(*VLLM, "other", MODEL_NAME="m").models == ("other",)
    found = parse_engine_command((), {"MODEL_NAME": "m"}, Engine.SGLANG)
    assert found is not None
    assert (found.engine, found.port, found.models) == (Engine.SGLANG, 30000, ("m",))
    assert parse_engine_command(("nginx",), {"MODEL_NAME": "m"}) is None


def test_arguments_alone_are_the_image_s_engine_s() -> None:
    found = parse_engine_command(("--model", "m", "--port", "1"), {}, Engine.VLLM)
    assert found is not None
    assert (found.models, found.port) == (("m",), 1)
    found = parse_engine_command(("/models/m", "--served-model-name", "n"), {}, Engine.VLLM)
    assert found is not None
    assert (found.models, found.model_path) == (("n",), "/models/m")
    for argv in (("nginx",), ("/start.sh", "--port", "1"), ("sleep", "10")):
        assert parse_engine_command(argv, {}, Engine.VLLM) is None


@given(st.lists(st.text(max_size=12), max_size=8))
def test_every_command_line_is_read(argv: list[str]) -> None:
    parse_engine_command(["sh", "-c", *argv], {})
    parse_engine_command([*VLLM, *argv], {})


def test_images_are_known_by_their_name() -> None:
    assert engine_of_image("vllm/vllm-openai:v0.13.0") is Engine.VLLM
    assert engine_of_image("docker.io/lmsysorg/sglang:latest") is Engine.SGLANG
    assert engine_of_image("example.com/vllm-and-sglang") is Engine.SGLANG
    assert engine_of_image("nginx") is None


def test_the_dialects_differ_where_the_engines_do() -> None:
    vllm, sglang = DIALECTS[Engine.VLLM], DIALECTS[Engine.SGLANG]
    assert (vllm.load_lora_path, vllm.unload_lora_path) == (
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    )
    assert (sglang.load_lora_path, sglang.unload_lora_path) == (
        "/load_lora_adapter",
        "/unload_lora_adapter",
    )
    assert vllm.metrics.kv_usage[0] == "vllm:kv_cache_usage_perc"
    assert sglang.metrics.kv_usage == ("sglang:token_usage",)


# --- the corpus ---------------------------------------------------------------------------------

NIXL = "NixlConnector"
MOONCAKE = "MooncakeConnectorV1"
# File, role and container: what its command line says, field by field.
CORPUS: dict[tuple[str, str, str], dict[str, Any]] = {
    ("data-parallel-deployment", "leader", "engine"): {
        "models": ("my-model",),
        "model_path": "/tmp/cache/Qwen3",
        "data_parallel_size": 2,
        "data_parallel_rank": 0,
        "max_model_len": 2048,
    },
    ("data-parallel-deployment", "leader", "example-vllm-worker"): {
        "models": ("my-model",),
        "data_parallel_rank": 1,
    },
    ("gpu-kvcache-aware-sglang", "server", "server"): {
        "engine": Engine.SGLANG,
        "models": ("Qwen/Qwen3-0.6B",),
        "host": "0.0.0.0",
        "port": 30000,
    },
    ("gpu-kvcache-aware", "server", "server"): {
        "models": ("Qwen/Qwen3-0.6B",),
        "model_path": "/models/Qwen3-0.6B",
        "host": "0.0.0.0",
    },
    ("gpu-pd-disaggregation", "prefill", "prefill"): {
        "kv_connector": NIXL,
        "kv_role": "kv_producer",
    },
    ("gpu-pd-disaggregation", "decode", "decode"): {
        "models": ("Qwen/Qwen3-0.6B",),
        "kv_connector": NIXL,
        "kv_role": "kv_consumer",
    },
    ("multi-node", "llama-405b", "leader"): {
        "models": ("meta-llama/Llama-3.1-405B-Instruct",),
        "port": 8080,
        "tensor_parallel_size": 8,
        "pipeline_parallel_size": 2,
    },
    ("multi-node", "llama-405b", "worker"): {"role": "worker"},
    ("prefill-decode-disaggregation", "prefill", "vllm"): {
        "models": ("deepseek-ai/DeepSeekV2",),
        "model_path": "/mnt/cache/deepseek-ai/DeepSeek-V2-Lite/",
        "tensor_parallel_size": 2,
        "max_model_len": 8192,
        "kv_connector": MOONCAKE,
        "kv_role": "kv_producer",
    },
    ("prefill-decode-disaggregation", "decode", "vllm"): {
        "kv_connector": MOONCAKE,
        "kv_role": "kv_consumer",
    },
    ("sglang-pd-disaggregation", "prefill", "sglang-prefill"): {
        "engine": Engine.SGLANG,
        "models": ("Qwen/Qwen3-0.6B",),
        "disaggregation_mode": "prefill",
        "bootstrap_port": 8998,
    },
    ("sglang-pd-disaggregation", "decode", "sglang-decode"): {
        "engine": Engine.SGLANG,
        "disaggregation_mode": "decode",
    },
    ("vllm-pd-multinode", "prefill", "leader"): {
        "models": ("Qwen/Qwen3-8B",),
        "pipeline_parallel_size": 2,
        "kv_role": "kv_producer",
    },
    ("vllm-pd-multinode", "decode", "leader"): {"kv_connector": NIXL, "kv_role": "kv_consumer"},
    ("vllm-pd-multinode", "prefill", "worker"): {"role": "worker"},
    ("vllm-pd-multinode", "decode", "worker"): {"role": "worker"},
}


def containers_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Role and container of every pod template of the ModelServings in a file."""
    for document in load_documents(path.read_text(encoding="utf-8"), path.name):
        for role in document.object["spec"]["template"]["roles"]:
            for template in ("entryTemplate", "workerTemplate"):
                for container in role.get(template, {}).get("spec", {}).get("containers", ()):
                    yield role["name"], container


def parse_container(container: dict[str, Any]) -> EngineArguments | None:
    argv = [*(container.get("command") or ()), *(container.get("args") or ())]
    env = {entry["name"]: entry.get("value", "") for entry in container.get("env", ())}
    return parse_engine_command(argv, env, engine_of_image(container["image"]))


@pytest.mark.corpus
@pytest.mark.parametrize(("key", "expected"), CORPUS.items(), ids=["/".join(k) for k in CORPUS])
def test_engine_containers_of_the_corpus_are_read(
    key: tuple[str, str, str], expected: dict[str, Any]
) -> None:
    file, role, name = key
    path = require_corpus() / "modelserving" / f"{file}.yaml"
    found = [
        parse_container(container)
        for owner, container in containers_of(path)
        if (owner, container["name"]) == (role, name)
    ]
    assert len(found) == 1
    assert found[0] is not None
    assert {field: getattr(found[0], field) for field in expected} == expected


@pytest.mark.corpus
def test_no_other_container_of_the_corpus_is_an_engine() -> None:
    engines = {
        (path.stem, role, container["name"])
        for path in corpus_files("modelserving")
        for role, container in containers_of(path)
        if parse_container(container) is not None
    }
    assert engines == set(CORPUS)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("file", "engine", "models"),
    [
        ("LLM-Mock", Engine.VLLM, ["meta-llama/Llama-3.1-8B-Instruct"]),
        ("LLM-Mock-ds1.5b", Engine.VLLM, ["deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"]),
        ("LLM-Mock-sglang", Engine.SGLANG, ["Qwen/Qwen3-8B"]),
    ],
)
def test_mock_images_of_the_corpus_name_their_model(
    file: str, engine: Engine, models: list[str]
) -> None:
    path = require_corpus() / "networking" / f"{file}.yaml"
    deployments = [
        document.object
        for document in load_documents(path.read_text(encoding="utf-8"), path.name)
        if document.object["kind"] == "Deployment"
    ]
    found = [
        parse_container(container)
        for deployment in deployments
        for container in deployment["spec"]["template"]["spec"]["containers"]
    ]
    assert [(entry.engine, *entry.models) for entry in found if entry] == [(engine, *models)]


@pytest.mark.corpus
def test_live_engine_containers_of_the_corpus_are_read() -> None:
    require_corpus()
    state = (corpus_root() / "live" / "two-modelboosters.json").read_text(encoding="utf-8")
    served = {
        (found.models[0], found.kv_role)
        for container in _containers(json.loads(state))
        if (found := parse_container(container)) and found.role == "server"
    }
    assert served == {
        ("Qwen2.5-0.5B-Instruct", ""),
        ("Qwen/Qwen3-0.6B", "kv_producer"),
        ("Qwen/Qwen3-0.6B", "kv_consumer"),
    }


def _containers(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for entry in value:
            yield from _containers(entry)
    elif isinstance(value, dict):
        containers = value.get("containers")
        if isinstance(containers, list):
            yield from (entry for entry in containers if "image" in entry)
        for entry in value.values():
            yield from _containers(entry)
