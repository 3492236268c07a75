"""The command line of `kthena up`: options in, a cluster around a session, an exit status out."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kthena.cli.datadir import data_directory
from kthena.cli.errors import CliError
from kthena.cli.imagemaps import read_image_maps
from kthena.cli.inputs import Inputs, read_inputs
from kthena.cli.options import input_options
from kthena.cli.target import FIELD_MANAGER
from kthena.cli.up.settings import Settings

if TYPE_CHECKING:
    from kthena.local.cluster import LocalConfig

_INTERRUPTED = 130


@click.command("up")
@input_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8080,
    show_default=True,
    help="Port of the router; 0 takes any free one.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Keep objects, logs and volumes here; the next run goes on with them.",
)
@click.option("--image-map", "image_maps", multiple=True, metavar="FILE", help="Image map to add.")
@click.option(
    "--time-scale",
    type=click.FloatRange(min=0.01),
    default=1.0,
    show_default=True,
    help="Shorten the delays of manifests: 10 makes them ten times as short.",
)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="Seconds within which everything must be ready for COMMAND.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the log of every part.")
@click.argument("command_line", nargs=-1, metavar="[-- COMMAND...]")
def command(
    files: tuple[str, ...],
    kustomizations: tuple[str, ...],
    port: int,
    data_dir: Path | None,
    image_maps: tuple[str, ...],
    time_scale: float,
    wait_s: float,
    verbose: bool,
    command_line: tuple[str, ...],
) -> None:
    """Run manifests on this machine until Ctrl-C, or for the time of one command.

    With a COMMAND after -- everything is made ready first; the command gets KUBECONFIG and
    KTHENA_ROUTER_URL, and its exit status is that of kthena up. With --data-dir the objects of the
    last run are there again, and manifests need not be given.
    """
    from kthena.telemetry import logging

    logging.configure(level="info" if verbose else "error")
    settings = Settings(files, kustomizations, command_line, wait_s)
    inputs = Inputs([], (), None)
    if files or kustomizations or data_dir is None:
        inputs = read_inputs(files, kustomizations)
    entries = read_image_maps(image_maps)
    from kthena.local.cluster import LocalConfig

    with data_directory(data_dir) as directory:
        config = LocalConfig(
            directory,
            router_port=port,
            keeps_objects=data_dir is not None,
            image_map=entries,
            time_scale=time_scale,
        )
        status = _run(_serve(settings, inputs, config))
    sys.exit(status)


def _run(main: Coroutine[Any, Any, int]) -> int:
    from kthena.router.event_loop import new_event_loop

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def _serve(settings: Settings, inputs: Inputs, config: "LocalConfig") -> int:
    """Run to the end or until a signal; everything is stopped in order in either case."""
    interrupted = asyncio.Event()
    _on_signals(interrupted)
    work = asyncio.create_task(_work(settings, inputs, config))
    interrupt = asyncio.create_task(interrupted.wait())
    await asyncio.wait([work, interrupt], return_when=asyncio.FIRST_COMPLETED)
    for task in (work, interrupt):
        task.cancel()
    await asyncio.gather(work, interrupt, return_exceptions=True)
    if work.cancelled():
        return _INTERRUPTED if settings.command else 0
    return work.result()


def _on_signals(interrupted: asyncio.Event) -> None:
    """The first signal begins an ordered end, a second one does not wait for it."""

    def stop() -> None:
        if interrupted.is_set():
            # The processes of pods end with this one, however it goes.
            os._exit(_INTERRUPTED)
        interrupted.set()

    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(each, stop)


async def _work(settings: Settings, inputs: Inputs, config: "LocalConfig") -> int:
    from kthena.cli.up.session import Session
    from kthena.kube.client import ClientConfig, KubeClient
    from kthena.local.apiserver.storage.datafile import StorageError
    from kthena.local.cluster import ListenError, LocalCluster
    from kthena.local.node.claims import ClaimError

    async with AsyncExitStack() as stack:
        try:
            cluster = await stack.enter_async_context(LocalCluster(config))
        except ListenError as exc:
            raise CliError(
                str(exc), hint="--port takes another port; 0 takes any free one"
            ) from exc
        except ClaimError as exc:
            raise CliError(str(exc), hint="--data-dir takes another directory") from exc
        except StorageError as exc:
            raise CliError(exc.problem, hint=exc.fix) from exc
        except OSError as exc:
            raise CliError(
                f"{exc.filename or config.data_dir}: {exc.strerror or exc}",
                hint="--data-dir takes another directory",
            ) from exc
        client_config = ClientConfig(kubeconfig=cluster.kubeconfig, field_manager=FIELD_MANAGER)
        client = await stack.enter_async_context(KubeClient.connect(client_config))
        try:
            return await Session(settings, inputs, cluster, client).run()
        except StorageError as exc:
            raise CliError(exc.problem, hint=exc.fix) from exc
