"""The two dialects of the API: kube-apiserver answers for its own kinds, apiextensions for CRDs.

They agree on what a request does and differ in form: what a body may leave out, how an error is
worded, in which order names are written. Each difference is a field here, so that the rest of the
server asks for the answer and not for the sort of kind.
"""

from dataclasses import dataclass
from typing import Final

from kthena.local.apiserver.mediatypes import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    PROTOBUF,
    STRATEGIC_PATCH,
    YAML,
)
from kthena.machinery.resources import Resource


@dataclass(frozen=True, slots=True)
class Dialect:
    """How requests for a kind are read, and how replies are written."""

    body_types: tuple[str, ...]
    """The content types of bodies that are read."""

    told_types: tuple[str, ...]
    """Those that a client is told of which sends another: the API server tells more than it reads."""

    patch_types: tuple[str, ...]
    """The content types of patches that are taken."""

    names_optional: bool
    """Whether a body may leave out `apiVersion` and `kind`, or be null."""

    duplicates_first: bool
    """Whether duplicate fields are reported before unknown ones."""

    generic_errors: bool
    """Whether a request that is not served gets an error that does not name the resource."""

    type_meta: tuple[str, str]
    """`apiVersion` and `kind` in the order in which an object starts with them."""

    named_items: bool
    """Whether the items of a list carry `apiVersion` and `kind`."""

    always_continues: bool
    """Whether the metadata of a list has an empty `continue` where there is no next page."""

    abbreviates_kinds: bool
    """Whether aggregated discovery leaves out a group and version that are those of the list."""

    keys_by_group: bool
    """Whether etcd's keys, which some errors show, have the group before the resource."""

    def key_prefix(self, resource: Resource) -> str:
        """The part of etcd's keys that is common to the objects of a resource."""
        plural = resource.plural
        if self.keys_by_group:
            return f"{resource.group}/{plural}"
        return _ODD_PREFIXES.get(plural, plural)


_ODD_PREFIXES: Final = {"services": "services/specs"}

BUILTIN: Final = Dialect(
    body_types=(JSON, YAML, PROTOBUF),
    told_types=(JSON, YAML, PROTOBUF),
    patch_types=(JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH),
    names_optional=True,
    duplicates_first=False,
    generic_errors=True,
    type_meta=("kind", "apiVersion"),
    named_items=False,
    always_continues=False,
    abbreviates_kinds=True,
    keys_by_group=False,
)
"""The kinds that the API has of itself."""

CUSTOM: Final = Dialect(
    body_types=(JSON, YAML),
    told_types=(JSON, YAML, PROTOBUF),
    patch_types=(JSON_PATCH, MERGE_PATCH, APPLY_PATCH),
    names_optional=False,
    duplicates_first=True,
    generic_errors=False,
    type_meta=("apiVersion", "kind"),
    named_items=True,
    always_continues=True,
    abbreviates_kinds=False,
    keys_by_group=True,
)
"""The kinds of CustomResourceDefinitions."""
