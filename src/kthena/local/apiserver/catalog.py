"""The kinds that are served, found by path, by kind and by bucket.

Built-in kinds are there from the start; those of CRDs come and go. Versions of one resource are kept
in the order in which the API prefers them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kthena.local.apiserver.dialect import BUILTIN
from kthena.local.apiserver.kinds import Kind

_VERSION: Final = re.compile(r"v([0-9]+)(?:(alpha|beta)([0-9]+))?")

_OWN_GROUPS: Final = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
)

ChangeListener = Callable[[], None]


class GroupVersion(NamedTuple):
    """A version of an API group; the core group has the empty name."""

    group: str
    version: str

    def __str__(self) -> str:
        """As in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(slots=True)
class Catalog:
    """Mutable state: the kinds by their place in the API, in the order of their arrival."""

    _kinds: dict[tuple[str, str, str], Kind] = field(default_factory=dict)
    _listeners: list[ChangeListener] = field(default_factory=list)

    def on_change(self, listener: ChangeListener) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def add(self, kinds: Iterable[Kind]) -> None:
        """Serve kinds; those at the same place are replaced."""
        for kind in kinds:
            resource = kind.resource
            self._kinds[resource.group, resource.version, resource.plural] = kind
        self._changed()

    def replace(self, group: str, plural: str, kinds: Iterable[Kind]) -> None:
        """Serve these versions of a resource, and no others of it."""
        for key in [key for key in self._kinds if (key[0], key[2]) == (group, plural)]:
            del self._kinds[key]
        self.add(kinds)

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()

    def __iter__(self) -> Iterator[Kind]:
        """All kinds."""
        return iter(tuple(self._kinds.values()))

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The kind at a path."""
        return self._kinds.get((group, version, plural))

    def find_by_kind(self, api_version: str, name: str) -> Kind | None:
        """The kind that `apiVersion` and `kind` name."""
        for kind in self._kinds.values():
            if kind.resource.kind == name and kind.resource.api_version == api_version:
                return kind
        return None

    def find_version(self, bucket: str, api_version: str) -> Kind | None:
        """The kind that serves the objects of a bucket in a version."""
        for kind in self._kinds.values():
            if kind.bucket == bucket and kind.resource.api_version == api_version:
                return kind
        return None

    def find_by_bucket(self, bucket: str) -> Kind | None:
        """The kind to handle objects of a bucket with: best the one that is stored as it is."""
        found = [kind for kind in self._kinds.values() if kind.bucket == bucket]
        return min(found, key=_is_converted, default=None)

    def namespaced(self) -> list[Kind]:
        """One kind for each bucket of namespaced objects."""
        found: dict[str, Kind] = {}
        for kind in sorted(self._kinds.values(), key=_is_converted):
            if kind.resource.namespaced:
                found.setdefault(kind.bucket, kind)
        return list(found.values())

    def groups(self) -> list[str]:
        """The named groups in the order of the API: its own first, then those of CRDs by name."""
        found = {group for group, _, _ in self._kinds if group}
        own = [group for group in _OWN_GROUPS if group in found]
        return [*own, *sorted(found.difference(own))]

    def is_builtin(self, group: str) -> bool:
        """Whether a group has kinds that the API has of itself."""
        return any(kind.dialect is BUILTIN for kind in self.in_group(group))

    def versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        found = {version for name, version, _ in self._kinds if name == group}
        return sorted(found, key=version_priority, reverse=True)

    def in_group(self, group: str) -> list[Kind]:
        """The kinds of a group."""
        return [kind for key, kind in self._kinds.items() if key[0] == group]

    def in_version(self, group: str, version: str) -> Sequence[Kind]:
        """The kinds of a group and version, by name."""
        found = [kind for key, kind in self._kinds.items() if (key[0], key[1]) == (group, version)]
        return sorted(found, key=lambda kind: kind.resource.plural)


def _is_converted(kind: Kind) -> bool:
    return kind.conversion is not None


def version_priority(version: str) -> tuple[int, int, int, str]:
    """Sorts versions as the API does: stable before beta before alpha, higher numbers first."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return (-1, 0, 0, version)
    major, stage, minor = match.groups()
    rank = {"alpha": 0, "beta": 1, None: 2}[stage]
    return (rank, int(major), int(minor or 0), "")
