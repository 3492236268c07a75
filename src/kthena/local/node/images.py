"""Which program stands for an image on this machine.

There are no containers here: an image name is looked up in the user's map, then in the built-in
one, first match wins. Built-in entries lead to bundled stand-ins (the mock engine, the downloader,
the runtime sidecar, Ray); a user's entry is a command with placeholders. A pod runs a program of
the host only where a map entry says so, and its own command line only where the entry asks for
`{command}` or `{args}`. An image without an entry is not run. Pure.
"""

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

from kthena.engines.commandline import parse_engine_command
from kthena.engines.dialects import Engine
from kthena.local.engine.config import DEFAULT_PORTS, dialect_of

Builtin: TypeAlias = Literal["vllm", "sglang", "downloader", "runtime", "ray"]

_PLACEHOLDER: Final = re.compile(r"\{\{|\}\}|\{([a-z]+)(?::([^{}]*))?\}")
_LISTS: Final = {"{command}": "command", "{args}": "args"}
_SIMPLE: Final = frozenset({"python", "address", "port", "container", "pod", "namespace", "image"})
_WITH_ARGUMENT: Final = frozenset({"mount", "env"})
PLACEHOLDERS: Final = (
    "{python}", "{command}", "{args}", "{address}", "{port}", "{container}", "{pod}", "{namespace}",
    "{image}", "{mount:PATH}", "{env:NAME}",
)  # fmt: skip
_ENTRY_FIELDS: Final = frozenset({"command", "builtin", "entrypoint", "env", "inherit", "exec"})
_RUNTIME_PORT: Final = 9000
_ENGINES: Final[Mapping[str, Engine]] = {"vllm": Engine.VLLM, "sglang": Engine.SGLANG}


class ImageMapError(ValueError):
    """A map that cannot be used; the message names the entry and says what it may be."""


class ImageNotMappedError(Exception):
    """No program stands for the image; the message says how to map it."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What one pattern leads to: a built-in, or a command with placeholders.

    `entrypoint` is the image's own program, for pods that give only arguments. `inherit` names
    variables of the node's environment that the program gets. `exec_allowed` says whether probes
    and hooks may run the pod's own commands on the host.
    """

    pattern: str
    builtin: Builtin | None = None
    command: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    exec_allowed: bool = False


@dataclass(frozen=True, slots=True)
class ContainerFacts:
    """What is known of a container when its program is looked up. References are expanded."""

    image: str
    name: str
    pod: str
    namespace: str
    address: str
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    mounts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Program:
    """The program to run. `port` is where a stand-in listens once it is ready; 0 for others."""

    argv: tuple[str, ...]
    entry: Entry
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = 0


BUILTIN_ENTRIES: Final = (
    Entry("*dynamo-mocker-sglang*", "sglang"),
    Entry("*dynamo-mocker-*", "vllm"),
    Entry("*kthena/downloader*", "downloader"),
    Entry("*volcano-sh/downloader*", "downloader"),
    Entry("*kthena/runtime*", "runtime"),
    Entry("*volcano-sh/runtime*", "runtime"),
    Entry("*rayproject/ray*", "ray"),
    Entry("*kthena-engine*", "vllm", entrypoint=("vllm", "serve")),
    Entry("*sglang*", "sglang", entrypoint=("python3", "-m", "sglang.launch_server")),
    Entry("*vllm*", "vllm", entrypoint=("vllm", "serve")),
)


def parse_image_map(document: object, source: str) -> tuple[Entry, ...]:
    """The entries of a user's map, in order: pattern to command, or to an object.

    Raises:
        ImageMapError: an entry is not understood; `source` is named.
    """
    if document is None:
        return ()
    if not isinstance(document, Mapping):
        raise ImageMapError(f"{source}: an image map is an object of image patterns to commands")
    return tuple(
        _parse_entry(str(pattern), value, f"{source}: {pattern}")
        for pattern, value in document.items()
    )


def find_entry(image: str, entries: Sequence[Entry]) -> Entry | None:
    """The first entry whose pattern matches the image as written, or without its registry."""
    names = _spellings(image)
    for entry in entries:
        if any(fnmatch.fnmatchcase(name, entry.pattern) for name in names):
            return entry
    return None


def resolve(facts: ContainerFacts, entries: Sequence[Entry], python: str) -> Program:
    """The program that stands for the container.

    `entries` is the user's map followed by the built-in one.

    Raises:
        ImageNotMappedError: no entry matches, or the entry's stand-in cannot play the command line.
    """
    entry = find_entry(facts.image, entries)
    if entry is None:
        raise ImageNotMappedError(
            f"no program stands for image {json.dumps(facts.image)} here: map it to one with an "
            f"entry such as {json.dumps(_spellings(facts.image)[-1].split(':')[0] + '*')}: "
            '["PROGRAM", "{args}"] in a file given with --image-map'
        )
    if entry.builtin is None:
        return Program(_fill(entry.command, facts, entry, python), entry, entry.env)
    return _stand_in(entry, entry.builtin, facts, python)


def _spellings(image: str) -> list[str]:
    """The image as written and in Docker's short form, with the default tag where it has none."""
    short = image.removeprefix("docker.io/").removeprefix("library/")
    names = [image, short]
    if "@" not in short and ":" not in short.rpartition("/")[2]:
        names.append(f"{short}:latest")
    return list(dict.fromkeys(names))


# --- built-in stand-ins ----------------------------------------------------------------------


