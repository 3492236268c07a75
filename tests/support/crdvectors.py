"""Admission vectors as data: what is denied, and by which one check.

A file of `tests/crds/vectors` has `kind`, named `bases` (valid objects without metadata), `denied`,
a list of vectors, and `use`, a list of groups of vectors that several places share. A vector has

- `at` and `check`: the node of the installed schema and the keyword of it that must deny; a rule is
  `rule: <message>`, a required field `required: <name>`;
- `set` and `unset`: changes to the base, by paths as `spec.roles[0].name` or `spec.headers{X-A}`;
- `field`: the path of the error, when it is not that of the only changed field;
- `also`: further paths that must be wrong as well when this one is;
- `base`, `name` (of the object), `before` (changes that make the stored object, where the check
  is of an update), `no_scale` (why the object cannot be scaled) and `not_stored` (why no server can
  hold the object), where needed.

A group of `groups.yaml` has paths below a place; `use` gives the place in the schema (`at`), in the
object (`path`) and the base.

Long values are written as `$repeat: [text, times]`, `$list: [item, times]` and `$map: [value,
times]`; a `#` in item or value stands for the index.
"""

import copy
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent.parent / "crds" / "vectors"
_STEP = re.compile(r"\.?([^.\[{]+)|\[(\d+)\]|\{([^}]*)\}")
_MISSING = object()


@dataclass(frozen=True)
class Vector:
    """One object, or one update of an object, that exactly one check denies."""

    kind: str
    number: int
    at: str
    check: str
    field: str
    also: tuple[str, ...]
    stored: dict[str, Any]
    denied: dict[str, Any]
    no_scale: str
    not_stored: str
    in_status: bool

    @property
    def is_update(self) -> bool:
        """Whether the check compares an object with what was stored."""
        return self.stored != self.denied

    @property
    def name(self) -> str:
        """The name of the object."""
        return str(self.denied["metadata"]["name"])

    def __str__(self) -> str:
        return f"{self.kind} {self.at or '<root>'} [{self.check}]"


def load(kind: str) -> list[Vector]:
    """The vectors of a kind, those of its groups included."""
    document = _read(kind)
    groups = _read("groups")
    entries = list(document["denied"])
    for use in document.get("use", ()):
        entries += [_placed(entry, use) for entry in groups[use["group"]]]
    header = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    return [
        _vector(header, document["bases"], number, entry)
        for number, entry in enumerate(entries, start=1)
    ]


def _placed(entry: dict[str, Any], use: dict[str, Any]) -> dict[str, Any]:
    """A vector of a group at one of the places that use it."""
    path = use["path"]
    placed = {**entry, "at": use["at"] + entry["at"]}
    if "base" in use:
        placed["base"] = use["base"]
    if "set" in entry:
        placed["set"] = {path + relative: value for relative, value in entry["set"].items()}
    if "unset" in entry:
        placed["unset"] = [path + relative for relative in entry["unset"]]
    if "field" in entry:
        placed["field"] = path + entry["field"]
    return placed


def valid_objects(kind: str) -> dict[str, dict[str, Any]]:
    """The bases of a kind as whole objects, by name."""
    document = _read(kind)
    header = {"apiVersion": document["apiVersion"], "kind": document["kind"]}
    return {
        name: {**header, "metadata": {"name": name.replace("_", "-")}, **base}
        for name, base in document["bases"].items()
    }


@dataclass(frozen=True)
class Step:
    """One write and its answer: the paths of all errors, or none."""

    name: str
    changes: dict[str, Any]
    removals: tuple[str, ...]
    denied: frozenset[str]


@dataclass(frozen=True)
class Verdict:
    """An input whose answer is known: the object, and updates of it where it is about them."""

    kind: str
    row: str
    obj: dict[str, Any]
    denied: frozenset[str]
    steps: tuple[Step, ...]


def verdicts() -> list[Verdict]:
    """All rows of `verdicts.yaml`."""
    return [
        _verdict(kind, number, entry)
        for kind, rows in _read("verdicts").items()
        for number, entry in enumerate(rows, start=1)
    ]


