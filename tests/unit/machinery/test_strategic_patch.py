import copy
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.api.openapi import component_for, load_components
from kthena.machinery.patches.strategic import StrategicMergeError, apply_strategic_merge_patch
from kthena.machinery.schema.openapi import OpenApiSchema
from support.golden import golden_params

GROUPS = {"Pod": "", "Service": "", "Deployment": "apps"}


def resolve(reference: str) -> Mapping[str, Any]:
    return load_components()[reference.removeprefix("#/components/schemas/")]


def apply(kind: str, document: dict[str, Any], patch: Any) -> dict[str, Any]:
    schema = component_for(GROUPS[kind], "v1", kind)
    assert schema is not None
    return apply_strategic_merge_patch(document, patch, OpenApiSchema(schema, resolve)).document


@pytest.mark.parametrize("row", golden_params("strategic_patches", "patch"))
def test_merges_and_refuses_as_the_api_server(row: dict[str, Any]) -> None:
    document, patch = copy.deepcopy(row["document"]), copy.deepcopy(row["patch"])
    if row.get("error") == "panic":
        # The library crashes; the refusal has a test of its own.
        return
    if "error" in row:
        with pytest.raises(StrategicMergeError) as caught:
            apply(row["kind"], document, patch)
        assert normal(str(caught.value)) == normal(row["error"])
    else:
        assert apply(row["kind"], document, patch) == row["out"]
    assert (document, patch) == (row["document"], row["patch"])


def normal(text: str) -> str:
    """The text without the Go type that a schema does not know."""
    return text.replace("float64", "int64").replace("in struct PodSpec for the json field ", "")


@pytest.mark.parametrize(
    ("patch", "status"),
    [
        ("text", 400),
        ([], 400),
        ({"spec": {"$retainKeys": "x"}}, 400),
        ({"metadata": {"$deleteFromPrimitiveList": []}}, 400),
        ({"metadata": {"$setElementOrder": []}}, 400),
        ({"metadata": {"finalizers": [["x"]]}}, 422),
        ({"spec": {"containers": [{"image": "x"}]}}, 500),
        ({"spec": {"$patch": None}}, 500),
    ],
)
def test_an_error_has_the_status_of_the_api_server(patch: Any, status: int) -> None:
    document = {"spec": {"containers": [{"name": "a"}]}, "metadata": {"finalizers": []}}
    with pytest.raises(StrategicMergeError) as caught:
        apply("Pod", document, patch)
    assert caught.value.status == status


def test_ordering_a_list_without_a_merge_key_is_refused() -> None:
    document = {"spec": {"tolerations": [{"key": "a"}]}}
    patch = {"spec": {"$setElementOrder/tolerations": [{"key": "a"}]}}
    with pytest.raises(StrategicMergeError, match="without merge key"):
        apply("Pod", document, patch)


def test_the_result_shares_nothing_with_document_and_patch() -> None:
    document: dict[str, Any] = {"spec": {"containers": [{"name": "a", "env": []}], "volumes": []}}
    patch: dict[str, Any] = {"spec": {"containers": [{"name": "b", "env": []}]}}
    result = apply("Pod", document, patch)
    for container in result["spec"]["containers"]:
        container["env"].append({"name": "X"})
    result["spec"]["volumes"].append({})
    assert document == {"spec": {"containers": [{"name": "a", "env": []}], "volumes": []}}
    assert patch == {"spec": {"containers": [{"name": "b", "env": []}]}}


names = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


def containers(values: list[str], image: str = "i") -> list[dict[str, str]]:
    return [{"name": value, "image": image} for value in values]


@given(names, names)
def test_a_merged_list_holds_every_entry_once_in_the_order_of_the_patch(
    live: list[str], patched: list[str]
) -> None:
    patch = {"spec": {"containers": containers(patched, "new")}}
    result = apply("Pod", {"spec": {"containers": containers(live)}}, patch)
    merged = result["spec"]["containers"]
    found = [entry["name"] for entry in merged]
    assert sorted(found) == sorted({*live, *patched})
    assert [name for name in found if name in patched] == patched
    kept = [name for name in live if name not in patched]
    assert [name for name in found if name not in patched] == kept
    assert all(entry["image"] == ("new" if entry["name"] in patched else "i") for entry in merged)


@given(names, names)
def test_kubectl_apply_style_patches_reach_the_order_that_they_name(
    live: list[str], wanted: list[str]
) -> None:
    """As kubectl writes them: deletions, additions, and the order of everything that stays."""
    change: list[dict[str, str]] = [
        {"name": n, "$patch": "delete"} for n in live if n not in wanted
    ]
    change += containers([n for n in wanted if n not in live])
    order = [{"name": name} for name in wanted]
    patch = {"spec": {"$setElementOrder/containers": order, "containers": change}}
    if not live and not wanted:
        return
    result = apply("Pod", {"spec": {"containers": containers(live)}}, patch)
    assert [entry["name"] for entry in result["spec"]["containers"]] == wanted
