"""`KubeClient`: the verbs of the Kubernetes API over raw objects.

It builds paths and parameters, encodes and decodes JSON, holds the rate limit and maps every
failure to `kthena.kube.errors`. Objects go in and come out as they are on the wire. It never
retries and never waits for a `Retry-After`: callers know whether a repetition is safe.
"""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, Self, cast
from urllib.parse import urlencode

import msgspec

from kthena.kube.client.options import (
    ClientConfig,
    DeleteParams,
    ObjectList,
    PatchType,
    RawResponse,
    WatchEvent,
    WatchParams,
)
from kthena.kube.client.transport import Reply, Request, Transport
from kthena.kube.clock import Clock, SystemClock
from kthena.kube.errors import (
    ApiError,
    ConnectionFailed,
    Gone,
    error_from_reply,
    error_from_status,
)
from kthena.kube.ratelimit import TokenBucket
from kthena.machinery.objects import Object, metadata_of, name_of, namespace_of
from kthena.machinery.resources import Resource

LIST_PAGE_SIZE = 500

FieldValidation = Literal["Ignore", "Warn", "Strict"]
Observer = Callable[[str, int, float], None]
"""Told of each call: its HTTP method, the status (0: no reply), and the seconds it took."""

_JSON = "application/json"
_METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_TARGET = re.compile(r"/[\x21-\x7e]*")


class _RawEvent(msgspec.Struct):
    type: str
    object: dict[str, Any]


_event_decoder = msgspec.json.Decoder(_RawEvent)


