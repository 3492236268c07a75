import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kthena.kube.store import Store
from kthena.machinery.objects import NamespacedName, Object

NAMES = st.sampled_from(["a", "b", "c", "d"])
NAMESPACES = st.sampled_from(["", "n1", "n2"])
LABELS = st.lists(st.sampled_from(["x", "y", "z"]), max_size=3)


def make(namespace: str, name: str, labels: list[str]) -> Object:
    return {"metadata": {"namespace": namespace, "name": name}, "labels": labels}


def labels_of(obj: Object) -> list[str]:
    labels: list[str] = obj["labels"]
    return labels


class StoreMachine(RuleBasedStateMachine):
    """The store against a plain dict; a second index is added at any time."""

    @initialize()
    def create(self) -> None:
        self.store = Store()
        self.store.add_index("label", labels_of)
        self.model: dict[NamespacedName, Object] = {}
        self.indexes = {"label"}

    @rule(namespace=NAMESPACES, name=NAMES, labels=LABELS)
    def put(self, namespace: str, name: str, labels: list[str]) -> None:
        obj = make(namespace, name, labels)
        key = NamespacedName(namespace, name)
        assert self.store.put(obj) is self.model.get(key)
        self.model[key] = obj

    @rule(namespace=NAMESPACES, name=NAMES)
    def remove(self, namespace: str, name: str) -> None:
        key = NamespacedName(namespace, name)
        assert self.store.remove(key) is self.model.pop(key, None)

    @rule()
    def add_index_late(self) -> None:
        name = f"label{len(self.indexes)}"
        self.store.add_index(name, labels_of)
        self.indexes.add(name)

    @invariant()
    def agrees(self) -> None:
        def names(objects: list[Object]) -> list[tuple[str, str]]:
            return sorted((o["metadata"]["namespace"], o["metadata"]["name"]) for o in objects)

        model = list(self.model.values())
        assert names(self.store.list()) == names(model)
        assert len(self.store) == len(model)
        for namespace in ("n1", "n2"):
            expected = [o for o in model if o["metadata"]["namespace"] == namespace]
            assert names(self.store.list(namespace)) == names(expected)
        for key in self.model:
            assert self.store.get(key) is self.model[key]
            assert key in self.store
        for index in self.indexes:
            for value in ("x", "y", "z", "absent"):
                expected = [o for o in model if value in o["labels"]]
                assert names(self.store.by_index(index, value)) == names(expected)


TestStoreAgainstModel = StoreMachine.TestCase


def test_an_index_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        Store().by_index("nope", "x")


def test_an_index_is_added_once() -> None:
    store = Store()
    store.add_index("label", labels_of)

    with pytest.raises(ValueError, match="index 'label' exists"):
        store.add_index("label", labels_of)


def test_nothing_remains_of_removed_objects() -> None:
    store = Store()
    store.add_index("label", labels_of)
    for name in "abc":
        store.put(make("n", name, ["x", "y"]))
    for name in "abc":
        store.remove(NamespacedName("n", name))

    assert not store._objects
    assert not store._indexes["label"].keys_by_value
    assert not store._indexes["label"]._values
