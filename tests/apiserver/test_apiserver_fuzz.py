"""The same sequences of operations on the embedded server and on a real one.

`make fuzz` runs many more.
"""

import json
import random
from collections.abc import Iterator

import pytest

from controlplane import build, server
from fuzz.campaign import Campaign, Limits, prepare
from fuzz.embedded import running_embedded
from fuzz.generator import MIN_LENGTH, make_sequence
from fuzz.normaliser import Normaliser
from fuzz.operations import dump, load
from fuzz.runner import CONTROLLERS
from support.apiserver import Server

FIXED_SEED = 20_000
SECONDS = 90.0
LEAST_OPERATIONS = 1000


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[Server, Server]]:
    """The embedded server in a process of its own, and a real one without workload controllers."""
    with server.running(build.build(), CONTROLLERS) as plane, running_embedded() as embedded:
        real = Server(plane.url, plane.token, plane.kubeconfig, embedded=False)
        prepare(embedded, real)
        yield embedded, real


@pytest.mark.cluster
@pytest.mark.fuzz
@pytest.mark.timeout(200)
@pytest.mark.parametrize("fresh", [False, True], ids=["fixed", "fresh"])
def test_both_servers_answer_alike(servers: tuple[Server, Server], *, fresh: bool) -> None:
    seed = random.SystemRandom().randrange(10**9) if fresh else FIXED_SEED
    outcome = Campaign(*servers, Limits(10**9, SECONDS)).run(seed)
    print(f"fuzz, {'fresh' if fresh else 'fixed'} seed {seed}: {outcome}")
    assert outcome.errors == []
    assert outcome.findings == [], f"make fuzz SEED={seed}"
    # Controllers of two servers race with requests; that is rare, or it is a fault.
    assert outcome.unsteady <= 1 + outcome.operations // 1000
    assert outcome.operations >= LEAST_OPERATIONS
    assert outcome.share >= 0.5


def test_sequences_are_long_and_of_many_kinds() -> None:
    for seed in range(50):
        kinds, operations = make_sequence(seed)
        assert len(operations) >= MIN_LENGTH
        assert len(kinds) >= 6
        assert make_sequence(seed)[1] == operations
        assert load(dump(operations)) == operations


def test_what_is_compared_and_what_is_not() -> None:
    def normal(value: object) -> str:
        return json.dumps(Normaliser().normalise(value), sort_keys=True)

    def named(uid: str, version: str, time: str, **more: str) -> dict[str, object]:
        meta = {"uid": uid, "resourceVersion": version, "creationTimestamp": time}
        return {"metadata": {**meta, "name": "a"}, "data": more}

    uids = ("11111111-2222-4333-8444-555555555555", "aaaaaaaa-2222-4333-8444-555555555555")
    one = named(uids[0], "5", "2024-01-01T00:00:00Z", k="v")
    other = named(uids[1], "77", "2025-02-02T11:11:11Z", k="v")
    assert normal(one) == normal(other)
    assert normal(one) != normal(named(uids[1], "77", "2025-02-02T11:11:11Z", k="w"))
    assert normal([one, one]) != normal([one, other])
    assert normal({"spec": {"replicas": 1}}) != normal({"spec": {"replicas": 1.0}})
