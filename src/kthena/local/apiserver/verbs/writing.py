"""`create` and `update`, and what they share with `patch`."""

from starlette.responses import Response

from kthena.local.apiserver import errors
from kthena.local.apiserver.admission import drop_repeated_owners
from kthena.local.apiserver.content import read_body, require_readable
from kthena.local.apiserver.decoding import decode_body, parse_body
from kthena.local.apiserver.kinds import Asker
from kthena.local.apiserver.negotiation import Form
from kthena.local.apiserver.options import WriteOptions, parse_write_options
from kthena.local.apiserver.registry import Write, Written
from kthena.local.apiserver.verbs.admitting import reviewer
from kthena.local.apiserver.verbs.call import ResourceCall
from kthena.machinery.objects import Object, name_of, namespace_of


async def create(call: ResourceCall) -> Response:
    """A new object, named by its body."""
    if call.kind.create is not None:
        _, obj = await read_object(call, "CreateOptions")
        answer = call.kind.create(obj, Asker(call.user, call.path.namespace))
        return call.value_reply(call.kind.named(answer), 201)
    form = call.object_form()
    options, obj = await read_object(call, "CreateOptions")
    check_namespace(call, obj)
    write = Write(options, call.warnings, review=reviewer(call))
    write.warn(drop_repeated_owners(obj, is_body=True))
    entry = call.core.registry.create(call.kind, obj, call.path.namespace, write)
    return call.entry_reply(entry, form, 201)


async def update(call: ResourceCall) -> Response:
    """A new version of the object of the path, or of one of its subresources."""
    form = call.object_form()
    options, obj = await read_object(call, "UpdateOptions")
    check_namespace(call, obj)
    check_name(call.path.name, obj)
    write = Write(
        options,
        call.warnings,
        guards_uid=True,
        subresource=call.path.subresource,
        review=reviewer(call),
    )
    write.warn(drop_repeated_owners(obj, is_body=True))
    written = call.core.registry.update(call.kind, call.key, lambda _: obj, call.strategy, write)
    return written_reply(call, written, form)


def written_reply(call: ResourceCall, written: Written, form: Form) -> Response:
    """The reply to a write that may have created the object."""
    return call.entry_reply(written.entry, form, 201 if written.created else 200)


async def read_object(call: ResourceCall, options_kind: str) -> tuple[WriteOptions, Object]:
    """The options of a write and the object of its body.

    Raises:
        ApiError: 400, 413, 415 or 422, as the request is wrong.
    """
    expected = call.representation
    creates = options_kind == "CreateOptions"
    if creates:
        require_readable(call.request, expected.dialect)
    body = await read_body(call.request)
    options = parse_write_options(call.query, options_kind, call.user_agent)
    # Of an update the API server looks at the options first.
    media = require_readable(call.request, expected.dialect)
    strict = options.field_validation != "Ignore"
    parsed = parse_body(body, media, expected.resource.kind, strict=strict)
    validation = options.field_validation
    decoded = decode_body(expected, parsed, body, validation, call.core.catalog)
    call.warnings += decoded.warnings
    return options, decoded.obj


def check_namespace(call: ResourceCall, obj: Object) -> None:
    """Whether the object is of the namespace of the path.

    Raises:
        ApiError: 400, it names another one.
    """
    named = namespace_of(obj)
    if call.path.namespace and named not in ("", call.path.namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def check_name(expected: str, obj: Object) -> None:
    """Whether the object has the name of the path.

    Raises:
        ApiError: 400, it has another one, or none.
    """
    name = name_of(obj)
    if not name:
        raise errors.bad_request(
            f"the name of the object ({expected} based on URL) was undeterminable: name must be "
            "provided"
        )
    if name != expected:
        raise errors.bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({expected})"
        )
