"""Pure parts of the server, each on its own."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kthena.local.apiserver import gojson
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.catalog import version_priority
from kthena.local.apiserver.codec import DecodeError
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.customresources.naming import accept_names
from kthena.local.apiserver.deletion import is_finished, plan_deletion
from kthena.local.apiserver.gotypes import decoder_for
from kthena.local.apiserver.kinds import Asker, Step
from kthena.local.apiserver.mediatypes import APPLY_PATCH
from kthena.local.apiserver.negotiation import parse_accept
from kthena.local.apiserver.options import DeleteOptions, Query, parse_write_options
from kthena.local.apiserver.ownership import OwnerState, Verdict, judge
from kthena.local.apiserver.requests import parse_resource_path
from kthena.local.apiserver.tables import age, human_duration

NOW = datetime(2024, 1, 1, tzinfo=UTC)


# --- durations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (185, "3m5s"),
        (600, "10m"),
        (3 * 3600, "3h"),
        (3 * 3600 + 61, "3h1m"),
        (8 * 3600, "8h"),
        (47 * 3600, "47h"),
        (48 * 3600, "2d"),
        (50 * 3600, "2d2h"),
        (8 * 86400, "8d"),
        (400 * 86400, "400d"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400, "9y"),
    ],
)
def test_durations_are_told_as_kubectl_does(seconds: float, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages() -> None:
    assert age("2023-12-31T23:59:00Z", NOW) == "60s"
    assert age(None, NOW) == "<unknown>"
    assert age("yesterday", NOW) == "<invalid>"


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "unexpected end of JSON input"),
        (b"{", "unexpected end of JSON input"),
        (b"nul", "invalid character ' ' in literal null (expecting 'l')"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{} {}", "invalid character '{' after top-level value"),
        (b'"\x01"', "invalid character '\\x01' in string literal"),
        (b"01", "invalid character '1' after top-level value"),
    ],
)
def test_json_errors_are_those_of_go(text: bytes, message: str) -> None:
    with pytest.raises(gojson.JSONError) as caught:
        gojson.decode(text)
    assert str(caught.value) == message


def test_duplicates_are_found_with_their_paths() -> None:
    text = b'{"a":1,"a":2,"b":{"c":[{"d":1,"d":2}]},"b":{}}'
    assert gojson.decode(text) == {"a": 2, "b": {}}
    assert gojson.duplicate_fields(text) == ["a", "b.c[0].d", "b"]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_VALUES)
def test_json_is_read_as_by_everyone(value: Any) -> None:
    text = json.dumps(value).encode()
    assert gojson.decode(text) == json.loads(text)
    assert gojson.duplicate_fields(text) == []


@given(st.binary(max_size=40))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    try:
        gojson.decode(data)
    except gojson.JSONError:
        return
    gojson.duplicate_fields(data)


def test_depth_is_limited() -> None:
    for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
        fits = opening * gojson.MAX_DEPTH + b"1" + closing * gojson.MAX_DEPTH
        gojson.decode(fits)
        for depth in (gojson.MAX_DEPTH + 1, 100_000):
            with pytest.raises(gojson.JSONError, match="exceeded max depth"):
                gojson.decode(opening * depth + b"1" + closing * depth)


# --- Go's types -----------------------------------------------------------------------------------


def test_decoding_normalises() -> None:
    found = decoder_for("core.v1.ConfigMap", "ConfigMap").decode(
        {"metadata": {"name": "a", "labels": {}, "annotations": None}, "data": {}, "nosuch": 1}
    )
    assert found.obj == {"metadata": {"name": "a"}}
    assert found.problems == ['unknown field "nosuch"']


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            {"spec": {"containers": [{"name": 5}]}},
            (
                "json: cannot unmarshal number into Go struct field "
                "Container.spec.containers.name of type string"
            ),
        ),
        (
            {"spec": {"containers": {}}},
            (
                "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type "
                "[]v1.Container"
            ),
        ),
        (
            {"metadata": {"creationTimestamp": "x"}},
            'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"',
        ),
        (
            {"spec": {"terminationGracePeriodSeconds": 1.5}},
            (
                "json: cannot unmarshal number 1.5 into Go struct field "
                "PodSpec.spec.terminationGracePeriodSeconds of type int64"
            ),
        ),
    ],
)
def test_wrong_types_are_named_as_go_does(value: Any, message: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decoder_for("core.v1.Pod", "Pod").decode(value)
    assert str(caught.value) == message


# --- deletion -------------------------------------------------------------------------------------


def held(**metadata: Any) -> Any:
    return {"metadata": {"name": "a", "uid": "u", "resourceVersion": "1", **metadata}}


def grace(seconds: int) -> Any:
    return lambda _, requested_s: seconds if requested_s is None else requested_s


def test_plain_object_is_removed() -> None:
    obj = held()
    assert plan_deletion(obj, DeleteOptions(), None, NOW) is Step.REMOVE
    assert "deletionTimestamp" not in obj["metadata"]


def test_finalizer_makes_it_stay() -> None:
    obj = held(finalizers=["x"], generation=1)
    assert plan_deletion(obj, DeleteOptions(), None, NOW) is Step.STORE
    meta = obj["metadata"]
    assert meta["deletionTimestamp"] == "2024-01-01T00:00:00Z"
    assert (meta["deletionGracePeriodSeconds"], meta["generation"]) == (0, 2)


@pytest.mark.parametrize(
    ("policy", "finalizers"),
    [("Orphan", ["orphan"]), ("Foreground", ["foregroundDeletion"]), ("Background", None)],
)
def test_policy_becomes_a_finalizer(policy: str, finalizers: list[str] | None) -> None:
    obj = held()
    step = plan_deletion(obj, DeleteOptions(propagation=policy), None, NOW)
    assert step is (Step.STORE if finalizers else Step.REMOVE)
    assert obj["metadata"].get("finalizers") == finalizers


def test_later_policy_replaces_an_earlier_one() -> None:
    obj = held(finalizers=["foregroundDeletion", "x"], deletionTimestamp="2024-01-01T00:00:00Z")
    plan_deletion(obj, DeleteOptions(propagation="Orphan"), None, NOW)
    assert obj["metadata"]["finalizers"] == ["x", "orphan"]


def test_grace_period_only_gets_shorter() -> None:
    obj = held()
    assert plan_deletion(obj, DeleteOptions(), grace(30), NOW) is Step.STORE
    assert obj["metadata"]["deletionTimestamp"] == "2024-01-01T00:00:30Z"
    longer = DeleteOptions(grace_period_s=60)
    assert plan_deletion(obj, longer, grace(30), NOW) is Step.NOTHING
    later = NOW + timedelta(seconds=5)
    shorter = DeleteOptions(grace_period_s=10)
    assert plan_deletion(obj, shorter, grace(30), later) is Step.STORE
    assert obj["metadata"]["deletionTimestamp"] == "2024-01-01T00:00:10Z"
    now = DeleteOptions(grace_period_s=0)
    assert plan_deletion(obj, now, grace(30), later) is Step.STORE_AND_REMOVE
    assert obj["metadata"]["deletionGracePeriodSeconds"] == 0


def test_update_finishes_a_deletion_only_after_finalizers_and_grace() -> None:
    terminating = {"deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": 0}
    assert is_finished(held(**terminating), held(**terminating))
    assert not is_finished(held(finalizers=["x"], **terminating), held(**terminating))
    assert not is_finished(held(), held())
    running = {**terminating, "deletionGracePeriodSeconds": 5}
    assert not is_finished(held(**running), held(**running))


# --- garbage --------------------------------------------------------------------------------------

SOLID, ABSENT, WAITING, UNKNOWN = (
    OwnerState.SOLID,
    OwnerState.ABSENT,
    OwnerState.WAITING,
    OwnerState.UNKNOWN,
)


@pytest.mark.parametrize(
    ("states", "verdict", "dropped", "awaited"),
    [
        ((), Verdict.KEEP, "", False),
        ((SOLID,), Verdict.KEEP, "", False),
        ((ABSENT,), Verdict.DELETE, "", False),
        ((SOLID, ABSENT), Verdict.RELEASE, "1", False),
        ((SOLID, WAITING), Verdict.RELEASE, "1", False),
        ((WAITING,), Verdict.DELETE, "", True),
        ((WAITING, ABSENT), Verdict.DELETE, "", True),
        ((UNKNOWN, ABSENT), Verdict.KEEP, "", False),
    ],
)
def test_owners_decide(
    states: tuple[OwnerState, ...], verdict: Verdict, dropped: str, awaited: bool
) -> None:
    found = judge({str(index): state for index, state in enumerate(states)})
    assert (found.verdict, found.awaited) == (verdict, awaited)
    assert found.dropped == frozenset(dropped)


@given(st.dictionaries(st.text(max_size=3), st.sampled_from(list(OwnerState)), max_size=5))
def test_nothing_goes_while_an_owner_stays(states: dict[str, OwnerState]) -> None:
    found = judge(states)
    if SOLID in states.values() or UNKNOWN in states.values():
        assert found.verdict is not Verdict.DELETE
    assert all(states[uid] is not SOLID for uid in found.dropped)


# --- names, versions, paths -----------------------------------------------------------------------


def test_free_names_are_accepted_and_taken_ones_are_told() -> None:
    wanted = {
        "plural": "as",
        "singular": "a",
        "kind": "A",
        "listKind": "AList",
        "shortNames": ["x"],
    }
    assert accept_names(wanted, {}, set(), set()).accepted == wanted
    found = accept_names(wanted, {}, {"x"}, {"A"})
    assert found.accepted == {"plural": "as", "singular": "a", "listKind": "AList"}
    assert (found.reason, found.message) == ("KindConflict", '"A" is already in use')
    # What it holds already stays its own.
    assert accept_names(wanted, {"kind": "A"}, set(), {"A"}).reason == ""


def test_versions_sort_as_the_api_prefers() -> None:
    versions = ["v1", "v2", "v1beta1", "v1alpha1", "v2beta2", "v10", "foo"]
    found = sorted(versions, key=version_priority, reverse=True)
    assert found == ["v10", "v2", "v1", "v2beta2", "v1beta1", "v1alpha1", "foo"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/pods", ("", "v1", "", "pods", "", "")),
        ("/api/v1/namespaces/n/pods/p/log", ("", "v1", "n", "pods", "p", "log")),
        ("/api/v1/namespaces/n", ("", "v1", "", "namespaces", "n", "")),
        ("/api/v1/namespaces/n/finalize", ("", "v1", "", "namespaces", "n", "finalize")),
        ("/apis/apps/v1/namespaces/n/deployments/d", ("apps", "v1", "n", "deployments", "d", "")),
    ],
)
def test_paths(path: str, expected: tuple[str, ...]) -> None:
    found = parse_resource_path(path)
    assert found is not None
    given = (found.group, found.version, found.namespace)
    assert (*given, found.plural, found.name, found.subresource) == expected


def test_accepted_types_are_sorted_by_quality() -> None:
    found = parse_accept("text/html;q=0.1, application/json;as=Table;v=v1, */*;q=0.5")
    assert [media.type for media in found] == ["application/json", "*/*", "text/html"]
    assert found[0].parameters == {"as": "Table", "v": "v1"}
    assert [media.type for media in parse_accept("")] == ["application/json"]


# --- background work ------------------------------------------------------------------------------


async def test_jobs_run_once_for_each_key_and_survive_failures(
    caplog: pytest.LogCaptureFixture,
) -> None:
    background = Background()
    done: list[str] = []

    def job(key: str) -> None:
        done.append(key)
        if key == "bad":
            raise ValueError(key)
        if key == "again":
            background.add(job, "later")

    for key in ("a", "bad", "a", "again"):
        background.add(job, key)
    assert done == []
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == ["a", "bad", "again", "later"]
    assert "background job failed" in caplog.text


async def test_many_jobs_leave_others_their_turn() -> None:
    background = Background()
    done: list[int] = []
    for index in range(100):
        background.add(done.append, index)
    await asyncio.sleep(0)
    assert 0 < len(done) < 100
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == list(range(100))


async def test_stopped_background_runs_nothing() -> None:
    background = Background()
    done: list[int] = []
    background.add(done.append, 1)
    background.stop()
    background.add(done.append, 2)
    for _ in range(10):
        await asyncio.sleep(0)
    assert done == []


def test_work_before_the_loop_runs_is_kept() -> None:
    background = Background()
    done: list[int] = []
    background.add(done.append, 1)
    background.drain()
    assert done == [1]


# --- writes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "user_agent", "manager"),
    [
        ("fieldManager=mine", "kubectl/v1.35", "mine"),
        ("", "kubectl/v1.35 (linux/amd64)", "kubectl"),
        ("fieldManager=", "a b", "a b"),
        ("", "x\ty\u00e9/1", "xy\u00e9"),
        ("", "n" * 200, "n" * 128),
        ("", "\u00e9" * 100, "\u00e9" * 64),
        ("", "", ""),
    ],
)
def test_field_manager_is_named_or_follows_from_the_client(
    query: str, user_agent: str, manager: str
) -> None:
    options = parse_write_options(Query(query), "PatchOptions", user_agent)
    assert (options.field_manager, options.force) == (manager, False)


def test_apply_may_force() -> None:
    query = Query("fieldManager=m&force=true")
    assert parse_write_options(query, "PatchOptions", "", APPLY_PATCH).force


def test_a_server_without_its_socket_has_all_kinds() -> None:
    kinds = {str(kind.resource): kind for kind in Core(ApiServerConfig()).catalog}
    reviews = "selfsubjectaccessreviews.authorization.k8s.io"
    assert {"pods", "customresourcedefinitions.apiextensions.k8s.io", reviews} <= set(kinds)
    answer = kinds[reviews].create
    assert answer is not None
    question = {"spec": {"resourceAttributes": {"verb": "get"}}}
    assert answer(question, Asker({}, ""))["status"] == {"allowed": True}
