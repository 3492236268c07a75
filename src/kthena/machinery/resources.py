"""Names of API resources and their paths on the wire.

One `Resource` is what the API calls a resource (plural, in a group and version); clients build
request paths from it and servers parse them back.
"""

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of the API: where objects of one kind live."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of its objects: `v1`, or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """The `kind` of a list of its objects."""
        return f"{self.kind}List"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The request path of the collection or the object, with a leading slash.

        An empty namespace addresses all namespaces (lists and watches), or a cluster-scoped object.

        Raises:
            ValueError: a namespace is given for a cluster-scoped resource, or a subresource
                without a name.
        """
        if namespace and not self.namespaced:
            raise ValueError(
                f"{self.plural} are cluster-scoped; namespace {namespace!r} is of no use"
            )
        if subresource and not name:
            raise ValueError(f"subresource {subresource!r} of {self.plural} needs an object name")
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name:
            parts.append(quote(name, safe=""))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        """`plural.group`, as kubectl names it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural
