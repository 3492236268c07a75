"""`kthena describe`: one object, its conditions, what it owns, and what happened to it."""

import asyncio
from typing import Any

import click

from kthena.api import kubernetes
from kthena.cli.errors import CliError, ExitCode
from kthena.cli.options import cluster_options
from kthena.cli.output import age, columns
from kthena.cli.resources import ResourceFinder
from kthena.cli.target import connected
from kthena.kube.client import KubeClient
from kthena.kube.errors import Forbidden
from kthena.machinery.conditions import is_true
from kthena.machinery.objects import (
    Object,
    annotations_of,
    generation_of,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    uid_of,
)
from kthena.machinery.three_way import LAST_APPLIED_ANNOTATION
from kthena.machinery.yaml import dump

_CHILD_KINDS = (
    kubernetes.REPLICA_SETS,
    kubernetes.PODS,
    kubernetes.SERVICES,
    kubernetes.CONTROLLER_REVISIONS,
)


@click.command("describe")
@click.argument("kind")
@click.argument("name", default="")
@click.option("-n", "--namespace", default="", help="Namespace of the object.")
@cluster_options
def command(
    kind: str, name: str, namespace: str, kubeconfig: str | None, context: str | None
) -> None:
    """Show one object with its conditions, children and events."""
    if "/" in kind and not name:
        kind, _, name = kind.partition("/")
    if not name:
        raise CliError("describe takes KIND NAME", exit_code=ExitCode.USAGE)

    async def run() -> None:
        async with connected(kubeconfig, context) as client:
            resource = await ResourceFinder(client).by_name(kind)
            obj = await client.get(resource, name, namespace)
            children = await _children(client, obj)
            events = await _events(client, obj)
            click.echo(description(obj, children, events))

    asyncio.run(run())


def description(obj: Object, children: list[Object], events: list[Object]) -> str:
    """The text of the page, without a newline at the end."""
    head = [
        ["Name:", name_of(obj)],
        ["Namespace:", namespace_of(obj) or "<none>"],
        ["Kind:", f"{obj.get('kind')} ({obj.get('apiVersion')})"],
        ["Generation:", _generations(obj)],
        ["Labels:", _pairs(labels_of(obj))],
        ["Annotations:", _pairs(annotations_of(obj), without=LAST_APPLIED_ANNOTATION)],
        ["Created:", f"{age(metadata_of(obj).get('creationTimestamp') or '')} ago"],
    ]
    sections = [columns(head)]
    if obj.get("spec"):
        sections.append("Spec:\n" + _indented(dump(obj["spec"])))
    status = dict(obj.get("status") or {})
    conditions = status.pop("conditions", None) or []
    if status:
        sections.append("Status:\n" + _indented(dump(status)))
    if conditions:
        sections.append("Conditions:\n" + _indented(_conditions(conditions)))
    if children:
        sections.append("Children:\n" + _indented(_child_lines(children)))
    sections.append("Events:\n" + _indented(_event_lines(events)) if events else "Events: <none>")
    return "\n".join(sections)


def _generations(obj: Object) -> str:
    observed = (obj.get("status") or {}).get("observedGeneration")
    generation = generation_of(obj)
    return f"{generation} (observed: {'none yet' if observed is None else observed})"


def _pairs(values: dict[str, str], without: str = "") -> str:
    shown = sorted(f"{key}={value}" for key, value in values.items() if key != without)
    return ", ".join(shown) or "<none>"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


def _conditions(conditions: list[dict[str, Any]]) -> str:
    rows = [["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]]
    rows += [
        [
            str(condition.get("type")),
            str(condition.get("status")),
            str(condition.get("reason") or ""),
            age(condition.get("lastTransitionTime") or ""),
            str(condition.get("message") or ""),
        ]
        for condition in conditions
    ]
    return columns(rows)


def _child_lines(children: list[Object]) -> str:
    rows = [["KIND", "NAME", "STATE", "AGE"]]
    rows += [
        [
            str(child.get("kind")),
            name_of(child),
            _state(child),
            age(metadata_of(child).get("creationTimestamp") or ""),
        ]
        for child in children
    ]
    return columns(rows)


def _state(child: Object) -> str:
    if metadata_of(child).get("deletionTimestamp"):
        return "Terminating"
    status = child.get("status") or {}
    ready = is_true(status.get("conditions") or (), "Ready")
    return "Ready" if ready else str(status.get("phase") or "")


def _event_lines(events: list[Object]) -> str:
    rows = [["TYPE", "REASON", "AGE", "COUNT", "MESSAGE"]]
    rows += [
        [
            str(event.get("type") or ""),
            str(event.get("reason") or ""),
            age(str(event.get("lastTimestamp") or event.get("eventTime") or "")),
            str(event.get("count") or 1),
            str(event.get("message") or "").replace("\n", " "),
        ]
        for event in events
    ]
    return columns(rows)


async def _children(client: KubeClient, obj: Object) -> list[Object]:
    """What the object controls, of the kinds that it may control; what may not be read is left out."""
    uid, namespace = uid_of(obj), namespace_of(obj)
    if not namespace:
        return []
    found: list[Object] = []
    for resource in _CHILD_KINDS:
        try:
            listed = await client.list(resource, namespace)
        except Forbidden:
            continue
        found += [
            item
            for item in listed.items
            if any(r.get("uid") == uid for r in metadata_of(item).get("ownerReferences") or ())
        ]
    return found


async def _events(client: KubeClient, obj: Object) -> list[Object]:
    namespace = namespace_of(obj) or "default"
    selector = f"involvedObject.uid={uid_of(obj)}"
    listed = await client.list(kubernetes.EVENTS, namespace, field_selector=selector)
    return sorted(
        listed.items, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or "")
    )
