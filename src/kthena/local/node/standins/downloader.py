"""The model downloader: succeeds, makes the output directory, says what would be fetched.

It takes Kthena's command line. The directory is made where a volume is mounted; a path outside all
volumes belongs to a container's own file system, which there is not, so nothing is written there.
"""
# A program speaks on standard output:
# ruff: noqa: T201

import argparse
import json
import os
import sys
from pathlib import Path

from kthena.local.node.names import ENV_MOUNTS

MARKER = ".kthena-mock-download"
_KNOWN = ("s3://", "obs://", "pvc://", "ms://", "hf://")


def main(argv: list[str]) -> int:
    """Run with the arguments of the real one; the exit status."""
    parser = argparse.ArgumentParser(prog="downloader", allow_abbrev=False)
    parser.add_argument("-s", "--source", required=True)
    parser.add_argument("-o", "--output-dir", default="~/downloads")
    parser.add_argument("-w", "--max-workers", type=int, default=8)
    parser.add_argument("-c", "--config")
    options = parser.parse_args(argv)
    if options.config and not _is_object(options.config):
        print("Error: --config must be a JSON object", file=sys.stderr)
        return 1
    source = options.source
    if not source.startswith(_KNOWN):
        source = f"hf://{source}"
    target = os.path.normpath(Path(options.output_dir).expanduser())
    place = locate(target, os.environ.get(ENV_MOUNTS, ""))
    print(f"mock downloader: the real one would fetch {source} into {target}")
    if place is None:
        print(f"mock downloader: {target} is in no volume, so nothing is written")
        return 0
    place.mkdir(parents=True, exist_ok=True)
    (place / MARKER).write_text(json.dumps({"source": source}) + "\n")
    print(f"mock downloader: made {target} with {MARKER} in it")
    return 0


def locate(path: str, mounts: str) -> Path | None:
    """The directory of the host that `path` is in, by the mounts that the node passes on."""
    best: tuple[str, str] | None = None
    for entry in filter(None, mounts.split(":")):
        target, _, source = entry.partition("=")
        inside = f"{path}/".startswith(f"{target}/")
        if inside and (best is None or len(target) > len(best[0])):
            best = (target, source)
    return None if best is None else Path(best[1]) / path[len(best[0]) :].lstrip("/")


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
