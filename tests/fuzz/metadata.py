"""Values of the metadata of objects: what may be written there, and what may not."""

from random import Random
from typing import Any, Final

from fuzz.kinds import Field, FuzzKind

HOLD: Final = "test.kthena.io/hold"
NO_UID: Final = "11111111-1111-4111-8111-111111111111"

USUAL: Final = (
    Field("metadata/labels/app", ["a", "b", ""], ["a b", 5, None]),
    Field("metadata/labels/tier", ["x", "y"], ["-x", {}]),
    Field("metadata/annotations/note", ["one", "two", ""], [5]),
)
RARE: Final = (
    Field("metadata/finalizers", [[HOLD], []], [["bad finalizer"], ["unqualified"], "x"]),
    Field("metadata/labels", [{"app": "a"}], [{"a b": "c"}, {"a/b/c": "d"}, [], "x"]),
    Field("metadata/annotations", [{"a/b": "c"}], [{"a b": "c"}, {"k": None}, 5]),
    Field("metadata/generation", [7], ["x"]),
    Field("metadata/creationTimestamp", ["2020-01-01T00:00:00Z", None], ["x"]),
    Field("metadata/deletionTimestamp", ["2020-01-01T00:00:00Z"], [5]),
    Field("metadata/deletionGracePeriodSeconds", [5], ["x"]),
    Field("metadata/uid", [], [NO_UID, 5]),
    Field("metadata/bogus", [], [1]),
    Field("bogus", [], [{"x": 1}]),
    Field("metadata/namespace", [], ["elsewhere", 5]),
    Field("metadata/name", [], ["other", "Bad_Name", 5]),
    Field("kind", [], ["Bogus", 5]),
    Field("apiVersion", [], ["v9", "a/b/c", 5]),
    Field("metadata/resourceVersion", ["0"], ["x", "1", "99999999999"]),
)


def owner_of(kind: FuzzKind, path: str, name: str, random: Random) -> dict[str, Any]:
    """A reference to an object, which may be there or not."""
    reference: dict[str, Any] = {
        "apiVersion": kind.version,
        "kind": kind.kind,
        "name": name,
        "uid": f"${{last|{path}|metadata.uid}}",
    }
    if random.random() < 0.15:
        reference["uid"] = NO_UID
    if random.random() < 0.05:
        reference["kind"] = "Unknown"
    if random.random() < 0.05:
        reference |= {"name": ""}
    if random.random() < 0.4:
        reference["blockOwnerDeletion"] = random.random() < 0.8
    if random.random() < 0.3:
        reference["controller"] = True
    return reference
