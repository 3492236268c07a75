"""Runs every benchmark of this folder, one after the other.

    python benchmarks/run.py               # in full: figures to quote need an idle machine
    python benchmarks/run.py --smoke       # that each works, for CI

The exit status is 1 when one fails.
"""

import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Run them with the options given here."""
    failed = []
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.name == "run.py":
            continue
        print(f"\n== {path.stem}", flush=True)
        if subprocess.run([sys.executable, path, *sys.argv[1:]], check=False).returncode:
            failed.append(path.stem)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
