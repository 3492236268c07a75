"""From a container's own command line to the configuration of the mock engine that plays it.

What the words mean is known to `kthena.engines`; this module adds what only the mock has: the pod's
address in place of `--host`, timing, failures and strictness, all from the environment.
"""

from collections.abc import Mapping, Sequence

from kthena.engines.commandline import EngineArguments, parse_engine_command
from kthena.engines.dialects import Engine
from kthena.local.engine.config import (
    DEFAULT_MODEL,
    DEFAULT_PORTS,
    ENV_STRICT,
    ConfigError,
    EngineConfig,
    KVTransfer,
    LoRAModule,
    connector_of,
    dialect_of,
    faults_from,
    is_true,
    role_of,
    timing_from,
)
from kthena.local.node.names import ENV_ADDRESS, ENV_POD

_ENV_SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_PORT"
_LIMIT_FLAGS = ("--max-num-seqs", "--max-running-requests")


def config_from_command(
    argv: Sequence[str], env: Mapping[str, str], image_engine: Engine
) -> EngineConfig:
    """The engine that a container's command line and environment ask for.

    Raises:
        ConfigError: the command line starts no engine that serves, or a setting means nothing.
    """
    arguments = parse_engine_command(argv, env, image_engine)
    if arguments is None or arguments.role != "server":
        raise ConfigError(f"the command line starts no engine that serves: {' '.join(argv)}")
    return config_from_arguments(arguments, env)


def config_from_arguments(arguments: EngineArguments, env: Mapping[str, str]) -> EngineConfig:
    """The mock of a parsed command line.

    Raises:
        ConfigError: a setting of the mock means nothing.
    """
    default = EngineConfig()
    dialect = dialect_of(arguments.engine)
    return EngineConfig(
        engine=dialect,
        models=arguments.models or (arguments.model_path or DEFAULT_MODEL,),
        model_path=arguments.model_path,
        host=env.get(ENV_ADDRESS) or _bindable(arguments.host),
        port=arguments.port or DEFAULT_PORTS[dialect],
        lora_modules=tuple(LoRAModule(*item) for item in arguments.lora_modules.items()),
        max_model_len=arguments.max_model_len or default.max_model_len,
        max_num_seqs=_limit(arguments) or default.max_num_seqs,
        kv=_kv_transfer(arguments, env),
        timing=timing_from(env),
        faults=faults_from(env),
        pod=env.get(ENV_POD, ""),
    )


def _bindable(host: str) -> str:
    """Loopback where every interface was meant: a mock is not put on the network by default."""
    return "127.0.0.1" if host in {"", "0.0.0.0", "::"} else host  # noqa: S104 - recognised, not bound


def _limit(arguments: EngineArguments) -> int:
    for name in _LIMIT_FLAGS:
        for text in arguments.extra.get(name, ()):
            if text.isdecimal():
                return int(text)
    return 0


def _kv_transfer(arguments: EngineArguments, env: Mapping[str, str]) -> KVTransfer:
    default = KVTransfer()
    strict = is_true(env.get(ENV_STRICT, ""))
    if arguments.engine is Engine.SGLANG:
        return KVTransfer(
            role=role_of(arguments.disaggregation_mode),
            connector="sglang",
            strict=strict,
            bootstrap_port=arguments.bootstrap_port,
        )
    port = env.get(_ENV_SIDE_CHANNEL, "")
    return KVTransfer(
        role=role_of(arguments.kv_role),
        connector=connector_of(arguments.kv_connector),
        strict=strict,
        side_channel_port=int(port) if port.isdecimal() else default.side_channel_port,
    )
