"""Typed views: defaults as the CRD's, tolerance for what older schemas let in, clear refusals."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from kthena.api.crd.definition import definition
from kthena.api.kinds import DEFINITIONS
from kthena.api.meta import ApiStruct, DecodeError
from kthena.api.networking import externalmodelprovider, modelroute, modelserver
from kthena.api.workload import autoscalingpolicy, modelbooster, modelserving
from support.corpus import corpus_objects
from support.crdvectors import Vector, load, valid_objects
from support.schemas import crd_schema

Decode = Callable[[dict[str, Any]], ApiStruct]

DECODERS: dict[str, Decode] = {
    "ModelServing": modelserving.decode,
    "AutoscalingPolicy": autoscalingpolicy.decode,
    "ModelServer": modelserver.decode,
    "ModelRoute": modelroute.decode,
    "ExternalModelProvider": externalmodelprovider.decode,
    "ModelBooster": modelbooster.decode,
}
SERVED = [kind for kind in DECODERS if kind != "ModelBooster"]


def _defaulted(schema: dict[str, Any], value: Any) -> Any:
    """The value as the API server would complete it."""
    if isinstance(value, list):
        return [_defaulted(schema.get("items", {}), item) for item in value]
    if not isinstance(value, dict):
        return value
    properties = schema.get("properties", {})
    values = schema.get("additionalProperties") or {}
    result = {
        name: copy.deepcopy(child["default"])
        for name, child in properties.items()
        if "default" in child
    }
    result |= value
    return {name: _defaulted(properties.get(name, values), inner) for name, inner in result.items()}


@pytest.mark.parametrize("kind", DEFINITIONS, ids=lambda kind: kind.info.resource.kind)
def test_a_sparse_object_reads_as_the_server_would_complete_it(kind: Any) -> None:
    name = kind.info.resource.kind
    schema = crd_schema(definition(kind))
    for obj in SPARSE[name]:
        completed = _defaulted(schema, obj)
        assert DECODERS[name](obj) == DECODERS[name](completed)
        assert completed != obj or name == "ModelBooster"


def _object(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"name": "a", "namespace": "b"}, "spec": spec}


SPARSE = {
    "ModelServing": [
        _object("ModelServing", {
            "template": {
                "networkTopology": {"groupPolicy": {}},
                "roles": [{"name": "a", "workerReplicas": 0, "entryTemplate": {}}],
            },
            "rolloutStrategy": {"rollingUpdateConfiguration": {}},
            "plugins": [{"name": "a"}],
        }),
    ],
    "AutoscalingPolicy": [
        _object("AutoscalingPolicy", {}),
        _object("AutoscalingPolicy", {
            "behavior": {"scaleUp": {"panicPolicy": {"period": "1s"}}, "scaleDown": {"percent": 5}},
            "heterogeneousTarget": {"params": [{
                "minReplicas": 1, "maxReplicas": 2,
                "target": {"targetRef": {"name": "a"}, "metricSources": {"m": {"pod": {}}}},
            }]},
        }),
    ],
    "ModelServer": [
        _object("ModelServer", {
            "inferenceEngine": "vLLM", "workloadSelector": {"matchLabels": {"a": "b"}},
            "workloadPort": {"port": 1}, "trafficPolicy": {"retry": {}}, "kvConnector": {},
        }),
    ],
    "ModelRoute": [
        _object("ModelRoute", {
            "rules": [{"targetModels": [{"modelServerName": "a"}]}], "rateLimit": {},
            "parentRefs": [{"name": "a"}],
        }),
    ],
    "ExternalModelProvider": [
        _object("ExternalModelProvider", {"baseURL": "https://a", "auth": {"secretRef": {"key": "a"}}}),
    ],
    "ModelBooster": [
        _object("ModelBooster", {"backend": {
            "name": "a", "type": "vLLM", "modelURI": "hf://a", "replicas": 1, "workers": [{}],
        }}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", SERVED)
def test_valid_objects_decode(kind: str) -> None:
    for obj in valid_objects(kind).values():
        assert isinstance(DECODERS[kind](obj), ApiStruct)


def _storable_under_kthena(vector: Vector) -> bool:
    """Bounds and rules; a missing field or an unknown word of an enumeration Kthena refuses too."""
    return not vector.check.startswith(("required", "enum")) and "needs a spec" not in vector.check


@pytest.mark.parametrize("kind", SERVED)
def test_what_breaks_a_bound_or_a_rule_still_decodes(kind: str) -> None:
    broken = [vector for vector in load(kind) if _storable_under_kthena(vector)]
    assert broken
    for vector in broken:
        assert isinstance(DECODERS[kind](vector.denied), ApiStruct)


@pytest.mark.parametrize("kind", DECODERS)
def test_an_object_without_a_spec_is_refused_by_name(kind: str) -> None:
    obj = {"kind": kind, "metadata": {"namespace": "ns", "name": "it"}}
    with pytest.raises(DecodeError, match=rf"{kind} ns/it cannot be read: .*`spec`"):
        DECODERS[kind](obj)


def test_a_wrong_type_is_named_with_its_path() -> None:
    obj = valid_objects("ModelServer")["plain"]
    obj["spec"]["workloadPort"]["port"] = "http"
    with pytest.raises(
        DecodeError, match=r"Expected `int`, got `str` - at `\$\.spec\.workloadPort\.port`"
    ):
        modelserver.decode(obj)


def test_pod_templates_stay_as_they_are() -> None:
    obj = valid_objects("ModelServing")["group"]
    template = obj["spec"]["template"]["roles"][0]["entryTemplate"]
    template["spec"]["aFieldOfTheFuture"] = {"a": [1]}
    assert modelserving.decode(obj).spec.template.roles[0].entry_template == template


@pytest.mark.corpus
def test_real_manifests_decode() -> None:
    decoded = 0
    for folder in ("modelserving", "networking", "autoscaling", "modelbooster"):
        for _, obj in corpus_objects(folder):
            if obj["kind"] in DECODERS:
                assert isinstance(DECODERS[obj["kind"]](obj), ApiStruct)
                decoded += 1
    print(f"\n{decoded} corpus objects decoded")
    assert decoded > 0
