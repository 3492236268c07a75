"""What most kinds have in common when they are written: the base of all strategies."""

from collections.abc import Sequence
from typing import Final

from kthena.local.apiserver.admission import bump_generation, copy_fields
from kthena.machinery.fields import ErrorList
from kthena.machinery.managedfields.fieldsets import EMPTY, FieldSet, field, of_path, union
from kthena.machinery.objects import Object

STATUS_FIELD: Final = of_path([field("status")])
SPEC_FIELD: Final = of_path([field("spec")])


def metadata_field(name: str) -> FieldSet:
    """A field of the metadata."""
    return of_path([field("metadata"), field(name)])


class PlainStrategy:
    """Takes objects as they are. Kinds override what is special about them."""

    allow_create_on_update = False
    allow_unconditional_update = True
    checks_metadata = False
    repeats_changes = True
    repeats_metadata = False
    reset_fields: FieldSet = EMPTY

    def prepare_create(self, obj: Object) -> None:
        """Nothing to prepare."""

    def validate_create(self, obj: Object) -> ErrorList:
        """Nothing to refuse."""
        del obj
        return []

    def prepare_update(self, new: Object, old: Object) -> None:
        """Nothing to prepare."""

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """What a new object would have wrong."""
        del old
        return self.validate_create(new)

    def warnings(self, new: Object, old: Object | None) -> Sequence[str]:
        """None."""
        del new, old
        return ()


class SpecStrategy(PlainStrategy):
    """Objects with a spec that users write and a status that only the subresource changes."""

    reset_fields = STATUS_FIELD
    counts_generation = True
    """Whether a change of the spec counts as a generation."""

    def prepare_create(self, obj: Object) -> None:
        """Drop the status; the first generation."""
        obj["status"] = {}
        if self.counts_generation:
            obj["metadata"]["generation"] = 1

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status; count a change of the spec."""
        copy_fields(new, old, ("status",))
        if self.counts_generation and new.get("spec") != old.get("spec"):
            bump_generation(new)


class StatusStrategy(PlainStrategy):
    """The status subresource: everything but the status and a part of the metadata stays."""

    def __init__(self, kept_metadata: tuple[str, ...] = ()) -> None:
        self._kept_metadata = kept_metadata
        self.reset_fields = SPEC_FIELD
        for name in kept_metadata:
            self.reset_fields = union(self.reset_fields, metadata_field(name))

    def prepare_update(self, new: Object, old: Object) -> None:
        """Take only the status, and the metadata that the kind lets this subresource change."""
        status = new.get("status")
        copy_fields(new["metadata"], old["metadata"], self._kept_metadata)
        for name in set(new) - {"metadata", "status"}:
            del new[name]
        copy_fields(new, old, (name for name in old if name not in ("metadata", "status")))
        if status is not None:
            new["status"] = status

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """A status is taken as it is."""
        del new, old
        return []
