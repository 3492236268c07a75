"""The lines of the access log: Kthena's text and JSON forms.

Neither holds anything of a body but the model's name. Values that a client may have chosen are
quoted in the text form, so that nobody forges fields or lines.
"""

import json
import re
from datetime import datetime, timedelta
from typing import Final

import msgspec

from kthena.router.call import Call
from kthena.router.metrics import UNRESOLVED
from kthena.router.reasons import Reason

_PLAIN = re.compile(r'[^\s"\x00-\x1f\x7f]*')
_ORIGIN_UPSTREAM: Final = frozenset({Reason.UPSTREAM_RESPONSE, Reason.UPSTREAM_ABORTED})


class EntryError(msgspec.Struct, frozen=True):
    """Why a request failed."""

    type: str
    message: str


class Entry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line in JSON. The fields and their order are Kthena's; `prefill_pod` is ours."""

    timestamp: str
    method: str
    path: str
    protocol: str
    status_code: int
    error: EntryError | None = None
    model_name: str
    model_route: str = ""
    model_server: str = ""
    selected_pod: str = ""
    prefill_pod: str = ""
    request_id: str = ""
    backend_type: str = ""
    backend_name: str = ""
    upstream_model: str = ""
    upstream_status_code: int = 0
    upstream_attempts: int = 0
    error_origin: str = ""
    duration_total: int
    duration_request_processing: int
    duration_upstream_processing: int
    duration_response_processing: int


def json_line(call: Call, origin: datetime) -> bytes:
    """The line of a finished request; `origin` is the wall time at which monotonic time was 0."""
    failure = call.failure
    destination = call.destination
    resolved = destination is not UNRESOLVED
    total, before, upstream = _durations(call)
    entry = Entry(
        timestamp=_timestamp(call, origin),
        method=call.request.method,
        path=call.path,
        protocol=f"HTTP/{call.request.version}",
        status_code=call.status,
        error=EntryError(failure.reason.word, failure.message) if failure is not None else None,
        model_name=call.model,
        model_route=destination.model_route if resolved else "",
        model_server=destination.backend_name if resolved else "",
        selected_pod=_selected_pod(call),
        prefill_pod=_prefill_pod(call),
        request_id=call.request_id,
        backend_type=destination.backend_type if resolved else "",
        backend_name=destination.backend_name if resolved else "",
        upstream_model=destination.upstream_model if resolved else "",
        upstream_status_code=call.upstream_status,
        upstream_attempts=call.attempts,
        error_origin=_origin_of_error(call),
        duration_total=total,
        duration_request_processing=before,
        duration_upstream_processing=upstream,
        duration_response_processing=0,
    )
    return msgspec.json.encode(entry) + b"\n"


def text_line(call: Call, origin: datetime) -> bytes:
    """The line of a finished request; `origin` is the wall time at which monotonic time was 0."""
    request, failure = call.request, call.failure
    line = (
        f'[{_timestamp(call, origin)}] "{request.method} {_quoted(request.path)} '
        f'HTTP/{request.version}" {call.status}'
    )
    if failure is not None:
        line += f" error={_quoted(f'{failure.reason.word}:{failure.message}')}"
    line += f" model_name={_quoted(call.model)}"
    to = call.destination
    if to is not UNRESOLVED:
        line += (
            f" model_route={to.model_route} model_server={to.backend_name}"
            f" selected_pod={_selected_pod(call)}"
        )
        prefill = _prefill_pod(call)
        if prefill:
            line += f" prefill_pod={prefill}"
    line += f" request_id={call.request_id}"
    if to is not UNRESOLVED:
        line += (
            f" backend_type={to.backend_type} backend_name={to.backend_name}"
            f" upstream_model={_quoted(to.upstream_model)}"
        )
    if call.upstream_status:
        line += f" upstream_status_code={call.upstream_status}"
    if call.attempts:
        line += f" upstream_attempts={call.attempts}"
    if failure is not None:
        line += f" error_origin={_origin_of_error(call)}"
    total, before, upstream = _durations(call)
    return f"{line} timings={total}ms({before}+{upstream}+0)\n".encode()


def _durations(call: Call) -> tuple[int, int, int]:
    """Milliseconds in all, before the first dispatch, and from there to the end of the reply."""
    ended = call.ended_at
    dispatched = call.dispatched or ended
    return (
        round((ended - call.started) * 1000),
        round((dispatched - call.started) * 1000),
        round((ended - dispatched) * 1000),
    )


def _timestamp(call: Call, origin: datetime) -> str:
    """RFC 3339 in UTC with microseconds; `origin` is in UTC."""
    moment = origin + timedelta(seconds=call.started)
    return f"{moment.isoformat(timespec='microseconds')[:26]}Z"


def _selected_pod(call: Call) -> str:
    """The pod that answered, or was last asked."""
    return str(call.answering.pod) if call.leg is not None else ""


def _prefill_pod(call: Call) -> str:
    pair = call.leg.pair if call.leg is not None else None
    return str(pair.prefill.pod) if pair is not None else ""


def _origin_of_error(call: Call) -> str:
    if call.failure is None:
        return ""
    return "upstream" if call.failure.reason in _ORIGIN_UPSTREAM else "router"


def _quoted(text: str) -> str:
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
