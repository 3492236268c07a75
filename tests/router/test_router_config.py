"""Kthena's configuration file and environment: followed, or refused by name."""

import pytest

from kthena.router.config import (
    AccessLogConfig,
    ConfigurationError,
    RouterConfig,
    apply_environment,
    load_configuration,
)
from kthena.router.scheduler.settings import ScorerConfig


@pytest.mark.parametrize("text", ["", "{}", "scheduler:", "scheduler: {plugins: {}}", "auth: {}"])
def test_a_file_that_asks_for_nothing_gives_the_defaults(text: str) -> None:
    assert load_configuration(text) == RouterConfig()


def test_score_plugins_and_weights_are_read() -> None:
    text = """
    scheduler:
      plugins:
        Filter: {enabled: [], disabled: []}
        Score:
          enabled:
          - {name: least-request, weight: 3}
    """
    assert load_configuration(text).scheduler.scorers == (ScorerConfig("least-request", 3.0),)


def test_a_weight_that_is_left_out_is_0_as_in_kthena() -> None:
    text = "scheduler: {plugins: {Score: {enabled: [{name: least-request}]}}}"
    assert load_configuration(text).scheduler.scorers == (ScorerConfig("least-request", 0.0),)


def test_switches_that_are_off_ask_for_nothing() -> None:
    text = 'auth: {issuer: "", audiences: [], jwksUri: ""}\n'
    text += "scheduler: {pluginConfig: [{name: least-request, args: {}}]}"
    assert load_configuration(text) == RouterConfig()


REFUSED = [
    ("auth: {jwksUri: https://x}", "auth.jwksUri", "authentication is not implemented"),
    ("auth: {issuer: x}", "auth.issuer", "authentication is not implemented"),
    ("auth: {audiences: [x]}", "auth.audiences", "authentication is not implemented"),
    (
        "scheduler: {plugins: {Filter: {enabled: [least-request]}}}",
        "scheduler.plugins.Filter.enabled[0]",
        "'least-request' is not implemented",
    ),
    (
        "scheduler: {plugins: {Score: {enabled: [{name: prefix-cache, weight: 1}]}}}",
        "scheduler.plugins.Score.enabled[0].name",
        "'prefix-cache' is not implemented; known is least-request",
    ),
    (
        "scheduler: {plugins: {Score: {disabled: [x]}}}",
        "scheduler.plugins.Score.disabled",
        "no effect",
    ),
    (
        "scheduler: {pluginConfig: [{name: least-request, args: {maxWaitingRequests: 10}}]}",
        "scheduler.pluginConfig[0].args.maxWaitingRequests",
        "'least-request' are not implemented",
    ),
    (
        "scheduler: {plugins: {Score: {enabled: [{name: least-request, weight: -1}]}}}",
        "scheduler.plugins.Score.enabled[0].weight",
        "-1 is no weight",
    ),
    (
        "scheduler: {plugins: {Score: {enabled: [{name: least-request, weight: true}]}}}",
        "scheduler.plugins.Score.enabled[0].weight",
        "True is no weight",
    ),
    (
        "scheduler: {plugins: {Score: {enabled: [{name: least-request}, {name: least-request}]}}}",
        "scheduler.plugins.Score.enabled[1].name",
        "enabled twice",
    ),
    ("scheduler: {plugins: {score: {}}}", "scheduler.plugins.score", "unknown"),
    ("scheduler: {plugin: {}}", "scheduler.plugin", "unknown"),
    ("other: 1", "other", "unknown"),
    ("scheduler: 1", "scheduler", "must be a mapping"),
    ("scheduler: {pluginConfig: {}}", "scheduler.pluginConfig", "must be a list"),
    ("scheduler: {pluginConfig: [x]}", "scheduler.pluginConfig[0]", "must be a mapping"),
    ("a: b: c", "file.yaml:1", ""),
    ("a: 1\na: 2", "file.yaml:2", "already set"),
    ("{}\n---\n{}", "file.yaml", "more than one document"),
]


@pytest.mark.parametrize(("text", "where", "why"), REFUSED, ids=[case[1] for case in REFUSED])
def test_what_cannot_be_followed_is_refused_with_its_key(text: str, where: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_configuration(text, "file.yaml")
    assert caught.value.key == where
    assert why in caught.value.why
    assert str(caught.value) == f"{where}: {caught.value.why}"


def test_the_environment_changes_the_configuration() -> None:
    config = apply_environment(
        RouterConfig(),
        {
            "ACCESS_LOG_ENABLED": "F",
            "ACCESS_LOG_FORMAT": "json",
            "ACCESS_LOG_OUTPUT": "access.log",
            "DRAIN_TIMEOUT": "1m30s",
            "ENABLE_FAIRNESS_SCHEDULING": "false",
            "FAIRNESS_WINDOW_SIZE": "1h",
            "REDIS_HOST": "",
            "HOME": "/",
        },
    )
    assert config.access_log == AccessLogConfig(enabled=False, format="json", output="access.log")
    assert config.drain_timeout_s == 90.0
    assert apply_environment(config, {}) == config


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("ENABLE_FAIRNESS_SCHEDULING", "true", "not implemented"),
        ("ENABLE_FAIRNESS_SCHEDULING", "1", "not implemented"),
        ("ENABLE_FAIRNESS_SCHEDULING", "yes", "neither true nor false"),
        ("ENABLE_SESSION_BOOST", "T", "not implemented"),
        ("REDIS_HOST", "redis-server", "not implemented"),
        ("METRICS_SCRAPE_INTERVAL", "1s", "not read"),
        ("ACCESS_LOG_ENABLED", "on", "neither true nor false"),
        ("ACCESS_LOG_FORMAT", "xml", "use json or text"),
        ("DRAIN_TIMEOUT", "5", "missing unit"),
        ("DRAIN_TIMEOUT", "0s", "not a positive duration"),
        ("DRAIN_TIMEOUT", "-5s", "not a positive duration"),
    ],
)
def test_variables_that_cannot_be_followed_are_refused_by_name(
    name: str, value: str, why: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        apply_environment(RouterConfig(), {name: value})
    assert caught.value.key == name
    assert why in caught.value.why
