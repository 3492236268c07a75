"""Starts and stops one real control plane on free loopback ports.

etcd without fsync, kube-apiserver with RBAC and a token file, kube-controller-manager with the
controllers that matter here (garbage collection, namespaces, deployments). There is no kubelet and
no scheduler: pods stay Pending until a test, or the project's own node, takes them.
"""

import contextlib
import ctypes
import http.client
import secrets
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("garbage-collector", "namespace", "deployment", "replicaset")

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class RealControlPlane:
    """A running control plane; `token` belongs to `system:masters`."""

    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    audit_log: Path
    folder: Path


@contextlib.contextmanager
def running(programs: Path, controllers: Sequence[str] = CONTROLLERS) -> Iterator[RealControlPlane]:
    """A control plane from the programs in the folder; everything is stopped on the way out."""
    with tempfile.TemporaryDirectory(prefix="kthena-controlplane-") as scratch:
        folder = Path(scratch)
        processes: list[subprocess.Popen[bytes]] = []
        try:
            yield _start(programs, folder, controllers, processes)
        finally:
            for process in reversed(processes):
                _stop(process)


def _start(
    programs: Path,
    folder: Path,
    controllers: Sequence[str],
    processes: list[subprocess.Popen[bytes]],
) -> RealControlPlane:
    client_port, peer_port, api_port = _free_ports(3)
    token = secrets.token_urlsafe(24)
    certificates = folder / "certs"
    certificates.mkdir()
    (folder / "tokens.csv").write_text(f'{token},admin,admin,"system:masters"\n')
    (folder / "audit-policy.yaml").write_text(_AUDIT_POLICY)
    _make_key(certificates / "sa.key")

    processes.append(_spawn(_etcd(programs, folder, client_port, peer_port), folder / "etcd.log"))
    command = _apiserver(programs, folder, client_port, api_port)
    processes.append(_spawn(command, folder / "kube-apiserver.log"))
    plane = RealControlPlane(
        url=f"https://127.0.0.1:{api_port}",
        token=token,
        ca_file=certificates / "apiserver.crt",
        kubeconfig=folder / "kubeconfig",
        audit_log=folder / "audit.log",
        folder=folder,
    )
    _wait_ready(api_port, processes, folder)
    plane.kubeconfig.write_text(_kubeconfig(plane))
    plane.kubeconfig.chmod(0o600)
    command = _controller_manager(programs, folder, controllers)
    processes.append(_spawn(command, folder / "kube-controller-manager.log"))
    return plane


def _etcd(programs: Path, folder: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        str(programs / "etcd"), f"--data-dir={folder / 'etcd'}", "--unsafe-no-fsync",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]  # fmt: skip


def _apiserver(programs: Path, folder: Path, client_port: int, api_port: int) -> list[str]:
    key = folder / "certs" / "sa.key"
    return [
        str(programs / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{client_port}",
        "--bind-address=127.0.0.1", f"--secure-port={api_port}",
        f"--cert-dir={folder / 'certs'}", f"--token-auth-file={folder / 'tokens.csv'}",
        f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
        # Pods of tests name no service account, and no controller here makes one.
        "--disable-admission-plugins=ServiceAccount", "--allow-privileged",
        # As OpenShift has it: who makes a child that blocks its owner's deletion needs a right to.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        f"--audit-policy-file={folder / 'audit-policy.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}", "--audit-log-mode=batch",
        "--max-requests-inflight=2000", "--max-mutating-requests-inflight=1000",
    ]  # fmt: skip


def _controller_manager(programs: Path, folder: Path, controllers: Sequence[str]) -> list[str]:
    return [
        str(programs / "kube-controller-manager"), f"--kubeconfig={folder / 'kubeconfig'}",
        f"--controllers={','.join(f'{name}-controller' for name in controllers)}",
        "--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
        "--kube-api-qps=2000", "--kube-api-burst=4000",
        f"--service-account-private-key-file={folder / 'certs' / 'sa.key'}",
    ]  # fmt: skip


def _make_key(target: Path) -> None:
    command = ["openssl", "genrsa", "-out", str(target), "2048"]
    subprocess.run(command, check=True, capture_output=True)


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; all are held open until the last is known."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    libc = ctypes.CDLL(None)

    def die_with_parent() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - prctl takes no lock
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_ready(port: int, processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if any(process.poll() is not None for process in processes):
            raise RuntimeError(f"the control plane ended early:\n{_tail(folder)}")
        if _is_ready(port):
            return
        time.sleep(0.1)
    raise RuntimeError(
        f"kube-apiserver is not ready after {_START_SECONDS:.0f} s:\n{_tail(folder)}"
    )


def _is_ready(port: int) -> bool:
    # The certificate is written by the server at its first start; verifying it is the clients' job.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _tail(folder: Path) -> str:
    return "\n".join(
        f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in folder.glob("*.log")
    )


def _kubeconfig(plane: RealControlPlane) -> str:
    return f"""apiVersion: v1
kind: Config
clusters:
- name: test
  cluster: {{server: "{plane.url}", certificate-authority: "{plane.ca_file}"}}
users:
- name: admin
  user: {{token: "{plane.token}"}}
contexts:
- name: test
  context: {{cluster: test, user: admin}}
current-context: test
"""


_AUDIT_POLICY = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:apiserver", "system:kube-controller-manager"]
- level: Metadata
"""
