"""Access to Kubernetes objects kept as plain JSON.

Objects of the API are `dict`s as they travel on the wire. A typed round trip drops the fields that
the type does not know (a newer PodSpec, a user's annotation), so everything that is read, compared
and written back stays in this form; the accessors here give the few fields that all kinds share.
"""

from typing import Any, NamedTuple, TypeAlias

Object: TypeAlias = dict[str, Any]
"""One Kubernetes object as decoded JSON."""


class NamespacedName(NamedTuple):
    """The key of an object within its kind; `namespace` is empty for cluster-scoped kinds."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """`namespace/name`, or `name` alone where there is no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def metadata_of(obj: Object) -> dict[str, Any]:
    """The object's metadata; an empty dict, not attached to it, where it has none."""
    return obj.get("metadata") or {}


def name_of(obj: Object) -> str:
    """`metadata.name`, or the empty string."""
    return str(metadata_of(obj).get("name") or "")


def namespace_of(obj: Object) -> str:
    """`metadata.namespace`, or the empty string for a cluster-scoped object."""
    return str(metadata_of(obj).get("namespace") or "")


def key_of(obj: Object) -> NamespacedName:
    """Namespace and name of the object."""
    return NamespacedName(namespace_of(obj), name_of(obj))


def resource_version_of(obj: Object) -> str:
    """The resourceVersion; empty where the object has none."""
    return str(metadata_of(obj).get("resourceVersion") or "")


def uid_of(obj: Object) -> str:
    """`metadata.uid`, or the empty string."""
    return str(metadata_of(obj).get("uid") or "")


def labels_of(obj: Object) -> dict[str, str]:
    """`metadata.labels`; an empty dict, not attached to the object, where it has none."""
    return metadata_of(obj).get("labels") or {}


def annotations_of(obj: Object) -> dict[str, str]:
    """`metadata.annotations`; an empty dict, not attached to the object, where it has none."""
    return metadata_of(obj).get("annotations") or {}


def generation_of(obj: Object) -> int:
    """`metadata.generation`, or 0."""
    return int(metadata_of(obj).get("generation") or 0)


def is_terminating(obj: Object) -> bool:
    """Whether deletion has been asked for (`metadata.deletionTimestamp` is set)."""
    return bool(metadata_of(obj).get("deletionTimestamp"))


def controller_of(obj: Object) -> dict[str, Any] | None:
    """The owner reference with `controller: true`; an object has at most one."""
    for reference in metadata_of(obj).get("ownerReferences") or ():
        if reference.get("controller"):
            return dict(reference)
    return None


def copy_json(value: Any) -> Any:
    """A copy of a JSON value that shares no dict and no list with it."""
    if isinstance(value, dict):
        return {key: copy_json(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [copy_json(entry) for entry in value]
    return value


def equal_json(left: Any, right: Any) -> bool:
    """Equality of JSON values in which 1, 1.0 and true differ."""
    if type(left) is not type(right):
        return False
    if type(left) is dict:
        return len(left) == len(right) and all(
            key in right and equal_json(value, right[key]) for key, value in left.items()
        )
    if type(left) is list:
        return len(left) == len(right) and all(map(equal_json, left, right))
    return bool(left == right)
