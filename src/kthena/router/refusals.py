"""The errors that the router's steps end in: status, reason, and what the client is told."""

from collections.abc import Mapping

from kthena.machinery.objects import NamespacedName
from kthena.router.body.scan import MalformedBodyError
from kthena.router.endpoints import LiveBackend
from kthena.router.proxy.errors import (
    CLIENT_CLOSED_REQUEST,
    RouterError,
    UpstreamError,
    UpstreamTimeoutError,
)
from kthena.router.proxy.request import Request
from kthena.router.reasons import Reason
from kthena.router.routes.table import Match, NoMatch
from kthena.router.scheduler.pairs import missing_role

_RETRY_WITHOUT_ENDPOINT_S = 5


def path_not_found(path: str) -> RouterError:
    """Nothing answers at this path."""
    return RouterError(
        404, Reason.PATH_NOT_FOUND, f"there is nothing at {path}; models are served below /v1/"
    )


def check_content(request: Request) -> None:
    """Refuse bodies that are not plain JSON by their own account.

    Raises:
        RouterError: 415, with the header at fault.
    """
    coding = request.known.get(b"content-encoding")
    if coding is not None and coding.lower() != b"identity":
        raise RouterError(
            415,
            Reason.REQUEST_PARSING,
            "a compressed request body cannot be routed; send it without Content-Encoding",
        )
    content_type = request.known.get(b"content-type", b"")
    if content_type.lower().startswith(b"multipart/"):
        raise RouterError(
            415,
            Reason.REQUEST_PARSING,
            "multipart bodies are not routed; send JSON with a top-level `model`",
        )


def malformed_body(message: str, *, param: str | None = None) -> RouterError:
    """The body does not say which model is meant."""
    return RouterError(400, Reason.REQUEST_PARSING, message, param=param)


def unreadable_body(error: MalformedBodyError) -> RouterError:
    """The body is no JSON object that can be routed."""
    return malformed_body(f"the request body cannot be read: {error}")


def model_not_found(name: str, message: str | None = None) -> RouterError:
    """Nobody serves the model, as OpenAI words it."""
    return RouterError(
        404,
        Reason.ROUTE_NOT_FOUND,
        message or f"the model `{name}` does not exist",
        param="model",
        code="model_not_found",
    )


def no_route(model: str, found: NoMatch) -> RouterError:
    """No rule takes the request."""
    if found.reason is Reason.ROUTE_NOT_FOUND:
        return model_not_found(model, found.message)
    return RouterError(404, found.reason, found.message, param="model")


def no_endpoint(match: Match, backends: Mapping[NamespacedName, LiveBackend]) -> RouterError:
    """No target of the rule has anything to ask; the message says why for each."""
    reason = Reason.POD_DISCOVERY
    causes = []
    for target in match.rule.targets:
        if not target.weight:
            continue
        backend = backends.get(target.server)
        if backend is None:
            cause = "does not exist"
        elif backend.server.refusal is not None:
            cause = f"is refused: {backend.server.refusal}"
        elif backend.server.disaggregated:
            reason = Reason.PD_ROLE_MISSING
            cause = f"cannot answer: {missing_role(backend.endpoints)}"
        else:
            cause = "has no ready pod"
        causes.append(f"ModelServer {target.server} {cause}")
    return RouterError(503, reason, "; ".join(causes), retry_after_s=_RETRY_WITHOUT_ENDPOINT_S)


def upstream_failed(pod: NamespacedName, error: UpstreamError) -> RouterError:
    """The last attempt brought no reply."""
    if isinstance(error, UpstreamTimeoutError):
        return RouterError(504, Reason.UPSTREAM_TIMEOUT, f"pod {pod}: {error}")
    return RouterError(502, Reason.PROXY, f"pod {pod}: {error}")


def internal_error() -> RouterError:
    """The router has a fault of its own; its log has the traceback."""
    return RouterError(500, Reason.INTERNAL, "the router failed; its log says more")


def client_left(*, draining: bool) -> RouterError:
    """Nobody is there to get the reply; for logs and metrics only."""
    if draining:
        return RouterError(503, Reason.DRAINING, "the router ended before the reply did")
    return RouterError(
        CLIENT_CLOSED_REQUEST, Reason.CLIENT_CLOSED, "the client left before the reply was complete"
    )
