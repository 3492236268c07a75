"""Writing the status of an object: a merge patch of what differs, and nothing when nothing does.

The status that is passed is the whole status: what the stored one has beyond it is removed.
"""

from typing import Any

from kthena.kube.client import KubeClient, PatchType
from kthena.machinery.objects import Object, generation_of, metadata_of, name_of, namespace_of
from kthena.machinery.resources import Resource


async def patch_status(
    client: KubeClient,
    resource: Resource,
    obj: Object,
    status: dict[str, Any],
    *,
    only_if_unchanged: bool = True,
) -> Object:
    """Write `status`, with `observedGeneration` of `obj`, unless `obj` has it already.

    The object must still have the resource version of `obj`. Without `only_if_unchanged` the patch
    also lands on an object that has changed, or on another one that has taken its name: API servers
    pass over a UID in a status patch. Returns the object as written, or `obj` itself when there was
    nothing to write.

    Raises:
        Conflict: the object has changed since `obj` was read: decide again on the newer one.
        NotFound: the object is gone.
    """
    wanted = {**status, "observedGeneration": generation_of(obj)}
    difference = merge_difference(obj.get("status") or {}, wanted)
    if not difference:
        return obj
    body: Object = {"status": difference}
    if only_if_unchanged:
        body["metadata"] = {"resourceVersion": metadata_of(obj).get("resourceVersion")}
    return await client.patch(
        resource, name_of(obj), namespace_of(obj), body, PatchType.MERGE, subresource="status"
    )


def merge_difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `new` of `old`; empty when they mean the same.

    A field that is null means the same as one that is absent.
    """
    patch: dict[str, Any] = {}
    for name in old.keys() | new.keys():
        before, after = old.get(name), new.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            inner = merge_difference(before, after)
            if inner:
                patch[name] = inner
        elif not _equal(before, after):
            patch[name] = after
    return patch


def _equal(left: Any, right: Any) -> bool:
    """As JSON values: true is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return not merge_difference(left, right)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return bool(left == right)
