"""Writes of CustomResourceDefinitions: defaults, what is fixed, and how they are deleted."""

from datetime import datetime
from typing import Final

from kthena.local.apiserver.admission import bump_generation, copy_fields
from kthena.local.apiserver.builtins.fielderrors import IMMUTABLE, invalid
from kthena.local.apiserver.customresources.checks import SchemaCheck, check_definition
from kthena.local.apiserver.kinds import Step
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.strategies import (
    SPEC_FIELD,
    STATUS_FIELD,
    PlainStrategy,
    StatusStrategy,
)
from kthena.machinery.conditions import TRUE, Condition, format_time, is_true, set_condition
from kthena.machinery.fields import ErrorList
from kthena.machinery.managedfields.fieldsets import field, of_path, union
from kthena.machinery.objects import Object, is_terminating, name_of

FINALIZER: Final = "customresourcecleanup.apiextensions.k8s.io"


def default_definition(obj: Object) -> None:
    """Set what a CRD leaves open: names that follow from others, and no conversion."""
    names = obj["spec"]["names"]
    if not names.get("singular"):
        names["singular"] = names["kind"].lower()
    if not names.get("listKind") and names["kind"]:
        names["listKind"] = f"{names['kind']}List"
    obj["spec"].setdefault("conversion", {"strategy": "None"})


def storage_version(crd: Object) -> str:
    """The version in which objects are stored."""
    return next((v["name"] for v in crd["spec"]["versions"] or () if v["storage"]), "")


class DefinitionStrategy(PlainStrategy):
    """Writes of CRDs; `check_schema` judges the schemas."""

    reset_fields = STATUS_FIELD

    allow_unconditional_update = False

    def __init__(self, check_schema: SchemaCheck) -> None:
        self._check_schema = check_schema

    def prepare_create(self, obj: Object) -> None:
        """The status that a CRD starts with: no names accepted, one version stored."""
        obj["metadata"]["generation"] = 1
        obj["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": [version] if (version := storage_version(obj)) else None,
        }

    def validate_create(self, obj: Object) -> ErrorList:
        """The rules of CRDs."""
        spec = obj["spec"]
        errors: ErrorList = []
        if name_of(obj) != f"{spec['names']['plural']}.{spec['group']}":
            detail = 'must be spec.names.plural+"."+spec.group'
            errors.append(invalid("metadata.name", name_of(obj), detail))
        return errors + check_definition(obj, self._check_schema)

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status, but for the version that is stored from here on."""
        copy_fields(new, old, ("status",))
        if new["spec"] != old["spec"]:
            bump_generation(new)
        version = storage_version(new)
        stored = new["status"].get("storedVersions") or []
        if version and version not in stored:
            new["status"] = {**new["status"], "storedVersions": [*stored, version]}

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The rules of CRDs; what objects are stored by is fixed."""
        errors = check_definition(new, self._check_schema)
        after, before = new["spec"], old["spec"]
        if is_true(old["status"].get("conditions") or (), "Established"):
            if after["scope"] != before["scope"]:
                errors.append(invalid("spec.scope", after["scope"], IMMUTABLE))
            if after["names"]["kind"] != before["names"]["kind"]:
                errors.append(invalid("spec.names.kind", after["names"]["kind"], IMMUTABLE))
        if after["group"] != before["group"]:
            errors.append(invalid("spec.group", after["group"], IMMUTABLE))
        if after["names"]["plural"] != before["names"]["plural"]:
            errors.append(invalid("spec.names.plural", after["names"]["plural"], IMMUTABLE))
        return errors


class DefinitionStatusStrategy(StatusStrategy):
    """The status subresource of CRDs: for their controller, and the list of stored versions."""

    allow_unconditional_update = False

    def __init__(self) -> None:
        super().__init__()
        self.reset_fields = union(SPEC_FIELD, of_path([field("metadata")]))


def plan_definition_deletion(obj: Object, options: DeleteOptions, now: datetime) -> Step:
    """A CRD stays until its objects are gone; then its controller takes the finalizer off."""
    del options
    meta = obj["metadata"]
    if is_terminating(obj):
        return Step.NOTHING if meta.get("finalizers") else Step.REMOVE
    meta["deletionTimestamp"] = format_time(now)
    finalizers = meta.get("finalizers") or []
    if FINALIZER not in finalizers:
        meta["finalizers"] = [*finalizers, FINALIZER]
    pending = Condition(
        "Terminating",
        TRUE,
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
    set_definition_condition(obj, pending, now)
    return Step.STORE


def set_definition_condition(crd: Object, condition: Condition, now: datetime) -> None:
    """Set a condition in the status of a CRD."""
    conditions = crd["status"].get("conditions") or []
    crd["status"]["conditions"] = set_condition(conditions, condition, now)