class KubeClient:
    """A connection to one API server as one user.

    Every method may raise any `ApiError`; `ConnectionFailed` when there was no reply, also because a
    credential plugin or token file fails. An empty `namespace` means the default one of the context
    for a single object, and all namespaces for a list or watch.
    """

    def __init__(
        self,
        transport: Transport,
        config: ClientConfig,
        *,
        server: str = "in-process",
        namespace: str = "default",
        clock: Clock | None = None,
        observer: Observer | None = None,
    ) -> None:
        self._transport = transport
        self._config = config
        self._clock = clock or SystemClock()
        self._bucket = TokenBucket(config.qps, max(1, config.burst))
        self._observer = observer
        self._headers = {"Accept": _JSON, "User-Agent": config.user_agent}
        self.server = server
        self.namespace = namespace

    @classmethod
    def connect(
        cls,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        wrap: Callable[[Transport], Transport] | None = None,
    ) -> Self:
        """A client for the server that `config` means. Reads files; sends nothing yet.

        `wrap` may put something around the transport, for instance a `FaultTransport`.

        Raises:
            ClientConfigError: no server is configured, or the configuration is wrong.
        """
        from kthena.kube.client.http import HttpTransport
        from kthena.kube.client.kubeconfig import load_endpoint

        endpoint = load_endpoint(config)
        transport: Transport = HttpTransport(endpoint)
        return cls(
            transport if wrap is None else wrap(transport),
            config,
            server=endpoint.server,
            namespace=endpoint.namespace,
            clock=clock,
            observer=observer,
        )

    async def close(self) -> None:
        """Close every connection; calls in flight fail."""
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        """The client itself."""
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        """Close it."""
        await self.close()

    # Reading.

    async def get(
        self, resource: Resource, name: str, namespace: str = "", *, subresource: str = ""
    ) -> Object:
        """The object, or its subresource (`scale`, `status`)."""
        path = self._object_path(resource, name, namespace, subresource)
        return await self._call("GET", path, {})

    async def list_page(  # noqa: PLR0913 - the parameters that the API has
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        limit: int = LIST_PAGE_SIZE,
        continue_token: str = "",
        resource_version: str = "",
        resource_version_match: str = "",
    ) -> ObjectList:
        """One page of a list; `limit` 0 asks for all. Selectors are in the API's own syntax.

        Raises:
            Gone: `continue_token` has expired.
        """
        params = {
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "limit": str(limit) if limit else "",
            "continue": continue_token,
            "resourceVersion": resource_version,
            "resourceVersionMatch": resource_version_match,
        }
        body = await self._call("GET", resource.path(namespace), params)
        metadata = metadata_of(body)
        items: list[Object] = body.get("items") or []
        for item in items:
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return ObjectList(
            items,
            str(metadata.get("resourceVersion") or ""),
            str(metadata.get("continue") or ""),
            metadata.get("remainingItemCount"),
        )

    async def list(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList:
        """All pages of a list, consistent at one resource version.

        When the continue token expires on the way, everything is read again in one page, as
        client-go's pager does.
        """

        async def page(limit: int, token: str) -> ObjectList:
            return await self.list_page(
                resource,
                namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                limit=limit,
                continue_token=token,
            )

        items: list[Object] = []
        token = ""
        while True:
            try:
                read = await page(LIST_PAGE_SIZE, token)
            except Gone:
                if not token:
                    raise
                return await page(0, "")
            items += read.items
            token = read.continue_token
            if not token:
                return ObjectList(items, read.resource_version)

    async def open_watch(
        self, resource: Resource, namespace: str = "", params: WatchParams | None = None
    ) -> "Watch":
        """A watch that the server has accepted; whoever gets it closes it.

        Raises:
            Gone: the resource version has expired: list again.
        """
        wanted = params or WatchParams()
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true" if wanted.bookmarks else "",
            "resourceVersion": wanted.resource_version,
            "labelSelector": wanted.label_selector,
            "fieldSelector": wanted.field_selector,
            "timeoutSeconds": "" if wanted.timeout_s is None else str(wanted.timeout_s),
        }
        request = self._request("GET", resource.path(namespace), query, streamed=True)
        return Watch(await self._send(request), request)

    async def watch(
        self, resource: Resource, namespace: str = "", params: WatchParams | None = None
    ) -> AsyncGenerator[WatchEvent, None]:
        """The events of `open_watch`, until the server ends the watch (`timeout_s`).

        The connection is closed when the iterator is exhausted, closed or cancelled; whoever leaves
        the loop early wraps it in `contextlib.aclosing`.
        """
        async with aclosing(await self.open_watch(resource, namespace, params)) as events:
            async for event in events:
                yield event

    # Writing.

    async def create(
        self,
        resource: Resource,
        obj: Object,
        *,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object:
        """The object as stored. Its own namespace counts, the default of the context without one."""
        path = resource.path(self._namespace_for(resource, namespace_of(obj)))
        params = self._write_params(dry_run=dry_run)
        params["fieldValidation"] = field_validation or ""
        return await self._call("POST", path, params, obj)

    async def update(
        self, resource: Resource, obj: Object, *, subresource: str = "", dry_run: bool = False
    ) -> Object:
        """Replace the object (or its subresource); it must carry the resource version it was read at.

        Raises:
            Conflict: it has changed since.
        """
        path = self._object_path(resource, name_of(obj), namespace_of(obj), subresource)
        return await self._call("PUT", path, self._write_params(dry_run=dry_run), obj)

    async def patch(  # noqa: PLR0913 - the parameters that the API has
        self,
        resource: Resource,
        name: str,
        namespace: str,
        body: Any,
        patch_type: PatchType,
        *,
        subresource: str = "",
        force: bool = False,
        field_manager: str | None = None,
        dry_run: bool = False,
        field_validation: FieldValidation | None = None,
    ) -> Object:
        """Patch the object or its subresource. `force` takes over fields of others (apply only)."""
        path = self._object_path(resource, name, namespace, subresource)
        params = self._write_params(dry_run=dry_run)
        params["fieldValidation"] = field_validation or ""
        if field_manager is not None:
            params["fieldManager"] = field_manager
        if force:
            params["force"] = "true"
        return await self._call("PATCH", path, params, body, patch_type.value)

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str = "",
        params: DeleteParams | None = None,
        *,
        dry_run: bool = False,
    ) -> Object:
        """Delete the object: it is returned while finalizers or a grace period hold it, else a Status.

        Raises:
            Conflict: a precondition of `params` does not hold.
        """
        path = self._object_path(resource, name, namespace)
        query = {"dryRun": "All" if dry_run else ""}
        return await self._call("DELETE", path, query, (params or DeleteParams()).body())

    async def delete_collection(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        label_selector: str = "",
        field_selector: str = "",
        params: DeleteParams | None = None,
    ) -> Object:
        """Delete every object that the selectors match (all, without one), in one namespace.

        An empty namespace means the default one of the context: the API cannot delete across all.
        """
        path = resource.path(self._namespace_for(resource, namespace))
        query = {"labelSelector": label_selector, "fieldSelector": field_selector}
        return await self._call("DELETE", path, query, (params or DeleteParams()).body())

    # Anything else.

    async def raw(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> RawResponse:
        """Any path of the server. `body` is sent as it is if it is bytes, else as JSON."""
        request = self._request(method, path, params or {}, body=body, content_type=content_type)
        if accept != _JSON:
            request = replace(request, headers={**request.headers, "Accept": accept})
        reply = await self._send(request)
        return RawResponse(reply.status, dict(reply.headers), await reply.read())

    async def stream(
        self, path: str, params: Mapping[str, str] | None = None
    ) -> AsyncGenerator[bytes, None]:
        """The body of a GET as it arrives (logs that are followed); closed like a watch."""
        reply = await self._send(self._request("GET", path, params or {}, streamed=True))
        async with aclosing(reply):
            async for chunk in reply.chunks():
                yield chunk

    # How it works.

    def _namespace_for(self, resource: Resource, namespace: str) -> str:
        return namespace or self.namespace if resource.namespaced else ""

    def _object_path(
        self, resource: Resource, name: str, namespace: str, subresource: str = ""
    ) -> str:
        if not name:
            raise ValueError(f"{resource}: an object without metadata.name cannot be addressed")
        return resource.path(self._namespace_for(resource, namespace), name, subresource)

    def _write_params(self, *, dry_run: bool) -> dict[str, str]:
        return {
            "fieldManager": self._config.field_manager,
            "dryRun": "All" if dry_run else "",
        }

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        body: Any = None,
        content_type: str = _JSON,
        streamed: bool = False,
    ) -> Request:
        if method not in _METHODS:
            raise ValueError(f"method {method!r} is none of {', '.join(sorted(_METHODS))}")
        query = urlencode({name: value for name, value in params.items() if value})
        target = f"{path}{'&' if '?' in path else '?'}{query}" if query else path
        if not _TARGET.fullmatch(target):
            raise ValueError(f"{path!r} is no path of a request: it must be percent-encoded")
        if body is None:
            return Request(
                method,
                target,
                self._headers,
                timeout_s=self._config.request_timeout_s,
                streamed=streamed,
            )
        headers = {**self._headers, "Content-Type": content_type}
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return Request(method, target, headers, data, self._config.request_timeout_s)

    async def _call(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: Any = None,
        content_type: str = _JSON,
    ) -> Object:
        request = self._request(method, path, params, body=body, content_type=content_type)
        reply = await self._send(request)
        decoded = _decode(await reply.read())
        if not isinstance(decoded, dict):
            raise _undecodable(reply.status, request)
        return decoded

    async def _send(self, request: Request) -> Reply:
        """The reply to a request that succeeded; whoever gets it reads or closes it."""
        delay = self._bucket.reserve(self._clock.monotonic())
        if delay > 0:
            await self._clock.sleep(delay)
        started = self._clock.monotonic()
        status = 0
        try:
            reply = await self._transport.send(request)
            status = reply.status
        finally:
            if self._observer is not None:
                self._observer(request.method, status, self._clock.monotonic() - started)
        if status < 300:
            return reply
        body = _decode(await reply.read())
        raise error_from_reply(
            status, body, request=str(request), retry_after_s=_retry_after(reply.headers)
        )


