"""From the result of a patch to an object of its kind.

The API server reads the result much as it reads a body. Where it differs, so do the texts here: a
refusal shows the JSON that was read, or what a strategic merge has left of its patch.
"""

import contextlib
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

import msgspec

from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.codec import Decoded, DecodeError
from kthena.local.apiserver.decoding import (
    decode_json,
    keep_reset,
    missing_kind_problem,
    other_kind_problem,
    type_meta_problem,
)
from kthena.local.apiserver.kinds import Representation
from kthena.local.apiserver.options import FieldValidation
from kthena.machinery.fields import ErrorType, FieldError
from kthena.machinery.gotext import show_value
from kthena.machinery.objects import Object, copy_json


class Patched(NamedTuple):
    """A document after its patch.

    `rest` is what a strategic merge has left of the patch; none of other types of patches. `spells` is
    whether there are `Spelled` numbers in the value, and `sorts` whether it was written with the names
    of each object in order before it was read.
    """

    value: Any
    rest: Object | None = None
    spells: bool = False
    sorts: bool = False

    def refuse(self, cause: str) -> NoReturn:
        """Refuse it.

        Raises:
            ApiError: 422, always.
        """
        shown = self.text() if self.rest is None else show_value(self.rest)
        error = FieldError("patch", ErrorType.INVALID, shown, cause)
        raise errors.invalid("", "", "", [error])

    def text(self) -> str:
        """Its JSON."""
        value = gojson.unspelled(self.value) if self.spells else self.value
        return msgspec.json.encode(value, order="deterministic").decode()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads results of patches as objects of one kind; adds warnings to those of the request."""

    expected: Representation
    catalog: Catalog
    warnings: list[str]

    def read(self, patched: Patched, oddities: list[str], validation: FieldValidation) -> Object:
        """The object; `oddities` are what was odd about the fields of the patch.

        Raises:
            ApiError: 422, the result is no object of the kind, or something is odd and may not be.
        """
        strict = validation == "Strict"
        try:
            decoded = self._decode(patched, strict=strict)
        except DecodeError as exc:
            patched.refuse(str(exc))
        problems = [*oddities, *decoded.problems]
        if problems and strict:
            patched.refuse(f"strict decoding error: {', '.join(problems)}")
        if validation == "Warn":
            self.warnings.extend(problems)
        return decoded.obj

    def _decode(self, patched: Patched, *, strict: bool) -> Decoded:
        if patched.rest is not None:
            return self._convert(patched)
        if self._is_internal(patched):
            # Its fields have no names in JSON.
            unknown = sorted(set(patched.value) - {"apiVersion", "kind"})
            return Decoded({"metadata": {}}, [f'unknown field "{name}"' for name in unknown])
        # Whoever is refused is shown the object as it was before fields were dropped from it.
        value = copy_json(patched.value) if strict or patched.sorts else patched.value
        decoded = self._read(value, patched)
        if not patched.value.get("apiVersion"):
            # Of a custom resource it is missed only now.
            cause = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
            raise errors.internal_error(cause)
        keep_reset(patched.value, decoded.obj)
        return decoded

    def _read(self, value: Object, patched: Patched) -> Decoded:
        if not patched.sorts:
            return decode_json(self.expected, value, spells=patched.spells)
        with contextlib.suppress(DecodeError):
            decoded = decode_json(self.expected, value, spells=patched.spells)
            if not decoded.problems:
                return decoded
        # Of several mistakes, those come first whose names do.
        return decode_json(self.expected, _sorted(patched.value), spells=patched.spells)

    def _convert(self, patched: Patched) -> Decoded:
        """The result of a strategic merge, which is read without a look at what it calls itself."""
        for name in ("kind", "apiVersion"):
            given = patched.value.get(name)
            if not isinstance(given, str | None):
                patched.refuse(f"cannot convert {_go_type(given)} to string")
        decoded = self.expected.codec.decode(patched.value, converts=True)
        keep_reset(patched.value, decoded.obj)
        return decoded

    def _is_internal(self, patched: Patched) -> bool:
        """Whether it is read as a type within the API server: a built-in kind without a version.

        Raises:
            ApiError: 422, it is of another kind.
        """
        resource = self.expected.resource
        problem = type_meta_problem(patched.value)
        if problem:
            patched.refuse(problem)
        kind, version = patched.value.get("kind") or "", patched.value.get("apiVersion") or ""
        if self.expected.dialect.names_optional:
            kind = kind or resource.kind
            if kind != resource.kind or version not in ("", resource.api_version):
                patched.refuse(other_kind_problem(resource, kind, patched.value, self.catalog))
            return not version
        if not kind:
            patched.refuse(missing_kind_problem(patched.text()))
        return False


def _sorted(value: Any) -> Any:
    """The value with the names of its objects in order."""
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(entry) for entry in value] if isinstance(value, list) else value


def _go_type(value: Any) -> str:
    """The type of a value in Go's converter from maps."""
    names = {bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")
