"""`get` and `list`."""

import base64
import posixpath
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from kthena.api.kubernetes import EVENTS
from kthena.local.apiserver import errors, gobase64, gojson
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.negotiation import Form, negotiate
from kthena.local.apiserver.options import ListOptions, parse_list_options, parse_uint64
from kthena.local.apiserver.replies import StreamedReply, json_reply, object_reply
from kthena.local.apiserver.store import Entry, RevisionGoneError, Store
from kthena.local.apiserver.tables import API_VERSION, partial_metadata, table
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.local.apiserver.watch import Selection
from kthena.machinery.gotext import quote
from kthena.machinery.objects import Object
from kthena.machinery.selectors import FieldRequirement, FieldSelector, Operator

LIST_FORMS = (Form.TABLE, Form.METADATA_LIST)

_BYTES_AT_ONCE = 256 * 1024
"""Longer lists are sent in pieces of this size, and nowhere stand in memory as a whole."""

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - the version of the format, no secret
_UNCACHED = frozenset((str(EVENTS),))
"""Lists of these come from etcd in a real server, and their tokens look different."""

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)


async def get(call: ResourceCall) -> Response:
    """One object; of the subresource `status` as well."""
    form = call.object_form()
    version = call.query.text("resourceVersion")
    if version:
        _check_reached(parse_version(version), call.core.store)
    return call.entry_reply(call.core.registry.get(call.kind, call.key), form)


async def list_objects(call: ResourceCall) -> Response | StreamedReply:
    """The objects of a collection that the selectors let through, or a page of them."""
    options = parse_list_options(call.query)
    form = negotiate(call.request.headers.get("accept", ""), LIST_FORMS)
    selection = selection_of(call, options)
    return list_reply(call, select_page(call, options, selection), form)


def selection_of(call: ResourceCall, options: ListOptions) -> Selection:
    """What a list or a watch selects, with fields under their stored names.

    Raises:
        ApiError: 400, a field selector names a field that the kind does not offer.
    """
    fields = rename_fields(call.kind, options.fields)
    if call.path.name:
        named = FieldRequirement("metadata.name", Operator.EQUALS, call.path.name)
        fields = FieldSelector((*fields.requirements, named))
    return Selection(call.path.namespace, options.labels, fields)


def rename_fields(kind: Kind, fields: FieldSelector) -> FieldSelector:
    """The selector with the names under which the fields are stored."""
    renamed = []
    for requirement in fields.requirements:
        stored = kind.field_label(requirement.field)
        if stored is None:
            raise errors.bad_request(_unknown_field(kind, requirement.field))
        renamed.append(FieldRequirement(stored, requirement.operator, requirement.value))
    return FieldSelector(tuple(renamed))


