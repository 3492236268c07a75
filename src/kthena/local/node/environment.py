"""The environment of a container, as the kubelet makes it.

Order and rules are the kubelet's: `envFrom` first, then `env` in order, where a value may refer to
earlier variables as `$(NAME)`; a reference that does not resolve stays as it is, `$$` is a dollar.
Service variables (`FOO_SERVICE_HOST`) are not made. Pure: objects that are referred to are given.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from kthena.machinery.objects import (
    NamespacedName,
    Object,
    annotations_of,
    labels_of,
    metadata_of,
    namespace_of,
)
from kthena.machinery.quantity import Quantity, QuantityError

_REFERENCE: Final = re.compile(r"\$(?:\$|\(([^)]*)\))")
_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")


class ConfigError(Exception):
    """A container cannot be configured (`CreateContainerConfigError`): what is missing, and where."""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What a pod knows of itself through the downward API, beyond its own object."""

    pod: Object
    address: str
    node_name: str
    node_address: str
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """The node's resources: what a resource field stands for where the container has no limit."""


@dataclass(frozen=True, slots=True)
class References:
    """ConfigMaps and Secrets by name, as they were read; one that does not exist is absent."""

    config_maps: Mapping[str, Object] = field(default_factory=dict)
    secrets: Mapping[str, Object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Needed:
    """The objects that a pod refers to."""

    config_maps: frozenset[NamespacedName]
    secrets: frozenset[NamespacedName]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by the variable; unknown references stay, `$$` becomes `$`."""

    def replace(match: re.Match[str]) -> str:
        if match[1] is None:
            return "$"
        return variables.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def container_environment(
    container: Mapping[str, Any], facts: PodFacts, references: References
) -> dict[str, str]:
    """The variables of `container`, in order.

    Raises:
        ConfigError: a required object, key or field is missing.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        variables.update(_from_object(source, references))
    for entry in container.get("env") or ():
        name = str(entry.get("name"))
        source = entry.get("valueFrom")
        if source:
            value = _value_from(name, source, container, facts, references)
            if value is not None:
                variables[name] = value
        else:
            variables[name] = expand(str(entry.get("value") or ""), variables)
    return variables


def needed_references(pod: Object, containers: Iterable[Mapping[str, Any]]) -> Needed:
    """The ConfigMaps and Secrets that environment variables of `containers` refer to."""
    namespace = namespace_of(pod)
    maps: set[str] = set()
    secrets: set[str] = set()
    for container in containers:
        for source in container.get("envFrom") or ():
            maps.add((source.get("configMapRef") or {}).get("name") or "")
            secrets.add((source.get("secretRef") or {}).get("name") or "")
        for entry in container.get("env") or ():
            source = entry.get("valueFrom") or {}
            maps.add((source.get("configMapKeyRef") or {}).get("name") or "")
            secrets.add((source.get("secretKeyRef") or {}).get("name") or "")
    return Needed(
        frozenset(NamespacedName(namespace, name) for name in maps if name),
        frozenset(NamespacedName(namespace, name) for name in secrets if name),
    )


def field_value(path: str, facts: PodFacts) -> str:
    """A field of the downward API; a label or annotation that is absent is empty.

    Raises:
        ConfigError: the path is none that the kubelet offers.
    """
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        source = labels_of if subscript[1] == "labels" else annotations_of
        return str(source(facts.pod).get(subscript[2], ""))
    spec = facts.pod.get("spec") or {}
    metadata = metadata_of(facts.pod)
    values = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "metadata.labels": _lines(labels_of(facts.pod)),
        "metadata.annotations": _lines(annotations_of(facts.pod)),
        "spec.nodeName": facts.node_name,
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.hostIP": facts.node_address,
        "status.hostIPs": facts.node_address,
        "status.podIP": facts.address,
        "status.podIPs": facts.address,
    }
    if path not in values:
        raise ConfigError(f"fieldRef {path!r} is not one of the fields of the downward API")
    return str(values[path] or "")


