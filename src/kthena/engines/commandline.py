"""What engine a container's command line starts, and how.

The one place that reads command lines of vLLM and SGLang, directly and inside `sh -c` scripts, for
the mock engine, lint and scaffolding. Nothing is run or looked up: variables come from `env`, which
also names the model (`MODEL_NAME`) of images that are started without a command line.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal

from kthena.engines.dialects import DEFAULT_BOOTSTRAP_PORT, DIALECTS, Engine
from kthena.engines.flags import Flags, parse_flags
from kthena.engines.shell import Command, find_commands

ENV_MODEL_NAME: Final = "MODEL_NAME"

_SHELLS = frozenset(("sh", "bash", "ash", "dash", "zsh", "ksh", "busybox"))
_WRAPPERS = frozenset(
    (
        *("exec", "nohup", "env", "command", "time", "sudo", "tini", "dumb-init", "stdbuf"),
        *("nice", "numactl", "setsid", "timeout", "catchsegv"),
    )
)
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*")
_MODULES = {
    "vllm.entrypoints.openai.api_server": Engine.VLLM,
    "vllm.entrypoints.api_server": Engine.VLLM,
    "vllm.entrypoints.cli.main": Engine.VLLM,
    "sglang.launch_server": Engine.SGLANG,
    "sglang.srt.entrypoints.http_server": Engine.SGLANG,
}
_PYTHON_OPTIONS_WITH_VALUE = frozenset(("-X", "-W", "-c"))
_MULTI_NODE_SCRIPT = "multi-node-serving.sh"
_MAX_NESTING = 5
_NUMBER_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)([kmgKMG]?)")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}

_READ_FLAGS = frozenset(
    (
        *("--model", "--model-path", "--served-model-name", "--host", "--port", "--enable-lora"),
        *("--lora-modules", "--lora-paths", "--kv-transfer-config", "--disaggregation-mode"),
        *("--disaggregation-bootstrap-port", "--max-model-len", "--context-length", "--headless"),
        *("--tensor-parallel-size", "--tp-size", "--tp", "--pipeline-parallel-size", "--pp-size"),
        *("--data-parallel-size", "--dp-size", "--dp", "--data-parallel-rank", "--node-rank"),
        *("--pp", "--nnodes"),
    )
)


@dataclass(frozen=True, slots=True)
class EngineArguments:
    """An engine as its command line describes it; absent flags have the engine's defaults.

    A `worker` computes for a server elsewhere and answers no requests: a headless vLLM, a Ray
    worker, a later node of SGLang. Its other fields may be empty.
    """

    engine: Engine
    role: Literal["server", "worker"] = "server"
    models: tuple[str, ...] = ()
    """The names that requests may use, the first being the main one."""
    model_path: str = ""
    """The weights: a repository or a directory."""
    host: str = ""
    """The address to bind, empty for the engine's default."""
    port: int = 0
    enable_lora: bool = False
    lora_modules: Mapping[str, str] = field(default_factory=dict)
    """Paths of the adapters that are loaded from the start, by name."""
    kv_connector: str = ""
    kv_role: str = ""
    kv_transfer: Mapping[str, Any] = field(default_factory=dict)
    """The whole of vLLM's `--kv-transfer-config`."""
    disaggregation_mode: str = ""
    """`prefill` or `decode` for one half of an SGLang pair."""
    bootstrap_port: int = DEFAULT_BOOTSTRAP_PORT
    max_model_len: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    data_parallel_rank: int | None = None
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """All other flags with their values, by name with two dashes."""


