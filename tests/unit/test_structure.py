"""Rules of the code's shape that no linter knows."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SOURCES = sorted(
    path
    for folder in ("src", "tests", "tools", "benchmarks")
    for path in (REPOSITORY / folder).rglob("*.py")
)
MODULE_LINES = 600
FUNCTION_LINES = 80
VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "shared"}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_modules_and_functions_stay_small() -> None:
    large = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        name = str(path.relative_to(REPOSITORY))
        if text.count("\n") > MODULE_LINES:
            large.append(f"{name} has more than {MODULE_LINES} lines")
        for function in functions(ast.parse(text)):
            lines = (function.end_lineno or function.lineno) - function.lineno + 1
            if lines > FUNCTION_LINES:
                large.append(f"{name}:{function.lineno} {function.name} has {lines} lines")
    assert large == []


def test_names_say_what_is_inside() -> None:
    vague = [
        str(path.relative_to(REPOSITORY))
        for path in SOURCES
        if VAGUE & {part.removesuffix(".py") for part in path.relative_to(REPOSITORY).parts}
    ]
    assert vague == []


def test_every_package_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(REPOSITORY))
        for path in SOURCES
        if path.is_relative_to(REPOSITORY / "src")
        and ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) is None
    ]
    assert silent == []


@pytest.mark.parametrize("folder", ["src", "docs", "deploy", "examples", "tests", "tools"])
def test_nothing_names_the_machine_it_was_written_on(folder: str) -> None:
    home = re.compile(r"/(work|root|home/\w+)/\w")
    found = [
        f"{path.relative_to(REPOSITORY)}: {match[0]}"
        for path in (REPOSITORY / folder).rglob("*")
        if path.suffix in {".py", ".md", ".yaml", ".yml", ".json", ".toml", ".sh"}
        for match in home.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
