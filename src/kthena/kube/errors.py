# ruff: noqa: N818 - the names are the API's reasons
"""Errors of the Kubernetes API, as the callers of `kthena.kube.client` see them.

The tree follows the `Status` object that the API server answers with. Invariant: no library's
exception leaves the client, and nothing of a reply that is not `kind: Status` is kept, since such a
body may hold secrets; texts are cut to 256 characters, so that a message can be logged, apart from
the two that are named `full_`.
"""

from typing import Any

MAX_TEXT = 256


class ClientConfigError(Exception):
    """The client cannot be set up: a kubeconfig, a context or a credential is missing or wrong."""


class ApiError(Exception):
    """A call to the API did not succeed.

    `status` is the HTTP status (0 when there was no reply), `reason` the machine-readable reason of
    the `Status`, `details` its details (kind, name, causes). `retry_after_s` is what the server
    asks to wait; nobody has waited yet. `request` says which call it was, for instance
    `GET /api/v1/pods`. `full_message` is the server's whole text, which may quote the object that was
    sent: for its sender, not for a log.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        retry_after_s: float | None = None,
        *,
        request: str = "",
    ) -> None:
        self.status = status
        self.reason = reason
        self.message = _cut(message)
        self.details = _cut_details(details or {})
        self.full_message = message
        self.full_causes: list[dict[str, Any]] = (details or {}).get("causes") or []
        self.retry_after_s = retry_after_s
        self.request = request
        super().__init__(self.message)

    def __str__(self) -> str:
        """The call, the status and the server's text."""
        code = f"{self.status} {self.reason}".strip() if self.status else self.reason
        return f"{self.request}: {code}: {self.message}" if self.request else self.message

    @property
    def causes(self) -> list[dict[str, str]]:
        """The causes of the details, each with `reason`, `message` and `field` where given."""
        causes: list[dict[str, str]] = self.details.get("causes") or []
        return causes


class ConnectionFailed(ApiError):
    """No (complete) reply: connect, TLS, time limit, or cut. A write may have happened or not."""

    def __init__(self, message: str, *, request: str = "") -> None:
        super().__init__(0, "ConnectionFailed", message, request=request)


class BadRequest(ApiError):
    """400: the request makes no sense to the server."""


class Unauthorized(ApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(ApiError):
    """403: the user lacks the right, or an admission plugin or quota refused."""


class NotFound(ApiError):
    """404: no such object, or no such resource (its CRD is not installed)."""


class Conflict(ApiError):
    """409: a precondition failed, mostly because the object has changed since it was read."""


class AlreadyExists(ApiError):
    """409: an object with this name exists."""


class Gone(ApiError):
    """410: the resource version or continue token has expired; list again."""


class Invalid(ApiError):
    """422: the object fails validation; `causes` has one entry for each field."""


class TooManyRequests(ApiError):
    """429: the server is shedding load, or an eviction is not allowed yet."""


class ServiceUnavailable(ApiError):
    """503: the server cannot answer at this time."""


class ServerTimeout(ApiError):
    """504, or 500 with the reason ServerTimeout: the outcome of a write is unknown."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
    503: ServiceUnavailable,
    504: ServerTimeout,
}
_BY_REASON: dict[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "ServerTimeout": ServerTimeout,
}


def error_from_reply(
    status: int, body: Any, *, request: str, retry_after_s: float | None = None
) -> ApiError:
    """The error for a reply with an HTTP status of 300 or more.

    `body` is the decoded reply, or anything else (None, text) where it was no JSON.
    """
    if isinstance(body, dict) and body.get("kind") == "Status":
        return error_from_status(body, request=request, retry_after_s=retry_after_s, code=status)
    message = f"the server replied {status} without a Status object"
    if 300 <= status < 400:
        message = f"the server replied {status}; redirects are not followed"
    return _BY_STATUS.get(status, ApiError)(
        status, "", message, retry_after_s=retry_after_s, request=request
    )


def error_from_status(
    body: dict[str, Any], *, request: str, retry_after_s: float | None = None, code: int = 0
) -> ApiError:
    """The error that a `Status` object stands for, from a reply or from a watch's ERROR event."""
    status = code or int(body.get("code") or 500)
    reason = str(body.get("reason") or "")
    details = body.get("details") or {}
    if retry_after_s is None and details.get("retryAfterSeconds"):
        retry_after_s = float(details["retryAfterSeconds"])
    message = str(body.get("message") or f"the server replied {status} without a message")
    kind = _BY_REASON.get(reason) or _BY_STATUS.get(status, ApiError)
    return kind(status, reason, message, details, retry_after_s, request=request)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _cut_details(details: dict[str, Any]) -> dict[str, Any]:
    if not details.get("causes"):
        return details
    causes = [
        {key: _cut(text) if isinstance(text, str) else text for key, text in cause.items()}
        for cause in details["causes"]
    ]
    return {**details, "causes": causes}
