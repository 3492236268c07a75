"""Fixtures that every folder may use, and how hypothesis runs."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from controlplane import build, server

# Machines of CI are busy: a slow example is no failure, and the same examples run each time.
settings.register_profile(
    "default", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_configure(config: pytest.Config) -> None:
    """Tests must not depend on the developer's own cluster."""
    del config
    os.environ.pop("KUBECONFIG", None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much of the corpus took part: a run without it proves less than it seems to."""
    passed = terminalreporter.getreports("passed")
    count = sum("corpus" in report.keywords for report in passed if report.when == "call")
    terminalreporter.write_line(f"corpus: {count} tests run")
    for report in passed:
        # How many rules, vectors, verdict rows and manifests were compared, on which server.
        if report.when == "call" and "tests/crds/" in report.nodeid and report.capstdout.strip():
            server = report.nodeid.partition("[")[2].rstrip("]").split("-")[0]
            for line in report.capstdout.strip().splitlines():
                terminalreporter.write_line(f"{server or 'offline'}: {line}")


@pytest.fixture(scope="session")
def real_apiserver() -> Iterator[server.RealControlPlane]:
    """A real etcd, kube-apiserver and kube-controller-manager, one set for the session."""
    with server.running(build.build()) as plane:
        yield plane
