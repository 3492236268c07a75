"""From objects of the API to what the router is given."""

import time

import pytest

from kthena.machinery.objects import NamespacedName
from kthena.networking.assemble import concerns, select_pods
from kthena.networking.pods import PodIndex, PodView, view_pod
from kthena.networking.translate import observe_route, observe_server
from kthena.router.routes.spec import EndpointSpec, Role, Rule, RuleMatch, StringMatch, Target
from support.corpus import corpus_objects
from support.networking import PD_SELECTOR, Plane, model_route, model_server, pod, targets


def key(name: str, namespace: str = "default") -> NamespacedName:
    return NamespacedName(namespace, name)


def test_a_route_is_translated_whole() -> None:
    spec = {
        "modelName": "m",
        "loraAdapters": ["a", "b", "a"],
        "rules": [
            {
                "name": "premium",
                "modelMatch": {
                    "headers": {"user-type": {"exact": "premium"}, "x": {"regex": "^a+$"}},
                    "uri": {"prefix": "/v1/"},
                    "body": {"model": "a"},
                },
                "targetModels": [
                    {"modelServerName": "one", "weight": 70},
                    {"modelServerName": "two"},
                ],
            },
            {"targetModels": [{"modelServerName": "three", "weight": 0}, {"modelServerName": "x"}]},
        ],
    }
    observed = observe_route(model_route("r", spec, namespace="ns", generation=4))
    assert observed.fault is None
    assert observed.generation == 4
    route = observed.route
    assert (route.key, route.model_name, route.adapters) == (key("r", "ns"), "m", ("a", "b"))
    assert route.rules == (
        Rule(
            "premium",
            RuleMatch(
                (("user-type", StringMatch(exact="premium")), ("x", StringMatch(regex="^a+$"))),
                StringMatch(prefix="/v1/"),
                "a",
            ),
            (Target(key("one", "ns"), 70), Target(key("two", "ns"), 100)),
        ),
        Rule("", None, (Target(key("three", "ns"), 0), Target(key("x", "ns"), 100))),
    )


def test_an_unchanged_route_keeps_its_compiled_form() -> None:
    spec = {"modelName": "m", "rules": targets("s")}
    first = observe_route(model_route("r", spec))
    again = observe_route(model_route("r", spec, generation=2), previous=first)
    assert again.compiled is first.compiled
    assert again.generation == 2
    changed = observe_route(model_route("r", {**spec, "modelName": "n"}), previous=first)
    assert changed.compiled is not first.compiled


def test_a_route_that_changes_keeps_the_draws_of_rules_that_do_not() -> None:
    rules = targets("s", "t")
    first = observe_route(model_route("r", {"modelName": "m", "rules": rules}))
    more = {"modelName": "m", "rules": [*targets("u"), *rules]}
    draws = [
        one.draw for one in observe_route(model_route("r", more), previous=first).compiled.rules
    ]
    kept = [one.draw for one in first.compiled.rules]
    assert draws[-len(kept) :] == kept
    assert draws[0] not in kept


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"rateLimit": {"unit": "second", "inputTokensPerUnit": 1}}, "spec.rateLimit"),
        ({"parentRefs": [{"name": "gateway"}]}, "spec.parentRefs"),
        (
            {"rules": [{"targetModels": [{"externalModelProviderName": "openai"}]}]},
            "spec.rules[0].targetModels[0].externalModelProviderName",
        ),
    ],
)
def test_an_unsupported_route_serves_nothing_and_says_why(
    extra: dict[str, object], words: str
) -> None:
    plane = Plane([model_route("r", {"modelName": "m", "rules": targets("s"), **extra})], [], [])
    (route,) = plane.routes
    assert route.fault is not None
    assert (route.fault.reason, words in route.fault.message) == ("NotSupported", True)
    assert words in (route.route.refusal or "")
    status = plane.route_status("r")
    assert status["Accepted"] == status["Ready"] == ("False", "NotSupported")
    assert status["Stalled"] == ("True", "NotSupported")
    assert plane.table.names == ()


def test_what_is_unsupported_can_be_decided_elsewhere() -> None:
    spec = {"modelName": "m", "rules": targets("s"), "rateLimit": {"unit": "second"}}
    assert observe_route(model_route("r", spec), refusals=lambda _: []).fault is None


@pytest.mark.parametrize(
    "spec", [{}, {"rules": 3}, {"rules": [{"targetModels": [{"weight": "x"}]}]}]
)
def test_a_route_that_cannot_be_read_is_a_fault_and_claims_nothing(spec: dict[str, object]) -> None:
    plane = Plane([model_route("r", spec)], [], [])
    assert plane.route_status("r")["Accepted"] == ("False", "Invalid")
    assert "ModelRoute default/r cannot be read" in plane.route_message("r", "Accepted")
    assert not plane.resolution.models


