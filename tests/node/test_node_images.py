import re
from collections.abc import Iterator
from typing import Any

import pytest

from kthena.local.engine.commandline import config_from_command
from kthena.local.node.environment import (
    PodFacts,
    References,
    container_environment,
    expand,
)
from kthena.local.node.images import _ENGINES as ENGINES
from kthena.local.node.images import (
    BUILTIN_ENTRIES,
    ContainerFacts,
    ImageMapError,
    ImageNotMappedError,
    find_entry,
    parse_image_map,
    resolve,
)
from support.corpus import corpus_objects

PYTHON = "/usr/bin/python3"


def facts(image: str, *args: str, command: tuple[str, ...] = (), **fields: Any) -> ContainerFacts:
    return ContainerFacts(image, "c", "p-0", "ns", "127.2.0.9", command, args, **fields)


def entries(document: Any) -> Any:
    return (*parse_image_map(document, "map.yaml"), *BUILTIN_ENTRIES)


@pytest.mark.parametrize(
    ("image", "pattern"),
    [
        ("nginx", "nginx*"),
        ("nginx", "nginx:latest"),
        ("docker.io/library/nginx:1.25", "nginx:*"),
        ("docker.io/library/nginx:1.25", "docker.io/*"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("a/b@sha256:00", "a/b@*"),
    ],
)
def test_a_pattern_matches_the_image_as_written_or_in_short(image: str, pattern: str) -> None:
    entry = find_entry(image, parse_image_map({pattern: ["true"]}, "m"))
    assert entry is not None


@pytest.mark.parametrize(
    ("image", "pattern"), [("mynginx", "nginx*"), ("a/b@sha256:00", "*:latest")]
)
def test_a_pattern_covers_the_whole_image(image: str, pattern: str) -> None:
    assert find_entry(image, parse_image_map({pattern: ["true"]}, "m")) is None


def test_the_first_match_wins_and_the_user_comes_first() -> None:
    found = entries({"vllm/*": ["echo", "mine"], "*": ["echo", "any"]})

    assert resolve(facts("vllm/vllm-openai:v1"), found, PYTHON).argv == ("echo", "mine")
    assert resolve(facts("other"), found, PYTHON).argv == ("echo", "any")


def test_an_unmapped_image_says_how_to_map_it() -> None:
    with pytest.raises(ImageNotMappedError, match=re.escape('"nginx*": ["PROGRAM", "{args}"]')):
        resolve(facts("docker.io/library/nginx:1.25"), BUILTIN_ENTRIES, PYTHON)


def test_placeholders() -> None:
    template = [
        "{python}", "-m", "http.server", "{port}", "--bind={address}", "{container}@{pod}.{namespace}",
        "{image}", "{mount:/models}/x", "{env:A}{env:NONE}", "{{literal}}", "{args}",
    ]  # fmt: skip
    found = entries({"nginx*": template})
    given = facts("nginx", "-v", "b c", port=8080, env={"A": "1"}, mounts={"/models": "/data/m"})

    assert resolve(given, found, PYTHON).argv == (
        PYTHON, "-m", "http.server", "8080", "--bind=127.2.0.9", "c@p-0.ns", "nginx", "/data/m/x", "1",
        "{literal}", "-v", "b c",
    )  # fmt: skip


def test_the_pods_own_command_or_the_images_entrypoint() -> None:
    found = entries({"x": {"command": ["{command}", "{args}"], "entrypoint": ["run", "it"]}})

    assert resolve(facts("x", "-a"), found, PYTHON).argv == ("run", "it", "-a")
    own = resolve(facts("x", "-a", command=("sh", "-c")), found, PYTHON)
    assert own.argv == ("sh", "-c", "-a")
    assert own.entry.exec_allowed
    with pytest.raises(ImageNotMappedError, match="gives no command"):
        resolve(facts("y"), entries({"y": ["{command}", "{args}"]}), PYTHON)
    with pytest.raises(ImageNotMappedError, match="mounts nothing at /models"):
        resolve(facts("y"), entries({"y": ["{mount:/models}"]}), PYTHON)


def test_host_commands_are_allowed_only_where_the_map_says_so() -> None:
    plain, own, given = parse_image_map(
        {"a": ["true", "{args}"], "b": ["{command}"], "c": {"command": ["true"], "exec": True}}, "m"
    )

    assert (plain.exec_allowed, own.exec_allowed, given.exec_allowed) == (False, True, True)
    assert not any(entry.exec_allowed for entry in BUILTIN_ENTRIES)


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], "map.yaml: an image map is an object"),
        ({"a": "true"}, "map.yaml: a: must be a list of words or an object"),
        ({"a": []}, "a: command must not be empty"),
        ({"a": [["x"]]}, "a: command must be a list of words"),
        ({"a": {"run": ["x"]}}, "a: unknown field 'run'"),
        ({"a": {}}, "a: must have either command or builtin"),
        ({"a": {"builtin": "vllm", "command": ["x"]}}, "either command or builtin"),
        ({"a": {"builtin": "tgi"}}, "a: builtin must be one of vllm, sglang"),
        ({"a": ["{adress}"]}, "a: placeholder {adress} is not known; there are {python}"),
        ({"a": ["x{args}"]}, "a: placeholder {args} stands alone as a word"),
        ({"a": ["{env}"]}, "placeholder {env} is not known"),
        ({"a": ["{x"]}, "lone brace"),
        ({"a": {"command": ["x"], "env": ["y"]}}, "a: env must be an object"),
        ({"a": {"command": ["x"], "exec": "yes"}}, "a: exec must be true or false"),
    ],
)
def test_a_map_that_is_wrong_is_refused_with_the_entry(document: Any, text: str) -> None:
    with pytest.raises(ImageMapError, match=re.escape(text)):
        parse_image_map(document, "map.yaml")


