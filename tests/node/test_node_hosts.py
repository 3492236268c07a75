import asyncio
from pathlib import Path
from typing import Any

import pytest

from kthena.kube.clock import FakeClock
from kthena.local.node.hosts import (
    Endpoint,
    answer_for,
    endpoint_of,
    render_own,
    render_services,
    selects,
)
from kthena.local.node.resolution import HostsTable, rewrite
from kthena.machinery.objects import NamespacedName, Object, key_of, uid_of


def service(name: str = "svc", namespace: str = "ns", **spec: Any) -> Object:
    spec.setdefault("selector", {"app": "x"})
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def pod(name: str, address: str, *, ready: bool = True, labels: Any = None, **spec: Any) -> Object:
    return {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "labels": labels or {"app": "x"},
        },
        "spec": spec,
        "status": {
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


def endpoints(*pods: Object) -> list[Endpoint]:
    return [endpoint_of(entry) for entry in pods]


def test_a_headless_service_stands_for_its_ready_pods() -> None:
    pods = endpoints(
        pod("a", "127.2.0.9"), pod("b", "127.2.0.3"), pod("c", "127.2.0.4", ready=False)
    )
    answer = answer_for(service(clusterIP="None"), pods)

    assert answer is not None
    assert answer.addresses == ("127.2.0.3", "127.2.0.9")


def test_one_that_publishes_them_has_those_not_ready_too() -> None:
    pods = endpoints(pod("c", "127.2.0.4", ready=False), pod("d", "", ready=False))
    answer = answer_for(service(clusterIP="None", publishNotReadyAddresses=True), pods)

    assert answer is not None
    assert answer.addresses == ("127.2.0.4",)


def test_any_other_service_stands_for_one_ready_pod() -> None:
    pods = endpoints(pod("b", "127.2.0.9"), pod("a", "127.2.0.3", ready=False))
    answer = answer_for(service(clusterIP="10.0.0.1"), pods)

    assert answer is not None
    assert answer.addresses == ("127.2.0.9",)


def test_a_service_without_endpoints_has_no_name() -> None:
    assert answer_for(service(), []) is None
    assert answer_for(service(), endpoints(pod("a", "127.2.0.3", ready=False))) is None


def test_terminating_and_finished_pods() -> None:
    leaving = pod("a", "127.2.0.3")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    finished = pod("b", "127.2.0.4")
    finished["status"]["phase"] = "Succeeded"

    assert not endpoint_of(leaving).ready
    assert endpoint_of(leaving).address == "127.2.0.3"
    assert endpoint_of(finished).address == ""


@pytest.mark.parametrize(
    ("selector", "labels", "found"),
    [
        ({"a": "1"}, {"a": "1", "b": "2"}, True),
        ({"a": "1", "b": "3"}, {"a": "1", "b": "2"}, False),
        ({}, {"a": "1"}, False),
        (None, {"a": "1"}, False),
    ],
)
def test_selectors(selector: Any, labels: Any, found: bool) -> None:
    entry = service()
    entry["spec"]["selector"] = selector
    assert selects(entry, pod("p", "127.2.0.2", labels=labels)) is found


def test_the_names_of_a_service_from_inside_and_outside_its_namespace() -> None:
    answer = answer_for(service(clusterIP="None"), endpoints(pod("a", "127.2.0.3")))
    assert answer is not None

    assert (
        render_services([answer], "ns")
        == "127.2.0.3\tsvc.ns.svc.cluster.local svc.ns.svc svc.ns svc\n"
    )
    assert (
        render_services([answer], "other")
        == "127.2.0.3\tsvc.ns.svc.cluster.local svc.ns.svc svc.ns\n"
    )


def test_a_host_name_below_its_headless_service() -> None:
    pods = endpoints(pod("a", "127.2.0.3", hostname="web-0", subdomain="svc"),
                     pod("b", "127.2.0.4", hostname="web-1", subdomain="else"))  # fmt: skip
    answer = answer_for(service(clusterIP="None"), pods)
    assert answer is not None

    text = render_services([answer], "other")
    assert "127.2.0.3\tweb-0.svc.ns.svc.cluster.local web-0.svc.ns.svc web-0.svc.ns\n" in text
    assert "web-1" not in text


def test_a_pod_sees_itself_as_localhost_and_its_aliases_unmodified() -> None:
    aliases: list[dict[str, object]] = [
        {"ip": "10.0.0.1", "hostnames": ["a", "b"]},
        {"ip": "10.0.0.1", "hostnames": ["c"]},
        {"ip": "10.0.0.2"},
    ]
    lines = render_own("127.2.0.3", ["p-0"], aliases).splitlines()

    assert lines[1:] == ["127.2.0.3\tlocalhost p-0", "10.0.0.1\ta b", "10.0.0.1\tc"]


def test_rewriting_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    for content in (b"first\n", b"a much longer content\n", b"x\n", b""):
        inode = path.stat().st_ino if path.exists() else None
        rewrite(path, content)
        assert path.read_bytes() == content
        assert inode in {None, path.stat().st_ino}


async def test_an_address_counts_as_soon_as_it_is_given(tmp_path: Path) -> None:
    table = HostsTable(FakeClock())
    path, own = tmp_path / "hosts", pod("me", "")
    table.set_service(NamespacedName("ns", "svc"), service(publishNotReadyAddresses=True))
    waiting = asyncio.create_task(table.resolved(NamespacedName("ns", "svc")))
    table.flush()
    await asyncio.sleep(0)
    assert not waiting.done()
    table.add_file(uid_of(own), path, own, "127.2.0.9", ["me"])
    table.flush()
    await waiting
    assert "127.2.0.9\tsvc.ns.svc" in path.read_text()
    # Its status does not tell the address yet.
    table.set_pod(key_of(own), pod("me", ""))
    table.flush()
    assert "127.2.0.9\tsvc.ns.svc" in path.read_text()


async def test_files_follow_services_and_pods(tmp_path: Path) -> None:
    table = HostsTable(FakeClock())
    path = tmp_path / "pod" / "hosts"
    own = pod("me", "127.2.0.9", labels={"app": "me"})
    table.add_file("uid", path, own, "127.2.0.9", ["me"])
    inode = path.stat().st_ino

    def change(kind: str, obj: Object | None, key: NamespacedName | None = None) -> str:
        key = key or key_of(obj or {})
        (table.set_service if kind == "service" else table.set_pod)(key, obj)
        table.flush()
        return str(path.read_text())

    entry = service(clusterIP="None", publishNotReadyAddresses=True)
    assert "svc" not in change("service", entry)
    assert "127.2.0.3\tsvc.ns.svc" in change("pod", pod("a", "127.2.0.3", ready=False))
    assert "127.2.0.4\tsvc.ns.svc" in change("pod", pod("b", "127.2.0.4"))
    assert "127.2.0.3" not in change("pod", pod("a", "127.2.0.3", labels={"app": "y"}))
    assert "127.2.0.4" not in change("pod", None, NamespacedName("ns", "b"))
    assert path.stat().st_ino == inode
    table.remove_file("uid")
    path.unlink()
    table.set_pod(NamespacedName("ns", "a"), pod("a", "127.2.0.3"))
    table.flush()
    assert not path.exists()
