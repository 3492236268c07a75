"""What two servers may tell differently: uids, timestamps and versions, and nothing else.

A uid, and the version of an object, becomes the number of its first appearance, so that it is still
compared which of them are equal. The version of a list depends on who else writes, a timestamp on when.
What follows from these is treated with them: ages, the order of managed fields by time, continue tokens,
and the random end of generated names. Of a pod update that is refused a server prints a difference of Go
structs, whose layout it varies on purpose: that is left out. Of a patched object that is refused it prints
the JSON, in which the order of the members means nothing: they are sorted. The conflicts of an apply it
tells in the order of a Go map, and of the times of their managers: they are sorted too.
"""

import base64
import json
import re
from typing import Any

_UID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_GENERATED = re.compile(r"\b(gen\d+-)[bcdfghjklmnpqrstvwxz2456789]{5}\b")
_POD_DIFFERENCE = re.compile(r"(previously negative\)\n)(?:(?s:.)*)\n")
_QUOTED = re.compile(r'(?<=Invalid value: )"\{(?:[^"\\]|\\.)*"')
_APPLY_FAILED = "Apply failed with"
_CONFLICT = re.compile(r"(?:\n|(?<=conflicts: )|(?<=conflict: ))(?=conflicts? with )")
_VERSION = re.compile(r"(?i)resource ?version")
_NUMBER = re.compile(r"\b\d+\b")
_AGE = re.compile(r"(\d+[dhms])+|<invalid>")


class Normaliser:
    """Of what one server says. Mutable state: the names that its uids and versions have got."""

    def __init__(self, names: dict[str, str] | None = None) -> None:
        self._names = dict(names or {})

    def copy(self) -> "Normaliser":
        """One that knows the same and learns on its own."""
        return Normaliser(self._names)

    def normalise(self, value: Any) -> Any:
        """The value without what servers may tell differently."""
        if isinstance(value, dict):
            return self._object(value)
        if isinstance(value, list):
            return [self.normalise(entry) for entry in value]
        return self._text(value) if isinstance(value, str) else value

    def _object(self, value: dict[str, Any]) -> Any:
        if value.get("type") == "BOOKMARK" and isinstance(value.get("object"), dict):
            metadata = {**value["object"].get("metadata", {}), "resourceVersion": "<version>"}
            value = {**value, "object": {**value["object"], "metadata": metadata}}
        is_list = "items" in value or "rows" in value or "columnDefinitions" in value
        result = {}
        for key in sorted(value):
            entry = value[key]
            if key == "metadata" and isinstance(entry, dict) and is_list:
                result[key] = self._list_metadata(entry)
            elif key == "managedFields" and isinstance(entry, list):
                result[key] = self._managed(entry)
            elif key == "resourceVersion" and isinstance(entry, str) and entry.isdigit():
                result[key] = self._named("version", entry)
            elif key == "causes" and isinstance(entry, list):
                result[key] = _ordered_conflicts(self.normalise(entry))
            elif key == "cells" and isinstance(entry, list):
                result[key] = [self._cell(cell) for cell in entry]
            elif key == "continue" and isinstance(entry, str):
                result[key] = self._text(_token(entry))
            else:
                result[self._text(key)] = self.normalise(entry)
        return result

    def _list_metadata(self, metadata: dict[str, Any]) -> Any:
        hidden = {"resourceVersion": "<version>"} if metadata.get("resourceVersion") else {}
        return self.normalise(metadata | hidden)

    def _managed(self, entries: list[Any]) -> Any:
        found = [self.normalise(entry) for entry in entries]
        return sorted(found, key=lambda entry: json.dumps(entry, sort_keys=True))

    def _cell(self, value: Any) -> Any:
        if isinstance(value, str) and _AGE.fullmatch(value):
            return "<age>"
        return self.normalise(value)

    def _text(self, text: str) -> str:
        if len(text) < 5:
            return text
        if 'patch: Invalid value: "{' in text or text.startswith('Invalid value: "{'):
            text = _QUOTED.sub(_sorted_members, text)
        text = _UID.sub(lambda match: self._named("uid", match[0]), text)
        text = _TIME.sub(lambda match: f"<time{len(match[1] or '')}>", text)
        text = _GENERATED.sub(r"\1*****", text)
        text = _POD_DIFFERENCE.sub(r"\1", text)
        if text.startswith(_APPLY_FAILED):
            head, *conflicts = _CONFLICT.split(text)
            text = head + "".join(sorted(conflicts))
        if _VERSION.search(text):
            text = _NUMBER.sub("<number>", text)
        return text

    def _named(self, kind: str, value: str) -> str:
        key = f"{kind} {value}"
        if key not in self._names:
            self._names[key] = f"<{kind} {len(self._names)}>"
        return self._names[key]


def _ordered_conflicts(causes: list[Any]) -> list[Any]:
    if all(cause.get("reason") == "FieldManagerConflict" for cause in causes):
        return sorted(causes, key=lambda cause: json.dumps(cause, sort_keys=True))
    return causes


def _sorted_members(match: re.Match[str]) -> str:
    """A JSON object within a Go string, its members in order."""
    try:
        return json.dumps(json.dumps(json.loads(json.loads(match[0])), sort_keys=True))
    except ValueError:
        return match[0]


def _token(text: str) -> str:
    """A continue token without the version in it."""
    try:
        value = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except ValueError:
        return text
    return json.dumps({**value, "rv": value.get("rv", 0) > 0}, sort_keys=True)
