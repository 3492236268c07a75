"""Golden vectors of schemas and rules: what a real API server answered, compared with our answers.

A file in a `golden` folder has schemas that a CustomResourceDefinition may not have (`refused`), and
schemas with objects written under them (`resources`). Each has the causes that the server gave.
`support.schema_server` asks a server for them.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kthena.machinery.fields import ErrorList
from kthena.machinery.schema.custom import Admitted, CustomResourceSchema
from kthena.machinery.schema.scale import ScalePaths
from kthena.machinery.schema.structural import SchemaError

Causes = list[list[str]]
Case = dict[str, Any]

_UNIT = Path(__file__).parent.parent / "unit"
FOLDERS = (_UNIT / "schema" / "golden", _UNIT / "cel" / "golden")
GROUP = "schemas.kthena.example"
VERSION = "v1"
KIND = "Probe"


def read(path: Path) -> Case:
    """The content of a golden file."""
    content: Case = json.loads(path.read_text(encoding="utf-8"))
    return content


def write(path: Path, content: Case) -> None:
    """Writes a golden file: a case or a write on each line."""
    parts = []
    if content.get("refused"):
        parts.append(f'"refused": {_lines(map(_line, content["refused"]))}')
    if content.get("resources"):
        parts.append(f'"resources": {_lines(map(_resource_lines, content["resources"]))}')
    path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(entries: Iterable[str]) -> str:
    return "[\n" + ",\n".join(entries) + "\n]"


def _resource_lines(resource: Case) -> str:
    head = _line({key: value for key, value in resource.items() if key != "writes"})
    return f'{head[:-1]}, "writes": {_lines(map(_line, resource["writes"]))}}}'


def refused_params(folder: Path) -> list[Any]:
    """The schemas of a folder that are to be refused, as pytest parameters."""
    return [
        pytest.param(case, id=f"{path.stem}-{index}")
        for path in sorted(folder.glob("*.json"))
        for index, case in enumerate(read(path).get("refused", []))
    ]


def resource_params(folder: Path) -> list[Any]:
    """The schemas of a folder with their writes, as pytest parameters."""
    return [
        pytest.param(resource, id=f"{path.stem}-{index}")
        for path in sorted(folder.glob("*.json"))
        for index, resource in enumerate(read(path).get("resources", []))
    ]


def causes_of(errors: ErrorList) -> Causes:
    """Errors as the causes of a Status, in an order of their own."""
    return sorted([error.path, error.type.reason, error.message] for error in errors)


def compile_golden(resource: Case) -> CustomResourceSchema:
    """The schema of a golden resource."""
    scale = resource.get("scale")
    return CustomResourceSchema(
        resource["schema"],
        status_subresource=resource.get("status", False),
        scale=ScalePaths(*scale) if scale else None,
    )


def refusal(case: Case) -> Causes:
    """The causes for which the code refuses a schema; empty if it does not."""
    try:
        CustomResourceSchema(case["schema"], status_subresource=case.get("status", False))
    except SchemaError as exc:
        return causes_of(exc.errors)
    return []


def differences(resource: Case, answers: list[Case]) -> list[str]:
    """Where the code answers the writes of a resource in another way."""
    schema = compile_golden(resource)
    return [
        f"{write['operation']} of {write['object']}\n  expected {expected}\n  got      {actual}"
        for write, expected in zip(resource["writes"], answers, strict=True)
        if (actual := admit(schema, write)) != expected
    ]


def admit(schema: CustomResourceSchema, write: Case) -> Case:
    """The code's answer to a write, in the form of a golden answer."""
    new = complete(write["object"])
    if write["operation"] == "create":
        admitted = schema.admit_create(new)
    else:
        old = schema.default(complete(write["old"]))
        if write["operation"] == "status":
            admitted = schema.admit_status_update(new, old)
        else:
            admitted = schema.admit_update(new, old)
    return _answer(admitted)


def _answer(admitted: Admitted) -> Case:
    if admitted.errors:
        return {"causes": causes_of(admitted.errors)}
    warnings = [f'unknown field "{path}"' for path in admitted.pruned] + admitted.warnings
    return {"object": content_of(admitted.object), "warnings": sorted(warnings)}


def complete(content: Case) -> Case:
    """A whole object from the content of a golden write."""
    metadata = {"name": "probe", **content.get("metadata", {})}
    type_meta = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND}
    return {**type_meta, **content, "metadata": metadata}


def content_of(obj: Case) -> Case:
    """An object without what the server adds by itself."""
    return {k: v for k, v in obj.items() if k not in ("apiVersion", "kind", "metadata")}
