"""The CRDs of a run: those of the project, and one of everything that a schema can say."""

from pathlib import Path
from typing import Any

import yaml

GROUP = "fuzz.kthena.io"
GADGETS = "gadgets"

_CRDS = Path(__file__).resolve().parent.parent.parent / "deploy" / "kustomize" / "crds"
_OURS = (
    "networking/modelroutes.yaml",
    "networking/modelservers.yaml",
    "workload/modelservings.yaml",
)


def _objects(keys: list[str] | None = None, list_type: str = "") -> dict[str, Any]:
    """A list of objects; `keys` make it a map."""
    properties = {
        "name": {"type": "string", "maxLength": 8},
        "port": {"type": "integer", "default": 80},
        "value": {"type": "string", "nullable": True},
    }
    items: dict[str, Any] = {"type": "object", "properties": properties}
    kind: dict[str, Any] = {}
    if keys:
        items["required"] = [key for key in keys if key != "port"]
        kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
    elif list_type:
        kind = {"x-kubernetes-list-type": list_type}
    return {"type": "array", "maxItems": 6, "items": items, **kind}


_TEXTS: dict[str, Any] = {
    "type": "array",
    "maxItems": 6,
    "items": {"type": "string", "maxLength": 8},
}

_SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "replicas": {
            "type": "integer",
            "format": "int32",
            "minimum": 0,
            "maximum": 100,
            "default": 1,
        },
        "size": {"type": "integer", "minimum": 1, "multipleOf": 2},
        "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
        "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "timeout": {"type": "string", "format": "duration"},
        "at": {"type": "string", "format": "date-time"},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True, "default": "none"},
        "fixed": {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is fixed"}],
        },
        "map": _objects(["name"]),
        "ports": _objects(["name", "port"]),
        "atoms": _objects(list_type="atomic"),
        "plain": _objects(),
        "set": {**_TEXTS, "x-kubernetes-list-type": "set"},
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "maxProperties": 3,
        },
        "whole": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nested": {
            "type": "object",
            "default": {},
            "properties": {
                "level": {"type": "integer", "default": 3},
                "flag": {"type": "boolean"},
                "inner": {
                    "type": "object",
                    "properties": {"deep": {"type": "string", "default": "d"}},
                },
            },
        },
        "low": {"type": "integer"},
        "high": {"type": "integer"},
        "one": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    },
    "x-kubernetes-validations": [
        {
            "rule": "!has(self.low) || !has(self.high) || self.low <= self.high",
            "messageExpression": "self.high > 4 ? 'low is above high' : 'low is far above high'",
            "fieldPath": ".low",
        },
        {
            "rule": "!has(oldSelf.size) || has(self.size)",
            "message": "size cannot be removed",
            "reason": "FieldValueForbidden",
        },
        {
            "rule": "!has(self.set) || self.set.all(x, x.size() < 6)",
            "message": "a text is too long",
        },
    ],
}
_STATUS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "phase": {"type": "string", "enum": ["New", "Done"]},
        "replicas": {"type": "integer"},
        "selector": {"type": "string"},
        "conditions": {
            "type": "array",
            "maxItems": 6,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
            "items": {
                "type": "object",
                "required": ["type", "status"],
                "properties": {
                    "type": {"type": "string"},
                    "status": {"type": "string"},
                    "reason": {"type": "string", "default": "Unknown"},
                },
            },
        },
    },
}


def gadget_crd() -> dict[str, Any]:
    """The CRD of everything that a schema can say."""
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": _SPEC, "status": _STATUS},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}, "scale": scale},
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
        ],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{GADGETS}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": GADGETS, "kind": "Gadget", "singular": "gadget"},
            "versions": [version],
        },
    }


def definitions() -> list[dict[str, Any]]:
    """All CRDs of a run."""
    ours = [yaml.safe_load((_CRDS / name).read_text(encoding="utf-8")) for name in _OURS]
    return [gadget_crd(), *ours]
