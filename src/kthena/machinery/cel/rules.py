"""The rules of a schema (`x-kubernetes-validations`): compiled once, then evaluated with ratcheting.

Semantics and texts are those of apiextensions 1.35. A rule that reads `oldSelf` runs only where there
is an old value to compare with, unless `optionalOldSelf` is set. A failure of a rule that does not
read `oldSelf` is only a warning where its value is unchanged; failures to evaluate always count. The
cost of rules is not estimated; loops that take more turns than the server's limit could pay for are
cancelled, so that no rule and no object can hold up the caller.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.environment import (
    CelPlanError,
    CelResultError,
    Program,
    compile_expression,
)
from kthena.machinery.cel.evaluator import TURNS
from kthena.machinery.cel.objects import Shape
from kthena.machinery.cel.syntax import CelCompileError
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.cel.values import NONE, CelCancelledError, CelError, Optional
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError, Verbatim, child, item
from kthena.machinery.gotext import format_json
from kthena.machinery.schema.correlation import Correlated, ListMap
from kthena.machinery.schema.fieldpath import resolve_field_path
from kthena.machinery.schema.structural import SchemaError, StructuralSchema
from kthena.machinery.schema.validation import NO_FIELD

_MAX_MESSAGE_BYTES = 5 * 1024
_TYPE_NAME = "selfType"
_TURNS_PER_RULE = 500_000
_TURNS_PER_OBJECT = 5_000_000
"""The server pays at least 2 for a turn, and has 1,000,000 for a rule, 10,000,000 for an object."""

_REASONS = {
    "FieldValueForbidden": ErrorType.FORBIDDEN,
    "FieldValueRequired": ErrorType.REQUIRED,
    "FieldValueDuplicate": ErrorType.DUPLICATE,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled rule, and what is reported where it is false."""

    program: Program
    uses_old_self: bool
    optional_old_self: bool
    name: str
    """The message or, without one, the expression: how errors of evaluation name the rule."""
    message: str
    message_program: Program | None
    reason: ErrorType
    field_path: str


@dataclass(slots=True)
class _Node:
    """A node of the schema with rules here or below; None stands for no rules below."""

    schema: StructuralSchema
    shape: Shape
    rules: tuple[Rule, ...]
    items: "_Node | None"
    properties: "dict[str, _Node]"
    additional: "_Node | None"


@dataclass(frozen=True, slots=True)
class Findings:
    """What the rules of a schema say about an object."""

    errors: ErrorList
    warnings: list[str]
    """The texts of errors that are not counted, since the value is unchanged."""


class RuleSet:
    """The compiled rules of a schema."""

    def __init__(self, root: _Node | None) -> None:
        self._root = root

    def __bool__(self) -> bool:
        """Whether there is any rule."""
        return self._root is not None

    def validate(
        self, new: Any, old: Any = None, *, path: str = "", ratchet: Correlated | None = None
    ) -> Findings:
        """Evaluates the rules.

        Args:
            new: the value that the schema describes, defaulted and valid as far as types go.
            old: the stored value, for rules that read `oldSelf`; None on creation.
            path: the field that holds the value; empty for a whole resource.
            ratchet: the correlation of both, if unchanged values shall be tolerated.
        """
        evaluation = _Evaluation()
        if self._root is not None:
            evaluation.node(self._root, new, old, path, _Ratchet(ratchet, None))
        return Findings(evaluation.errors, evaluation.warnings)


def compile_rules(
    schema: StructuralSchema,
    *,
    path: str = "spec.validation.openAPIV3Schema",
    is_resource: bool = True,
    faulty: Container[int] = frozenset(),
) -> RuleSet:
    """Compiles the rules of a node and of all below it.

    Args:
        schema: the node.
        path: where it stands in the CRD, for errors.
        is_resource: whether it is the root of a resource, whose type and names rules can read.
        faulty: identities (`id`) of nodes whose rules are not to be compiled, as they have errors.

    Raises:
        SchemaError: a rule does not compile, or reads `oldSelf` where no old value can be found.
    """
    compiler = _Compiler(faulty)
    root = compiler.node(schema, path, "", is_resource=is_resource)
    if compiler.errors:
        raise SchemaError(compiler.errors)
    return RuleSet(root)