class Watch:
    """The events of one watch, as they come. Silence has no time limit.

    Iteration ends where the server ends the watch in good order, and raises `Gone` when the
    resource version has expired, another `ApiError` for what else the server reports, and
    `ConnectionFailed` when the connection breaks or the stream ends within an event.
    """

    def __init__(self, reply: Reply, request: Request) -> None:
        self._reply = reply
        self._request = request
        self._lines = _lines(reply, request)

    def __aiter__(self) -> Self:
        """The watch itself."""
        return self

    async def __anext__(self) -> WatchEvent:
        """The next event."""
        return _decode_event(await anext(self._lines), self._request)

    async def aclose(self) -> None:
        """End the watch and close its connection."""
        await self._lines.aclose()
        await self._reply.aclose()


async def _lines(reply: Reply, request: Request) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, without their ends; blank ones are passed over.

    Raises:
        ConnectionFailed: the stream ended within a line.
    """
    rest = b""
    async for chunk in reply.chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
    if rest.strip():
        raise ConnectionFailed("the watch ended in the middle of an event", request=str(request))


def _decode_event(line: bytes, request: Request) -> WatchEvent:
    try:
        event = _event_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise _undecodable(200, request) from exc
    if event.type == "ERROR":
        raise error_from_status(event.object, request=str(request))
    if event.type not in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK"):
        raise _undecodable(200, request)
    return WatchEvent(cast("Any", event.type), event.object)


def _decode(data: bytes) -> Any:
    """The JSON of a reply; None where it is no JSON."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _undecodable(status: int, request: Request) -> ApiError:
    message = "the server replied with something that is no object of the API"
    return ApiError(status, "Undecodable", message, request=str(request))


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None
