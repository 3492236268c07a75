"""`kthena logs`: what a container wrote."""

import asyncio
import sys

import click

from kthena.api.kubernetes import PODS
from kthena.cli.options import cluster_options
from kthena.cli.target import connected


@click.command("logs")
@click.argument("pod")
@click.option("-c", "--container", default="", help="Container; needed where the pod has several.")
@click.option("-n", "--namespace", default="", help="Namespace of the pod.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines are written.")
@click.option("-p", "--previous", is_flag=True, help="Of the run before the last restart.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last lines.")
@cluster_options
def command(
    pod: str,
    container: str,
    namespace: str,
    follow: bool,
    previous: bool,
    tail: int | None,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Print the log of a pod's container."""
    params = {
        "container": container,
        "follow": "true" if follow else "",
        "previous": "true" if previous else "",
        "tailLines": "" if tail is None else str(tail),
    }

    async def run() -> None:
        async with connected(kubeconfig, context) as client:
            path = PODS.path(namespace or client.namespace, pod.removeprefix("pod/"), "log")
            async for chunk in client.stream(path, params):
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()

    asyncio.run(run())
