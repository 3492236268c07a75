"""CPU time of `kthena --help`, beside that of a Python that does nothing.

    python benchmarks/cli_start.py               # 30 runs of each, one after the other in turn
    python benchmarks/cli_start.py --smoke       # 2 runs, for CI

User and system time of the finished child, medians. The exit status is 1 when the command fails.
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

KTHENA = str(Path(sys.executable).parent / "kthena")
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "kthena --help": [KTHENA, "--help"],
    "kthena up --help": [KTHENA, "up", "--help"],
}


def cpu_ms(command: list[str]) -> float:
    """CPU time of one run."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    after = os.times()
    user, system = after.children_user, after.children_system
    return 1000 * (user - before.children_user + system - before.children_system)


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="two runs")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(2 if options.smoke else options.runs):
        for name, command in COMMANDS.items():
            taken[name].append(cpu_ms(command))
    for name, times in taken.items():
        print(f"{name:20} {statistics.median(times):6.0f} ms CPU")


if __name__ == "__main__":
    main()
