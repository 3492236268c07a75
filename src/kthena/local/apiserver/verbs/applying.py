"""Server-side apply: a patch that says what its manager wants of an object, and nothing else.

What the manager has applied before and leaves out now goes; what others own stays, and changing it is a
conflict unless it is forced. The object is created where there is none.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.responses import Response

from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.codec import DecodeError
from kthena.local.apiserver.content import read_body
from kthena.local.apiserver.kinds import Representation
from kthena.local.apiserver.mediatypes import APPLY_PATCH
from kthena.local.apiserver.options import WriteOptions, parse_write_options
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.verbs.admitting import reviewer
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.writing import check_name, check_namespace, written_reply
from kthena.machinery.managedfields.entries import Manager
from kthena.machinery.managedfields.fieldsets import path_text
from kthena.machinery.managedfields.tracking import (
    ApplyConflictError,
    ApplyError,
    Tracker,
    describe,
    kind_text,
)
from kthena.machinery.objects import Object, uid_of


async def apply(call: ResourceCall) -> Response:
    """The object of the path, or one of its subresources, as a manager wants it."""
    applying = await read_apply(call)
    form = call.object_form()
    tracker = call.tracker

    def transform(old: Object | None) -> Object:
        obj = applying.apply(old, tracker, call.representation)
        if old is None and uid_of(obj):
            cause = (
                f"uid mismatch: the provided object specified uid {uid_of(obj)}, and no existing "
                "object was found"
            )
            raise errors.conflict(call.kind.resource, call.path.name, cause)
        check_namespace(call, obj)
        check_name(call.path.name, obj)
        return obj

    write = Write(
        applying.options,
        call.warnings,
        subresource=call.path.subresource,
        may_create=not call.path.subresource,
        tracks=False,
        review=reviewer(call),
    )
    registry = call.core.registry
    written = registry.update(call.kind, call.key, transform, call.strategy, write)
    return written_reply(call, written, form)


@dataclass(frozen=True, slots=True)
class Applying:
    """A configuration that was read. `repeated` says which keys occur twice in a mapping."""

    config: Any
    repeated: Sequence[str]
    options: WriteOptions
    warnings: list[str]

    def apply(self, old: Object | None, tracker: Tracker, expected: Representation) -> Object:
        """The object with the configuration applied, and with the entries of its managers.

        Raises:
            ApiError: 400, 422 or 500, the configuration does not fit; 409, others own what it changes.
        """
        options, resource = self.options, tracker.resource
        # The configuration says its kind, and so must what it is compared with.
        names = {"apiVersion": resource.api_version, "kind": resource.kind}
        live = None if old is None else {**old, **names}
        try:
            new, entries = tracker.apply(
                live, self.config, options.field_manager, force=options.force
            )
        except ApplyConflictError as exc:
            raise _conflict(exc) from exc
        except ApplyError as exc:
            raise _refusal(exc) from exc
        obj = self._decode(new, tracker, expected)
        self._report_repeated()
        metadata = obj["metadata"]
        if entries:
            metadata["managedFields"] = entries
        else:
            metadata.pop("managedFields", None)
        return obj

    def _decode(self, new: Object, tracker: Tracker, expected: Representation) -> Object:
        try:
            metadata = dict(new.get("metadata") or {})
            return expected.codec.decode({**new, "metadata": metadata}, converts=True).obj
        except DecodeError as exc:
            _fail(
                f"failed to convert new object ({describe(self.config, tracker.resource)}) to "
                "proper version: unable to convert unstructured object to "
                f"{kind_text(tracker.resource)}: {exc}"
            )

    def _report_repeated(self) -> None:
        if not self.repeated:
            return
        if self.options.field_validation == "Strict":
            lines = "\n  ".join(["yaml: unmarshal errors:", *self.repeated])
            raise errors.bad_request(
                f"error strict decoding YAML: error converting YAML to JSON: {lines}"
            )
        if self.options.field_validation == "Warn":
            self.warnings.extend(self.repeated)


async def read_apply(call: ResourceCall) -> Applying:
    """The configuration of a request.

    Raises:
        ApiError: 400, 413 or 422, as the request is wrong.
    """
    body = await read_body(call.request)
    options = parse_write_options(call.query, "PatchOptions", call.user_agent, APPLY_PATCH)
    config, repeated = _parse(body)
    return Applying(config, repeated, options, call.warnings)


def _parse(body: bytes) -> tuple[Any, list[str]]:
    """The value of a body and, as Go's decoder of YAML words them, the keys that repeat."""
    from kthena.machinery.yaml import YamlError, load_value

    if body.lstrip().startswith(b"{"):
        # JSON is YAML, and what kubectl sends.
        with contextlib.suppress(gojson.JSONError):
            value = gojson.decode(body)
            if not gojson.duplicate_fields(body):
                return value, []
    try:
        value, repeated = load_value(body.decode("utf-8", "replace"), "body")
    except YamlError as exc:
        cause = f"error converting YAML to JSON: yaml: {exc.go_text}"
        raise errors.bad_request(f"error decoding YAML: {cause}") from exc
    if value is None:
        return {}, []
    if not isinstance(value, dict):
        cause = f"json: cannot unmarshal {_json_type(value)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(
            f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {cause}"
        )
    return value, [f"line {line}: {cause}" for line, cause in repeated]


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, list):
        return "array"
    return "string" if isinstance(value, str) else "number"


def _refusal(exc: ApplyError) -> errors.ApiError:
    if exc.is_request_wrong:
        return errors.bad_request(str(exc))
    return errors.ApiError(500, "", str(exc))


def _fail(text: str) -> NoReturn:
    raise errors.ApiError(500, "", text)


def _conflict(exc: ApplyConflictError) -> errors.ApiError:
    shown = [
        (_manager_text(conflict.manager), path_text(conflict.path)) for conflict in exc.conflicts
    ]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": path}
        for manager, path in shown
    ]
    if len(shown) == 1:
        text = f"Apply failed with 1 conflict: conflict with {shown[0][0]}: {shown[0][1]}"
    else:
        lines: list[str] = []
        for manager in sorted({manager for manager, _ in shown}):
            lines.append(f"conflicts with {manager}:")
            lines += [f"- {path}" for other, path in shown if other == manager]
        joined = "\n".join(lines)
        text = f"Apply failed with {len(shown)} conflicts: {joined}"
    return errors.ApiError(409, "Conflict", text, {"causes": causes})


def _manager_text(manager: Manager) -> str:
    text = f'"{manager.name}"'
    if manager.subresource:
        text += f' with subresource "{manager.subresource}"'
    if manager.operation == "Update":
        text += f" using {manager.api_version}"
    return text
