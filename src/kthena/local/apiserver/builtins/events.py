"""Events of both groups: one store, two forms.

Objects are stored as core/v1 events; `events.k8s.io/v1` names the same fields differently and is
stricter about new ones.
"""

from collections.abc import Mapping
from typing import Any, Final

from kthena.local.apiserver.builtins.fielderrors import (
    IMMUTABLE,
    check_text,
    invalid,
    required,
)
from kthena.local.apiserver.kinds import Conversion
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.machinery.fields import OMITTED, ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import format_json
from kthena.machinery.metadata import (
    validate_any_object_meta_update,
    validate_metadata_change,
    validate_object_meta,
)
from kthena.machinery.names import check_qualified_name
from kthena.machinery.objects import Object, namespace_of
from kthena.machinery.resources import Resource

EVENTS_V1: Final = Resource("events.k8s.io", "v1", "events", "Event")

_TO_STORED: Final[Mapping[str, str]] = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_FROM_STORED: Final = {stored: name for name, stored in _TO_STORED.items()}
_ALWAYS_STORED: Final[Mapping[str, Any]] = {
    "eventTime": None,
    "firstTimestamp": None,
    "lastTimestamp": None,
    "reportingComponent": "",
    "reportingInstance": "",
    "source": {},
    "involvedObject": {},
}
_DROPPED_EMPTY: Final = ("reportingController", "reportingInstance", "note")
_MAX_LENGTH: Final = 128
_MAX_NOTE_LENGTH: Final = 1024
_ZEROS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("firstTimestamp", "lastTimestamp", "eventTime", "related")),
    "count": 0,
}
"""How fields that are not set are shown; texts are empty."""

_REFERENCE: Final = {
    "Kind": "kind",
    "Namespace": "namespace",
    "Name": "name",
    "UID": "uid",
    "APIVersion": "apiVersion",
    "ResourceVersion": "resourceVersion",
    "FieldPath": "fieldPath",
}
_STRUCTS: Final[Mapping[str, Mapping[str, str]]] = {
    "involvedObject": _REFERENCE,
    "related": _REFERENCE,
    "source": {"Component": "component", "Host": "host"},
}
"""Go's names of the members of structs, in order, and the fields that they are."""

_SHOWN: Final = {"reportingComponent": "reportingController"}

_IMMUTABLE_FIELDS: Final = (
    *("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp"),
    # The API server compares the reason twice.
    *("count", "reason", "type", "eventTime", "action", "related"),
    *("reportingComponent", "reportingInstance"),
)


def _to_stored(event: Object) -> Object:
    renamed = {_TO_STORED.get(name, name): value for name, value in event.items()}
    for name, value in _ALWAYS_STORED.items():
        renamed.setdefault(name, value)
    return renamed


def _from_stored(event: Object) -> Object:
    renamed = {_FROM_STORED.get(name, name): value for name, value in event.items()}
    for name in _DROPPED_EMPTY:
        if not renamed.get(name, True):
            del renamed[name]
    return renamed


CONVERSION: Final = Conversion(_to_stored, _from_stored)


class EventStrategy(PlainStrategy):
    """Writes of core/v1 events. Their metadata is checked no further than that of any object."""

    allow_create_on_update = True
    checks_metadata = True

    def validate_create(self, obj: Object) -> ErrorList:
        """An event belongs to the namespace of its object."""
        return _check(obj, "reportingComponent")

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """As on creation."""
        found = validate_any_object_meta_update(new, old)
        return found + _check(new, "reportingComponent")


class NewEventStrategy(PlainStrategy):
    """Writes of events.k8s.io/v1 events. Errors name the fields as they are stored."""

    allow_create_on_update = True
    checks_metadata = True

    def validate_create(self, obj: Object) -> ErrorList:
        """What a new event must have, and may no longer have."""
        event = _to_stored(obj)
        errors = _check(event, "reportingController")
        errors += validate_object_meta(obj, EVENTS_V1) + _check_series(event)
        if not event.get("eventTime"):
            errors.append(required("eventTime"))
        kind = event.get("type") or ""
        if kind not in ("Normal", "Warning"):
            errors.append(invalid("type", "", f"has invalid value: {kind}"))
        errors += [
            invalid(name, "", "needs to be unset")
            for name in ("firstTimestamp", "lastTimestamp", "count", "source")
            if event.get(name)
        ]
        return errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """Only the series goes on."""
        after, before = _to_stored(new), _to_stored(old)
        errors = validate_any_object_meta_update(new, old) + _check(after, "reportingController")
        errors += validate_metadata_change(new["metadata"], old["metadata"])
        if after.get("series") != before.get("series"):
            errors += _check_series(after)
        return errors + [
            _immutable(name, after.get(name))
            for name in _IMMUTABLE_FIELDS
            if after.get(name) != before.get(name)
        ]


def _immutable(name: str, value: Any) -> FieldError:
    """An error that shows a value as the API server holds it, structs under Go's names."""
    path = _SHOWN.get(name, name)
    members = _STRUCTS.get(name)
    if members is None or (value is None and name == "related"):
        return invalid(path, _ZEROS.get(name, "") if value is None else value, IMMUTABLE)
    given = value or {}
    shown = ",".join(
        f'"{member}":{format_json(given.get(field) or "")}' for member, field in members.items()
    )
    return FieldError(path, ErrorType.INVALID, OMITTED, f"{{{shown}}}: {IMMUTABLE}")


def _check_series(event: Object) -> ErrorList:
    series = event.get("series")
    if series is None:
        return []
    errors: ErrorList = []
    if series["count"] < 2:
        errors.append(invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        errors.append(required("series.lastObservedTime"))
    return errors


def _check(event: Object, reporter: str) -> ErrorList:
    """What holds for both forms."""
    namespace = namespace_of(event)
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    path, detail = "involvedObject.namespace", "does not match event.namespace"
    if not event.get("eventTime"):
        allowed = (about,) if about else ("", "default")
        return [] if namespace in allowed else [invalid(path, about, detail)]
    errors: ErrorList = []
    if not about and namespace not in ("default", "kube-system"):
        errors.append(invalid(path, about, detail))
    component = event.get("reportingComponent") or ""
    if not component:
        errors.append(required(reporter))
    errors += check_text(reporter, component, check_qualified_name)
    for name in ("reportingInstance", "action", "reason"):
        value = event.get(name) or ""
        if not value:
            errors.append(required(name))
        if len(value) > _MAX_LENGTH:
            errors.append(invalid(name, "", f"can have at most {_MAX_LENGTH} characters"))
    if len(event.get("message") or "") > _MAX_NOTE_LENGTH:
        errors.append(invalid("message", "", f"can have at most {_MAX_NOTE_LENGTH} characters"))
    return errors
