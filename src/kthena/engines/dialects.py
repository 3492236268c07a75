"""What differs between vLLM and SGLang on the wire: ports, paths, metric names, usage fields.

Facts only; whoever talks to an engine reads them here. Metric names are listed newest first, since
both engines rename them between releases and a fleet runs several releases at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Engine(Enum):
    """An inference engine, by the name that ModelServer's `inferenceEngine` has for it."""

    VLLM = "vLLM"
    SGLANG = "SGLang"


@dataclass(frozen=True, slots=True)
class EngineMetrics:
    """Names of one engine's Prometheus metrics, without `_total`, `_bucket` and the like.

    `kv_usage` is a share between 0 and 1; latencies are histograms in seconds.
    """

    kv_usage: tuple[str, ...]
    waiting_requests: tuple[str, ...]
    running_requests: tuple[str, ...]
    time_to_first_token: tuple[str, ...]
    time_per_output_token: tuple[str, ...]
    request_latency: tuple[str, ...]
    prompt_tokens: tuple[str, ...]
    generation_tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to talk to one engine over HTTP."""

    engine: Engine
    default_port: int
    load_lora_path: str
    unload_lora_path: str
    metrics: EngineMetrics
    health_path: str = "/health"
    models_path: str = "/v1/models"
    metrics_path: str = "/metrics"
    tokenize_path: str = "/tokenize"


@dataclass(frozen=True, slots=True)
class UsageFields:
    """Where a reply counts its tokens: members of its `usage` object."""

    input_tokens: str
    output_tokens: str
    total_tokens: str = "total_tokens"


COMPLETIONS_USAGE: Final = UsageFields("prompt_tokens", "completion_tokens")
"""Chat and text completions of both engines; a stream has it in its last event only when asked
with `stream_options.include_usage`."""

RESPONSES_USAGE: Final = UsageFields("input_tokens", "output_tokens")
"""The Responses API of both engines, in `response.usage` of the last event of a stream."""

DEFAULT_BOOTSTRAP_PORT: Final = 8998
"""Where an SGLang prefill engine meets its decode engines, unless told otherwise."""

_VLLM: Final = Dialect(
    engine=Engine.VLLM,
    default_port=8000,
    load_lora_path="/v1/load_lora_adapter",
    unload_lora_path="/v1/unload_lora_adapter",
    metrics=EngineMetrics(
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        waiting_requests=("vllm:num_requests_waiting",),
        running_requests=("vllm:num_requests_running",),
        time_to_first_token=("vllm:time_to_first_token_seconds",),
        time_per_output_token=(
            "vllm:inter_token_latency_seconds",
            "vllm:time_per_output_token_seconds",
        ),
        request_latency=("vllm:e2e_request_latency_seconds",),
        prompt_tokens=("vllm:prompt_tokens",),
        generation_tokens=("vllm:generation_tokens",),
    ),
)
_SGLANG: Final = Dialect(
    engine=Engine.SGLANG,
    default_port=30000,
    load_lora_path="/load_lora_adapter",
    unload_lora_path="/unload_lora_adapter",
    metrics=EngineMetrics(
        kv_usage=("sglang:token_usage",),
        waiting_requests=("sglang:num_queue_reqs",),
        running_requests=("sglang:num_running_reqs",),
        time_to_first_token=("sglang:time_to_first_token_seconds",),
        time_per_output_token=(
            "sglang:inter_token_latency_seconds",
            "sglang:time_per_output_token_seconds",
        ),
        request_latency=("sglang:e2e_request_latency_seconds",),
        prompt_tokens=("sglang:prompt_tokens",),
        generation_tokens=("sglang:generation_tokens",),
    ),
)

DIALECTS: Final[Mapping[Engine, Dialect]] = {Engine.VLLM: _VLLM, Engine.SGLANG: _SGLANG}


def engine_of_image(image: str) -> Engine | None:
    """The engine that an image is named for, or None. SGLang images may name vLLM too."""
    name = image.lower()
    if "sglang" in name:
        return Engine.SGLANG
    return Engine.VLLM if "vllm" in name else None
