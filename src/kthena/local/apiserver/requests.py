"""Which resource, object and subresource a request path means.

Mirrors the paths that kube-apiserver's RequestInfo knows: `/api/v1/...` and `/apis/GROUP/VERSION/...`,
with `namespaces/NAME/` before the resource for namespaced objects, and the deprecated `watch/`
prefix, which is not offered.
"""

from typing import NamedTuple
from urllib.parse import unquote


class ResourcePath(NamedTuple):
    """A path below a group and version. Empty fields are absent parts."""

    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str
    rest: str
    """What follows the subresource, for subresources that are a path of their own."""

    names_no_namespace: bool = False
    """Whether there is a place for a namespace in it, which is empty."""


def parse_resource_path(path: str) -> ResourcePath | None:
    """The parts of a percent-encoded path, or None for one that names no resource.

    `/api/v1` and `/apis/apps/v1` name none: they are discovery.
    """
    # An empty part is a part, which no resource has; an empty namespace is all of them.
    parts = unquote(path).strip("/").split("/")
    if parts[:1] == ["api"]:
        group, rest = "", parts[1:]
    elif parts[:1] == ["apis"] and len(parts) > 1:
        group, rest = parts[1], parts[2:]
    else:
        return None
    if len(rest) < 2:
        return None
    version, rest = rest[0], rest[1:]
    namespace, empty = "", False
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, empty, rest = rest[1], not rest[1], rest[2:]
    padded = [*rest, "", "", ""]
    plural, name, subresource = padded[:3]
    below = "/".join(rest[3:])
    return ResourcePath(group, version, namespace, plural, name, subresource, below, empty)
