"""Kthena's own CRDs compile as they are, and its manifests pass through them whole."""

from functools import cache
from typing import Any

import pytest

from kthena.machinery.schema.custom import CustomResourceSchema
from kthena.machinery.schema.scale import ScalePaths
from support.corpus import corpus_objects, require_reference_crd

pytestmark = pytest.mark.corpus

_KINDS = {
    "ModelServing": "modelservings.workload.serving.volcano.sh",
    "AutoscalingPolicy": "autoscalingpolicies.workload.serving.volcano.sh",
    "ModelBooster": "modelboosters.workload.serving.volcano.sh",
    "ModelServer": "modelservers.networking.serving.volcano.sh",
    "ModelRoute": "modelroutes.networking.serving.volcano.sh",
    "ExternalModelProvider": "externalmodelproviders.networking.serving.volcano.sh",
}


@cache
def _schema(kind: str) -> CustomResourceSchema:
    (version,) = require_reference_crd(_KINDS[kind])["spec"]["versions"]
    subresources = version.get("subresources", {})
    scale = subresources.get("scale")
    paths = scale and ScalePaths(
        scale["specReplicasPath"], scale["statusReplicasPath"], scale.get("labelSelectorPath")
    )
    return CustomResourceSchema(
        version["schema"]["openAPIV3Schema"],
        status_subresource="status" in subresources,
        scale=paths,
    )


@pytest.mark.parametrize("kind", _KINDS)
def test_the_definitions_of_kthena_compile(kind: str) -> None:
    schema = _schema(kind).schema
    assert {"spec", "status"} <= schema.properties.keys()


@pytest.mark.parametrize("folder", ["modelserving", "networking", "autoscaling"])
def test_the_manifests_of_kthena_pass_whole(folder: str) -> None:
    passed = 0
    for name, obj in corpus_objects(folder):
        if obj.get("kind") not in _KINDS:
            continue
        schema = _schema(obj["kind"])
        admitted = schema.admit_create(obj)
        assert [str(error) for error in admitted.errors] == [], name
        assert admitted.pruned == [], name
        _assert_editable(schema, admitted.object)
        passed += 1
    assert passed > 0


def _assert_editable(schema: CustomResourceSchema, stored: dict[str, Any]) -> None:
    """What has been admitted may be written again, and get a status."""
    old = schema.default(stored)
    again = schema.admit_update(stored, old)
    assert (again.object, again.errors, again.warnings) == (old, [], [])
    assert schema.admit_status_update({**stored, "status": {}}, old).errors == []
