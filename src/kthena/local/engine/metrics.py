"""`/metrics` of the mock engine, under the names that vLLM and SGLang export.

Both engines' names stand for the same figures of `load.Load`. Names and labels follow vLLM 0.13 and
SGLang 0.5; the families beginning with `kthena_mock_` are the mock's own and say what no real
engine says: the verdicts on KV-transfer fields.
"""

from collections.abc import Iterable

from kthena.local.engine.config import EngineConfig
from kthena.local.engine.exposition import Labels, family, sample
from kthena.local.engine.load import KV_CAPACITY_TOKENS, Load

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_REASONS = ("stop", "length", "abort", "error")


def render(config: EngineConfig, load: Load, adapters: Iterable[str]) -> str:
    """The exposition text."""
    if config.engine == "vllm":
        lines = _vllm({"engine": "0", "model_name": config.models[0]}, load, tuple(adapters))
    else:
        lines = _sglang({"engine_type": "unified", "model_name": config.models[0]}, load)
    return "\n".join([*lines, *_own(config, load)]) + "\n"


def _vllm(labels: Labels, load: Load, adapters: tuple[str, ...]) -> Iterable[str]:
    yield from _gauge(
        "vllm:num_requests_running", "Number of requests running.", labels, load.running
    )
    yield from _gauge(
        "vllm:num_requests_waiting", "Number of requests waiting.", labels, load.waiting
    )
    yield from _gauge(
        "vllm:kv_cache_usage_perc", "KV-cache usage, 1 is full.", labels, load.kv_usage
    )
    yield from _gauge(
        "vllm:engine_sleep_state", "1 when awake.", {**labels, "sleep_state": "awake"}, 1
    )
    yield from family(
        "vllm:lora_requests_info",
        "gauge",
        "Running LoRA requests.",
        [
            sample(
                "vllm:lora_requests_info",
                {
                    "max_lora": str(max(len(adapters), 1)),
                    "running_lora_adapters": ",".join(
                        name for name in adapters if load.running_models[name]
                    ),
                    "waiting_lora_adapters": "",
                },
                1,
            )
        ],
    )
    yield from _counter(
        "vllm:prompt_tokens", "Prefill tokens processed.", labels, load.prompt_tokens
    )
    yield from _counter(
        "vllm:generation_tokens", "Generation tokens processed.", labels, load.generation_tokens
    )
    yield from family(
        "vllm:request_success_total",
        "counter",
        "Finished requests.",
        [
            sample(
                "vllm:request_success_total",
                {**labels, "finished_reason": reason},
                load.finished[reason],
            )
            for reason in _REASONS
        ],
    )
    yield from _histograms("vllm", labels, load)


def _sglang(labels: Labels, load: Load) -> Iterable[str]:
    yield from _gauge(
        "sglang:num_running_reqs", "Number of running requests.", labels, load.running
    )
    yield from _gauge("sglang:num_queue_reqs", "Number of queued requests.", labels, load.waiting)
    yield from _gauge("sglang:token_usage", "Token usage, 1 is full.", labels, load.kv_usage)
    yield from _gauge("sglang:num_used_tokens", "Number of used tokens.", labels, load.kv_tokens)
    yield from _gauge(
        "sglang:max_total_num_tokens", "Tokens in the cache.", labels, KV_CAPACITY_TOKENS
    )
    yield from _counter("sglang:prompt_tokens", "Prefill tokens.", labels, load.prompt_tokens)
    yield from _counter(
        "sglang:generation_tokens", "Generation tokens.", labels, load.generation_tokens
    )
    yield from _counter(
        "sglang:num_requests", "Finished requests.", labels, sum(load.finished.values())
    )
    yield from _counter(
        "sglang:num_aborted_requests", "Aborted requests.", labels, load.finished["abort"]
    )
    yield from _histograms("sglang", labels, load)


def _histograms(prefix: str, labels: Labels, load: Load) -> Iterable[str]:
    for name, histogram, help_text in (
        ("time_to_first_token_seconds", load.time_to_first_token, "Time to first token."),
        ("inter_token_latency_seconds", load.inter_token, "Time between tokens."),
        ("e2e_request_latency_seconds", load.end_to_end, "End to end latency."),
    ):
        full = f"{prefix}:{name}"
        yield from family(full, "histogram", help_text, histogram.lines(full, labels))


def _own(config: EngineConfig, load: Load) -> Iterable[str]:
    name = "kthena_mock_kv_transfer_checks_total"
    yield from family(
        name,
        "counter",
        "Requests by the verdict on their KV-transfer fields.",
        [
            sample(name, {"role": config.kv.role, "verdict": verdict}, load.kv_checks[verdict])
            for verdict in ("none", "ok", "missing", "mismatch", "foreign")
        ],
    )


def _gauge(name: str, help_text: str, labels: Labels, value: float) -> Iterable[str]:
    return family(name, "gauge", help_text, [sample(name, labels, value)])


def _counter(name: str, help_text: str, labels: Labels, value: float) -> Iterable[str]:
    full = f"{name}_total"
    return family(full, "counter", help_text, [sample(full, labels, value)])
