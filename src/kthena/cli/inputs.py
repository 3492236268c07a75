"""Manifests from files, folders, standard input and kustomizations.

Everything is read before anything is used: one broken file means that nothing is applied. A
kustomization that only lists `resources` is read here; one that does more is built by `kubectl` or
`kustomize`, whichever is on the PATH.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kthena.cli.errors import CliError, ExitCode
from kthena.machinery.yaml import Document, YamlError, expand_lists, load_documents

_SUFFIXES = {".yaml", ".yml", ".json"}
_KUSTOMIZATION_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_PLAIN_KEYS = {"apiVersion", "kind", "metadata", "resources"}


@dataclass(frozen=True)
class Inputs:
    """The objects that were read, in order, and every file or folder that they depend on."""

    documents: list[Document]
    watched: tuple[Path, ...]
    stdin: str | None = None
    """What was read from standard input, which can be read only once."""


def read_inputs(
    files: Sequence[str], kustomizations: Sequence[str], stdin: str | None = None
) -> Inputs:
    """The objects of the given files, folders (their YAML and JSON files), `-`, kustomizations.

    `stdin` is what an earlier call has read from standard input.

    Raises:
        CliError: nothing was given, a file is missing, or one does not parse (with its line).
    """
    if not files and not kustomizations:
        raise CliError(
            "no input",
            hint="name files with -f or a kustomization with -k",
            exit_code=ExitCode.USAGE,
        )
    documents: list[Document] = []
    watched: list[Path] = []
    for name in files:
        if name == "-":
            stdin = sys.stdin.read() if stdin is None else stdin
            documents += _parse(stdin, "<stdin>")
            continue
        for path in _expand(Path(name), watched):
            documents += _parse(_read(path), str(path))
    for name in kustomizations:
        documents += _kustomization(Path(name), watched)
    _check_objects(documents)
    return Inputs(documents, tuple(dict.fromkeys(watched)), stdin)


def _expand(path: Path, watched: list[Path]) -> list[Path]:
    watched.append(path)
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix in _SUFFIXES and p.is_file())
    # A kustomization is no object: a folder that has one is still readable with -f.
    found = [p for p in found if p.name not in _KUSTOMIZATION_NAMES]
    if not found:
        raise CliError(
            f"{path}: no .yaml, .yml or .json file in this folder", exit_code=ExitCode.USAGE
        )
    watched.extend(found)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as exc:
        raise CliError(f"{path}: {exc.strerror or exc}", exit_code=ExitCode.USAGE) from exc
    except UnicodeDecodeError as exc:
        raise CliError(f"{path}: not UTF-8 text ({exc})", exit_code=ExitCode.USAGE) from exc


def _parse(text: str, source: str) -> list[Document]:
    try:
        return expand_lists(load_documents(text, source))
    except YamlError as exc:
        raise CliError(str(exc), exit_code=ExitCode.USAGE) from exc


def _kustomization(folder: Path, watched: list[Path]) -> list[Document]:
    path = next((folder / name for name in _KUSTOMIZATION_NAMES if (folder / name).is_file()), None)
    if path is None:
        raise CliError(
            f"{folder}: no kustomization.yaml in this folder",
            hint="-k takes the folder of a kustomization; single files are named with -f",
            exit_code=ExitCode.USAGE,
        )
    watched.append(path)
    content: dict[str, Any] = {}
    for document in _parse_kustomization(path):
        content.update(document.object)
    if set(content) - _PLAIN_KEYS:
        watched.extend(p for p in folder.rglob("*") if p.suffix in _SUFFIXES)
        return _parse(_build(folder, set(content) - _PLAIN_KEYS), f"kustomize build {folder}")
    documents: list[Document] = []
    for entry in content.get("resources") or []:
        if not isinstance(entry, str) or "://" in entry:
            return _parse(_build(folder, {"resources"}), f"kustomize build {folder}")
        target = folder / entry
        if target.is_dir():
            documents += _kustomization(target, watched)
        else:
            watched.append(target)
            documents += _parse(_read(target), str(target))
    return documents


def _parse_kustomization(path: Path) -> list[Document]:
    try:
        return load_documents(_read(path), str(path))
    except YamlError as exc:
        raise CliError(str(exc), exit_code=ExitCode.USAGE) from exc


def _build(folder: Path, reasons: set[str]) -> str:
    """The output of the first builder on the PATH."""
    for command in (["kubectl", "kustomize", str(folder)], ["kustomize", "build", str(folder)]):
        if shutil.which(command[0]) is None:
            continue
        finished = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed program with the user's folder
        if finished.returncode != 0:
            cause = finished.stderr.strip().splitlines() or ["no message"]
            raise CliError(f"{' '.join(command)}: {cause[-1]}", exit_code=ExitCode.USAGE)
        return finished.stdout
    raise CliError(
        f"{folder}: this kustomization uses {', '.join(sorted(reasons))}, which needs kustomize",
        hint="install kubectl or kustomize, or list plain files under resources only",
        exit_code=ExitCode.USAGE,
    )


def _check_objects(documents: Sequence[Document]) -> None:
    """Refuse what no server could place: an object without version, kind or name."""
    for document in documents:
        obj = document.object
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            metadata = {}
        missing = [key for key in ("apiVersion", "kind") if not isinstance(obj.get(key), str)]
        if not metadata.get("name") and not metadata.get("generateName"):
            missing.append("metadata.name")
        if missing:
            raise CliError(
                f"{document.source}:{document.line}: this object has no {' and no '.join(missing)}",
                exit_code=ExitCode.USAGE,
            )
