"""From a request to the verb that answers it.

One ASGI application serves every path below a group and version. The path decides the kind, the
method and the presence of a name decide the verb; what the API does not know gets the API's own
replies.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from kthena.local.apiserver import errors
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.options import Query
from kthena.local.apiserver.replies import error_reply, not_found_page
from kthena.local.apiserver.requests import ResourcePath, parse_resource_path
from kthena.local.apiserver.verbs.call import ResourceCall, method_error, require_subresource
from kthena.local.apiserver.verbs.deleting import delete, delete_collection
from kthena.local.apiserver.verbs.patching import check_patch_type, patch
from kthena.local.apiserver.verbs.podverbs import create_binding, get_log
from kthena.local.apiserver.verbs.reading import get, list_objects
from kthena.local.apiserver.verbs.scaling import get_scale, patch_scale, update_scale
from kthena.local.apiserver.verbs.watching import watch
from kthena.local.apiserver.verbs.writing import create, update
from kthena.machinery.gotext import quote
from kthena.telemetry.logging import get_logger

_LOG: Final = get_logger("local.apiserver")

Handler = Callable[[ResourceCall], Awaitable[ASGIApp]]

_COLLECTION: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_OBJECT: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCE: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}

_VERBS: Final[dict[str, Handler]] = {
    "list": list_objects,
    "watch": watch,
    "create": create,
    "deletecollection": delete_collection,
    "get": get,
    "update": update,
    "patch": patch,
    "delete": delete,
}
_SPECIAL_SUBRESOURCES: Final[dict[tuple[str, str], Handler]] = {
    ("scale", "get"): get_scale,
    ("scale", "update"): update_scale,
    ("scale", "patch"): patch_scale,
    ("binding", "create"): create_binding,
    ("log", "get"): get_log,
}


class ResourceApp:
    """Serves `/api/v1/...` and `/apis/GROUP/VERSION/...`."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        warnings: list[str] = []
        response: ASGIApp
        try:
            response = await self._answer(request, warnings)
        except errors.ApiError as exc:
            response = error_reply(exc, warnings)
        except RecursionError:
            response = error_reply(errors.bad_request("the object is nested too deeply"))
        except Exception:  # noqa: BLE001 - a connection task: what nobody foresaw is logged
            # A request that fails in a way nobody foresaw must not take the connection along.
            _LOG.exception("request failed", path=scope["path"])
            response = error_reply(errors.internal_error("see the log of the server"))
        await response(scope, receive, send)

    async def _answer(self, request: Request, warnings: list[str]) -> ASGIApp:
        raw_path = request.scope.get("raw_path") or request.scope["path"].encode()
        path = parse_resource_path(raw_path.decode("latin-1"))
        if path is None:
            return self._unserved(request)
        kind = self._core.catalog.find(path.group, path.version, path.plural)
        if kind is None:
            return self._unknown(path)
        if not _is_place_of(path, kind, request.method):
            if kind.dialect.generic_errors:
                raise errors.no_such_resource()
            return not_found_page()
        _check_names(path, request.method)
        query = Query(request.scope["query_string"].decode("latin-1"))
        call = ResourceCall(self._core, request, path, kind, query, warnings)
        if kind.deprecation:
            warnings.append(kind.deprecation)
        return await _find_handler(call)(call)

    def _unserved(self, request: Request) -> ASGIApp:
        """A path of discovery, in a method that is not for it, or of no group at all."""
        below = request.scope["path"].strip("/").partition("/")[2]
        group, _, version = below.rpartition("/")
        if not below or version in self._core.catalog.versions(group):
            raise errors.method_not_allowed()
        if not group:
            raise errors.no_such_resource()
        return not_found_page()

    def _unknown(self, path: ResourcePath) -> ASGIApp:
        """A resource that is not served: the API tells its own groups from foreign ones."""
        if self._core.catalog.is_builtin(path.group):
            raise errors.no_such_resource()
        return not_found_page()


def _check_names(path: ResourcePath, method: str) -> None:
    """Whether the path names what it must.

    Raises:
        ApiError: 400, it does not.
    """
    if path.names_no_namespace and (path.name or method == "DELETE"):
        raise errors.bad_request("Namespace parameter required.")
    if path.name in (".", ".."):
        problem = f"{quote(path.name)}: may not be '{path.name}'"
        raise errors.bad_request(f"Name parameter invalid: {problem}")


def _is_place_of(path: ResourcePath, kind: Kind, method: str) -> bool:
    """Whether a kind has anything at a path."""
    if path.rest or (path.subresource and not path.name):
        return False
    if path.names_no_namespace:
        return kind.resource.namespaced
    if not kind.resource.namespaced:
        return not path.namespace
    if path.namespace:
        return True
    # Over all namespaces there are only lists; other methods are refused, or the path is unknown.
    return not path.name and (kind.dialect.generic_errors or method == "GET")


def _find_handler(call: ResourceCall) -> Handler:
    """The verb of a request.

    Raises:
        ApiError: 400, 404 or 405, as the path is none of the kind or the method is not for it.
    """
    path, kind, method = call.path, call.kind, call.request.method
    if path.subresource:
        verb = _SUBRESOURCE.get(method, method.lower())
        subresource = require_subresource(call, verb)
        if subresource.strategy is not None:
            return _VERBS[verb]
        return _SPECIAL_SUBRESOURCES[path.subresource, verb]
    verb = (_OBJECT if path.name else _COLLECTION).get(method, "")
    if verb == "list" and call.query.flag("watch"):
        verb = "watch"
    elsewhere = kind.resource.namespaced and not path.namespace
    if not kind.dialect.generic_errors and path.name and method == "POST":
        # The name in the path of a custom resource is not looked at.
        verb = "create"
    if not kind.dialect.generic_errors and not path.name and method in ("PUT", "PATCH"):
        if method == "PATCH":
            check_patch_type(call)
        raise errors.bad_request("name must be provided")
    if verb not in kind.verbs or (elsewhere and verb not in ("list", "watch")):
        raise method_error(call, verb or method.lower())
    return _VERBS[verb]
