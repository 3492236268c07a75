"""The merge patch of a client-side apply: from what was applied last, what is live, what is wanted.

As kubectl apply does it for custom resources (k8s.io/apimachinery/pkg/util/jsonmergepatch): fields
that the wanted object has are set where the live object differs; fields that were applied last time
and are wanted no more are removed; everything else of the live object is left alone. Lists are
replaced as a whole.
"""

import json
from typing import Any

from kthena.machinery.objects import Object, annotations_of

LAST_APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"


def with_last_applied(obj: Object) -> Object:
    """A copy of the object that carries itself in kubectl's annotation."""
    metadata = dict(obj.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(LAST_APPLIED_ANNOTATION, None)
    bare = {**obj, "metadata": {**metadata, "annotations": annotations}}
    text = json.dumps(bare, separators=(",", ":"), ensure_ascii=False, sort_keys=True) + "\n"
    annotations = {**annotations, LAST_APPLIED_ANNOTATION: text}
    return {**obj, "metadata": {**metadata, "annotations": annotations}}


def last_applied(live: Object) -> Object:
    """What was applied last, as the annotation says; empty when there is none or it is no JSON."""
    try:
        found = json.loads(annotations_of(live).get(LAST_APPLIED_ANNOTATION) or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def three_way_merge_patch(original: Object, modified: Object, current: Object) -> Object:
    """The merge patch (RFC 7386) that brings `current` to what `modified` wants; empty: nothing."""
    patch: Object = {}
    for key, wanted in modified.items():
        live = current.get(key)
        if isinstance(wanted, dict) and isinstance(live, dict):
            before = original.get(key)
            inner = three_way_merge_patch(before if isinstance(before, dict) else {}, wanted, live)
            if inner:
                patch[key] = inner
        elif not _equal(wanted, live) and not (wanted is None and key not in current):
            patch[key] = wanted
    for key in original:
        if key not in modified and key in current:
            patch[key] = None
    return patch


def _equal(left: Any, right: Any) -> bool:
    """Equality of JSON: True is not 1, as Python would have it."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)
