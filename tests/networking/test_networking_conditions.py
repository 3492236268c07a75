"""What ModelServers and ModelRoutes say of themselves."""

import pytest

from kthena.machinery.objects import NamespacedName
from kthena.networking.conditions import (
    OWNED_TYPES,
    count_endpoints,
    route_conditions,
    server_conditions,
)
from support.networking import (
    PD_SELECTOR,
    Plane,
    kstatus,
    model_route,
    model_server,
    pod,
    targets,
)

ROUTE = model_route("r", {"modelName": "m", "rules": targets("s")})
SERVER = model_server("s")


def key(name: str) -> NamespacedName:
    return NamespacedName("default", name)


def plane(*, pods: int = 0, unready: int = 0, server: bool = True) -> Plane:
    found = [pod(f"p{n}", {"app": "s"}) for n in range(pods)]
    found += [pod(f"u{n}", {"app": "s"}, ready=False) for n in range(unready)]
    return Plane([ROUTE], [SERVER] if server else [], found)


def test_without_pods_the_server_waits() -> None:
    status = plane().server_status("s")
    assert status == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("False", "NoPods"),
        "Ready": ("False", "NoReadyEndpoints"),
        "Reconciling": ("True", "NoReadyEndpoints"),
    }
    assert kstatus(1, status, 1) == "InProgress"


def test_pods_that_are_not_ready_are_found_but_not_asked() -> None:
    status = plane(unready=2).server_status("s")
    assert status["ResolvedRefs"] == ("True", "PodsFound")
    assert status["Ready"] == ("False", "NoReadyEndpoints")


def test_one_ready_pod_makes_the_server_ready() -> None:
    found = plane(pods=1, unready=2)
    status = found.server_status("s")
    assert status == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("True", "PodsFound"),
        "Ready": ("True", "EndpointsReady"),
    }
    assert found.server_message("s", "Ready") == "1 of 3 pods are ready"
    assert kstatus(1, status, 1) == "Current"
    counts = count_endpoints(found.selected[key("s")], found.backends[key("s")])
    assert counts.as_status() == {
        "endpoints": 3,
        "readyEndpoints": 1,
        "readyPrefillEndpoints": 0,
        "readyDecodeEndpoints": 0,
    }


def pd_pod(name: str, role: str, group: str = "g", *, ready: bool = True):  # type: ignore[no-untyped-def] # an object
    return pod(name, {"app": "pd", "group": group, "role": role}, ready=ready)


PD_CASES = {
    "nothing": ([], ("False", "NoPods"), "no prefill and no decode pod is ready"),
    "no prefill": (
        [pd_pod("d", "decode")],
        ("False", "RoleMissing"),
        "no prefill pod is ready",
    ),
    "prefill unready": (
        [pd_pod("d", "decode"), pd_pod("p", "prefill", ready=False)],
        ("True", "PodsFound"),
        "no prefill pod is ready",
    ),
    "no decode": ([pd_pod("p", "prefill")], ("False", "RoleMissing"), "no decode pod is ready"),
    "apart": (
        [pd_pod("p", "prefill", "g"), pd_pod("d", "decode", "h")],
        ("True", "PodsFound"),
        "no group has both a ready prefill and a ready decode pod",
    ),
}


@pytest.mark.parametrize(("pods", "refs", "words"), PD_CASES.values(), ids=PD_CASES.keys())
def test_a_missing_role_is_named(
    pods: list[dict[str, object]], refs: tuple[str, str], words: str
) -> None:
    server = model_server("s", {"workloadSelector": PD_SELECTOR})
    found = Plane([ROUTE], [server], pods)
    status = found.server_status("s")
    assert status["ResolvedRefs"] == refs
    assert status["Ready"] == ("False", "RoleMissing")
    assert found.server_message("s", "Ready") == words
    assert found.route_status("r")["Ready"] == ("False", "TargetsNotReady")
    assert words in found.route_message("r", "Ready")


def test_a_complete_group_makes_a_disaggregated_server_ready() -> None:
    server = model_server("s", {"workloadSelector": PD_SELECTOR})
    pods = [pd_pod("p", "prefill"), pd_pod("d", "decode"), pd_pod("e", "decode", "h")]
    found = Plane([ROUTE], [server], pods)
    assert found.server_status("s")["Ready"] == ("True", "EndpointsReady")
    assert found.route_status("r")["Ready"] == ("True", "TargetsReady")
    counts = count_endpoints(found.selected[key("s")], found.backends[key("s")])
    assert (counts.ready_prefill, counts.ready_decode) == (1, 2)


def test_a_route_is_ready_when_every_rule_can_be_served() -> None:
    status = plane(pods=1).route_status("r")
    assert status == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "Ready": ("True", "TargetsReady"),
    }
    assert kstatus(1, status, 1) == "Current"
    waiting = plane().route_status("r")
    assert waiting["Ready"] == ("False", "TargetsNotReady")
    assert kstatus(1, waiting, 1) == "InProgress"


