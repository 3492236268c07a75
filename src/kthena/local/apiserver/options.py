"""The options of a request: query parameters and the body of a deletion, parsed and validated.

Verdicts and texts are those of apimachinery's conversion of query parameters and of the validation
of ListOptions, CreateOptions, UpdateOptions, PatchOptions and DeleteOptions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import parse_qs

from kthena.local.apiserver import errors
from kthena.local.apiserver.codec import DecodeError
from kthena.local.apiserver.gotypes import decoder_for
from kthena.local.apiserver.mediatypes import APPLY_PATCH
from kthena.machinery.fields import ErrorList, ErrorType, FieldError
from kthena.machinery.gotext import parse_int, quote
from kthena.machinery.metadata import default_field_manager, validate_field_manager
from kthena.machinery.selectors import (
    FieldSelector,
    LabelSelector,
    SelectorError,
    parse_field_selector,
    parse_label_selector,
)

FieldValidation = Literal["Ignore", "Warn", "Strict"]

_FIELD_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_PROPAGATIONS: Final = ("Foreground", "Background", "Orphan")
_NOT_OLDER: Final = "NotOlderThan"
_MAX_UINT64: Final = 2**64 - 1
_MAX_DIGITS: Final = 20


def parse_uint64(text: str) -> int:
    """A number as Go's `strconv.ParseUint` reads it.

    Raises:
        ValueError: it is none, with Go's text.
    """
    problem = "invalid syntax"
    if text.isascii() and text.isdigit():
        # Longer texts are not even converted.
        value = int(text) if len(text) <= _MAX_DIGITS else _MAX_UINT64 + 1
        if value <= _MAX_UINT64:
            return value
        problem = "value out of range"
    raise ValueError(f"strconv.ParseUint: parsing {quote(text)}: {problem}")


class Query:
    """The query parameters of a request; of repeated ones the first counts, as in the API."""

    def __init__(self, text: str) -> None:
        self._values: Mapping[str, list[str]] = (
            parse_qs(text, keep_blank_values=True) if text else {}
        )

    def text(self, name: str) -> str:
        """A parameter as it is; empty where it is missing."""
        values = self._values.get(name)
        return values[0] if values else ""

    def texts(self, name: str) -> list[str]:
        """All values of a parameter."""
        return self._values.get(name, [])

    def flag(self, name: str) -> bool | None:
        """A boolean: everything but `false` and `0` is true; None where it is missing."""
        values = self._values.get(name)
        return None if not values else values[0].lower() not in ("false", "0")

    def integer(self, name: str) -> int | None:
        """An integer, or None where it is missing.

        Raises:
            ApiError: 400, it is none.
        """
        values = self._values.get(name)
        if not values:
            return None
        try:
            return parse_int(values[0])
        except ValueError as exc:
            raise errors.bad_request(f"strconv.ParseInt: {exc}") from exc


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list or a watch asks for. A `limit` of 0 means all."""

    labels: LabelSelector
    fields: FieldSelector
    watch: bool = False
    bookmarks: bool = False
    send_initial_events: bool = False
    resource_version: str = ""
    match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_s: int = 0


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a create, an update or a patch.

    `field_manager` is who owns the fields that the write sets: what a request names, else the name
    that its client goes by; empty for the server's own writes. `force` takes fields from other
    managers, and is for server-side apply alone.
    """

    dry_run: bool = False
    field_validation: FieldValidation = "Warn"
    field_manager: str = ""
    force: bool = False


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """How to delete. None stands for what the client did not say."""

    dry_run: bool = False
    grace_period_s: int | None = None
    propagation: str | None = None
    orphan_dependents: bool | None = None
    uid: str | None = None
    resource_version: str | None = None


NO_WRITE_OPTIONS: Final = WriteOptions()
NO_DELETE_OPTIONS: Final = DeleteOptions()


def parse_list_options(query: Query) -> ListOptions:
    """The options of a list, a watch or a deletecollection.

    Raises:
        ApiError: 400 for what cannot be parsed, 422 for what does not go together.
    """
    try:
        labels = parse_label_selector(query.text("labelSelector"))
        fields = parse_field_selector(query.text("fieldSelector"))
    except SelectorError as exc:
        raise errors.bad_request(str(exc)) from exc
    watch = query.flag("watch") or False
    version, match = query.text("resourceVersion"), query.text("resourceVersionMatch")
    token = query.text("continue")
    initial = query.flag("sendInitialEvents")
    timeout, limit = query.integer("timeoutSeconds"), query.integer("limit")
    if watch and initial is None and not match and version in ("", "0"):
        # What such a watch always did, in the words of newer ones.
        initial, match = True, _NOT_OLDER
    problems = (
        _check_watch(match, token, initial=initial)
        if watch
        else _check_list(version, match, token, initial=initial)
    )
    if problems:
        raise errors.invalid_options("ListOptions", problems)
    return ListOptions(
        labels=labels,
        fields=fields,
        watch=watch,
        bookmarks=query.flag("allowWatchBookmarks") or False,
        send_initial_events=initial or False,
        resource_version=version,
        match=match,
        limit=max(limit or 0, 0),
        continue_token=token,
        timeout_s=max(timeout or 0, 0),
    )


def _forbidden(name: str, detail: str) -> FieldError:
    return FieldError(name, ErrorType.FORBIDDEN, "", detail)


def _unsupported(name: str, value: Any, supported: Sequence[str]) -> FieldError:
    texts = ", ".join(quote(text) for text in supported)
    return FieldError(name, ErrorType.NOT_SUPPORTED, value, f"supported values: {texts}")


def _check_list(version: str, match: str, token: str, *, initial: bool | None) -> ErrorList:
    name = "resourceVersionMatch"
    problems = []
    if match:
        if not version:
            detail = f"{name} is forbidden unless resourceVersion is provided"
            problems.append(_forbidden(name, detail))
        if token:
            problems.append(_forbidden(name, f"{name} is forbidden when continue is provided"))
        if match not in ("Exact", _NOT_OLDER):
            problems.append(_unsupported(name, match, ("Exact", _NOT_OLDER, "")))
        if match == "Exact" and version == "0":
            detail = f'{name} "exact" is forbidden for resourceVersion "0"'
            problems.append(_forbidden(name, detail))
    if initial is not None:
        detail = "sendInitialEvents is forbidden for list"
        problems.append(_forbidden("sendInitialEvents", detail))
    return problems


def _check_watch(match: str, token: str, *, initial: bool | None) -> ErrorList:
    name = "resourceVersionMatch"
    problems = []
    if initial is not None and match != _NOT_OLDER:
        detail = f"sendInitialEvents requires setting {name} to {_NOT_OLDER}"
        problems.append(_forbidden(name, detail))
    if match:
        if initial is None:
            detail = f"{name} is forbidden for watch unless sendInitialEvents is provided"
            problems.append(_forbidden(name, detail))
        if match != _NOT_OLDER:
            problems.append(_unsupported(name, match, (_NOT_OLDER,)))
        if token:
            problems.append(_forbidden(name, f"{name} is forbidden when continue is provided"))
    return problems


def parse_write_options(
    query: Query, kind: str, user_agent: str, patch_type: str = ""
) -> WriteOptions:
    """The options of a write; `kind` is the name of the options, for instance `PatchOptions`.

    Raises:
        ApiError: 422 for a value that the option cannot have.
    """
    manager, validation = query.text("fieldManager"), query.text("fieldValidation")
    dry_run = query.texts("dryRun")
    problems: ErrorList = []
    if patch_type == APPLY_PATCH:
        if not manager:
            detail = "is required for apply patch"
            problems.append(FieldError("fieldManager", ErrorType.REQUIRED, "", detail))
    elif patch_type and query.flag("force") is not None:
        problems.append(_forbidden("force", "may not be specified for non-apply patch"))
    problems += validate_field_manager(manager, "fieldManager")
    problems += _check_dry_run(dry_run)
    if validation not in _FIELD_VALIDATIONS:
        problems.append(_unsupported("fieldValidation", validation, _FIELD_VALIDATIONS))
    if problems:
        raise errors.invalid_options(kind, problems)
    chosen: FieldValidation = "Warn"
    if validation == "Strict":
        chosen = "Strict"
    elif validation == "Ignore":
        chosen = "Ignore"
    return WriteOptions(
        dry_run=bool(dry_run),
        field_validation=chosen,
        field_manager=manager or default_field_manager(user_agent),
        force=query.flag("force") or False,
    )


def _check_dry_run(values: Sequence[str]) -> ErrorList:
    if any(value != "All" for value in values):
        return [_unsupported("dryRun", list(values), ("All",))]
    return []


def parse_delete_options(query: Query, body: Any) -> DeleteOptions:
    """The options of a deletion: those of the body where there is one, else of the query.

    Raises:
        ApiError: 400 for what cannot be read, 422 for a value that the option cannot have.
    """
    if body is None:
        given: dict[str, Any] = {
            "dryRun": query.texts("dryRun"),
            "gracePeriodSeconds": query.integer("gracePeriodSeconds"),
            "propagationPolicy": query.text("propagationPolicy") or None,
            "orphanDependents": query.flag("orphanDependents"),
        }
    else:
        try:
            given = decoder_for("meta.v1.DeleteOptions", "DeleteOptions").decode(body).obj
        except DecodeError as exc:
            raise errors.bad_request(str(exc)) from exc
    propagation, orphan = given.get("propagationPolicy"), given.get("orphanDependents")
    dry_run = given.get("dryRun") or []
    problems: ErrorList = []
    if orphan is not None and propagation is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        problems.append(FieldError("propagationPolicy", ErrorType.INVALID, propagation, detail))
    if propagation not in (None, *_PROPAGATIONS):
        problems.append(_unsupported("propagationPolicy", propagation, (*_PROPAGATIONS, "nil")))
    problems += _check_dry_run(dry_run)
    if problems:
        raise errors.invalid_options("DeleteOptions", problems)
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        dry_run=bool(dry_run),
        grace_period_s=given.get("gracePeriodSeconds"),
        propagation=propagation,
        orphan_dependents=orphan,
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
    )