def test_a_server_is_translated_whole() -> None:
    spec = {
        "model": "base",
        "workloadPort": {"port": 9000},
        "trafficPolicy": {"timeout": "1m30s"},
        "workloadSelector": PD_SELECTOR,
    }
    observed = observe_server(model_server("s", spec, generation=3))
    assert observed.fault is None
    assert observed.generation == 3
    server = observed.server
    assert (server.model, server.port, server.timeout_s) == ("base", 9000, 90.0)
    assert server.disaggregated
    assert server.connector == "http"
    assert observed.labels == {"app": "pd"}


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(None, None), ("0s", None), ("-5s", None), ("10s", 10.0), ("1ms", 0.001)],
)
def test_timeouts(timeout: str | None, seconds: float | None) -> None:
    policy = {"timeout": timeout} if timeout is not None else {}
    observed = observe_server(model_server("s", {"trafficPolicy": policy}))
    assert observed.server.timeout_s == seconds


def test_a_duration_that_was_stored_and_means_nothing_is_a_fault() -> None:
    plane = Plane([], [model_server("s", {"trafficPolicy": {"timeout": "abc"}})], [])
    assert plane.server_status("s")["Accepted"] == ("False", "Invalid")
    assert plane.server_message("s", "Accepted") == (
        'spec.trafficPolicy.timeout: Invalid value: "abc": time: invalid duration "abc"'
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"kvConnector": {"type": "nixl"}}, "spec.kvConnector.type"),
        ({"trafficPolicy": {"retry": {"attempts": 3}}}, "spec.trafficPolicy.retry"),
        ({"workloadPort": {"port": 1, "protocol": "https"}}, "spec.workloadPort.protocol"),
    ],
)
def test_an_unsupported_server_takes_no_traffic(spec: dict[str, object], words: str) -> None:
    pods = [pod("p", {"app": "s"})]
    plane = Plane(
        [model_route("r", {"modelName": "m", "rules": targets("s")})],
        [model_server("s", spec)],
        pods,
    )
    status = plane.server_status("s")
    assert status["Accepted"] == ("False", "NotSupported")
    assert status["Ready"] == ("False", "NotAccepted")
    assert status["Stalled"] == ("True", "NotSupported")
    assert words in plane.server_message("s", "Accepted")
    assert plane.backends[key("s")].server.refusal is not None
    assert plane.route_status("r")["Ready"] == ("False", "TargetsNotReady")
    assert words in plane.route_message("r", "Ready")


def test_a_server_that_cannot_be_read_is_a_fault() -> None:
    plane = Plane([], [model_server("s", {"workloadPort": {"port": "x"}})], [])
    assert plane.server_status("s")["Accepted"] == ("False", "Invalid")
    assert plane.backends[key("s")].endpoints == ()


# Pods


@pytest.mark.parametrize(
    ("changes", "ready"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"phase": "Pending"}, False),
        ({"ip": ""}, False),
    ],
)
def test_a_pod_is_ready_when_it_runs_says_so_and_has_an_address(
    changes: dict[str, object], ready: bool
) -> None:
    view = view_pod(pod("p", {"a": "b"}, **changes))  # type: ignore[arg-type] # any of its options
    assert view is not None
    assert view.ready is ready


def test_pods_on_their_way_out_are_not_seen() -> None:
    assert view_pod(pod("p", {}, deleting=True)) is None
    assert view_pod(pod("p", {}, phase="Succeeded")) is None
    assert view_pod(pod("p", {}, phase="Failed")) is None
    assert view_pod({"metadata": {"name": "p", "namespace": "default"}}) == PodView(
        key("p"), "", {}, "", ready=False
    )


def test_endpoints_are_the_ready_pods_of_the_namespace_that_have_every_label() -> None:
    server = model_server("s", {"workloadSelector": {"matchLabels": {"app": "s", "tier": "a"}}})
    pods = [
        pod("b", {"app": "s", "tier": "a", "x": "y"}, ip="fd00::2"),
        pod("a", {"app": "s", "tier": "a"}, ip="10.0.0.1"),
        pod("unready", {"app": "s", "tier": "a"}, ready=False),
        pod("half", {"app": "s"}),
        pod("value", {"app": "s", "tier": "b"}),
        pod("elsewhere", {"app": "s", "tier": "a"}, namespace="other"),
        pod("leaving", {"app": "s", "tier": "a"}, deleting=True),
    ]
    plane = Plane([], [server], pods)
    assert plane.backends[key("s")].endpoints == (
        EndpointSpec(key("a"), "uid-a", "10.0.0.1", 8000),
        EndpointSpec(key("b"), "uid-b", "fd00::2", 8000),
    )
    assert [one.key.name for one in plane.selected[key("s")]] == ["a", "b", "unready"]


