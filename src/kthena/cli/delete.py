"""`kthena delete`: objects by name, or those of files."""

import asyncio

import click

from kthena.cli.errors import CliError, ExitCode
from kthena.cli.inputs import read_inputs
from kthena.cli.options import cluster_options, input_options
from kthena.cli.resources import ResourceFinder
from kthena.cli.target import connected
from kthena.kube.client import KubeClient
from kthena.kube.errors import NotFound
from kthena.machinery.objects import name_of, namespace_of
from kthena.machinery.resources import Resource


@click.command("delete")
@click.argument("kind", default="")
@click.argument("names", nargs=-1, metavar="NAME...")
@input_options
@cluster_options
@click.option("-n", "--namespace", default="", help="Namespace of the objects.")
@click.option("--ignore-not-found", is_flag=True, help="An absent object is no error.")
def command(
    kind: str,
    names: tuple[str, ...],
    files: tuple[str, ...],
    kustomizations: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    ignore_not_found: bool,
) -> None:
    """Delete objects by kind and name, or the objects of files."""
    if bool(kind) == bool(files or kustomizations):
        raise CliError("give KIND NAME..., or -f or -k", exit_code=ExitCode.USAGE)
    if "/" in kind and not names:
        kind, _, name = kind.partition("/")
        names = (name,)
    if kind and not names:
        raise CliError(f"which {kind}? Nothing is deleted without a name", exit_code=ExitCode.USAGE)

    async def run() -> None:
        async with connected(kubeconfig, context) as client:
            finder = ResourceFinder(client)
            if kind:
                resource = await finder.by_name(kind)
                targets = [(resource, namespace, name) for name in names]
            else:
                targets = await _targets_of_files(finder, files, kustomizations, namespace)
            await _delete_all(client, targets, ignore_not_found=ignore_not_found)

    asyncio.run(run())


async def _targets_of_files(
    finder: ResourceFinder,
    files: tuple[str, ...],
    kustomizations: tuple[str, ...],
    namespace: str,
) -> list[tuple[Resource, str, str]]:
    """What files name, last first: namespaces and CRDs go after what lives in them."""
    targets = []
    for document in reversed(read_inputs(files, kustomizations).documents):
        obj = document.object
        resource = await finder.for_kind(str(obj["apiVersion"]), str(obj["kind"]))
        targets.append((resource, namespace_of(obj) or namespace, name_of(obj)))
    return targets


async def _delete_all(
    client: KubeClient, targets: list[tuple[Resource, str, str]], *, ignore_not_found: bool
) -> None:
    """Delete every target; an absent one is reported at the end, and stops none of the others."""
    missing = []
    for resource, namespace, name in targets:
        try:
            await client.delete(resource, name, namespace)
        except NotFound as exc:
            missing.append(exc.message)
            continue
        click.echo(f"{resource.kind.lower()}/{name} deleted")
    if missing and not ignore_not_found:
        raise CliError("; ".join(missing), exit_code=ExitCode.NOT_FOUND)
