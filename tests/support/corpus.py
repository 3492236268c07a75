"""The corpus of real manifests, and Kthena's own CRDs beside it; both are outside the repository."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

_REPOSITORY = Path(__file__).resolve().parent.parent.parent


def corpus_root() -> Path:
    """Where the corpus is expected: `KTHENA_CORPUS`, or `../shared/corpus` beside the checkout."""
    configured = os.environ.get("KTHENA_CORPUS")
    return Path(configured) if configured else _REPOSITORY.parent / "shared" / "corpus"


def require_corpus() -> Path:
    """The corpus folder. Without it the test is skipped, or fails where it must be there."""
    root = corpus_root()
    if root.is_dir():
        return root
    reason = f"no corpus at {root}; set KTHENA_CORPUS"
    if os.environ.get("KTHENA_REQUIRE_CORPUS") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


def corpus_files(subfolder: str) -> list[Path]:
    """The manifests of one folder of the corpus, sorted; skips or fails as `require_corpus`."""
    return sorted((require_corpus() / subfolder).glob("*.yaml"))


def corpus_objects(subfolder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """File name and object, for every document of every manifest of one folder."""
    for path in corpus_files(subfolder):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document:
                yield path.name, document


def reference_crd(name: str) -> dict[str, Any] | None:
    """Kthena's own CRD of that name, or None where the reference is not at hand."""
    path = corpus_root().parent / "reference" / "crds" / f"{name}.json"
    if not path.is_file():
        return None
    crd: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return crd


def require_reference_crd(name: str) -> dict[str, Any]:
    """Kthena's own CRD of that name; skips or fails as `require_corpus`."""
    require_corpus()
    crd = reference_crd(name)
    if crd is None:
        pytest.fail(f"the corpus is there, but not the CRD {name} of the reference beside it")
    return crd