def test_a_target_that_does_not_exist_is_named() -> None:
    found = plane(server=False)
    status = found.route_status("r")
    assert status["ResolvedRefs"] == ("False", "ModelServerNotFound")
    assert status["Ready"] == ("False", "TargetsNotReady")
    assert found.route_message("r", "ResolvedRefs") == "ModelServer default/s does not exist"
    assert kstatus(1, status, 1) == "InProgress"


def test_one_ready_target_is_enough_for_a_rule_but_weight_zero_counts_for_nothing() -> None:
    def ready(weights: dict[str, int]) -> tuple[str, str]:
        spec = {
            "modelName": "m",
            "rules": [
                {
                    "targetModels": [
                        {"modelServerName": name, "weight": weight}
                        for name, weight in weights.items()
                    ]
                }
            ],
        }
        found = Plane([model_route("r", spec)], [SERVER], [pod("p", {"app": "s"})])
        return found.route_status("r")["Ready"]

    assert ready({"absent": 100, "s": 1}) == ("True", "TargetsReady")
    assert ready({"absent": 100, "s": 0}) == ("False", "TargetsNotReady")


def test_a_rule_that_does_not_compile_is_named_while_the_others_serve() -> None:
    bad = {"modelMatch": {"headers": {"x-tier": {"exact": "a", "regex": "["}}}, **targets("s")[0]}
    found = Plane(
        [model_route("r", {"modelName": "m", "rules": [bad, *targets("s")]})],
        [SERVER],
        [pod("p", {"app": "s"})],
    )
    status = found.route_status("r")
    assert status["Accepted"] == ("True", "PartiallyInvalid")
    assert status["Stalled"] == ("True", "PartiallyInvalid")
    assert status["Ready"] == ("False", "PartiallyInvalid")
    assert kstatus(1, status, 1) == "Failed"
    assert found.route_message("r", "Accepted") == (
        "these rules serve nothing: spec.rules[0].modelMatch.headers[x-tier].regex: "
        'Invalid value: "[": error parsing regexp: missing closing ]: `[`'
    )
    assert found.table.names == ("m",)


def test_a_route_of_which_no_rule_compiles_is_not_accepted() -> None:
    bad = {"modelMatch": {"uri": {"regex": "(?=x)"}}, **targets("s")[0]}
    found = Plane([model_route("r", {"modelName": "m", "rules": [bad]})], [SERVER], [])
    assert found.route_status("r")["Accepted"] == ("False", "InvalidRules")


def test_a_route_without_rules_is_not_accepted() -> None:
    found = Plane([model_route("r", {"modelName": "m", "rules": []})], [], [])
    status = found.route_status("r")
    assert status["Accepted"] == status["Ready"] == ("False", "NoRules")
    assert kstatus(1, status, 1) == "Failed"


def test_several_tests_of_one_string_are_accepted_with_a_warning_and_stay_ready() -> None:
    rule = {
        "modelMatch": {"headers": {"x": {"exact": "a", "prefix": "b"}}, "uri": {"regex": "c"}},
        **targets("s")[0],
    }
    found = Plane(
        [model_route("r", {"modelName": "m", "rules": [rule]})], [SERVER], [pod("p", {"app": "s"})]
    )
    status = found.route_status("r")
    assert status["Accepted"] == ("True", "AcceptedWithWarnings")
    assert found.route_message("r", "Accepted") == (
        "spec.rules[0].modelMatch.headers[x] has exact and prefix; only exact counts"
    )
    assert kstatus(1, status, 1) == "Current"


def test_long_messages_are_cut() -> None:
    names = [f"server-{n:04}" for n in range(16)]
    rules = [
        {"targetModels": [{"modelServerName": f"{name}-{n}"} for name in names]} for n in range(16)
    ]
    found = Plane([model_route("r", {"modelName": "m", "rules": rules})], [], [])
    assert len(found.route_message("r", "Ready")) == 4096
    assert found.route_message("r", "Ready").endswith("…")


def test_only_owned_types_are_written_and_no_reason_is_malformed() -> None:
    cases = [plane(), plane(pods=1), plane(server=False), plane(unready=1)]
    for found in cases:
        reports = [
            route_conditions(one, found.resolution, found.states) for one in found.routes
        ] + [
            server_conditions(one, found.selected[one.key], found.backends[one.key])
            for one in found.servers
        ]
        for report in reports:
            assert [one.type for one in report] == [
                t for t in OWNED_TYPES if t in {c.type for c in report}
            ]
            assert all(one.reason.isalpha() for one in report)
            assert all(one.message for one in report)
