"""ValidatingAdmissionPolicies and their bindings: defaults, rules and kinds.

`policies` applies them to requests. No controller checks the types of their expressions against the
schemas of what they match, so their status stays empty.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kthena.local.apiserver.admission import bump_generation
from kthena.local.apiserver.builtins import storedprinters
from kthena.local.apiserver.builtins.conditions import check_conditions
from kthena.local.apiserver.builtins.fielderrors import (
    check_text,
    duplicate,
    forbidden,
    invalid,
    required,
    unsupported,
)
from kthena.local.apiserver.builtins.representation import builtin
from kthena.local.apiserver.builtins.workloads import check_label_selector
from kthena.local.apiserver.kinds import Kind, Names, Subresource
from kthena.local.apiserver.policies.compilation import (
    ExpressionError,
    compile_annotation,
    compile_condition,
    compile_message,
    compile_typed,
)
from kthena.local.apiserver.policies.enforcement import BINDINGS, POLICIES
from kthena.local.apiserver.policies.variables import declare
from kthena.local.apiserver.strategies import PlainStrategy, SpecStrategy, StatusStrategy
from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.environment import Program
from kthena.machinery.cel.typesystem import Type
from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.names import (
    check_dns1035_label,
    check_dns1123_subdomain,
    check_path_segment,
    check_qualified_name,
)
from kthena.machinery.objects import Object, name_of

_KEPT: Final = ("annotations", "finalizers", "labels", "ownerReferences")
_CATEGORIES: Final = ("api-extensions",)
_ACTIONS: Final = ("Audit", "Deny", "Warn")
_FAILURE_POLICIES: Final = ("Fail", "Ignore")
_MATCH_POLICIES: Final = ("Equivalent", "Exact")
_OPERATIONS: Final = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES: Final = ("*", "Cluster", "Namespaced")
_REASONS: Final = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_NOT_FOUND_ACTIONS: Final = ("Deny", "Allow")
_MAX_CONDITIONS: Final = 64
_MAX_ANNOTATIONS: Final = 20
_MAX_VALUE_BYTES: Final = 5 * 1024
_NOTHING_TO_DO: Final = "validations or auditAnnotations must contain at least one item"
_EXCLUSIVE: Final = "name and selector are mutually exclusive"
_NOISE: Final = (
    "must not contain both Deny and Warn (repeating the same validation failure information in the "
    "API response and headers serves no purpose)"
)
_IDENTIFIER: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*", re.ASCII)
_RESERVED: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
        *("void", "while"),
    )
)

Compile = Callable[[str, Mapping[str, Type]], Program]


def default_policy(obj: Object) -> None:
    """A failing policy denies; it is for equivalent resources, and for all that its rules name."""
    spec = obj["spec"]
    spec.setdefault("failurePolicy", "Fail")
    _default_resources(spec.get("matchConstraints"))


def default_policy_binding(obj: Object) -> None:
    """What the resources of a binding leave open."""
    _default_resources(obj["spec"].get("matchResources"))


def _default_resources(resources: Object | None) -> None:
    if resources is None:
        return
    resources.setdefault("matchPolicy", "Equivalent")
    resources.setdefault("namespaceSelector", {})
    resources.setdefault("objectSelector", {})
    for name in ("resourceRules", "excludeResourceRules"):
        for rule in resources.get(name) or ():
            rule.setdefault("scope", "*")


class PolicyStrategy(SpecStrategy):
    """Writes of ValidatingAdmissionPolicies: always against a version."""

    allow_unconditional_update = False
    repeats_changes = False
    repeats_metadata = True

    def validate_create(self, obj: Object) -> ErrorList:
        """Matching, expressions, and something to do."""
        return _Check(obj).policy(checks_conditions=True)

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The same; conditions that stay are not looked at."""
        names = ("paramKind", "matchConditions")
        changed = any(new["spec"].get(name) != old["spec"].get(name) for name in names)
        return _Check(new).policy(checks_conditions=changed)


