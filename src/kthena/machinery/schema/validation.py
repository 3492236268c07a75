"""Validation of values against a structural schema, with the texts of kube-openapi's validator.

Within one node the errors come in its order: type, `anyOf`, `oneOf`, `allOf`, `not`, string, format,
number, items, enum, members. Between members the server's order is random; here it is that of the
value. On update, errors of a node whose value is unchanged are dropped (ratcheting), except inside
`anyOf`, `oneOf`, `allOf` and `not`.
"""

import math
from typing import Any

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, child
from kthena.machinery.gotext import format_float, format_json, quote
from kthena.machinery.regexp import compile_regexp
from kthena.machinery.schema.correlation import Correlated
from kthena.machinery.schema.formats import find_format
from kthena.machinery.schema.structural import (
    UNSET,
    StructuralSchema,
    UnsetType,
    ValueValidation,
)

NO_FIELD = "<nil>"
"""The path of errors that name no field, as the API server prints it."""

_TYPE_META = frozenset({"apiVersion", "kind"})
_INT_OR_STRING = ("integer", "string")
_EXACT_TYPES = {"string": str, "boolean": bool, "integer": int, "object": dict, "array": list}
_SCALAR_TYPES = {"string": str, "boolean": bool, "integer": int}
"""Types whose values need no further look where nothing restricts them."""
_MAX_JSON_INTEGER = float(2**53 - 1)
_EPSILON = 1e-9
_INT64_LIMIT = 2**63


def validate(
    value: Any, schema: StructuralSchema, path: str = "", old: Any | UnsetType = UNSET
) -> ErrorList:
    """What is wrong with a value; with `old`, only what is wrong and not unchanged.

    `path` is the field that holds the value, empty for a whole resource. As on the server, the path
    in an error's text is relative to it. Integers are those of 64 bits, as `copy_json` leaves them.
    """
    validator = _Validator(path)
    errors: ErrorList = []
    validator.check(schema, value, "", errors)
    if errors and old is not UNSET:
        errors = []
        validator.check(schema, value, "", errors, Correlated(value, old, schema))
    return _distinct(errors)


def _distinct(errors: ErrorList) -> ErrorList:
    """The server reports equal texts once."""
    if len(errors) < 2:
        return errors
    return list({(error.path, error.type, error.detail): error for error in errors}.values())


