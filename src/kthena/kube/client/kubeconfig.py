"""From a kubeconfig or a service account to an `Endpoint`: the seam to lightkube and httpx2.

lightkube knows the user entries (tokens, token files, exec plugins, client certificates) and builds
the TLS context; its httpx2 credentials are asked for the `Authorization` header and never send
anything. Invariant: what an entry says and this client cannot do is refused, never ignored.
"""

import asyncio
import base64
import ipaddress
import json
import os
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import msgspec
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.kubeconfig import SERVICE_ACCOUNT, KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from kthena.kube.client.http import Anonymous, Basic, Credentials, Endpoint
from kthena.kube.client.options import ClientConfig
from kthena.kube.errors import ClientConfigError
from kthena.machinery.yaml import YamlError, load_documents

_UNSUPPORTED = {
    "cluster": ("proxy-url", "tls-server-name"),
    "user": ("auth-provider", "as", "as-uid", "as-groups", "as-user-extra"),
}
_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_EXEC_GROUP = "client.authentication.k8s.io/"


def load_endpoint(config: ClientConfig, service_account: Path = Path(SERVICE_ACCOUNT)) -> Endpoint:
    """The API server that `config` means, looked for as `ClientConfig` says.

    Raises:
        ClientConfigError: nothing is configured, or what is configured is wrong or not supported.
    """
    files = _kubeconfig_files(config, service_account)
    if files:
        selected = _select(_merge(files), config.context)
    else:
        selected = _in_cluster(config, service_account)
    server, from_url = _split_credentials(selected.cluster.server.rstrip("/"))
    _refuse_proxy(server)
    user = selected.user or User()
    try:
        auth = user_auth(user)
        context = None
        if server.startswith("https:"):
            context = verify_cluster(selected.cluster, user, Path)
    except (ConfigError, OSError, ValueError) as exc:
        raise ClientConfigError(
            f"context {selected.context_name!r}: credentials or certificates are unusable: {exc}"
        ) from exc
    credentials = from_url if auth is None else _LightkubeCredentials(auth, server)
    return Endpoint(server, credentials, context, selected.namespace)


def _split_credentials(server: str) -> tuple[str, Credentials]:
    """The server's URL without a user and password, which no message may show; and those.

    As with client-go they are sent where the user entry has no credentials of its own.
    """
    url = urlsplit(server)
    userinfo, _, host = url.netloc.rpartition("@")
    if not userinfo:
        return server, Anonymous()
    name, _, password = userinfo.partition(":")
    return url._replace(netloc=host).geturl(), Basic(unquote(name), unquote(password))


def _kubeconfig_files(config: ClientConfig, service_account: Path) -> list[Path]:
    """The files to read; none for the service account of a pod."""
    if config.kubeconfig is not None:
        return [config.kubeconfig]
    from_environment = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(":") if part]
    if from_environment:
        # As kubectl: files that do not exist are passed over, unless none is there.
        return [path for path in from_environment if path.exists()] or from_environment[:1]
    if (service_account / "token").exists():
        return []
    default = Path("~/.kube/config").expanduser()
    if default.exists():
        return [default]
    raise ClientConfigError(
        f"no API server is configured: no kubeconfig is given, KUBECONFIG is not set, {default} "
        "does not exist, and this is no pod with a service account"
    )


def _in_cluster(config: ClientConfig, service_account: Path) -> SingleConfig:
    if config.context is not None:
        raise ClientConfigError(
            f"context {config.context!r} needs a kubeconfig; a pod's service account has none"
        )
    try:
        selected = KubeConfig.from_service_account(service_account).get()
    except (ConfigError, OSError, KeyError) as exc:
        raise ClientConfigError(f"the service account in {service_account}: {exc}") from exc
    assert selected is not None  # noqa: S101 - from_service_account sets the current context
    return selected


@dataclass(slots=True)
class _Entries:
    """The named entries of all files, the first of a name counting, and which file each is from."""

    sections: dict[str, dict[str, tuple[dict[str, Any], Path]]]
    current_context: str
    files: list[Path]

    def get(self, kind: str, name: str, wanted_by: str) -> tuple[dict[str, Any], Path]:
        entries = self.sections[kind]
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none"
            where = ", ".join(map(str, self.files))
            raise ClientConfigError(f"{wanted_by}: no {kind} {name!r} in {where} (known: {known})")
        return entries[name]


