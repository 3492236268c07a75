"""`kthena get`: objects as the server's tables, or as YAML or JSON."""

import asyncio
from typing import Any

import click
import msgspec

from kthena.cli.errors import CliError, ExitCode
from kthena.cli.options import cluster_options, namespace_options
from kthena.cli.output import json_text, table_text
from kthena.cli.resources import ResourceFinder
from kthena.cli.target import connected
from kthena.kube.client import KubeClient
from kthena.machinery.objects import Object, name_of
from kthena.machinery.resources import Resource

_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


@click.command("get")
@click.argument("kinds", metavar="KIND[,KIND...]")
@click.argument("name", default="")
@namespace_options
@cluster_options
@click.option("-o", "--output", type=click.Choice(["wide", "yaml", "json", "name"]))
@click.option("-l", "--selector", default="", help="Label selector.")
def command(
    kinds: str,
    name: str,
    namespace: str,
    all_namespaces: bool,
    kubeconfig: str | None,
    context: str | None,
    output: str | None,
    selector: str,
) -> None:
    """List objects of one or several kinds, or show one."""
    if "/" in kinds and not name:
        kinds, _, name = kinds.partition("/")
    if name and (all_namespaces or "," in kinds):
        raise CliError("a name goes with one kind in one namespace", exit_code=ExitCode.USAGE)

    async def run() -> None:
        async with connected(kubeconfig, context) as client:
            finder = ResourceFinder(client)
            resources = [await finder.by_name(kind) for kind in kinds.split(",")]
            view = _View(client, namespace, selector, output, all_namespaces=all_namespaces)
            await view.show(resources, name)

    asyncio.run(run())


class _View:
    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        selector: str,
        output: str | None,
        *,
        all_namespaces: bool,
    ) -> None:
        self._client = client
        self._namespace = "" if all_namespaces else namespace or client.namespace
        self._selector = selector
        self._output = output
        self._all = all_namespaces

    async def show(self, resources: list[Resource], name: str) -> None:
        if self._output in ("yaml", "json", "name"):
            await self._objects(resources, name)
            return
        found = 0
        for index, resource in enumerate(resources):
            table = await self._table(resource, name)
            if table.get("rows"):
                if found:
                    click.echo()
                if len(resources) > 1:
                    click.echo(f"{resource.kind}")
                click.echo(table_text(table, wide=self._output == "wide", with_namespace=self._all))
                found += 1
            elif index == len(resources) - 1 and not found:
                where = "in any namespace" if self._all else f"in namespace {self._namespace}"
                click.echo(f"no {' or '.join(r.plural for r in resources)} {where}", err=True)

    async def _table(self, resource: Resource, name: str) -> Object:
        namespace = self._namespace if resource.namespaced else ""
        params = {"labelSelector": self._selector} if self._selector and not name else {}
        reply = await self._client.raw(
            "GET", resource.path(namespace, name), params=params, accept=_TABLE
        )
        table: Object = msgspec.json.decode(reply.body)
        return table

    async def _objects(self, resources: list[Resource], name: str) -> None:
        items: list[Object] = []
        for resource in resources:
            namespace = self._namespace if resource.namespaced else ""
            if name:
                items.append(await self._client.get(resource, name, namespace))
            else:
                listed = await self._client.list(resource, namespace, label_selector=self._selector)
                items += listed.items
        if self._output == "name":
            for item in items:
                click.echo(f"{str(item['kind']).lower()}/{name_of(item)}")
            return
        shown: Any = items[0] if name else {"apiVersion": "v1", "kind": "List", "items": items}
        if self._output == "json":
            click.echo(json_text(shown))
            return
        from kthena.machinery.yaml import dump

        click.echo(dump(shown), nl=False)
