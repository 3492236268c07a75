"""An indexed store of raw objects: what an informer knows of the server.

Copy discipline: objects are shared, never copied. Readers must not change them, nor anything inside
them; whoever needs a changed object builds a new one. Only the informer writes, and it replaces
whole objects, so what a reader holds stays as it was. All of it runs on one event loop: there are
no locks, and a reader sees a consistent state until its next `await`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from kthena.machinery.objects import NamespacedName, Object, key_of

IndexFunction: TypeAlias = Callable[[Object], Iterable[str]]
"""The values under which an object is found. Pure: equal objects give equal values."""

Objects: TypeAlias = list[Object]
"""A list of objects, the list being the caller's own."""


class Store:
    """Objects of one resource by namespace and name, and by the values of named indexes.

    Reading and writing one object costs the same however many there are.

    Mutable state: the objects by namespace, then name; and for each index the keys of each value
    with the values of each key.
    """

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, Object]] = {}
        self._size = 0
        self._indexes: dict[str, _Index] = {}

    def add_index(self, name: str, function: IndexFunction) -> None:
        """Keep an index from now on; objects that are there already are entered.

        Raises:
            ValueError: there is an index of this name.
        """
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists")
        index = _Index(function)
        for obj in self:
            index.put(key_of(obj), obj)
        self._indexes[name] = index

    def get(self, key: NamespacedName) -> Object | None:
        """The object, or None."""
        return self._objects.get(key.namespace, {}).get(key.name)

    def list(self, namespace: str = "") -> Objects:
        """The objects of a namespace (of all, for an empty name), in no order."""
        return list(self._objects.get(namespace, {}).values()) if namespace else list(self)

    def by_index(self, name: str, value: str) -> Objects:
        """The objects with this value in the named index, in no order.

        Raises:
            KeyError: there is no such index.
        """
        keys = self._indexes[name].keys_by_value.get(value, ())
        return [self._objects[key.namespace][key.name] for key in keys]

    def __len__(self) -> int:
        return self._size

    def __contains__(self, key: object) -> bool:
        return isinstance(key, NamespacedName) and self.get(key) is not None

    def __iter__(self) -> Iterator[Object]:
        for objects in self._objects.values():
            yield from objects.values()

    def put(self, obj: Object) -> Object | None:
        """Enter or replace the object; the one that was there before, if any. For informers only."""
        key = key_of(obj)
        objects = self._objects.setdefault(key.namespace, {})
        old = objects.get(key.name)
        objects[key.name] = obj
        self._size += old is None
        for index in self._indexes.values():
            index.put(key, obj)
        return old

    def remove(self, key: NamespacedName) -> Object | None:
        """Remove the object; what was there, if anything. For informers only."""
        objects = self._objects.get(key.namespace, {})
        old = objects.pop(key.name, None)
        if old is None:
            return None
        if not objects:
            del self._objects[key.namespace]
        self._size -= 1
        for index in self._indexes.values():
            index.remove(key)
        return old


class _Index:
    """Keys by value. The values of a key are remembered, so that they can be taken back."""

    def __init__(self, function: IndexFunction) -> None:
        self._function = function
        self._values: dict[NamespacedName, tuple[str, ...]] = {}
        self.keys_by_value: dict[str, dict[NamespacedName, None]] = {}

    def put(self, key: NamespacedName, obj: Object) -> None:
        values = tuple(dict.fromkeys(self._function(obj)))
        if self._values.get(key, ()) == values:
            return
        self.remove(key)
        for value in values:
            self.keys_by_value.setdefault(value, {})[key] = None
        if values:
            self._values[key] = values

    def remove(self, key: NamespacedName) -> None:
        for value in self._values.pop(key, ()):
            keys = self.keys_by_value[value]
            del keys[key]
            if not keys:
                del self.keys_by_value[value]
