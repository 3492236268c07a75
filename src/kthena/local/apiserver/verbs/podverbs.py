"""`pods/binding` and `pods/log`."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kthena.local.apiserver import errors
from kthena.local.apiserver.builtins.pods import bind, scheduled_condition
from kthena.local.apiserver.logs import LogError, LogOptions
from kthena.local.apiserver.options import Query
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.replies import error_reply
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.local.apiserver.verbs.admitting import binding_reviewer
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.streaming import while_connected
from kthena.local.apiserver.verbs.writing import read_object
from kthena.machinery.conditions import format_time
from kthena.machinery.fields import ErrorType, FieldError, join_errors
from kthena.machinery.objects import Object, copy_json, is_terminating, name_of
from kthena.machinery.resources import Resource
from kthena.telemetry.logging import get_logger

_BINDINGS: Final = Resource("", "v1", "pods/binding", "Binding")
_LOG: Final = get_logger("local.apiserver")
_LOG_START: Final = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"cache-control", b"no-cache, private"), (b"content-type", b"text/plain")],
}


async def create_binding(call: ResourceCall) -> Response:
    """Assign the pod of the path to a node."""
    options, binding = await read_object(call, "CreateOptions")
    name = call.path.name
    if name_of(binding) != name:
        raise errors.bad_request("name in URL does not match name in Binding object")
    _check_target(binding.get("target") or {})
    now = format_time(call.core.config.now())
    meta = binding["metadata"]

    def transform(old: Object | None) -> Object:
        pod: Object = copy_json(old)
        _check_unbound(pod, name)
        bind(pod, binding["target"]["name"], meta.get("annotations") or {})
        if meta.get("labels"):
            labels = pod["metadata"].get("labels") or {}
            pod["metadata"]["labels"] = {**labels, **meta["labels"]}
        for field in ("uid", "resourceVersion"):
            if meta.get(field):
                pod["metadata"][field] = meta[field]
        conditions = pod["status"].get("conditions") or []
        rest = [condition for condition in conditions if condition["type"] != "PodScheduled"]
        pod["status"]["conditions"] = [*rest, scheduled_condition(now)]
        return pod

    review = binding_reviewer(call, binding)
    write = Write(options, call.warnings, guards_uid=True, tracks=False, review=review)
    call.core.registry.update(call.kind, call.key, transform, PlainStrategy(), write)
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return call.value_reply(status, 201)


def _check_target(target: Object) -> None:
    found = []
    if target.get("kind") not in (None, "", "Node"):
        detail = 'supported values: "Node", "<empty>"'
        found.append(FieldError("target.kind", ErrorType.NOT_SUPPORTED, target["kind"], detail))
    if not target.get("name"):
        found.append(FieldError("target.name", ErrorType.REQUIRED, "", ""))
    if found:
        raise errors.internal(join_errors(found))


def _check_unbound(pod: Object, name: str) -> None:
    cause = ""
    if is_terminating(pod):
        cause = f"pod {name} is being deleted, cannot be assigned to a host"
    elif pod["spec"].get("nodeName"):
        cause = f'pod {name} is already assigned to node "{pod["spec"]["nodeName"]}"'
    elif pod["spec"].get("schedulingGates"):
        cause = f"pod {name} has non-empty .spec.schedulingGates"
    if cause:
        raise errors.conflict(_BINDINGS, name, cause)


async def get_log(call: ResourceCall) -> "Response | LogResponse":
    """The log of a container, from the node that runs the pod."""
    entry = call.core.registry.get(call.kind, call.key)
    pod = call.kind.named(call.kind.read(entry))
    options = _log_options(call.query, pod)
    node = pod["spec"].get("nodeName") or ""
    if not node:
        return Response(status_code=204)
    source = call.core.logs.find(node)
    if source is None:
        raise errors.unavailable(
            f'node "{node}" of pod "{name_of(pod)}" serves no logs; the node is not running'
        )
    return LogResponse(source.stream(pod, options))


class LogResponse:
    """An ASGI response: one log. The source is closed when the client leaves."""

    def __init__(self, pieces: AsyncIterator[bytes]) -> None:
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream the log; an error is the reply only before the first piece."""
        await while_connected(receive, self._stream(scope, receive, send))

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False
        try:
            async for piece in self._pieces:
                if not started:
                    started = True
                    await send(_LOG_START)
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except LogError as exc:
            if not started:
                await error_reply(errors.bad_request(str(exc)))(scope, receive, send)
                return
            _LOG.warning("container log ended early", error=str(exc))
        finally:
            if isinstance(self._pieces, AsyncGenerator):
                await self._pieces.aclose()
        if not started:
            await send(_LOG_START)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _log_options(query: Query, pod: Object) -> LogOptions:
    spec = pod["spec"]
    regular, init, ephemeral = (
        [container["name"] for container in spec.get(field) or ()]
        for field in ("containers", "initContainers", "ephemeralContainers")
    )
    container = query.text("container")
    if not container and len(regular) > 1:
        others = f" or one of the init containers: [{' '.join(init)}]" if init else ""
        raise errors.bad_request(
            f"a container name must be specified for pod {name_of(pod)}, choose one of: "
            f"[{' '.join(regular)}]{others}"
        )
    container = container or regular[0]
    if container not in (*regular, *init, *ephemeral):
        raise errors.bad_request(f"container {container} is not valid for pod {name_of(pod)}")
    since, tail, limit = (
        query.integer(name) for name in ("sinceSeconds", "tailLines", "limitBytes")
    )
    _check_limits(since, tail, limit)
    return LogOptions(
        container,
        follow=query.flag("follow") or False,
        previous=query.flag("previous") or False,
        timestamps=query.flag("timestamps") or False,
        since_s=since,
        since_time=query.text("sinceTime"),
        tail_lines=tail,
        limit_bytes=limit,
    )


def _check_limits(since: int | None, tail: int | None, limit: int | None) -> None:
    found: list[Any] = []
    if tail is not None and tail < 0:
        detail = "must be greater than or equal to 0"
        found.append(FieldError("tailLines", ErrorType.INVALID, tail, detail))
    for name, value in (("limitBytes", limit), ("sinceSeconds", since)):
        if value is not None and value < 1:
            found.append(FieldError(name, ErrorType.INVALID, value, "must be greater than 0"))
    if found:
        raise errors.invalid("", "PodLogOptions", "", found)
