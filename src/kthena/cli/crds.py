"""`kthena crds`: the CustomResourceDefinitions of this version, to pipe into `kubectl apply -f -`."""

import click

from kthena.api.crd.published import published_crds
from kthena.cli.output import json_text
from kthena.machinery.yaml import dump_documents


@click.command("crds")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml")
def command(output: str) -> None:
    """Print the CustomResourceDefinitions of this version."""
    crds = published_crds()
    if output == "json":
        click.echo(json_text({"apiVersion": "v1", "kind": "List", "items": crds}))
        return
    click.echo(dump_documents(crds), nl=False)
