"""YAML and JSON text to Kubernetes objects and back; the only importer of PyYAML.

Scalars mean what they mean to kubectl (`yaml_scalars`). Stricter than kubectl: a key that stands
twice in a mapping is an error. Safe on foreign input: nesting and the growth through aliases are
bounded, no value of a document shares structure with another. Written text is read back equal by
this module and by kubectl.
"""

import base64
import binascii
import json
import math
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml

from kthena.machinery.gotext import format_float
from kthena.machinery.objects import Object, copy_json
from kthena.machinery.yaml_scalars import is_integer, resolve_plain, through_json

_MAX_DEPTH = 1000
_MAX_ALIASED_NODES = 100_000
_TAG_PREFIX = "tag:yaml.org,2002:"
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")

# libyaml is in every wheel of PyYAML; the pure parser is slow, and right as well.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DumperBase: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class YamlError(ValueError):
    """A text that cannot be read: where and why, in one line. Lines and columns start at 1.

    `go_text` is what Go's decoder says of it, which names the line of the context where there is one,
    and the first line not at all.
    """

    def __init__(self, cause: str, source: str, line: int, column: int, go_text: str = "") -> None:
        super().__init__(f"{source}:{line}:{column}: {cause}")
        self.go_text = go_text or f"line {line}: {cause}"
        self.cause = cause
        self.source = source
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a text: where it begins, and in which file."""

    object: Object
    line: int
    source: str


def load_documents(text: str, source: str) -> list[Document]:
    """The objects of a YAML or JSON text, in order; empty documents are left out.

    Args:
        text: one or more documents, separated by `---` (YAML) or following each other (JSON).
        source: the name of the file, for messages.

    Raises:
        YamlError: the text is malformed, a key is duplicated or no text, a number is not finite,
            or a document is no mapping.
    """
    text = text.removeprefix("\ufeff")
    documents = _load_json(text, source) if text.lstrip().startswith("{") else None
    if documents is None:
        documents = list(_load_yaml(text, source))
    return documents


class Value(NamedTuple):
    """The first document of a text, whatever it is, and the keys that repeat earlier ones of a mapping.

    The last of such keys counts. Each is told with its line.
    """

    value: Any
    repeated: Sequence[tuple[int, str]]


def load_value(text: str, source: str) -> Value:
    """The first document of a YAML text, as the API server reads a body.

    Raises:
        YamlError: the text is malformed, a key is no text, or a number is not finite.
    """
    with _errors_of(text, source):
        builder = _Builder(source, lenient=True)
        for event in yaml.parse(text.removeprefix("\ufeff"), Loader=_Loader):
            if isinstance(event, yaml.DocumentEndEvent):
                break
            if not isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
                builder.add(event)
    return Value(builder.value, builder.repeated)


def expand_lists(documents: Iterable[Document]) -> list[Document]:
    """The documents with each `List` (and `PodList`, ...) replaced by its items.

    Items of a typed list that name no kind get the list's kind and version, as kubectl does.

    Raises:
        YamlError: an item is no mapping.
    """
    expanded: list[Document] = []
    for document in documents:
        kind, items = document.object.get("kind"), document.object.get("items")
        if not (isinstance(kind, str) and kind.endswith("List") and isinstance(items, list)):
            expanded.append(document)
            continue
        header = {}
        if kind != "List":
            header = {
                "apiVersion": document.object.get("apiVersion"),
                "kind": kind.removesuffix("List"),
            }
        for index, entry in enumerate(items):
            if not isinstance(entry, dict):
                cause = f"items[{index}] of {kind} is {_describe(entry)}; an item is a mapping"
                raise YamlError(cause, document.source, document.line, 1)
            obj = entry if "kind" in entry else {**header, **entry}
            expanded += expand_lists([Document(obj, document.line, document.source)])
    return expanded


def _describe(value: Any) -> str:
    names = {dict: "a mapping", list: "a list", str: "a text", bool: "a boolean"}
    return "empty" if value is None else names.get(type(value), "a number")


# --- JSON ---------------------------------------------------------------------------------------


def _load_json(text: str, source: str) -> list[Document] | None:
    """The documents of a stream of JSON objects; None where it is no JSON, so that YAML is tried."""
    decoder = json.JSONDecoder(
        object_pairs_hook=_unique_pairs,
        parse_float=lambda number: through_json(_finite(float(number))),
        parse_int=_json_integer,
        parse_constant=lambda name: _finite(float(name)),
    )
    documents: list[Document] = []
    position = 0
    while True:
        while text[position : position + 1].isspace():
            position += 1
        if position == len(text):
            return documents
        line = text.count("\n", 0, position) + 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (json.JSONDecodeError, RecursionError):
            return None
        except _JsonValueError as error:
            raise YamlError(str(error), source, line, 1) from None
        if not isinstance(value, dict):
            return None
        documents.append(Document(value, line, source))


class _JsonValueError(Exception):
    """A value that JSON syntax allows and Kubernetes does not."""


def _unique_pairs(pairs: list[tuple[str, Any]]) -> Object:
    result: Object = {}
    for key, value in pairs:
        if key in result:
            raise _JsonValueError(f"key {json.dumps(key)} stands twice in one object")
        result[key] = value
    return result


def _json_integer(text: str) -> int | float:
    """An integer of 64 bits, or the float that the API server makes of a longer one."""
    value = int(text) if len(text) <= 18 else resolve_plain(text)
    if isinstance(value, str):
        raise _JsonValueError("number is out of range")
    return value


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise _JsonValueError(f"number {number} is not finite")
    return number


# --- YAML to objects ----------------------------------------------------------------------------


def _load_yaml(text: str, source: str) -> Iterator[Document]:
    builder: _Builder | None = None
    with _errors_of(text, source):
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.DocumentStartEvent):
                builder = _Builder(source)
            elif isinstance(event, yaml.DocumentEndEvent):
                if builder is not None and builder.value is not None:
                    yield _document(builder, source)
                builder = None
            elif builder is not None:
                builder.add(event)


@contextmanager
def _errors_of(text: str, source: str) -> Iterator[None]:
    """Turns what the parser raises into a YamlError."""
    try:
        yield
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        cause = ", ".join(part for part in (error.problem, error.context) if part)
        text = " ".join(cause.split())
        raise YamlError(text, source, line, column, _go_text(error)) from None
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes.
        line = text.encode()[: error.position].count(b"\n") + 1
        cause = f"character U+{_code(error.character):04X} is not allowed: {error.reason}"
        raise YamlError(cause, source, line, 1, str(error.reason)) from None
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise YamlError("a lone surrogate is no character", source, line, 1) from None


def _go_text(error: Any) -> str:
    mark = error.context_mark
    if mark is None or not mark.line:
        mark = error.problem_mark
    line = mark.line if mark is not None else 0
    if line and isinstance(error, yaml.scanner.ScannerError):
        line += 1
    return f"line {line}: {error.problem}" if line else str(error.problem)


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(character)


def _document(builder: "_Builder", source: str) -> Document:
    if not isinstance(builder.value, dict):
        cause = f"the document is {_describe(builder.value)}; an object is a mapping"
        raise YamlError(cause, source, builder.line, 1)
    return Document(builder.value, builder.line, source)


@dataclass(slots=True)
class _Frame:
    """An open collection. Of a mapping, `key` is the pending one and `merged` come from `<<`."""

    value: dict[str, Any] | list[Any]
    anchor: str | None
    event: Any
    has_key: bool = False
    key: str = ""
    key_line: int = 0
    merging: bool = False
    merged: set[str] = field(default_factory=set)
    nodes: int = 1


class _Builder:
    """Builds the value of one document from parser events, without recursion.

    Mutable state: the open collections, the anchored values with their sizes (None while open), and
    the number of nodes that aliases have added.
    """

    def __init__(self, source: str, *, lenient: bool = False) -> None:
        self.value: Any = None
        self.line = 1
        self.repeated: list[tuple[int, str]] = []
        self._lenient = lenient
        self._source = source
        self._started = False
        self._frames: list[_Frame] = []
        self._anchors: dict[str, tuple[Any, int] | None] = {}
        self._aliased = 0

    def add(self, event: Any) -> None:
        if not self._started:
            self._started = True
            self.line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent):
            self._add_scalar(event)
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            self._open(event)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            frame = self._frames.pop()
            if frame.anchor:
                self._anchors[frame.anchor] = (frame.value, frame.nodes)
            self._attach(frame.value, frame.nodes, frame.event)
        elif isinstance(event, yaml.AliasEvent):
            self._add_alias(event)

    def _expects_key(self) -> bool:
        frame = self._frames[-1] if self._frames else None
        return frame is not None and isinstance(frame.value, dict) and not frame.has_key

    def _add_scalar(self, event: Any) -> None:
        if self._expects_key() and event.value == "<<" and event.implicit[0]:
            self._frames[-1].has_key = self._frames[-1].merging = True
            return
        value = self._scalar(event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._attach(value, 1, event)

    def _open(self, event: Any) -> None:
        if len(self._frames) >= _MAX_DEPTH:
            raise self._error(event, f"collections are nested more than {_MAX_DEPTH} deep")
        mapping = isinstance(event, yaml.MappingStartEvent)
        if self._expects_key():
            kind = "a mapping" if mapping else "a list"
            raise self._error(event, f"{kind} is no key; keys are texts")
        if event.anchor:
            self._anchors[event.anchor] = None
        self._frames.append(_Frame({} if mapping else [], event.anchor, event))

    def _add_alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            raise self._error(event, f"unknown anchor '{event.anchor}' referenced")
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise self._error(event, f"anchor '{event.anchor}' value contains itself")
        value, nodes = anchored
        self._aliased += nodes
        if self._aliased > _MAX_ALIASED_NODES:
            raise self._error(event, "document contains excessive aliasing")
        self._attach(copy_json(value), nodes, event)

    def _attach(self, value: Any, nodes: int, event: Any) -> None:
        if not self._frames:
            self.value = value
            return
        frame = self._frames[-1]
        frame.nodes += nodes
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif not frame.has_key:
            frame.key, frame.has_key = self._key(value, event), True
            frame.key_line = event.start_mark.line + 1
        elif frame.merging:
            frame.merged |= self._merge(frame.value, value, event)
            frame.has_key = frame.merging = False
        else:
            if frame.key in frame.value and frame.key not in frame.merged:
                self._report_repeated(frame, event)
            frame.value[frame.key] = value
            frame.merged.discard(frame.key)
            frame.has_key = False

    def _report_repeated(self, frame: _Frame, event: Any) -> None:
        cause = f"key {json.dumps(frame.key)} already set in map"
        if not self._lenient:
            raise self._error(event, cause)
        self.repeated.append((frame.key_line, cause))

    def _merge(self, target: Object, value: Any, event: Any) -> set[str]:
        """The keys that `<<` adds: those of the mapping itself win, earlier merged over later."""
        added: Object = {}
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, dict):
                raise self._error(event, "map merge requires map or sequence of maps as the value")
            added = source | added
        added = {key: merged for key, merged in added.items() if key not in target}
        target |= added
        return set(added)

    def _key(self, value: Any, event: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            # `1e10` is an integer as a value, and a float as a key.
            whole = is_integer(event.value) if isinstance(event, yaml.ScalarEvent) else True
            return str(value) if whole and isinstance(value, int) else _float_key(value)
        raise self._error(event, f"{_describe(value)} is no key; keys are texts")

    def _scalar(self, event: Any) -> Any:
        tag = (event.tag or "").removeprefix(_TAG_PREFIX)
        if tag == "!":
            return event.value
        if event.implicit[0] or tag in ("int", "float", "bool", "null"):
            value = resolve_plain(event.value)
            if tag and not event.implicit[0] and not _has_tag(value, tag):
                raise self._error(event, f"cannot decode `{event.value}` as a !!{tag}")
            infinite = isinstance(value, float) and not math.isfinite(value)
            if infinite and not self._expects_key():
                raise self._error(event, f"number {event.value} is not finite")
            return value
        if tag == "timestamp" and _DATE.match(event.value) is None:
            raise self._error(event, f"cannot decode `{event.value}` as a !!timestamp")
        if tag == "binary":
            try:
                return base64.b64decode(_strip(event.value), validate=True).decode(errors="replace")
            except binascii.Error:
                raise self._error(event, "!!binary value contains invalid base64 data") from None
        return event.value

    def _error(self, event: Any, cause: str) -> YamlError:
        mark = event.start_mark
        # Go tells the line of what its scanner and parser find, and not of this.
        return YamlError(cause, self._source, mark.line + 1, mark.column + 1, cause)


def _strip(text: str) -> str:
    return "".join(text.split())


def _has_tag(value: Any, tag: str) -> bool:
    if tag == "null":
        return value is None
    if tag == "bool":
        return isinstance(value, bool)
    kinds = int if tag == "int" else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)


def _float_key(value: float) -> str:
    """A number as a key, as Go prints 32-bit floats."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return format_float(_shortest_single(float(value)))


