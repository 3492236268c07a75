"""ValidatingAdmissionPolicies and their bindings: what may be written."""

import json
from typing import Any

import pytest

from support.apiserver import Api, Reply, Server

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


def spec_of(**changes: Any) -> dict[str, Any]:
    """A policy that admits everything, with changes."""
    rules = {"resourceRules": [_RULE]}
    return {"matchConstraints": rules, "validations": [{"expression": "true"}], **changes}


def binding_of(**changes: Any) -> dict[str, Any]:
    """A binding of a policy `p`, with changes."""
    return {"policyName": "p", "validationActions": ["Deny"], **changes}


def try_policy(api: Api, spec: Any, path: str = POLICIES) -> Reply:
    """What the server says of a policy, which it does not keep."""
    return api.create(path, {"metadata": {"name": "p"}, "spec": spec}, dryRun="All")


def test_policy_gets_its_defaults(api: Api) -> None:
    made = try_policy(api, spec_of()).expect(201)
    assert made["spec"]["failurePolicy"] == "Fail"
    assert made["spec"]["matchConstraints"] == {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [{**_RULE, "scope": "*"}],
    }
    assert (made["metadata"]["generation"], made["status"]) == (1, {})
    bound = try_policy(api, binding_of(matchResources={}), BINDINGS).expect(201)
    assert bound["spec"]["matchResources"]["matchPolicy"] == "Equivalent"
    assert "status" not in bound


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"matchConstraints": None}, [("matchConstraints", "Required")]),
        ({"matchConstraints": {}}, [("matchConstraints.resourceRules", "Required")]),
        ({"validations": []}, [("validations", "Required"), ("auditAnnotations", "Required")]),
        ({"failurePolicy": "X"}, [("failurePolicy", "NotSupported")]),
        (
            {"paramKind": {"apiVersion": "a/b/c", "kind": "X_"}},
            [("paramKind.apiVersion", "Invalid"), ("paramKind.kind", "Invalid")],
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a"}]},
            [("matchConditions[1].expression", "Required"),
             ("matchConditions[1].name", "Duplicate")],
        ),
        (
            {"variables": [{"name": "in", "expression": "1"}, {"name": "b", "expression": "x"}]},
            [("variables[0].name", "Invalid"), ("variables[1].expression", "Invalid")],
        ),
        (
            {"validations": [{"expression": " ", "message": "a\nb", "reason": "X"}]},
            [("validations[0].expression", "Required"), ("validations[0].message", "Invalid"),
             ("validations[0].reason", "NotSupported")],
        ),
        (
            {"auditAnnotations": [{"key": "a", "valueExpression": "1"},
                                  {"key": "a", "valueExpression": "'x'"}]},
            [("auditAnnotations[0].valueExpression", "Invalid"),
             ("auditAnnotations[1].key", "Duplicate")],
        ),
        (
            {"matchConstraints": {"resourceRules": [{}]}},
            [(f"matchConstraints.resourceRules[0].{name}", "Required")
             for name in ("operations", "apiGroups", "apiVersions", "resources")],
        ),
        (
            {"matchConstraints": {"resourceRules": [
                {**_EVERY, "operations": ["*", "X"], "resources": ["a/*", "a/b", "*/*"],
                 "scope": "Z", "resourceNames": ["n", "n"]}]}},
            [(f"matchConstraints.resourceRules[0].{name}", reason) for name, reason in (
                ("resourceNames[1]", "Duplicate"), ("operations", "Invalid"),
                ("operations[1]", "NotSupported"), ("resources[1]", "Invalid"),
                ("resources", "Invalid"), ("scope", "NotSupported"))],
        ),
    ],
)  # fmt: skip
def test_policies_are_checked(api: Api, changes: Any, causes: Any) -> None:
    reply = try_policy(api, spec_of(**changes))
    found = [
        (path.removeprefix("spec."), reason.removeprefix("FieldValue"))
        for path, reason in reply.causes
    ]
    assert (reply.status, found) == (422, causes)


@pytest.mark.parametrize(
    ("changes", "causes"),
    [
        ({"policyName": ""}, [("policyName", "Required")]),
        ({"validationActions": []}, [("validationActions", "Required")]),
        ({"validationActions": ["Deny", "Warn"]}, [("validationActions", "Invalid")]),
        (
            {"validationActions": ["X", "Audit", "Audit"]},
            [("validationActions[0]", "NotSupported"), ("validationActions[2]", "Duplicate")],
        ),
        (
            {"paramRef": {}},
            [("paramRef", "Required"), ("paramRef.parameterNotFoundAction", "Required")],
        ),
        (
            {"paramRef": {"name": "n", "selector": {}, "parameterNotFoundAction": "X"}},
            [("paramRef.name", "Forbidden"), ("paramRef.selector", "Forbidden"),
             ("paramRef.parameterNotFoundAction", "NotSupported")],
        ),
    ],
)  # fmt: skip
def test_bindings_are_checked(api: Api, changes: Any, causes: Any) -> None:
    reply = try_policy(api, binding_of(**changes), BINDINGS)
    found = [
        (path.removeprefix("spec."), reason.removeprefix("FieldValue"))
        for path, reason in reply.causes
    ]
    assert (reply.status, found) == (422, causes)


