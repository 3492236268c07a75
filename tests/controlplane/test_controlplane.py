"""The harness itself: the real server answers, and garbage collection runs."""

import subprocess

import pytest

from controlplane.server import RealControlPlane

pytestmark = [pytest.mark.cluster, pytest.mark.kubectl]


def _kubectl(plane: RealControlPlane, *arguments: str) -> str:
    command = ["kubectl", f"--kubeconfig={plane.kubeconfig}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_the_real_server_is_the_pinned_release(real_apiserver: RealControlPlane) -> None:
    assert "v1.35.4" in _kubectl(real_apiserver, "get", "--raw", "/version")


def test_a_deployment_gets_pods(real_apiserver: RealControlPlane) -> None:
    """kube-controller-manager runs: a Deployment makes a ReplicaSet, which makes pods."""
    _kubectl(real_apiserver, "create", "deployment", "harness", "--image=none", "--replicas=2")
    _kubectl(
        real_apiserver, "wait", "--for=jsonpath={.status.replicas}=2", "deployment/harness",
        "--timeout=30s",
    )  # fmt: skip
    _kubectl(real_apiserver, "delete", "deployment", "harness")
    _kubectl(real_apiserver, "wait", "--for=delete", "pod", "-l", "app=harness", "--timeout=30s")
