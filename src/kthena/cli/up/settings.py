"""What `kthena up` was asked to do."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """Inputs, and the command to run once everything is ready (none: serve until Ctrl-C)."""

    files: tuple[str, ...]
    kustomizations: tuple[str, ...]
    command: tuple[str, ...]
    wait_s: float