def parse_engine_command(
    argv: Sequence[str], env: Mapping[str, str], image_engine: Engine | None = None
) -> EngineArguments | None:
    """The engine that a container runs, or None where it runs none.

    Args:
        argv: command and arguments together, with the image's entrypoint where that is known.
        env: the container's environment, values expanded.
        image_engine: the engine that the image is known for. With it, arguments without a program
            are the engine's own, and `MODEL_NAME` alone makes it a server of that engine.
    """
    found = list(_engines(Command(tuple(argv), env), depth=0))
    for arguments in found:
        if arguments.role == "server":
            return arguments
    if found:
        return found[0]
    if image_engine is not None and _are_arguments(argv):
        return _from_flags(image_engine, parse_flags(argv), env)
    if not argv and env.get(ENV_MODEL_NAME):
        return _from_flags(Engine.VLLM, parse_flags(()), env)
    return None


def _are_arguments(argv: Sequence[str]) -> bool:
    """Whether the words are an engine's arguments without its program: flags, or a model first."""
    if not argv or argv[0].startswith("-"):
        return True
    return not argv[0].endswith((".sh", ".py")) and not _READ_FLAGS.isdisjoint(
        parse_flags(argv).values
    )


def _engines(command: Command, depth: int) -> Iterator[EngineArguments]:
    """The engines that a command starts, itself or through a script, in order."""
    words, env = _without_wrappers(command)
    if not words or depth > _MAX_NESTING:
        return
    if (script := _script_of(words)) is not None:
        text, arguments = script
        for inner in find_commands(text, env, arguments):
            yield from _engines(inner, depth + 1)
        return
    program = words[0].rpartition("/")[2]
    if _is_ray_worker(program, words):
        yield EngineArguments(Engine.VLLM, role="worker")
    elif (started := _program(program, words[1:])) is not None:
        engine, rest = started
        yield _from_flags(engine, parse_flags(rest), env)


def _without_wrappers(command: Command) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The program behind `exec`, `env A=b`, `tini --` and their like, and what it sees."""
    words = list(command.words)
    env = dict(command.env)
    wrapped = False
    while words:
        name, equals, value = words[0].partition("=")
        if wrapped and equals and name.isidentifier():
            env[name] = value
        elif words[0].rpartition("/")[2] in _WRAPPERS:
            wrapped = True
        elif not (wrapped and (words[0].startswith("-") or words[0][:1].isdigit())):
            break
        words.pop(0)
    return tuple(words), env


def _script_of(words: Sequence[str]) -> tuple[str, Sequence[str]] | None:
    """The text after `sh -c` (also `-lc`, `-e -c`), and the arguments of the script."""
    if words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for index, word in enumerate(words[1:], start=1):
        if word.startswith("-") and not word.startswith("--") and "c" in word:
            rest = words[index + 1 :]
            return (rest[0], rest[1:]) if rest else None
        # The value of `-o`, which may end a cluster of options (`-euo pipefail`).
        named = words[index - 1].startswith("-") and words[index - 1].endswith("o")
        if not word.startswith(("-", "+")) and not named:
            return None
    return None


def _is_ray_worker(program: str, words: Sequence[str]) -> bool:
    """`ray start --address=...`, or vLLM's script for multi-node serving as a worker."""
    if program == "ray":
        return words[1:2] == ("start",) and any(word.startswith("--address") for word in words)
    for word, following in zip(words, (*words[1:], ""), strict=True):
        if word.rpartition("/")[2] == _MULTI_NODE_SCRIPT:
            return following == "worker"
    return False


def _program(program: str, rest: Sequence[str]) -> tuple[Engine, Sequence[str]] | None:
    """The engine that a program starts, with its arguments."""
    if program in ("vllm", "sglang") and rest[:1] == ("serve",):
        return (Engine.VLLM if program == "vllm" else Engine.SGLANG), rest[1:]
    if _PYTHON.fullmatch(program) is None:
        return None
    index = 0
    while index < len(rest) and rest[index].startswith("-") and rest[index] != "-m":
        index += 2 if rest[index] in _PYTHON_OPTIONS_WITH_VALUE else 1
    if rest[index : index + 1] == ("-m",):
        module, rest = "".join(rest[index + 1 : index + 2]), rest[index + 2 :]
    else:
        script, rest = "".join(rest[index : index + 1]), rest[index + 1 :]
        module = script.removesuffix(".py").replace("/", ".")
    for name, engine in _MODULES.items():
        if module == name or module.endswith(f".{name}"):
            serve = name.endswith("cli.main")
            if serve and rest[:1] != ("serve",):
                return None
            return engine, rest[1:] if serve else rest
    return None


