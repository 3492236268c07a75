"""`patch`: JSON Patch, merge patch and, for built-in kinds, strategic merge patch.

The patch is applied to the object as a client of the version sees it; the result is decoded like a
body and written like an update. Server-side apply, which is a patch too, is in `applying`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.content import content_type, read_body
from kthena.local.apiserver.decoding import parse_json
from kthena.local.apiserver.mediatypes import APPLY_PATCH, JSON_PATCH, STRATEGIC_PATCH
from kthena.local.apiserver.options import WriteOptions, parse_write_options
from kthena.local.apiserver.registry import Write
from kthena.local.apiserver.verbs.admitting import reviewer
from kthena.local.apiserver.verbs.applying import apply
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.patchresult import Patched, Reader
from kthena.local.apiserver.verbs.patchshape import read_shape, unreadable
from kthena.local.apiserver.verbs.writing import (
    check_name,
    check_namespace,
    written_reply,
)
from kthena.machinery.objects import Object
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
        reader = Reader(call.kind.representation, call.core.catalog, call.warnings)
        obj = patching.apply(call.kind.named(old), reader)
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
    `spells` is whether numbers in it know how they were written.
    """

    media: str
    value: Any
    oddities: Sequence[str]
    options: WriteOptions
    unreadable: errors.ApiError | None = None
    spells: bool = False

    def apply(self, document: Object, reader: Reader) -> Object:
        """The object that the document is after the patch; warnings are added to the reader's.

        Raises:
            ApiError: the patch does not apply; 422, its result is no object of its kind, or has
                unknown fields and may not.
        """
        if self.unreadable is not None:
            raise self.unreadable
        try:
            patched = self._patched(document, reader.expected.schema)
            # A patch that copies can nest deeper than any body may.
            gojson.check_depth(patched.value)
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
        prefix = "json patch " if self.media == JSON_PATCH else ""
        oddities = [f"{prefix}{oddity}" for oddity in self.oddities]
        return reader.read(patched, oddities, self.options.field_validation)

    def _patched(self, document: Object, schema: Topology) -> Patched:
        if self.media == STRATEGIC_PATCH:
            merged = apply_strategic_merge_patch(document, gojson.unspelled(self.value), schema)
            return Patched(merged.document, rest=merged.rest)
        if self.media == JSON_PATCH:
            value = apply_json_patch(document, self.value)
            if value is None:
                raise errors.unprocessable_patch()
            return Patched(value, spells=self.spells)
        return Patched(apply_merge_patch(document, self.value), spells=self.spells, sorts=True)


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
        return Patching(media, None, (), options, unreadable(str(exc), media, strict=strict))
    try:
        value, unknown = read_shape(parsed.value, media, strict=strict)
    except errors.ApiError as exc:
        return Patching(media, None, (), options, exc)
    oddities = [f'duplicate field "{path}"' for path in parsed.duplicates]
    if parsed.spells and media == JSON_PATCH:
        # A test compares numbers, and not how they are written.
        value = [gojson.unspelled(step) if step.get("op") == "test" else step for step in value]
    return Patching(media, value, [*oddities, *unknown], options, spells=parsed.spells)


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


def _strategic_error(exc: StrategicMergeError) -> errors.ApiError:
    if exc.status == 400:
        return errors.bad_request(str(exc))
    if exc.status == 422:
        return errors.ApiError(422, "Invalid", str(exc), {})
    return errors.internal(str(exc))
