"""One run of `kthena up`, between the start of its cluster and its end.

Apply the inputs; then either wait until everything is ready and run the user's command, or show what
is ready and follow edits of the inputs, until a signal says to stop.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kthena.api.registry import KINDS
from kthena.cli.apply import Applied, apply_documents
from kthena.cli.errors import CliError, ExitCode
from kthena.cli.inputs import Inputs, read_inputs
from kthena.cli.output import LiveTable, columns
from kthena.cli.target import ROUTER_URL_VARIABLE, LocalNote, api_failure
from kthena.cli.up.edits import Snapshot
from kthena.cli.up.settings import Settings
from kthena.kube.errors import ApiError, NotFound
from kthena.machinery.kstatus import ObjectStatus, status_of

if TYPE_CHECKING:
    from kthena.kube.client import KubeClient
    from kthena.local.cluster import LocalCluster

_POLL_S = 0.1
_TABLE_S = 1.0
_COMMAND_END_S = 5.0
_PATIENCE_S = 5.0
"""How long an object may say that it cannot proceed before waiting for it is given up."""

_READY = {"Current": "yes", "InProgress": "not yet", "Failed": "no", "Terminating": "no"}
"""What the table says of a state."""


class Session:
    """Mutable state: what is applied, the inputs as last read, and whether to stop."""

    def __init__(
        self, settings: Settings, inputs: Inputs, cluster: "LocalCluster", client: "KubeClient"
    ) -> None:
        self._settings = settings
        self._inputs = inputs
        self._cluster = cluster
        self._client = client
        self._applied: list[Applied] = []
        self._table = LiveTable()

    async def run(self) -> int:
        """Run until the command has ended, or a part of the cluster has failed, or until cancelled.

        Returns the exit status.

        Raises:
            CliError: an object is refused, or not ready in time.
        """
        note = LocalNote(
            os.getpid(),
            str(self._cluster.kubeconfig),
            self._cluster.router_url,
            stays=not self._settings.command,
        )
        note.write()
        work = asyncio.create_task(self._work())
        failure = asyncio.create_task(self._cluster.wait_failed())
        try:
            await asyncio.wait([work, failure], return_when=asyncio.FIRST_COMPLETED)
        finally:
            note.remove()
            for task in (work, failure):
                task.cancel()
            await asyncio.gather(work, failure, return_exceptions=True)
        if not failure.cancelled():
            failure.result()
        return _result(work, self._cluster.api_url)

    async def _work(self) -> int:
        await self._apply(self._inputs)
        if self._settings.command:
            await self._wait_ready()
            return await self._run_command()
        self._greet()
        await self._follow()
        return 0

    # Apply

    async def _apply(self, inputs: Inputs) -> list[Applied]:
        """Apply the inputs, and delete what an earlier version of them had and this one has not."""
        applied = await apply_documents(self._client, inputs.documents, create_namespaces=True)
        here = {(each.resource, each.namespace, each.name) for each in applied}
        for old in self._applied:
            if (old.resource, old.namespace, old.name) not in here:
                with suppress(NotFound):
                    await self._client.delete(old.resource, old.name, old.namespace)
                self._table.note(f"{old.resource.kind.lower()}/{old.name} deleted")
        self._applied = applied
        return applied

    # Wait

    async def _states(self) -> list[tuple[Applied, ObjectStatus]]:
        states = []
        for applied in self._applied:
            try:
                obj = await self._client.get(applied.resource, applied.name, applied.namespace)
            except NotFound:
                states.append((applied, ObjectStatus("InProgress", "it has been deleted")))
                continue
            states.append((applied, status_of(obj, expects_ready=applied.resource in KINDS)))
        return states

    async def _wait_ready(self) -> None:
        """Wait until every object is ready.

        Raises:
            CliError: the time is over, or an object says that it cannot become ready.
        """
        loop = asyncio.get_running_loop()
        deadline, failed_since = loop.time() + self._settings.wait_s, 0.0
        while True:
            states = await self._states()
            waiting = [each for each in states if each[1].state != "Current"]
            if not waiting:
                return
            failed = [each for each in waiting if each[1].state == "Failed"]
            failed_since = (failed_since or loop.time()) if failed else 0.0
            if failed and loop.time() - failed_since > _PATIENCE_S:
                raise _not_ready("cannot become ready", failed)
            if loop.time() > deadline:
                raise _not_ready(f"not ready after {self._settings.wait_s:g} s", waiting)
            await asyncio.sleep(_POLL_S)

    # Run a command

    async def _run_command(self) -> int:
        """Run the user's command; its signals are those of the terminal, and ours are passed on."""
        environment = {
            **os.environ,
            "KUBECONFIG": str(self._cluster.kubeconfig),
            ROUTER_URL_VARIABLE: self._cluster.router_url,
            # The program that runs is found by its own name, wherever it is installed.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        command = self._settings.command
        try:
            process = await asyncio.create_subprocess_exec(*command, env=environment)
        except OSError as exc:
            raise CliError(
                f"{command[0]}: {exc.strerror or exc}", exit_code=ExitCode.USAGE
            ) from exc
        try:
            status = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        return 128 - status if status < 0 else status

    # Serve

    def _greet(self) -> None:
        url, kubeconfig = self._cluster.router_url, self._cluster.kubeconfig
        models = sorted(
            str((document.object.get("spec") or {}).get("modelName"))
            for document in self._inputs.documents
            if document.object.get("kind") == "ModelRoute"
            and (document.object.get("spec") or {}).get("modelName")
        )
        click.echo(f"router:     {url}/v1")
        click.echo(f"kubectl:    export KUBECONFIG={kubeconfig}")
        if models:
            click.echo(f'chat:       kthena chat {models[0]} "Hello" --stream')
        click.echo("stop:       Ctrl-C\n")

    async def _follow(self) -> None:
        """Show the ready table, and apply edits of the inputs, for ever."""
        snapshot = Snapshot.take(self._inputs.watched)
        while True:
            self._table.show(_table_of(await self._states()))
            await asyncio.sleep(_TABLE_S)
            current = Snapshot.take(self._inputs.watched)
            if current != snapshot:
                snapshot = await self._reload(current)

    async def _reload(self, snapshot: Snapshot) -> Snapshot:
        """Apply edited inputs; when they are broken, say so and keep what runs."""
        try:
            # kustomize is a program that runs for a while, and the cluster lives in this loop.
            inputs = await asyncio.to_thread(
                read_inputs, self._settings.files, self._settings.kustomizations, self._inputs.stdin
            )
            applied = await self._apply(inputs)
        except CliError as exc:
            self._table.note(f"not applied: {exc.message}")
            return snapshot
        self._inputs = inputs
        for each in applied:
            if each.outcome != "unchanged":
                self._table.note(str(each))
        return Snapshot.take(inputs.watched)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the user's command, which may be one that does not heed a signal."""
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _COMMAND_END_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def _result(work: "asyncio.Task[int]", server: str) -> int:
    try:
        return work.result()
    except ApiError as exc:
        raise api_failure(exc, server) from exc


def _table_of(states: Sequence[tuple[Applied, ObjectStatus]]) -> str:
    rows = [["KIND", "NAME", "READY", "MESSAGE"]]
    rows += [
        [
            applied.resource.kind,
            f"{applied.namespace}/{applied.name}" if applied.namespace else applied.name,
            _READY[readiness.state],
            readiness.message,
        ]
        for applied, readiness in states
    ]
    return columns(rows)


def _not_ready(what: str, states: Sequence[tuple[Applied, ObjectStatus]]) -> CliError:
    lines = [
        f"{applied.resource.kind} {applied.namespace}/{applied.name}: {readiness.message}"
        for applied, readiness in states
    ]
    return CliError(
        "\n  ".join([f"{what}:", *lines]),
        hint="kthena up without a command shows it live; kthena describe says more",
        exit_code=ExitCode.NOT_READY,
    )
