"""Replies that the router gives itself: errors, health, the model list, metrics."""

from collections.abc import Callable
from datetime import datetime
from email.utils import format_datetime
from typing import Final

import msgspec

from kthena.router.proxy.errors import RouterError, render_error
from kthena.router.proxy.reply import Reply
from kthena.router.proxy.request import Request
from kthena.router.readiness import Readiness
from kthena.router.reasons import REASON_HEADER, Reason
from kthena.router.refusals import model_not_found
from kthena.router.routes.table import RouteTable
from kthena.telemetry.metrics import CONTENT_TYPE

_JSON: Final = b"application/json; charset=utf-8"
_HEALTHY: Final = b'{"message":"ok"}'
_READY: Final = b'{"message":"router is ready"}'
_READABLE: Final = frozenset({"GET", "HEAD"})
MODELS_PATH: Final = "/v1/models"
_MODEL_PREFIX: Final = f"{MODELS_PATH}/"


def fields_of(content_type: bytes, now: datetime, request_id: str = "") -> bytes:
    """The header lines of a reply of the router, all but the length."""
    lines = b"content-type: %b\r\ndate: %b\r\n" % (
        content_type,
        format_datetime(now, usegmt=True).encode(),
    )
    if request_id:
        lines += b"x-request-id: %b\r\n" % request_id.encode()
    return lines


def send_error(reply: Reply, error: RouterError, now: datetime, request_id: str = "") -> None:
    """Send an error in OpenAI's shape; a reply that has begun must be cut instead."""
    fields = fields_of(_JSON, now, request_id)
    fields += b"%b: %b\r\n" % (REASON_HEADER, error.reason.word.encode())
    if error.retry_after_s is not None:
        fields += b"retry-after: %d\r\n" % error.retry_after_s
    if error.status == 405:
        fields += b"allow: GET, HEAD\r\n"
    reply.send(error.status, fields, render_error(error))


def stream_error(error: RouterError) -> bytes:
    """One SSE event that ends a broken stream, on lines of its own wherever the stream broke."""
    return b"\n\ndata: %b\n\n" % render_error(error)


class Pages:
    """What the router answers by itself."""

    def __init__(
        self,
        readiness: Readiness,
        render_metrics: Callable[[], bytes],
        now: Callable[[], datetime],
    ) -> None:
        self._readiness = readiness
        self._render_metrics = render_metrics
        self._now = now

    def health(self, request: Request, reply: Reply, *, metrics: bool) -> bool:
        """Answer `/healthz`, `/readyz` and, if wanted, `/metrics`; False for any other path."""
        if request.path == "/healthz":
            self._send(request, reply, 200, _HEALTHY)
        elif request.path == "/readyz":
            self._send(request, reply, *self._ready())
        elif request.path == "/metrics" and metrics:
            self._send(request, reply, 200, self._render_metrics(), CONTENT_TYPE.encode())
        else:
            return False
        return True

    def models(self, request: Request, reply: Reply, table: RouteTable, request_id: str) -> None:
        """Answer `/v1/models` and `/v1/models/{name}`.

        Raises:
            RouterError: the method is not for reading, or no such model is served.
        """
        _check_readable(request)
        page = table.models_page
        if request.path != MODELS_PATH:
            name = request.path.removeprefix(_MODEL_PREFIX)
            found = table.model_page(name)
            if found is None:
                raise model_not_found(name)
            page = found
        reply.send(200, fields_of(_JSON, self._now(), request_id), page)

    def _ready(self) -> tuple[int, bytes]:
        details = self._readiness.details()
        if self._readiness.ready and not details:
            return 200, _READY
        ready = self._readiness.ready
        body: dict[str, object] = {
            "message": "router is ready" if ready else "router is not ready",
        }
        if self._readiness.draining:
            body["draining"] = True
        if details:
            body["details"] = details
        return (200 if ready else 503), msgspec.json.encode(body)

    def _send(
        self, request: Request, reply: Reply, status: int, body: bytes, content_type: bytes = _JSON
    ) -> None:
        now = self._now()
        try:
            _check_readable(request)
        except RouterError as error:
            send_error(reply, error, now)
        else:
            reply.send(status, fields_of(content_type, now), body)


def is_models_path(path: str) -> bool:
    """Whether the path is that of the model list or of one model."""
    return path == MODELS_PATH or path.startswith(_MODEL_PREFIX)


def _check_readable(request: Request) -> None:
    if request.method not in _READABLE:
        raise RouterError(
            405,
            Reason.REQUEST_PARSING,
            f"{request.method} is not for {request.path}; use GET",
        )
