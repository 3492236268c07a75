"""The schema of a custom resource, as the API server applies it to writes.

Objects that come in are pruned, rid of nulls, and defaulted; then the schema, embedded resources,
lists and rules are checked, in this order. Rules are skipped while errors stand that they could
trip over. What is given is never changed. Metadata of the object itself is the caller's business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kthena.machinery.cel.rules import RuleSet, compile_rules
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError, child
from kthena.machinery.objects import Object
from kthena.machinery.schema.correlation import Correlated
from kthena.machinery.schema.default_values import check_defaults
from kthena.machinery.schema.defaulting import apply_defaults, copy_json, drop_nulls
from kthena.machinery.schema.definition import DefinitionChecker, check_root_with_status
from kthena.machinery.schema.embedded import check_embedded, coerce_embedded
from kthena.machinery.schema.invariants import check_invariants
from kthena.machinery.schema.listtypes import check_list_types
from kthena.machinery.schema.pruning import prune
from kthena.machinery.schema.scale import ScalePaths, check_scale
from kthena.machinery.schema.structural import SchemaError, StructuralSchema, decode
from kthena.machinery.schema.validation import NO_FIELD, validate

SINGLE_VERSION_PATH = "spec.validation.openAPIV3Schema"
"""Where the API server sees the schema of a CRD whose versions all have the same one."""

_BLOCKING = frozenset(
    {
        ErrorType.NOT_SUPPORTED,
        ErrorType.REQUIRED,
        ErrorType.TOO_LONG,
        ErrorType.TOO_MANY,
        ErrorType.TYPE_INVALID,
    }
)
_SKIPPED_RULES = FieldError(
    NO_FIELD,
    ErrorType.INVALID,
    None,
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)


@dataclass(frozen=True, slots=True)
class Admitted:
    """An object after admission.

    `pruned` are the paths of unknown fields, as in `unknown field "spec.x"`. `object` may be stored
    if `errors` is empty. `warnings` are failures of rules that are tolerated as unchanged.
    """

    object: Object
    pruned: list[str]
    errors: ErrorList
    warnings: list[str]


class CustomResourceSchema:
    """A compiled schema with its rules; admits objects of one version of a kind."""

    def __init__(
        self,
        open_api_v3_schema: Mapping[str, Any],
        *,
        path: str = SINGLE_VERSION_PATH,
        status_subresource: bool = False,
        scale: ScalePaths | None = None,
    ) -> None:
        """Compiles everything, so that whatever is wrong shows when the CRD is created.

        Raises:
            SchemaError: the API server would refuse the schema or one of its rules.
        """
        schema, errors, rules = _compile(
            open_api_v3_schema, path, status_subresource=status_subresource
        )
        if errors:
            raise SchemaError(errors)
        self.schema = schema
        self.rules = rules
        self._has_status = status_subresource
        self._scale = scale

    def default(self, obj: Object) -> Object:
        """A stored object as it is read: pruned and defaulted by this schema."""
        return self._decode(obj, is_read=False)[0]

    def admit_create(
        self, obj: Object, found: Sequence[FieldError] = (), *, is_read: bool = False
    ) -> Admitted:
        """Admits a new object. With a status subresource, its status is dropped.

        `found` are errors of its metadata: they come first, and may keep rules from being checked.
        What was read already (`is_read`) is neither pruned nor defaulted.
        """
        new, pruned = self._decode(obj, is_read=is_read)
        if self._has_status:
            new.pop("status", None)
        errors = [*found, *validate(new, self.schema)]
        errors += check_scale(new, self._scale)
        errors += check_embedded(new, self.schema)
        errors += check_list_types(new, self.schema)
        return self._with_rules(new, None, pruned, errors)

    def admit_update(
        self, obj: Object, old: Object, found: Sequence[FieldError] = (), *, is_read: bool = False
    ) -> Admitted:
        """Admits a changed object; `old` is the stored one, as `default` gives it.

        With a status subresource, the status stays that of `old`. The rest is as on creation.
        """
        new, pruned = self._decode(obj, is_read=is_read)
        if self._has_status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = copy_json(old["status"])
        errors = [*found, *validate(new, self.schema, old=old)]
        errors += check_scale(new, self._scale)
        errors += check_embedded(new, self.schema)
        if not check_list_types(old, self.schema):
            errors += check_list_types(new, self.schema)
        return self._with_rules(new, old, pruned, errors)

    def admit_status_update(
        self, obj: Object, old: Object, found: Sequence[FieldError] = (), *, is_read: bool = False
    ) -> Admitted:
        """Admits a write to the status subresource: the old object with the status of the new one.

        Of the schema only that of the status counts, but all rules run; metadata is that of `old`.
        The rest is as on creation.
        """
        decoded, pruned = self._decode(obj, is_read=is_read)
        new = copy_json(old)
        new.pop("status", None)
        errors: ErrorList = list(found)
        if "status" in decoded:
            new["status"] = decoded["status"]
            status_schema = self.schema.properties.get("status")
            if status_schema is not None:
                errors += validate(new["status"], status_schema, "status", old.get("status"))
        errors += check_scale(new, self._scale, status_only=True)
        list_errors = check_list_types(new, self.schema)
        if list_errors and not check_list_types(old, self.schema):
            errors += list_errors
        return self._with_rules(new, old, pruned, errors)

    def _decode(self, obj: Object, *, is_read: bool) -> tuple[Object, list[str]]:
        if is_read:
            return dict(obj), []
        new = copy_json(obj)
        pruned = prune(new, self.schema)
        drop_nulls(new, self.schema)
        pruned += coerce_embedded(new, self.schema)
        apply_defaults(new, self.schema)
        return new, pruned

    def _with_rules(
        self, new: Object, old: Object | None, pruned: list[str], errors: ErrorList
    ) -> Admitted:
        if not self.rules:
            return Admitted(new, pruned, errors, [])
        if any(error.type in _BLOCKING for error in errors):
            return Admitted(new, pruned, [*errors, _SKIPPED_RULES], [])
        ratchet = None if old is None else Correlated(new, old, self.schema)
        findings = self.rules.validate(new, old, ratchet=ratchet)
        return Admitted(new, pruned, errors + findings.errors, findings.warnings)


def _compile(
    raw: Mapping[str, Any], path: str, *, status_subresource: bool
) -> tuple[StructuralSchema, ErrorList, RuleSet]:
    """A tree, what is wrong with it in the server's order, and its rules as far as they compile."""
    schema = decode(raw, path)
    rules = RuleSet(None)
    errors: ErrorList = check_root_with_status(raw, path) if status_subresource else []
    if schema.nullable:
        detail = "nullable cannot be true at the root"
        errors.append(FieldError(child(path, "nullable"), ErrorType.FORBIDDEN, "", detail))
    checker = DefinitionChecker()
    checker.check_root(raw, schema, path)
    if checker.unsupported:
        errors += checker.errors
        if not errors:
            errors.append(FieldError(path, ErrorType.INVALID, "", checker.unsupported))
        return schema, errors, rules
    structural_errors = check_invariants(schema, path)
    structural_errors = structural_errors or check_defaults(schema, path, _check_default_rules)
    errors += structural_errors + checker.errors
    if not structural_errors:
        try:
            rules = compile_rules(schema, path=path, faulty=checker.faulty)
        except SchemaError as exc:
            errors += exc.errors
    return schema, errors, rules


def _check_default_rules(schema: StructuralSchema, default: Any, path: str) -> ErrorList:
    """A default must satisfy its rules, as an unchanged value and as a new one."""
    try:
        rules = compile_rules(schema, path=path, is_resource=schema.embedded_resource)
    except SchemaError as exc:
        return [
            FieldError(path, ErrorType.INVALID, OMITTED, f"rule compile error: {error.detail}")
            for error in exc.errors
        ]
    errors = rules.validate(default, default, path=path).errors
    return errors or rules.validate(default, None, path=path).errors
