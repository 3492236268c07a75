"""Revisions of a ModelServing: what its groups are made from, as ControllerRevisions keep it.

Two revisions are the same when their roles are, compared by name in canonical form; the name of a
revision is never recomputed to find that out. So a revision that Kthena wrote, whose name is a hash
of Go structs, stays the revision of its groups, and so does one whose roles are in another order.
The data of a ControllerRevision is never changed once written.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from kthena.api.kubernetes import CONTROLLER_REVISIONS
from kthena.api.workload.modelserving import Role
from kthena.api.workload.names import LABEL_NAME, LABEL_REVISION
from kthena.machinery.objects import Object, annotations_of, labels_of, name_of, namespace_of
from kthena.workload.canonical import canonical_role, short_hash
from kthena.workload.identity import owner_reference, revision_object_name
from kthena.workload.records import ANNOTATION_SLOTS, SlotRecord


@dataclass(frozen=True, slots=True)
class RoleTemplate:
    """One role of one revision."""

    name: str
    replicas: int
    """As it was when the revision was written; the live spec decides where it has the role."""
    worker_replicas: int
    entry_template: Mapping[str, Any]
    worker_template: Mapping[str, Any] | None
    form: str
    """The canonical form: equal forms make equal pods."""

    @property
    def size(self) -> int:
        """Pods of one instance."""
        return 1 + self.worker_replicas

    @property
    def has_service(self) -> bool:
        """Whether instances have a headless service: with a worker template, as in Kthena."""
        return self.worker_template is not None


@dataclass(frozen=True, slots=True)
class Revision:
    """The roles that groups of one revision are made from."""

    name: str
    """The value of the revision label on its pods."""
    roles: Mapping[str, RoleTemplate]
    stored: Object | None = None
    """Its ControllerRevision; None for a revision that is not written yet."""
    record: SlotRecord | None = None

    def is_same(self, other: "Revision") -> bool:
        """Whether both make the same pods."""
        return _forms(self.roles) == _forms(other.roles)

    @property
    def number(self) -> int:
        """The position in history that its ControllerRevision carries."""
        return int((self.stored or {}).get("revision") or 0)


def read_roles(roles: Any) -> dict[str, RoleTemplate] | None:
    """The roles of a list as it stands in a spec or a ControllerRevision; None if it is no such.

    Order is kept: it is the order of the list.
    """
    if not isinstance(roles, list) or not roles:
        return None
    result: dict[str, RoleTemplate] = {}
    for raw in roles:
        try:
            role = msgspec.convert(raw, Role)
        except msgspec.ValidationError:
            return None
        result[role.name] = _template(role, raw)
    return result


def read_revision(stored: Object, *, modelserving: str) -> Revision | None:
    """The revision that a ControllerRevision holds; None where its data cannot be read.

    The data is `{"data": [roles]}`, or the bare list.
    """
    data = stored.get("data")
    roles = read_roles(data.get("data") if isinstance(data, dict) else data)
    if roles is None:
        return None
    prefix = revision_object_name(modelserving, "")
    name = labels_of(stored).get(LABEL_REVISION) or name_of(stored).removeprefix(prefix)
    record = SlotRecord.parse(annotations_of(stored).get(ANNOTATION_SLOTS))
    return Revision(name, roles, stored, record)


def find_revision(
    roles: Mapping[str, RoleTemplate], known: Iterable[Revision], *, preferred: str
) -> Revision | None:
    """The known revision with the same roles: the preferred name first, else the newest."""
    wanted = Revision("", roles)
    same = [revision for revision in known if revision.is_same(wanted)]
    return max(
        same, key=lambda found: (found.name == preferred, found.number, found.name), default=None
    )


def name_revision(
    roles: Mapping[str, RoleTemplate], modelserving: str, taken: Sequence[Object]
) -> str:
    """A name for a new revision; ControllerRevisions of other content keep theirs."""
    names = {name_of(stored) for stored in taken}
    forms = "\n".join(_forms(roles))
    collisions = 0
    while True:
        name = short_hash(f"{collisions}\n{forms}" if collisions else forms)
        if revision_object_name(modelserving, name) not in names:
            return name
        collisions += 1


def build_revision(
    modelserving: Object, revision: Revision, *, number: int, record: SlotRecord
) -> Object:
    """The ControllerRevision of the ModelServing's live roles, as Kthena lays it out."""
    owner = name_of(modelserving)
    return {
        "apiVersion": CONTROLLER_REVISIONS.api_version,
        "kind": CONTROLLER_REVISIONS.kind,
        "metadata": {
            "name": revision_object_name(owner, revision.name),
            "namespace": namespace_of(modelserving),
            "labels": {LABEL_NAME: owner, LABEL_REVISION: revision.name},
            "annotations": {ANNOTATION_SLOTS: record.format()},
            "ownerReferences": [owner_reference(modelserving)],
        },
        "data": {"data": modelserving["spec"]["template"]["roles"]},
        "revision": number,
    }


def role_hash(role: RoleTemplate) -> str:
    """The value of the role-template-hash label for pods that this controller makes."""
    return short_hash(role.form)


def _template(role: Role, raw: Mapping[str, Any]) -> RoleTemplate:
    return RoleTemplate(
        name=role.name,
        replicas=max(role.replicas, 0),
        worker_replicas=max(role.worker_replicas, 0),
        entry_template=role.entry_template,
        worker_template=role.worker_template,
        form=canonical_role(raw),
    )


def _forms(roles: Mapping[str, RoleTemplate]) -> list[str]:
    return sorted(role.form for role in roles.values())
