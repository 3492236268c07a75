"""Who owns the fields of objects: the field manager of each kind and subresource."""

from collections.abc import Callable
from datetime import datetime

from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.dialect import CUSTOM
from kthena.local.apiserver.kinds import Kind, Representation, Strategy
from kthena.machinery.conditions import format_time
from kthena.machinery.managedfields.atoms import Atom
from kthena.machinery.managedfields.comparison import MismatchError
from kthena.machinery.managedfields.fieldsets import EMPTY
from kthena.machinery.managedfields.tracking import Tracker
from kthena.machinery.objects import Object, copy_json

CONTROLLER_MANAGER = "kube-controller-manager"
"""Who garbage collection and the end of namespaces are done by."""

API_SERVER = "kube-apiserver"
"""Who the server's own objects, and the status of CRDs, are written by."""


class _Versions:
    """The versions of a kind that are served."""

    def __init__(self, kind: Kind, catalog: Catalog) -> None:
        self.fixed = kind.dialect is not CUSTOM
        self._kind = kind
        self._catalog = catalog

    def atom(self, version: str) -> Atom | None:
        """The schema of a version.

        Raises:
            MismatchError: it is one that the CRD of a custom resource does not have. The API knows
                all versions of its own kinds, and forgets those that are gone.
        """
        found = self._in(version)
        if found is None and self._kind.dialect is CUSTOM:
            raise MismatchError(f"request to convert CR to an invalid group/version: {version}")
        return None if found is None else found.representation.atom

    def convert(self, obj: Object, source: str, target: str) -> Object:
        """An object in another version; it may share parts with the given one."""
        here, there = self._in(source), self._in(target)
        if here is None or there is None:
            raise MismatchError(f"there is no conversion from {source} to {target}")
        stored = here.stored(copy_json(obj) if here.conversion else obj)
        if there.conversion is None:
            return stored
        return there.conversion.from_stored(copy_json(stored))

    def _in(self, version: str) -> Kind | None:
        if version == self._kind.resource.api_version:
            return self._kind
        found = self._catalog.find_version(self._kind.bucket, version)
        # A group knows its own kinds: events of one are strangers to managers of the other.
        same_group = found is not None and found.resource.group == self._kind.resource.group
        return found if same_group else None


class _OneVersion:
    """A representation that there is in one version only."""

    fixed = True

    def __init__(self, representation: Representation) -> None:
        self._representation = representation

    def atom(self, version: str) -> Atom | None:
        """Its schema."""
        own = self._representation
        return own.atom if version == own.resource.api_version else None

    def convert(self, obj: Object, source: str, target: str) -> Object:
        """The object: there is one version."""
        del source, target
        return obj


class FieldManagement:
    """Makes the trackers of writes."""

    def __init__(self, catalog: Catalog, now: Callable[[], datetime]) -> None:
        self._catalog = catalog
        self._now = now

    def of_kind(self, kind: Kind, strategy: Strategy, subresource: str) -> Tracker:
        """For writes of objects of a kind, or of the part of them that a subresource is."""
        return Tracker(
            kind.resource,
            subresource,
            _Versions(kind, self._catalog),
            kind.codec.empty(),
            strategy.reset_fields,
            format_time(self._now()),
        )

    def of_part(self, representation: Representation, subresource: str) -> Tracker:
        """For writes of what a subresource takes, where that is no object of the kind."""
        return Tracker(
            representation.resource,
            subresource,
            _OneVersion(representation),
            representation.codec.empty(),
            EMPTY,
            format_time(self._now()),
        )
