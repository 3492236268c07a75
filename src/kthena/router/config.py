"""The router's configuration: one frozen value, read from Kthena's file and environment variables.

What this version does not implement is refused with the key and the reason, never ignored: a router
that starts does everything that its configuration asks for. The exception are parameters of a
feature that is switched off, which mean nothing there either.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeVar, cast

from kthena.machinery.durations import SECOND, DurationError, parse_duration
from kthena.machinery.yaml import YamlError, load_documents
from kthena.router.proxy.limits import Limits, PoolLimits
from kthena.router.scheduler.plugins import PLUGINS, Plugins
from kthena.router.scheduler.settings import (
    DEFAULT_SCHEDULER,
    ArgumentError,
    FilterConfig,
    SchedulerConfig,
    ScorerConfig,
)
from kthena.telemetry.logging import LogFormat

Value = TypeVar("Value")

CONFIGURATION_FILE: Final = "/etc/config/routerConfiguration.yaml"
"""Where Kthena's chart mounts the file."""

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})

_SWITCHES: Final = {
    "ENABLE_FAIRNESS_SCHEDULING": "fair queueing is not implemented",
    "ENABLE_SESSION_BOOST": "session boost is not implemented",
}
_NOT_IMPLEMENTED: Final = {
    "REDIS_HOST": "in-flight counts shared through Redis are not implemented",
    "METRICS_SCRAPE_INTERVAL": "the metrics of engines are not read",
}


class ConfigurationError(ValueError):
    """A key that cannot be followed: which one, and why."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")
        self.key = key
        self.why = why


@dataclass(frozen=True, slots=True)
class AccessLogConfig:
    """Whether and where each request leaves a line. `output` is stdout, stderr or a file's path."""

    enabled: bool = True
    format: LogFormat = "text"
    output: str = "stdout"


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Everything that a router is told at its start."""

    limits: Limits = field(default_factory=Limits)
    pool: PoolLimits = field(default_factory=PoolLimits)
    scheduler: SchedulerConfig = DEFAULT_SCHEDULER
    access_log: AccessLogConfig = field(default_factory=AccessLogConfig)
    drain_timeout_s: float = 300.0
    expose_metrics: bool = False
    """Whether `/metrics` is answered on the port for inference."""
    forward_authorization: bool = True
    """Whether engines see the client's `Authorization`."""


def load_configuration(
    text: str, source: str = CONFIGURATION_FILE, plugins: Plugins = PLUGINS
) -> RouterConfig:
    """The configuration of Kthena's YAML file; what it does not name keeps its default.

    `plugins` are the scheduler's, by the names that the file may use.

    Raises:
        ConfigurationError: the text is no YAML, or a key is unknown, malformed or not implemented.
    """
    try:
        documents = load_documents(text, source)
    except YamlError as exc:
        raise ConfigurationError(f"{source}:{exc.line}", exc.cause) from exc
    if len(documents) > 1:
        raise ConfigurationError(source, "it holds more than one document")
    root = _Node(documents[0].object if documents else {}, "")
    root.refuse("auth", "authentication is not implemented; remove it or leave it empty")
    scheduler = root.child("scheduler")
    root.done()
    configured = _PluginReader(plugins).read(scheduler)
    scheduler.done()
    return replace(RouterConfig(), scheduler=configured)


def apply_environment(config: RouterConfig, environment: Mapping[str, str]) -> RouterConfig:
    """The configuration changed by Kthena's environment variables; empty ones count as unset.

    Raises:
        ConfigurationError: a variable has a value that is invalid, or asks for something that is
            not implemented.
    """
    for name, why in _SWITCHES.items():
        if _read(environment, name, _parse_bool, default=False):
            raise ConfigurationError(name, why)
    for name, why in _NOT_IMPLEMENTED.items():
        if environment.get(name):
            raise ConfigurationError(name, why)
    log = config.access_log
    access_log = AccessLogConfig(
        enabled=_read(environment, "ACCESS_LOG_ENABLED", _parse_bool, default=log.enabled),
        format=_read(environment, "ACCESS_LOG_FORMAT", _parse_format, default=log.format),
        output=environment.get("ACCESS_LOG_OUTPUT") or log.output,
    )
    drain = _read(environment, "DRAIN_TIMEOUT", _parse_positive, default=config.drain_timeout_s)
    return replace(config, access_log=access_log, drain_timeout_s=drain)


class _Node:
    """A mapping of the file, which must be read to the last key."""

    def __init__(self, value: object, path: str) -> None:
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise ConfigurationError(path, "it must be a mapping")
        self.value = cast("dict[str, Any]", value)
        self.path = path
        self._left = set(self.value)

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def take(self, key: str) -> Any:
        self._left.discard(key)
        return self.value.get(key)

    def child(self, key: str) -> "_Node":
        return _Node(self.take(key), self.at(key))

    def items(self, key: str) -> list[Any]:
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise ConfigurationError(self.at(key), "it must be a list")
        return value

    def refuse(self, key: str, why: str) -> None:
        """Refuse a key unless nothing is in it."""
        path = _first_value(self.take(key), self.at(key))
        if path is not None:
            raise ConfigurationError(path, why)

    def done(self) -> None:
        for key in sorted(self._left):
            raise ConfigurationError(self.at(key), "this key is unknown")


