import base64
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kthena.api.kubernetes import PODS
from kthena.kube.client import ClientConfig, KubeClient, Request
from kthena.kube.client.http import Anonymous, Endpoint
from kthena.kube.client.kubeconfig import load_endpoint
from kthena.kube.errors import ApiError, ClientConfigError
from kthena.kube.faults import Answer, FaultTransport

EXEC_V1 = "client.authentication.k8s.io/v1"


def document(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None
) -> dict[str, Any]:
    context = {"cluster": "c", "namespace": "team"}
    if user is not None:
        context["user"] = "u"
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": context}],
        "clusters": [{"name": "c", "cluster": cluster or {"server": "http://127.0.0.1:1/"}}],
        "users": [{"name": "u", "user": user}] if user is not None else [],
    }


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def load(path: Path, context: str | None = None) -> Endpoint:
    return load_endpoint(ClientConfig(kubeconfig=path, context=context))


@pytest.fixture(autouse=True)
def no_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the developer's files nor proxies take part."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("KUBECONFIG", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


async def test_a_token(tmp_path: Path) -> None:
    endpoint = load(write(tmp_path / "config", document({"token": "t"})))

    assert endpoint.server == "http://127.0.0.1:1"
    assert endpoint.namespace == "team"
    assert endpoint.ssl_context is None
    assert await endpoint.credentials.authorization() == "Bearer t"
    assert await endpoint.credentials.renewed("Bearer t") == "Bearer t"


async def test_a_user_name_and_password(tmp_path: Path) -> None:
    endpoint = load(write(tmp_path / "config", document({"username": "a", "password": "b"})))

    assert await endpoint.credentials.authorization() == "Basic YTpi"


async def test_a_name_and_password_within_the_url_are_sent_and_never_shown(tmp_path: Path) -> None:
    cluster = {"server": "http://a:b%40c@127.0.0.1:1/x/"}
    endpoint = load(write(tmp_path / "config", document(cluster=cluster)))

    assert endpoint.server == "http://127.0.0.1:1/x"
    assert await endpoint.credentials.authorization() == "Basic YTpiQGM="
    with_token = load(write(tmp_path / "config", document({"token": "t"}, cluster=cluster)))
    assert await with_token.credentials.authorization() == "Bearer t"


async def test_no_user_is_anonymous(tmp_path: Path) -> None:
    endpoint = load(write(tmp_path / "config", document()))

    assert isinstance(endpoint.credentials, Anonymous)


async def test_a_token_file_is_read_again_when_its_token_is_rejected(tmp_path: Path) -> None:
    """The name is relative to the kubeconfig, as for kubectl."""
    (tmp_path / "token").write_text("first\n")
    endpoint = load(write(tmp_path / "config", document({"tokenFile": "token"})))
    assert await endpoint.credentials.authorization() == "Bearer first"

    (tmp_path / "token").write_text("second\n")
    assert await endpoint.credentials.authorization() == "Bearer first"
    assert await endpoint.credentials.renewed("Bearer first") == "Bearer second"
    assert await endpoint.credentials.authorization() == "Bearer second"
    assert await endpoint.credentials.renewed("Bearer first") == "Bearer second"


async def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    endpoint = load(write(tmp_path / "config", document({"tokenFile": "token"})))

    with pytest.raises(ClientConfigError, match=r"http://127\.0\.0\.1:1: .*token not found"):
        await endpoint.credentials.authorization()


def plugin(folder: Path, body: str) -> Path:
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


async def test_an_exec_plugin_gives_the_token_and_is_run_again_on_rejection(
    tmp_path: Path,
) -> None:
    plugin(
        tmp_path,
        f'echo run >> {tmp_path}/runs; n=$(wc -l < {tmp_path}/runs); echo "$KUBERNETES_EXEC_INFO" '
        f'> {tmp_path}/info; printf \'{{"status":{{"token":"%s-%s-%s"}}}}\' $1 $WHO $((n))',
    )
    user = {
        "exec": {
            "apiVersion": EXEC_V1,
            "command": "./plugin",
            "args": ["arg"],
            "env": [{"name": "WHO", "value": "me"}],
            "provideClusterInfo": True,
            "interactiveMode": "Never",
        }
    }
    endpoint = load(write(tmp_path / "config", document(user)))

    assert await endpoint.credentials.authorization() == "Bearer arg-me-1"
    assert await endpoint.credentials.authorization() == "Bearer arg-me-1"
    assert await endpoint.credentials.renewed("Bearer arg-me-1") == "Bearer arg-me-2"
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": EXEC_V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "http://127.0.0.1:1/"}},
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("echo denied >&2; exit 3", r"returned 3: denied"),
        ("echo nonsense", "JSONDecodeError"),
        ("echo '{}'", "KeyError: 'status'"),
        ('echo \'{"status": {"clientCertificateData": "x"}}\'', "KeyError: 'token'"),
    ],
)
async def test_an_exec_plugin_that_fails_is_reported(
    tmp_path: Path, body: str, message: str
) -> None:
    command = plugin(tmp_path, body)
    user = {"exec": {"apiVersion": EXEC_V1, "command": str(command)}}
    endpoint = load(write(tmp_path / "config", document(user)))

    with pytest.raises(ClientConfigError, match=message):
        await endpoint.credentials.authorization()


