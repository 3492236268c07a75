"""What one node has to itself on this machine: its data directory and its loopback subnet.

Both are locks that the kernel releases when the process is gone, however it went. Whoever has the
directory also is the one that its identity names.
"""

import contextlib
import fcntl
import os
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kthena.local.node.addresses import subnet_order

_LOCK: Final = "node.lock"
_SUBNET: Final = "subnet"
_IDENTITY: Final = "identity"


class ClaimError(RuntimeError):
    """Something is in use by another node; the message names it."""


@contextlib.contextmanager
def claim_directory(directory: Path) -> Iterator[None]:
    """Have the data directory for oneself; it is made where it does not exist.

    Raises:
        ClaimError: another process has it.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ClaimError(
                f"data directory {directory} is in use by another process; stop it, or choose "
                "another directory with --data-dir"
            ) from error
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def claim_subnet(directory: Path, preferred: int | None) -> Iterator[int]:
    """Have one 127.N.0.0/16 for oneself: the preferred one, the one of last time, or any.

    The claim is an abstract Unix socket, one name for the whole network namespace.

    Raises:
        ClaimError: all subnets are taken, or the preferred one is.
    """
    memory = directory / _SUBNET
    for subnet in subnet_order(preferred if preferred is not None else _remembered(memory)):
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as lock:
            try:
                lock.bind(f"\0kthena-node-subnet-{subnet}")
            except OSError:
                if preferred is not None:
                    break
                continue
            memory.write_text(str(subnet))
            yield subnet
            return
    wanted = (
        "every subnet of 127.0.0.0/8" if preferred is None else f"subnet 127.{preferred}.0.0/16"
    )
    raise ClaimError(f"{wanted} is in use by another node")


def remember_identity(directory: Path) -> str:
    """What tells the node on a claimed directory from all others; it outlives the process."""
    path = directory / _IDENTITY
    with contextlib.suppress(OSError):
        if (known := path.read_text().strip()).isalnum():
            return known
    new = uuid.uuid4().hex
    path.write_text(new)
    return new


def _remembered(memory: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(memory.read_text())
    return None
