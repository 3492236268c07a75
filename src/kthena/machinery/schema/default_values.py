"""Whether the defaults of a schema are valid and pruned, as apiextensions' `ValidateDefaults`."""

from collections.abc import Callable
from typing import Any

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, child
from kthena.machinery.objects import equal_json
from kthena.machinery.schema.defaulting import copy_json
from kthena.machinery.schema.embedded import check_embedded
from kthena.machinery.schema.pruning import prune, prune_value
from kthena.machinery.schema.structural import UNSET, StructuralSchema
from kthena.machinery.schema.validation import validate

CheckRules = Callable[[StructuralSchema, Any, str], ErrorList]
"""Checks the CEL rules of a schema on a default at a path; given by the caller."""


def check_defaults(
    schema: StructuralSchema, path: str, check_rules: CheckRules, *, inside_meta: bool = False
) -> ErrorList:
    """What is wrong with the defaults of a node and of all below it.

    A default must be valid by itself: against its schema, as embedded resource, and by its rules; and
    nothing in it may be unknown to the schema, except in metadata, whose fields no schema must name.
    """
    errors: ErrorList = []
    if schema.default is not UNSET:
        default_path = child(path, "default")
        if not inside_meta:
            errors += _check_pruned(schema, default_path)
        errors += _check_default(schema, default_path, check_rules)
    if schema.items is not None:
        items_path = child(path, "items")
        errors += check_defaults(schema.items, items_path, check_rules, inside_meta=inside_meta)
    for name, below in schema.properties.items():
        is_meta = inside_meta or (schema.embedded_resource and name == "metadata")
        below_path = f"{path}.properties[{name}]"
        errors += check_defaults(below, below_path, check_rules, inside_meta=is_meta)
    return errors


def _check_pruned(schema: StructuralSchema, path: str) -> ErrorList:
    default = schema.default
    pruned = copy_json(default)
    if schema.embedded_resource and isinstance(pruned, dict):
        prune(pruned, schema)
    else:
        prune_value(pruned, schema)
    if equal_json(pruned, copy_json(default)):
        return []
    return [FieldError(path, ErrorType.INVALID, default, "must not have unknown fields")]


def _check_default(schema: StructuralSchema, path: str, check_rules: CheckRules) -> ErrorList:
    default = copy_json(schema.default)
    return (
        check_embedded(default, schema, path)
        or validate(default, schema, path)
        or check_rules(schema, default, path)
    )
