import copy
from typing import Any

import pytest

from kthena.workload.canonical import canonical_role, short_hash
from support.workload_world import role


def with_container(**fields: Any) -> dict[str, Any]:
    result = role(workers=1)
    result["entryTemplate"]["spec"]["containers"][0].update(fields)
    return result


def with_spec(**fields: Any) -> dict[str, Any]:
    result = role(workers=1)
    result["entryTemplate"]["spec"].update(fields)
    return result


def with_entry(**fields: Any) -> dict[str, Any]:
    result = role(workers=1)
    result["entryTemplate"].update(fields)
    return result


SAME = {
    "null field": (with_container(command=None), role(workers=1)),
    "empty struct": (with_container(resources={}), role(workers=1)),
    "empty metadata": (with_entry(metadata={}), role(workers=1)),
    "empty labels": (with_entry(metadata={"labels": {}}), role(workers=1)),
    "empty list": (with_spec(volumes=[]), role(workers=1)),
    "empty affinity": (with_spec(affinity={}), role(workers=1)),
    "host network off": (with_spec(hostNetwork=False), role(workers=1)),
    "tty off": (with_container(tty=False), role(workers=1)),
    "empty text": (with_container(workingDir=""), role(workers=1)),
    "default protocol": (
        with_container(ports=[{"containerPort": 1, "protocol": "TCP"}]),
        with_container(ports=[{"containerPort": 1}]),
    ),
    "quantity as number": (
        with_container(resources={"requests": {"cpu": 125}}),
        with_container(resources={"requests": {"cpu": "125"}}),
    ),
    "quantity in other units": (
        with_container(resources={"limits": {"cpu": "1000m", "memory": "1Gi"}}),
        with_container(resources={"limits": {"cpu": "1", "memory": "1024Mi"}}),
    ),
    "divisor zero": (
        with_container(env=[{"name": "a", "valueFrom": {"resourceFieldRef": {"divisor": "0"}}}]),
        with_container(env=[{"name": "a", "valueFrom": {"resourceFieldRef": {}}}]),
    ),
    "size limit": (
        with_spec(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "15360Mi"}}]),
        with_spec(volumes=[{"name": "v", "emptyDir": {"sizeLimit": "15Gi"}}]),
    ),
    "probe zero": (
        with_container(readinessProbe={"initialDelaySeconds": 0, "tcpSocket": {"port": 1}}),
        with_container(readinessProbe={"tcpSocket": {"port": 1}}),
    ),
    "env empty value": (
        with_container(env=[{"name": "a", "value": ""}]),
        with_container(env=[{"name": "a"}]),
    ),
    "replicas": (role(workers=1, replicas=7), role(workers=1)),
    "rollout settings": (role(workers=1, maxUnavailable=2, partition="10%"), role(workers=1)),
}

DIFFERENT = {
    "image": (role(image="a"), role(image="b")),
    "workers": (role(workers=1), role(workers=2)),
    "worker template without workers": (role(), role(workerTemplate={})),
    "name": (role("a"), role("b")),
    "label with empty value": (
        with_entry(metadata={"labels": {"x": ""}}),
        with_entry(metadata={"labels": {}}),
    ),
    "node selector with empty value": (with_spec(nodeSelector={"x": ""}), with_spec()),
    "selector for everything": (
        with_spec(affinity={"podAffinity": {"t": [{"labelSelector": {}}]}}),
        with_spec(affinity={"podAffinity": {"t": [{}]}}),
    ),
    "token off": (with_spec(automountServiceAccountToken=False), with_spec()),
    "service links off": (with_spec(enableServiceLinks=False), with_spec()),
    "no grace": (with_spec(terminationGracePeriodSeconds=0), with_spec()),
    "root": (with_spec(securityContext={"runAsUser": 0}), with_spec()),
    "root again allowed": (
        with_container(securityContext={"runAsNonRoot": False}),
        with_container(),
    ),
    "order of arguments": (with_container(args=["a", "b"]), with_container(args=["b", "a"])),
    "argument that is empty": (with_container(args=["a", ""]), with_container(args=["a"])),
    "unknown field": (with_spec(fieldOfTomorrow="x"), with_spec()),
    "port name": (
        with_container(ports=[{"containerPort": 1, "protocol": "UDP"}]),
        with_container(ports=[{"containerPort": 1}]),
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_roles_that_make_the_same_pods_are_the_same(case: str) -> None:
    left, right = SAME[case]

    assert canonical_role(left) == canonical_role(right)


@pytest.mark.parametrize("case", DIFFERENT)
def test_roles_that_make_other_pods_differ(case: str) -> None:
    left, right = DIFFERENT[case]

    assert canonical_role(left) != canonical_role(right)


def test_the_role_is_not_changed() -> None:
    original = with_container(resources={"limits": {"cpu": 1}}, env=[{"name": "a", "value": ""}])
    before = copy.deepcopy(original)

    canonical_role(original)

    assert original == before


def test_the_form_does_not_depend_on_the_order_of_fields() -> None:
    original = role(workers=1)
    turned = dict(reversed(original.items()))

    assert canonical_role(original) == canonical_role(turned)


def test_hashes_are_stable_names() -> None:
    # These values are on objects in clusters: another value for the same text restarts pods.
    assert short_hash("") == "8k8z7gq76t"
    assert short_hash(canonical_role(role())) == "qj5h9ls72d"
    assert set(short_hash("x")) <= set("bcdfghjklmnpqrstvwxz2456789")