_UNDECLARED = "compilation failed: ERROR: <input>:1:1: undeclared reference to "


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1", "must evaluate to bool but got int"),
        ("object.spec.ready", "must evaluate to bool but got dyn"),
        ("request.nosuch == 1", "undefined field 'nosuch'"),
        ("namespaceObject.metadata.uid == 'x'", "undefined field 'uid'"),
        ("params.max == 1", f"{_UNDECLARED}'params' (in container '')"),
        ("variables.a", f"{_UNDECLARED}'variables' (in container '')"),
        ("object.name ==", "compilation failed: ERROR: <input>:1:15: Syntax error"),
        ("authorizer.nosuch()", "undeclared reference to 'nosuch'"),
        ("object.name.matches('(')", "invalid matches argument"),
    ],
)
def test_expressions_are_compiled(api: Api, expression: str, problem: str) -> None:
    reply = try_policy(api, spec_of(validations=[{"expression": expression}]))
    assert (reply.status, reply.causes) == (
        422,
        [("spec.validations[0].expression", "FieldValueInvalid")],
    )
    assert problem in reply.message


@pytest.mark.parametrize(
    "expression",
    [
        "authorizer.group('').resource('pods').namespace('a').check('get').allowed()",
        "authorizer.group('').resource('pods').subresource('log').name('b').check('get').allowed()",
        "authorizer.group('').resource('a').fieldSelector('a=b').labelSelector('a').check('b').errored()",
        "authorizer.path('/healthz').check('get').reason() == ''",
        "authorizer.serviceAccount('ns', 'sa').group('').resource('x').check('v').errored()",
        "authorizer.requestResource.check('update').error() == ''",
        "request.userInfo.groups.exists(g, g == 'x') && request.userInfo.extra['a'][0] == 'b'",
        "namespaceObject.metadata.creationTimestamp.getFullYear() > 2000",
        "has(object.metadata.labels) && object.metadata.?annotations['a'].orValue('') == 'b'",
    ],
)
def test_expressions_reach_what_the_api_offers(api: Api, expression: str) -> None:
    try_policy(api, spec_of(validations=[{"expression": expression}])).expect(201)
    conditions = [{"name": "a", "expression": expression}]
    try_policy(api, spec_of(matchConditions=conditions)).expect(201)


def test_messages_have_no_authorizer_and_conditions_no_variables(api: Api) -> None:
    check = "authorizer.path('/').check('get').reason()"
    rule = {"expression": "true", "messageExpression": check}
    reply = try_policy(api, spec_of(validations=[rule]))
    assert reply.causes == [("spec.validations[0].messageExpression", "FieldValueInvalid")]
    spec = spec_of(
        variables=[
            {"name": "a", "expression": "1"},
            {"name": "b", "expression": "variables.a + 1"},
        ],
        matchConditions=[{"name": "c", "expression": "variables.a == 1"}],
        validations=[{"expression": "variables.b == 2"}, {"expression": "variables.b"}],
    )
    reply = try_policy(api, spec)
    assert reply.causes == [
        ("spec.matchConditions[0].expression", "FieldValueInvalid"),
        ("spec.validations[1].expression", "FieldValueInvalid"),
    ]
    assert "must evaluate to bool but got int" in reply.message


def test_policies_are_written_against_a_version(api: Api, unique: str) -> None:
    path = f"{POLICIES}/{unique}"
    made = api.create(POLICIES, {"metadata": {"name": unique}, "spec": spec_of()}).expect(201)
    reply = api.put(path, {"metadata": {"name": unique}, "spec": spec_of()})
    assert reply.causes == [("metadata.resourceVersion", "FieldValueInvalid")]
    made["spec"]["failurePolicy"] = "Ignore"
    made["status"] = {"observedGeneration": 9}
    new = api.put(path, made).expect(200)
    assert (new["metadata"]["generation"], new["status"]) == (2, {})
    status = {"status": {"observedGeneration": 2, "typeChecking": {}}}
    new = api.patch(f"{path}/status", status).expect(200)
    assert new["status"] == status["status"]
    wrong = {"status": {"conditions": [{"type": "A", "status": "X"}]}}
    reply = api.patch(f"{path}/status", wrong)
    assert ("status.conditions[0].reason", "FieldValueRequired") in reply.causes
    api.delete(path).expect(200)


def test_other_admission_kinds_are_not_served(embedded_apiserver: Server) -> None:
    api = Api(embedded_apiserver)
    for plural in ("validatingwebhookconfigurations", "mutatingadmissionpolicies"):
        reply = api.create(f"{GROUP}/{plural}", json.loads("{}"))
        assert (reply.status, reply.reason) == (404, "NotFound")
        assert reply.message == "the server could not find the requested resource"
    api.close()
