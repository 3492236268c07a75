"""What one mock engine is: dialect, models, address, prefill/decode role, timing and failures.

A configuration comes from the command line that the real engine would be started with (inside a
`sh -c` as well), and from environment variables of the mock for what no real engine has: timing and
failures. Nothing here reads the process environment; it is given.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from kthena.engines.dialects import DIALECTS, Engine
from kthena.local.engine.errors import Dialect

Role: TypeAlias = Literal["none", "prefill", "decode", "both"]
Connector: TypeAlias = Literal["none", "nixl", "mooncake", "lmcache", "sglang"]

DEFAULT_PORTS: Final[Mapping[Dialect, int]] = {
    "vllm": DIALECTS[Engine.VLLM].default_port,
    "sglang": DIALECTS[Engine.SGLANG].default_port,
}
DEFAULT_MODEL: Final = "mock-model"

ENV_STRICT: Final = "KTHENA_ENGINE_STRICT_PD"
"""Whether requests whose KV-transfer fields do not fit are refused; see `KVTransfer.strict`."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long an answer takes. `tokens_per_s` 0 means that all tokens come at once."""

    time_to_first_token_s: float = 0.02
    tokens_per_s: float = 100.0


@dataclass(frozen=True, slots=True)
class Faults:
    """Failures by a deterministic count: a rate of 0.25 hits every fourth generation request.

    `error_rate` answers `error_status`; `hang_rate` never answers; `reset_rate` resets the
    connection before the first byte; `reset_after_tokens` resets each stream after that many.
    """

    error_rate: float = 0.0
    error_status: int = 500
    hang_rate: float = 0.0
    reset_rate: float = 0.0
    reset_after_tokens: int = 0


@dataclass(frozen=True, slots=True)
class KVTransfer:
    """The prefill/decode role of the engine.

    `strict` makes a request that does not fit the role an error; otherwise it is answered as real
    vLLM does (the decode engine computes the prompt itself) and only counted. SGLang refuses a
    request without a bootstrap room in any case, and so does the mock.
    """

    role: Role = "none"
    connector: Connector = "none"
    strict: bool = False
    bootstrap_port: int = 8998
    side_channel_port: int = 5600
    timeout_s: float = 30.0


@dataclass(frozen=True, slots=True)
class LoRAModule:
    """A LoRA adapter that is loaded from the start."""

    name: str
    path: str


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One mock engine. `models` are the served names, the first one is the base model's own."""

    engine: Dialect = "vllm"
    models: tuple[str, ...] = (DEFAULT_MODEL,)
    model_path: str = ""
    host: str = "127.0.0.1"
    port: int = 8000
    lora_modules: tuple[LoRAModule, ...] = ()
    max_model_len: int = 32768
    max_num_seqs: int = 256
    kv: KVTransfer = field(default_factory=KVTransfer)
    timing: Timing = field(default_factory=Timing)
    faults: Faults = field(default_factory=Faults)
    pod: str = ""

    @property
    def root(self) -> str:
        """The path or repository that the model was loaded from."""
        return self.model_path or self.models[0]


class ConfigError(ValueError):
    """A setting of the mock that means nothing; the message names it and says what it may be."""


def timing_from(env: Mapping[str, str]) -> Timing:
    """Timing from `KTHENA_ENGINE_TTFT_MS` and `KTHENA_ENGINE_TOKENS_PER_SECOND`.

    Raises:
        ConfigError: a value is no number or negative.
    """
    default = Timing()
    return Timing(
        time_to_first_token_s=_number(
            env, "KTHENA_ENGINE_TTFT_MS", default.time_to_first_token_s * 1000
        )
        / 1000,
        tokens_per_s=_number(env, "KTHENA_ENGINE_TOKENS_PER_SECOND", default.tokens_per_s),
    )


def faults_from(env: Mapping[str, str]) -> Faults:
    """Failures from `KTHENA_ENGINE_{ERROR,HANG,RESET}_RATE`, `_ERROR_STATUS`, `_RESET_AFTER_TOKENS`.

    Raises:
        ConfigError: a value is no number, or a rate is outside 0 to 1.
    """
    return Faults(
        error_rate=_rate(env, "KTHENA_ENGINE_ERROR_RATE"),
        error_status=int(_number(env, "KTHENA_ENGINE_ERROR_STATUS", 500)),
        hang_rate=_rate(env, "KTHENA_ENGINE_HANG_RATE"),
        reset_rate=_rate(env, "KTHENA_ENGINE_RESET_RATE"),
        reset_after_tokens=int(_number(env, "KTHENA_ENGINE_RESET_AFTER_TOKENS", 0)),
    )


def dialect_of(engine: Engine) -> Dialect:
    """The dialect that plays an engine."""
    return "vllm" if engine is Engine.VLLM else "sglang"


def connector_of(name: str) -> Connector:
    """The dialect of a `kv_connector` class name; `none` for one that sends no request fields.

    vLLM's NIXL and Mooncake connectors, and vLLM Ascend's, exchange `kv_transfer_params`; LMCache
    finds its blocks by content.
    """
    lowered = name.lower()
    for connector in get_args(Connector):
        if connector in lowered:
            found: Connector = connector
            return found
    return "none"


def role_of(kv_role: str) -> Role:
    """The role of vLLM's `kv_role` or of SGLang's `--disaggregation-mode`."""
    roles: Mapping[str, Role] = {
        "kv_producer": "prefill",
        "kv_consumer": "decode",
        "kv_both": "both",
        "prefill": "prefill",
        "decode": "decode",
    }
    return roles.get(kv_role, "none")


def is_true(value: str) -> bool:
    """Whether an environment variable switches something on."""
    return value.strip().lower() in {"1", "true", "yes", "on"}


def _number(env: Mapping[str, str], name: str, default: float) -> float:
    text = env.get(name, "")
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value < 0:
        raise ConfigError(f"{name}={text!r} must be a number of at least 0")
    return value


def _rate(env: Mapping[str, str], name: str) -> float:
    value = _number(env, name, 0)
    if value > 1:
        raise ConfigError(f"{name}={env[name]!r} must be between 0 and 1")
    return value
