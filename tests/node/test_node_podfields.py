import re
from pathlib import Path
from typing import Any

import pytest

import kthena.local.engine.config
from kthena.api.openapi import pod_spec_schema
from kthena.local.node.images import BUILTIN_ENTRIES, PLACEHOLDERS
from kthena.local.node.podfields import CONTAINER_LISTS, RULES, judge, render_table
from support.corpus import corpus_objects

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "local-mode.md"


def schema_paths() -> set[str]:
    """Every field of a PodSpec; below containers and volumes every field of those."""
    spec = pod_spec_schema()
    paths = set()
    for name, node in spec["properties"].items():
        if name in {*CONTAINER_LISTS, "volumes"}:
            paths |= {f"{name}[].{inner}" for inner in node["items"]["properties"]}
        else:
            paths.add(name)
    return paths


def test_the_table_has_every_field_of_the_api_once() -> None:
    paths = [rule.path for rule in RULES]

    assert len(paths) == len(set(paths))
    assert set(paths) == schema_paths()


def test_the_reference_page_has_the_table() -> None:
    assert render_table() in DOCS.read_text(encoding="utf-8")


def test_the_reference_page_names_what_the_code_knows() -> None:
    text = DOCS.read_text(encoding="utf-8")
    engine = Path(kthena.local.engine.config.__file__).read_text(encoding="utf-8")
    variables = {v for v in re.findall(r"KTHENA_ENGINE_[A-Z_]+", engine) if not v.endswith("_")}

    for placeholder in PLACEHOLDERS:
        assert f"`{placeholder}`" in text
    for entry in BUILTIN_ENTRIES:
        assert f"`{entry.pattern}`" in text
    for variable in variables:
        suffix = "_" + variable.removeprefix("KTHENA_ENGINE_")
        assert f"`{variable}`" in text or f"`{suffix}`" in text


def test_an_ordinary_pod_loses_nothing() -> None:
    spec = {
        "containers": [{"name": "c", "image": "x", "imagePullPolicy": "Always", "resources": {},
                        "terminationMessagePath": "/dev/termination-log",
                        "terminationMessagePolicy": "File"}],
        "restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "securityContext": {},
        "schedulerName": "default-scheduler", "enableServiceLinks": True, "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority", "terminationGracePeriodSeconds": 30,
        "tolerations": [{"key": "x"}], "serviceAccountName": "default", "nodeName": "n",
    }  # fmt: skip
    found = judge(spec)

    assert found.ignored == ()
    assert found.refused == ()


@pytest.mark.parametrize(
    ("spec", "ignored"),
    [
        ({"nodeSelector": {"a": "b"}}, "nodeSelector"),
        ({"hostNetwork": True}, "hostNetwork"),
        ({"containers": [{"name": "c", "tty": True}]}, "containers[c].tty"),
        (
            {"initContainers": [{"name": "i", "resources": {"limits": {}}}]},
            "initContainers[i].resources",
        ),
    ],
)
def test_what_is_ignored_is_named(spec: Any, ignored: str) -> None:
    assert judge(spec).ignored == (ignored,)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"volumes": [{"name": "v", "nfs": {"server": "x"}}]},
            "spec.volumes[v].nfs is not supported",
        ),
        (
            {"containers": [{"name": "c", "volumeDevices": [{}]}]},
            "spec.containers[c].volumeDevices",
        ),
        ({"os": {"name": "windows"}}, "spec.os.name windows"),
    ],
)
def test_what_is_refused_is_named(spec: Any, text: str) -> None:
    (refused,) = judge(spec).refused
    assert refused.startswith(text)


@pytest.mark.corpus
def test_no_manifest_of_the_corpus_is_refused() -> None:
    pods = 0
    for folder in ("modelserving", "networking", "autoscaling"):
        for file, obj in corpus_objects(folder):
            if obj["kind"] == "Deployment":
                templates = [obj["spec"]["template"]]
            elif obj["kind"] == "ModelServing":
                roles = obj["spec"]["template"]["roles"]
                templates = [
                    r[t] for r in roles for t in ("entryTemplate", "workerTemplate") if t in r
                ]
            else:
                continue
            for template in templates:
                pods += 1
                assert judge(template["spec"]).refused == (), file
    print(f"corpus: {pods} pod templates")
    assert pods
