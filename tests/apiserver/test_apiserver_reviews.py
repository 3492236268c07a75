"""Reviews: who a client is, what it may do, and whose a token is."""

from typing import Any

import pytest

from support.apiserver import Api, Server

ACCESS = "/apis/authorization.k8s.io/v1"
IDENTITY = "/apis/authentication.k8s.io/v1"
PODS = {"namespace": "default", "verb": "get", "resource": "pods"}


def test_the_client_is_root(api: Api) -> None:
    questions: list[dict[str, Any]] = [
        {"resourceAttributes": PODS},
        {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}},
    ]
    for attributes in questions:
        body = {"spec": attributes}
        review = api.create(f"{ACCESS}/selfsubjectaccessreviews", body).expect(201)
        assert (review["status"]["allowed"], review["spec"]) == (True, attributes)
        others = {"spec": {**attributes, "groups": ["system:masters"]}}
        review = api.create(f"{ACCESS}/subjectaccessreviews", others).expect(201)
        assert review["status"]["allowed"] is True
    review = api.create(f"{IDENTITY}/selfsubjectreviews", {}).expect(201)
    assert "system:masters" in review["status"]["userInfo"]["groups"]
    assert api.get(f"{IDENTITY}/selfsubjectreviews").status == 405
    body = {"spec": {"namespace": "default"}}
    rules = api.create(f"{ACCESS}/selfsubjectrulesreviews", body).expect(201)["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in rules["nonResourceRules"]
    assert rules["incomplete"] is False


@pytest.mark.parametrize(
    ("plural", "spec", "causes"),
    [
        ("selfsubjectaccessreviews", {}, ["spec.resourceAttributes"]),
        ("selfsubjectaccessreviews", {"resourceAttributes": PODS, "nonResourceAttributes": {}},
         ["spec.nonResourceAttributes"]),
        ("subjectaccessreviews", {}, ["spec.resourceAttributes", "spec.user"]),
        ("subjectaccessreviews", {"user": "u", "resourceAttributes": {
            **PODS, "fieldSelector": {"rawSelector": "a=b", "requirements": [
                {"key": "", "operator": "In"}]}, "labelSelector": {}}},
         [f"spec.resourceAttributes.{name}" for name in (
             "fieldSelector.rawSelector", "fieldSelector.requirements[0].key",
             "fieldSelector.requirements[0].values", "labelSelector.requirements")]),
    ],
)  # fmt: skip
def test_questions_are_checked(api: Api, plural: str, spec: Any, causes: Any) -> None:
    reply = api.create(f"{ACCESS}/{plural}", {"spec": spec})
    assert (reply.status, [field for field, _ in reply.causes]) == (422, causes)
    assert reply.message.startswith('.authorization.k8s.io "" is invalid: ')


def test_metadata_of_a_question_is_empty(api: Api) -> None:
    body = {"metadata": {"name": "x"}, "spec": {"resourceAttributes": PODS}}
    reply = api.create(f"{ACCESS}/selfsubjectaccessreviews", body)
    assert reply.causes == [("metadata", "FieldValueInvalid")]
    assert api.create(f"{ACCESS}/selfsubjectrulesreviews", {}).message == "no namespace on request"


def test_local_questions_are_of_their_namespace(api: Api, namespace: str) -> None:
    path = f"{ACCESS}/namespaces/{namespace}/localsubjectaccessreviews"
    here = {"groups": ["system:masters"], "resourceAttributes": {**PODS, "namespace": namespace}}
    review = api.create(path, {"spec": here}).expect(201)
    assert (review["status"]["allowed"], review["metadata"]["namespace"]) == (True, namespace)
    reply = api.create(path, {"spec": {**here, "resourceAttributes": PODS}})
    assert reply.causes == [("spec.resourceAttributes.namespace", "FieldValueInvalid")]
    reply = api.create(path, {"spec": {"user": "u", "nonResourceAttributes": {"path": "/"}}})
    assert reply.causes == [("spec.nonResourceAttributes", "FieldValueInvalid")]
    reply = api.create(path, {"metadata": {"namespace": "other"}, "spec": here})
    assert (reply.status, reply.reason) == (400, "BadRequest")


def test_tokens(api: Api, server: Server) -> None:
    path = f"{IDENTITY}/tokenreviews"
    good = api.create(path, {"spec": {"token": server.token}}).expect(201)["status"]
    assert good["authenticated"] is True
    assert "system:masters" in good["user"]["groups"]
    bad = api.create(path, {"spec": {"token": "x"}}).expect(201)["status"]
    assert bad == {"error": "invalid bearer token", "user": {}}
    assert api.create(path, {}).status == 400


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        ({"Impersonate-User": "u"}, {"username": "u", "groups": ["system:authenticated"]}),
        (
            {"Impersonate-User": "u", "Impersonate-Group": "g", "Impersonate-Extra-a%2fb": "x"},
            {
                "username": "u",
                "groups": ["g", "system:authenticated"],
                "extra": {"a/b": ["x"]},
            },
        ),
        (
            {"Impersonate-User": "system:serviceaccount:a:b"},
            {
                "username": "system:serviceaccount:a:b",
                "groups": [
                    *("system:serviceaccounts", "system:serviceaccounts:a"),
                    "system:authenticated",
                ],
            },
        ),
    ],
)
def test_root_acts_as_someone_else(api: Api, headers: dict[str, str], user: Any) -> None:
    path = f"{IDENTITY}/selfsubjectreviews"
    review = api.request("POST", path, {}, headers=headers).expect(201)
    assert review["status"]["userInfo"] == user
    reply = api.request("POST", path, {}, headers={"Impersonate-Group": "g"})
    assert reply.message == "requested [{Group  g    }] without impersonating a user"
