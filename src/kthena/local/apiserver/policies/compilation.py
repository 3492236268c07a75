"""The expressions of a policy, compiled.

A stored policy compiles, since it was checked when it was written; should one not, the error is what
its evaluation gives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kthena.local.apiserver.policies.variables import declare
from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.environment import CelPlanError, Program, compile_expression
from kthena.machinery.cel.syntax import CelCompileError
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.objects import Object

_BOOL: Final = (types.BOOL,)
_TEXT: Final = (types.STRING,)
_TEXT_OR_NULL: Final = (types.STRING, types.NULL)


class ExpressionError(ValueError):
    """An expression that a policy may not have; the text is the API server's."""


def compile_typed(
    source: str, variables: Mapping[str, Type], results: tuple[Type, ...] = ()
) -> Program:
    """An expression whose result is of one of some types, or of any where none are given.

    Raises:
        ExpressionError: it does not compile, or is of another type.
    """
    try:
        program = compile_expression(source, variables)
    except CelCompileError as exc:
        raise ExpressionError(f"compilation failed: {exc}") from exc
    except CelPlanError as exc:
        raise ExpressionError(f"program instantiation failed: {exc}") from exc
    if results and program.type not in results:
        wanted = str(results[0])
        if len(results) > 1:
            wanted = f"one of [{' '.join(_long_name(result) for result in results)}]"
        raise ExpressionError(f"must evaluate to {wanted} but got {program.type}")
    return program


def _long_name(result: Type) -> str:
    return "null_type" if result is types.NULL else str(result)


def compile_condition(source: str, variables: Mapping[str, Type]) -> Program:
    """A yes-or-no expression; raises ExpressionError."""
    return compile_typed(source, variables, _BOOL)


def compile_message(source: str, variables: Mapping[str, Type]) -> Program:
    """An expression that makes a message; raises ExpressionError."""
    return compile_typed(source, variables, _TEXT)


def compile_annotation(source: str, variables: Mapping[str, Type]) -> Program:
    """An expression that makes the value of an audit annotation; raises ExpressionError."""
    return compile_typed(source, variables, _TEXT_OR_NULL)


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression, or why it is none."""

    source: str
    program: Program | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Validation:
    """A rule and what is said where it is broken."""

    condition: Expression
    message: str
    message_expression: Expression | None
    reason: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy that is ready to be evaluated."""

    name: str
    spec: Object
    match_conditions: tuple[Expression, ...]
    variables: Mapping[str, Expression]
    validations: tuple[Validation, ...]
    annotations: tuple[Expression, ...]

    @property
    def ignores_failures(self) -> bool:
        """Whether what goes wrong in an evaluation denies nothing."""
        return bool(self.spec.get("failurePolicy") == "Ignore")


def _attempt(compile_one: Any, source: str, declared: Mapping[str, Type]) -> Expression:
    try:
        return Expression(source, compile_one(source, declared))
    except ExpressionError as exc:
        return Expression(source, None, str(exc))


def compile_variables(
    declared_by_policy: Iterable[Object], *, params: bool
) -> tuple[dict[str, Expression], dict[str, Type]]:
    """The variables of a policy by name, and their types; each sees those before it."""
    expressions: dict[str, Expression] = {}
    known: dict[str, Type] = {}
    for variable in declared_by_policy:
        declared = declare(params=params, variables=dict(known))
        expression = _attempt(compile_typed, variable.get("expression") or "", declared)
        name = variable.get("name") or ""
        expressions[name] = expression
        known[name] = types.DYN if expression.program is None else expression.program.type
    return expressions, known


def compile_policy(name: str, spec: Object) -> Policy:
    """A stored policy, ready to be evaluated."""
    params = spec.get("paramKind") is not None
    variables, known = compile_variables(spec.get("variables") or (), params=params)
    declared = declare(params=params, variables=known)
    plain = declare(params=params, authorizer=False, variables=known)
    return Policy(
        name,
        spec,
        tuple(
            _attempt(compile_condition, condition.get("expression") or "", declared)
            for condition in spec.get("matchConditions") or ()
        ),
        variables,
        tuple(
            Validation(
                _attempt(compile_condition, rule.get("expression") or "", declared),
                rule.get("message") or "",
                _attempt(compile_message, rule["messageExpression"], plain)
                if rule.get("messageExpression")
                else None,
                rule.get("reason") or "Invalid",
            )
            for rule in spec.get("validations") or ()
        ),
        tuple(
            _attempt(compile_annotation, annotation.get("valueExpression") or "", declared)
            for annotation in spec.get("auditAnnotations") or ()
        ),
    )
