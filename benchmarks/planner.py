"""Wall time of planning large ModelServings: the first plan, and one that finds nothing to do.

    python benchmarks/planner.py                  # 1,000 and 10,000 groups
    python benchmarks/planner.py --groups 500
    python benchmarks/planner.py --smoke          # 50 groups, for CI

Planning is pure, so the pods that the first plan asks for are handed back as running ones, and the
second plan is checked to ask for nothing. The exit status is 1 when it does.
"""

import argparse
import sys
import time
from datetime import UTC, datetime

from kthena.machinery.objects import Object
from kthena.workload.planner.observed import Observed
from kthena.workload.planner.plan import CreatePod, CreateRevision, CreateService, Plan
from kthena.workload.planner.planner import plan

NOW = datetime(2026, 1, 1, tzinfo=UTC)
STARTED = "2025-12-31T00:00:00Z"


def modelserving(groups: int) -> Object:
    """Two pods in each group."""
    pod = {"spec": {"containers": [{"name": "engine", "image": "vllm/vllm-openai"}]}}
    role = {
        "name": "server",
        "replicas": 1,
        "entryTemplate": pod,
        "workerReplicas": 1,
        "workerTemplate": pod,
    }
    return {
        "apiVersion": "workload.serving.volcano.sh/v1alpha1",
        "kind": "ModelServing",
        "metadata": {"name": "m", "namespace": "default", "uid": "u", "generation": 1},
        "spec": {"replicas": groups, "template": {"roles": [role]}},
    }


def stored(obj: Object, number: int) -> Object:
    """The object as an API server would give it back."""
    metadata = {
        **obj["metadata"],
        "uid": f"uid-{number}",
        "resourceVersion": str(number),
        "creationTimestamp": STARTED,
    }
    return {**obj, "metadata": metadata}


def running(pod: Object, number: int) -> Object:
    """The pod as a node reports it."""
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    return {**stored(pod, number), "status": status}


def timed(observed: Observed) -> tuple[Plan, float]:
    """The plan, and the seconds it took."""
    started = time.perf_counter()
    planned = plan(observed, NOW)
    return planned, time.perf_counter() - started


class Children:
    """What the plans so far have created."""

    def __init__(self) -> None:
        self.pods: list[Object] = []
        self.services: list[Object] = []
        self.revisions: list[Object] = []

    def take(self, planned: Plan) -> bool:
        """Add what a plan creates; whether it does."""
        for action in planned.actions:
            match action:
                case CreatePod(pod=pod):
                    self.pods.append(running(pod, len(self.pods)))
                case CreateService(service=service):
                    self.services.append(stored(service, len(self.services)))
                case CreateRevision(revision=revision):
                    self.revisions.append(stored(revision, len(self.revisions)))
                case _:
                    pass
        return any(
            isinstance(a, CreatePod | CreateService | CreateRevision) for a in planned.actions
        )


def measure(groups: int) -> bool:
    """Plan and carry out until nothing is created. Print one line; whether the last plan left everything as it was."""
    serving, children, create_s = modelserving(groups), Children(), 0.0
    for _ in range(100):
        observed = Observed.of(
            serving, pods=children.pods, services=children.services, revisions=children.revisions
        )
        planned, took_s = timed(observed)
        if not children.take(planned):
            pods = len(children.pods)
            line = f"create {create_s:6.2f} s   idle {took_s:6.2f} s"
            print(f"{groups:7,} groups {pods:7,} pods   {line}")
            return pods == 2 * groups
        create_s = max(create_s, took_s)
    return False


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, nargs="*", default=[1000, 10000])
    parser.add_argument("--smoke", action="store_true", help="few groups")
    options = parser.parse_args()
    results = [measure(groups) for groups in ([50] if options.smoke else options.groups)]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
