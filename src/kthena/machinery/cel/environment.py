"""Compiling expressions in the environment of the API server 1.35: all functions, all checks."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.checker import check
from kthena.machinery.cel.evaluator import Evaluate, build
from kthena.machinery.cel.functions import FunctionTable, merge
from kthena.machinery.cel.library import (
    addresses,
    authorization,
    conversions,
    kubernetes,
    lists,
    named_formats,
    operators,
    optionals,
    strings,
    times,
    versions,
)
from kthena.machinery.cel.parser import parse
from kthena.machinery.cel.syntax import CelCompileError
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.validators import check_constants, find_issues
from kthena.machinery.cel.values import CelError
from kthena.machinery.regexp import RegexpError

_TYPE_NAMES: dict[str, Type] = {
    "bool": types.BOOL,
    "int": types.INT,
    "uint": types.UINT,
    "double": types.DOUBLE,
    "string": types.STRING,
    "bytes": types.BYTES,
    "null_type": types.NULL,
    "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN),
    "type": types.TYPE,
    "optional_type": types.optional_of(types.DYN),
    "google.protobuf.Duration": types.DURATION,
    "google.protobuf.Timestamp": types.TIMESTAMP,
    "net.IP": addresses.IP,
    "net.CIDR": addresses.CIDR,
}


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression: its static type, the variables that it reads, and its evaluator."""

    source: str
    type: Type
    variables: frozenset[str]
    evaluate: Evaluate


@cache
def functions() -> FunctionTable:
    """All functions that rules can call."""
    return merge(
        (
            module.LIBRARY
            for module in (
                operators,
                conversions,
                times,
                strings,
                lists,
                optionals,
                kubernetes,
                addresses,
                authorization,
                named_formats,
                versions,
            )
        ),
        {name: types.type_of(instance) for name, instance in _TYPE_NAMES.items()},
    )


class CelPlanError(ValueError):
    """An expression that is well-formed, but cannot succeed, as a constant in it is invalid."""


class CelResultError(ValueError):
    """An expression whose result is not of the type that is needed."""


def compile_expression(
    source: str, variables: Mapping[str, Type], result: Type | None = None
) -> Program:
    """Parses, checks and builds an expression.

    Raises:
        CelCompileError: it does not parse, or does not pass the checks.
        CelResultError: it is not of the type `result`.
        CelPlanError: the conversion of a constant fails, or a constant pattern is invalid.
    """
    tree = parse(source)
    table = functions()
    checked = check(tree, variables, table)
    issues = checked.issues or find_issues(tree, checked)
    if issues:
        raise CelCompileError(source, issues)
    found = checked.type_of(tree)
    if result is not None and found != result:
        raise CelResultError(f"the expression is of type {found}, not {result}")
    try:
        check_constants(tree, table)
    except (CelError, RegexpError) as exc:
        raise CelPlanError(str(exc)) from exc
    return Program(source, found, checked.variables, build(tree, table))
