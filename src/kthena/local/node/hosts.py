"""The hosts file of a pod: which names its processes resolve, and to which address.

Every pod sees itself as `localhost`, since its containers share one address; every Service of the
cluster under the names that cluster DNS gives it. A headless Service stands for all its pods (those
not ready included where it publishes them), any other Service for one ready pod, since there is no
virtual address here: its ports are the pod's own (`targetPort`). Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kthena.machinery.conditions import is_true
from kthena.machinery.objects import NamespacedName, Object, is_terminating, key_of, labels_of

CLUSTER_DOMAIN: Final = "cluster.local"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A pod as an answer to a name."""

    address: str
    ready: bool
    hostname: str = ""
    """`spec.hostname` (with a matching `spec.subdomain`): its own name below the Service."""
    subdomain: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one Service's names resolve to; `pods` are names below it."""

    service: NamespacedName
    addresses: tuple[str, ...]
    pods: tuple[tuple[str, str], ...] = ()


def answer_for(service: Object, endpoints: Sequence[Endpoint]) -> Answer | None:
    """What the Service's names resolve to, given the pods that its selector finds.

    None when there is nothing: a name without endpoints does not resolve, as in cluster DNS.
    """
    spec = service.get("spec") or {}
    not_ready_too = bool(spec.get("publishNotReadyAddresses"))
    published = [
        endpoint for endpoint in endpoints if endpoint.address and (endpoint.ready or not_ready_too)
    ]
    if not published:
        return None
    key = key_of(service)
    if spec.get("clusterIP") != "None":
        return Answer(key, (min(endpoint.address for endpoint in published),))
    pods = tuple(
        (endpoint.hostname, endpoint.address)
        for endpoint in published
        if endpoint.hostname and endpoint.subdomain == key.name
    )
    return Answer(key, tuple(sorted(endpoint.address for endpoint in published)), pods)


def selects(service: Object, pod: Object) -> bool:
    """Whether the Service's selector finds the pod. A Service without a selector finds none."""
    selector = (service.get("spec") or {}).get("selector") or {}
    labels = labels_of(pod)
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


def endpoint_of(pod: Object, given: str = "") -> Endpoint:
    """The pod as an endpoint; a terminating one is not ready.

    `given` is its address where its status does not tell one yet.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    ready = not is_terminating(pod) and is_true(status.get("conditions") or (), "Ready")
    finished = status.get("phase") in {"Succeeded", "Failed"}
    return Endpoint(
        address="" if finished else str(status.get("podIP") or given),
        ready=ready,
        hostname=str(spec.get("hostname") or ""),
        subdomain=str(spec.get("subdomain") or ""),
    )


def render_own(
    address: str, names: Iterable[str], aliases: Iterable[Mapping[str, object]] = ()
) -> str:
    """The first part of the file: the pod itself, and its `spec.hostAliases`."""
    lines = [
        "# Made by the local node: the pod itself, then the Services of the cluster.",
        _line(address, ("localhost", *names)),
    ]
    for alias in aliases:
        hostnames = alias.get("hostnames")
        if isinstance(hostnames, list) and hostnames:
            lines.append(_line(str(alias.get("ip")), [str(name) for name in hostnames]))
    return "\n".join(lines) + "\n"


def render_services(answers: Iterable[Answer], namespace: str) -> str:
    """The second part, equal for all pods of a namespace: the Services in name order.

    Those of the namespace itself also stand without it.
    """
    lines = []
    for answer in sorted(answers, key=lambda answer: answer.service):
        names = service_names(answer.service, namespace)
        lines += [_line(target, names) for target in answer.addresses]
        for hostname, target in answer.pods:
            lines.append(_line(target, [f"{hostname}.{name}" for name in names]))
    return "".join(f"{line}\n" for line in lines)


def service_names(service: NamespacedName, namespace: str) -> list[str]:
    """The names of a Service as seen from `namespace`, the canonical one first."""
    base = f"{service.name}.{service.namespace}"
    names = [f"{base}.svc.{CLUSTER_DOMAIN}", f"{base}.svc", base]
    if service.namespace == namespace:
        names.append(service.name)
    return names


def _line(address: str, names: Iterable[str]) -> str:
    return f"{address}\t{' '.join(names)}"