class _Compiler:
    """Walks a schema; `errors` come in the server's order, innermost first."""

    def __init__(self, faulty: Container[int]) -> None:
        self.errors: ErrorList = []
        self._faulty = faulty

    def node(
        self, schema: StructuralSchema, path: str, uncorrelatable: str, *, is_resource: bool
    ) -> _Node | None:
        """`uncorrelatable` is the path of the ancestor below which nothing correlates, or empty."""
        additional = None
        if schema.additional_schema is not None:
            additional_path = child(path, "additionalProperties")
            additional = self._child(schema.additional_schema, additional_path, uncorrelatable)
        properties = {}
        for name, below in schema.properties.items():
            node = self._child(below, f"{path}.properties[{name}]", uncorrelatable)
            if node is not None:
                properties[name] = node
        items = None
        if schema.items is not None:
            # Items of sets and of atomic lists have no identity.
            inside = uncorrelatable or ("" if schema.list_type == "map" else path)
            items = self._child(schema.items, child(path, "items"), inside)
        has_rules = bool(schema.validations) and id(schema) not in self._faulty
        if not has_rules and not properties and items is None and additional is None:
            return None
        shape = Shape(schema, _TYPE_NAME, is_resource=is_resource)
        rules = tuple(self._rules(schema, shape, path, uncorrelatable)) if has_rules else ()
        return _Node(schema, shape, rules, items, properties, additional)

    def _child(self, schema: StructuralSchema, path: str, uncorrelatable: str) -> _Node | None:
        return self.node(schema, path, uncorrelatable, is_resource=schema.embedded_resource)

    def _add(self, path: str, kind: ErrorType, value: Any, detail: str) -> None:
        self.errors.append(FieldError(path, kind, value, detail))

    def _rules(
        self, schema: StructuralSchema, shape: Shape, path: str, uncorrelatable: str
    ) -> Iterator[Rule]:
        rules_path = child(path, "x-kubernetes-validations")
        if shape.type is None:
            detail = (
                "internal error: failed to construct type information for x-kubernetes-validations "
                "rules: unable to convert structural schema to CEL declarations"
            )
            self._add(rules_path, ErrorType.INTERNAL, "", detail)
            return
        for index, raw in enumerate(schema.validations):
            rule_path = item(rules_path, index)
            rule = self._rule(raw, schema, shape.type, rule_path)
            uses_old_self = rule is not None and rule.uses_old_self
            if uses_old_self and uncorrelatable:
                detail = (
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within "
                    f"{uncorrelatable}"
                )
                self._add(child(rule_path, "rule"), ErrorType.INVALID, raw.get("rule"), detail)
            elif not uses_old_self and raw.get("optionalOldSelf") is not None:
                detail = "may not be set if oldSelf is not used in rule"
                optional_path = child(rule_path, "optionalOldSelf")
                self._add(optional_path, ErrorType.INVALID, raw["optionalOldSelf"], detail)
            if rule is not None:
                yield rule

    def _rule(
        self, raw: Mapping[str, Any], schema: StructuralSchema, self_type: Type, path: str
    ) -> Rule | None:
        optional_old_self = bool(raw.get("optionalOldSelf"))
        variables = {
            "self": self_type,
            "oldSelf": types.optional_of(self_type) if optional_old_self else self_type,
        }
        source = raw.get("rule") or ""
        program = self._compile(raw, "rule", variables, path)
        if program is None:
            return None
        message = (raw.get("message") or "").strip()
        field_path = raw.get("fieldPath") or ""
        return Rule(
            program=program,
            uses_old_self="oldSelf" in program.variables,
            optional_old_self=optional_old_self,
            name=message or source.strip(),
            message=message or f"failed rule: {source.strip()}",
            message_program=self._compile(raw, "messageExpression", variables, path)
            if raw.get("messageExpression")
            else None,
            reason=_REASONS.get(raw.get("reason") or "", ErrorType.INVALID),
            field_path=resolve_field_path(field_path, schema) if field_path else "",
        )

    def _compile(
        self, raw: Mapping[str, Any], name: str, variables: Mapping[str, Type], path: str
    ) -> Program | None:
        """The expression in the field `name` of a rule, None where it is refused."""
        wanted = _EXPRESSIONS[name]
        try:
            return compile_expression(raw.get(name) or "", variables, wanted.result)
        except CelCompileError as exc:
            detail = f"{wanted.prefix}compilation failed: {exc}"
        except CelPlanError as exc:
            detail = f"{wanted.program} instantiation failed: {exc}"
        except CelResultError:
            detail = wanted.mismatch
        # The server names the whole rule as the value.
        self._add(child(path, name), ErrorType.INVALID, _as_printed(raw), detail)
        return None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What an expression must yield, and the words for one that does not."""

    result: Type
    prefix: str
    program: str
    mismatch: str


_EXPRESSIONS = {
    "rule": _Wanted(types.BOOL, "", "program", "cel expression must evaluate to a bool"),
    "messageExpression": _Wanted(
        types.STRING,
        "messageExpression ",
        "messageExpression",
        "messageExpression must evaluate to a string",
    ),
}


def _as_printed(raw: Mapping[str, Any]) -> Verbatim:
    """A rule with the names, and in the order, of the fields of its type inside the server."""
    fields = {
        "Rule": raw.get("rule") or "",
        "Message": raw.get("message") or "",
        "MessageExpression": raw.get("messageExpression") or "",
        "Reason": raw.get("reason"),
        "FieldPath": raw.get("fieldPath") or "",
        "OptionalOldSelf": raw.get("optionalOldSelf"),
    }
    return Verbatim(
        "{" + ",".join(f'"{name}":{format_json(value)}' for name, value in fields.items()) + "}"
    )


@dataclass(frozen=True, slots=True)
class _Ratchet:
    """The correlation of a value, or of the nearest ancestor that has one."""

    current: Correlated | None
    nearest: Correlated | None

    def tolerates(self) -> bool:
        """Whether the value, or what it is part of, is unchanged."""
        correlated = self.current or self.nearest
        return correlated is not None and correlated.unchanged()

    def key(self, name: str) -> "_Ratchet":
        if self.current is None:
            return self
        if self.nearest is None and name in ("apiVersion", "kind"):
            # Old and new are converted to the same version, so a change would not be seen.
            return _Ratchet(None, None)
        return _Ratchet(self.current.key(name), self.current)

    def index(self, index: int) -> "_Ratchet":
        if self.current is None:
            return self
        return _Ratchet(self.current.index(index), self.current)


class _Evaluation:
    """Evaluates all rules on one object."""

    def __init__(self) -> None:
        self.errors: ErrorList = []
        self.warnings: list[str] = []
        self._turns = _TURNS_PER_OBJECT

    def node(self, node: _Node, new: Any, old: Any, path: str, ratchet: _Ratchet) -> None:
        if new is None or self._turns <= 0:
            return
        if node.rules:
            self._rules(node, new, old, path, ratchet)
        if type(new) is list and node.items is not None:
            old_items = ListMap(node.schema, old)
            for index, entry in enumerate(new):
                entry_path = item(path, index)
                self.node(
                    node.items, entry, old_items.find(entry), entry_path, ratchet.index(index)
                )
        elif type(new) is dict:
            old_members = old if type(old) is dict else {}
            for name, entry in new.items():
                below, below_path = node.properties.get(name), child(path, name)
                if below is None:
                    below, below_path = node.additional, item(path, name)
                if below is not None:
                    self.node(below, entry, old_members.get(name), below_path, ratchet.key(name))

    def _rules(self, node: _Node, new: Any, old: Any, path: str, ratchet: _Ratchet) -> None:
        scope: dict[str, Any] = {}
        failure: CelError | None = None
        try:
            scope["self"] = node.shape.value_of(new)
            if old is not None and any(rule.uses_old_self for rule in node.rules):
                scope["oldSelf"] = node.shape.value_of(old)
        except CelError as exc:
            failure = exc
        optional_scope = {**scope, "oldSelf": NONE}
        if "oldSelf" in scope:
            optional_scope["oldSelf"] = Optional(scope["oldSelf"])
        for rule in node.rules:
            if rule.uses_old_self and old is None and not rule.optional_old_self:
                continue
            try:
                if failure is not None:
                    raise failure
                holds = self._evaluate(rule, optional_scope if rule.optional_old_self else scope)
            except (CelError, CelCancelledError) as exc:
                self.errors.append(
                    FieldError(
                        path or NO_FIELD, ErrorType.INVALID, node.schema.type, _explain(exc, rule)
                    )
                )
                if self._turns <= 0:
                    return
                continue
            if holds is not True:
                self._report(_broken(rule, node.schema, new, scope, path), rule, ratchet)

    def _evaluate(self, rule: Rule, scope: dict[str, Any]) -> Any:
        """Evaluate a rule; where it is cancelled, no further one is evaluated."""
        turns = [given := min(_TURNS_PER_RULE, self._turns)]
        try:
            value = rule.program.evaluate({**scope, TURNS: turns})
        except CelCancelledError:
            self._turns = 0
            raise
        finally:
            self._turns -= given - max(turns[0], 0)
        return value

    def _report(self, error: FieldError, rule: Rule, ratchet: _Ratchet) -> None:
        if not rule.uses_old_self and ratchet.tolerates():
            self.warnings.append(str(error))
        else:
            self.errors.append(error)


def _explain(failure: CelError | CelCancelledError, rule: Rule) -> str:
    """What the server says of an evaluation that failed."""
    text = str(failure)
    if isinstance(failure, CelCancelledError):
        return (
            f"'{text}': no further validation rules will be run due to call cost exceeds limit for "
            f"rule: {rule.name}"
        )
    if text.startswith("no such overload"):
        return (
            f"'{text}': call arguments did not match a supported operator, function or macro "
            f"signature for rule: {rule.name}"
        )
    return f"{text} evaluating rule: {rule.name}"


def _broken(
    rule: Rule, schema: StructuralSchema, value: Any, scope: dict[str, Any], path: str
) -> FieldError:
    """The error of a rule that is false."""
    if rule.field_path:
        path = child(path, rule.field_path)
    shown = OMITTED if schema.type in ("object", "array") else value
    detail = _evaluate_message(rule, scope) or rule.message
    if rule.reason is ErrorType.DUPLICATE:
        detail = ""
    elif rule.reason is not ErrorType.INVALID:
        shown = ""
    return FieldError(path or NO_FIELD, rule.reason, shown, detail)


def _evaluate_message(rule: Rule, scope: dict[str, Any]) -> str | None:
    """The message from its expression; None where it gives none that the server would show."""
    if rule.message_program is None:
        return None
    try:
        message = rule.message_program.evaluate({**scope, TURNS: [_TURNS_PER_RULE]})
    except (CelError, CelCancelledError):
        return None
    message = message.strip()
    if "\n" in message or len(message.encode("utf-8", "surrogatepass")) > _MAX_MESSAGE_BYTES:
        return None
    return str(message)
