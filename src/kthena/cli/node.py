"""`kthena node`: the pods of a cluster as processes of this machine."""

from pathlib import Path

import click

from kthena.cli.datadir import data_directory
from kthena.cli.errors import CliError
from kthena.cli.options import cluster_options
from kthena.cli.serving import client_config, on_stop_signal, run_loop

_MANAGER = "kthena-node"


@click.command("node")
@cluster_options
@click.option("--name", default="kthena-local", show_default=True, help="Name of the Node.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Logs and volumes.")
@click.option("--image-map", "image_maps", multiple=True, metavar="FILE", help="Image map to add.")
@click.option("--scheduler-name", "schedulers", multiple=True,
              help="Bind pods of this scheduler; default: default-scheduler and volcano.")  # fmt: skip
@click.option("--time-scale", type=click.FloatRange(min=0.01), default=1.0, show_default=True,
              help="Shorten the delays of manifests.")  # fmt: skip
@click.option("--adopt-node", "adopted", multiple=True, metavar="NAME",
              help="Play this node too: register it, and run the pods that are bound to it.")  # fmt: skip
@click.option("--adopt-missing-nodes", "adopt_missing", is_flag=True,
              help="Play every node that pods are bound to and that does not exist.")  # fmt: skip
@click.option("--lease/--no-lease", default=True, show_default=True,
              help="Renew a node Lease, for a control plane that watches over nodes.")  # fmt: skip
def command(
    kubeconfig: str | None,
    context: str | None,
    name: str,
    data_dir: Path | None,
    image_maps: tuple[str, ...],
    schedulers: tuple[str, ...],
    time_scale: float,
    adopted: tuple[str, ...],
    adopt_missing: bool,
    lease: bool,
) -> None:
    """Register this machine as a node of a cluster and run its pods, until a signal comes.

    Programs of this machine run only where the image map says so.
    """
    from kthena.cli.imagemaps import read_image_maps
    from kthena.local.node.claims import ClaimError
    from kthena.local.node.config import DEFAULT_SCHEDULERS, NodeConfig
    from kthena.local.node.identities import AdoptionError, NameTakenError
    from kthena.telemetry import logging

    logging.configure()
    entries = read_image_maps(image_maps)

    async def run(directory: Path) -> None:
        from kthena.kube.client import KubeClient
        from kthena.local.node.node import Node

        async with KubeClient.connect(client_config(kubeconfig, context, _MANAGER)) as client:
            config = NodeConfig(
                name=name,
                data_dir=directory,
                image_map=entries,
                scheduler_names=schedulers or DEFAULT_SCHEDULERS,
                time_scale=time_scale,
                lease_s=10.0 if lease else 0.0,
                adopted=adopted,
                adopt_missing=adopt_missing,
            )
            node = Node(client, config)
            on_stop_signal(node.stop)
            try:
                await node.run()
            except ClaimError as exc:
                raise CliError(str(exc), hint="--data-dir takes another directory") from exc
            except AdoptionError as exc:
                raise CliError(str(exc)) from exc
            except NameTakenError as exc:
                raise CliError(str(exc), hint="--name takes another name") from exc

    with data_directory(data_dir) as directory:
        run_loop(run(directory))