def _first_value(value: Any, path: str) -> str | None:
    """The path of the first value that is not empty."""
    if isinstance(value, dict):
        paths = (_first_value(inner, f"{path}.{key}") for key, inner in value.items())
        return next((found for found in paths if found is not None), None)
    return path if value else None


Kind = Literal["filter", "score"]


class _PluginReader:
    """Reads the part `scheduler` of the file, and checks it against the plugins that exist."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._arguments: dict[str, Any] = {}

    def read(self, scheduler: _Node) -> SchedulerConfig:
        plugins = scheduler.child("plugins")
        filters, scores = plugins.child("Filter"), plugins.child("Score")
        plugins.done()
        entries = scheduler.items("pluginConfig")
        self._read_arguments(entries, scheduler.at("pluginConfig"))
        filtering, scoring = self._read_filters(filters), self._read_scorers(scores)
        for node in (filters, scores):
            node.refuse("disabled", "it has no effect; leave the plugin out of `enabled`")
            node.done()
        return SchedulerConfig(filtering, scoring or DEFAULT_SCHEDULER.scorers)

    def _read_filters(self, filters: _Node) -> tuple[FilterConfig, ...]:
        found: dict[str, FilterConfig] = {}
        for index, name in enumerate(filters.items("enabled")):
            path = f"{filters.at('enabled')}[{index}]"
            self._check("filter", name, path, found)
            found[name] = FilterConfig(name, self._arguments_of(name))
        return tuple(found.values())

    def _read_scorers(self, scores: _Node) -> tuple[ScorerConfig, ...]:
        found: dict[str, ScorerConfig] = {}
        for index, entry in enumerate(scores.items("enabled")):
            node = _Node(entry, f"{scores.at('enabled')}[{index}]")
            name, weight = node.take("name"), node.take("weight")
            node.done()
            self._check("score", name, node.at("name"), found)
            weighed = _check_weight(weight, node.at("weight"))
            found[name] = ScorerConfig(name, weighed, self._arguments_of(name))
        return tuple(found.values())

    def _check(self, kind: Kind, name: Any, path: str, enabled: Container[str]) -> None:
        """Refuse a name that no plugin of this kind has, or that is enabled already."""
        known = [known for known, plugin in self._plugins.items() if getattr(plugin, kind)]
        if name not in known:
            others = f"; known is {', '.join(known)}" if known else ""
            raise ConfigurationError(path, f"the {kind} plugin {name!r} is not implemented{others}")
        if name in enabled:
            raise ConfigurationError(path, f"the plugin {name!r} is enabled twice")

    def _read_arguments(self, entries: list[Any], path: str) -> None:
        for index, entry in enumerate(entries):
            node = _Node(entry, f"{path}[{index}]")
            name = node.take("name")
            plugin = self._plugins.get(name) if isinstance(name, str) else None
            if plugin is None or plugin.parse is None:
                node.refuse("args", f"arguments of the plugin {name!r} are not implemented")
                node.done()
                continue
            if name in self._arguments:
                raise ConfigurationError(node.at("name"), f"the plugin {name!r} is here twice")
            given = node.child("args")
            node.done()
            try:
                self._arguments[name] = plugin.parse(given.value)
            except ArgumentError as exc:
                raise ConfigurationError(given.at(exc.name), exc.why) from exc

    def _arguments_of(self, name: str) -> Any:
        """The arguments that the file gives a plugin, else its defaults."""
        plugin = self._plugins[name]
        if name not in self._arguments and plugin.parse is not None:
            self._arguments[name] = plugin.parse({})
        return self._arguments.get(name)


def _check_weight(weight: Any, path: str) -> float:
    if weight is None:
        return 0.0
    if not isinstance(weight, int) or isinstance(weight, bool) or weight < 0:
        raise ConfigurationError(path, f"{weight!r} is no weight; use a whole number from 0 on")
    return float(weight)


def _read(
    environment: Mapping[str, str], name: str, parse: Callable[[str], Value], *, default: Value
) -> Value:
    text = environment.get(name)
    if not text:
        return default
    try:
        return parse(text)
    except ValueError as exc:
        raise ConfigurationError(name, str(exc)) from exc


def _parse_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _parse_format(text: str) -> LogFormat:
    if text == "json":
        return "json"
    if text == "text":
        return "text"
    raise ValueError(f"{text!r} is no format; use json or text")


def _parse_positive(text: str) -> float:
    try:
        nanoseconds = parse_duration(text)
    except DurationError as exc:
        raise ValueError(str(exc)) from exc
    if nanoseconds <= 0:
        raise ValueError(f"{text!r} is not a positive duration")
    return nanoseconds / SECOND