def _verdict(kind: str, number: int, entry: dict[str, Any]) -> Verdict:
    objects = valid_objects(kind)
    base = objects[entry.get("base") or next(iter(objects))]
    obj = change(base, entry.get("set", {}), tuple(entry.get("unset", ())))
    obj["metadata"] = {"name": entry.get("name", f"row-{number}")}
    steps = tuple(
        Step(
            step["step"],
            step.get("set", {}),
            tuple(step.get("unset", ())),
            frozenset(step.get("denied", ())),
        )
        for step in entry.get("steps", ())
    )
    return Verdict(kind, entry["row"], obj, frozenset(entry.get("denied", ())), steps)


def _read(name: str) -> dict[str, Any]:
    """A file of vectors, to be changed at will."""
    return copy.deepcopy(_parsed(FOLDER / f"{name.lower()}.yaml"))


@cache
def _parsed(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return document


def _vector(
    header: dict[str, Any], bases: dict[str, dict[str, Any]], number: int, entry: dict[str, Any]
) -> Vector:
    base = bases[entry.get("base") or next(iter(bases))]
    name = entry.get("name", f"vector-{number}")
    in_status = entry["at"].startswith("status")
    whole = {**header, "metadata": {"name": name}, **base}
    if not in_status:
        whole.pop("status", None)
    stored = change(whole, entry.get("before", {}))
    changes = entry.get("set", {})
    denied = change(stored, changes, entry.get("unset", ()))
    touched = [*changes, *entry.get("unset", ())]
    field = entry.get("field", touched[0])
    if "field" not in entry and len(touched) != 1:
        raise ValueError(
            f"vector {number} of {header['kind']} changes several fields: give `field`"
        )
    return Vector(
        kind=header["kind"],
        number=number,
        at=entry["at"],
        check=entry["check"],
        field=_printed(field, entry["check"]),
        also=tuple(_printed(path, entry["check"]) for path in entry.get("also", ())),
        stored=stored if "before" in entry else denied,
        denied=denied,
        no_scale=entry.get("no_scale", ""),
        not_stored=entry.get("not_stored", ""),
        in_status=in_status,
    )


def _printed(path: str, check: str) -> str:
    """The path as the API server prints it: rules and list-maps write map keys in brackets."""
    bracketed = check.startswith("rule") or check == "x-kubernetes-list-type"
    return re.sub(r"\{([^}]*)\}", r"[\1]" if bracketed else r".\1", path)


def change(
    base: Mapping[str, Any], changes: Mapping[str, Any], removals: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A copy of the object with fields set and removed."""
    result: dict[str, Any] = copy.deepcopy(dict(base))
    for path, value in changes.items():
        parent, last = _parent(result, path)
        if isinstance(parent, list) and last == len(parent):
            parent.append(_expand(value))
        else:
            parent[last] = _expand(value)
    for path in removals:
        parent, last = _parent(result, path)
        del parent[last]
    return result


def _parent(root: dict[str, Any], path: str) -> tuple[Any, Any]:
    steps: list[Any] = []
    for plain, index, key in _STEP.findall(path):
        steps.append(int(index) if index else plain or key)
    node: Any = root
    for step, following in itertools.pairwise(steps):
        if isinstance(node, dict) and node.get(step, _MISSING) is _MISSING:
            node[step] = [] if isinstance(following, int) else {}
        node = node[step]
    return node, steps[-1]


def _expand(value: Any) -> Any:
    if not isinstance(value, dict):
        return [_expand(item) for item in value] if isinstance(value, list) else value
    if "$repeat" in value:
        text, times = value["$repeat"]
        return text * times
    if "$list" in value:
        item, times = value["$list"]
        return [_numbered(item, index) for index in range(times)]
    if "$map" in value:
        item, times = value["$map"]
        return {f"k{index}": _numbered(item, index) for index in range(times)}
    return {key: _expand(item) for key, item in value.items()}


def _numbered(value: Any, index: int) -> Any:
    if isinstance(value, str):
        return value.replace("#", str(index))
    if isinstance(value, dict):
        return {key: _numbered(item, index) for key, item in value.items()}
    return [_numbered(item, index) for item in value] if isinstance(value, list) else value