def test_pods_are_paired_by_group_and_each_has_one_role() -> None:
    server = model_server("s", {"workloadSelector": PD_SELECTOR})
    pods = [
        pod("d", {"app": "pd", "group": "g", "role": "decode"}),
        pod("p", {"app": "pd", "group": "g", "role": "prefill"}),
        pod("worker", {"app": "pd", "group": "g"}),
        pod("lost", {"app": "pd", "role": "decode"}),
        pod("nameless", {"app": "pd", "group": "", "role": "decode"}),
    ]
    endpoints = Plane([], [server], pods).backends[key("s")].endpoints
    assert {one.pod.name: (one.group, one.role) for one in endpoints} == {
        "d": ("g", Role.DECODE),
        "p": ("g", Role.PREFILL),
        "worker": ("", None),
        "lost": ("", None),
        "nameless": ("", None),
    }


def test_a_pod_with_the_labels_of_both_roles_decodes() -> None:
    selector = {
        "matchLabels": {"app": "pd"},
        "pdGroup": {
            "groupKey": "group",
            "prefillLabels": {"can": "all"},
            "decodeLabels": {"can": "all"},
        },
    }
    both = pod("b", {"app": "pd", "group": "g", "can": "all"})
    (endpoint,) = (
        Plane([], [model_server("s", {"workloadSelector": selector})], [both])
        .backends[key("s")]
        .endpoints
    )
    assert endpoint.role is Role.DECODE


def test_relabelling_moves_a_pod_at_once() -> None:
    """From one server to another, and from prefill to decode: never in two places."""
    one, two = observe_server(model_server("one")), observe_server(model_server("two"))
    index = PodIndex()

    def put(labels: dict[str, str]) -> bool:
        view = view_pod(pod("p", labels))
        assert view is not None
        return index.put(view)

    assert put({"app": "one"})
    assert not put({"app": "one"})
    assert len(select_pods(one, index)) == 1
    before = index.get(key("p"))
    assert put({"app": "two"})
    assert (select_pods(one, index), len(select_pods(two, index))) == ([], 1)
    after = index.get(key("p"))
    assert concerns(one, before)
    assert concerns(two, after)
    assert not concerns(one, after)
    assert index.remove(key("p"))
    assert not index.remove(key("p"))
    assert select_pods(two, index) == []
    assert len(index) == 0
    assert index._by_label == {}


def test_a_selector_without_labels_selects_nothing() -> None:
    server = model_server("s", {"workloadSelector": {"matchLabels": {}}})
    plane = Plane([], [server], [pod("p", {"app": "s"})])
    assert plane.selected[key("s")] == []
    assert not concerns(plane.servers[0], plane.index.get(key("p")))


def test_five_thousand_pods_cost_little() -> None:
    """A change of one pod concerns its server alone; a whole rebuild stays far below a stall."""
    views = [
        view_pod(
            pod(f"p{n}", {"app": f"s{n % 100}", "common": "yes"}, ip=f"10.0.{n >> 8}.{n & 255}")
        )
        for n in range(5000)
    ]
    servers = [observe_server(model_server(f"s{n}")) for n in range(100)]
    index = PodIndex()
    started = time.process_time()
    for view in views:
        assert view is not None
        index.put(view)
    filled = time.process_time()
    assert sum(len(select_pods(server, index)) for server in servers) == 5000
    selected = time.process_time()
    for _ in range(100):
        select_pods(servers[7], index)
    once = (time.process_time() - selected) / 100
    assert filled - started < 1.0
    assert selected - filled < 0.5
    assert once < 0.005


@pytest.mark.corpus
def test_the_corpus_is_translated_without_a_fault_but_for_what_is_not_supported() -> None:
    routes = servers = 0
    for name, obj in corpus_objects("networking"):
        if obj["kind"] == "ModelRoute":
            routes += 1
            fault = observe_route(obj).fault
        elif obj["kind"] == "ModelServer":
            servers += 1
            fault = observe_server(obj).fault
        else:
            continue
        assert fault is None or fault.reason == "NotSupported", (name, fault)
    print(f"corpus: {routes} ModelRoutes, {servers} ModelServers")
    assert routes >= 9
    assert servers >= 5
