"""The PodGroup CRD of local mode, where no Volcano brings its own.

It has the fields that this project writes, as Volcano's has them, and no other: a PodGroup that asks
for more is told so. The node's scheduler reads them (`node.gangs`). Never install it in a cluster
that may get Volcano.
"""

from typing import Any, Final

from kthena.api.volcano import POD_GROUP_CRD, POD_GROUPS
from kthena.machinery.objects import Object

_COUNT: Final = {"type": "integer", "format": "int32", "minimum": 0}
_TOPOLOGY: Final = {
    "type": "object",
    "description": "How closely the pods are placed. A node on this machine is close to itself.",
    "properties": {
        "mode": {
            "type": "string",
            "enum": ["hard", "soft"],
            "default": "hard",
            "description": "Whether the highest tier is a limit, or a wish.",
        },
        "highestTierAllowed": {
            "type": "integer",
            "minimum": 0,
            "description": "The highest network tier, by number, that the pods may span.",
        },
        "highestTierName": {
            "type": "string",
            "description": "The highest network tier, by name, that the pods may span.",
        },
    },
}
_LABEL_SELECTOR: Final = {
    "type": "object",
    "description": "Which pods of the PodGroup are of this kind.",
    "properties": {
        "matchLabels": {"type": "object", "additionalProperties": {"type": "string"}},
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {
                    "key": {"type": "string"},
                    "operator": {"type": "string"},
                    "values": {"type": "array", "items": {"type": "string"}},
                },
            },
        },
    },
}
_SUB_GROUP: Final = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "minLength": 1, "description": "The name of this kind."},
        "labelSelector": _LABEL_SELECTOR,
        "matchLabelKeys": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Pods with equal values of these labels are one sub-group.",
        },
        "subGroupSize": {**_COUNT, "description": "The pods that make a sub-group whole."},
        "minSubGroups": {
            **_COUNT,
            "description": "Whole sub-groups without which no pod of the PodGroup is placed.",
        },
        "networkTopology": _TOPOLOGY,
    },
}
_SPEC: Final = {
    "type": "object",
    "description": "What is placed together.",
    "properties": {
        "minMember": {
            **_COUNT,
            "description": "Pods without which no pod of the PodGroup is placed.",
        },
        "minResources": {
            "type": "object",
            "description": "What these pods request. Not looked at here.",
            "additionalProperties": {
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "x-kubernetes-int-or-string": True,
            },
        },
        "queue": {
            "type": "string",
            "default": "default",
            "description": "The queue that pays for the pods. Not looked at here.",
        },
        "networkTopology": _TOPOLOGY,
        "subGroupPolicy": {
            "type": "array",
            "items": _SUB_GROUP,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "description": "The kinds of sub-groups, each placed whole.",
        },
    },
}


def pod_group_crd() -> Object:
    """The definition, a new object."""
    schema: dict[str, Any] = {
        "type": "object",
        "description": "Pods that are placed together or not at all.",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": _SPEC,
        },
    }
    columns = [
        {"name": "MinMember", "type": "integer", "jsonPath": ".spec.minMember"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": POD_GROUP_CRD},
        "spec": {
            "group": POD_GROUPS.group,
            "names": {
                "kind": POD_GROUPS.kind,
                "listKind": f"{POD_GROUPS.kind}List",
                "plural": POD_GROUPS.plural,
                "singular": "podgroup",
                "shortNames": ["pg"],
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": POD_GROUPS.version,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
