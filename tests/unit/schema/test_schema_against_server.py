"""The golden vectors, asked again of a real API server.

With KTHENA_UPDATE_GOLDENS=1 the answers of the server replace those in the files; so vectors are
added by writing them without an answer.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.golden_schemas import FOLDERS, Case, differences, read, refusal, write
from support.schema_server import SchemaServer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

_FILES = [path for folder in FOLDERS for path in sorted(folder.glob("*.json"))]
_UPDATES = os.environ.get("KTHENA_UPDATE_GOLDENS") == "1"


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[SchemaServer]:
    """The server under test: that of the variable, or one that is started for the tests."""
    path = os.environ.get("KUBECONFIG_UNDER_TEST")
    server = SchemaServer(
        Path(path) if path else request.getfixturevalue("real_apiserver").kubeconfig
    )
    yield server
    server.close()


@pytest.mark.parametrize("path", _FILES, ids=lambda path: f"{path.parent.parent.name}-{path.stem}")
def test_the_server_and_the_code_agree_with_the_file(server: SchemaServer, path: Path) -> None:
    content = read(path)
    stale = [*_ask_refused(server, content), *_ask_resources(server, content, path.stem)]
    if _UPDATES:
        write(path, content)
        stale = []
    assert stale == []


def _ask_refused(server: SchemaServer, content: Case) -> Iterator[str]:
    for case in content.get("refused", []):
        causes = server.refusal(case)
        if case.get("causes") != causes:
            yield f"the file is stale: {case['schema']}: {causes}"
        if refusal(case) != causes:
            yield f"the code differs: {case['schema']}: {refusal(case)} instead of {causes}"
        case["causes"] = causes


def _ask_resources(server: SchemaServer, content: Case, name: str) -> Iterator[str]:
    for index, resource in enumerate(content.get("resources", [])):
        answers = server.answers(resource, f"{name}{index}")
        for vector, answer in zip(resource["writes"], answers, strict=True):
            if vector.get("answer") != answer:
                yield f"the file is stale: {vector}: {answer}"
            vector["answer"] = answer
        yield from differences(resource, answers)
