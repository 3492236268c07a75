import base64
import stat
from pathlib import Path
from typing import Any

import pytest

from kthena.local.node.environment import ConfigError, PodFacts, References
from kthena.local.node.processes import Mount
from kthena.local.node.volumes import (
    VolumeRoots,
    materialise,
    needed_by_volumes,
    plan_mounts,
    plan_volumes,
)
from kthena.machinery.objects import NamespacedName

MAP = {"kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "b": "2"}}
SECRET = {
    "kind": "Secret",
    "metadata": {"name": "s"},
    "data": {"k": base64.b64encode(b"x").decode()},
}
POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "ns", "labels": {"app": "x"}},
    "spec": {},
}


def plan(root: Path, *volumes: Any, containers: Any = ()) -> Any:
    facts = PodFacts(POD, "127.2.0.9", "node", "127.2.0.1")
    roots = VolumeRoots(root / "pod", root / "claims", root / "host")
    spec = {"volumes": list(volumes), "containers": list(containers)}
    made = plan_volumes(spec, facts, References({"m": MAP}, {"s": SECRET}), roots)
    materialise(made)
    return made


def content(path: Path) -> dict[str, str]:
    return {str(f.relative_to(path)): f.read_text() for f in path.rglob("*") if f.is_file()}


def test_plain_directories_lie_below_the_data_directory(tmp_path: Path) -> None:
    empty, host, claim = plan(
        tmp_path,
        {"name": "e", "emptyDir": {"medium": "Memory"}},
        {"name": "h", "hostPath": {"path": "/srv/.cache/../models/"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
    )

    assert empty.path == tmp_path / "pod" / "e"
    assert host.path == tmp_path / "host" / "srv" / "models"
    assert claim.path == tmp_path / "claims" / "ns" / "data"
    assert all(volume.path.is_dir() for volume in (empty, host, claim))
    assert "/srv/models" in host.notice


def test_a_host_file_is_an_empty_file(tmp_path: Path) -> None:
    (made,) = plan(tmp_path, {"name": "f", "hostPath": {"path": "/etc/hccn.conf", "type": "File"}})
    assert made.path.read_bytes() == b""
    with pytest.raises(ConfigError, match="type Socket"):
        plan(tmp_path, {"name": "f", "hostPath": {"path": "/x", "type": "Socket"}})


def test_a_host_path_cannot_leave_the_data_directory(tmp_path: Path) -> None:
    (made,) = plan(tmp_path, {"name": "h", "hostPath": {"path": "/../../../etc"}})
    assert made.path == tmp_path / "host" / "etc"


def test_objects_become_files(tmp_path: Path) -> None:
    every, some, secret = plan(
        tmp_path,
        {"name": "every", "configMap": {"name": "m"}},
        {
            "name": "some",
            "configMap": {
                "name": "m",
                "defaultMode": 0o400,
                "items": [{"key": "b", "path": "d/b", "mode": 0o600}, {"key": "a", "path": "a"}],
            },
        },
        {"name": "secret", "secret": {"secretName": "s"}},
    )

    assert content(every.path) == {"a": "1", "b": "2"}
    assert content(some.path) == {"d/b": "2", "a": "1"}
    assert stat.S_IMODE((some.path / "d" / "b").stat().st_mode) == 0o600
    assert stat.S_IMODE((some.path / "a").stat().st_mode) == 0o400
    assert content(secret.path) == {"k": "x"}


def test_old_files_go_when_the_pod_starts_again(tmp_path: Path) -> None:
    volume = {"name": "v", "configMap": {"name": "m"}}
    (made,) = plan(tmp_path, volume)
    (made.path / "old").write_text("x")
    plan(tmp_path, volume)

    assert content(made.path) == {"a": "1", "b": "2"}


def test_the_downward_api_and_projections(tmp_path: Path) -> None:
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    cpu = {"path": "cpu", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu"}}
    sources = [
        {"configMap": {"name": "m", "items": [{"key": "a", "path": "a"}]}},
        {"secret": {"name": "s"}},
        {"downwardAPI": {"items": [labels]}},
        {"serviceAccountToken": {"path": "token"}},
    ]
    plain, projected = plan(
        tmp_path,
        {"name": "d", "downwardAPI": {"items": [labels, cpu]}},
        {"name": "p", "projected": {"sources": sources}},
        containers=[{"name": "c", "resources": {"limits": {"cpu": "2"}}}],
    )

    assert content(plain.path) == {"labels": 'app="x"', "cpu": "2"}
    assert content(projected.path) == {"a": "1", "k": "x", "labels": 'app="x"'}
    assert "serviceAccountToken" in projected.notice


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        ({"name": "v", "configMap": {"name": "gone"}}, 'configmap "gone" not found'),
        ({"name": "v", "secret": {"secretName": "gone"}}, 'secret "gone" not found'),
        (
            {"name": "v", "configMap": {"name": "m", "items": [{"key": "x", "path": "x"}]}},
            "non-existent configmap key: x",
        ),
        (
            {"name": "v", "configMap": {"name": "m", "items": [{"key": "a", "path": "../a"}]}},
            "leaves the volume",
        ),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, volume: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan(tmp_path, volume)


def test_an_optional_object_may_be_missing(tmp_path: Path) -> None:
    (made,) = plan(tmp_path, {"name": "v", "secret": {"secretName": "gone", "optional": True}})
    assert content(made.path) == {}


def test_mounts(tmp_path: Path) -> None:
    volumes = plan(
        tmp_path, {"name": "e", "emptyDir": {}}, {"name": "m", "configMap": {"name": "m"}}
    )
    container = {
        "volumeMounts": [
            {"name": "e", "mountPath": "/models/"},
            {"name": "e", "mountPath": "/sub", "subPathExpr": "$(POD)/x", "readOnly": True},
            {"name": "m", "mountPath": "/config"},
        ]
    }

    mounts = plan_mounts(container, volumes, {"POD": "p-0"})

    base = tmp_path / "pod"
    assert mounts == (
        Mount(str(base / "e"), "/models", read_only=False),
        Mount(str(base / "e" / "p-0" / "x"), "/sub", read_only=True),
        Mount(str(base / "m"), "/config", read_only=True),
    )
    assert (base / "e" / "p-0" / "x").is_dir()


@pytest.mark.parametrize(
    ("mount", "text"),
    [
        ({"name": "none", "mountPath": "/x"}, "'none' names no volume"),
        ({"name": "e", "mountPath": "x"}, "is not absolute"),
        ({"name": "e", "mountPath": "/x", "subPath": "../y"}, "leaves the volume"),
        ({"name": "e", "mountPath": "/x", "subPath": "/y"}, "leaves the volume"),
    ],
)
def test_a_wrong_mount_is_refused(tmp_path: Path, mount: Any, text: str) -> None:
    volumes = plan(tmp_path, {"name": "e", "emptyDir": {}})
    with pytest.raises(ConfigError, match=text):
        plan_mounts({"volumeMounts": [mount]}, volumes, {})


def test_objects_that_volumes_need() -> None:
    volumes = [
        {"configMap": {"name": "a"}},
        {"secret": {"secretName": "b"}},
        {"projected": {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "d"}}]}},
        {"emptyDir": {}},
    ]
    needed = needed_by_volumes({**POD, "spec": {"volumes": volumes}})

    assert needed.config_maps == {NamespacedName("ns", "a"), NamespacedName("ns", "c")}
    assert needed.secrets == {NamespacedName("ns", "b"), NamespacedName("ns", "d")}
