"""OpenAPI v3 schemas with references, as the API server publishes them for its own kinds.

A view, made as far as it is looked at: references and `allOf` with one part are followed on the way,
so recursive schemas are no matter. Nothing is validated.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final

from kthena.machinery.schema.structural import UNSET

Resolve = Callable[[str], Mapping[str, Any]]
"""Gives the schema that a `$ref` names."""

COMPONENT_PREFIX: Final = "#/components/schemas/"

_WHOLE: Final = (
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.runtime.RawExtension",
)
"""Components that say nothing of how they merge; kube-openapi knows them by name."""


class OpenApiSchema:
    """One node, seen through its references; a `Topology`.

    What stands beside a reference counts before what is behind it.
    """

    def __init__(self, node: Mapping[str, Any], resolve: Resolve) -> None:
        self._given = node
        self._resolve = resolve

    @classmethod
    def of_component(cls, name: str, resolve: Resolve) -> "OpenApiSchema":
        """The view of a component; it is looked for when it is first used."""
        return cls({"$ref": COMPONENT_PREFIX + name}, resolve)

    preserve_unknown = False
    embedded_resource = False

    @cached_property
    def _resolved(self) -> tuple[Mapping[str, Any], str]:
        """The node behind the references, and the name of the last one."""
        node, name = self._given, ""
        while True:
            parts: list[Any] = node.get("allOf") or []
            if len(parts) == 1:
                node = parts[0]
            elif "$ref" in node:
                name = node["$ref"].removeprefix(COMPONENT_PREFIX)
                node = self._resolve(node["$ref"])
            else:
                return node, name

    @property
    def _node(self) -> Mapping[str, Any]:
        return self._resolved[0]

    def _keyword(self, name: str) -> Any:
        return self._given.get(name) or self._node.get(name)

    def _text(self, name: str) -> str | None:
        value = self._keyword(name)
        return None if value is None else str(value)

    def _nested(self, keyword: str) -> "OpenApiSchema | None":
        nested = self._node.get(keyword)
        return OpenApiSchema(nested, self._resolve) if isinstance(nested, Mapping) else None

    @property
    def type(self) -> str:
        """The JSON type of the values."""
        return str(self._node.get("type") or "")

    @cached_property
    def properties(self) -> Mapping[str, "OpenApiSchema"]:
        """The members that are named."""
        named = self._node.get("properties") or {}
        return {name: OpenApiSchema(node, self._resolve) for name, node in named.items()}

    @cached_property
    def items(self) -> "OpenApiSchema | None":
        """The entries of a list."""
        return self._nested("items")

    @cached_property
    def additional_schema(self) -> "OpenApiSchema | None":
        """The values of a map."""
        return self._nested("additionalProperties")

    @property
    def additional_properties(self) -> "OpenApiSchema | bool | None":
        """The members that are not named."""
        given = self._node.get("additionalProperties")
        return given if isinstance(given, bool) else self.additional_schema

    @property
    def format(self) -> str:
        """The format of a text or a number."""
        return str(self._node.get("format") or "")

    @property
    def default(self) -> Any:
        """The value of an absent member."""
        return self._given.get("default", UNSET)

    @property
    def whole(self) -> bool:
        """Whether server-side apply takes the value as one."""
        return self._resolved[1] in _WHOLE

    @property
    def list_type(self) -> str | None:
        """How the list merges."""
        return self._text("x-kubernetes-list-type")

    @property
    def list_map_keys(self) -> tuple[str, ...]:
        """The keys of a list-map."""
        return tuple(self._keyword("x-kubernetes-list-map-keys") or ())

    @property
    def map_type(self) -> str | None:
        """How the object merges."""
        return self._text("x-kubernetes-map-type")

    @property
    def patch_strategy(self) -> str:
        """How a strategic merge patch merges the value."""
        return str(self._given.get("x-kubernetes-patch-strategy") or "")

    @property
    def patch_merge_key(self) -> str:
        """The key of a list in a strategic merge patch."""
        return str(self._given.get("x-kubernetes-patch-merge-key") or "")

    def child(self, name: str) -> "OpenApiSchema | None":
        """The schema of a member: a property, else the one for additional properties."""
        return self.properties.get(name) or self.additional_schema