class _Validator:
    """Checks values below one field. Names are paths relative to it, as the server's texts have them."""

    def __init__(self, path: str) -> None:
        self._path = path

    def check(
        self,
        schema: StructuralSchema,
        value: Any,
        name: str,
        errors: ErrorList,
        correlated: Correlated | None = None,
    ) -> None:
        """Appends what is wrong with the value to `errors`."""
        start = len(errors)
        kind = type(value)
        if value is None or kind is not _EXACT_TYPES.get(schema.type):
            errors += self._check_type(schema, value, name)
        limits = schema.value
        if limits is not None and value is not None:
            if limits.has_junctors:
                self._check_junctors(limits, value, name, errors)
            if kind is str:
                self._check_string(limits, value, name, errors)
            elif kind is int or kind is float:
                self._check_number(limits, value, name, errors)
        if kind is list:
            self._check_array(schema, value, name, errors, correlated)
        if limits is not None and limits.enum and not _in_enum(value, limits.enum):
            errors.append(self._enum_error(limits.enum, value, name))
        if kind is dict:
            self._check_object(schema, value, name, errors, correlated)
        if len(errors) > start and correlated is not None and correlated.unchanged():
            del errors[start:]

    def _error(self, name: str, kind: ErrorType, value: Any, detail: str) -> FieldError:
        name = name.removeprefix(".")
        return FieldError(child(self._path, name) if name else self._field, kind, value, detail)

    @property
    def _field(self) -> str:
        return self._path or NO_FIELD

    def _invalid(self, name: str, value: Any, detail: str) -> FieldError:
        return self._error(name, ErrorType.INVALID, value, f"{name} in body {detail}")

    def _check_type(self, schema: StructuralSchema, value: Any, name: str) -> ErrorList:
        """The type, with the liberties that kube-openapi takes where a format is given."""
        types = _INT_OR_STRING if schema.int_or_string else (schema.type,) if schema.type else ()
        if value is None:
            if types and not schema.nullable:
                return self._type_error(name, ",".join(types), "null")
            return []
        kind, kind_format = _describe(value)
        if kind in types or _is_number_of(types, kind, value):
            return []
        expected = ",".join(types)
        if schema.format and find_format(schema.format) is not None:
            if kind not in ("string", "array"):
                expected, kind = schema.format, kind_format
            elif "number" not in types and "integer" not in types:
                return []
        return self._type_error(name, expected, kind) if expected else []

    def _type_error(self, name: str, expected: str, actual: str) -> ErrorList:
        detail = f"{name} in body must be of type {expected}: {quote(actual)}"
        return [self._error(name, ErrorType.TYPE_INVALID, actual, detail)]

    def _enum_error(self, enum: tuple[Any, ...], value: Any, name: str) -> FieldError:
        allowed = (quote(v if isinstance(v, str) else format_json(v)) for v in enum)
        return self._error(
            name, ErrorType.NOT_SUPPORTED, value, f"supported values: {', '.join(allowed)}"
        )

    def _check_string(
        self, limits: ValueValidation, value: str, name: str, errors: ErrorList
    ) -> None:
        """The first of length and pattern that fails, and the format."""
        if limits.max_length is not None and len(value) > limits.max_length:
            bytes_ = "byte" if limits.max_length == 1 else "bytes"
            detail = f"may not be more than {limits.max_length} {bytes_}"
            errors.append(self._error(name, ErrorType.TOO_LONG, "", detail))
        elif limits.min_length is not None and len(value) < limits.min_length:
            detail = f"should be at least {limits.min_length} chars long"
            errors.append(self._invalid(name, value, detail))
        elif limits.pattern and not compile_regexp(limits.pattern).search(value):
            errors.append(self._invalid(name, value, f"should match '{limits.pattern}'"))
        if limits.format:
            matches = find_format(limits.format)
            if matches is not None and not matches(value):
                detail = f"{name} in body must be of type {limits.format}: {quote(value)}"
                errors.append(self._error(name, ErrorType.TYPE_INVALID, value, detail))

    def _check_number(
        self, limits: ValueValidation, value: float, name: str, errors: ErrorList
    ) -> None:
        """Multiples and bounds; for an integer, bounds lose their fractions as in Go."""
        if limits.multiple_of is not None:
            factor = _as_bound(limits.multiple_of, value)
            if factor <= 0:
                detail = f"factor MultipleOf declared for {name} must be positive: {_text(factor)}"
                errors.append(self._error(name, ErrorType.INVALID, factor, detail))
            elif not _is_multiple(value, factor):
                detail = f"should be a multiple of {_text(factor)}"
                errors.append(self._invalid(name, value, detail))
        if limits.minimum is not None:
            bound = _as_bound(limits.minimum, value)
            if value < bound or (limits.exclusive_minimum and value == bound):
                words = "greater than" if limits.exclusive_minimum else "greater than or equal to"
                errors.append(self._invalid(name, value, f"should be {words} {_text(bound)}"))
        if limits.maximum is not None:
            bound = _as_bound(limits.maximum, value)
            if value > bound or (limits.exclusive_maximum and value == bound):
                words = "less than" if limits.exclusive_maximum else "less than or equal to"
                errors.append(self._invalid(name, value, f"should be {words} {_text(bound)}"))

    def _check_array(
        self,
        schema: StructuralSchema,
        value: list[Any],
        name: str,
        errors: ErrorList,
        correlated: Correlated | None,
    ) -> None:
        items = schema.items
        if items is not None:
            for index, entry in enumerate(value):
                if items.value is not None or type(entry) is not _SCALAR_TYPES.get(items.type):
                    below = None if correlated is None else correlated.index(index)
                    self.check(items, entry, f"{name}[{index}]", errors, below)
        if schema.value is not None:
            self._check_size(
                len(value),
                (schema.value.min_items, schema.value.max_items, "items"),
                name,
                errors,
            )

    def _check_size(
        self, size: int, limits: tuple[int | None, int | None, str], name: str, errors: ErrorList
    ) -> None:
        minimum, maximum, noun = limits
        if minimum is not None and size < minimum:
            errors.append(self._invalid(name, size, f"should have at least {minimum} {noun}"))
        if maximum is not None and size > maximum:
            items = "item" if maximum == 1 else "items"
            detail = f"must have at most {maximum} {items}"
            errors.append(self._error(name, ErrorType.TOO_MANY, size, detail))

    def _check_object(
        self,
        schema: StructuralSchema,
        value: dict[str, Any],
        name: str,
        errors: ErrorList,
        correlated: Correlated | None,
    ) -> None:
        limits = schema.value
        if limits is not None:
            bounds = (limits.min_properties, limits.max_properties, "properties")
            self._check_size(len(value), bounds, name, errors)
        if schema.additional_properties is not None:
            self._check_additional(schema, value, name, errors, correlated)
        for key, entry in value.items():
            below = schema.properties.get(key)
            if below is None:
                continue
            if _is_plain(below, entry):
                continue
            old = None if correlated is None else correlated.key(key)
            if not name and key in _TYPE_META:
                # Old and new are converted to the same version, so these never count as unchanged.
                old = None
            self.check(below, entry, f"{name}.{key}" if name else key, errors, old)
        if limits is not None:
            errors.extend(
                self._error(f"{name}.{key}", ErrorType.REQUIRED, "", "")
                for key in limits.required
                if key not in value
            )

    def _check_additional(
        self,
        schema: StructuralSchema,
        value: dict[str, Any],
        name: str,
        errors: ErrorList,
        correlated: Correlated | None,
    ) -> None:
        below = schema.additional_schema
        for key, entry in value.items():
            if key in schema.properties:
                continue
            if below is not None:
                old = None if correlated is None else correlated.key(key)
                self.check(below, entry, f"{name}.{key}", errors, old)
            elif not schema.additional_properties:
                detail = f"{name}.{key} in body is a forbidden property"
                errors.append(self._error(name, ErrorType.INVALID, key, detail))

    def _check_junctors(
        self, limits: ValueValidation, value: Any, name: str, errors: ErrorList
    ) -> None:
        if limits.any_of and not any(_is_plain(nested, value) for nested in limits.any_of):
            failures = self._failures(limits.any_of, value, name)
            if all(failures):
                errors.append(self._junctor_error(name, "at least one schema (anyOf)"))
                errors += failures[_closest(limits.any_of, value, self)]
        if limits.one_of:
            failures = self._failures(limits.one_of, value, name)
            valid = sum(not failure for failure in failures)
            if valid != 1:
                found = f"Found {valid} valid alternatives" if valid else "Found none valid"
                detail = f"one and only one schema (oneOf). {found}"
                errors.append(self._junctor_error(name, detail))
            if not valid:
                errors += failures[_closest(limits.one_of, value, self)]
        if limits.all_of:
            failures = self._failures(limits.all_of, value, name)
            for failure in failures:
                errors += failure
            if any(failures):
                none = ". None validated" if all(failures) else ""
                errors.append(self._junctor_error(name, f"all the schemas (allOf){none}"))
        if limits.not_ is not None and not self._failures((limits.not_,), value, name)[0]:
            detail = f"{quote(name)} must not validate the schema (not)"
            errors.append(FieldError(self._field, ErrorType.INVALID, "", detail))

    def _junctor_error(self, name: str, detail: str) -> FieldError:
        """Errors of junctors name the field in the text only."""
        detail = f"{quote(name)} must validate {detail}"
        return FieldError(self._field, ErrorType.INVALID, "", detail)

    def _failures(
        self, alternatives: tuple[StructuralSchema, ...], value: Any, name: str
    ) -> list[ErrorList]:
        failures = []
        for alternative in alternatives:
            errors: ErrorList = []
            self.check(alternative, value, name, errors)
            failures.append(errors)
        return failures

    def accepts_type(self, schema: StructuralSchema, value: Any) -> bool:
        """Whether the type alone is right."""
        return not self._check_type(schema, value, "")

    def accepts(self, schema: StructuralSchema, value: Any) -> bool:
        """Whether nothing is wrong."""
        return not self._failures((schema,), value, "")[0]


