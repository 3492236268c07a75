"""Which old value belongs to a new one, and whether it is unchanged: the base of ratcheting.

Members of objects correlate by name, items of list-maps by their keys; items of other lists do not
correlate, such a list counts as a whole. Follows apiserver's `CorrelatedObject`, with its
peculiarity that a member without a schema (in metadata, or preserved unknown fields) makes its object
count as changed.
"""

from typing import Any

from kthena.machinery.objects import equal_json
from kthena.machinery.schema.structural import StructuralSchema


class Correlated:
    """A new value with the old one at the same place. Both must stay as they are meanwhile."""

    __slots__ = ("_children", "_old_items", "_unchanged", "new", "old", "schema")

    def __init__(self, new: Any, old: Any, schema: StructuralSchema) -> None:
        self.new = new
        self.old = old
        self.schema = schema
        self._children: dict[str | int, Correlated | None] = {}
        self._old_items: ListMap | None = None
        self._unchanged: bool | None = None

    def key(self, name: str) -> "Correlated | None":
        """The member of that name, where both objects have it and the schema knows it."""
        if name not in self._children:
            self._children[name] = self._find_key(name)
        return self._children[name]

    def index(self, index: int) -> "Correlated | None":
        """The item at that index of the new list-map, where the old one has the same keys."""
        if index not in self._children:
            self._children[index] = self._find_index(index)
        return self._children[index]

    def unchanged(self) -> bool:
        """Whether the new value equals the old one; in list-maps the order does not count."""
        if self._unchanged is None:
            self._unchanged = self._compare()
        return self._unchanged

    def _find_key(self, name: str) -> "Correlated | None":
        if type(self.new) is not dict or type(self.old) is not dict:
            return None
        schema = self.schema.child(name)
        if schema is None or name not in self.new or name not in self.old:
            return None
        return Correlated(self.new[name], self.old[name], schema)

    def _find_index(self, index: int) -> "Correlated | None":
        if not self._is_list_map() or self.schema.items is None:
            return None
        if self._old_items is None:
            self._old_items = ListMap(self.schema, self.old)
        item = self.new[index]
        old = self._old_items.find(item)
        return None if old is None else Correlated(item, old, self.schema.items)

    def _is_list_map(self) -> bool:
        return self.schema.list_type == "map" and type(self.new) is list and type(self.old) is list

    def _compare(self) -> bool:
        new, old = self.new, self.old
        if type(new) is not type(old):
            return False
        if type(new) is dict:
            return len(new) == len(old) and all(
                child is not None and child.unchanged() for child in map(self.key, new)
            )
        if type(new) is list and self._is_list_map():
            return len(new) == len(old) and all(
                child is not None and child.unchanged()
                for child in map(self.index, range(len(new)))
            )
        return equal_json(new, old)


class ListMap:
    """The items of a list-map, found by the keys of another item."""

    __slots__ = ("_by_key", "_keys")

    def __init__(self, schema: StructuralSchema, items: Any) -> None:
        self._keys: tuple[str, ...] = schema.list_map_keys if schema.list_type == "map" else ()
        self._by_key: dict[Any, Any] = {}
        if self._keys and type(items) is list:
            for item in items:
                key = self._key_of(item)
                if key is not None:
                    self._by_key.setdefault(key, item)

    def find(self, item: Any) -> Any:
        """The first item with the same keys, or None."""
        if not self._by_key:
            return None
        key = self._key_of(item)
        return None if key is None else self._by_key.get(key)

    def _key_of(self, item: Any) -> tuple[Any, ...] | None:
        """Values with their types, since 1, 1.0 and true are different keys; None if one lacks."""
        if type(item) is not dict:
            return None
        key: list[Any] = []
        for name in self._keys:
            value = item.get(name)
            if not isinstance(value, (str, bool, int, float)):
                return None
            key += (type(value), value)
        return tuple(key)
