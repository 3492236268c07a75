"""Field report B007: what cannot be read is no reason to delete anything."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kthena.api.kubernetes import NAMESPACES
from kthena.api.registry import MODEL_SERVINGS
from kthena.kube.client import PatchType
from kthena.machinery.objects import uid_of
from support.kube_proxy import ApiProxy, proxy_of, through
from support.workload_bench import Bench, bench
from support.workload_world import role, rolling, serving

OUTAGE_S = 3.0


def reads_pods(head: bytes) -> bool:
    """A list of pods, or a watch."""
    target = head.split(b" ", 2)[1].partition(b"?")[0]
    return head.startswith(b"GET") and target.endswith(b"/pods")


def new_image(spec: dict[str, Any]) -> None:
    spec["template"]["roles"][0]["entryTemplate"]["spec"]["containers"][0]["image"] = "new"


async def uids(opened: Bench) -> dict[str, str]:
    return {name: uid_of(pod) for name, pod in (await opened.pods()).items()}


async def touch(opened: Bench) -> None:
    """Make the controller reconcile, and nothing else."""
    note = {"metadata": {"annotations": {"touched": "yes"}}}
    await opened.admin.patch(MODEL_SERVINGS, "ms", opened.namespace, note, PatchType.MERGE)


async def roll(opened: Bench) -> None:
    """Give the controller a reason to delete."""
    await opened.edit("ms", new_image)


async def scale_in(opened: Bench) -> None:
    """As above."""
    await opened.scale("ms", 1)


class Outage:
    """A ModelServing of two groups whose controller suddenly cannot read pods."""

    def __init__(self, opened: Bench, proxy: ApiProxy, status: int | None) -> None:
        self.bench = opened
        self.proxy = proxy
        self.status = status

    async def begin(self) -> None:
        await self._start()
        await self.bench.apply(serving(role(workers=1), replicas=2, rolloutStrategy=rolling()))
        await self.bench.wait_ready("ms")
        self.proxy.fail(self.status, reads_pods)
        # Until the informer has noticed; what is decided before is decided on what could be read.
        while not self.proxy.answered:  # noqa: ASYNC110 - another program's doing
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    async def restart(self) -> None:
        """A controller that knows nothing, and cannot read either."""
        await self.bench.kill()
        await self._start()

    async def writes(self) -> list[str]:
        """What the controller writes while the outage goes on."""
        recorder = self.bench.recorder
        assert recorder is not None
        recorder.requests.clear()
        asked = self.proxy.answered
        await asyncio.sleep(OUTAGE_S)
        tries = self.proxy.answered - asked
        assert 1 <= tries <= 12, f"{tries} attempts to read in {OUTAGE_S} s"
        return recorder.writes()

    async def _start(self) -> None:
        transport = through(self.proxy, self.bench.kubeconfig)
        await self.bench.start(transport=transport)


async def suffer(
    kubeconfig: Path,
    namespace: str,
    status: int | None,
    trigger: Callable[[Bench], Any],
    *,
    restart: bool,
) -> None:
    async with proxy_of(kubeconfig) as proxy, bench(kubeconfig, namespace) as opened:
        await opened.admin.create(NAMESPACES, {"metadata": {"name": namespace}})
        outage = Outage(opened, proxy, status)
        await outage.begin()
        before = await uids(opened)
        if restart:
            await outage.restart()
        await trigger(opened)
        assert await outage.writes() == []
        assert await uids(opened) == before

        proxy.mend()
        await opened.wait_ready("ms")
        after = await uids(opened)
        if trigger is touch:
            assert after == before
        elif trigger is scale_in:
            assert after == {name: uid for name, uid in before.items() if name.startswith("ms-0-")}
        else:
            assert after.keys() == before.keys()
            assert not set(after.values()) & set(before.values())


CASES: list[tuple[int | None, Callable[[Bench], Any], bool]] = [
    (500, touch, False),
    (429, roll, False),
    (None, scale_in, False),
    (500, roll, True),
    (None, touch, True),
]


@pytest.mark.slow
async def test_nothing_is_deleted_while_pods_cannot_be_read(workload_bench: Bench) -> None:
    """Errors, throttling and silence, for a controller that runs on and for one that starts."""
    async with asyncio.TaskGroup() as group:
        for number, (status, trigger, restart) in enumerate(CASES):
            namespace = f"{workload_bench.namespace}-{number}"
            kubeconfig = workload_bench.kubeconfig
            group.create_task(suffer(kubeconfig, namespace, status, trigger, restart=restart))
