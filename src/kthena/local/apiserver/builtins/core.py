"""ConfigMaps, Secrets, Namespaces, ServiceAccounts and Leases."""

import base64
from datetime import datetime
from typing import Any, Final

from kthena.api.kubernetes import CONFIG_MAPS, NAMESPACES, SECRETS
from kthena.local.apiserver import errors, gojson
from kthena.local.apiserver.admission import copy_fields
from kthena.local.apiserver.builtins.fielderrors import (
    IMMUTABLE,
    NEGATIVE,
    check_text,
    forbidden,
    invalid,
    required,
)
from kthena.local.apiserver.deletion import set_policy_finalizers
from kthena.local.apiserver.kinds import Step
from kthena.local.apiserver.options import DeleteOptions
from kthena.local.apiserver.strategies import STATUS_FIELD, PlainStrategy, StatusStrategy
from kthena.machinery.conditions import format_time
from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.metadata import (
    FINALIZER_FOREGROUND,
    FINALIZER_ORPHAN,
    validate_object_meta,
)
from kthena.machinery.names import check_config_map_key, check_qualified_name
from kthena.machinery.objects import Object, is_terminating, name_of

_MAX_DATA_BYTES: Final = 1024 * 1024
_WHEN_IMMUTABLE: Final = "field is immutable when `immutable` is set"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_SERVICE_ACCOUNT_NAME: Final = "kubernetes.io/service-account.name"

NAMESPACE_FINALIZER: Final = "kubernetes"
_FINALIZERS: Final = (NAMESPACE_FINALIZER, FINALIZER_ORPHAN, FINALIZER_FOREGROUND)
IMMORTAL_NAMESPACES: Final = frozenset({"default", "kube-system", "kube-public"})


def _too_long(path: str) -> FieldError:
    detail = f"may not be more than {_MAX_DATA_BYTES} bytes"
    return FieldError(path, ErrorType.TOO_LONG, "", detail)


def _check_immutable(new: Object, old: Object, fields: tuple[str, ...]) -> ErrorList:
    if not old.get("immutable"):
        return []
    errors: ErrorList = []
    if not new.get("immutable"):
        errors.append(forbidden("immutable", _WHEN_IMMUTABLE))
    errors += [
        forbidden(name, _WHEN_IMMUTABLE)
        for name in fields
        if (new.get(name) or {}) != (old.get(name) or {})
    ]
    return errors


class ConfigMapStrategy(PlainStrategy):
    """Writes of ConfigMaps."""

    def validate_create(self, obj: Object) -> ErrorList:
        """Keys are file names; the whole is limited."""
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        errors: ErrorList = []
        for key in data:
            errors += check_text(f"data[{key}]", key, check_config_map_key)
            if key in binary:
                detail = "duplicate of key present in binaryData"
                errors.append(invalid(f"data[{key}]", key, detail))
        for key in binary:
            errors += check_text(f"binaryData[{key}]", key, check_config_map_key)
        size = sum(len(value.encode()) for value in data.values())
        size += sum(len(base64.b64decode(value)) for value in binary.values())
        return [*errors, _too_long("[]")] if size > _MAX_DATA_BYTES else errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """An immutable one stays as it is."""
        errors = _check_immutable(new, old, ("data", "binaryData"))
        return errors + validate_object_meta(new, CONFIG_MAPS) + self.validate_create(new)


def default_secret(obj: Object) -> None:
    """The type, and the values that are given as text."""
    obj.setdefault("type", "Opaque")
    texts = obj.pop("stringData", None)
    if texts:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in texts.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


_REQUIRED_KEYS: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


