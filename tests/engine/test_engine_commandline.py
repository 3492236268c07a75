"""From a container's command line to the mock that plays it."""

from typing import Any

import pytest

from kthena.engines.dialects import Engine
from kthena.local.engine.commandline import config_from_command
from kthena.local.engine.config import ConfigError, LoRAModule, Timing

POD = {"KTHENA_POD_IP": "127.5.0.9", "KTHENA_POD_NAME": "p-0"}


def config(*argv: str, engine: Engine = Engine.VLLM, **env: str) -> Any:
    return config_from_command(argv, {**POD, **env}, engine)


def test_the_pods_address_wins_over_host() -> None:
    made = config("vllm", "serve", "org/m", "--host", "0.0.0.0", "--port", "8080")

    assert (made.host, made.port, made.models, made.pod) == ("127.5.0.9", 8080, ("org/m",), "p-0")


@pytest.mark.parametrize(
    ("host", "expected"), [("0.0.0.0", "127.0.0.1"), ("", "127.0.0.1"), ("127.0.0.7", "127.0.0.7")]
)
def test_without_a_pod_the_mock_stays_on_loopback(host: str, expected: str) -> None:
    argv = ["vllm", "serve", "m", *(["--host", host] if host else [])]
    assert config_from_command(argv, {}, Engine.VLLM).host == expected


def test_a_shell_script_is_read() -> None:
    made = config(
        "sh",
        "-c",
        "set -e\nbash multi-node-serving.sh leader --ray_cluster_size=${GROUP_SIZE}\n"
        "python3 -m vllm.entrypoints.openai.api_server --port 8000 --model /models/Q "
        "--served-model-name org/q --kv-transfer-config "
        """'{"kv_connector":"NixlConnector","kv_role":"kv_producer"}'""",
        GROUP_SIZE="2",
        VLLM_NIXL_SIDE_CHANNEL_PORT="5558",
    )

    assert made.models == ("org/q",)
    assert made.root == "/models/Q"
    assert (made.kv.connector, made.kv.role, made.kv.side_channel_port) == ("nixl", "prefill", 5558)
    assert not made.kv.strict


def test_an_image_without_a_command_line_takes_its_model_from_the_environment() -> None:
    vllm = config(MODEL_NAME="org/m")
    sglang = config(engine=Engine.SGLANG, MODEL_NAME="org/m")

    assert (vllm.engine, vllm.models, vllm.port) == ("vllm", ("org/m",), 8000)
    assert (sglang.engine, sglang.models, sglang.port) == ("sglang", ("org/m",), 30000)


def test_the_modes_of_sglang() -> None:
    made = config(
        *[
            "python3",
            "-m",
            "sglang.launch_server",
            "--model-path",
            "m",
            "--disaggregation-mode",
            "decode",
        ],
        *("--disaggregation-bootstrap-port", "9001", "--max-running-requests", "3"),
        engine=Engine.SGLANG,
        KTHENA_ENGINE_STRICT_PD="true",
    )

    assert (made.engine, made.kv.role, made.kv.connector) == ("sglang", "decode", "sglang")
    assert (made.kv.bootstrap_port, made.max_num_seqs, made.kv.strict) == (9001, 3, True)


@pytest.mark.parametrize(
    ("connector", "expected"),
    [
        ("NixlConnector", "nixl"),
        ("MooncakeConnectorV1", "mooncake"),
        ("LMCacheConnectorV1", "lmcache"),
        ("SharedStorageConnector", "none"),
    ],
)
def test_connectors_by_their_class_names(connector: str, expected: str) -> None:
    transfer = f'{{"kv_connector":"{connector}","kv_role":"kv_both"}}'
    made = config("vllm", "serve", "m", "--kv-transfer-config", transfer)

    assert (made.kv.connector, made.kv.role) == (expected, "both")


def test_lora_modules_and_lengths() -> None:
    made = config(
        *[
            "vllm",
            "serve",
            "m",
            "--lora-modules",
            "a=/a",
            "b=/b",
            "--max-model-len",
            "2048",
            "--max-num-seqs",
            "16",
        ]
    )

    assert made.lora_modules == (LoRAModule("a", "/a"), LoRAModule("b", "/b"))
    assert (made.max_model_len, made.max_num_seqs) == (2048, 16)


def test_timing_and_failures_come_from_the_environment() -> None:
    made = config(
        KTHENA_ENGINE_TTFT_MS="250",
        KTHENA_ENGINE_TOKENS_PER_SECOND="12.5",
        KTHENA_ENGINE_ERROR_RATE="0.5",
        KTHENA_ENGINE_ERROR_STATUS="503",
        KTHENA_ENGINE_RESET_AFTER_TOKENS="3",
        MODEL_NAME="m",
    )

    assert made.timing == Timing(0.25, 12.5)
    assert (made.faults.error_rate, made.faults.error_status) == (0.5, 503)
    assert made.faults.reset_after_tokens == 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KTHENA_ENGINE_TTFT_MS", "fast"),
        ("KTHENA_ENGINE_TOKENS_PER_SECOND", "-1"),
        ("KTHENA_ENGINE_HANG_RATE", "1.5"),
    ],
)
def test_a_setting_that_means_nothing_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        config_from_command((), {"MODEL_NAME": "m", name: value}, Engine.VLLM)


@pytest.mark.parametrize(
    "argv", [["sleep", "1"], ["sh", "-c", "multi-node-serving.sh worker --ray_address=x"]]
)
def test_a_command_line_without_a_serving_engine_is_refused(argv: list[str]) -> None:
    with pytest.raises(ConfigError, match="starts no engine that serves"):
        config(*argv)
