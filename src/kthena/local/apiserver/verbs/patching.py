"""`patch`: JSON Patch, merge patch and, for built-in kinds, strategic merge patch.

The patch is applied to the object as a client of the version sees it; the result is decoded like a
body and written like an update. Server-side apply is not offered: it is answered with 415.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec
from starlette.responses import Response

from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.codec import DecodeError
from kthena.local.apiserver.content import content_type, read_body
from kthena.local.apiserver.decoding import parse_json
from kthena.local.apiserver.dialect import Dialect
from kthena.local.apiserver.kinds import Representation
from kthena.local.apiserver.mediatypes import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kthena.local.apiserver.options import WriteOptions, parse_write_options
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.writing import (
    check_name,
    check_namespace,
    written_reply,
)
from kthena.machinery.fields import ErrorType, FieldError
from kthena.machinery.objects import Object, name_of
from kthena.machinery.patches.json_patch import JsonPatchError, apply_json_patch
from kthena.machinery.patches.merge_patch import MergePatchError, apply_merge_patch
from kthena.machinery.patches.strategic import (
    StrategicMergeError,
    apply_strategic_merge_patch,
)
from kthena.machinery.schema.topology import Topology

_NO_APPLY: Final = (
    f"server-side apply ({APPLY_PATCH}) is not offered by this server; use client-side apply, or "
    f"one of {JSON_PATCH}, {MERGE_PATCH}"
)


async def patch(call: ResourceCall) -> Response:
    """A change of the object of the path, or of one of its subresources."""
    patching = await read_patch(call)
    form = call.object_form()

    def transform(old: Object | None) -> Object:
        if old is None:
            raise errors.not_found(call.kind.resource, call.path.name)
        patched = patching.apply(call.kind.named(old), call.kind.schema)
        obj = patching.decode(patched, call.kind.representation, call.warnings)
        check_namespace(call, obj)
        check_name(call.path.name, obj)
        return obj

    write = Write(patching.options, call.warnings)
    written = call.core.registry.update(call.kind, call.key, transform, call.strategy, write)
    return written_reply(call, written, form)


@dataclass(frozen=True, slots=True)
class Patching:
    """A patch that was read: its type, its value, and the fields that occur twice in it."""

    media: str
    value: Any
    duplicates: Sequence[str]
    options: WriteOptions

    def apply(self, document: Object, schema: Topology) -> Object:
        """The document after the patch.

        Raises:
            ApiError: it does not apply.
        """
        try:
            patched = self._apply(document, schema)
            # A patch that copies can nest deeper than any body may.
            gojson.check_depth(patched)
        except gojson.JSONError as exc:
            raise errors.bad_request(f"the patched object: {exc}") from exc
        except JsonPatchError as exc:
            if exc.status == 422:
                raise errors.unprocessable_patch() from exc
            make = errors.too_large if exc.status == 413 else errors.bad_request
            raise make(str(exc)) from exc
        except MergePatchError as exc:
            raise errors.bad_request(str(exc)) from exc
        except StrategicMergeError as exc:
            raise _strategic_error(exc) from exc
        return patched

    def _apply(self, document: Object, schema: Topology) -> Object:
        if self.media == JSON_PATCH:
            return _as_object(apply_json_patch(document, self.value))
        if self.media == MERGE_PATCH:
            return apply_merge_patch(document, self.value)
        return apply_strategic_merge_patch(document, self.value, schema)

    def decode(self, patched: Object, expected: Representation, warnings: list[str]) -> Object:
        """The patched object, decoded; warnings are added.

        Raises:
            ApiError: 422, it is no object of its kind, or has unknown fields and may not.
        """
        self._check_type(patched, expected)
        try:
            decoded = expected.codec.decode(patched)
        except DecodeError as exc:
            text = exc.converted if self.media == STRATEGIC_PATCH else str(exc)
            self._refuse(patched, text)
        prefix = "json patch " if self.media == JSON_PATCH else ""
        problems = [f'{prefix}duplicate field "{path}"' for path in self.duplicates]
        problems += decoded.problems
        if problems and self.options.field_validation == "Strict":
            self._refuse(patched, f"strict decoding error: {', '.join(problems)}")
        if self.options.field_validation == "Warn":
            warnings += problems
        return decoded.obj

    def _check_type(self, patched: Object, expected: Representation) -> None:
        resource = expected.resource
        kind, version = patched.get("kind"), patched.get("apiVersion")
        if (kind, version) == (resource.kind, resource.api_version):
            return
        if not expected.dialect.generic_errors:
            meta = patched.get("metadata")
            name = name_of(patched) if isinstance(meta, dict) else ""
            raise errors.wrong_type(resource, patched, name)
        cause = (
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
        self._refuse(patched, cause)

    def _refuse(self, patched: Object, cause: str) -> NoReturn:
        shown = (
            _go_value(self.value)
            if self.media == STRATEGIC_PATCH
            else msgspec.json.encode(patched, order="deterministic").decode()
        )
        error = FieldError("patch", ErrorType.INVALID, shown, cause)
        raise errors.invalid("", "", "", [error])


async def read_patch(call: ResourceCall) -> Patching:
    """The patch of a request.

    Raises:
        ApiError: 400, 413, 415 or 422, as the request is wrong.
    """
    media = content_type(call.request)
    if media not in call.kind.dialect.patch_types:
        raise _unsupported(media, call.kind.dialect)
    body = await read_body(call.request)
    options = parse_write_options(call.query, "PatchOptions", call.user_agent, media)
    strict = options.field_validation != "Ignore"
    try:
        parsed = parse_json(body, strict=strict)
    except gojson.JSONError as exc:
        prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
        raise errors.bad_request(f"{prefix}{exc}") from exc
    _check_shape(parsed.value, media)
    return Patching(media, parsed.value, parsed.duplicates, options)


def _unsupported(media: str, dialect: Dialect) -> errors.ApiError:
    if media == APPLY_PATCH:
        return errors.ApiError(415, "UnsupportedMediaType", _NO_APPLY)
    if dialect.generic_errors:
        return errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    return errors.unsupported_media_type(dialect.patch_types)


def _check_shape(value: Any, media: str) -> None:
    is_list = media == JSON_PATCH
    if isinstance(value, list if is_list else dict):
        return
    target = "[]handlers.jsonPatchOp" if is_list else "map[string]interface {}"
    found = _go_kind(value)
    prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
    raise errors.bad_request(
        f"{prefix}json: cannot unmarshal {found} into Go value of type {target}"
    )


def _go_kind(value: Any) -> str:
    names = {bool: "bool", int: "number", float: "number", str: "string", list: "array"}
    return "null" if value is None else names.get(type(value), "object")


def _go_value(value: Any) -> str:
    """A JSON value as Go's `%v` prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{_go_value(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(_go_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _as_object(value: Any) -> Object:
    if isinstance(value, dict):
        return value
    raise errors.unprocessable_patch()


def _strategic_error(exc: StrategicMergeError) -> errors.ApiError:
    if exc.status == 400:
        return errors.bad_request(str(exc))
    if exc.status == 422:
        return errors.ApiError(422, "Invalid", str(exc), {})
    return errors.internal(str(exc))