async def test_an_exec_plugin_that_is_missing_is_reported(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": EXEC_V1, "command": "no-such-plugin"}}
    endpoint = load(write(tmp_path / "config", document(user)))

    with pytest.raises(ClientConfigError, match=r"FileNotFoundError.*no-such-plugin"):
        await endpoint.credentials.authorization()


def test_a_plugin_is_told_of_the_cluster_only_if_its_certificate_is_there(tmp_path: Path) -> None:
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "missing.pem"}
    user = {"exec": {"apiVersion": EXEC_V1, "command": "p", "provideClusterInfo": True}}

    with pytest.raises(ClientConfigError, match=r"certificate-authority .*missing\.pem: No such"):
        load(write(tmp_path / "config", document(user, cluster)))


def test_an_exec_plugin_of_an_unknown_version_is_refused(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1alpha1", "command": "p"}}

    with pytest.raises(ClientConfigError, match=r"'p': apiVersion .* is not supported; use"):
        load(write(tmp_path / "config", document(user)))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=kthena", "-keyout", str(folder / "key.pem")),
        *("-out", str(folder / "cert.pem")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return folder


def test_certificates_from_files_beside_the_kubeconfig(tmp_path: Path, certificates: Path) -> None:
    for name in ("key.pem", "cert.pem"):
        (tmp_path / name).write_bytes((certificates / name).read_bytes())
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority": "cert.pem"}
    user = {"client-certificate": "cert.pem", "client-key": "key.pem"}

    endpoint = load(write(tmp_path / "config", document(user, cluster)))

    assert endpoint.ssl_context is not None
    assert len(endpoint.ssl_context.get_ca_certs()) == 1
    assert isinstance(endpoint.credentials, Anonymous)


def test_certificates_within_the_kubeconfig(tmp_path: Path, certificates: Path) -> None:
    def data(name: str) -> str:
        return base64.b64encode((certificates / name).read_bytes()).decode()

    cluster = {
        "server": "https://127.0.0.1:1",
        "certificate-authority-data": data("cert.pem"),
    }
    user = {"client-certificate-data": data("cert.pem"), "client-key-data": data("key.pem")}

    endpoint = load(write(tmp_path / "config", document(user, cluster)))

    assert endpoint.ssl_context is not None
    assert len(endpoint.ssl_context.get_ca_certs()) == 1


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": "https://127.0.0.1:1", "certificate-authority": "missing.pem"},
        {"server": "https://127.0.0.1:1", "certificate-authority-data": "bm9uc2Vuc2U="},
        {"server": "https://127.0.0.1:1", "certificate-authority-data": "!"},
    ],
    ids=["missing", "no certificate", "no base64"],
)
def test_certificates_that_are_unusable_are_reported(
    tmp_path: Path, cluster: dict[str, Any]
) -> None:
    with pytest.raises(ClientConfigError, match=r"context 'x': .* unusable"):
        load(write(tmp_path / "config", document({"token": "t"}, cluster)))


def test_a_context_is_chosen_by_name(tmp_path: Path) -> None:
    content = document({"token": "t"})
    content["contexts"].append({"name": "other", "context": {"cluster": "d"}})
    content["clusters"].append({"name": "d", "cluster": {"server": "http://127.0.0.1:2"}})
    path = write(tmp_path / "config", content)

    assert load(path, "other").server == "http://127.0.0.1:2"
    assert load(path, "other").namespace == "default"
    with pytest.raises(ClientConfigError, match=r"no context 'none' in .*known: other, x\)"):
        load(path, "none")


def test_dangling_names_are_reported(tmp_path: Path) -> None:
    content = document({"token": "t"})
    content["users"] = []
    path = write(tmp_path / "config", content)

    with pytest.raises(ClientConfigError, match=r"context 'x' of .*config: no user 'u'"):
        load(path)


def test_without_a_current_context_one_must_be_given(tmp_path: Path) -> None:
    content = document()
    del content["current-context"]

    with pytest.raises(ClientConfigError, match=r"has no current-context; .*--context .*x\)"):
        load(write(tmp_path / "config", content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", ":2:1: did not find"),
        ("just text", "the document is a text"),
        ("", "has no clusters"),
        ("contexts: [5]", "contexts: every item needs name and context"),
    ],
)
def test_a_file_that_is_no_kubeconfig_is_reported(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(ClientConfigError, match=f"{path}.*{message}"):
        load(path)


def test_a_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match="nope: No such file"):
        load(tmp_path / "nope")


def test_an_entry_of_the_wrong_type_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match=r"context 'x' of .*Expected `str"):
        load(write(tmp_path / "config", document({"token": 5})))


