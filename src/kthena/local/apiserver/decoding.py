"""From the body of a write to an object of its kind.

Which kind and version a body may name, what the API answers to one that it cannot read, and what
becomes of unknown and duplicate fields, are as in kube-apiserver's decoders: built-in kinds may leave
their names out, custom resources may not.
"""

from typing import Any, Final, NamedTuple

from kthena.local.apiserver import errors, gojson, protobuf
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.codec import Decoded, DecodeError
from kthena.local.apiserver.kinds import Representation
from kthena.local.apiserver.mediatypes import PROTOBUF, YAML
from kthena.local.apiserver.options import FieldValidation
from kthena.machinery.gotext import quote
from kthena.machinery.objects import Object, name_of
from kthena.machinery.resources import Resource

_SUMMARY_LENGTH: Final = 30
_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


class Parsed(NamedTuple):
    """A decoded body and the fields that occurred more than once in it."""

    value: Any
    duplicates: list[str]


def parse_json(body: bytes, *, strict: bool) -> Parsed:
    """A JSON body; `strict` looks for duplicate fields.

    Raises:
        JSONError: it is no JSON, with Go's text.
    """
    value = gojson.decode(body)
    return Parsed(value, gojson.duplicate_fields(body) if strict else [])


class DecodedBody(NamedTuple):
    """The object of a body, and warnings for the client."""

    obj: Object
    warnings: list[str]


def summarize(body: bytes) -> str:
    """The beginning of a body as errors show it: JSON objects as text, anything else in hex."""
    if not body:
        return "<empty>"
    head, tail = body[:_SUMMARY_LENGTH], " ..." if len(body) > _SUMMARY_LENGTH else ""
    shown = head.decode("utf-8", "replace") if body.startswith(b"{") else head.hex()
    return shown + tail


def parse_body(body: bytes, media: str, kind: str, *, strict: bool) -> Parsed:
    """The JSON value of a body that is to be an object of `kind`.

    Raises:
        ApiError: 400, it is none.
    """
    try:
        if media == YAML:
            return _parse_yaml(body)
        if media == PROTOBUF:
            return Parsed(protobuf.decode(body), [])
        return parse_json(body, strict=strict)
    except protobuf.ProtobufError as exc:
        raise _unrecognized(kind, str(exc), body) from exc
    except gojson.JSONError as exc:
        cause = f"couldn't get version/kind; json parse error: {exc}"
        raise _unrecognized(kind, cause, body) from exc


def _parse_yaml(body: bytes) -> Parsed:
    from kthena.machinery.yaml import YamlError, load_documents

    try:
        documents = load_documents(body.decode("utf-8", "replace"), "body")
    except YamlError as exc:
        raise gojson.JSONError(str(exc)) from exc
    if len(documents) != 1:
        raise gojson.JSONError("the body is not one YAML document")
    value = documents[0].object
    gojson.check_depth(value)
    return Parsed(value, [])


def _unrecognized(kind: str, cause: str, body: bytes) -> errors.ApiError:
    return errors.bad_request(
        f"the object provided is unrecognized (must be of type {kind}): {cause} ({summarize(body)})"
    )


def _cannot_be(given: str, version: str, expected: str, cause: str) -> errors.ApiError:
    return errors.bad_request(
        f"{given} in version {quote(version)} cannot be handled as a {expected}: {cause}"
    )


def decode_body(
    expected: Representation,
    parsed: Parsed,
    body: bytes,
    validation: FieldValidation,
    catalog: Catalog,
) -> DecodedBody:
    """The object that a parsed body is.

    Raises:
        ApiError: 400, the body is no object of the expected kind, or has unknown or duplicate
            fields and may not; 422, a custom resource of another kind.
    """
    resource = expected.resource
    value = _check_type_meta(expected, parsed.value, body, validation, catalog)
    decoded = _decode(expected, value)
    keep_reset(value, decoded.obj)
    problems = [f'duplicate field "{path}"' for path in parsed.duplicates]
    problems = (
        [*problems, *decoded.problems]
        if expected.dialect.duplicates_first
        else [*decoded.problems, *problems]
    )
    if problems and validation == "Strict":
        cause = f"strict decoding error: {', '.join(problems)}"
        raise _cannot_be(resource.kind, resource.version, resource.kind, cause)
    return DecodedBody(decoded.obj, problems if validation == "Warn" else [])


