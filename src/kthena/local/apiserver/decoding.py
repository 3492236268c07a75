"""From the body of a write to an object of its kind.

Which kind and version a body may name, what the API answers to one that it cannot read, and what
becomes of unknown and duplicate fields, are as in kube-apiserver's decoders: built-in kinds may leave
their names out, custom resources may not.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kthena.local.apiserver import errors, gojson, protobuf
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.codec import Decoded, DecodeError
from kthena.local.apiserver.kinds import Representation
from kthena.local.apiserver.mediatypes import PROTOBUF, YAML
from kthena.local.apiserver.options import FieldValidation
from kthena.machinery.gotext import quote
from kthena.machinery.objects import Object, copy_json
from kthena.machinery.resources import Resource

_SUMMARY_LENGTH: Final = 30
_META_KINDS: Final = (
    "APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "CreateOptions", "DeleteOptions",
    "GetOptions", "List", "ListOptions", "PatchOptions", "Status", "UpdateOptions", "WatchEvent",
)  # fmt: skip
"""Kinds of requests and replies, which are no resources."""

_OF_METADATA: Final = 'unknown field "metadata.'

_TYPE_META: Final = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
    'Kind string "json:\\"kind,omitempty\\"" }'
)


class Parsed(NamedTuple):
    """A decoded body and the fields that occurred more than once in it.

    `spells` is whether numbers in it still know how they were written (`gojson.Spelled`), and
    `repeated` tells of such fields in the words of Go's YAML decoder, which knows lines and no paths.
    """

    value: Any
    duplicates: list[str]
    spells: bool = False
    repeated: Sequence[str] = ()


def parse_json(body: bytes, *, strict: bool) -> Parsed:
    """A JSON body; `strict` looks for duplicate fields.

    Raises:
        JSONError: it is no JSON, with Go's text.
    """
    value, spells = gojson.decode_spelled(body)
    return Parsed(value, gojson.duplicate_fields(body) if strict else [], spells)


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
    from kthena.machinery.yaml import YamlError

    try:
        if media == YAML:
            return _parse_yaml(body)
        if media == PROTOBUF:
            return Parsed(protobuf.decode(body), [])
        return parse_json(body, strict=strict)
    except YamlError as exc:
        raise _unrecognized(kind, f"yaml: {exc.go_text}", body) from exc
    except protobuf.ProtobufError as exc:
        raise _unrecognized(kind, str(exc), body) from exc
    except gojson.JSONError as exc:
        cause = f"couldn't get version/kind; json parse error: {exc}"
        raise _unrecognized(kind, cause, body) from exc


def _parse_yaml(body: bytes) -> Parsed:
    from kthena.machinery.yaml import load_value

    value, repeated = load_value(body.decode("utf-8", "replace"), "body")
    gojson.check_depth(value)
    return Parsed(value, [], repeated=[f"line {line}: {cause}" for line, cause in repeated])


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
            fields and may not.
    """
    resource = expected.resource
    value = _check_type_meta(expected, parsed.value, body, validation, catalog)
    given = value.get("kind") or resource.kind
    try:
        decoded = decode_json(expected, value, spells=parsed.spells)
    except DecodeError as exc:
        raise _cannot_be(given, resource.version, resource.kind, str(exc)) from exc
    keep_reset(value, decoded.obj)
    problems = [f'duplicate field "{path}"' for path in parsed.duplicates]
    if parsed.repeated and validation == "Strict":
        problems.append("\n  ".join(["yaml: unmarshal errors:", *parsed.repeated]))
    else:
        problems += parsed.repeated
    problems = (
        [*problems, *decoded.problems]
        if expected.dialect.duplicates_first
        else [*decoded.problems, *problems]
    )
    if problems and validation == "Strict":
        cause = f"strict decoding error: {', '.join(problems)}"
        raise _cannot_be(given, resource.version, resource.kind, cause)
    return DecodedBody(decoded.obj, problems if validation == "Warn" else [])


def keep_reset(value: Object, obj: Object) -> None:
    """Keep an empty list of managed fields, which normal form has not: it asks to forget them."""
    metadata = value.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") == []:
        obj["metadata"]["managedFields"] = []


def decode_json(expected: Representation, value: Any, *, spells: bool) -> Decoded:
    """The object of a JSON value; `spells` is whether there are `Spelled` numbers in it.

    A custom resource that calls itself something else is none of the kind's schema, and keeps these
    names in the result: what is to be written is checked for them.

    Raises:
        DecodeError: it is no object of the kind.
    """
    if expected.dialect.names_optional:
        decoded = expected.codec.decode(value)
        return decoded._replace(obj=gojson.unspelled(decoded.obj)) if spells else decoded
    value = gojson.unspelled(value) if spells else value
    resource = expected.resource
    names = {name: value.get(name) or "" for name in ("apiVersion", "kind")}
    decoded = expected.codec.decode(value)
    if (names["apiVersion"], names["kind"]) == (resource.api_version, resource.kind):
        return decoded
    problems = [text for text in decoded.problems if text.startswith(_OF_METADATA)]
    return Decoded({**decoded.obj, **names}, problems)


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
    if expected.dialect.names_optional:
        _check_known(expected.resource, obj, catalog)
    else:
        _check_exact(expected.resource, obj, body, validation)
    return obj


def missing_kind_problem(text: str) -> str:
    """Why a JSON text is no custom resource, of which no kind is known."""
    return f"Object 'Kind' is missing in '{text}'"


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


def _check_known(resource: Resource, value: Object, catalog: Catalog) -> None:
    given, api_version = value.get("kind") or "", value.get("apiVersion") or ""
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
    cause = other_kind_problem(resource, kind, {**value, "apiVersion": version}, catalog)
    raise _cannot_be(kind, version.rpartition("/")[2], resource.kind, cause)


def other_kind_problem(resource: Resource, kind: str, value: Object, catalog: Catalog) -> str:
    """Why an object that is of another kind, or version, is none of a built-in resource.

    Without an `apiVersion` it is one of the types within the API server.
    """
    api_version = value.get("apiVersion") or ""
    group = resource.group.partition(".")[0] or "core"
    # Events of both groups are of one type within the API server.
    internal = "core" if group == "events" else group
    where = f"version {quote(api_version)}"
    version = api_version.rpartition("/")[2]
    if not api_version:
        version, where = group, f"the internal version of group {quote(resource.group)}"
    other = catalog.find_by_kind(api_version or resource.api_version, kind)
    if other is None and not (api_version == "v1" and kind in _META_KINDS):
        return f'no kind "{kind}" is registered for {where} in scheme "pkg/runtime/scheme.go:111"'
    if other is not None and api_version:
        # It is read as what it says it is, and only then found to be the wrong thing.
        try:
            other.codec.decode(copy_json(value))
        except DecodeError as exc:
            return str(exc)
    return f"converting ({version}.{kind}) to ({internal}.{resource.kind}): unknown conversion"


def _check_exact(
    resource: Resource, value: Object, body: bytes, validation: FieldValidation
) -> None:
    kind, version = value.get("kind") or "", value.get("apiVersion") or ""
    if not kind:
        problem = missing_kind_problem(body.decode("utf-8", "replace"))
        if validation == "Ignore":
            raise _cannot_be(resource.kind, resource.version, resource.kind, problem)
        raise _unrecognized(resource.kind, problem, body)
    if version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
