"""The reference page of the kinds: every field of a CRD as a row. A PodSpec is one row."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from kthena.api.markers import INT32_MAX, INT32_MIN, UINT32_MAX

_HEAD = """# Reference of the kinds

Generated from the CRDs by `tools/gen_crds.py`. A field that is marked `R` is required in its parent.
`[]` is an item of a list, `{}` a value of a map. Rules between fields stand under each table.
"""

_POD_SPEC = "a [PodSpec](https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodSpec) of Kubernetes"
_BOUNDS = {
    "minimum": "≥ {}", "maximum": "≤ {}", "minLength": "≥ {} characters",
    "maxLength": "≤ {} characters", "minItems": "≥ {} items", "maxItems": "≤ {} items",
    "minProperties": "≥ {} entries", "maxProperties": "≤ {} entries",
    "x-kubernetes-list-map-keys": "unique by {}", "format": "{}",
}  # fmt: skip
_QUIET = {
    ("format", "int32"), ("format", "int64"), ("minimum", INT32_MIN), ("maximum", INT32_MAX),
    ("maximum", UINT32_MAX),
}  # fmt: skip


def reference_page(crds: Iterable[dict[str, Any]]) -> str:
    """The page for the CRDs, in their order."""
    return "\n".join([_HEAD, *(_kind(crd) for crd in crds)])


def _kind(crd: dict[str, Any]) -> str:
    spec = crd["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    lines = [f"## {spec['names']['kind']}", "", schema["description"], ""]
    lines.append(f"`apiVersion: {spec['group']}/{version['name']}`")
    short = spec["names"].get("shortNames")
    if short:
        lines[-1] += f", short name `{short[0]}`"
    lines += ["", "| Field | Type | | Default | Bounds | Meaning |", "|---|---|---|---|---|---|"]
    lines += [_row(field) for field in walk(schema)]
    rules = [_rule(path, entry) for path, entry in _rules(schema, "")]
    if rules:
        lines += ["", "Rules:", "", *rules]
    return "\n".join([*lines, ""])


class Field(NamedTuple):
    """A field of a spec or status: where, what, and whether its parent demands it."""

    path: str
    schema: dict[str, Any]
    required: bool


def walk(schema: dict[str, Any], path: str = "") -> Iterator[Field]:
    """Every field of spec and status, parents first.

    The walk does not enter a PodSpec, whose fields are those of Kubernetes.
    """
    required = schema.get("required", ())
    for name, child in schema.get("properties", {}).items():
        if not path and name not in {"spec", "status"}:
            continue
        inner = f"{path}.{name}" if path else name
        yield Field(inner, child, name in required)
        if not is_pod_spec(child):
            yield from _inside(child, inner)


def is_pod_spec(schema: dict[str, Any]) -> bool:
    """Whether a schema is that of a PodSpec."""
    properties = schema.get("properties", {})
    return "containers" in properties and "initContainers" in properties


def _inside(schema: dict[str, Any], path: str) -> Iterator[Field]:
    yield from walk(schema, path)
    if "items" in schema:
        yield from _inside(schema["items"], f"{path}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield from _inside(values, f"{path}{{}}")


def _row(field: Field) -> str:
    schema = field.schema
    cells = [
        f"`{field.path}`",
        _POD_SPEC if is_pod_spec(schema) else _type(schema),
        "R" if field.required else "",
        f"`{_scalar(schema['default'])}`" if "default" in schema else "",
        "; ".join(_bounds(schema)),
        schema.get("description", ""),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _type(schema: dict[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "int or string"
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return "any"
    kind = str(schema.get("type", "any"))
    if kind == "array":
        return f"list of {_type(schema['items'])}"
    values = schema.get("additionalProperties")
    return f"map of {_type(values)}" if isinstance(values, dict) else kind


def _bounds(schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield ", ".join(f"`{value}`" if value else "empty" for value in schema["enum"])
    for keyword, text in _BOUNDS.items():
        value = schema.get(keyword)
        if value is None or _is_quiet(keyword, value):
            continue
        yield text.format(", ".join(value) if isinstance(value, list) else value)
    if "pattern" in schema and not schema.get("x-kubernetes-int-or-string"):
        yield f"`{schema['pattern']}`"
    for part in ("items", "additionalProperties"):
        inner = schema.get(part)
        if isinstance(inner, dict) and inner.get("type") != "object":
            yield from (f"each {bound}" for bound in _bounds(inner))


def _is_quiet(keyword: str, value: Any) -> bool:
    """Whether a bound is only that of the integer type, which says nothing to a reader."""
    return not isinstance(value, list) and (keyword, value) in _QUIET


def _scalar(value: Any) -> str:
    if value == "":
        return '""'
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rules(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for entry in schema.get("x-kubernetes-validations", ()):
        yield path, entry
    for name, child in schema.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from _rules(schema["items"], f"{path}[]")
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        yield from _rules(values, f"{path}{{}}")


def _rule(path: str, entry: dict[str, Any]) -> str:
    where = f"{path}{entry.get('fieldPath', '')}".lstrip(".")
    return f"- `{where}`: {entry['message']}"