def test_numbers_in_yaml_are_words() -> None:
    (entry,) = parse_image_map({"a": {"command": ["x", 8080], "env": {"N": 5}}}, "m")
    assert entry.command == ("x", "8080")
    assert entry.env == {"N": "5"}


@pytest.mark.parametrize(
    ("image", "module", "port"),
    [
        ("ghcr.io/faust-benchou/dynamo-mocker-vllm:latest", "kthena.local.engine", 8000),
        ("ghcr.io/faust-benchou/dynamo-mocker-sglang:v1", "kthena.local.engine", 30000),
        ("vllm/vllm-openai:v0.13.0", "kthena.local.engine", 8000),
        ("docker.io/lmsysorg/sglang:latest", "kthena.local.engine", 30000),
        ("ghcr.io/volcano-sh/downloader:latest", "kthena.local.node.standins.downloader", 0),
        ("kthena/downloader:latest", "kthena.local.node.standins.downloader", 0),
        ("ghcr.io/volcano-sh/runtime:latest", "kthena.local.node.standins.runtime", 9000),
        ("rayproject/ray:2.9", "kthena.local.node.standins.ray", 0),
    ],
)
def test_built_in_images(image: str, module: str, port: int) -> None:
    program = resolve(facts(image, env={"MODEL_NAME": "m"}), BUILTIN_ENTRIES, PYTHON)

    assert program.argv[:4] == (PYTHON, "-I", "-m", module)
    assert program.port == port


def test_the_runtime_listens_where_it_is_told() -> None:
    image = "ghcr.io/volcano-sh/runtime:latest"
    assert resolve(facts(image, "--port", "8900"), BUILTIN_ENTRIES, PYTHON).port == 8900
    assert resolve(facts(image, "--port=8100"), BUILTIN_ENTRIES, PYTHON).port == 8100


def test_an_engine_image_with_another_command_is_not_run() -> None:
    given = facts("vllm/vllm-openai", command=("sleep", "1"))
    with pytest.raises(ImageNotMappedError, match="runs no command line of an engine"):
        resolve(given, BUILTIN_ENTRIES, PYTHON)


def containers(subfolder: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every container of a folder of the corpus, with the file it is from."""

    def walk(node: Any) -> Iterator[dict[str, Any]]:
        if isinstance(node, dict):
            for name, value in node.items():
                if name in {"containers", "initContainers"} and isinstance(value, list):
                    yield from value
                else:
                    yield from walk(value)
        elif isinstance(node, list):
            for item in node:
                yield from walk(item)

    for file, obj in corpus_objects(subfolder):
        if obj["kind"] in {"ModelServing", "Deployment"}:
            for container in walk(obj):
                yield file, container


USERS_OWN = {"nginx", "ghcr.io/stefanprodan/podinfo:6.12.0"}


@pytest.mark.corpus
@pytest.mark.parametrize("folder", ["modelserving", "networking", "autoscaling"])
def test_every_image_of_the_corpus_is_mapped_or_a_users_own(folder: str) -> None:
    pod = {"metadata": {"name": "p-0", "namespace": "ns"}, "spec": {}}
    downward = PodFacts(pod, "127.2.0.9", "node", "127.2.0.1")
    seen = engines = 0
    for file, container in containers(folder):
        seen += 1
        image = container["image"]
        if image in USERS_OWN:
            assert find_entry(image, BUILTIN_ENTRIES) is None, image
            continue
        env = container_environment(container, downward, References())
        env |= {"ENTRY_ADDRESS": "e.ns", "GROUP_SIZE": "2", "WORKER_INDEX": "0"}
        given = facts(
            image,
            *(expand(word, env) for word in container.get("args", ())),
            command=tuple(expand(word, env) for word in container.get("command", ())),
            env=env,
        )
        program = resolve(given, BUILTIN_ENTRIES, PYTHON)
        if "kthena.local.engine" in program.argv:
            engines += 1
            assert program.entry.builtin in ENGINES
            argv = program.argv[program.argv.index("--") + 1 :]
            made = config_from_command(argv, env, ENGINES[program.argv[5]])
            assert made.port == program.port
            assert made.models[0] not in {"", "mock-model"}, f"{file}: {container['name']}"
    print(f"corpus {folder}: {seen} containers, {engines} engines")
    assert seen
