"""A Ray head or worker: joins nothing, stays alive, ends on SIGTERM.

Multi-node engines start Ray processes beside the engine's own; here the engine is the mock, which
needs none, and this program only keeps the worker pods running.
"""
# A program speaks on standard output:
# ruff: noqa: T201

import os
import signal
import sys

from kthena.local.node.names import ENV_POD


def main(argv: list[str]) -> int:
    """Wait for the end. A command that is no `ray start` (`ray stop`, `ray status`) ends at once."""
    text = " ".join(argv)
    pod = os.environ.get(ENV_POD, "this pod")
    if "ray start" not in text and "multi-node-serving.sh" not in text and argv:
        print(f"mock ray: nothing to do for {text!r}")
        return 0
    print(f"mock ray: {pod} runs in place of: {text}", flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


if __name__ == "__main__":
    # Blocked before anything is said, so that an early signal ends the program as a later one does.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    sys.exit(main(sys.argv[1:]))
