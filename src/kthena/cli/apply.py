"""`kthena apply`: create what is missing, patch what differs, all or nothing.

Every object is first sent as a dry run; when the server refuses one, nothing is written. Changes are
three-way merges against what was applied last, kept in kubectl's annotation, so that both tools can
be used on the same object.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import click

from kthena.api import kubernetes
from kthena.cli.errors import CliError, ExitCode
from kthena.cli.inputs import read_inputs
from kthena.cli.options import cluster_options, input_options
from kthena.cli.refusals import explain
from kthena.cli.resources import ResourceFinder
from kthena.cli.target import connected
from kthena.kube.client import KubeClient, PatchType
from kthena.kube.errors import AlreadyExists, ApiError, NotFound
from kthena.machinery.objects import Object, name_of, namespace_of
from kthena.machinery.resources import Resource
from kthena.machinery.three_way import last_applied, three_way_merge_patch, with_last_applied
from kthena.machinery.yaml import Document

Outcome = Literal["created", "configured", "unchanged"]


@dataclass(frozen=True)
class Applied:
    """What became of one object."""

    resource: Resource
    namespace: str
    name: str
    outcome: Outcome

    def __str__(self) -> str:
        """The line that kubectl would print."""
        kind = self.resource.kind.lower()
        qualified = f"{kind}.{self.resource.group}" if self.resource.group else kind
        return f"{qualified}/{self.name} {self.outcome}"


@dataclass(frozen=True)
class _Item:
    document: Document
    resource: Resource
    object: Object

    @property
    def subject(self) -> str:
        """The object as messages name it."""
        namespace = namespace_of(self.object)
        name = name_of(self.object) or str(self.object["metadata"].get("generateName"))
        return (
            f"{self.resource.kind} {namespace}/{name}"
            if namespace
            else (f"{self.resource.kind} {name}")
        )


@click.command("apply")
@input_options
@cluster_options
@click.option("-n", "--namespace", default="", help="Namespace of objects that name none.")
@click.option("--dry-run", is_flag=True, help="Ask the server, write nothing.")
def command(
    files: tuple[str, ...],
    kustomizations: tuple[str, ...],
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    dry_run: bool,
) -> None:
    """Create or change the objects of files, folders or kustomizations, all or none of them."""
    inputs = read_inputs(files, kustomizations)

    async def run() -> None:
        async with connected(kubeconfig, context) as client:
            for applied in await apply_documents(
                client, inputs.documents, namespace=namespace, dry_run=dry_run
            ):
                click.echo(f"{applied} (dry run)" if dry_run else str(applied))

    asyncio.run(run())


async def apply_documents(
    client: KubeClient,
    documents: Sequence[Document],
    *,
    namespace: str = "",
    create_namespaces: bool = False,
    dry_run: bool = False,
) -> list[Applied]:
    """Apply all documents, or none when the server refuses one.

    Namespaces and CustomResourceDefinitions go first. With `create_namespaces`, namespaces that
    objects name and that do not exist are made.

    Raises:
        CliError: an object is refused; the message has a line for each, with file and line.
    """
    finder = ResourceFinder(client)
    items = [await _resolve(client, finder, document, namespace) for document in documents]
    if create_namespaces:
        items = await _with_namespaces(client, items)
    items.sort(key=lambda item: _order(item.resource))
    created_namespaces = {
        name_of(item.object) for item in items if item.resource == kubernetes.NAMESPACES
    }
    refusals: list[str] = []
    previews: list[Applied] = []
    for item in items:
        try:
            previews.append(await _preview(client, item, created_namespaces))
        except ApiError as exc:
            where = f"{item.document.source}:{item.document.line}"
            refusals.append(f"{where}: {explain(exc, item.subject)}")
    if refusals:
        raise CliError("\n  ".join(["nothing was applied:", *refusals]), exit_code=ExitCode.REFUSED)
    if dry_run:
        return previews
    return [await _apply(client, item, dry_run=False) for item in items]


async def _resolve(
    client: KubeClient, finder: ResourceFinder, document: Document, namespace: str
) -> _Item:
    obj = document.object
    try:
        resource = await finder.for_kind(str(obj["apiVersion"]), str(obj["kind"]))
    except CliError as exc:
        raise CliError(
            f"{document.source}:{document.line}: {exc.message}",
            hint=exc.hint,
            exit_code=ExitCode(exc.exit_code),
        ) from exc
    metadata = dict(obj.get("metadata") or {})
    if resource.namespaced and not metadata.get("namespace"):
        metadata["namespace"] = namespace or client.namespace
    return _Item(document, resource, {**obj, "metadata": metadata})


def _order(resource: Resource) -> int:
    first = (kubernetes.NAMESPACES, kubernetes.CUSTOM_RESOURCE_DEFINITIONS)
    return first.index(resource) if resource in first else len(first)


async def _with_namespaces(client: KubeClient, items: list[_Item]) -> list[_Item]:
    given = {name_of(item.object) for item in items if item.resource == kubernetes.NAMESPACES}
    existing = {name_of(obj) for obj in (await client.list(kubernetes.NAMESPACES)).items}
    wanted: dict[str, _Item] = {}
    for item in items:
        name = namespace_of(item.object)
        if name and name not in given and name not in existing:
            wanted.setdefault(name, item)
    made = [
        _Item(
            Document(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
                cause.document.line,
                cause.document.source,
            ),
            kubernetes.NAMESPACES,
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        )
        for name, cause in wanted.items()
    ]
    return made + items


async def _preview(client: KubeClient, item: _Item, created_namespaces: set[str]) -> Applied:
    """The dry run. An object of a namespace that this run makes is tried in the default one."""
    try:
        return await _apply(client, item, dry_run=True)
    except NotFound:
        if namespace_of(item.object) not in created_namespaces:
            raise
    metadata = {**item.object["metadata"], "namespace": "default"}
    moved = _Item(item.document, item.resource, {**item.object, "metadata": metadata})
    # The server validates before it looks for the name, so an existing one is as good as none.
    with contextlib.suppress(AlreadyExists):
        await client.create(item.resource, moved.object, dry_run=True, field_validation="Strict")
    return _outcome(item, "created")


async def _apply(client: KubeClient, item: _Item, *, dry_run: bool) -> Applied:
    wanted = with_last_applied(item.object)
    name, namespace = name_of(item.object), namespace_of(item.object)
    try:
        live = await client.get(item.resource, name, namespace)
    except NotFound:
        await client.create(item.resource, wanted, dry_run=dry_run, field_validation="Strict")
        return _outcome(item, "created")
    patch = three_way_merge_patch(last_applied(live), wanted, live)
    if not patch:
        return _outcome(item, "unchanged")
    changed = await client.patch(
        item.resource,
        name,
        namespace,
        patch,
        PatchType.MERGE,
        dry_run=dry_run,
        field_validation="Strict",
    )
    same = changed["metadata"].get("generation") == live["metadata"].get("generation")
    return _outcome(item, "unchanged" if same and _same(changed, live) else "configured")


def _same(changed: Object, live: Object) -> bool:
    """Whether a patch only wrote the annotation that remembers what was applied."""

    def bare(obj: Object) -> Object:
        ignored = {"managedFields", "resourceVersion", "annotations", "generation"}
        metadata = {key: value for key, value in obj["metadata"].items() if key not in ignored}
        return {**obj, "metadata": metadata}

    return bare(changed) == bare(live)


def _outcome(item: _Item, outcome: Outcome) -> Applied:
    return Applied(item.resource, namespace_of(item.object), name_of(item.object), outcome)
