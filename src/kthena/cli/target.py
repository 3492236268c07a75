"""Which cluster and which router a command talks to.

In this order: the option, the environment (`KUBECONFIG`, `KTHENA_ROUTER_URL`), a running
`kthena up`, the usual kubeconfig. A running `kthena up` leaves a note of where it is in the user's
state folder; a note whose process is gone counts for nothing.
"""

import json
import os
from collections.abc import AsyncIterator, Mapping
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
    """Where a running `kthena up` is to be found."""

    pid: int
    kubeconfig: str
    router_url: str

    def write(self) -> Path:
        """Leave the note for other commands; returns its file."""
        path = _note_path()
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(json.dumps(asdict(self)))
        return path

    def remove(self) -> None:
        """Take the note away again, unless another `kthena up` has replaced it."""
        if read_note(require_alive=False) == self:
            _note_path().unlink(missing_ok=True)


def _note_path() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(root) / "kthena" / "local.json"


def read_note(*, require_alive: bool = True) -> LocalNote | None:
    """The note of the running `kthena up`, if there is one."""
    try:
        note = LocalNote(**json.loads(_note_path().read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if require_alive and not Path(f"/proc/{note.pid}").exists():
        return None
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
    note = read_note()
    if note is None:
        return None
    click.echo(f"using the running kthena up (pid {note.pid})", err=True)
    return Path(note.kubeconfig)


def find_router(option: str | None, environment: Mapping[str, str]) -> str:
    """The router's URL, without a slash at the end.

    Raises:
        CliError: nothing says where the router is.
    """
    note = read_note()
    url = option or environment.get(ROUTER_URL_VARIABLE) or (note.router_url if note else "")
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
