"""`watch`: a stream of events, one JSON text a line.

The stream starts with the current objects where the client asks for them, or with what has happened
since the version that it names, and goes on with what happens. It ends after a time, when the server
stops, when the client leaves, or when the client reads too slowly to keep up.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from starlette.types import Receive, Scope, Send

from kthena.local.apiserver import errors
from kthena.local.apiserver.negotiation import Form
from kthena.local.apiserver.options import ListOptions, parse_list_options
from kthena.local.apiserver.replies import warning_headers
from kthena.local.apiserver.store import Entry, RevisionGoneError
from kthena.local.apiserver.tables import API_VERSION, partial_metadata, table
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.reading import parse_version, selection_of
from kthena.local.apiserver.verbs.streaming import while_connected
from kthena.local.apiserver.watch import Selection, Watcher, WatchEvent, selected

_HEADERS: Final = [
    (b"cache-control", b"no-cache, private"),
    (b"content-type", b"application/json"),
]
_BYTES_AT_ONCE: Final = 256 * 1024
"""Events are sent together up to this size, and leave no more than that for a client to take."""
_INITIAL_EVENTS_END: Final = {"k8s.io/initial-events-end": "true"}


async def watch(call: ResourceCall) -> "WatchResponse":
    """The response that streams events.

    Raises:
        ApiError: the options are wrong. A version that is too old is an event, as in the API.
    """
    options = parse_list_options(call.query)
    form = call.object_form()
    selection = selection_of(call, options)
    version = options.resource_version
    revision = parse_version(version) if version not in ("", "0") else 0
    if form is Form.TABLE:
        call.include  # noqa: B018 - refuses an unknown value before the stream starts
    return WatchResponse(call, options, selection, revision, form)


class _Frames:
    """Writes events in the form that a client wants. Mutable: whether the columns were sent."""

    def __init__(self, call: ResourceCall, form: Form) -> None:
        self._kind = call.kind
        self._form = form
        self._call = call
        self._columns_sent = False

    def event(self, event: WatchEvent) -> bytes:
        """One event. Whole objects are the same for all watchers that speak of the same kind."""
        if self._form is Form.OBJECT:
            return event.frame(self._kind, self._encode)
        return self._encode(event)

    def _encode(self, event: WatchEvent) -> bytes:
        kind_of_event = event.type.encode()
        entry = event.entry
        if event.lost_at:
            entry = self._kind.at_revision(entry, event.lost_at)
        return b'{"type":"%b","object":%b}\n' % (kind_of_event, self._object(entry))

    def _object(self, entry: Entry) -> bytes:
        if self._form is Form.OBJECT:
            return self._kind.encoded(entry)
        if self._form is Form.METADATA:
            return msgspec.json.encode(partial_metadata(self._kind.read(entry)))
        rows = table(self._kind, [entry], self._call.include, self._call.core.config.now())
        rows["metadata"] = {"resourceVersion": str(entry.revision)}
        if self._columns_sent:
            rows["columnDefinitions"] = None
        self._columns_sent = True
        return msgspec.json.encode(rows)

    def bookmark(self, revision: int, annotations: dict[str, str] | None = None) -> bytes:
        """A version up to which the client has seen everything."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision)}
        if annotations:
            metadata["annotations"] = annotations
        if self._form is Form.OBJECT:
            body = self._kind.named({**self._kind.codec.empty(), "metadata": metadata})
        else:
            body = {"kind": self._form.value, "apiVersion": API_VERSION, "metadata": metadata}
            if self._form is Form.TABLE:
                body |= {"columnDefinitions": None, "rows": []}
        return b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(body)

    @staticmethod
    def error(error: errors.ApiError) -> bytes:
        """The end of a stream that cannot go on."""
        return b'{"type":"ERROR","object":%b}\n' % msgspec.json.encode(error.status)


class WatchResponse:
    """An ASGI response: one watch."""

    def __init__(
        self,
        call: ResourceCall,
        options: ListOptions,
        selection: Selection,
        revision: int,
        form: Form,
    ) -> None:
        self._call = call
        self._options = options
        self._selection = selection
        self._revision = revision
        self._frames = _Frames(call, form)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end."""
        del scope
        headers = [*_HEADERS, *warning_headers(self._call.warnings)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await while_connected(receive, self._stream(send))

    async def _stream(self, send: Send) -> None:
        core, bucket = self._call.core, self._call.kind.bucket
        store = core.store
        options = self._options
        if options.send_initial_events:
            if self._revision > store.revision:
                error = errors.version_too_large(self._revision, store.revision)
                await _send(send, (self._frames.error(error),), more=False)
                return
            earlier: Iterable[WatchEvent] = self._current()
            after = store.revision
        else:
            after = self._revision or store.revision
            try:
                earlier = selected(store.changes_since(bucket, after), self._selection)
            except RevisionGoneError as exc:
                error = errors.expired(f"too old resource version: {after} ({exc.oldest})")
                await _send(send, (self._frames.error(error),), more=False)
                return
        watcher = core.hub.add(bucket, self._selection, max(after, store.revision))
        try:
            # An empty piece makes the headers leave at once.
            await _send(send, ())
            await self._send_events(send, iter(earlier))
            if options.bookmarks and options.send_initial_events:
                await _send(send, (self._frames.bookmark(after, _INITIAL_EVENTS_END),))
            await self._follow(send, watcher)
        finally:
            core.hub.remove(bucket, self._selection, watcher)
        await _send(send, (), more=False)

    def _current(self) -> Sequence[WatchEvent]:
        entries = self._call.core.store.list(self._call.kind.bucket, self._selection.namespace)
        return [WatchEvent("ADDED", entry) for entry in entries if self._selection.matches(entry)]

    async def _send_events(self, send: Send, events: Iterator[WatchEvent]) -> None:
        frames: list[bytes] = []
        size = 0
        for event in events:
            frames.append(self._frames.event(event))
            size += len(frames[-1])
            if size >= _BYTES_AT_ONCE:
                await _send(send, frames)
                frames, size = [], 0
        if frames:
            await _send(send, frames)

    async def _follow(self, send: Send, watcher: Watcher) -> None:
        core = self._call.core
        loop = asyncio.get_running_loop()
        end = loop.time() + (self._options.timeout_s or core.config.watch_timeout_s)
        bookmark = loop.time() + core.config.bookmark_interval_s
        while watcher.pending or not watcher.closed:
            now = loop.time()
            if now >= end:
                break
            await self._send_events(send, iter(await watcher.wait(min(end, bookmark) - now)))
            if loop.time() >= bookmark:
                bookmark = loop.time() + core.config.bookmark_interval_s
                await self._send_bookmark(send, watcher)
        await self._send_bookmark(send, watcher)

    async def _send_bookmark(self, send: Send, watcher: Watcher) -> None:
        """Tell the client how far it is, if it wants to know and nothing is pending."""
        if self._options.bookmarks and not watcher.closed and not watcher.pending:
            await _send(send, (self._frames.bookmark(self._call.core.store.revision),))


async def _send(send: Send, frames: Sequence[bytes], *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": b"".join(frames), "more_body": more})
