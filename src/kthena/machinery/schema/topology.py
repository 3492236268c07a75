"""How the values of a schema are put together: what merging two objects needs to know.

A protocol that the structural schemas of CRDs and the OpenAPI schemas of built-in kinds both fulfil,
so that whoever merges objects learns the keys of a list in one way.
"""

from collections.abc import Mapping
from typing import Any, Protocol


class Topology(Protocol):
    """One node of a schema. Keywords that it does not have are None or empty."""

    @property
    def type(self) -> str:
        """The JSON type of the values."""
        ...

    @property
    def properties(self) -> Mapping[str, "Topology"]:
        """The members that are named; a map of arbitrary keys has none."""
        ...

    @property
    def items(self) -> "Topology | None":
        """The entries of a list."""
        ...

    @property
    def additional_properties(self) -> "Topology | bool | None":
        """The members that are not named: their schema, whether there may be any, or nothing said."""
        ...

    @property
    def format(self) -> str:
        """The format of a text or a number."""
        ...

    @property
    def default(self) -> Any:
        """The value of an absent member; `structural.UNSET` where there is none."""
        ...

    @property
    def whole(self) -> bool:
        """Whether server-side apply takes the value as one, whatever it is made of."""
        ...

    @property
    def preserve_unknown(self) -> bool:
        """Whether members that the schema does not name are kept, here and below."""
        ...

    @property
    def embedded_resource(self) -> bool:
        """Whether the value is an object of the API, of a kind that it says itself."""
        ...

    @property
    def list_type(self) -> str | None:
        """How server-side apply merges the list: `atomic`, `set` or `map`."""
        ...

    @property
    def list_map_keys(self) -> tuple[str, ...]:
        """The members that tell the entries of a list-map apart."""
        ...

    @property
    def map_type(self) -> str | None:
        """How server-side apply merges the object: `granular` or `atomic`."""
        ...

    @property
    def patch_strategy(self) -> str:
        """How a strategic merge patch merges the value; custom resources take no such patch."""
        ...

    @property
    def patch_merge_key(self) -> str:
        """The member by which a strategic merge patch finds the entries of the list."""
        ...

    def child(self, name: str) -> "Topology | None":
        """The schema of a member: a property, else the one for additional properties."""
        ...
