"""Watches, and what they tell.

A sequence is judged by the events of each of its kinds as well. The watches for these stay open from one
sequence to the next, since to open one costs more than to read it: what is older than the start of a
sequence belongs to those before.
"""

import http.client
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from fuzz.client import Stream

SENTINEL: Final = "zz-end"
"""The name of the object whose event ends the reading of a watch."""


class Journal:
    """The watch of one kind. Mutable state: its stream."""

    def __init__(self, opens: Callable[[], Stream]) -> None:
        self._opens = opens
        self._stream: Stream | None = None

    def prepare(self) -> None:
        """Open the watch where it is not."""
        if self._stream is None:
            self._stream = self._opens()
            self._stream.head()

    def read(self, start: int) -> Any:
        """What `read` says of a watch that was opened at the version `start`."""
        if self._stream is None:
            raise RuntimeError("the watch is not open")
        response = self._stream.head()
        events: list[Any] = []
        complete = False
        while response.status == 200 and not complete:
            line = _next_line(response)
            event = _decoded(line)
            if not line or version_of(event) == 0:
                events.append(event)
                break
            if version_of(event) > start:
                events.append(event)
                complete = f'"{SENTINEL}"'.encode() in line
        told = {"status": response.status, "events": events}
        if not complete:
            self.close()
        return told

    def close(self) -> None:
        """End the watch."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None


def version_of(value: Any) -> int:
    """The version of an object or of that of an event; 0 where it has none."""
    obj = value.get("object", value) if isinstance(value, dict) else {}
    meta = obj.get("metadata") if isinstance(obj, dict) else {}
    text = str((meta or {}).get("resourceVersion") or "")
    return int(text) if text.isdigit() else 0


def read(stream: Stream) -> Any:
    """The events of a watch up to the sentinel, or what was answered instead."""
    response = stream.head()
    if response.status != 200:
        return {"status": response.status, "body": _decoded(response.read())}
    events: list[Any] = []
    for line in _lines(response):
        event = _decoded(line)
        if not _is_periodic(event):
            events.append(event)
        if f'"{SENTINEL}"'.encode() in line:
            break
    return {"status": 200, "events": events}


def by_object(told: Any) -> Any:
    """Events grouped by object: what controllers do to several has no order."""
    grouped: dict[str, list[Any]] = defaultdict(list)
    for event in told.get("events", ()):
        obj = event.get("object", {}) if isinstance(event, dict) else {}
        name = (obj.get("metadata") or {}).get("name", "")
        grouped[name or json.dumps(obj.get("rows"), sort_keys=True)[:120]].append(event)
    return {**told, "events": {name: grouped[name] for name in sorted(grouped)}}


def _is_periodic(event: Any) -> bool:
    """Whether it is a bookmark that comes when it is time, and not when something happens."""
    if not isinstance(event, dict) or event.get("type") != "BOOKMARK":
        return False
    return "annotations" not in event["object"]["metadata"]


def _next_line(response: http.client.HTTPResponse) -> bytes:
    try:
        return response.readline()
    except TimeoutError:
        return b'"no more events, and no end"'


def _lines(response: http.client.HTTPResponse) -> Iterable[bytes]:
    while line := _next_line(response):
        yield line


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return content.decode(errors="replace")
