"""Rules of services, nodes and namespaces that clients hear of in so many words."""

from typing import Any

import pytest

from support.apiserver import CORE, Api

NAMESPACES = f"{CORE}/namespaces"
NODES = f"{CORE}/nodes"
RANGE = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
QUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


def refusal(reply: Any) -> str:
    """What a reply of 422 says of the object."""
    assert reply.status == 422, reply.body
    return str(reply.message.partition(" is invalid: ")[2])


@pytest.mark.parametrize("timeout", [0, -1, 86401])
def test_affinity_lasts_a_day_at_most(api: Api, namespace: str, timeout: int) -> None:
    config = {"clientIP": {"timeoutSeconds": timeout}}
    spec = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config, "ports": [{"port": 80}]}
    path = f"{NAMESPACES}/{namespace}/services"
    assert refusal(api.create(path, {"metadata": {"name": "a"}, "spec": spec})) == (
        f"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: {timeout}: "
        "must be greater than 0 and less than 86400"
    )
    config["clientIP"]["timeoutSeconds"] = 86400
    api.create(path, {"metadata": {"name": "a"}, "spec": spec}).expect(201)


def test_traffic_distribution_is_known(api: Api, namespace: str) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"trafficDistribution": "X", "ports": [{"port": 1}]}}
    assert refusal(api.create(f"{NAMESPACES}/{namespace}/services", body)) == (
        'spec.trafficDistribution: Unsupported value: "X": supported values: "PreferClose", '
        '"PreferSameZone", "PreferSameNode"'
    )


def test_repeated_port_is_shown_as_the_struct(api: Api, namespace: str) -> None:
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 80}]
    body = {"metadata": {"name": "a"}, "spec": {"ports": ports}}
    assert refusal(api.create(f"{NAMESPACES}/{namespace}/services", body)) == (
        'spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,'
        '"TargetPort":0,"NodePort":0}'
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"podCIDR": "x"}, f'spec.podCIDRs[0]: Invalid value: "x": {RANGE}'),
        (
            {"podCIDRs": ["10.0.0.0/24", "10.0.1.0/24"]},
            (
                'spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than '
                "one CIDR for each IP family"
            ),
        ),
        (
            {"taints": [{"key": "a", "effect": "X"}]},
            (
                'metadata.taints[0].effect: Unsupported value: "X": supported values: "NoSchedule", '
                '"PreferNoSchedule", "NoExecute"'
            ),
        ),
        (
            {"taints": [{"key": "a", "effect": "NoSchedule"}] * 2},
            (
                'metadata.taints[1]: Duplicate value: {"Key":"a","Value":"","Effect":"NoSchedule",'
                '"TimeAdded":null}: taints must be unique by key and effect pair'
            ),
        ),
    ],
)
def test_nodes_are_checked(api: Api, unique: str, spec: Any, message: str) -> None:
    assert refusal(api.create(NODES, {"metadata": {"name": unique}, "spec": spec})) == message


def test_what_a_node_was_given_stays(api: Api, unique: str) -> None:
    spec = {"podCIDR": "10.0.0.0/24", "providerID": "a"}
    made = api.create(NODES, {"metadata": {"name": unique}, "spec": spec}).expect(201)
    try:
        assert made["spec"]["podCIDRs"] == ["10.0.0.0/24"]
        change = {"spec": {"podCIDR": None, "podCIDRs": None, "providerID": "b"}}
        assert refusal(api.patch(f"{NODES}/{unique}", change)) == (
            '[spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to '
            "valid, spec.providerID: Forbidden: node updates may not change providerID except from "
            '"" to valid]'
        )
    finally:
        api.delete(f"{NODES}/{unique}").expect(200)


def test_odd_ranges_of_nodes_are_told(api: Api, unique: str) -> None:
    body = {"metadata": {"name": unique}, "spec": {"podCIDR": "10.0.0.1/24"}}
    assert api.create(NODES, body, dryRun="All").warnings == [
        (
            'spec.podCIDRs[0]: CIDR value "10.0.0.1/24" is ambiguous in this context (should be '
            '"10.0.0.0/24" or "10.0.0.1/32"?)'
        )
    ]


def test_namespaces_have_proper_finalizers(api: Api, namespace: str) -> None:
    body: Any = {"metadata": {"name": f"{namespace}x"}, "spec": {"finalizers": ["bad"]}}
    expected = f'Invalid value: "bad": {QUALIFIED}'
    assert refusal(api.create(NAMESPACES, body)) == f"spec.finalizers: {expected}"
    path = f"{NAMESPACES}/{namespace}"
    body = api.get(path).expect(200)
    body["spec"]["finalizers"] = ["kubernetes", "bad"]
    assert refusal(api.put(f"{path}/finalize", body)) == f"spec.finalizers[1]: {expected}"


def test_phase_follows_from_the_deletion(api: Api, namespace: str) -> None:
    path = f"{NAMESPACES}/{namespace}"
    body = api.get(path).expect(200)
    body["status"] = {"phase": "Terminating"}
    assert refusal(api.put(f"{path}/status", body)) == (
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if "
        "`deletionTimestamp` is empty"
    )
