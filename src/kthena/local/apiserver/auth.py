"""Who may call the server: those with the token, from this machine, and no web page.

Every path but those for health needs the token: as a bearer token, or as the password of a basic
authorization, since kubectl sends no bearer token over plain HTTP but does send what stands in the
URL. A `Host` that is not this server's is refused, so that no foreign name that resolves to loopback
reaches it, and so is an `Origin`, since browsers have no business here. Refusals are Status objects,
as clients expect.
"""

import base64
import binascii
import hmac
from collections.abc import Iterable
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from kthena.local.apiserver import errors
from kthena.local.apiserver.replies import error_reply

OPEN_PATHS: Final = ("/healthz", "/livez", "/readyz")
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """ASGI middleware that lets a request through, or answers 401 or 403."""

    def __init__(self, app: ASGIApp, token: str, hosts: Iterable[str] = ()) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = {*_LOOPBACK_HOSTS, *hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope["path"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await error_reply(refusal)(scope, receive, send)

    def _refusal(self, path: str, headers: Headers) -> errors.ApiError | None:
        host = ", ".join(headers.getlist("host"))
        if _without_port(host) not in self._hosts:
            return _refused(f"Host {host!r} is not served here; use the address of the kubeconfig")
        origin = headers.get("origin")
        if origin is not None:
            return _refused(f"requests of web pages are refused (Origin {origin!r})")
        if path in OPEN_PATHS or self._has_token(headers.get("authorization", "")):
            return None
        return errors.unauthorized()

    def _has_token(self, authorization: str) -> bool:
        scheme, _, value = authorization.partition(" ")
        given = value.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() == "basic":
            given = _password(given)
        elif scheme.lower() != "bearer":
            return False
        return hmac.compare_digest(given, self._token)


def _password(credentials: bytes) -> bytes:
    """The password of a basic authorization; empty for what is none."""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except binascii.Error:
        return b""


def _refused(message: str) -> errors.ApiError:
    return errors.ApiError(403, "Forbidden", f"forbidden: {message}", {})


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdigit() else host.lower()
