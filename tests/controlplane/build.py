"""Builds etcd, kube-apiserver and kube-controller-manager from the Go module proxy.

`go.mod` beside this file pins everything. Binaries are kept under the user's cache folder in a
directory named for the release and the digest of `go.mod` and the flags, so that a change of either
builds anew and nothing else does. The first build takes several minutes of two cores; Go's own build cache
makes a later one cheap.
"""

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

RELEASE = "1.35.4"
PROGRAMS = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}

# The release is stamped in, as the release's own build does: clients read it from /version.
_LDFLAGS = f"-s -w -X k8s.io/component-base/version.gitVersion=v{RELEASE}"

_HERE = Path(__file__).resolve().parent


class BuildError(RuntimeError):
    """The control plane cannot be built; the text says what is missing or what Go printed."""


def cache_folder() -> Path:
    """Where built binaries are kept, by release and digest of the module file."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    recipe = (_HERE / "go.mod").read_bytes() + _LDFLAGS.encode()
    digest = hashlib.sha256(recipe).hexdigest()[:12]
    return root / "kthena" / "controlplane" / f"{RELEASE}-{digest}"


def built() -> Path | None:
    """The folder with all programs, or None when one is missing."""
    folder = cache_folder()
    return folder if all((folder / name).is_file() for name in PROGRAMS) else None


def build() -> Path:
    """The folder with all programs, built when they are not there yet.

    Two processes that ask at once build once: the second waits for the first.

    Raises:
        BuildError: Go is missing, or a build fails.
    """
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name, package in PROGRAMS.items():
            if not (folder / name).is_file():
                _build_program(package, folder / name)
    return folder


def _build_program(package: str, target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            "Go is not on the PATH; it is needed once, to build the real control plane"
        )
    print(f"building {target.name} ({package}) ...", file=sys.stderr, flush=True)
    # A build writes to a temporary name first: a killed one must not leave half a program behind.
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        partial = Path(scratch) / target.name
        command = [go, "build", "-trimpath", f"-ldflags={_LDFLAGS}", "-o", str(partial), package]
        finished = subprocess.run(command, cwd=_HERE, capture_output=True, text=True, check=False)
        if finished.returncode != 0:
            raise BuildError(f"{' '.join(command)} failed:\n{finished.stderr[-4000:]}")
        partial.replace(target)


def main() -> None:
    """Build, and print the folder."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print(build())


if __name__ == "__main__":
    main()
