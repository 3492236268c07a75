"""Nodes: their defaults, and what a write may change.

Not checked: annotations, the status of swap, features and configuration.
"""

from collections.abc import Sequence
from typing import Final

from kthena.local.apiserver.admission import copy_fields
from kthena.local.apiserver.builtins.cidrs import NO_RANGE, cidr_warnings, parse_cidr
from kthena.local.apiserver.builtins.fielderrors import (
    check_choice,
    check_text,
    forbidden,
    invalid,
)
from kthena.local.apiserver.strategies import STATUS_FIELD, PlainStrategy
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import format_json
from kthena.machinery.names import check_label_value, check_qualified_name
from kthena.machinery.objects import Object

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_CIDRS: Final = "spec.podCIDRs"


def default_node(obj: Object) -> None:
    """What can be allocated is all there is, unless the node says otherwise; one range is the first."""
    status, spec = obj["status"], obj["spec"]
    if status.get("capacity"):
        status.setdefault("allocatable", dict(status["capacity"]))
    first, ranges = spec.get("podCIDR") or "", spec.get("podCIDRs") or []
    if first and ranges[:1] != [first]:
        spec["podCIDRs"] = [first]
    elif ranges and ranges[0]:
        spec["podCIDR"] = ranges[0]


class NodeStrategy(PlainStrategy):
    """Writes of Nodes. A new one may bring its status, as kubelets do."""

    reset_fields = STATUS_FIELD

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status."""
        copy_fields(new, old, ("status",))

    def validate_create(self, obj: Object) -> ErrorList:
        """Taints, and the ranges of its pods."""
        spec = obj["spec"]
        return _check_taints(spec.get("taints") or []) + _check_ranges(spec.get("podCIDRs") or [])

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The same; what the node was given once stays."""
        errors = self.validate_create(new)
        ranges, before = (obj["spec"].get("podCIDRs") or [] for obj in (new, old))
        detail = 'node updates may not change podCIDR except from "" to valid'
        if before and len(ranges) != len(before):
            errors.append(forbidden(_CIDRS, detail))
        elif before:
            pairs = zip(ranges, before, strict=True)
            errors += [forbidden(_CIDRS, detail) for after, known in pairs if after != known]
        known = old["spec"].get("providerID")
        if known and new["spec"].get("providerID") != known:
            detail = 'node updates may not change providerID except from "" to valid'
            errors.append(forbidden("spec.providerID", detail))
        return errors

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """Ranges in an unusual form."""
        del old
        ranges = enumerate(new["spec"].get("podCIDRs") or ())
        return [
            text for index, each in ranges for text in cidr_warnings(f"{_CIDRS}[{index}]", each)
        ]


def _check_ranges(ranges: list[str]) -> ErrorList:
    parsed = [parse_cidr(text) for text in ranges]
    errors: ErrorList = [
        invalid(f"{_CIDRS}[{index}]", text, NO_RANGE)
        for index, text in enumerate(ranges)
        if parsed[index] is None
    ]
    versions = [network.version for network in parsed if network is not None]
    if not errors and len(versions) > len(set(versions)):
        detail = "may specify no more than one CIDR for each IP family"
        errors.append(invalid(_CIDRS, ranges, detail))
    return errors


def _check_taints(taints: list[Object]) -> ErrorList:
    errors: ErrorList = []
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(taints):
        path, value = f"metadata.taints[{index}]", taint.get("value") or ""
        errors += check_text(f"{path}.key", taint["key"], check_qualified_name)
        errors += check_text(f"{path}.value", value, check_label_value)
        errors += check_choice(f"{path}.effect", taint["effect"], _EFFECTS)
        key = (taint["key"], taint["effect"])
        if key in seen:
            errors.append(_repeated(path, taint))
        seen.add(key)
    return errors


def _repeated(path: str, taint: Object) -> FieldError:
    """The error of the API, which shows the struct in Go's names."""
    members = {"Key": "key", "Value": "value", "Effect": "effect"}
    texts = [f'"{name}":{format_json(taint.get(field) or "")}' for name, field in members.items()]
    texts.append(f'"TimeAdded":{format_json(taint.get("timeAdded"))}')
    detail = "taints must be unique by key and effect pair"
    return FieldError(path, ErrorType.DUPLICATE, OMITTED, f"{{{','.join(texts)}}}: {detail}")
