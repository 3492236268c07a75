"""Custom resources: which JSON is one, and what may be written.

The schema does the work (`machinery.schema.custom`); here are the steps around it that are those of
apiextensions: metadata, generation, and what the status subresource keeps.
"""

from typing import Any

from kthena.local.apiserver.admission import bump_generation, copy_fields
from kthena.local.apiserver.codec import Decoded
from kthena.local.apiserver.errors import wrong_type
from kthena.local.apiserver.gotypes import decoder_for
from kthena.local.apiserver.strategies import SPEC_FIELD, STATUS_FIELD, PlainStrategy
from kthena.machinery.fields import ErrorList
from kthena.machinery.managedfields.fieldsets import EMPTY
from kthena.machinery.metadata import validate_object_meta, validate_object_meta_update
from kthena.machinery.objects import Object, copy_json, equal_json, name_of
from kthena.machinery.resources import Resource
from kthena.machinery.schema.custom import CustomResourceSchema
from kthena.machinery.schema.defaulting import apply_defaults, drop_nulls
from kthena.machinery.schema.embedded import coerce_embedded
from kthena.machinery.schema.pruning import prune

_NOT_STORED = ("apiVersion", "kind", "metadata")


class CustomResourceCodec:
    """Decodes objects of one version of a custom resource."""

    def __init__(self, schema: CustomResourceSchema) -> None:
        self._schema = schema.schema

    def decode(self, value: Any, *, converts: bool = False) -> Decoded:
        """The object, pruned and defaulted, with its metadata in normal form.

        With `converts` it is the result of an apply: nothing is dropped from it, no null either.
        """
        metadata = decoder_for("meta.v1.ObjectMeta", "ObjectMeta").decode(value.get("metadata"))
        obj = {name: entry for name, entry in value.items() if name not in _NOT_STORED}
        problems = [text.replace('"', '"metadata.', 1) for text in metadata.problems]
        if converts:
            apply_defaults(obj, self._schema)
        else:
            problems += [f'unknown field "{path}"' for path in self._normalize(obj)]
        obj["metadata"] = metadata.obj
        return Decoded(obj, problems)

    def empty(self) -> Object:
        """Nothing at all."""
        return {}

    def refresh(self, obj: Object) -> Object:
        """A stored object as this version has it: its schema may have changed since."""
        self._normalize(obj)
        return obj

    def _normalize(self, obj: Object) -> list[str]:
        pruned = prune(obj, self._schema)
        drop_nulls(obj, self._schema)
        pruned += coerce_embedded(obj, self._schema)
        apply_defaults(obj, self._schema)
        return pruned


class CustomResourceStrategy(PlainStrategy):
    """Writes of a custom resource, apart from its subresources."""

    allow_unconditional_update = False
    checks_metadata = True

    def __init__(
        self, resource: Resource, schema: CustomResourceSchema, *, has_status: bool
    ) -> None:
        self._resource = resource
        self._names = {"apiVersion": resource.api_version, "kind": resource.kind}
        self._schema = schema
        self._has_status = has_status
        self.reset_fields = STATUS_FIELD if has_status else EMPTY

    def prepare_create(self, obj: Object) -> None:
        """Drop the status where it is a subresource; the first generation."""
        if self._has_status:
            obj.pop("status", None)
        obj["metadata"]["generation"] = 1

    def validate_create(self, obj: Object) -> ErrorList:
        """What the metadata, the schema and its rules have against it.

        Raises:
            ApiError: 422, it calls itself something else.
        """
        self._check_names(obj)
        found = validate_object_meta(obj, self._resource)
        return self._schema.admit_create(self._full(obj), found, is_read=True).errors

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status where it is a subresource; count any other change outside metadata."""
        if self._has_status:
            copy_fields(new, old, ("status",))
        if not equal_json(_without_metadata(new), _without_metadata(old)):
            # A number that is written 2.0 is a change, although it is stored as 2.
            bump_generation(new)

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """What the schema and its rules say; what was wrong before and is unchanged may stay.

        Raises:
            ApiError: 422, it calls itself something else.
        """
        self._check_names(new)
        full = self._full(new)
        found = validate_object_meta_update(full, old)
        return self._schema.admit_update(full, self._full(old), found, is_read=True).errors

    def _check_names(self, obj: Object) -> None:
        """Whether it calls itself what it is: only an object that does not has names of its own."""
        if "kind" in obj:
            raise wrong_type(self._resource, obj, name_of(obj))

    def _full(self, obj: Object) -> Object:
        return {**obj, **self._names}


class CustomResourceStatusStrategy(CustomResourceStrategy):
    """The status subresource of a custom resource: only the status changes."""

    def __init__(self, resource: Resource, schema: CustomResourceSchema) -> None:
        super().__init__(resource, schema, has_status=True)
        self.reset_fields = SPEC_FIELD

    def prepare_update(self, new: Object, old: Object) -> None:
        """Take the status and nothing else."""
        status, metadata = new.get("status"), new["metadata"]
        new.clear()
        new.update(copy_json(old))
        copy_fields(new["metadata"], metadata, ("resourceVersion", "managedFields"))
        new.pop("status", None)
        if status is not None:
            new["status"] = status

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """What the schema of the status, and all rules say."""
        full = self._full(new)
        found = validate_object_meta_update(full, old)
        return self._schema.admit_status_update(full, self._full(old), found, is_read=True).errors


def _without_metadata(obj: Object) -> Object:
    return {name: value for name, value in obj.items() if name != "metadata"}