def resource_value(
    reference: Mapping[str, Any], container: Mapping[str, Any], facts: PodFacts
) -> str:
    """A limit or request of the container in units of the divisor, rounded up.

    Without a limit the node's allocatable amount counts, without a request the limit does not: it
    is 0, as in the kubelet.

    Raises:
        ConfigError: the resource or the divisor is not understood.
    """
    kind, _, resource = str(reference.get("resource") or "").partition(".")
    if kind not in {"limits", "requests"} or not resource:
        raise ConfigError(
            f"resourceFieldRef {reference.get('resource')!r} must be limits.X or requests.X"
        )
    amounts = (container.get("resources") or {}).get(kind) or {}
    default = facts.allocatable.get(resource, "0") if kind == "limits" else "0"
    try:
        amount = Quantity.parse(amounts.get(resource, default))
        divisor = Quantity.parse(reference.get("divisor") or "1")
    except QuantityError as error:
        raise ConfigError(f"resourceFieldRef {kind}.{resource}: {error}") from error
    # A divisor of "0" is what the API server stores for an absent one.
    by = divisor.value or Fraction(1)
    return str(-(-amount.value // by))


def data_of(obj: Object, *, secret: bool) -> dict[str, bytes]:
    """The keys of a ConfigMap or Secret with their contents.

    Raises:
        ConfigError: a value is no base64.
    """
    plain = {key: str(value).encode() for key, value in (obj.get("data") or {}).items()}
    binary = obj.get("binaryData") or {}
    if secret:
        binary, plain = plain, {}
        plain.update({key: value.encode() for key, value in (obj.get("stringData") or {}).items()})
    try:
        decoded = {key: base64.b64decode(value, validate=True) for key, value in binary.items()}
    except (binascii.Error, ValueError) as error:
        name = metadata_of(obj).get("name")
        raise ConfigError(f"{obj.get('kind')} {name} has a value that is no base64") from error
    return {**decoded, **plain}


def _lines(values: Mapping[str, str]) -> str:
    """The form of labels and annotations in downward API files."""
    quoted = (f'{key}="{value}"'.replace("\n", "\\n") for key, value in sorted(values.items()))
    return "\n".join(quoted)


def _from_object(source: Mapping[str, Any], references: References) -> dict[str, str]:
    prefix = str(source.get("prefix") or "")
    for key, objects, secret in (
        ("configMapRef", references.config_maps, False),
        ("secretRef", references.secrets, True),
    ):
        reference = source.get(key)
        if not reference:
            continue
        obj = objects.get(str(reference.get("name")))
        if obj is None:
            if reference.get("optional"):
                return {}
            kind = "secret" if secret else "configmap"
            raise ConfigError(f'{kind} "{reference.get("name")}" not found')
        values = data_of(obj, secret=secret)
        return {f"{prefix}{key}": text.decode("utf-8", "replace") for key, text in values.items()}
    return {}


def _value_from(
    name: str,
    source: Mapping[str, Any],
    container: Mapping[str, Any],
    facts: PodFacts,
    references: References,
) -> str | None:
    """The value of a `valueFrom`; None where an optional key is missing."""
    if source.get("fieldRef"):
        return field_value(str(source["fieldRef"].get("fieldPath")), facts)
    if source.get("resourceFieldRef"):
        return resource_value(source["resourceFieldRef"], container, facts)
    for key, objects, secret in (
        ("configMapKeyRef", references.config_maps, False),
        ("secretKeyRef", references.secrets, True),
    ):
        reference = source.get(key)
        if reference:
            return _key_value(reference, objects, secret=secret)
    kinds = ", ".join(source) or "nothing"
    raise ConfigError(f"env {name}: valueFrom {kinds} is not supported by the local node")


def _key_value(
    reference: Mapping[str, Any], objects: Mapping[str, Object], *, secret: bool
) -> str | None:
    kind = "secret" if secret else "configmap"
    name, key = str(reference.get("name")), str(reference.get("key"))
    obj = objects.get(name)
    values = {} if obj is None else data_of(obj, secret=secret)
    if key in values:
        return values[key].decode("utf-8", "replace")
    if reference.get("optional"):
        return None
    if obj is None:
        raise ConfigError(f'{kind} "{name}" not found')
    raise ConfigError(f"couldn't find key {key} in {kind} {name}")