def _merge(files: list[Path]) -> _Entries:
    merged = _Entries({"cluster": {}, "context": {}, "user": {}}, "", files)
    for path in files:
        document = _read(path)
        merged.current_context = merged.current_context or document.get("current-context") or ""
        for kind, entries in merged.sections.items():
            for item in document.get(f"{kind}s") or ():
                if not isinstance(item, dict) or not isinstance(item.get(kind), dict | None):
                    raise ClientConfigError(f"{path}: {kind}s: every item needs name and {kind}")
                entries.setdefault(str(item.get("name")), (item.get(kind) or {}, path))
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        documents = load_documents(path.read_text(), str(path))
    except OSError as exc:
        raise ClientConfigError(f"kubeconfig {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise ClientConfigError(f"kubeconfig {path} is no YAML: {exc}") from exc
    except YamlError as exc:
        raise ClientConfigError(f"kubeconfig {exc}") from exc
    if not documents:
        raise ClientConfigError(f"kubeconfig {path} has no clusters, contexts and users")
    return documents[0].object


def _select(entries: _Entries, context: str | None) -> SingleConfig:
    name = context or entries.current_context
    if not name:
        raise ClientConfigError(
            f"{entries.files[0]} has no current-context; give one with --context "
            f"(known: {', '.join(sorted(entries.sections['context'])) or 'none'})"
        )
    chosen, path = entries.get("context", name, "kubeconfig")
    wanted_by = f"context {name!r} of {path}"
    document: dict[str, Any] = {
        "current-context": name,
        "contexts": [{"name": name, "context": chosen}],
    }
    for kind in ("cluster", "user"):
        if kind == "cluster" or chosen.get(kind):
            entry, origin = entries.get(kind, str(chosen.get(kind)), wanted_by)
            entry = _checked(kind, entry, origin)
            document[f"{kind}s"] = [{"name": chosen.get(kind), kind: entry}]
    if "users" in document:
        _prepare_exec(document["users"][0]["user"], document["clusters"][0]["cluster"])
    try:
        selected = KubeConfig.from_dict(document).get()
    except msgspec.ValidationError as exc:
        raise ClientConfigError(f"{wanted_by}: {exc}") from exc
    assert selected is not None  # noqa: S101 - the current context is set above
    return selected


def _checked(kind: str, entry: dict[str, Any], origin: Path) -> dict[str, Any]:
    """The entry with absolute file names; what this client cannot honour is refused."""
    for key in _UNSUPPORTED[kind]:
        if entry.get(key):
            raise ClientConfigError(f"{origin}: {kind} has {key}, which is not supported")
    entry = dict(entry)
    for key in _FILES[kind]:
        if entry.get(key):
            entry[key] = str(origin.parent / str(entry[key]))
    plugin = entry.get("exec")
    if isinstance(plugin, dict) and "/" in str(plugin.get("command", "")):
        entry["exec"] = {**plugin, "command": str(origin.parent / str(plugin["command"]))}
    return entry


def _prepare_exec(user: dict[str, Any], cluster: dict[str, Any]) -> None:
    """Give the exec plugin its `KUBERNETES_EXEC_INFO`, and lightkube a version that it takes.

    v1 and v1beta1 exchange the same JSON; lightkube only knows the older name.
    """
    plugin = user.get("exec")
    if not isinstance(plugin, dict):
        return
    version = str(plugin.get("apiVersion", ""))
    if version not in (f"{_EXEC_GROUP}v1", f"{_EXEC_GROUP}v1beta1"):
        raise ClientConfigError(
            f"exec plugin {plugin.get('command')!r}: apiVersion {version!r} is not supported; "
            f"use {_EXEC_GROUP}v1"
        )
    spec: dict[str, Any] = {"interactive": False}
    if plugin.get("provideClusterInfo"):
        spec["cluster"] = _cluster_info(cluster)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    variables = [*(plugin.get("env") or ())]
    variables.append({"name": "KUBERNETES_EXEC_INFO", "value": json.dumps(info)})
    user["exec"] = {**plugin, "apiVersion": f"{_EXEC_GROUP}v1beta1", "env": variables}


def _cluster_info(cluster: dict[str, Any]) -> dict[str, Any]:
    keys = ("server", "certificate-authority-data", "insecure-skip-tls-verify")
    info = {key: cluster[key] for key in keys if cluster.get(key)}
    authority = cluster.get("certificate-authority")
    if authority:
        try:
            data = Path(authority).read_bytes()
        except OSError as exc:
            raise ClientConfigError(f"certificate-authority {authority}: {exc.strerror}") from exc
        info["certificate-authority-data"] = base64.b64encode(data).decode()
    return info


def _refuse_proxy(server: str) -> None:
    """Loopback addresses take no proxy, as in Go; any other would go around it unseen."""
    url = urlsplit(server)
    host = url.hostname or ""
    if host == "localhost" or _is_loopback(host):
        return
    proxy = urllib.request.getproxies_environment().get(url.scheme)
    if proxy and not urllib.request.proxy_bypass(host):
        raise ClientConfigError(
            f"the environment names a proxy for {server}, and proxies are not supported; "
            f"reach the server directly and add {host} to NO_PROXY"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _LightkubeCredentials:
    """Asks an httpx2 credential for its header, without sending anything.

    Mutable state: the header in use. One renewal runs at a time, and whoever waited for it gets its
    result.
    """

    def __init__(self, auth: httpx2.Auth, server: str) -> None:
        self._auth = auth
        self._server = server
        self._header: str | None = None
        self._lock = asyncio.Lock()

    async def authorization(self) -> str | None:
        """The header in use, made on first call."""
        return self._header or await self.renewed(None)

    async def renewed(self, rejected: str | None) -> str | None:
        """The token file read again, or the plugin run again; a static token stays."""
        async with self._lock:
            if self._header == rejected:
                try:
                    self._header = await self._ask(rejected)
                except (ConfigError, OSError, ValueError, KeyError, TypeError) as exc:
                    raise ClientConfigError(
                        f"no credentials for {self._server}: {type(exc).__name__}: {exc}"
                    ) from exc
            return self._header

    async def _ask(self, rejected: str | None) -> str | None:
        request = httpx2.Request("GET", self._server)
        flow = self._auth.async_auth_flow(request)
        try:
            request = await anext(flow)
            header = request.headers.get("Authorization")
            if header == rejected:
                request = await flow.asend(httpx2.Response(401, request=request))
                header = request.headers.get("Authorization")
        except StopAsyncIteration:
            header = rejected
        finally:
            await flow.aclose()
        return header