def _unknown_field(kind: Kind, name: str) -> str:
    if kind.selectable or kind.field_labels is not None:
        return f"field label not supported: {name}"
    return (
        f'{quote(name)} is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


class _Prefix(NamedTuple):
    """What the keys of a list have in common, and how a token begins that names one of them."""

    path: str
    slash: str


class Page(NamedTuple):
    """A part of a list, with what its metadata says."""

    entries: Sequence[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None


def select_page(call: ResourceCall, options: ListOptions, selection: Selection) -> Page:
    """The entries that a list shows.

    Raises:
        ApiError: 400 for a bad version or token, 410 for one that is too old, 504 for a version
            that is not reached.
    """
    store, bucket = call.core.store, call.kind.bucket
    revision, start = _position(options, store)
    try:
        entries = (
            store.list(bucket, selection.namespace)
            if revision == store.revision
            else store.list_at(bucket, revision, selection.namespace)
        )
    except RevisionGoneError:
        if not start:
            raise errors.expired("The resourceVersion for the provided list is too old.") from None
        raise _expired_token(start) from None
    # A token names the place within what is listed, so that it fits any namespace.
    prefix = _Prefix(
        f"{selection.namespace}/" if selection.namespace else "",
        "" if bucket in _UNCACHED else "/",
    )
    if start:
        entries = [entry for entry in entries if entry.key.path >= prefix.path + start]
    if selection.everything:
        return _cut(entries, options.limit, revision, prefix, counted=True)
    matching = [entry for entry in entries if selection.matches(entry)]
    names_one = any(
        requirement.field == "metadata.name" and requirement.operator is Operator.EQUALS
        for requirement in selection.fields.requirements
    )
    if names_one and not start:
        # It was looked up by its name: nothing can follow.
        return _cut(matching, 0, revision, prefix, counted=False)
    if options.limit and len(matching) == options.limit and matching[-1] is not entries[-1]:
        # Whether what follows is selected is found out only by who asks for it.
        matching.append(entries[-1])
    return _cut(matching, options.limit, revision, prefix, counted=False)


def _cut(
    entries: Sequence[Entry], limit: int, revision: int, prefix: "_Prefix", *, counted: bool
) -> Page:
    if not limit or len(entries) <= limit:
        return Page(entries, revision)
    last = prefix.slash + entries[limit - 1].key.path.removeprefix(prefix.path)
    remaining = len(entries) - limit if counted else None
    return Page(entries[:limit], revision, _encode_token(revision, last), remaining)


def _position(options: ListOptions, store: Store) -> tuple[int, str]:
    """The revision that the list shows, and the key at which it starts."""
    version = options.resource_version
    if options.continue_token:
        if version not in ("", "0"):
            raise errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        revision, start = _decode_token(options.continue_token)
        return (revision if revision > 0 else store.revision), start
    if version in ("", "0"):
        return store.revision, ""
    try:
        revision = parse_version(version)
    except errors.ApiError as exc:
        raise errors.bad_request(f"invalid resource version: {exc}") from exc
    _check_reached(revision, store)
    exact = options.match == "Exact" or (options.limit and not options.match)
    return (revision if exact else store.revision), ""


def _check_reached(revision: int, store: Store) -> None:
    if revision > store.revision:
        raise errors.version_too_large(revision, store.revision)


def parse_version(text: str) -> int:
    """The `resourceVersion` of a read.

    Raises:
        ApiError: 500, it is no number, as the API answers.
    """
    try:
        return parse_uint64(text)
    except ValueError as exc:
        detail = f"resourceVersion: Invalid value: {quote(text)}: {exc}"
        raise errors.internal(detail) from exc


def _encode_token(revision: int, last: str) -> str:
    """A token for the keys behind `last`; the zero byte makes the smallest key that is larger."""
    value = {"v": _TOKEN_VERSION, "rv": revision, "start": f"{last}\0"}
    return base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")


def _decode_token(token: str) -> tuple[int, str]:
    prefix = "invalid continue token: continue key is not valid"
    try:
        value = gojson.decode(gobase64.decode_raw_url(token)) or {}
    except ValueError as exc:
        raise errors.bad_request(f"{prefix}: {exc}") from exc
    if not isinstance(value, dict):
        raise errors.bad_request(f"{prefix}: the token is no JSON object")
    version, revision, start = value.get("v") or "", value.get("rv"), value.get("start")
    if version != _TOKEN_VERSION:
        cause = f"server does not recognize this encoded version {version}"
        raise errors.bad_request(f"{prefix}: {cause}")
    if not isinstance(revision, int) or not revision:
        cause = f"incorrect encoded start resourceVersion (version {_TOKEN_VERSION})"
        raise errors.bad_request(f"{prefix}: {cause}")
    if not isinstance(start, str) or not start:
        raise errors.bad_request(f"{prefix}: encoded start key empty (version {_TOKEN_VERSION})")
    # A key of this server ends in a zero byte, and is a clean path before it.
    if posixpath.normpath(f"/{start.lstrip('/')}") != f"/{start.removeprefix('/')}":
        raise errors.bad_request(f"{prefix}: {start}")
    return revision, start.removeprefix("/")


def _expired_token(start: str) -> errors.ApiError:
    error = errors.expired(_TOO_OLD)
    value = {"v": _TOKEN_VERSION, "rv": -1, "start": f"/{start}"}
    token = base64.urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
    error.metadata = {"continue": token}
    return error


def list_reply(call: ResourceCall, page: Page, form: Form) -> Response | StreamedReply:
    """A reply with a page of a list."""
    metadata: Object = {"resourceVersion": str(page.revision)}
    if page.token or (call.kind.dialect.always_continues and form is Form.OBJECT):
        metadata["continue"] = page.token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    kind = call.kind
    if form is Form.TABLE:
        rows = table(kind, page.entries, call.include, call.core.config.now())
        rows["metadata"] = metadata
        return object_reply(rows, warnings=call.warnings)
    if form is Form.METADATA_LIST:
        items = [partial_metadata(kind.read(entry)) for entry in page.entries]
        head = {"kind": form.value, "apiVersion": API_VERSION, "metadata": metadata}
        # Go writes a list that nothing was appended to as null.
        return object_reply({**head, "items": items or None}, warnings=call.warnings)
    pieces = _encode_list(kind, metadata, page.entries)
    if sum(len(entry.data) for entry in page.entries) > _BYTES_AT_ONCE:
        return StreamedReply(pieces, call.warnings)
    return json_reply(b"".join(pieces), warnings=call.warnings)


def _encode_list(kind: Kind, metadata: Object, entries: Sequence[Entry]) -> Iterator[bytes]:
    """A list put together from the stored bytes, in pieces that are worth a send each."""
    head = msgspec.json.encode(
        {
            "kind": kind.list_kind_name,
            "apiVersion": kind.resource.api_version,
            "metadata": metadata,
        }
    )
    parts, size = [head[:-1] + b',"items":['], 0
    for index, entry in enumerate(entries):
        if index:
            parts.append(b",")
        parts.append(kind.encoded_item(entry))
        size += len(entry.data)
        if size >= _BYTES_AT_ONCE:
            yield b"".join(parts)
            parts, size = [], 0
    yield b"".join((*parts, b"]}"))