def _shortest_single(value: float) -> float:
    """The float with the fewest digits that is the same single-precision number."""
    try:
        single = struct.pack("<f", value)
    except OverflowError:
        return value
    for digits in range(1, 10):
        short = float(f"{value:.{digits}g}")
        if struct.pack("<f", short) == single:
            return short
    return value


# --- objects to YAML ----------------------------------------------------------------------------


class _Dumper(_DumperBase):  # type: ignore[misc] # its base is typed as Any
    """Keeps the order of keys, writes no aliases, and quotes what kubectl would misread."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        """The tag of a scalar if it were plain: both readers must see a text in it."""
        tag = super().resolve(kind, value, implicit)
        if kind is yaml.ScalarNode and implicit[0] and tag == f"{_TAG_PREFIX}str":
            plain = resolve_plain(value)
            return tag if isinstance(plain, str) and value != "<<" else f"{_TAG_PREFIX}null"
        return tag


def _represent_text(dumper: Any, text: str) -> Any:
    style = None
    if "\n" in text:
        style = "|" if _is_block(text) else '"'
    elif not text.isprintable():
        style = '"'
    return dumper.represent_scalar(f"{_TAG_PREFIX}str", text, style)


def _is_block(text: str) -> bool:
    """Whether a text of several lines survives a literal block in every reader."""
    lines = text.split("\n")
    return (
        bool(lines[0])
        and not text.startswith((" ", "\t", "#"))
        and all(line.isprintable() and line == line.rstrip() for line in lines)
        and not text.endswith("\n\n")
    )


def _represent_float(dumper: Any, value: float) -> Any:
    if not math.isfinite(value):
        raise ValueError(f"number {value} has no JSON form; give a finite one")
    tag = "float"
    number = through_json(value)
    text = repr(number)
    if isinstance(number, int):
        tag = "int"
    return dumper.represent_scalar(f"{_TAG_PREFIX}{tag}", text)


_Dumper.yaml_representers = {
    kind: _DumperBase.yaml_representers[kind] for kind in (type(None), bool, int, list, dict)
}
_Dumper.yaml_representers |= {str: _represent_text, float: _represent_float}
_Dumper.yaml_representers[None] = _DumperBase.yaml_representers[None]  # refuses all others
_Dumper.yaml_multi_representers = {}


def dump(obj: Any) -> str:
    """A JSON value as YAML text: keys in the given order, strings quoted where they need it.

    Raises:
        ValueError: a number is not finite, or a value is none of JSON's.
    """
    try:
        text = yaml.dump(
            obj, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31 - 1, indent=2
        )
    except yaml.representer.RepresenterError as error:
        raise ValueError(f"{error.args[-1]!r} is no JSON value") from None
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object!r} holds a lone surrogate") from None
    if isinstance(obj, dict | list):
        return str(text)
    # A plain scalar alone is followed by an end marker, which no reader needs.
    return str(text).removesuffix("\n").removesuffix("\n...") + "\n"


def dump_documents(objects: Iterable[Any]) -> str:
    """Several JSON values as one YAML text, separated by `---`."""
    return "---\n".join(dump(obj) for obj in objects)
