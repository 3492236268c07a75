"""Attribute docstrings of structs, which become the descriptions of the CRDs."""

import ast
import inspect
import itertools
from functools import cache
from types import ModuleType


def class_doc(cls: type) -> str:
    """The docstring of the class in one line per paragraph; empty where it has none."""
    return _joined(cls.__doc__ or "")


def attribute_docs(cls: type) -> dict[str, str]:
    """The text under each annotated attribute of the class, by attribute name."""
    module = inspect.getmodule(cls)
    if module is None:
        raise ValueError(f"{cls.__qualname__} belongs to no module")
    return _docs_of(module).get(cls.__qualname__, {})


@cache
def _docs_of(module: ModuleType) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(module))
    return {node.name: _attributes(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _attributes(node: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for statement, follower in itertools.pairwise(node.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        match follower:
            case ast.Expr(value=ast.Constant(value=str(text))):
                docs[statement.target.id] = _joined(text)
    return docs


def _joined(text: str) -> str:
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs).strip()
