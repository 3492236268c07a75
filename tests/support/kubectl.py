"""kubectl as users call it, with its caches in a folder of the test."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Kubectl = Callable[..., Run]


def runner(kubeconfig: Path, namespace: str, scratch: Path) -> Kubectl:
    """Runs kubectl in a namespace; `environment` adds to the variables of the process."""

    def run(
        *arguments: str,
        stdin: str | None = None,
        timeout: float = 60,
        environment: Mapping[str, str] | None = None,
    ) -> Run:
        own = {"KUBECONFIG": str(kubeconfig), "HOME": str(scratch)}
        done = subprocess.run(
            ["kubectl", "-n", namespace, *arguments],
            env={**os.environ, **own, **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        return Run(done.returncode, done.stdout, done.stderr)

    return run
