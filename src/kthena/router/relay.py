"""How a request is answered: with the reply of an engine on its way to the client, or an error."""

from datetime import datetime
from typing import Final

from kthena.router.call import Call
from kthena.router.proxy.errors import RouterError, UpstreamError
from kthena.router.proxy.headers import connection_tokens, join_lines
from kthena.router.proxy.upstream import Exchange
from kthena.router.reasons import REASON_HEADER, Reason
from kthena.router.replies import send_error, stream_error

_EVENT_STREAM: Final = b"text/event-stream"
_NO_OPTIONS: Final = frozenset[bytes]()


def begin_relay(call: Call, exchange: Exchange) -> None:
    """Pass the reply on, byte by byte, as it arrives. From here on nothing is tried again."""
    status, reply = exchange.status, call.reply
    connection = exchange.reply.header(b"connection")
    options = _NO_OPTIONS if connection is None else connection_tokens(connection)
    fields = b"%bx-request-id: %b\r\n" % (
        join_lines(exchange.reply.lines, options),
        call.request_id.encode(),
    )
    call.upstream_status = status
    if status >= 400:
        call.failure = RouterError(
            status, Reason.UPSTREAM_RESPONSE, f"the engine answered {status}"
        )
        fields += b"%b: %b\r\n" % (REASON_HEADER, Reason.UPSTREAM_RESPONSE.word.encode())
    reply.start(status, fields, length=exchange.reply.content_length)
    reply.attach(exchange)
    exchange.relay(reply)


def refuse(call: Call, error: RouterError, now: datetime) -> None:
    """Answer with an error of the router; a reply that has begun is cut."""
    call.failure = error
    if call.reply.started:
        call.reply.cut()
    else:
        send_error(call.reply, error, now, call.request_id)


def break_off(call: Call, exchange: Exchange, error: UpstreamError) -> None:
    """End a reply that the engine did not finish, so that nobody takes it for a complete one.

    A stream of events gets an error event; then the connection to the client is cut.
    """
    call.failure = RouterError(
        502, Reason.UPSTREAM_ABORTED, f"the reply of the engine broke off: {error}"
    )
    if exchange.reply.content_length is None and _is_event_stream(exchange):
        call.reply.write(stream_error(call.failure))
    call.reply.cut()


def _is_event_stream(exchange: Exchange) -> bool:
    content_type = exchange.reply.header(b"content-type") or b""
    return content_type.lower().startswith(_EVENT_STREAM)
