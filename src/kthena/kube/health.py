"""`/healthz`, `/readyz` and `/metrics` of a program, on a port of their own.

`/healthz` says that the process answers; it knows of no component, since a restart cures none of
their troubles. `/readyz` is 200 when every component is ready, else 503; both list all of them with
what they say of themselves.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn import Config, Server

from kthena.kube.readiness import ComponentState
from kthena.telemetry.metrics import CONTENT_TYPE, Metrics

if TYPE_CHECKING:
    from starlette.requests import Request

Readiness = Callable[[], Sequence[ComponentState]]


def build_health_app(readiness: Readiness, metrics: Metrics) -> Starlette:
    """The ASGI application."""

    async def healthz(_: "Request") -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: "Request") -> Response:
        states = readiness()
        ready = all(state.ready for state in states)
        body = {
            "ready": ready,
            "components": [
                {"name": state.name, "ready": state.ready, "detail": state.detail}
                for state in states
            ],
        }
        return JSONResponse(body, status_code=200 if ready else 503)

    async def render_metrics(_: "Request") -> Response:
        return Response(metrics.render(), media_type=CONTENT_TYPE)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", render_metrics),
        ]
    )


class HealthServer:
    """Serves an application on one address; `port` is the real one when 0 was asked for.

    Binding happens in the constructor, so that a port in use is an error before anything starts.

    Raises:
        OSError: the address cannot be bound.
    """

    def __init__(self, app: Starlette, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.create_server((host, port), family=family)
        self.port: int = self._socket.getsockname()[1]
        config = Config(app, lifespan="off", log_config=None, access_log=False, ws="none")
        self._server = _Server(config)

    async def run(self) -> None:
        """Serve until cancelled."""
        serving = asyncio.ensure_future(self._server.serve([self._socket]))
        try:
            await asyncio.shield(serving)
        finally:
            self._server.should_exit = self._server.force_exit = True
            await serving


class _Server(Server):
    """uvicorn without its signal handlers: signals belong to the program."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
