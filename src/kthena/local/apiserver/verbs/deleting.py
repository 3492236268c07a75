"""`delete` and `deletecollection`."""

from typing import Any

from starlette.responses import Response

from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.content import read_body, require_readable
from kthena.local.apiserver.decoding import parse_body, parse_json, type_meta_problem
from kthena.local.apiserver.dialect import BUILTIN
from kthena.local.apiserver.errors import ApiError, success
from kthena.local.apiserver.mediatypes import JSON
from kthena.local.apiserver.negotiation import negotiate
from kthena.local.apiserver.options import (
    DeleteOptions,
    parse_delete_options,
    parse_list_options,
)
from kthena.local.apiserver.replies import StreamedReply
from kthena.local.apiserver.store import Key
from kthena.local.apiserver.tables import API_VERSION
from kthena.local.apiserver.verbs.admitting import deletion_reviewer
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.verbs.reading import (
    LIST_FORMS,
    list_reply,
    select_page,
    selection_of,
)

_KIND = "DeleteOptions"


async def delete(call: ResourceCall) -> Response:
    """The object of the path, or the beginning of its end."""
    form = call.object_form()
    options = await _read_options(call)
    review = deletion_reviewer(call, options)
    deleted = call.core.registry.delete(call.kind, call.key, options, review)
    waits = not deleted.gone and options.orphan_dependents is False
    status = 202 if waits else 200
    if call.kind.deletion.returns_object or not deleted.gone:
        return call.entry_reply(deleted.entry, form, status)
    resource = call.kind.resource
    return call.value_reply(success(resource, call.path.name, deleted.entry.uid), status)


async def delete_collection(call: ResourceCall) -> Response | StreamedReply:
    """All objects that a list would show."""
    form = negotiate(call.request.headers.get("accept", ""), LIST_FORMS)
    list_options = parse_list_options(call.query)
    selection = selection_of(call, list_options)
    options = await _read_options(call)
    page = select_page(call, list_options, selection)
    for entry in page.entries:
        _delete_one(call, entry.key, options)
    # The API server answers with what it has found, not with what became of it.
    return list_reply(call, page, form)


def _delete_one(call: ResourceCall, key: Key, options: DeleteOptions) -> None:
    """Delete an object that may be gone meanwhile."""
    try:
        call.core.registry.delete(call.kind, key, options, deletion_reviewer(call, options))
    except ApiError as exc:
        if exc.code != 404:
            raise


async def _read_options(call: ResourceCall) -> DeleteOptions:
    """The options of a deletion, from the body where there is one."""
    body = await read_body(call.request)
    if not body:
        return parse_delete_options(call.query, None)
    media = require_readable(call.request, BUILTIN)
    try:
        value = _parse(body, media)
    except gojson.JSONError as exc:
        raise errors.bad_request(f"couldn't get version/kind; json parse error: {exc}") from exc
    problem = type_meta_problem(value)
    if problem:
        raise errors.bad_request(problem)
    value = value or {}
    kind, version = value.get("kind") or _KIND, value.get("apiVersion") or API_VERSION
    if kind != _KIND:
        raise errors.bad_request(
            f'no kind "{kind}" is registered for version "{version}" in scheme '
            '"pkg/runtime/scheme.go:111"'
        )
    return parse_delete_options(call.query, value)


def _parse(body: bytes, media: str) -> Any:
    if media == JSON:
        return parse_json(body, strict=False).value
    return parse_body(body, media, _KIND, strict=False).value
