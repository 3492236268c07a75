"""Fixtures that every folder may use: the real control plane and the corpus."""

import os
from collections.abc import Iterator

import pytest

from controlplane import build, server


def pytest_configure(config: pytest.Config) -> None:
    """Tests must not depend on the developer's own cluster."""
    del config
    os.environ.pop("KUBECONFIG", None)


@pytest.fixture(scope="session")
def real_apiserver() -> Iterator[server.RealControlPlane]:
    """A real etcd, kube-apiserver and kube-controller-manager, one set for the session."""
    with server.running(build.build()) as plane:
        yield plane
