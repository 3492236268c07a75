"""`patch`: JSON Patch, merge patch and, for built-in kinds, strategic merge patch.

The patch is applied to the object as a client of the version sees it; the result is decoded like a
body and written like an update. Server-side apply, which is a patch too, is in `applying`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import msgspec
from starlette.responses import Response

from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.codec import DecodeError
from kthena.local.apiserver.content import content_type, read_body
from kthena.local.apiserver.decoding import keep_reset, parse_json, type_meta_problem
from kthena.local.apiserver.kinds import Representation
from kthena.local.apiserver.mediatypes import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kthena.local.apiserver.options import WriteOptions, parse_write_options
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.verbs.admitting import reviewer
from kthena.local.apiserver.verbs.applying import apply
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.patchshape import read_shape
from kthena.local.apiserver.verbs.writing import (
    check_name,
    check_namespace,
    written_reply,
)
from kthena.machinery.fields import ErrorType, FieldError
from kthena.machinery.gotext import show_value
from kthena.machinery.objects import Object, copy_json, name_of
from kthena.machinery.patches.json_patch import JsonPatchError, apply_json_patch
from kthena.machinery.patches.merge_patch import MergePatchError, apply_merge_patch
from kthena.machinery.patches.strategic import (
    StrategicMergeError,
    apply_strategic_merge_patch,
)
from kthena.machinery.schema.topology import Topology


async def patch(call: ResourceCall) -> Response:
    """A change of the object of the path, or of one of its subresources."""
    check_patch_type(call)
    if content_type(call.request) == APPLY_PATCH:
        return await apply(call)
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

    write = Write(
        patching.options,
        call.warnings,
        subresource=call.path.subresource,
        review=reviewer(call),
    )
    written = call.core.registry.update(call.kind, call.key, transform, call.strategy, write)
    return written_reply(call, written, form)


@dataclass(frozen=True, slots=True)
class Patching:
    """A patch that was read: its type, its value, and what is odd about its fields.

    `unreadable` is why it is no patch, which clients learn only where there is something to patch.
    """

    media: str
    value: Any
    oddities: Sequence[str]
    options: WriteOptions
    unreadable: errors.ApiError | None = None

    def apply(self, document: Object, schema: Topology) -> Object:
        """The document after the patch.

        Raises:
            ApiError: it does not apply.
        """
        if self.unreadable is not None:
            raise self.unreadable
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
            # Whoever is refused is shown the object as it was before fields were dropped from it.
            strict = self.options.field_validation == "Strict"
            decoded = expected.codec.decode(copy_json(patched) if strict else patched)
        except DecodeError as exc:
            text = exc.converted if self.media == STRATEGIC_PATCH else str(exc)
            self._refuse(patched, text)
        prefix = "json patch " if self.media == JSON_PATCH else ""
        problems = [f"{prefix}{oddity}" for oddity in self.oddities]
        problems += decoded.problems
        if problems and self.options.field_validation == "Strict":
            self._refuse(patched, f"strict decoding error: {', '.join(problems)}")
        if self.options.field_validation == "Warn":
            warnings += problems
        keep_reset(patched, decoded.obj)
        return decoded.obj

    def _check_type(self, patched: Object, expected: Representation) -> None:
        resource = expected.resource
        kind, version = patched.get("kind"), patched.get("apiVersion")
        if (kind, version) == (resource.kind, resource.api_version):
            return
        if self.media == STRATEGIC_PATCH:
            # It is decoded without looking at what it calls itself.
            for given in (kind, version):
                if not isinstance(given, str | None):
                    self._refuse(patched, f"cannot convert {_converted_name(given)} to string")
            return
        problem = type_meta_problem(patched)
        if problem:
            self._refuse(patched, problem)
        if not expected.dialect.generic_errors:
            meta = patched.get("metadata")
            name = name_of(patched) if isinstance(meta, dict) else ""
            raise errors.wrong_type(resource, patched, name)
        cause = (
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
        if (kind, version) == ("List", "v1"):
            group = resource.group.partition(".")[0] or "core"
            cause = f"converting (v1.List) to ({group}.{resource.kind}): unknown conversion"
        self._refuse(patched, cause)

    def _refuse(self, patched: Object, cause: str) -> NoReturn:
        shown = (
            show_value(self.value)
            if self.media == STRATEGIC_PATCH
            else msgspec.json.encode(patched, order="deterministic").decode()
        )
        error = FieldError("patch", ErrorType.INVALID, shown, cause)
        raise errors.invalid("", "", "", [error])


async def read_patch(call: ResourceCall) -> Patching:
    """The patch of a request.

    Raises:
        ApiError: 400, 413 or 422, as the request is wrong.
    """
    media = content_type(call.request)
    body = await read_body(call.request)
    options = parse_write_options(call.query, "PatchOptions", call.user_agent, media)
    strict = options.field_validation != "Ignore"
    try:
        parsed = parse_json(body, strict=strict)
    except gojson.JSONError as exc:
        prefix = "" if media == STRATEGIC_PATCH else "error decoding patch: "
        return Patching(media, None, (), options, errors.bad_request(f"{prefix}{exc}"))
    try:
        value, unknown = read_shape(parsed.value, media, strict=strict)
    except errors.ApiError as exc:
        return Patching(media, None, (), options, exc)
    oddities = [f'duplicate field "{path}"' for path in parsed.duplicates]
    return Patching(media, value, [*oddities, *unknown], options)


def check_patch_type(call: ResourceCall) -> None:
    """Whether the patch is of a type that the kind takes.

    Raises:
        ApiError: 415, it is not.
    """
    dialect = call.kind.dialect
    if content_type(call.request) in dialect.patch_types:
        return
    if dialect.generic_errors:
        raise errors.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    raise errors.unsupported_media_type(dialect.patch_types)


def _converted_name(value: Any) -> str:
    """The type of a value in Go's converter from maps."""
    names = {bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


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