def keep_reset(value: Object, obj: Object) -> None:
    """Keep an empty list of managed fields, which normal form has not: it asks to forget them."""
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        obj["metadata"]["managedFields"] = []


def _decode(expected: Representation, value: Any) -> Decoded:
    resource = expected.resource
    try:
        return expected.codec.decode(value)
    except DecodeError as exc:
        raise _cannot_be(resource.kind, resource.version, resource.kind, str(exc)) from exc


def _check_type_meta(
    expected: Representation,
    value: Any,
    body: bytes,
    validation: FieldValidation,
    catalog: Catalog,
) -> Object:
    """The body as an object, whose `apiVersion` and `kind` are right or left out."""
    kind = expected.resource.kind
    if value is None and expected.dialect.names_optional:
        return {}
    problem = type_meta_problem(value)
    if problem:
        raise _unrecognized(kind, problem, body)
    obj: Object = value or {}
    given, api_version = obj.get("kind") or "", obj.get("apiVersion") or ""
    if expected.dialect.names_optional:
        _check_known(expected.resource, given, api_version, catalog)
    else:
        _check_exact(expected.resource, obj, body, validation)
    return obj


def type_meta_problem(value: Any) -> str:
    """Why the `apiVersion` and `kind` of a JSON value cannot be read; empty where they can."""
    prefix = "couldn't get version/kind; json parse error: json: cannot unmarshal"
    if value is None:
        return ""
    if not isinstance(value, dict):
        return f"{prefix} {_describe(value)} into Go value of type {_TYPE_META}"
    for name, given in value.items():
        if name in ("kind", "apiVersion") and not isinstance(given, str | None):
            return f"{prefix} {_describe(given)} into Go struct field .{name} of type string"
    version = value.get("apiVersion") or ""
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else ""


def _scalar_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def _describe(value: Any) -> str:
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    return _scalar_name(value)


def _check_known(resource: Resource, given: str, api_version: str, catalog: Catalog) -> None:
    kind, expected = given or resource.kind, resource.api_version
    version = api_version or expected
    if (kind, version) == (resource.kind, expected):
        return
    other = catalog.find_by_kind(version, kind)
    if other is not None and other.resource.kind == resource.kind:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({expected})"
        )
    cause = (
        f'no kind "{kind}" is registered for version "{version}" in scheme '
        f'"pkg/runtime/scheme.go:111"'
    )
    if other is not None or (kind, version) == ("List", "v1"):
        group = resource.group.partition(".")[0] or "core"
        cause = (
            f"converting ({version.rpartition('/')[2]}.{kind}) to ({group}.{resource.kind}): unknown "
            "conversion"
        )
    raise _cannot_be(kind, version.rpartition("/")[2], resource.kind, cause)


def _check_exact(
    resource: Resource, value: Object, body: bytes, validation: FieldValidation
) -> None:
    kind, version = value.get("kind") or "", value.get("apiVersion") or ""
    if not kind:
        text = body.decode("utf-8", "replace")
        problem = f"Object 'Kind' is missing in '{text}'"
        if validation == "Ignore":
            raise _cannot_be(resource.kind, resource.version, resource.kind, problem)
        raise _unrecognized(resource.kind, problem, body)
    if version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if kind != resource.kind:
        meta = value.get("metadata")
        name = name_of(value) if isinstance(meta, dict) else ""
        raise errors.wrong_type(resource, value, name)