def _stand_in(entry: Entry, builtin: Builtin, facts: ContainerFacts, python: str) -> Program:
    argv = (*(facts.command or entry.entrypoint), *facts.args)
    if builtin in _ENGINES:
        return _engine(entry, _ENGINES[builtin], argv, facts, python)
    module = f"kthena.local.node.standins.{builtin}"
    port = _option(argv, ("--port", "-P"), _RUNTIME_PORT) if builtin == "runtime" else 0
    return Program((python, "-I", "-m", module, *argv), entry, entry.env, port)


def _engine(
    entry: Entry, engine: Engine, argv: tuple[str, ...], facts: ContainerFacts, python: str
) -> Program:
    """The mock engine for a serving command line, a waiting program for a worker's."""
    arguments = parse_engine_command(argv, facts.env, engine)
    if arguments is None:
        raise ImageNotMappedError(
            f"container {facts.name} of image {json.dumps(facts.image)} runs no command line of an "
            "engine, and the mock engine can play nothing else: map the image to a program with "
            "--image-map"
        )
    if arguments.role == "worker":
        run = (python, "-I", "-m", "kthena.local.node.standins.ray", *argv)
        return Program(run, entry, entry.env)
    dialect = dialect_of(arguments.engine)
    run = (python, "-I", "-m", "kthena.local.engine", "--dialect", dialect, "--", *argv)
    port = arguments.port or DEFAULT_PORTS[dialect]
    return Program(run, entry, entry.env, port)


def _option(argv: Sequence[str], names: tuple[str, ...], default: int) -> int:
    """An integer option of a command line, in both spellings (`--port 1`, `--port=1`)."""
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            text = value if equals else "".join(argv[index + 1 : index + 2])
            return int(text) if text.isdecimal() else default
    return default


# --- placeholders ----------------------------------------------------------------------------


def _fill(
    template: Sequence[str], facts: ContainerFacts, entry: Entry, python: str
) -> tuple[str, ...]:
    argv: list[str] = []
    for word in template:
        if word == "{command}":
            argv += facts.command or entry.entrypoint
        elif word == "{args}":
            argv += facts.args
        else:
            argv.append(_PLACEHOLDER.sub(lambda match: _value(match, facts, python), word))
    if not argv:
        raise ImageNotMappedError(
            f"container {facts.name} of image {json.dumps(facts.image)} gives no command, and the "
            "image map entry has no entrypoint"
        )
    return tuple(argv)


def _value(match: re.Match[str], facts: ContainerFacts, python: str) -> str:
    name, argument = match[1], match[2]
    if name is None:
        return match[0][0]
    if name == "env":
        return facts.env.get(argument, "")
    if name == "mount":
        if argument not in facts.mounts:
            raise ImageNotMappedError(f"container {facts.name} mounts nothing at {argument}")
        return facts.mounts[argument]
    values = {
        "python": python,
        "address": facts.address,
        "port": str(facts.port or ""),
        "container": facts.name,
        "pod": facts.pod,
        "namespace": facts.namespace,
        "image": facts.image,
    }
    return values[name]


# --- the user's map --------------------------------------------------------------------------


def _parse_entry(pattern: str, value: object, where: str) -> Entry:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = {"command": value}
    if not isinstance(value, Mapping):
        raise ImageMapError(
            f"{where}: must be a list of words or an object with command or builtin"
        )
    unknown = sorted(set(value) - _ENTRY_FIELDS)
    if unknown:
        raise ImageMapError(
            f"{where}: unknown field {unknown[0]!r}; known are {', '.join(sorted(_ENTRY_FIELDS))}"
        )
    builtin = value.get("builtin")
    if (builtin is None) == ("command" not in value):
        raise ImageMapError(f"{where}: must have either command or builtin")
    if builtin is not None and builtin not in get_args(Builtin):
        raise ImageMapError(f"{where}: builtin must be one of {', '.join(get_args(Builtin))}")
    command = _words(value.get("command", []), f"{where}: command")
    for word in command:
        _check_placeholders(word, where)
    if builtin is None and not command:
        raise ImageMapError(f"{where}: command must not be empty")
    return Entry(
        pattern=pattern,
        builtin=builtin,
        command=command,
        entrypoint=_words(value.get("entrypoint", []), f"{where}: entrypoint"),
        env=_variables(value.get("env", {}), f"{where}: env"),
        inherit=_words(value.get("inherit", []), f"{where}: inherit"),
        exec_allowed=_exec_allowed(value, command, where),
    )


def _exec_allowed(value: Mapping[Any, Any], command: tuple[str, ...], where: str) -> bool:
    given = value.get("exec", "{command}" in command)
    if not isinstance(given, bool):
        raise ImageMapError(f"{where}: exec must be true or false")
    return given


def _words(value: object, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ImageMapError(f"{where} must be a list of words")
    if not all(isinstance(word, str | int | float) for word in value):
        raise ImageMapError(f"{where} must be a list of words")
    return tuple(str(word) for word in value)


def _variables(value: object, where: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise ImageMapError(f"{where} must be an object of names to texts")
    return {str(name): str(text) for name, text in value.items()}


def _check_placeholders(word: str, where: str) -> None:
    if word in _LISTS:
        return
    for match in _PLACEHOLDER.finditer(word):
        name, argument = match[1], match[2]
        known = name is None or name in (_SIMPLE if argument is None else _WITH_ARGUMENT)
        if not known:
            hint = "stands alone as a word" if match[0] in _LISTS else "is not known"
            raise ImageMapError(
                f"{where}: placeholder {match[0]} {hint}; there are {', '.join(PLACEHOLDERS)}, "
                "and {{ for a brace"
            )
    if re.search(r"[{}]", _PLACEHOLDER.sub("", word)):
        raise ImageMapError(f"{where}: {word!r} has a lone brace; write {{{{ or }}}} for one")
