"""The fuzzer by hand: `PYTHONPATH=tests python -m fuzz --operations 200000`."""

import argparse
import contextlib
import os
import random
import sys
from collections.abc import Iterator

from controlplane import build, server
from fuzz.campaign import Campaign, Limits, prepare
from fuzz.embedded import running_embedded
from fuzz.runner import CONTROLLERS
from support.apiserver import Server


@contextlib.contextmanager
def running_real() -> Iterator[Server]:
    """A real server whose controllers do not change what the fuzzer writes."""
    given = os.environ.get("KTHENA_TEST_FUZZ_APISERVER")
    if given:
        url, token, *_ = given.split(",")
        yield Server(url, token, None, embedded=False)
        return
    with server.running(build.build(), CONTROLLERS) as plane:
        yield Server(plane.url, plane.token, plane.kubeconfig, embedded=False)


def main() -> int:
    """Run, report, and fail where there is a difference."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--operations", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=0.0, help="stop earlier after this time")
    parser.add_argument(
        "--seed", type=int, default=None, help="the first seed; a fresh one if not given"
    )
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--findings", type=int, default=1, help="stop after so many differences")
    parser.add_argument("--no-shrink", action="store_true", help="do not make failures short")
    parser.add_argument("--defect", default="", help="plant a defect in the embedded server")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if options.seed is None else options.seed
    limits = Limits(options.operations, options.seconds, options.findings, not options.no_shrink)
    with running_real() as real, running_embedded(options.defect) as embedded:
        prepare(embedded, real)
        outcome = Campaign(embedded, real, limits, options.workers).run(seed)
    for error in outcome.errors:
        print(error, file=sys.stderr)
    print(f"seed {seed}: {outcome}; statuses {dict(sorted(outcome.statuses.items()))}")
    return 1 if outcome.findings or outcome.errors else 0


if __name__ == "__main__":
    sys.exit(main())
