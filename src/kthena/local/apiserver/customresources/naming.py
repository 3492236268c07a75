"""Which names of a CustomResourceDefinition are accepted: those that no other resource holds.

As kube-apiserver's naming controller: each name is looked at on its own, an accepted one is kept, and
the condition tells the last conflict.
"""

from collections.abc import Set as AbstractSet
from typing import NamedTuple

from kthena.machinery.gotext import quote
from kthena.machinery.objects import Object


class Naming(NamedTuple):
    """The names that a CRD holds, and the conflict that keeps it from holding all it asks for."""

    accepted: Object
    reason: str = ""
    message: str = ""


def accept_names(
    wanted: Object, held: Object, resources: AbstractSet[str], kinds: AbstractSet[str]
) -> Naming:
    """Decide on the names of a CRD.

    Args:
        wanted: the names in its spec.
        held: the names in its status.
        resources: plurals, singulars and short names that others of the group hold.
        kinds: kinds and list kinds that others of the group hold.
    """
    accepted = dict(held)
    reason = message = ""
    for name, taken in (
        ("plural", resources),
        ("singular", resources),
        ("shortNames", resources),
        ("kind", kinds),
        ("listKind", kinds),
    ):
        value = wanted.get(name)
        conflicts = _conflicts(value, held.get(name), taken)
        if conflicts:
            reason = f"{name[0].upper()}{name[1:]}Conflict"
            message = conflicts[0] if len(conflicts) == 1 else f"[{', '.join(conflicts)}]"
        elif value:
            accepted[name] = value
    accepted.pop("categories", None)
    if wanted.get("categories"):
        accepted["categories"] = wanted["categories"]
    return Naming(accepted, reason, message)


def _conflicts(
    value: str | list[str] | None, held: str | list[str] | None, taken: AbstractSet[str]
) -> list[str]:
    wanted = value if isinstance(value, list) else [value or ""]
    own = held if isinstance(held, list) else [held or ""]
    return [
        f"{quote(name)} is already in use" for name in wanted if name in taken and name not in own
    ]
