"""The variables that expressions of policies read, and their types.

Objects and parameters are dynamic, whatever their schema. `request` and `namespaceObject` have the
fields that the API server declares for them, `variables` those of the policy.
"""

from collections.abc import Mapping
from typing import Final

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.library.authorization import AUTHORIZER, RESOURCE_CHECK
from kthena.machinery.cel.typesystem import Type

REQUEST_RESOURCE: Final = "authorizer.requestResource"
_STRING = types.STRING
_STRINGS = types.list_of(types.STRING)
_TEXTS = types.map_of(types.STRING, types.STRING)


def _object(name: str, fields: Mapping[str, Type]) -> Type:
    return Type("object", name, (), fields)


_KIND = _object("kubernetes.GroupVersionKind", dict.fromkeys(("group", "version", "kind"), _STRING))
_RESOURCE = _object(
    "kubernetes.GroupVersionResource", dict.fromkeys(("group", "version", "resource"), _STRING)
)
_USER = _object(
    "kubernetes.UserInfo",
    {
        "username": _STRING,
        "uid": _STRING,
        "groups": _STRINGS,
        "extra": types.map_of(_STRING, _STRINGS),
    },
)
REQUEST: Final = _object(
    "kubernetes.AdmissionRequest",
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": _STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": _STRING,
        "name": _STRING,
        "namespace": _STRING,
        "operation": _STRING,
        "userInfo": _USER,
        "dryRun": types.BOOL,
        "options": types.DYN,
    },
)
_CONDITION = _object(
    "kubernetes.NamespaceCondition",
    {
        **dict.fromkeys(("status", "type", "message", "reason"), _STRING),
        "lastTransitionTime": types.TIMESTAMP,
    },
)
_METADATA = _object(
    "kubernetes.NamespaceMetadata",
    {
        **dict.fromkeys(("name", "generateName", "namespace", "UID", "resourceVersion"), _STRING),
        **dict.fromkeys(("labels", "annotations"), _TEXTS),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), types.TIMESTAMP),
        **dict.fromkeys(("deletionGracePeriodSeconds", "generation"), types.INT),
        "finalizers": _STRINGS,
    },
)
NAMESPACE: Final = _object(
    "kubernetes.Namespace",
    {
        "metadata": _METADATA,
        "spec": _object("kubernetes.NamespaceSpec", {"finalizers": _STRINGS}),
        "status": _object(
            "kubernetes.NamespaceStatus",
            {"conditions": types.list_of(_CONDITION), "phase": _STRING},
        ),
    },
)


def declare(
    *, params: bool, authorizer: bool = True, variables: Mapping[str, Type] | None = None
) -> dict[str, Type]:
    """The variables in reach of an expression; `variables` are those of the policy, if it has any."""
    declared = {
        "object": types.DYN,
        "oldObject": types.DYN,
        "namespaceObject": NAMESPACE,
        "request": REQUEST,
    }
    if params:
        declared["params"] = types.DYN
    if authorizer:
        declared["authorizer"] = AUTHORIZER
        declared[REQUEST_RESOURCE] = RESOURCE_CHECK
    if variables is not None:
        declared["variables"] = _object("kubernetes.variables", variables)
    return declared
