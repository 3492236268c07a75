"""The rules that take the place of Kthena's webhooks: each compiles, and allows and denies as it should.

They use nearly all of the language that CRDs need: optional old values, `format`-free texts, regular
expressions, quantities, durations, URLs and list macros. Guarded rules pass while nothing changed.
"""

from typing import Any, NamedTuple

import pytest

from kthena.machinery.cel.rules import compile_rules
from kthena.machinery.schema.custom import SINGLE_VERSION_PATH
from kthena.machinery.schema.structural import decode

_INT = {"type": "integer"}
_STRING = {"type": "string"}
_INT_OR_STRING = {"x-kubernetes-int-or-string": True}
_GO_DURATION = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
_LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
_PERCENT = r"^0*(100|\\d{1,2})%$"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _map(values: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _guarded(rule: str) -> str:
    return f"(oldSelf.hasValue() && oldSelf.value() == self) || ({rule})"


class Case(NamedTuple):
    """A rule on a node. `allowed` and `denied` are new values; pairs have the old one, too."""

    name: str
    node: dict[str, Any]
    rule: str
    allowed: list[Any]
    denied: list[Any]
    guarded: bool = True


_ROLE = _object(
    name=_STRING,
    replicas=_INT,
    workerReplicas=_INT,
    partition=_INT,
    maxUnavailable=_INT_OR_STRING,
    workerTemplate=_object(),
)
_ROLES = {
    **_list(_ROLE),
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}
_STRATEGY = _object(type=_STRING, rollingUpdateConfiguration=_object(maxUnavailable=_INT_OR_STRING))
_SPEC = _object(
    replicas=_INT,
    recoveryPolicy=_STRING,
    rolloutStrategy=_STRATEGY,
    template=_object(roles=_ROLES),
)
_BY_ROLE = "(has(self.rolloutStrategy) && self.rolloutStrategy.type == 'RoleRollingUpdate')"
_BUDGET = "self.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable"
_GANG = _object(gangPolicy=_object(minRoleReplicas=_map(_INT)), roles=_ROLES)
_NO_GANG = "!has(self.gangPolicy) || !has(self.gangPolicy.minRoleReplicas)"
_RATIO = _object(minRatio=_INT_OR_STRING, maxRatio=_INT_OR_STRING)
_VALID_RATIOS = " && ".join(
    f"(type(self.{name}) == int || isQuantity(self.{name}))" for name in ("minRatio", "maxRatio")
)


def _number(name: str) -> str:
    quantity = f"quantity(self.{name}).asApproximateFloat()"
    return f"(type(self.{name}) == int ? double(self.{name}) : {quantity})"


def _rolling(budget: Any, replicas: int) -> dict[str, Any]:
    configuration = {"maxUnavailable": budget}
    strategy = {"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": configuration}
    return {"replicas": replicas, "rolloutStrategy": strategy}


def _role_rolling(budget: Any, replicas: int) -> dict[str, Any]:
    roles = [{"name": "a", "replicas": replicas, "maxUnavailable": budget}]
    return {"rolloutStrategy": {"type": "RoleRollingUpdate"}, "template": {"roles": roles}}


def _gang(minimum: dict[str, int], **replicas: int) -> dict[str, Any]:
    roles = [{"name": name, "replicas": count} for name, count in replicas.items()]
    return {"gangPolicy": {"minRoleReplicas": minimum}, "roles": roles}


_NAME_LENGTH = (
    "!has(self.spec) || [oldSelf.orValue(self)].all(p, self.spec.template.roles.all(r, "
    "size(self.metadata.name) + size(r.name) + size(string(self.spec.replicas)) + "
    "size(string(r.replicas)) + size(string(r.workerReplicas)) <= 59 || (oldSelf.hasValue() && "
    "has(p.spec) && p.spec.template.roles.exists(o, o.name == r.name && "
    "size(string(p.spec.replicas)) + size(string(o.replicas)) + size(string(o.workerReplicas)) >= "
    "size(string(self.spec.replicas)) + size(string(r.replicas)) + "
    "size(string(r.workerReplicas))))))"
)


def _named(name: str, replicas: int) -> dict[str, Any]:
    roles = [{"name": "role", "replicas": 1, "workerReplicas": 1}]
    spec = {"replicas": replicas, "template": {"roles": roles}}
    return {"metadata": {"name": name}, "spec": spec}


CASES = [
    Case(
        "spec is there",
        _object(metadata=_object(name=_STRING), spec=_SPEC),
        "has(self.spec) || (oldSelf.hasValue() && !has(oldSelf.value().spec))",
        [{"spec": {}}, ({}, {})],
        [{}, ({}, {"spec": {}})],
        guarded=False,
    ),
    Case(
        "names of pods fit",
        _object(metadata=_object(name=_STRING), spec=_SPEC),
        _NAME_LENGTH,
        [
            _named("n" * 52, 1),
            (_named("n" * 53, 10), _named("n" * 53, 11)),
            (_named("n" * 60, 1), _named("n" * 60, 9)),
        ],
        [_named("n" * 53, 10), (_named("n" * 52, 10), _named("n" * 52, 9))],
        guarded=False,
    ),
    Case(
        "no group configuration when rolling by role",
        _STRATEGY,
        "self.type != 'RoleRollingUpdate' || !has(self.rollingUpdateConfiguration)",
        [{"type": "RoleRollingUpdate"}, _rolling(1, 1)["rolloutStrategy"]],
        [{"type": "RoleRollingUpdate", "rollingUpdateConfiguration": {}}],
    ),
    Case(
        "a budget of groups is one at least",
        _SPEC,
        "!has(self.rolloutStrategy) || self.rolloutStrategy.type != 'ServingGroupRollingUpdate' || "
        "!has(self.rolloutStrategy.rollingUpdateConfiguration) || self.replicas == 0 || "
        f"(type({_BUDGET}) == int ? {_BUDGET} != 0 : (!{_BUDGET}.matches('^[0-9]{{1,9}}%$') || "
        f"int({_BUDGET}.replace('%', '')) * self.replicas >= 100))",
        [
            _rolling(1, 4),
            _rolling("50%", 2),
            _rolling("odd", 2),
            _rolling("1%", 0),
            {"replicas": 1},
        ],
        [_rolling(0, 4), _rolling("24%", 4), _rolling("0%", 1)],
    ),
    Case(
        "partitions of roles need their strategy",
        _SPEC,
        f"{_BY_ROLE} || self.template.roles.all(r, !has(r.partition))",
        [{"template": {"roles": [{"name": "a"}]}}, {**_role_rolling(1, 1)}],
        [{"template": {"roles": [{"name": "a", "partition": 1}]}}],
    ),
    Case(
        "budgets of roles fit their replicas",
        _SPEC,
        f"!{_BY_ROLE} || self.template.roles.all(r, r.replicas == 0 || (type(r.maxUnavailable) == int"
        " ? (r.maxUnavailable > 0 && r.maxUnavailable <= r.replicas) : "
        f"(r.maxUnavailable.matches('{_PERCENT}') && "
        "int(r.maxUnavailable.replace('%', '')) * r.replicas >= 100)))",
        [_role_rolling(2, 2), _role_rolling("50%", 2), _role_rolling("x", 0)],
        [_role_rolling(3, 2), _role_rolling(0, 2), _role_rolling("49%", 2), _role_rolling("x", 2)],
    ),
    Case(
        "gangs name roles",
        _GANG,
        f"{_NO_GANG} || self.gangPolicy.minRoleReplicas.all(k, self.roles.exists(r, r.name == k))",
        [_gang({"a": 1}, a=1, b=1), {"roles": []}, {"gangPolicy": {}}],
        [_gang({"c": 1}, a=1, b=1)],
    ),
    Case(
        "gangs are not larger than roles",
        _GANG,
        f"{_NO_GANG} || self.roles.all(r, !(r.name in self.gangPolicy.minRoleReplicas) || "
        "self.gangPolicy.minRoleReplicas[r.name] <= r.replicas)",
        [_gang({"a": 2}, a=2, b=1), _gang({}, a=0)],
        [_gang({"a": 3}, a=2, b=1)],
    ),
    Case(
        "gangs stay as they are",
        _GANG,
        "!has(oldSelf.gangPolicy) || !has(oldSelf.gangPolicy.minRoleReplicas) || "
        "(has(self.gangPolicy) && has(self.gangPolicy.minRoleReplicas) && "
        "self.gangPolicy.minRoleReplicas == oldSelf.gangPolicy.minRoleReplicas)",
        [({"gangPolicy": {}}, {}), (_gang({"a": 1}, a=2), _gang({"a": 1}, a=1))],
        [({}, _gang({"a": 1}, a=1)), (_gang({"a": 2}), _gang({"a": 1}))],
        guarded=False,
    ),
    Case(
        "workers need a template",
        _ROLE,
        "self.workerReplicas <= 0 || has(self.workerTemplate)",
        [{"workerReplicas": 0}, {"workerReplicas": 1, "workerTemplate": {}}],
        [{"workerReplicas": 1}],
    ),
    Case(
        "groups are not recreated when rolling by role",
        _SPEC,
        f"self.recoveryPolicy != 'ServingGroupRecreate' || !({_BY_ROLE})",
        [{"recoveryPolicy": "ServingGroupRecreate"}, {"recoveryPolicy": "RoleRecreate"}],
        [{"recoveryPolicy": "ServingGroupRecreate", **_role_rolling(1, 1)}],
    ),
    Case(
        "one target",
        _object(a=_object(), b=_object(), c=_object()),
        "[has(self.a), has(self.b), has(self.c)].filter(x, x).size() == 1",
        [{"a": {}}, {"c": {}}],
        [{}, {"a": {}, "b": {}}],
    ),
    Case(
        "names of roles are not empty",
        _map(_object()),
        "self.all(k, k != '')",
        [{}, {"a": {}}],
        [{"": {}}],
    ),
    Case(
        "ratios are in order",
        _RATIO,
        f"!({_VALID_RATIOS}) || {_number('minRatio')} <= {_number('maxRatio')}",
        [
            {"minRatio": 1, "maxRatio": "1"},
            {"minRatio": "500m", "maxRatio": "1.5"},
            {"minRatio": "x", "maxRatio": 0},
        ],
        [{"minRatio": 2, "maxRatio": "1.5"}, {"minRatio": "2", "maxRatio": "1999m"}],
    ),
    Case(
        "durations are within half an hour",
        _STRING,
        f"!self.matches('{_GO_DURATION}') || (duration(self) >= duration('0s') && "
        "duration(self) <= duration('30m'))".replace("\\", "\\\\"),
        ["0", "0s", "30m", "29m59.999999999s", "1800000000µs", "abc", "1d", "", "5"],
        ["30m1ns", "-1s", "31m", "99999999999h"],
    ),
    Case(
        "pairs are unique",
        _list(_object(name=_STRING, namespace=_STRING)),
        "self.all(a, self.exists_one(b, b.name == a.name && (has(b.namespace) ? b.namespace : '') "
        "== (has(a.namespace) ? a.namespace : '')))",
        [[{"name": "a"}, {"name": "a", "namespace": "n"}], []],
        [[{"name": "a"}, {"name": "a", "namespace": ""}]],
    ),
    Case(
        "keys are those of labels",
        _map(_STRING),
        f"self.all(k, k.matches('{_LABEL_KEY}') && k.indexOf('/') <= 253)".replace("\\", "\\\\"),
        [{"a": ""}, {"example.com/a_b.c": ""}],
        [{"": ""}, {"a/b/c": ""}, {"-a": ""}, {f"{'a' * 254}/b": ""}],
    ),
    Case(
        "a timeout is within Go's range",
        _STRING,
        f"!self.matches('{_GO_DURATION}') || duration(self) >= duration('-2562047h')".replace(
            "\\", "\\\\"
        ),
        ["1h", "-2562047h", "odd"],
        ["2562048h", "-2562047.5h"],
    ),
    Case(
        "a model or an adapter",
        _object(modelName=_STRING, loraAdapters=_list(_STRING)),
        "(has(self.modelName) && self.modelName != '') || "
        "(has(self.loraAdapters) && size(self.loraAdapters) > 0)",
        [{"modelName": "m"}, {"loraAdapters": ["l"]}],
        [{}, {"modelName": ""}, {"loraAdapters": []}],
    ),
    Case(
        "some weight",
        _list(_object(targetModels=_list(_object(weight=_INT)))),
        "self.all(r, r.targetModels.exists(t, !has(t.weight) || t.weight > 0))",
        [[{"targetModels": [{"weight": 0}, {}]}], []],
        [[{"targetModels": [{"weight": 0}]}], [{"targetModels": []}]],
    ),
    Case(
        "expressions compile",
        _object(regex=_STRING),
        "!has(self.regex) || type(''.matches(self.regex)) == bool",
        [{}, {"regex": "^/v1/.*$"}],
        [{"regex": "("}, {"regex": "a**"}],
    ),
    Case(
        "the model stays",
        _object(modelName=_STRING),
        "(has(self.modelName) ? self.modelName : '') == "
        "(has(oldSelf.modelName) ? oldSelf.modelName : '')",
        [({"modelName": "a"}, {"modelName": "a"}), ({}, {}), ({}, {"modelName": ""})],
        [({"modelName": "b"}, {"modelName": "a"}), ({}, {"modelName": "a"})],
        guarded=False,
    ),
    Case(
        "a base URL has a host",
        _STRING,
        "isURL(self.find('^[^?#]*')) && url(self.find('^[^?#]*')).getHost() != ''",
        ["https://host/v1", "https://host:8443?x#y", "https://[::1]:443/"],
        ["/v1", "https:///v1", "https://::1", "host"],
    ),
    Case(
        "names of headers are tokens",
        _map(_STRING),
        r"self.all(k, k.matches('^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$'))",
        [{"X-Api-Key": ""}, {"a'b": ""}],
        [{"": ""}, {"a b": ""}, {"a:": ""}],
    ),
    Case(
        "some headers are reserved",
        _map(_STRING),
        "self.all(k, !(k.lowerAscii() in ['authorization', 'host']))",
        [{"X-Host": ""}],
        [{"Host": ""}, {"AUTHORIZATION": ""}],
    ),
    Case(
        "headers differ by more than case",
        _map(_STRING),
        "self.all(a, self.exists_one(b, b.lowerAscii() == a.lowerAscii()))",
        [{"a": "", "b": ""}],
        [{"a": "", "A": ""}],
    ),
    Case(
        "a secret is named",
        _object(secretRef=_object(name={**_STRING, "default": ""})),
        "has(self.secretRef.name) && self.secretRef.name != ''",
        [{"secretRef": {"name": "s"}}],
        [{"secretRef": {"name": ""}}, {"secretRef": {}}, {}],
    ),
    Case(
        "a namespace needs its escaped name, or none",
        _object(targetRef=_object(namespace=_STRING)),
        "self.targetRef.__namespace__ == 'n' && self.targetRef.namespace == 'n'",
        [{"targetRef": {"namespace": "n"}}],
        [{"targetRef": {"namespace": "m"}}, {"targetRef": {}}],
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.replace(" ", "-"))
def test_a_rule_allows_and_denies(case: Case) -> None:
    text = _guarded(case.rule) if case.guarded else case.rule
    optional = {"optionalOldSelf": True} if "oldSelf.hasValue" in text else {}
    schema = {**case.node, "x-kubernetes-validations": [{"rule": text, **optional}]}
    rules = compile_rules(
        decode(schema, SINGLE_VERSION_PATH),
        is_resource="metadata" in case.node.get("properties", {}),
    )

    def is_allowed(vector: Any) -> bool:
        new, old = vector if isinstance(vector, tuple) else (vector, None)
        return rules.validate(new, old, path="at").errors == []

    assert [vector for vector in case.allowed if not is_allowed(vector)] == []
    assert [vector for vector in case.denied if is_allowed(vector)] == []
    if case.guarded:
        unchanged = [(vector, vector) for vector in case.denied]
        assert [vector for vector in unchanged if not is_allowed(vector)] == []
