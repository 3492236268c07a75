"""Operations: requests that mean the same on every server.

What only a server knows, such as a uid or a version, is written as a reference to what the server has
answered before: `${last|PATH|FIELD}` is a field of the latest state of the object at a path that the
client has seen, `${first|PATH|FIELD}` of the first one. A body of the form `{"$seen": PATH, "$merge":
CHANGE}` is that latest state, changed as a merge patch says. `{ns}` is the namespace of the run.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

Lookup = Callable[[str, str], Any]
"""The object at a path: the first or the last state that was seen; None where there is none."""

_REFERENCE = re.compile(r"\$\{(first|last)\|([^|}]*)\|([^}]*)\}")
_UNKNOWN = "unseen"


@dataclass(frozen=True)
class Operation:
    """One request; `raw` is a body that is no JSON, `media` its type where that is special.

    `settles` says that controllers of the server act upon it, so that both servers have to come to
    rest before the next. `watch` says that it is a watch, which is read in the end; `live` that it is
    opened at once, and not only then.
    """

    method: str
    path: str
    body: Any = None
    raw: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    media: str = ""
    accept: str = ""
    settles: bool = False
    watch: bool = False
    live: bool = False

    def __str__(self) -> str:
        query = "&".join(f"{name}={value}" for name, value in self.query.items())
        target = f"{self.path}?{query}" if query else self.path
        flags = [name for name in ("settles", "watch", "live") if getattr(self, name)]
        headers = [text for text in (self.media, self.accept) if text]
        body = self.raw if self.raw is not None else json.dumps(self.body)
        shown = "" if self.raw is None and self.body is None else f" {body}"
        return " ".join([self.method, target, *headers, *flags]) + shown


def dump(operations: Sequence[Operation]) -> str:
    """The sequence as JSON, one operation a line."""
    rows = []
    for operation in operations:
        values = {
            name: value
            for name, value in asdict(operation).items()
            if (
                value is not None
                if name == "body"
                else value not in (None, {}, False) and (name == "raw" or value)
            )
        }
        rows.append(json.dumps(values))
    return "[\n" + ",\n".join(rows) + "\n]\n"


def load(text: str) -> list[Operation]:
    """A sequence from JSON."""
    return [Operation(**row) for row in json.loads(text)]


def fill_text(text: str, namespace: str, lookup: Lookup) -> str:
    """A text with its references replaced by what one server knows."""

    def known(match: re.Match[str]) -> str:
        which, path, name = match.groups()
        value = _field(lookup(which, path), name)
        return _UNKNOWN if value is None else str(value)

    return _REFERENCE.sub(known, text.replace("{ns}", namespace))


def fill(value: Any, namespace: str, lookup: Lookup) -> Any:
    """A body for one server."""
    if isinstance(value, str):
        return fill_text(value, namespace, lookup)
    if isinstance(value, list):
        return [fill(entry, namespace, lookup) for entry in value]
    if not isinstance(value, dict):
        return value
    if "$seen" in value:
        seen = lookup("last", fill_text(value["$seen"], namespace, lookup))
        return merged(seen or {}, fill(value.get("$merge") or {}, namespace, lookup))
    return {
        fill_text(key, namespace, lookup): fill(entry, namespace, lookup)
        for key, entry in value.items()
    }


def merged(target: Any, change: Any) -> Any:
    """A value after a merge patch."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            changed = merged(result.get(key), value)
            # An empty object that stands for nothing is not the same to a server.
            if changed != {} or key in result or value == {}:
                result[key] = changed
    return result


def _field(value: Any, name: str) -> Any:
    for part in name.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