# --- flags --------------------------------------------------------------------------------------


def _from_flags(engine: Engine, flags: Flags, env: Mapping[str, str]) -> EngineArguments:
    model = "".join(flags.positional[:1]) or flags.text("--model", "--model-path")
    served = flags.values.get("--served-model-name", ())
    names = tuple(name for name in served if name) or ((model,) if model else ())
    if not names and env.get(ENV_MODEL_NAME):
        names = (env[ENV_MODEL_NAME],)
    port = flags.integer("--port")
    kv_transfer = _kv_transfer(flags)
    mode = flags.text("--disaggregation-mode")
    bootstrap_port = flags.integer("--disaggregation-bootstrap-port")
    lora_modules = dict(_lora_modules(flags))
    return EngineArguments(
        engine=engine,
        role="worker" if _is_worker(engine, flags) else "server",
        models=tuple(dict.fromkeys(names)),
        model_path=model,
        host=flags.text("--host"),
        port=port if port and port < 2**16 else DIALECTS[engine].default_port,
        enable_lora=flags.has("--enable-lora") or (engine is Engine.SGLANG and bool(lora_modules)),
        lora_modules=MappingProxyType(lora_modules),
        kv_connector=_string(kv_transfer.get("kv_connector")),
        kv_role=_string(kv_transfer.get("kv_role")),
        kv_transfer=MappingProxyType(kv_transfer),
        disaggregation_mode=mode if mode in ("prefill", "decode") else "",
        bootstrap_port=bootstrap_port or DEFAULT_BOOTSTRAP_PORT,
        max_model_len=_length(flags.text("--max-model-len", "--context-length")),
        tensor_parallel_size=flags.integer("--tensor-parallel-size", "--tp-size", "--tp") or 1,
        pipeline_parallel_size=flags.integer("--pipeline-parallel-size", "--pp-size", "--pp") or 1,
        data_parallel_size=flags.integer("--data-parallel-size", "--dp-size", "--dp") or 1,
        data_parallel_rank=flags.integer("--data-parallel-rank"),
        extra=MappingProxyType(
            {
                name: values
                for name, values in flags.values.items()
                if name.partition(".")[0] not in _READ_FLAGS
            }
        ),
    )


def _is_worker(engine: Engine, flags: Flags) -> bool:
    """Headless vLLM serves no requests; of an SGLang over several nodes only the first does."""
    if engine is Engine.VLLM:
        return flags.has("--headless")
    return bool(flags.integer("--node-rank"))


def _kv_transfer(flags: Flags) -> dict[str, Any]:
    """The JSON object of `--kv-transfer-config`, with members set by `--kv-transfer-config.NAME`."""
    name = "--kv-transfer-config"
    config = _json_object(flags.text(name))
    for flag, values in flags.values.items():
        head, dot, member = flag.partition(".")
        if head == name and dot and values:
            config[member] = values[-1]
    return config


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def _lora_modules(flags: Flags) -> Iterator[tuple[str, str]]:
    """Name and path of each adapter: `name=path`, a JSON object, or for SGLang a path alone."""
    for text in (*flags.values.get("--lora-modules", ()), *flags.values.get("--lora-paths", ())):
        described = _json_object(text)
        if described:
            name = described.get("name") or described.get("lora_name")
            path = described.get("path") or described.get("lora_path")
            if isinstance(name, str) and isinstance(path, str):
                yield name, path
            continue
        name, equals, path = text.partition("=")
        yield (name, path) if equals else (text, text)


def _length(text: str) -> int | None:
    """A number of tokens, which vLLM also reads with a unit: `8k` is 8000, `8K` is 8192."""
    match = _NUMBER_WITH_UNIT.fullmatch(text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else None
