"""Every block of the documentation is run, or checked against what it speaks of."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kthena.api.crd.published import published_crds
from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS
from kthena.cli.apply import apply_documents
from kthena.kube.client import ClientConfig, KubeClient
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.server import ApiServer
from kthena.local.node.images import parse_image_map
from kthena.machinery.yaml import load_documents
from support.programs import REPOSITORY, Workspace, until, workspace

PAGES = sorted(
    path
    for folder in ("docs", "examples", "benchmarks")
    for path in (REPOSITORY / folder).rglob("*.md")
) + sorted(REPOSITORY.glob("*.md"))
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#]+)(#[^)]*)?\)")


class Block(NamedTuple):
    page: Path
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(REPOSITORY)}:{self.language}"


BLOCKS = [
    Block(page, match[1], match[2])
    for page in PAGES
    for match in _FENCE.finditer(page.read_text(encoding="utf-8"))
]
_MANIFESTS = [b for b in BLOCKS if b.language == "yaml" and "apiVersion:" in b.text]
_IMAGE_MAPS = [b for b in BLOCKS if b.language == "yaml" and "apiVersion:" not in b.text]
_SCRIPTS = {
    page: [b.text for b in BLOCKS if b.page == page and b.language == "sh"]
    for page in dict.fromkeys(b.page for b in BLOCKS if b.language == "sh")
}


def test_every_block_has_a_language_that_is_checked() -> None:
    odd = [str(block) for block in BLOCKS if block.language not in {"yaml", "sh", "python", "text"}]
    # A table of layers in the architecture page is no code.
    assert [name for name in odd if not name.startswith("ARCHITECTURE.md")] == []
    assert len(_MANIFESTS) >= 3
    assert _IMAGE_MAPS
    assert _SCRIPTS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8"))
    for target, _ in _LINK.findall(prose):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page}: {target}"


@pytest.mark.parametrize("block", _IMAGE_MAPS, ids=str)
def test_image_maps_are_read(block: Block) -> None:
    for document in load_documents(block.text, str(block)):
        assert parse_image_map(document.object, str(block))


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("docs") / "workspace"
    folder.mkdir()
    with workspace(folder) as space:
        yield space
    space.until_nothing_left()


async def test_manifests_are_admitted_by_a_server(tmp_path: Path) -> None:
    server = ApiServer(ApiServerConfig())
    await server.start()
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(server.kubeconfig()))
    try:
        async with KubeClient.connect(ClientConfig(kubeconfig=kubeconfig)) as client:
            for crd in published_crds():
                await client.create(CUSTOM_RESOURCE_DEFINITIONS, crd)
            for block in _MANIFESTS:
                documents = load_documents(block.text, str(block))
                assert await apply_documents(client, documents, dry_run=True)
    finally:
        await server.stop()


@pytest.mark.parametrize("page", _SCRIPTS, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_commands_run(page: Path, space: Workspace, tmp_path: Path) -> None:
    """In the order of the page; a `kthena up` that stays runs beside what follows it."""
    for script in _SCRIPTS[page]:
        if script.startswith("kthena up") and " -- " not in script:
            _stay(space, script)
            continue
        here = script.replace("examples/", f"{REPOSITORY}/examples/")
        here = here.replace("127.0.0.1:8080", _router(space))
        done = subprocess.run(
            ["sh", "-eu", "-c", here],
            env=space.environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
        assert '"error"' not in done.stdout, f"{script}\n{done.stdout}"


def _stay(space: Workspace, script: str) -> None:
    arguments = script.split()
    port = arguments.index("--port")
    del arguments[port : port + 2]
    up = space.up(*arguments[2:])
    assert up.process.poll() is None

    def ready() -> bool:
        listed = json.loads(space.run("get", "mss,msv,mr", "-o", "json").stdout)["items"]
        return len(listed) == 3 and all(
            any(
                c["type"] == "Ready" and c["status"] == "True"
                for c in (item.get("status") or {}).get("conditions") or ()
            )
            for item in listed
        )

    until("three resources are ready", ready, report=space.logs)


def _router(space: Workspace) -> str:
    notes = list((space.folder / "state" / "kthena" / "local").glob("*.json"))
    if not notes:
        return "127.0.0.1:8080"
    (note,) = notes
    return str(json.loads(note.read_text())["router_url"]).removeprefix("http://")


def test_python_blocks_are_programs_that_a_test_runs() -> None:
    pages = [block.page.name for block in BLOCKS if block.language == "python"]
    assert pages == ["embedded-apiserver.md"]  # tests/apiserver/test_apiserver_docs.py


def test_the_readme_says_what_the_gate_runs() -> None:
    gate = (REPOSITORY / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^ {4}(\S.*)$", readme, re.MULTILINE)
    assert commands == ["make quickstart", "make test"]
    # `tests X` runs `make X`, and once more what has failed.
    ran = {line.replace("tests ", "make ", 1) for line in gate}
    assert set(commands) <= ran
