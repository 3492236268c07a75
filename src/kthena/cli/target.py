"""Which cluster and which router a command talks to.

In this order: the option, the environment (`KUBECONFIG`, `KTHENA_ROUTER_URL`), a running
`kthena up`, the usual kubeconfig. Each running `kthena up` leaves a note of where it is in the user's
state folder; a note whose process is gone counts for nothing.
"""

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kthena.cli.errors import CliError, ExitCode

if TYPE_CHECKING:
    from kthena.kube.client import KubeClient

FIELD_MANAGER = "kthena"
ROUTER_URL_VARIABLE = "KTHENA_ROUTER_URL"


@dataclass(frozen=True)
class LocalNote:
    """Where a running `kthena up` is to be found; `stays` unless it runs for one command only."""

    pid: int
    kubeconfig: str
    router_url: str
    stays: bool = True

    def write(self) -> None:
        """Leave the note for other commands."""
        folder = _notes_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.write_text(json.dumps(asdict(self)))

    def remove(self) -> None:
        """Take the note away again."""
        self._path.unlink(missing_ok=True)

    @property
    def _path(self) -> Path:
        return _notes_folder() / f"{self.pid}.json"


def _notes_folder() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(root) / "kthena" / "local"


def running_notes() -> list[LocalNote]:
    """The notes of all running `kthena up`: those that stay first, and the newest of them first.

    Notes whose process is gone are removed.
    """
    notes: list[tuple[bool, float, LocalNote]] = []
    for path in _notes_folder().glob("*.json"):
        try:
            note = LocalNote(**json.loads(path.read_text()))
            written = path.stat().st_mtime
        except (OSError, ValueError, TypeError):
            continue
        if Path(f"/proc/{note.pid}").exists():
            notes.append((note.stays, written, note))
        else:
            path.unlink(missing_ok=True)
    return [note for *_, note in sorted(notes, key=lambda each: each[:2], reverse=True)]


def _chosen(notes: Sequence[LocalNote]) -> LocalNote | None:
    """The note to go by; says so where there is a choice."""
    if not notes:
        return None
    note, *others = notes
    text = f"using the running kthena up (pid {note.pid})"
    if others:
        named = ", ".join(f"{other.pid}: {other.kubeconfig}" for other in others)
        text += f"; not using those of pid {named}"
    click.echo(text, err=True)
    return note


def find_kubeconfig(option: str | None, environment: Mapping[str, str]) -> Path | None:
    """The kubeconfig to use; None leaves it to the client's own default.

    Raises:
        CliError: the file that the option names is not there.
    """
    if option:
        if not Path(option).is_file():
            raise CliError(f"--kubeconfig {option}: no such file", exit_code=ExitCode.USAGE)
        return Path(option)
    if environment.get("KUBECONFIG"):
        return None
    note = _chosen(running_notes())
    return None if note is None else Path(note.kubeconfig)


def find_router(option: str | None, environment: Mapping[str, str]) -> str:
    """The router's URL, without a slash at the end.

    Raises:
        CliError: nothing says where the router is.
    """
    url = option or environment.get(ROUTER_URL_VARIABLE) or ""
    if not url and (notes := running_notes()):
        # A single one needs no words: what chat prints is the answer.
        note = _chosen(notes) if len(notes) > 1 else notes[0]
        url = note.router_url if note else ""
    if not url:
        raise CliError(
            "no router is known",
            hint=f"start `kthena up`, set {ROUTER_URL_VARIABLE}, or give --router http://HOST:PORT",
            exit_code=ExitCode.USAGE,
        )
    return url.rstrip("/")


@asynccontextmanager
async def connected(kubeconfig: str | None, context: str | None) -> AsyncIterator["KubeClient"]:
    """A client of the cluster that the options and the environment mean.

    Raises:
        CliError: no cluster is configured, or what a call inside raises, as the user should see it.
    """
    from kthena.kube.client import ClientConfig, KubeClient
    from kthena.kube.errors import ApiError, ClientConfigError

    path = find_kubeconfig(kubeconfig, os.environ)
    config = ClientConfig(kubeconfig=path, context=context, field_manager=FIELD_MANAGER)
    try:
        client = KubeClient.connect(config)
    except ClientConfigError as exc:
        raise CliError(
            f"no cluster: {exc}",
            hint="start `kthena up`, or set KUBECONFIG",
            exit_code=ExitCode.USAGE,
        ) from exc
    async with client:
        try:
            yield client
        except ApiError as exc:
            raise api_failure(exc, client.server) from exc


def api_failure(error: Exception, server: str) -> CliError:
    """An error of the API as the user sees it, with the exit code of its kind."""
    from kthena.kube import errors

    if isinstance(error, errors.ConnectionFailed):
        return CliError(
            f"the API server {server} cannot be reached: {error.message}",
            hint="is it running? `kthena up` prints its address",
            exit_code=ExitCode.UNREACHABLE,
        )
    codes: dict[type[Exception], ExitCode] = {
        errors.NotFound: ExitCode.NOT_FOUND,
        errors.Conflict: ExitCode.CONFLICT,
        errors.AlreadyExists: ExitCode.CONFLICT,
        errors.Invalid: ExitCode.REFUSED,
        errors.BadRequest: ExitCode.REFUSED,
        errors.Forbidden: ExitCode.REFUSED,
        errors.Unauthorized: ExitCode.REFUSED,
    }
    message = error.message if isinstance(error, errors.ApiError) else str(error)
    return CliError(message, exit_code=codes.get(type(error), ExitCode.FAILED))