def _is_plain(schema: StructuralSchema, value: Any) -> bool:
    """Whether the type alone makes the value valid: a quick answer for most."""
    return schema.value is None and type(value) is _SCALAR_TYPES.get(schema.type)


def _closest(alternatives: tuple[StructuralSchema, ...], value: Any, validator: _Validator) -> int:
    """The alternative whose errors the server reports: the first one that passed most checks."""
    if len(alternatives) == 1:
        return 0
    counts = [_passed_checks(alternative, value, validator) for alternative in alternatives]
    return counts.index(max(counts))


def _passed_checks(schema: StructuralSchema, value: Any, validator: _Validator) -> int:
    """kube-openapi's `MatchCount`: checks that apply count, and more so a type that is right."""
    typed = validator.accepts_type(schema, value)
    if value is None:
        return int(typed)
    limits = schema.value
    has_format = bool(schema.format) and find_format(schema.format) is not None
    count = 4  # junctors (counted twice), enum, and the node itself
    if schema.type or schema.int_or_string or has_format:
        count += 1 + typed
    if limits is not None:
        count += _passed_junctor_checks(limits, value, validator)
    if type(value) is str:
        return count + 1 + has_format
    if type(value) in (int, float):
        return count + 2
    return count + _passed_member_checks(schema, value, validator)


