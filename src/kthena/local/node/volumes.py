"""Volumes of a pod: which directory stands for each, what is written into it, and where it appears.

Everything lies below the node's data directory: a hostPath becomes a directory there too, so that a
manifest never writes to the host. Contents are those of the pod's start and do not follow later
changes. `plan_volumes` is pure; `materialise` makes the directories and files.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from kthena.local.node.environment import (
    ConfigError,
    Needed,
    PodFacts,
    References,
    data_of,
    expand,
    field_value,
    resource_value,
)
from kthena.local.node.processes import Mount
from kthena.machinery.objects import NamespacedName, Object, namespace_of

_FILE_MODE: Final = 0o644
_HOST_FILES: Final = frozenset({"File", "FileOrCreate"})
_HOST_REFUSED: Final = frozenset({"Socket", "CharDevice", "BlockDevice"})


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """One volume: its place, and the files that it is filled with (None for a plain directory).

    `is_file` marks a hostPath that is a single file. `notice` is what the pod's user should know.
    """

    name: str
    path: Path
    files: Mapping[str, tuple[bytes, int]] | None = None
    is_file: bool = False
    notice: str = ""


@dataclass(frozen=True, slots=True)
class VolumeRoots:
    """The directories below the data directory: the pod's own, those of claims, those of hostPaths."""

    pod: Path
    claims: Path
    host: Path


@dataclass(slots=True)
class _Filling:
    """Files collected from the sources of one volume, and what could not be had."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


def plan_volumes(
    spec: Mapping[str, Any], facts: PodFacts, references: References, roots: VolumeRoots
) -> tuple[VolumePlan, ...]:
    """The volumes of a pod whose fields are not refused.

    Raises:
        ConfigError: an object or key that a volume needs is missing.
    """
    return tuple(
        _plan(volume, spec, facts, references, roots) for volume in spec.get("volumes") or ()
    )


def needed_by_volumes(pod: Object) -> Needed:
    """The ConfigMaps and Secrets that volumes refer to."""
    namespace = namespace_of(pod)
    maps: set[str] = set()
    secrets: set[str] = set()
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        maps.add((volume.get("configMap") or {}).get("name") or "")
        secrets.add((volume.get("secret") or {}).get("secretName") or "")
        for source in (volume.get("projected") or {}).get("sources") or ():
            maps.add((source.get("configMap") or {}).get("name") or "")
            secrets.add((source.get("secret") or {}).get("name") or "")
    return Needed(
        frozenset(NamespacedName(namespace, name) for name in maps if name),
        frozenset(NamespacedName(namespace, name) for name in secrets if name),
    )


def plan_mounts(
    container: Mapping[str, Any], volumes: Sequence[VolumePlan], variables: Mapping[str, str]
) -> tuple[Mount, ...]:
    """The mounts of a container; a sub-path that does not exist is made.

    Raises:
        ConfigError: a mount names no volume, or its sub-path leaves the volume.
    """
    by_name = {volume.name: volume for volume in volumes}
    mounts = []
    for mount in container.get("volumeMounts") or ():
        volume = by_name.get(str(mount.get("name")))
        if volume is None:
            raise ConfigError(f"volumeMount {mount.get('name')!r} names no volume of the pod")
        source = volume.path
        sub = str(mount.get("subPath") or expand(str(mount.get("subPathExpr") or ""), variables))
        if sub:
            path = PurePosixPath(sub)
            if path.is_absolute() or ".." in path.parts:
                raise ConfigError(f"subPath {sub!r} of volume {volume.name} leaves the volume")
            source = source / path
            if not source.exists():
                source.mkdir(parents=True)
        target = os.path.normpath(str(mount.get("mountPath")))
        if not target.startswith("/"):
            raise ConfigError(f"mountPath {target!r} of volume {volume.name} is not absolute")
        written = volume.files is None
        mounts.append(Mount(str(source), target, bool(mount.get("readOnly")) or not written))
    return tuple(mounts)


def materialise(volumes: Sequence[VolumePlan]) -> None:
    """Make the directories and files of a pod's volumes. Nothing of the pod runs yet."""
    for volume in volumes:
        if volume.files is not None:
            _write_files(volume.path, volume.files)
        elif volume.is_file:
            volume.path.parent.mkdir(parents=True, exist_ok=True)
            volume.path.touch()
        else:
            volume.path.mkdir(parents=True, exist_ok=True)


