"""How a node is set up: its name, its directory, its image map, its clock, its schedulers."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kthena.local.node.images import Entry

_BASE_VARIABLES: Final = (
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR",
)  # fmt: skip
DEFAULT_SCHEDULERS: Final = ("default-scheduler", "volcano")


def base_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What every container process gets of the node's own environment: enough to find programs.

    Nothing else is passed on, so that no credential of the user's shell reaches a pod.
    """
    base = {name: environ[name] for name in _BASE_VARIABLES if name in environ}
    return {"PATH": os.defpath, **base}


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """One node.

    `image_map` are the user's entries; the built-in ones follow them. `time_scale` 1 honours the
    delays of manifests, 10 makes them ten times as short. Pods of `scheduler_names` are bound to
    this node. `stop_grace_s` caps grace periods when the node itself stops. `parallel_starts`
    limits how many containers start at a time. Without `private_mounts` pods see the machine's own
    file system and host names, as on a host that does not allow namespaces. `lease_s` renews a node
    Lease that often, for a control plane that watches over nodes; 0 for none. The node also plays the
    nodes `adopted`, and with `adopt_missing` every node that pods are bound to and that does not
    exist.
    """

    name: str
    data_dir: Path
    image_map: tuple[Entry, ...] = ()
    time_scale: float = 1.0
    scheduler_names: tuple[str, ...] = DEFAULT_SCHEDULERS
    python: str = sys.executable
    stop_grace_s: float = 5.0
    parallel_starts: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    environment: Mapping[str, str] = field(default_factory=lambda: base_environment(os.environ))
    subnet: int | None = None
    private_mounts: bool = True
    lease_s: float = 0.0
    adopted: tuple[str, ...] = ()
    adopt_missing: bool = False


@dataclass(frozen=True, slots=True)
class DataDirs:
    """The layout of a node's data directory."""

    root: Path

    def pod(self, uid: str) -> Path:
        """What belongs to one pod and goes with it."""
        return self.root / "pods" / uid

    @property
    def pods(self) -> Path:
        """All pods' directories."""
        return self.root / "pods"

    @property
    def claims(self) -> Path:
        """Directories of PersistentVolumeClaims; they outlive pods."""
        return self.root / "claims"

    @property
    def host(self) -> Path:
        """Where hostPath volumes lie."""
        return self.root / "host"

    def hosts_file(self, uid: str) -> Path:
        """The pod's hosts file."""
        return self.pod(uid) / "hosts"

    def log(self, uid: str, container: str, attempt: int) -> Path:
        """The output of one run of a container."""
        return self.pod(uid) / "logs" / container / f"{attempt}.log"
