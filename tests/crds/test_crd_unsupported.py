"""What nothing implements is refused where it is used, and nowhere else."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from kthena.api.crd.fieldreport import ACTS, REFUSED, SCHEMA_ONLY, field_states, fields_of
from kthena.api.crd.published import published_crds
from kthena.api.unsupported import REFUSALS, refusal_of, unsupported_fields
from support.corpus import corpus_objects
from support.crdvectors import change, valid_objects

ROOT = Path(__file__).resolve().parent.parent.parent

PLAIN_SERVING = {
    "kind": "ModelServing",
    "spec": {
        "schedulerName": "volcano",
        "template": {
            "restartGracePeriodSeconds": 0,
            "roles": [{"name": "a", "workerReplicas": 0, "entryTemplate": {}, "maxUnavailable": 1}],
        },
        "rolloutStrategy": {"type": "ServingGroupRollingUpdate"},
    },
}
PLAIN_SERVER = {
    "kind": "ModelServer",
    "spec": {
        "inferenceEngine": "vLLM",
        "workloadSelector": {"matchLabels": {"a": "b"}},
        "workloadPort": {"port": 8000, "protocol": "http"},
        "kvConnector": {"type": "http"},
        "trafficPolicy": {"timeout": "1s"},
    },
}
PLAIN_ROUTE = {
    "kind": "ModelRoute",
    "spec": {"modelName": "a", "rules": [{"targetModels": [{"modelServerName": "a"}]}]},
}
PD_GROUP = {"groupKey": "a", "prefillLabels": {"a": "b"}, "decodeLabels": {"a": "c"}}


@pytest.mark.parametrize(
    "obj", [PLAIN_SERVING, PLAIN_SERVER, PLAIN_ROUTE], ids=lambda obj: obj["kind"]
)
def test_what_is_supported_and_what_the_server_fills_in_is_not_refused(obj: dict[str, Any]) -> None:
    assert unsupported_fields(obj) == []


@pytest.mark.parametrize(
    ("base", "changes", "paths"),
    [
        (PLAIN_SERVING, {"spec.plugins": [{"name": "a"}]}, ["spec.plugins"]),
        (PLAIN_SERVING, {"spec.plugins": []}, []),
        (PLAIN_SERVING, {"spec.template.gangPolicy": {}}, []),
        (PLAIN_SERVING, {"spec.template.networkTopology": {}}, []),
        (PLAIN_SERVING, {"spec.rolloutStrategy.type": "RoleRollingUpdate"}, []),
        (PLAIN_SERVER, {"spec.kvConnector": {"type": "nixl"}}, ["spec.kvConnector.type"]),
        (PLAIN_SERVER, {"spec.kvConnector": {}}, []),
        (PLAIN_SERVER, {"spec.trafficPolicy.retry": {"retryInterval": "100ms"}}, ["spec.trafficPolicy.retry"]),
        (PLAIN_SERVER, {"spec.workloadPort.protocol": "https"}, ["spec.workloadPort.protocol"]),
        (PLAIN_SERVER, {"spec.inferenceEngine": "SGLang", "spec.workloadSelector.pdGroup": PD_GROUP}, []),
        (PLAIN_ROUTE, {"spec.parentRefs": [{"name": "a"}]}, ["spec.parentRefs"]),
        (PLAIN_ROUTE, {"spec.parentRefs": []}, []),
        (PLAIN_ROUTE, {"spec.rateLimit": {"unit": "second"}}, ["spec.rateLimit"]),
        (
            PLAIN_ROUTE,
            {"spec.rules[0].targetModels[1]": {"externalModelProviderName": "a", "weight": 100}},
            ["spec.rules[0].targetModels[1].externalModelProviderName"],
        ),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_with_its_path(
    base: dict[str, Any], changes: dict[str, Any], paths: list[str]
) -> None:
    found = unsupported_fields(change(base, changes))
    assert [entry.path for entry in found] == paths
    assert all(entry.why for entry in found)


def test_the_transfer_that_sglang_implies_is_refused() -> None:
    server = change(
        PLAIN_SERVER,
        {"spec.inferenceEngine": "SGLang", "spec.workloadSelector.pdGroup": PD_GROUP},
        ("spec.kvConnector",),
    )
    assert [entry.path for entry in unsupported_fields(server)] == ["spec.kvConnector"]
    server["spec"]["inferenceEngine"] = "vLLM"
    assert unsupported_fields(server) == []


@pytest.mark.parametrize("kind", ["AutoscalingPolicy", "ExternalModelProvider"])
def test_whole_kinds_are_refused(kind: str) -> None:
    for obj in valid_objects(kind).values():
        assert [entry.path for entry in unsupported_fields(obj)] == ["spec"]


def test_several_reasons_are_all_named() -> None:
    route = change(PLAIN_ROUTE, {"spec.rateLimit": {}, "spec.parentRefs": [{"name": "a"}]})
    texts = [str(entry) for entry in unsupported_fields(route)]
    assert [text.partition(":")[0] for text in texts] == ["spec.parentRefs", "spec.rateLimit"]


@pytest.mark.parametrize(
    "obj", [{}, {"kind": "Pod"}, {"kind": "ModelRoute"}, {"kind": "ModelRoute", "spec": None}]
)
def test_an_odd_object_is_no_error(obj: dict[str, Any]) -> None:
    assert unsupported_fields(obj) == []


def test_every_refused_field_is_one_of_the_schema() -> None:
    fields = {crd["spec"]["names"]["kind"]: set(fields_of(crd)) for crd in published_crds()}
    assert REFUSALS.keys() <= fields.keys()
    for kind, refusals in REFUSALS.items():
        for refusal in refusals:
            for covered in refusal.fields:
                assert any(field.startswith(covered) for field in fields[kind]), (kind, covered)


def test_a_refusal_covers_its_field_and_what_is_below_it_only() -> None:
    assert refusal_of("ModelServing", "spec.plugins[].name") is not None
    assert refusal_of("ModelServing", "spec.pluginsOfAnotherKind") is None
    assert refusal_of("ModelServing", "spec.template.roles[].name") is None


def _table() -> dict[str, dict[str, Any]]:
    table: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests/fields.yaml").read_text())
    return table


def test_the_field_report_is_current_and_agrees_with_the_refusals() -> None:
    command = [sys.executable, str(ROOT / "tools/gen_field_report.py"), "--check"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.stderr == ""

    states = field_states(published_crds(), _table()["schema-only"])
    assert {(row.kind, row.field) for row in states if row.state == REFUSED} == {
        (row.kind, row.field) for row in states if refusal_of(row.kind, row.field)
    }
    counts = {
        state: sum(row.state == state for row in states) for state in (ACTS, REFUSED, SCHEMA_ONLY)
    }
    print(f"\nfields of specs: {len(states)}: {counts}")


def test_the_table_of_fields_names_fields_and_tests_that_are_there() -> None:
    states = {(row.kind, row.field): row.state for row in field_states(published_crds(), {})}
    table = _table()
    for kind, fields in table["schema-only"].items():
        for field in fields:
            assert states[kind, field] == ACTS, f"{kind} {field} is refused already"
    for kind, fields in table["acts"].items():
        for field, proof in fields.items():
            assert states[kind, field] == ACTS, f"{kind} {field} does not act"
            path, _, test = proof.partition("::")
            assert re.search(rf"def {re.escape(test)}\(", (ROOT / path).read_text()), proof


def test_every_field_that_acts_has_its_test() -> None:
    table = _table()
    acting = {
        (row.kind, row.field)
        for row in field_states(published_crds(), table["schema-only"])
        if row.state == ACTS
    }
    proved = {(kind, field) for kind, fields in table["acts"].items() for field in fields}
    assert acting - proved == set()


@pytest.mark.corpus
def test_real_manifests_are_refused_only_for_what_they_use() -> None:
    refused = {
        (name, entry.path)
        for folder in ("modelserving", "networking")
        for name, obj in corpus_objects(folder)
        for entry in unsupported_fields(obj)
    }
    print("\n" + "\n".join(f"{name}: {path}" for name, path in sorted(refused)))
    assert not any(name == "sample.yaml" for name, _ in refused)
    assert ("ModelRouteWithRateLimit.yaml", "spec.rateLimit") in refused
