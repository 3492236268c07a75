"""What subresources of built-in kinds take and answer, where that is an object of another kind."""

from typing import Final

from kthena.local.apiserver.builtins.representation import builtin
from kthena.local.apiserver.kinds import Subresource
from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource
from kthena.machinery.schema.scale import ScalePaths

SCALE: Final = builtin(Resource("autoscaling", "v1", "scale", "Scale"))
BINDING: Final = builtin(Resource("", "v1", "bindings", "Binding"))


def check_scale(scale: Object) -> ErrorList:
    """What is wrong with a Scale of a kind whose own validation does not say it."""
    replicas = (scale.get("spec") or {}).get("replicas") or 0
    if replicas >= 0:
        return []
    detail = "must be greater than or equal to 0"
    return [FieldError("spec.replicas", ErrorType.INVALID, replicas, detail)]


WORKLOAD_SCALE: Final = Subresource(
    representation=SCALE,
    check=check_scale,
    scale=ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector"),
)
"""The scale of a Deployment or a ReplicaSet."""
