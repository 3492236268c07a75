from typing import Any

import pytest

from kthena.api import kubernetes, registry
from kthena.machinery.fields import join_errors
from kthena.machinery.metadata import (
    validate_metadata_change,
    validate_object_meta,
    validate_object_meta_update,
)
from kthena.machinery.metadata_types import decode_problem
from kthena.machinery.resources import Resource
from support.golden import golden_params

# Their names must be path segments only, the rule that the golden table was made with.
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
CLUSTER_ROLES = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False
)
NOT_QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


@pytest.mark.parametrize("row", golden_params("metadata_create", "metadata"))
def test_creation_is_judged_as_by_apimachinery(row: dict[str, Any]) -> None:
    resource = ROLES if row["namespaced"] else CLUSTER_ROLES
    errors = validate_object_meta({"metadata": row["metadata"]}, resource)
    generic = [str(error) for error in errors if error.detail != NOT_QUALIFIED]
    assert generic == row["errors"]


@pytest.mark.parametrize("row", golden_params("metadata_update", "new"))
def test_changes_are_judged_as_by_apimachinery(row: dict[str, Any]) -> None:
    errors = validate_metadata_change(row["new"], row["old"])
    assert [str(error) for error in errors] == row["errors"]


def custom(**metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "metadata": {"name": "a", "namespace": "b", "resourceVersion": "1", **metadata},
    }


def test_an_update_lists_a_mistake_as_often_as_the_api_server_finds_it() -> None:
    """As recorded from kube-apiserver: once for all objects, once for the change, once more."""
    errors = validate_object_meta_update(custom(labels={"a b": "c"}), custom())
    assert [error.path for error in errors] == ["metadata.labels"] * 3
    assert join_errors(errors) == str(errors[0])
    errors = validate_object_meta_update(custom(uid="z"), custom())
    assert [str(error) for error in errors] == [
        'metadata.uid: Invalid value: "z": field is immutable'
    ] * 2
    errors = validate_object_meta_update(custom(finalizers=["b", "a b"]), custom())
    assert [error.path for error in errors] == ["metadata.finalizers"]


def test_finalizers_of_built_in_kinds_need_a_domain() -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "metadata": {"name": "a", "namespace": "b", "resourceVersion": "1"},
    }
    pod["metadata"]["finalizers"] = ["b", "kubernetes", "orphan", "x.y/z"]
    expected = [f'metadata.finalizers[0]: Invalid value: "b": {NOT_QUALIFIED}']
    assert [str(e) for e in validate_object_meta(pod, kubernetes.PODS)] == expected
    assert [str(e) for e in validate_object_meta_update(pod, pod)] == expected
    assert validate_object_meta(custom(finalizers=["b"]), registry.MODEL_SERVINGS) == []
    assert validate_object_meta(custom(finalizers=["b"]), kubernetes.LEASES) == []


def test_annotations_have_a_limit_in_bytes_together() -> None:
    full = "x" * (256 * 1024 - 1)
    good = custom(annotations={"a": full})
    assert validate_object_meta(good, registry.MODEL_SERVINGS) == []
    for annotations in ({"a": full + "x"}, {"a": full, "b": ""}, {"a": "é" * 128 * 1024}):
        errors = validate_object_meta(custom(annotations=annotations), registry.MODEL_SERVINGS)
        assert [str(error) for error in errors] == [
            "metadata.annotations: Too long: may not be more than 262144 bytes"
        ]


@pytest.mark.parametrize(
    ("resource", "name", "good"),
    [
        (registry.MODEL_SERVINGS, "a.b-1", True),
        (registry.MODEL_SERVINGS, "A", False),
        (kubernetes.SERVICES, "a.b", False),
        (kubernetes.SERVICES, "1a", False),
        (kubernetes.SERVICES, "a1", True),
        (ROLES, "system:Reader", True),
    ],
)
def test_names_follow_the_rule_of_their_resource(resource: Resource, name: str, good: bool) -> None:
    errors = validate_object_meta({"metadata": {"name": name, "namespace": "n"}}, resource)
    assert (not errors) == good
    assert all(error.path == "metadata.name" for error in errors)


def test_a_namespace_name_is_a_label() -> None:
    errors = validate_object_meta({"metadata": {"name": "a.b"}}, kubernetes.NAMESPACES)
    assert [str(error) for error in errors] == [
        'metadata.name: Invalid value: "a.b": must not contain dots'
    ]


