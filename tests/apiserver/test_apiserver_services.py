"""Services: addresses, ports, and what may change."""

from typing import Any

import pytest

from support.apiserver import CORE, Api


@pytest.fixture
def services(namespace: str) -> str:
    return f"{CORE}/namespaces/{namespace}/services"


def service(name: str, **spec: Any) -> Any:
    return {"metadata": {"name": name}, "spec": {"ports": [{"port": 80}], **spec}}


def test_service_gets_an_address_and_defaults(api: Api, services: str) -> None:
    spec = api.create(services, service("s", selector={"a": "b"})).expect(201)["spec"]
    address = spec.pop("clusterIP")
    assert spec.pop("clusterIPs") == [address]
    assert address.startswith("10.")
    assert spec == {
        "ports": [{"protocol": "TCP", "port": 80, "targetPort": 80}],
        "selector": {"a": "b"},
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
    }


def test_addresses_are_unique_and_come_back(api: Api, services: str) -> None:
    first = api.create(services, service("a")).expect(201)["spec"]["clusterIP"]
    second = api.create(services, service("b")).expect(201)["spec"]["clusterIP"]
    assert first != second
    reply = api.create(services, service("c", clusterIP=first))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert "provided IP is already allocated" in reply.message
    api.delete(f"{services}/a").expect(200)
    again = api.create(services, service("c", clusterIP=first)).expect(201)
    assert again["spec"]["clusterIP"] == first


def test_headless_service(api: Api, services: str) -> None:
    spec = api.create(services, service("s", clusterIP="None")).expect(201)["spec"]
    assert (spec["clusterIP"], spec["clusterIPs"]) == ("None", ["None"])


def test_node_port_service(api: Api, services: str) -> None:
    made = api.create(services, service("s", type="NodePort")).expect(201)
    port = made["spec"]["ports"][0]["nodePort"]
    assert 30000 <= port <= 32767
    assert made["spec"]["externalTrafficPolicy"] == "Cluster"
    taken = service("t", type="NodePort", ports=[{"port": 80, "nodePort": port}])
    reply = api.create(services, taken)
    assert (reply.status, reply.causes) == (422, [("spec.ports[0].nodePort", "FieldValueInvalid")])


def test_addresses_outside_their_range_are_refused(api: Api, services: str) -> None:
    reply = api.create(services, service("s", clusterIP="192.168.1.1"))
    assert (reply.status, reply.causes) == (422, [("spec.clusterIPs", "FieldValueInvalid")])
    ports = [{"port": 80, "nodePort": 1}]
    reply = api.create(services, service("s", type="NodePort", ports=ports))
    assert reply.causes == [("spec.ports[0].nodePort", "FieldValueInvalid")]
    reply = api.create(services, service("s", ports=[{"port": 80, "nodePort": 30080}]))
    assert reply.causes == [("spec.ports[0].nodePort", "FieldValueForbidden")]


def test_type_may_change_and_node_ports_go_with_it(api: Api, services: str) -> None:
    api.create(services, service("s")).expect(201)
    new = api.patch(f"{services}/s", {"spec": {"type": "NodePort"}}).expect(200)
    port = new["spec"]["ports"][0]["nodePort"]
    again = api.patch(f"{services}/s", {"spec": {"selector": {"a": "b"}}}).expect(200)
    assert again["spec"]["ports"][0]["nodePort"] == port
    back = api.patch(f"{services}/s", {"spec": {"type": "ClusterIP"}}).expect(200)
    assert "nodePort" not in back["spec"]["ports"][0]
    assert "externalTrafficPolicy" not in back["spec"]


def test_external_name_service(api: Api, services: str) -> None:
    body = {"metadata": {"name": "s"}, "spec": {"type": "ExternalName", "externalName": "a.io"}}
    spec = api.create(services, body).expect(201)["spec"]
    assert "clusterIP" not in spec
    del body["spec"]["externalName"]
    body["metadata"]["name"] = "t"
    reply = api.create(services, body)
    assert reply.causes == [("spec.externalName", "FieldValueRequired")]


def test_address_stays_through_updates(api: Api, services: str) -> None:
    made = api.create(services, service("s")).expect(201)
    address = made["spec"]["clusterIP"]
    new = api.put(f"{services}/s", service("s", selector={"x": "y"})).expect(200)
    assert new["spec"]["clusterIP"] == address
    reply = api.patch(f"{services}/s", {"spec": {"clusterIP": "10.0.0.250"}})
    assert reply.status == 422
    assert api.get(f"{services}/s").body["spec"]["clusterIP"] == address


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"ports": []}, "spec.ports"),
        ({"ports": [{"port": 0}]}, "spec.ports[0].port"),
        ({"ports": [{"port": 70000}]}, "spec.ports[0].port"),
        ({"ports": [{"port": 1}, {"port": 2}]}, "spec.ports[0].name"),
        ({"ports": [{"port": 1, "protocol": "XYZ"}]}, "spec.ports[0].protocol"),
        ({"ports": [{"port": 1, "targetPort": "Not_Valid!"}]}, "spec.ports[0].targetPort"),
        ({"type": "Sometimes"}, "spec.type"),
        ({"internalTrafficPolicy": "Sometimes"}, "spec.internalTrafficPolicy"),
        ({"externalTrafficPolicy": "Local"}, "spec.externalTrafficPolicy"),
        ({"allocateLoadBalancerNodePorts": True}, "spec.allocateLoadBalancerNodePorts"),
        ({"sessionAffinity": "Sometimes"}, "spec.sessionAffinity"),
        ({"clusterIP": "not-an-ip"}, "spec.clusterIPs[0]"),
        ({"selector": {"bad key!": "x"}}, "spec.selector"),
    ],
)
def test_mistakes_are_named(api: Api, services: str, spec: Any, field: str) -> None:
    reply = api.create(services, service("s", **spec))
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert field in [name for name, _ in reply.causes], reply.causes


def test_names_are_dns_labels(api: Api, services: str) -> None:
    reply = api.create(services, service("a.b"))
    assert (reply.status, reply.causes) == (422, [("metadata.name", "FieldValueInvalid")])
