"""What can go wrong between client, router and engine, and how a client is told.

Two families. A `RouterError` is a finished verdict: a status and a body in OpenAI's shape. An
`UpstreamError` says what happened on the way to an engine; whoever forwards decides whether another
endpoint is tried, and turns the last one into a `RouterError`.
"""

from typing import ClassVar, Final

import msgspec

from kthena.router.reasons import Reason

CLIENT_CLOSED_REQUEST: Final = 499
"""The status in logs and metrics of a request whose client left (nginx's number; never sent)."""


class RouterError(Exception):
    """A reply that the router itself gives instead of an engine's.

    `message` is for people, `code` for programs, `param` names the field of the body at fault.
    `retry_after_s` becomes the header `Retry-After`.
    """

    def __init__(
        self,
        status: int,
        reason: Reason,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.param = param
        self.code = code or reason.word
        self.retry_after_s = retry_after_s


def render_error(error: RouterError) -> bytes:
    """The error body that OpenAI's clients parse."""
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": error.reason.error_type,
                "param": error.param,
                "code": error.code,
            }
        }
    )


class UpstreamError(Exception):
    """An exchange with an engine that brought no usable reply."""

    word: ClassVar[str] = "upstream"
    """What kind of failure it is, for metrics."""


class ConnectError(UpstreamError):
    """No connection could be opened: refused, unreachable, or not answered in time."""

    word = "connect"


class ConnectionLostError(UpstreamError):
    """The connection ended before the reply did."""

    word = "connection_lost"


class UpstreamTimeoutError(UpstreamError):
    """The reply did not begin within the time that the traffic policy allows."""

    word = "timeout"


class UpstreamProtocolError(UpstreamError):
    """The engine sent something that is no HTTP/1.1 reply to the request."""

    word = "protocol"
