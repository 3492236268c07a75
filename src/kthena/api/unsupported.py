"""What the kinds offer and nothing implements: refused by a condition, never ignored.

A controller that finds one of these in an object sets `Accepted=False` with reason `NotSupported`
and the texts of `unsupported_fields`. `REFUSALS` is the whole list; implementing something means
deleting its row. The field report of the documentation is made from it.

What the API server fills in by itself never counts: a refusal looks at what a user has to write.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from kthena.machinery.objects import Object

REASON: Final = "NotSupported"
"""The reason of the condition `Accepted=False`."""

Found: TypeAlias = Iterator[str]
"""Paths in one object, as `spec.rules[0].targetModels[1].externalModelProviderName`."""


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One thing in an object that this version cannot do."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row: the fields of the schema that are refused, and how to find them in an object.

    `fields` are paths of the schema, as `spec.rules[].targetModels[].externalModelProviderName`;
    each stands for everything below it. `value` narrows a row to one value of the field; other
    values act.
    """

    fields: tuple[str, ...]
    why: str
    find: Callable[[Object], Found]
    value: str = ""


def unsupported_fields(obj: Object) -> list[Unsupported]:
    """Everything in the object that is not supported, in the order of `REFUSALS`; mostly empty.

    Objects of other kinds have none.
    """
    return [
        Unsupported(path, refusal.why)
        for refusal in REFUSALS.get(str(obj.get("kind")), ())
        for path in refusal.find(obj)
    ]


def _part(obj: Mapping[str, Any] | None, *path: str) -> Any:
    """The value at a path of names, or None."""
    value: Any = obj
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def _present(*path: str) -> Callable[[Object], Found]:
    """Finds a field that is there and, where it is a list, not empty."""

    def find(obj: Object) -> Found:
        value = _part(obj, *path)
        if value is not None and value != []:
            yield ".".join(path)

    return find


def _other_than(allowed: str, *path: str) -> Callable[[Object], Found]:
    """Finds a field with any value but the allowed one."""

    def find(obj: Object) -> Found:
        if _part(obj, *path) not in (None, allowed):
            yield ".".join(path)

    return find


def _whole_kind(obj: Object) -> Found:
    del obj
    yield "spec"


def _provider_targets(obj: Object) -> Found:
    for i, rule in enumerate(_part(obj, "spec", "rules") or ()):
        for j, target in enumerate(_part(rule, "targetModels") or ()):
            if _part(target, "externalModelProviderName"):
                yield f"spec.rules[{i}].targetModels[{j}].externalModelProviderName"


def _engine_transfer(obj: Object) -> Found:
    """SGLang with prefill and decode apart and no connector named means SGLang's own transfer."""
    if (
        _part(obj, "spec", "inferenceEngine") == "SGLang"
        and _part(obj, "spec", "workloadSelector", "pdGroup") is not None
        and _part(obj, "spec", "kvConnector") is None
    ):
        yield "spec.kvConnector"


REFUSALS: Mapping[str, tuple[Refusal, ...]] = MappingProxyType(
    {
        "ModelServing": (
            Refusal(
                ("spec.plugins",),
                "plugins are not run by this version; remove them",
                _present("spec", "plugins"),
            ),
        ),
        "AutoscalingPolicy": (
            Refusal(("spec",), "autoscaling is not done by this version", _whole_kind),
        ),
        "ModelServer": (
            Refusal(
                ("spec.kvConnector.type",),
                "this version moves the key-value cache over http only; use type http",
                _other_than("http", "spec", "kvConnector", "type"),
                value="lmcache, nixl, mooncake",
            ),
            Refusal(
                ("spec.kvConnector",),
                "SGLang's own transfer, which an unset kvConnector means, is not done by this "
                "version; set kvConnector.type to http",
                _engine_transfer,
                value="unset, with SGLang and pdGroup",
            ),
            Refusal(
                ("spec.trafficPolicy.retry",),
                "retries are not configurable in this version; remove retry",
                _present("spec", "trafficPolicy", "retry"),
            ),
            Refusal(
                ("spec.workloadPort.protocol",),
                "this version speaks http to engines only; use protocol http",
                _other_than("http", "spec", "workloadPort", "protocol"),
                value="https",
            ),
        ),
        "ModelRoute": (
            Refusal(
                ("spec.parentRefs",),
                "routes are not attached to Gateways by this version; remove parentRefs",
                _present("spec", "parentRefs"),
            ),
            Refusal(
                ("spec.rules[].targetModels[].externalModelProviderName",),
                "external providers are not called by this version; use modelServerName",
                _provider_targets,
            ),
            Refusal(
                ("spec.rateLimit",),
                "rate limits are not kept by this version; remove rateLimit",
                _present("spec", "rateLimit"),
            ),
        ),
        "ExternalModelProvider": (
            Refusal(("spec",), "external providers are not called by this version", _whole_kind),
        ),
    }
)
"""Every refusal by kind."""


def refusal_of(kind: str, field: str) -> Refusal | None:
    """The row that refuses a field of the schema, or something that it is part of."""
    for refusal in REFUSALS.get(kind, ()):
        for covered in refusal.fields:
            if field == covered or field.startswith((f"{covered}.", f"{covered}[", f"{covered}{{")):
                return refusal
    return None