def test_a_generated_name_may_have_a_dash_at_the_end_of_its_prefix() -> None:
    metadata = {"name": "web-x7", "generateName": "web-", "namespace": "n"}
    assert validate_object_meta({"metadata": metadata}, kubernetes.PODS) == []
    metadata["generateName"] = "Web-"
    assert [e.path for e in validate_object_meta({"metadata": metadata}, kubernetes.PODS)] == [
        "metadata.generateName"
    ]


# Recorded from kube-apiserver 1.35, for a custom resource.
DECODING = [
    (5, "json: cannot unmarshal number into Go value of type v1.ObjectMeta"),
    ([], "json: cannot unmarshal array into Go value of type v1.ObjectMeta"),
    ({"name": 5}, "number into Go struct field ObjectMeta.name of type string"),
    ({"uid": True}, "bool into Go struct field ObjectMeta.uid of type types.UID"),
    ({"labels": {"a": 5}}, "number into Go struct field ObjectMeta.labels of type string"),
    ({"labels": 5}, "number into Go struct field ObjectMeta.labels of type map[string]string"),
    (
        {"annotations": {"a": {}}},
        "object into Go struct field ObjectMeta.annotations of type string",
    ),
    ({"generation": "x"}, "string into Go struct field ObjectMeta.generation of type int64"),
    ({"generation": 1.5}, "number 1.5 into Go struct field ObjectMeta.generation of type int64"),
    ({"generation": True}, "bool into Go struct field ObjectMeta.generation of type int64"),
    ({"finalizers": {}}, "object into Go struct field ObjectMeta.finalizers of type []string"),
    ({"finalizers": [5]}, "number into Go struct field ObjectMeta.finalizers of type string"),
    (
        {"ownerReferences": ["x"]},
        "string into Go struct field ObjectMeta.ownerReferences of type v1.OwnerReference",
    ),
    (
        {"ownerReferences": [{"controller": 5}]},
        "number into Go struct field OwnerReference.ownerReferences.controller of type bool",
    ),
    (
        {"managedFields": [{"operation": 5}]},
        "ManagedFieldsEntry.managedFields.operation of type v1.ManagedFieldsOperationType",
    ),
    (
        {"creationTimestamp": "2026-01-01"},
        'parsing time "2026-01-01" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"',
    ),
    (
        {"creationTimestamp": ""},
        'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"',
    ),
    (
        {"creationTimestamp": 5},
        "number into Go struct field ObjectMeta.creationTimestamp of type string",
    ),
]


@pytest.mark.parametrize(("metadata", "text"), DECODING)
def test_values_of_the_wrong_type_have_the_decoder_s_text(metadata: Any, text: str) -> None:
    assert decode_problem(metadata).endswith(text)
    for errors in (
        validate_object_meta({"metadata": metadata}, kubernetes.PODS),
        validate_object_meta_update({"metadata": metadata}, {}),
    ):
        assert [str(error) for error in errors] == [
            f"metadata: Invalid value: {decode_problem(metadata)}"
        ]


def test_the_decoder_names_the_way_into_a_built_in_object() -> None:
    assert decode_problem({"labels": 5}, "Pod").endswith(
        "number into Go struct field ObjectMeta.metadata.labels of type map[string]string"
    )
    assert decode_problem({"ownerReferences": [{"uid": 5}]}, "Pod").endswith(
        "number into Go struct field OwnerReference.metadata.ownerReferences.uid of type types.UID"
    )
    assert decode_problem(5, "Pod").endswith(
        "number into Go struct field Pod.metadata of type v1.ObjectMeta"
    )


def test_nulls_in_lists_are_empty_values() -> None:
    errors = validate_object_meta(
        custom(finalizers=[None], ownerReferences=[None], managedFields=[None]),
        registry.MODEL_SERVINGS,
    )
    paths = [error.path for error in errors]
    assert paths == [
        *[f"metadata.ownerReferences.{name}" for name in ("apiVersion", "kind", "name", "uid")],
        *["metadata.finalizers"] * 2,
        "metadata.managedFields[0].operation",
    ]


def test_nulls_are_absent_values() -> None:
    metadata = dict.fromkeys(
        ["labels", "annotations", "finalizers", "ownerReferences", "managedFields", "generation"]
    )
    metadata |= {"name": "a", "namespace": "b"}
    assert validate_object_meta({"metadata": metadata}, kubernetes.PODS) == []
