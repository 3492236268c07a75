"""The routes of the API server."""

import hashlib
import platform
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from kthena.api.openapi import kubernetes_release
from kthena.local.apiserver import discovery
from kthena.local.apiserver.auth import Guard
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.errors import ApiError, method_not_allowed
from kthena.local.apiserver.handlers import ResourceApp
from kthena.local.apiserver.health import PAGES, HealthPages
from kthena.local.apiserver.openapi import (
    V2_ACCEPTED,
    V2_PROTOBUF,
    OpenApi,
    v2_document,
    v2_protobuf_document,
)
from kthena.local.apiserver.replies import error_reply, json_reply, not_found_page, object_reply
from kthena.local.apiserver.storage.settling import Settling

_ROOT_PATHS: Final = (
    "/api",
    "/apis",
    "/healthz",
    "/livez",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
    "/version",
)


def create_app(core: Core) -> Starlette:
    """The ASGI application of a server."""
    pages = _Pages(core)
    health = HealthPages({"storage": core.stores_well})
    resources = ResourceApp(core)
    routes = [
        # Nearly all requests are for resources: these come first.
        Route("/api/v1/", pages.core_resources),
        Route("/api/v1/{path:path}", resources),
        Route("/apis/{group}/{version}/", pages.group_resources),
        Route("/apis/{group}/{version}/{path:path}", resources),
        *(Route(f"/{page}", health.page) for page in PAGES),
        *(Route(f"/{page}/{{check}}", health.check) for page in PAGES),
        *(Route(path, pages.version) for path in ("/version", "/version/")),
        Route("/", pages.root),
        *(Route(path, pages.core_group) for path in ("/api", "/api/")),
        *(Route(path, pages.groups) for path in ("/apis", "/apis/")),
        Route("/api/v1", pages.core_resources),
        *(Route(path, pages.group) for path in ("/apis/{group}", "/apis/{group}/")),
        Route("/apis/{group}/{version}", pages.group_resources),
        Route("/openapi/v2", pages.openapi_v2),
        Route("/openapi/v3", pages.openapi_index),
        Route("/openapi/v3/api/{version}", pages.openapi_document),
        Route("/openapi/v3/apis/{group}/{version}", pages.openapi_document),
        Route("/api/{path:path}", resources),
    ]
    config = core.config
    app = Starlette(
        routes=routes,
        middleware=[
            Middleware(Guard, token=config.token, hosts=config.hosts),
            Middleware(Settling, journal=core.journal, spared=PAGES),
        ],
        exception_handlers={ApiError: _on_api_error, HTTPException: _on_http_error},
    )
    app.router.redirect_slashes = False
    return app


def _go_architecture() -> str:
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _on_api_error(request: Request, exc: Exception) -> Response:
    del request
    return error_reply(exc) if isinstance(exc, ApiError) else not_found_page()


def _on_http_error(request: Request, exc: Exception) -> Response:
    """A path without a route, or a method that a page does not know."""
    del request
    if isinstance(exc, HTTPException) and exc.status_code == 405:
        return error_reply(method_not_allowed())
    return not_found_page()


class _Pages:
    """Everything but the resources."""

    def __init__(self, core: Core) -> None:
        self._catalog = core.catalog
        self._openapi = OpenApi(core.catalog)

    async def version(self, request: Request) -> Response:
        """The release of Kubernetes whose API this is."""
        del request
        release = kubernetes_release()
        major, minor, *_ = release.split(".")
        body: dict[str, Any] = {
            "major": major,
            "minor": minor,
            "gitVersion": f"v{release}+kthena",
            "gitCommit": "",
            "gitTreeState": "clean",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": "",
            "platform": f"{platform.system().lower()}/{_go_architecture()}",
        }
        return json_reply(msgspec.json.format(msgspec.json.encode(body), indent=2))

    async def root(self, request: Request) -> Response:
        """Where to go from here."""
        del request
        versions = [
            f"/apis/{group}/{version}"
            for group in self._catalog.groups()
            for version in self._catalog.versions(group)
        ]
        groups = [f"/apis/{group}" for group in self._catalog.groups()]
        return object_reply({"paths": sorted([*_ROOT_PATHS, "/api/v1", *groups, *versions])})

    async def core_group(self, request: Request) -> Response:
        """`/api`."""
        if discovery.wants_aggregated(request.headers.get("accept", "")):
            return self._aggregated(request, [""])
        return object_reply(discovery.api_versions(request.headers.get("host", "")))

    async def groups(self, request: Request) -> Response:
        """`/apis`."""
        if discovery.wants_aggregated(request.headers.get("accept", "")):
            return self._aggregated(request, self._catalog.groups())
        return object_reply(discovery.group_list(self._catalog))

    def _aggregated(self, request: Request, groups: list[str]) -> Response:
        known = request.headers.get("if-none-match", "")
        return discovery.aggregated_reply(self._catalog, groups, known)

    async def group(self, request: Request) -> Response:
        """`/apis/GROUP`."""
        return discovery.group_reply(self._catalog, request.path_params["group"])

    async def core_resources(self, request: Request) -> Response:
        """`/api/v1`."""
        del request
        return discovery.resource_list_reply(self._catalog, "", "v1")

    async def group_resources(self, request: Request) -> Response:
        """`/apis/GROUP/VERSION`."""
        params = request.path_params
        return discovery.resource_list_reply(self._catalog, params["group"], params["version"])

    async def openapi_v2(self, request: Request) -> Response:
        """`/openapi/v2`."""
        if V2_ACCEPTED in request.headers.get("accept", ""):
            return Response(v2_protobuf_document(), media_type=V2_PROTOBUF)
        return json_reply(v2_document())

    async def openapi_index(self, request: Request) -> Response:
        """`/openapi/v3`."""
        return _cacheable(request, self._openapi.index())

    async def openapi_document(self, request: Request) -> Response:
        """`/openapi/v3/apis/GROUP/VERSION`."""
        params = request.path_params
        document = self._openapi.document(params.get("group", ""), params["version"])
        return not_found_page() if document is None else _cacheable(request, document)


def _cacheable(request: Request, body: bytes) -> Response:
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers={"ETag": etag})
    response = json_reply(body)
    response.headers["ETag"] = etag
    return response