def _passed_member_checks(schema: StructuralSchema, value: Any, validator: _Validator) -> int:
    count = 0
    if type(value) is list:
        count = 2
        if schema.items is not None:
            count += sum(_passed_checks(schema.items, entry, validator) for entry in value)
    elif type(value) is dict:
        count = 1
        for key, entry in value.items():
            below = schema.child(key)
            if below is not None:
                count += _passed_checks(below, entry, validator)
    return count


def _passed_junctor_checks(limits: ValueValidation, value: Any, validator: _Validator) -> int:
    count = sum(_passed_checks(nested, value, validator) for nested in limits.all_of)
    for alternatives in (limits.any_of, limits.one_of):
        if not alternatives:
            continue
        valid = [nested for nested in alternatives if validator.accepts(nested, value)]
        counted = valid[:1] or alternatives
        if alternatives is limits.any_of or len(valid) < 2:
            count += max(_passed_checks(nested, value, validator) for nested in counted)
    return count


def _describe(value: Any) -> tuple[str, str]:
    """The JSON type of a value, and the format that the server names for it."""
    if isinstance(value, bool):
        return "boolean", ""
    if isinstance(value, int):
        if -_INT64_LIMIT <= value < _INT64_LIMIT:
            return "integer", "int64"
        return "number", "float64"
    if isinstance(value, float):
        return "number", "float64"
    if isinstance(value, str):
        return "string", ""
    return ("array", "") if isinstance(value, list) else ("object", "")


def _is_number_of(types: tuple[str, ...], kind: str, value: Any) -> bool:
    if kind == "integer":
        return "number" in types
    return kind == "number" and "integer" in types and _is_json_integer(value)


def _is_json_integer(value: float) -> bool:
    """Whether a number stands for an integer that JSON can carry, within Go-openapi's tolerance."""
    if not math.isfinite(value) or abs(value) > _MAX_JSON_INTEGER:
        return False
    whole = math.trunc(value)
    if value == whole:
        return True
    return value > 1 and (value - whole) / (value + whole) < _EPSILON


def _is_multiple(value: float, factor: float) -> bool:
    if type(value) is int:
        return value % factor == 0
    return _is_json_integer(1 / factor * value if factor < 1 else value / factor)


def _as_bound(limit: float, value: float) -> float:
    """A limit as it is compared to a value: of its type."""
    return _to_int64(limit) if type(value) is int else float(limit)


def _to_int64(number: float) -> int:
    """Go's conversion on 64-bit machines: towards zero, the lowest integer beyond the range."""
    whole = math.trunc(number)
    return whole if -_INT64_LIMIT <= whole < _INT64_LIMIT else -_INT64_LIMIT


def _text(number: float) -> str:
    return str(number) if type(number) is int else format_float(number)


def _in_enum(value: Any, enum: tuple[Any, ...]) -> bool:
    """Equality after converting the value to the type of the enumerated one; null is never in."""
    if value is None:
        return False
    for allowed in enum:
        if type(value) in (int, float) and type(allowed) in (int, float):
            if (_to_int64(value) if type(allowed) is int else float(value)) == allowed:
                return True
        elif type(value) is type(allowed) and value == allowed:
            return True
    return False