class SecretStrategy(PlainStrategy):
    """Writes of Secrets."""

    def validate_create(self, obj: Object) -> ErrorList:
        """Keys are file names, the whole is limited, and types have their keys."""
        data = {key: value or "" for key, value in (obj.get("data") or {}).items()}
        errors: ErrorList = []
        for key in data:
            errors += check_text(f"data[{key}]", key, check_config_map_key)
        if sum(len(base64.b64decode(value)) for value in data.values()) > _MAX_DATA_BYTES:
            errors.append(_too_long("data"))
        return errors + _check_secret_type(obj, data)

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The type is fixed; an immutable one stays as it is."""
        errors: ErrorList = []
        if new.get("type") != old.get("type"):
            errors.append(invalid("type", new.get("type"), IMMUTABLE))
        errors += _check_immutable(new, old, ("data",))
        return errors + validate_object_meta(new, SECRETS) + self.validate_create(new)


def _check_secret_type(obj: Object, data: dict[str, str]) -> ErrorList:
    kind = obj.get("type") or ""
    if kind == "kubernetes.io/service-account-token":
        annotations = obj["metadata"].get("annotations") or {}
        if annotations.get(_SERVICE_ACCOUNT_NAME):
            return []
        return [required(f"metadata.annotations[{_SERVICE_ACCOUNT_NAME}]")]
    if kind == "kubernetes.io/basic-auth":
        login = ("username", "password")
        if any(key in data for key in login):
            return []
        return [required(f"data[{key}]") for key in login]
    keys = _REQUIRED_KEYS.get(kind, ())
    missing = [required(f"data[{key}]") for key in keys if key not in data]
    if not missing and kind in ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"):
        return _check_json(keys[0], data[keys[0]])
    return missing


def _check_json(key: str, value: str) -> ErrorList:
    try:
        gojson.decode(base64.b64decode(value))
    except gojson.JSONError as exc:
        return [invalid(f"data[{key}]", "<secret contents redacted>", str(exc))]
    return []


def default_namespace(obj: Object) -> None:
    """The label that names it, and its phase."""
    if name_of(obj):
        labels = obj["metadata"].get("labels") or {}
        obj["metadata"]["labels"] = {**labels, _NAME_LABEL: name_of(obj)}
    obj["status"].setdefault("phase", "Active")


class NamespaceStrategy(PlainStrategy):
    """Writes of Namespaces; the finalizer in the spec goes when they are empty."""

    reset_fields = STATUS_FIELD

    def prepare_create(self, obj: Object) -> None:
        """A namespace starts Active, with a finalizer for its content."""
        default_namespace(obj)
        obj["status"] = {"phase": "Active"}
        finalizers = obj["spec"].get("finalizers") or []
        if NAMESPACE_FINALIZER not in finalizers:
            obj["spec"]["finalizers"] = [*finalizers, NAMESPACE_FINALIZER]

    def validate_create(self, obj: Object) -> ErrorList:
        """Finalizers are the API's own, or have a domain."""
        finalizers = obj["spec"].get("finalizers") or ()
        return [error for each in finalizers for error in _check_finalizer("spec.finalizers", each)]

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Nothing of it changes but the metadata."""
        del new, old
        return []

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the finalizers of the spec and the status."""
        copy_fields(new["spec"], old["spec"], ("finalizers",))
        copy_fields(new, old, ("status",))


class NamespaceFinalizeStrategy(PlainStrategy):
    """`namespaces/finalize`: only the finalizers of the spec change."""

    reset_fields = STATUS_FIELD

    def prepare_update(self, new: Object, old: Object) -> None:
        """Keep the status."""
        copy_fields(new, old, ("status",))

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The rules of finalizers."""
        del old
        found: ErrorList = []
        for index, each in enumerate(new["spec"].get("finalizers") or ()):
            found += _check_finalizer(f"spec.finalizers[{index}]", each)
        return found


class NamespaceStatusStrategy(StatusStrategy):
    """`namespaces/status`: the phase follows from the deletion."""

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """A namespace is Terminating when it is, and Active until then."""
        del old
        terminating = is_terminating(new)
        phase = (new.get("status") or {}).get("phase") or ""
        expected = "Terminating" if terminating else "Active"
        if phase == expected:
            return []
        state = "not empty" if terminating else "empty"
        detail = f"may only be '{expected}' if `deletionTimestamp` is {state}"
        return [invalid("status.Phase", phase, detail)]


def _check_finalizer(path: str, finalizer: str) -> ErrorList:
    found = check_text(path, finalizer, check_qualified_name)
    if "/" not in finalizer and finalizer not in _FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        found.append(invalid(path, finalizer, detail))
    return found


def plan_namespace_deletion(obj: Object, options: DeleteOptions, now: datetime) -> Step:
    """A namespace is removed when its finalizer is gone, and Terminating until then.

    Raises:
        ApiError: 403, it is one that every cluster has.
    """
    if name_of(obj) in IMMORTAL_NAMESPACES:
        raise errors.forbidden(NAMESPACES, name_of(obj), "this namespace may not be deleted")
    if not is_terminating(obj):
        obj["metadata"]["deletionTimestamp"] = format_time(now)
        obj["status"]["phase"] = "Terminating"
        set_policy_finalizers(obj, options)
        return Step.STORE
    if obj["spec"].get("finalizers") or obj["metadata"].get("finalizers"):
        return Step.NOTHING
    return Step.REMOVE


def namespace_holds(obj: Object) -> bool:
    """Whether the content of a namespace keeps it."""
    return bool(obj["spec"].get("finalizers"))


class ServiceAccountStrategy(PlainStrategy):
    """Writes of ServiceAccounts."""

    repeats_metadata = True


def _drop_coordination(new: Object, old: Object) -> None:
    for name in ("strategy", "preferredHolder"):
        if name not in (old.get("spec") or {}):
            new["spec"].pop(name, None)


class LeaseStrategy(PlainStrategy):
    """Writes of Leases: always against a version, so that two holders exclude each other."""

    allow_create_on_update = True
    allow_unconditional_update = False

    def prepare_create(self, obj: Object) -> None:
        """Drop what belongs to coordinated leader election, which is off by default."""
        _drop_coordination(obj, {})

    def prepare_update(self, new: Object, old: Object) -> None:
        """The same, unless it was there."""
        _drop_coordination(new, old)

    def validate_create(self, obj: Object) -> ErrorList:
        """Durations and counts."""
        spec: dict[str, Any] = obj["spec"]
        errors: ErrorList = []
        duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
        if duration is not None and duration <= 0:
            errors.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
        if transitions is not None and transitions < 0:
            errors.append(invalid("spec.leaseTransitions", transitions, NEGATIVE))
        return errors
