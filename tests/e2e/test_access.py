"""Who may talk to the API server of `kthena up`."""

import http.client
import json
import stat
from pathlib import Path
from urllib.parse import urlsplit

from support.programs import REPOSITORY, Up, Workspace

QUICKSTART = str(REPOSITORY / "examples" / "quickstart")


def request(up: Up, path: str, **headers: str) -> int:
    config = json.loads(Path(up.kubeconfig).read_text())
    url = urlsplit(config["clusters"][0]["cluster"]["server"])
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=10)
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_only_the_holder_of_the_token_from_this_machine(space: Workspace) -> None:
    up = space.up("-k", QUICKSTART)
    file = Path(up.kubeconfig)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    config = json.loads(file.read_text())
    bearer = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    paths = (
        "/", "/api", "/api/v1", "/apis", "/version", "/openapi/v3", "/metrics",
        "/api/v1/namespaces/default/pods", "/api/v1/pods?watch=true", "/nowhere",
        "/api/v1/namespaces/default/pods/qwen3-0-server-0-0/log",
    )  # fmt: skip
    for path in paths:
        assert request(up, path) == 401, path
        assert request(up, path, Authorization="Bearer wrong") == 401, path
    for path in ("/healthz", "/livez", "/readyz"):
        assert request(up, path) == 200, path
    assert request(up, "/api/v1/pods", **bearer) == 200
    assert request(up, "/api/v1/pods", Host="evil.example", **bearer) == 403
    assert request(up, "/api/v1/pods", Origin="http://evil.example", **bearer) == 403
    assert request(up, "/healthz", Host="evil.example") == 403
    processes = space.run("-c", "true", program=("sh",))
    assert processes.returncode == 0


def test_the_token_is_in_no_log_and_no_command_line(space: Workspace) -> None:
    up = space.up("-k", QUICKSTART, "--verbose")
    config = json.loads(Path(up.kubeconfig).read_text())
    token = config["users"][0]["user"]["token"].encode()
    assert token not in space.log_of(up.process).encode()
    for process in space.processes():
        assert token not in process.command
        assert token not in process.environment
