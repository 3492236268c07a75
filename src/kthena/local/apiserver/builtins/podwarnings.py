"""What users are warned of in a PodSpec that is accepted all the same."""

from collections.abc import Iterator
from typing import Any

from kthena.machinery.gotext import quote
from kthena.machinery.names import check_dns1123_label
from kthena.machinery.objects import Object
from kthena.machinery.quantity import Quantity

_BYTES = ("memory", "ephemeral-storage")


def warn_of_pod_spec(spec: Object, path: str) -> list[str]:
    """The warnings, in the order and the words of the API server."""
    spread = spec.get("topologySpreadConstraints") or ()
    return [
        *_without_selector(spread, f"{path}.topologySpreadConstraints", ""),
        *_repeated(spec.get("hostAliases"), f"{path}.hostAliases", "ip"),
        *_repeated(spec.get("imagePullSecrets"), f"{path}.imagePullSecrets", "name"),
        *(
            f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
            for index, secret in enumerate(spec.get("imagePullSecrets") or ())
            if not secret.get("name")
        ),
        *_fractions(spec.get("overhead"), f"{path}.overhead"),
        *(text for below, container in _containers(spec, path) for text in _own(container, below)),
        *_repeated_ports(spec, path),
        *_repeated_port_names(spec, path),
        *_negative_grace(spec, path),
        *_affinities(spec.get("affinity") or {}, f"{path}.affinity"),
    ]


def warn_of_template(name: str, template: Object, *, created: bool) -> list[str]:
    """The warnings of a workload whose pods are named after it."""
    found: list[str] = []
    problems = check_dns1123_label(name) if created else []
    if problems:
        found.append(
            "metadata.name: this is used in Pod names and hostnames, which can result in "
            f"surprising behavior; a DNS label is recommended: [{' '.join(problems)}]"
        )
    return found + warn_of_pod_spec(template["spec"], "spec.template.spec")


def _containers(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}]", container


def _own(container: Object, path: str) -> Iterator[str]:
    resources = container.get("resources") or {}
    for name in _BYTES:
        for kind in ("limits", "requests"):
            yield from _fractions(resources.get(kind), f"{path}.resources.{kind}", (name,))
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        hides = variable.get("valueFrom") is not None or value == reference
        if name in seen and (hides or reference not in value):
            yield (
                f"{path}.env[{index}]: hides previous definition of {quote(name)}, which may be "
                "dropped when using apply"
            )
        seen.add(name)


def _fractions(amounts: Any, path: str, names: tuple[str, ...] = _BYTES) -> Iterator[str]:
    for name in names:
        amount = (amounts or {}).get(name)
        # Whole thousandths decide, as the API server counts them.
        if amount is not None and (Quantity.parse(amount).value * 1000).__ceil__() % 1000:
            yield (
                f"{path}[{name}]: fractional byte value {quote(str(amount))} is invalid, must be "
                "an integer"
            )


def _repeated(items: Any, path: str, key: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items or ()):
        value = item.get(key) or ""
        if value in seen:
            yield f"{path}[{index}].{key}: duplicate {key} {quote(value)}"
        seen.add(value)


def _repeated_ports(spec: Object, path: str) -> Iterator[str]:
    known: dict[tuple[int, str], list[tuple[str, Object]]] = {}
    for below, container in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            place = f"{below}.ports[{index}]"
            others = known.setdefault((port["containerPort"], port.get("protocol") or ""), [])
            for other_place, other in others:
                problem = _overlap(port, other)
                if problem:
                    yield f"{place}: {problem} port definition with {other_place}"
            others.append((place, port))


def _overlap(port: Object, other: Object) -> str:
    (address, number), (other_address, other_number) = (
        (entry.get("hostIP") or "", entry.get("hostPort") or 0) for entry in (port, other)
    )
    if (address, number) == (other_address, other_number):
        return "duplicate"
    if not number or not other_number:
        return "overlapping"
    if number == other_number and bool(address) != bool(other_address):
        return "dangerously ambiguous"
    return ""


def _repeated_port_names(spec: Object, path: str) -> Iterator[str]:
    known: dict[str, str] = {}
    for below, container in _containers(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            name, place = port.get("name"), f"{below}.ports[{index}]"
            if name and name in known:
                yield (
                    f"{place}: duplicate port name {quote(name)} with {known[name]}, services and "
                    f"probes that select ports by name will use {known[name]}"
                )
            elif name:
                known[name] = place


def _negative_grace(spec: Object, path: str) -> Iterator[str]:
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and "
            "will be treated as 1"
        )


def _affinities(affinity: Object, path: str) -> Iterator[str]:
    required, preferred = (
        f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred")
    )
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(kind) or {}
        yield from _without_selector(terms.get(required) or (), f"{path}.{kind}.{required}", "")
        weighted = [term.get("podAffinityTerm") or {} for term in terms.get(preferred) or ()]
        yield from _without_selector(weighted, f"{path}.{kind}.{preferred}", ".podAffinityTerm")


def _without_selector(terms: Any, path: str, below: str) -> Iterator[str]:
    for index, term in enumerate(terms):
        if term.get("labelSelector") is None:
            place = f"{path}[{index}]{below}.labelSelector"
            yield f"{place}: a null labelSelector results in matching no pod"