class PolicyStatusStrategy(StatusStrategy):
    """The status of a ValidatingAdmissionPolicy."""

    allow_unconditional_update = False
    repeats_changes = False

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Conditions are whole."""
        del old
        return check_conditions((new.get("status") or {}).get("conditions"), "status.conditions")


class PolicyBindingStrategy(PlainStrategy):
    """Writes of ValidatingAdmissionPolicyBindings: always against a version."""

    allow_unconditional_update = False
    repeats_changes = False
    repeats_metadata = True

    def prepare_create(self, obj: Object) -> None:
        """The first generation."""
        obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Object, old: Object) -> None:
        """Count a change of the spec."""
        if new["spec"] != old["spec"]:
            bump_generation(new)

    def validate_create(self, obj: Object) -> ErrorList:
        """A policy, parameters, resources and actions."""
        spec = obj["spec"]
        name = spec.get("policyName") or ""
        errors: ErrorList = (
            check_text("spec.policyName", name, check_dns1123_subdomain)
            if name
            else [required("spec.policyName")]
        )
        if spec.get("paramRef") is not None:
            errors += _check_param_ref(spec["paramRef"], "spec.paramRef")
        if spec.get("matchResources") is not None:
            errors += _check_resources(spec["matchResources"], "spec.matchResources")
        return errors + _check_actions(spec.get("validationActions") or [])


class _Check:
    """The rules of a ValidatingAdmissionPolicySpec. Mutable state: the types of its variables."""

    def __init__(self, obj: Object) -> None:
        self._name = name_of(obj)
        self._spec = obj["spec"]
        self._params = self._spec.get("paramKind") is not None
        self._variables: dict[str, Type] | None = {} if self._spec.get("variables") else None

    def policy(self, *, checks_conditions: bool) -> ErrorList:
        """Everything, in the order of the API server."""
        spec = self._spec
        errors: ErrorList = []
        if spec["failurePolicy"] not in _FAILURE_POLICIES:
            policy = spec["failurePolicy"]
            errors.append(unsupported("spec.failurePolicy", policy, _FAILURE_POLICIES))
        if self._params:
            errors += _check_param_kind(spec["paramKind"], "spec.paramKind")
        resources = spec.get("matchConstraints")
        if resources is None:
            errors.append(required("spec.matchConstraints"))
        else:
            errors += _check_resources(resources, "spec.matchConstraints")
            if not resources.get("resourceRules"):
                errors.append(required("spec.matchConstraints.resourceRules"))
        if checks_conditions:
            errors += self._conditions(spec.get("matchConditions") or [])
        for index, variable in enumerate(spec.get("variables") or ()):
            errors += self._variable(variable, f"spec.variables[{index}]")
        rules, annotations = spec.get("validations") or [], spec.get("auditAnnotations") or []
        if not rules and not annotations:
            names = ("validations", "auditAnnotations")
            return errors + [required(f"spec.{name}", _NOTHING_TO_DO) for name in names]
        for index, rule in enumerate(rules):
            errors += self._validation(rule, f"spec.validations[{index}]")
        return errors + self._annotations(annotations)

    def _declared(self, *, authorizer: bool = True) -> dict[str, Type]:
        return declare(params=self._params, authorizer=authorizer, variables=self._variables)

    def _expression(
        self, compile_one: Compile, source: str, path: str, declared: Mapping[str, Type]
    ) -> ErrorList:
        try:
            compile_one(source, declared)
        except ExpressionError as exc:
            return [invalid(path, source, str(exc))]
        return []

    def _conditions(self, conditions: Sequence[Object]) -> ErrorList:
        path = "spec.matchConditions"
        errors: ErrorList = []
        if len(conditions) > _MAX_CONDITIONS:
            detail = f"must have at most {_MAX_CONDITIONS} items"
            errors.append(FieldError(path, ErrorType.TOO_MANY, len(conditions), detail))
        seen = set()
        # Conditions do not see the variables of the policy when they are checked.
        declared = declare(params=self._params)
        for index, condition in enumerate(conditions):
            below = f"{path}[{index}]"
            source, name = condition["expression"].strip(), condition["name"]
            if source:
                place = f"{below}.expression"
                errors += self._expression(compile_condition, source, place, declared)
            else:
                errors.append(required(f"{below}.expression"))
            if not name:
                errors.append(required(f"{below}.name"))
                continue
            errors += check_text(f"{below}.name", name, check_qualified_name)
            if name in seen:
                errors.append(duplicate(f"{below}.name", name))
            seen.add(name)
        return errors

    def _variable(self, variable: Object, path: str) -> ErrorList:
        name, source = variable["name"], variable["expression"]
        errors: ErrorList = []
        if not name.strip():
            errors.append(required(f"{path}.name", "name is not specified"))
        elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
            errors.append(invalid(f"{path}.name", name, "must be a valid CEL identifier"))
        if not source.strip():
            return [*errors, required(f"{path}.expression", "expression is not specified")]
        known = self._variables if self._variables is not None else {}
        try:
            known[name] = compile_typed(source, self._declared()).type
        except ExpressionError as exc:
            known[name] = types.DYN
            errors.append(invalid(f"{path}.expression", source, str(exc)))
        return errors

    def _validation(self, rule: Object, path: str) -> ErrorList:
        source = rule["expression"]
        errors: ErrorList = []
        if source.strip():
            place = f"{path}.expression"
            errors += self._expression(compile_condition, source, place, self._declared())
        else:
            errors.append(required(f"{path}.expression", "expression is not specified"))
        for name in ("messageExpression", "message"):
            text = rule.get(name) or ""
            if text and not text.strip():
                detail = "must be non-empty if specified"
                errors.append(invalid(f"{path}.{name}", text, detail))
            elif text and name == "messageExpression":
                declared = self._declared(authorizer=False)
                errors += self._expression(compile_message, text, f"{path}.{name}", declared)
            elif re.search(r"[\n\r]", text.strip()):
                errors.append(invalid(f"{path}.message", text, "must not contain line breaks"))
        reason = rule.get("reason")
        if reason is not None and reason not in _REASONS:
            errors.append(unsupported(f"{path}.reason", reason, _REASONS))
        return errors

    def _annotations(self, annotations: Sequence[Object]) -> ErrorList:
        errors: ErrorList = []
        if len(annotations) > _MAX_ANNOTATIONS:
            detail = f"must not have more than {_MAX_ANNOTATIONS} auditAnnotations"
            errors.append(invalid("spec.auditAnnotations", list(annotations), detail))
        seen = set()
        for index, annotation in enumerate(annotations):
            path, key = f"spec.auditAnnotations[{index}]", annotation["key"]
            full = f"{self._name}/{key}"
            errors += check_text(f"{path}.key", full, check_qualified_name)
            errors += self._annotation_value(annotation["valueExpression"], path)
            if key in seen:
                errors.append(duplicate(f"{path}.key", key))
            seen.add(key)
        return errors

    def _annotation_value(self, source: str, path: str) -> ErrorList:
        place, trimmed = f"{path}.valueExpression", source.strip()
        if not trimmed:
            return [required(place, "valueExpression is not specified")]
        if len(trimmed.encode()) > _MAX_VALUE_BYTES:
            return [required(place, f"must not exceed {_MAX_VALUE_BYTES} bytes in length")]
        return self._expression(compile_annotation, trimmed, place, self._declared())


def _check_param_kind(kind: Object, path: str) -> ErrorList:
    version, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    errors: ErrorList = []
    place = f"{path}.apiVersion"
    group, _, short = version.rpartition("/")
    if not version:
        errors.append(required(place))
    elif version.count("/") > 1:
        errors.append(invalid(place, version, f"unexpected GroupVersion string: {version}"))
    else:
        if group and (found := check_dns1123_subdomain(group)):
            errors.append(invalid(place, group, ",".join(found)))
        if not short:
            errors.append(invalid(place, version, "version must be specified"))
        elif found := check_dns1035_label(short):
            errors.append(invalid(place, short, ",".join(found)))
    if not name:
        errors.append(required(f"{path}.kind"))
    elif found := check_dns1035_label(name.lower()):
        detail = f"may have mixed case, but should otherwise match: {','.join(found)}"
        errors.append(invalid(f"{path}.kind", name, detail))
    return errors


def _check_resources(resources: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    if resources["matchPolicy"] not in _MATCH_POLICIES:
        policy = resources["matchPolicy"]
        errors.append(unsupported(f"{path}.matchPolicy", policy, _MATCH_POLICIES))
    for name in ("namespaceSelector", "objectSelector"):
        errors += check_label_selector(resources[name], f"{path}.{name}")
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(resources.get(name) or ()):
            errors += _check_rule(rule, f"{path}.{name}[{index}]")
    return errors


def _check_rule(rule: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    names = rule.get("resourceNames") or []
    for index, name in enumerate(names):
        place = f"{path}.resourceNames[{index}]"
        errors += check_text(place, name, check_path_segment)
        if name in names[:index]:
            errors.append(duplicate(place, name))
    operations = rule.get("operations") or []
    errors += _check_list(operations, f"{path}.operations", "operations")
    errors += [
        unsupported(f"{path}.operations[{index}]", operation, _OPERATIONS)
        for index, operation in enumerate(operations)
        if operation not in _OPERATIONS
    ]
    errors += _check_list(rule.get("apiGroups") or [], f"{path}.apiGroups", "API groups")
    versions = rule.get("apiVersions") or []
    errors += _check_list(versions, f"{path}.apiVersions", "API versions")
    errors += [
        required(f"{path}.apiVersions[{index}]")
        for index, version in enumerate(versions)
        if not version
    ]
    errors += _check_resource_names(rule.get("resources") or [], f"{path}.resources")
    if rule["scope"] not in _SCOPES:
        errors.append(unsupported(f"{path}.scope", rule["scope"], _SCOPES))
    return errors


def _check_list(items: list[str], path: str, noun: str) -> ErrorList:
    """Items are given, and a star stands alone."""
    if not items:
        return [required(path)]
    if len(items) > 1 and "*" in items:
        return [invalid(path, items, f"if '*' is present, must not specify other {noun}")]
    return []


def _check_resource_names(resources: list[str], path: str) -> ErrorList:
    errors: ErrorList = [] if resources else [required(path)]
    wild_resources, wild_subresources = set(), set()
    has_plain = False
    for index, text in enumerate(resources):
        resource, slash, sub = text.partition("/")
        place = f"{path}[{index}]"
        if not text:
            errors.append(required(place))
        elif not slash:
            has_plain = text != "*"
        else:
            if resource in wild_resources:
                detail = f"if '{resource}/*' is present, must not specify {text}"
                errors.append(invalid(place, text, detail))
            if sub in wild_subresources:
                detail = f"if '*/{sub}' is present, must not specify {text}"
                errors.append(invalid(place, text, detail))
            if sub == "*":
                wild_resources.add(resource)
            if resource == "*":
                wild_subresources.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        detail = "if '*/*' is present, must not specify other resources"
        errors.append(invalid(path, resources, detail))
    if "*" in resources and has_plain:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid(path, resources, detail))
    return errors


def _check_param_ref(reference: Object, path: str) -> ErrorList:
    name, selector = reference.get("name") or "", reference.get("selector")
    errors: ErrorList = []
    if name:
        errors += check_text(f"{path}.name", name, check_path_segment)
    if name and selector is not None:
        errors.append(forbidden(f"{path}.name", _EXCLUSIVE))
    if selector is not None:
        errors += check_label_selector(selector, f"{path}.selector")
        if name:
            errors.append(forbidden(f"{path}.selector", _EXCLUSIVE))
    elif not name:
        errors.append(required(path, "one of name or selector must be specified"))
    action, place = reference.get("parameterNotFoundAction"), f"{path}.parameterNotFoundAction"
    if not action:
        errors.append(required(place))
    elif action not in _NOT_FOUND_ACTIONS:
        errors.append(unsupported(place, action, _NOT_FOUND_ACTIONS))
    return errors


def _check_actions(actions: list[str]) -> ErrorList:
    path = "spec.validationActions"
    errors: ErrorList = []
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            errors.append(unsupported(f"{path}[{index}]", action, _ACTIONS))
        if action in actions[:index]:
            errors.append(duplicate(f"{path}[{index}]", action))
    if "Deny" in actions and "Warn" in actions:
        errors.append(invalid(path, actions, _NOISE))
    if not actions:
        errors.append(required(path, "at least one validation action is required"))
    return errors


def admission_policy_kinds() -> list[Kind]:
    """ValidatingAdmissionPolicies and their bindings."""
    return [
        Kind(
            builtin(POLICIES, default_policy),
            PolicyStrategy(),
            storedprinters.POLICIES,
            Names("validatingadmissionpolicy", (), _CATEGORIES),
            subresources={"status": Subresource(strategy=PolicyStatusStrategy(_KEPT))},
        ),
        Kind(
            builtin(BINDINGS, default_policy_binding),
            PolicyBindingStrategy(),
            storedprinters.POLICY_BINDINGS,
            Names("validatingadmissionpolicybinding", (), _CATEGORIES),
        ),
    ]