def _plan(
    volume: Mapping[str, Any],
    spec: Mapping[str, Any],
    facts: PodFacts,
    references: References,
    roots: VolumeRoots,
) -> VolumePlan:
    name = str(volume.get("name"))
    own = roots.pod / name
    if volume.get("hostPath") is not None:
        return _host_path(name, volume["hostPath"], roots.host)
    if volume.get("persistentVolumeClaim") is not None:
        claim = str(volume["persistentVolumeClaim"].get("claimName"))
        return VolumePlan(name, roots.claims / namespace_of(facts.pod) / claim)
    filling = _Filling()
    if volume.get("configMap") is not None:
        source = volume["configMap"]
        _fill_keys(
            filling, source, references.config_maps.get(str(source.get("name"))), "configmap"
        )
    elif volume.get("secret") is not None:
        source = {**volume["secret"], "name": volume["secret"].get("secretName")}
        _fill_keys(filling, source, references.secrets.get(str(source.get("name"))), "secret")
    elif volume.get("downwardAPI") is not None:
        _fill_downward(filling, volume["downwardAPI"], spec, facts)
    elif volume.get("projected") is not None:
        _fill_projected(filling, volume["projected"], spec, facts, references)
    else:
        return VolumePlan(name, own)
    return VolumePlan(name, own, filling.files, notice="; ".join(filling.notices))


def _host_path(name: str, source: Mapping[str, Any], root: Path) -> VolumePlan:
    path, kind = os.path.normpath(str(source.get("path"))), str(source.get("type") or "")
    if kind in _HOST_REFUSED:
        raise ConfigError(f"volume {name}: hostPath type {kind} is not supported by the local node")
    place = root / path.lstrip("/")
    notice = f"hostPath {path} is {place} here: the host's own is not used"
    return VolumePlan(name, place, is_file=kind in _HOST_FILES, notice=notice)


def _fill_projected(
    filling: _Filling,
    source: Mapping[str, Any],
    spec: Mapping[str, Any],
    facts: PodFacts,
    references: References,
) -> None:
    mode = source.get("defaultMode")
    for item in source.get("sources") or ():
        if item.get("configMap") is not None:
            part = {"defaultMode": mode, **item["configMap"]}
            obj = references.config_maps.get(str(part.get("name")))
            _fill_keys(filling, part, obj, "configmap")
        elif item.get("secret") is not None:
            part = {"defaultMode": mode, **item["secret"]}
            obj = references.secrets.get(str(part.get("name")))
            _fill_keys(filling, part, obj, "secret")
        elif item.get("downwardAPI") is not None:
            _fill_downward(filling, {"defaultMode": mode, **item["downwardAPI"]}, spec, facts)
        else:
            filling.notices.append(f"projected source {', '.join(item)} is left out")


def _fill_keys(filling: _Filling, source: Mapping[str, Any], obj: Object | None, kind: str) -> None:
    """All keys of a ConfigMap or Secret, or the listed ones under their paths."""
    optional = bool(source.get("optional"))
    if obj is None:
        if optional:
            return
        raise ConfigError(f'{kind} "{source.get("name")}" not found')
    values = data_of(obj, secret=kind == "secret")
    default_mode = source.get("defaultMode") or _FILE_MODE
    items = source.get("items")
    if items is None:
        filling.files.update({key: (value, default_mode) for key, value in values.items()})
        return
    for item in items:
        key = str(item.get("key"))
        if key in values:
            path = _inside(str(item.get("path")))
            filling.files[path] = (values[key], item.get("mode") or default_mode)
        elif not optional:
            raise ConfigError(f"references non-existent {kind} key: {key}")


def _fill_downward(
    filling: _Filling, source: Mapping[str, Any], spec: Mapping[str, Any], facts: PodFacts
) -> None:
    containers = {
        str(container.get("name")): container for container in spec.get("containers") or ()
    }
    default_mode = source.get("defaultMode") or _FILE_MODE
    for item in source.get("items") or ():
        if item.get("fieldRef") is not None:
            text = field_value(str(item["fieldRef"].get("fieldPath")), facts)
        else:
            reference = item.get("resourceFieldRef") or {}
            container = containers.get(str(reference.get("containerName")), {})
            text = resource_value(reference, container, facts)
        path = _inside(str(item.get("path")))
        filling.files[path] = (text.encode(), item.get("mode") or default_mode)


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise ConfigError(f"path {path!r} of a volume item leaves the volume")
    return path


def _write_files(directory: Path, files: Mapping[str, tuple[bytes, int]]) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for name, (content, mode) in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode & 0o777)