@pytest.mark.parametrize(
    ("user", "cluster", "key"),
    [
        ({"token": "t", "as": "someone"}, None, "as"),
        ({"auth-provider": {"name": "gcp"}}, None, "auth-provider"),
        ({"token": "t"}, {"server": "https://x", "tls-server-name": "y"}, "tls-server-name"),
        ({"token": "t"}, {"server": "https://x", "proxy-url": "http://p"}, "proxy-url"),
    ],
)
def test_what_is_not_supported_is_refused(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any] | None, key: str
) -> None:
    with pytest.raises(ClientConfigError, match=f"has {key}, which is not supported"):
        load(write(tmp_path / "config", document(user, cluster)))


def test_a_proxy_of_the_environment_is_not_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"server": "https://api.example:6443", "insecure-skip-tls-verify": True}
    path = write(tmp_path / "config", document({"token": "t"}, cluster))
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")

    with pytest.raises(ClientConfigError, match=r"a proxy for https://api\.example:6443"):
        load(path)

    monkeypatch.setenv("NO_PROXY", "api.example")
    assert load(path).server == "https://api.example:6443"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1.2.3", "[::1]"])
def test_loopback_needs_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    cluster = {"server": f"https://{host}:1", "insecure-skip-tls-verify": True}
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")

    endpoint = load(write(tmp_path / "config", document({"token": "t"}, cluster)))

    assert endpoint.server == f"https://{host}:1"


def test_the_variable_kubeconfig_names_files_that_are_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of entries with one name the first counts, and files keep their own folders."""
    first = document({"tokenFile": "t1"})
    first["users"] = []
    second = document({"tokenFile": "t2"}, {"server": "http://127.0.0.1:9"})
    second["current-context"] = "unused"
    paths = [
        write(tmp_path / "a" / "config", first),
        tmp_path / "absent",
        write(tmp_path / "b" / "config", second),
    ]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))

    endpoint = load_endpoint(ClientConfig())

    assert endpoint.server == "http://127.0.0.1:1"


async def test_files_of_merged_entries_are_found_beside_their_own_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = document({"tokenFile": "t"})
    second = {"users": first.pop("users")}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "t").write_text("of-b")
    paths = [write(tmp_path / "a" / "config", first), write(tmp_path / "b" / "config", second)]
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))

    assert await load_endpoint(ClientConfig()).credentials.authorization() == "Bearer of-b"


def test_the_default_file_is_the_last_resort(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match="no API server is configured"):
        load_endpoint(ClientConfig(), tmp_path / "no-pod")

    write(tmp_path / "home" / ".kube" / "config", document({"token": "t"}))
    assert load_endpoint(ClientConfig(), tmp_path / "no-pod").server == "http://127.0.0.1:1"


@pytest.fixture
def service_account(tmp_path: Path, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("sa-1")
    (folder / "namespace").write_text("pod-ns")
    (folder / "ca.crt").write_bytes((certificates / "cert.pem").read_bytes())
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    return folder


async def test_a_pod_uses_its_service_account_and_follows_its_rotation(
    service_account: Path,
) -> None:
    endpoint = load_endpoint(ClientConfig(), service_account)

    assert endpoint.server == "https://10.0.0.1:443"
    assert endpoint.namespace == "pod-ns"
    assert await endpoint.credentials.authorization() == "Bearer sa-1"
    (service_account / "token").write_text("sa-2")
    assert await endpoint.credentials.renewed("Bearer sa-1") == "Bearer sa-2"


def test_a_kubeconfig_goes_before_the_service_account(
    service_account: Path, tmp_path: Path
) -> None:
    path = write(tmp_path / "config", document({"token": "t"}))

    endpoint = load_endpoint(ClientConfig(kubeconfig=path), service_account)

    assert endpoint.server == "http://127.0.0.1:1"


def test_a_service_account_has_no_contexts(service_account: Path) -> None:
    with pytest.raises(ClientConfigError, match="context 'x' needs a kubeconfig"):
        load_endpoint(ClientConfig(context="x"), service_account)


def test_a_service_account_without_its_server_is_reported(
    service_account: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")

    with pytest.raises(ClientConfigError, match="KUBERNETES_SERVICE_HOST"):
        load_endpoint(ClientConfig(), service_account)


async def test_connect_tells_where_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path / "config", document({"token": "t"}))

    async with KubeClient.connect(ClientConfig(kubeconfig=path)) as client:
        assert (client.server, client.namespace) == ("http://127.0.0.1:1", "team")


async def test_connect_puts_faults_around_its_transport_on_request(tmp_path: Path) -> None:
    path = write(tmp_path / "config", document({"token": "t"}))
    config = ClientConfig(kubeconfig=path)

    def plan(_: Request) -> Answer:
        return Answer(418)

    async with KubeClient.connect(config, wrap=lambda t: FaultTransport(t, plan)) as client:
        with pytest.raises(ApiError) as caught:
            await client.list(PODS)

    assert caught.value.status == 418
