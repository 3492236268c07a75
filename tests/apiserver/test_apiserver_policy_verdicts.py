"""What ValidatingAdmissionPolicies deny, and how they say it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from support.apiserver import (
    APPLY,
    CORE,
    JSON_PATCH,
    Api,
    Definition,
    Server,
    config_map,
    eventually,
    pod,
)

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"

_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE", "DELETE"],
    "resources": ["configmaps"],
}
_EVERY = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}


@dataclass(frozen=True)
class Case:
    """A policy for ConfigMaps with the label `case: NAME`, and what it says of one with some data.

    `denied` is the message; None where the object is admitted.
    """

    name: str
    spec: dict[str, Any]
    denied: str | None
    data: dict[str, str] = field(default_factory=dict)
    binding: dict[str, Any] = field(default_factory=dict)
    constraints: dict[str, Any] = field(default_factory=dict)
    code: int = 422
    reason: str = "Invalid"
    warnings: tuple[str, ...] = ()


def rules(*expressions: Any, **changes: Any) -> dict[str, Any]:
    """A policy with some expressions."""
    validations = [
        entry if isinstance(entry, dict) else {"expression": entry} for entry in expressions
    ]
    return {"validations": validations, **changes}


def failed(expression: str, error: str) -> str:
    """What is said of an evaluation that failed."""
    return f"expression '{expression}' resulted in error: {error}"


_MISSING = "object.data.q == 'x'"
CASES = [
    Case("plain", rules("has(object.data)"), "failed expression: has(object.data)"),
    Case("admitted", rules("has(object.data)"), None, {"a": "1"}),
    Case("first", rules("true", "1 == 2", "false"), "failed expression: 1 == 2"),
    Case(
        "reason",
        rules({"expression": "false", "message": " m ", "reason": "Forbidden"}),
        "m",
        code=403,
        reason="Forbidden",
    ),
    Case(
        "large",
        rules({"expression": "false", "reason": "RequestEntityTooLarge"}),
        "failed expression: false",
        code=413,
        reason="RequestEntityTooLarge",
    ),
    Case(
        "said",
        rules({"expression": "false", "message": "m", "messageExpression":
               "object.metadata.name + ' in ' + namespaceObject.status.phase"}),
        "said in Active",
    ),
    Case(
        "unsaid",
        rules({"expression": "false", "message": "m", "messageExpression":
               "'x' + string(object.data.q)"}),
        "m",
    ),
    Case("failing", rules(_MISSING), failed(_MISSING, "no such key: data")),
    Case("ignoring", rules(_MISSING, failurePolicy="Ignore"), None),
    Case("ignoring-denies", rules(_MISSING, "false", failurePolicy="Ignore"),
         "failed expression: false"),
    Case(
        "warns",
        rules("false", {"expression": "false", "message": "second"}),
        None,
        binding={"validationActions": ["Warn", "Audit"]},
        warnings=("failed expression: false", "second"),
    ),
    Case("audits", rules("false"), None, binding={"validationActions": ["Audit"]}),
    Case(
        "condition",
        rules("false", matchConditions=[{"name": "a", "expression": "has(object.data)"}]),
        None,
    ),
    Case(
        "condition-fails",
        rules("false", matchConditions=[{"name": "a", "expression": _MISSING}]),
        failed(_MISSING, "no such key: data"),
    ),
    Case(
        "condition-ignored",
        rules("false", matchConditions=[{"name": "a", "expression": _MISSING}],
              failurePolicy="Ignore"),
        None,
    ),
    Case(
        "variables",
        rules({"expression": "variables.n > 6", "messageExpression": "'n is ' + string(variables.n)"},
              variables=[{"name": "m", "expression": "int(object.data.n)"},
                         {"name": "n", "expression": "variables.m + 1"}]),
        "n is 6",
        {"n": "5"},
    ),
    Case(
        "variables-fail",
        rules("variables.n > 6", variables=[
            {"name": "m", "expression": "int(object.data.q)"},
            {"name": "n", "expression": "variables.m + 1"}]),
        failed(
            "variables.n > 6",
            'composited variable "n" fails to evaluate: composited variable "m" fails to evaluate: '
            "no such key: q",
        ),
        {"n": "5"},
    ),
    Case(
        "annotation-fails",
        rules("true", auditAnnotations=[{"key": "k", "valueExpression": "'' + object.data.q"}]),
        failed("'' + object.data.q", "no such key: data"),
        binding={"validationActions": ["Audit"]},
    ),
    Case("allowed", rules("!authorizer.requestResource.check('create').allowed()"),
         "failed expression: !authorizer.requestResource.check('create').allowed()"),
    Case("path", rules("authorizer.path('').check('get').allowed()"),
         failed("authorizer.path('').check('get').allowed()", "path must not be empty")),
    Case("unknown-parameter",
         rules("false", paramKind={"apiVersion": "x.kthena.io/v1", "kind": "Foo"}),
         "failed to configure policy: failed to find resource referenced by paramKind: "
         "'x.kthena.io/v1, Kind=Foo'"),
    Case("no-parameter", rules("params != null", paramKind={"apiVersion": "v1", "kind": "Secret"}),
         "failed expression: params != null"),
    Case(
        "excluded",
        rules("false"),
        None,
        constraints={"excludeResourceRules": [{**_EVERY, "resourceNames": ["excluded"]}]},
    ),
    Case("named", rules("false"), None,
         constraints={"resourceRules": [{**_RULE, "resourceNames": ["other"]}]}),
    Case("wide", rules("false"), None, constraints={"resourceRules": [{**_EVERY, "scope": "Cluster"}]}),
    Case("narrow", rules("false"), "failed expression: false",
         constraints={"resourceRules": [{**_EVERY, "scope": "Namespaced"}]}),
    Case("subresources", rules("false"), None,
         constraints={"resourceRules": [{**_EVERY, "resources": ["configmaps/*x", "*/status"]}]}),
    Case("bound-elsewhere", rules("false"), None,
         binding={"matchResources": {"objectSelector": {"matchLabels": {"case": "none"}}}}),
    Case(
        "request",
        rules({"expression": "false", "messageExpression":
               "[request.operation, request.kind.kind, request.resource.resource, request.name, "
               "string(request.dryRun), string(has(request.subResource)), string(oldObject == null)]"
               ".join(' ') + ' ' + request.options.kind + ' ' + object.apiVersion"}),
        "CREATE ConfigMap configmaps request true false true CreateOptions v1",
    ),
]  # fmt: skip


@pytest.fixture
def labelled(api: Api, namespace: str) -> Iterator[str]:
    """The namespace; policies for it are removed in the end."""
    yield namespace
    for path in (BINDINGS, POLICIES):
        for item in api.get(path).body["items"]:
            if item["metadata"]["name"].startswith(namespace):
                api.delete(f"{path}/{item['metadata']['name']}")


def install(api: Api, namespace: str, case: Case) -> None:
    """Create the policy of a case and its binding."""
    name = f"{namespace}-{case.name}"
    constraints = {
        "resourceRules": [_RULE],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchLabels": {"case": case.name}},
        **case.constraints,
    }
    spec = {"matchConstraints": constraints, **case.spec}
    api.create(POLICIES, {"metadata": {"name": name}, "spec": spec}).expect(201)
    bound = {"policyName": name, "validationActions": ["Deny"], **case.binding}
    api.create(BINDINGS, {"metadata": {"name": name}, "spec": bound}).expect(201)


def labelled_map(case: str, data: dict[str, str] | None = None) -> dict[str, Any]:
    """A ConfigMap that the policy of a case is for."""
    return {**config_map(case, data), "metadata": {"name": case, "labels": {"case": case}}}


def wait_until_active(api: Api, namespace: str) -> None:
    """Wait until the policies that were installed count: the last one stands for all."""
    install(api, namespace, Case("last", rules("false"), ""))
    path = f"{CORE}/namespaces/{namespace}/configmaps"
    eventually(lambda: api.create(path, labelled_map("last"), dryRun="All").status == 422)


def test_policies_judge_new_objects(api: Api, labelled: str) -> None:
    for case in CASES:
        install(api, labelled, case)
    wait_until_active(api, labelled)
    path = f"{CORE}/namespaces/{labelled}/configmaps"
    for case in CASES:
        reply = api.create(path, labelled_map(case.name, case.data or None), dryRun="All")
        subject = (
            f"ValidatingAdmissionPolicy '{labelled}-{case.name}' with binding "
            f"'{labelled}-{case.name}'"
        )
        said = [f"Validation failed for {subject}: {text}" for text in case.warnings]
        assert reply.warnings == said, case.name
        if case.denied is None:
            assert reply.status == 201, (case.name, reply.body)
            continue
        # What is wrong with a policy itself names no binding.
        if case.name == "unknown-parameter":
            subject = subject.partition(" with ")[0]
        text = f"{subject} denied request: {case.denied}"
        assert reply.body == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f'configmaps "{case.name}" is forbidden: {text}',
            "reason": case.reason,
            "details": {"name": case.name, "kind": "configmaps", "causes": [{"message": text}]},
            "code": case.code,
        }, case.name


def test_policies_judge_changes_and_deletions(api: Api, labelled: str) -> None:
    guard = "oldObject == null || object == null || object.data.a == oldObject.data.a"
    fixed = rules({"expression": guard, "message": "a is fixed"})
    keep = {
        "expression": "request.operation != 'DELETE' || has(oldObject.data.free)",
        "messageExpression": "'keep ' + oldObject.metadata.name + ' ' + request.options.kind",
    }
    install(api, labelled, Case("fixed", fixed, ""))
    install(api, labelled, Case("kept", rules(keep), ""))
    wait_until_active(api, labelled)
    path = f"{CORE}/namespaces/{labelled}/configmaps"
    made = api.create(path, labelled_map("fixed", {"a": "1"})).expect(201)
    api.patch(f"{path}/fixed", {"data": {"b": "2"}}).expect(200)
    assert "a is fixed" in api.patch(f"{path}/fixed", {"data": {"a": "2"}}).message
    operations = [{"op": "replace", "path": "/data/a", "value": "2"}]
    assert api.patch(f"{path}/fixed", operations, JSON_PATCH).status == 422
    made["data"], made["metadata"]["resourceVersion"] = {"a": "3"}, ""
    assert api.put(f"{path}/fixed", made).status == 422
    # The labels of the old object count as well.
    away = {"metadata": {"labels": {"case": "none"}}, "data": {"a": "2"}}
    assert api.patch(f"{path}/fixed", away).status == 422
    assert api.patch(f"{path}/fixed", {"data": {"a": "2"}}, dryRun="All").status == 422
    assert api.get(f"{path}/fixed").body["data"] == {"a": "1", "b": "2"}

    api.create(path, labelled_map("kept", {"a": "1"})).expect(201)
    assert "denied request: keep kept DeleteOptions" in api.delete(f"{path}/kept").message
    reply = api.request("DELETE", path, query={"labelSelector": "case=kept"})
    assert (reply.status, reply.reason) == (422, "Invalid")
    api.patch(f"{path}/kept", {"data": {"free": "yes"}}).expect(200)
    api.delete(f"{path}/kept").expect(200)


def test_policies_judge_subresources(api: Api, labelled: str) -> None:
    few = {
        "expression": "object.spec.replicas < 3",
        "messageExpression": "[object.kind, oldObject.kind, object.metadata.name].join(' ') + ' ' + "
        "[request.subResource, request.kind.kind].join(' ')",
    }
    scales = {"resourceRules": [{**_EVERY, "resources": ["deployments/scale"]}]}
    good = {
        "expression": "object.target.name != 'bad'",
        "messageExpression": "object.kind + ' ' + request.operation + ' ' + request.name",
    }
    bindings = {"resourceRules": [{**_EVERY, "resources": ["pods/binding"]}]}
    every: dict[str, Any] = {"objectSelector": {}}
    install(api, labelled, Case("scale", rules(few), "", constraints=scales | every))
    install(api, labelled, Case("binding", rules(good), "", constraints=bindings | every))
    wait_until_active(api, labelled)
    path = f"/apis/apps/v1/namespaces/{labelled}/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    spec = {
        "replicas": 1,
        "paused": True,
        "selector": {"matchLabels": {"a": "b"}},
        "template": template,
    }
    api.create(path, {"metadata": {"name": "d"}, "spec": spec}).expect(201)
    reply = api.patch(f"{path}/d/scale", {"spec": {"replicas": 3}})
    assert reply.message.startswith('deployments.apps "d" is forbidden: ')
    assert reply.message.endswith("denied request: Scale Scale d scale Scale")
    api.patch(f"{path}/d/scale", {"spec": {"replicas": 2}}, dryRun="All").expect(200)
    api.patch(f"{path}/d", {"spec": {"replicas": 5}}, dryRun="All").expect(200)

    pods = f"{CORE}/namespaces/{labelled}/pods"
    api.create(pods, pod("p")).expect(201)
    body = {"metadata": {"name": "p"}, "target": {"name": "bad"}}
    reply = api.create(f"{pods}/p/binding", body)
    assert reply.message.endswith("denied request: Binding CREATE p")
    assert "nodeName" not in api.get(f"{pods}/p").body["spec"]
    api.delete(f"{pods}/p", {"gracePeriodSeconds": 0}).expect(200)


def test_policies_see_equivalent_resources(api: Api, labelled: str) -> None:
    seen = {
        "expression": "false",
        "messageExpression": "object.apiVersion + '|' + object.involvedObject.name + '|' + "
        "request.kind.group + '|' + request.requestKind.group",
    }
    old = {"resourceRules": [{**_RULE, "resources": ["events"]}], "objectSelector": {}}
    exact = {
        "resourceRules": [{**_RULE, "resources": ["events"], "apiGroups": ["events.k8s.io"]}],
        "matchPolicy": "Exact",
        "objectSelector": {},
    }
    install(api, labelled, Case("old", rules(seen), "", constraints=old))
    wait_until_active(api, labelled)
    event = {
        "metadata": {"name": "e"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "reason": "S",
        "action": "S",
        "type": "Normal",
        "regarding": {"kind": "Pod", "namespace": labelled, "name": "p"},
        "reportingController": "test.io/me",
        "reportingInstance": "me",
    }
    path = f"/apis/events.k8s.io/v1/namespaces/{labelled}/events"
    assert api.create(path, event).message.endswith("denied request: v1|p||events.k8s.io")
    api.delete(f"{BINDINGS}/{labelled}-old").expect(200)
    install(api, labelled, Case("exact", rules("false"), "", constraints=exact))
    eventually(lambda: "exact" in api.create(path, event, dryRun="All").message)
    involved = {"involvedObject": event["regarding"], "reason": "x", "type": "Normal"}
    path = f"{CORE}/namespaces/{labelled}/events"
    api.create(path, {"metadata": {"name": "e"}, **involved}).expect(201)


def test_parameters_are_custom_objects(api: Api, labelled: str, widgets: Definition) -> None:
    limits = f"/apis/{widgets.group}/v1/namespaces/{labelled}/widgets"
    for name, size in (("small", 1), ("large", 5)):
        labels = {"kind": "limit"}
        api.create(limits, widgets.object(name, {"size": size}, labels=labels)).expect(201)
    rule = {
        "expression": "object.data.size() <= params.spec.size",
        "messageExpression": "'at most ' + string(params.spec.size) + ' by ' + params.kind",
    }
    kind = {"apiVersion": f"{widgets.group}/v1", "kind": "Widget"}

    def bound(**reference: Any) -> dict[str, Any]:
        return {"paramRef": {"parameterNotFoundAction": "Deny", **reference}}

    spec = rules(rule, paramKind=kind)
    nowhere = (
        "failed to configure binding: no params found for policy binding with `Deny` "
        "parameterNotFoundAction"
    )
    cases = {
        "one": (bound(name="small"), "at most 1 by Widget"),
        "big": (bound(name="large", namespace=labelled), None),
        "all": (bound(selector={"matchLabels": {"kind": "limit"}}), "at most 1 by Widget"),
        "none": (bound(name="nosuch"), nowhere),
        "may": (bound(name="nosuch", parameterNotFoundAction="Allow"), None),
    }
    for name, (binding, _) in cases.items():
        install(api, labelled, Case(name, spec, None, binding=binding))
    wait_until_active(api, labelled)
    path = f"{CORE}/namespaces/{labelled}/configmaps"

    def said(name: str) -> str | None:
        reply = api.create(path, labelled_map(name, {"a": "1", "b": "2"}), dryRun="All")
        return None if reply.status == 201 else reply.message.rpartition("denied request: ")[2]

    wanted = {name: text for name, (_, text) in cases.items()}
    # The real server learns of new kinds every half minute, and lists the parameters after that.
    eventually(lambda: {name: said(name) for name in cases} == wanted, timeout_s=60)


def test_policies_judge_what_a_write_creates(api: Api, labelled: str) -> None:
    held = {
        "expression": "has(object.spec.holderIdentity)",
        "messageExpression": "request.operation + ' ' + request.options.kind",
    }
    leases = {"resourceRules": [{**_EVERY, "resources": ["leases"]}], "objectSelector": {}}
    install(api, labelled, Case("lease", rules(held), "", constraints=leases))
    wait_until_active(api, labelled)
    path = f"/apis/coordination.k8s.io/v1/namespaces/{labelled}/leases"
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "l"},
        "spec": {},
    }
    reply = api.put(f"{path}/l", lease)
    assert reply.message.endswith("denied request: CREATE CreateOptions")
    reply = api.request(
        "PATCH", f"{path}/l", lease, query={"fieldManager": "m"}, headers={"Content-Type": APPLY}
    )
    assert reply.message.endswith("denied request: CREATE CreateOptions")
    assert api.get(f"{path}/l").status == 404


def test_parameters_are_built_in_objects(embedded_apiserver: Server, unique: str) -> None:
    # The real server ends its informer of a built-in kind with the last policy that needs it, and
    # does not start it again.
    api = Api(embedded_apiserver)
    api.create(f"{CORE}/namespaces", {"metadata": {"name": unique}}).expect(201)
    path = f"{CORE}/namespaces/{unique}/configmaps"
    api.create(path, config_map("limit", {"max": "1"})).expect(201)
    rule = {"expression": "object.data.size() <= int(params.data.max)"}
    spec = rules(rule, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    reference = {"paramRef": {"name": "limit", "parameterNotFoundAction": "Deny"}}
    install(api, unique, Case("limited", spec, None, binding=reference))
    try:
        api.create(path, labelled_map("limited", {"a": "1"}), dryRun="All").expect(201)
        reply = api.create(path, labelled_map("limited", {"a": "1", "b": "2"}))
        assert reply.message.endswith(f"failed expression: {rule['expression']}")
    finally:
        api.delete(f"{BINDINGS}/{unique}-limited")
        api.delete(f"{POLICIES}/{unique}-limited")
        api.delete(f"{CORE}/namespaces/{unique}")
        api.close()


def test_policies_do_not_reach_what_configures_them(api: Api, labelled: str) -> None:
    """Else a policy that refuses everything could never be taken back."""
    name = f"{labelled}-all"
    rule = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*"],
        "resourceNames": [name, f"{name}-other"],
    }
    # A rule for ConfigMaps, too, tells when the policy has come into effect.
    own = {**_RULE, "resourceNames": [name]}
    spec = {
        "matchConstraints": {"resourceRules": [rule, own]},
        "validations": [{"expression": "false"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    api.create(POLICIES, {"metadata": {"name": name}, "spec": spec}).expect(201)
    api.create(BINDINGS, {"metadata": {"name": name}, "spec": binding}).expect(201)
    maps = f"{CORE}/namespaces/{labelled}/configmaps"

    def refused() -> bool:
        reply = api.create(maps, {"metadata": {"name": name}}, dryRun="All")
        return reply.status == 422

    eventually(refused)
    other = {"metadata": {"name": f"{name}-other"}, "spec": binding}
    api.create(BINDINGS, other).expect(201)
    api.patch(f"{POLICIES}/{name}", {"metadata": {"labels": {"a": "b"}}}).expect(200)
    api.delete(f"{BINDINGS}/{name}-other").expect(200)
    api.delete(f"{BINDINGS}/{name}").expect(200)
