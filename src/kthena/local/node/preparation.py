"""What a pod and each start of a container need: address, directories, names, variables, program.

`NodeContext` is what all pods of a node share. `PodPreparation` is made once in a pod's life on the
node, when its volumes can be had; it then prepares every start, reading the ConfigMaps and Secrets
of variables anew.
"""

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kthena.api.kubernetes import CONFIG_MAPS, SECRETS, SERVICES
from kthena.api.workload.names import ENV_ENTRY_ADDRESS
from kthena.kube.client import KubeClient
from kthena.kube.clock import wait_for
from kthena.kube.errors import ApiError, NotFound
from kthena.kube.events import EventRecorder
from kthena.local.node.addresses import AddressPool
from kthena.local.node.config import DataDirs, NodeConfig
from kthena.local.node.environment import (
    ConfigError,
    Needed,
    PodFacts,
    References,
    container_environment,
    expand,
    needed_references,
)
from kthena.local.node.images import BUILTIN_ENTRIES, ContainerFacts, Program, resolve
from kthena.local.node.names import CONTAINER_ID_SCHEME, ENV_ADDRESS, ENV_MOUNTS, ENV_POD
from kthena.local.node.observer import Prepared
from kthena.local.node.processes import Mount, Namespace, ProcessSpec
from kthena.local.node.resolution import HostsTable
from kthena.local.node.timekeeping import Timekeeping
from kthena.local.node.volumes import (
    VolumePlan,
    VolumeRoots,
    materialise,
    needed_by_volumes,
    plan_mounts,
    plan_volumes,
)
from kthena.machinery.objects import NamespacedName, Object, name_of, namespace_of, uid_of

_MAX_HOSTNAME: Final = 63
_HOSTS: Final = "/etc/hosts"
_ENTRY_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the pods of a node share.

    `namespace` is how private mounts are had on this host, `limit` why there are none.
    """

    config: NodeConfig
    client: KubeClient
    time: Timekeeping
    events: EventRecorder
    pool: AddressPool
    hosts: HostsTable
    namespace: Namespace
    limit: str
    allocatable: Mapping[str, str]

    @property
    def dirs(self) -> DataDirs:
        """The layout of the data directory."""
        return DataDirs(self.config.data_dir)

    @property
    def address(self) -> str:
        """The node's own address."""
        return self.pool.node_address

    def facts(self, pod: Object, address: str) -> PodFacts:
        """What a pod knows of itself and of the node that it is bound to."""
        node_name = str((pod.get("spec") or {}).get("nodeName") or self.config.name)
        return PodFacts(pod, address, node_name, self.address, self.allocatable)

    def release(self, uid: str) -> None:
        """Take back what a pod held."""
        self.hosts.remove_file(uid)
        self.pool.release(uid)

    async def prepare_pod(self, pod: Object) -> "PodPreparation":
        """Address, volumes and hosts file of a pod. An address that it had already is kept.

        Raises:
            ConfigError: a volume needs an object that does not exist.
            AddressesExhausted: no address is free.
        """
        uid = uid_of(pod)
        self.pool.reserve(uid, str((pod.get("status") or {}).get("podIP") or ""))
        address = self.pool.address_of(uid)
        facts = self.facts(pod, address)
        references = await self.read(needed_by_volumes(pod))
        roots = VolumeRoots(self.dirs.pod(uid) / "volumes", self.dirs.claims, self.dirs.host)
        volumes = plan_volumes(pod.get("spec") or {}, facts, references, roots)
        materialise(volumes)
        self.hosts.add_file(uid, self.dirs.hosts_file(uid), pod, address, own_names(pod))
        await self._await_entry(pod)
        if self.limit:
            text = (
                "no private mounts on this host, so names of Services do not resolve and volumes are "
                f"found through {ENV_MOUNTS} only: {self.limit}"
            )
            self.events.record(pod, "Warning", "LimitedByHost", text)
        for volume in volumes:
            if volume.notice:
                self.events.record(pod, "Normal", "VolumeReplaced", volume.notice)
        return PodPreparation(self, address, volumes)

    async def _await_entry(self, pod: Object) -> None:
        """Wait for a while until the pod's processes can resolve the entry of their role instance.

        Its Service is there before the pods, but word of it, and of the entry pod's address, may come
        after the word of this pod; a program that looks the name up at its start would fail.
        """
        name = entry_service(pod)
        if name is None:
            return
        try:
            service = await self.client.get(SERVICES, name.name, name.namespace)
        except ApiError:
            return
        self.hosts.set_service(name, service)
        with contextlib.suppress(TimeoutError):
            await wait_for(self.time.wall, self.hosts.resolved(name), _ENTRY_S)

    async def read(self, needed: Needed) -> References:
        """The ConfigMaps and Secrets that are needed, as far as they exist.

        Raises:
            ConfigError: one cannot be read now.
        """
        found: dict[str, dict[str, Object]] = {"maps": {}, "secrets": {}}
        for kind, resource, keys in (
            ("maps", CONFIG_MAPS, needed.config_maps),
            ("secrets", SECRETS, needed.secrets),
        ):
            for key in keys:
                try:
                    found[kind][key.name] = await self.client.get(resource, key.name, key.namespace)
                except NotFound:
                    continue
                except ApiError as error:
                    raise ConfigError(f"{resource} {key} cannot be read: {error}") from error
        return References(found["maps"], found["secrets"])


class PodPreparation:
    """Prepares the starts of one pod's containers."""

    def __init__(self, node: NodeContext, address: str, volumes: Sequence[VolumePlan]) -> None:
        self.address = address
        self._node = node
        self._volumes = volumes

    async def prepare(self, pod: Object, container: Mapping[str, Any], attempt: int) -> Prepared:
        """What one start needs.

        Raises:
            ConfigError: a required object, key or field is missing.
            ImageNotMappedError: no program stands for the image.
        """
        node = self._node
        references = await node.read(needed_references(pod, [container]))
        facts = node.facts(pod, self.address)
        variables = container_environment(container, facts, references)
        mounts = plan_mounts(container, self._volumes, variables)
        start = _Start(node, self.address, pod, container, variables, mounts)
        program = start.program()
        return Prepared(
            program=program,
            process=start.process(program, attempt),
            address=self.address,
            container_id=f"{CONTAINER_ID_SCHEME}{uuid.uuid4().hex}",
        )


@dataclass(frozen=True, slots=True)
class _Start:
    """One start of a container: what is known of it, and what follows for its process."""

    node: NodeContext
    address: str
    pod: Object
    container: Mapping[str, Any]
    variables: Mapping[str, str]
    mounts: Sequence[Mount]

    def program(self) -> Program:
        """The program that stands for the image."""
        ports: Sequence[Mapping[str, Any]] = self.container.get("ports") or ({},)
        facts = ContainerFacts(
            image=str(self.container.get("image") or ""),
            name=str(self.container.get("name")),
            pod=name_of(self.pod),
            namespace=namespace_of(self.pod),
            address=self.address,
            command=self._words("command"),
            args=self._words("args"),
            env=self.variables,
            port=int(ports[0].get("containerPort") or 0),
            mounts={mount.target: mount.source for mount in self.mounts},
        )
        config = self.node.config
        return resolve(facts, (*config.image_map, *BUILTIN_ENTRIES), config.python)

    def process(self, program: Program, attempt: int) -> ProcessSpec:
        """The process of the program; directories and the log's folder are made."""
        node, uid, name = self.node, uid_of(self.pod), str(self.container.get("name"))
        own = node.dirs.pod(uid)
        scratch, staging = own / "work" / name, own / "staging"
        log = node.dirs.log(uid, name, attempt)
        for folder in (scratch, staging, log.parent):
            folder.mkdir(parents=True, exist_ok=True)
        mounts = [*self.mounts, Mount(str(node.dirs.hosts_file(uid)), _HOSTS)]
        directory = os.path.normpath(str(self.container.get("workingDir") or scratch))
        if not _exists(directory, self.mounts):
            if node.namespace:
                mounts.append(Mount(str(scratch), directory))
            else:
                directory = str(scratch)
        return ProcessSpec(
            container_id=f"{node.config.data_dir}:{uid}/{name}/{attempt}",
            argv=program.argv,
            environment=self._environment(program),
            directory=directory,
            log=str(log),
            namespace=node.namespace,
            hostname=hostname(self.pod),
            staging=str(staging),
            mounts=tuple(mounts) if node.namespace else (),
        )

    def _words(self, field: str) -> tuple[str, ...]:
        return tuple(expand(str(word), self.variables) for word in self.container.get(field) or ())

    def _environment(self, program: Program) -> dict[str, str]:
        """The node's base, the pod's variables, the image map's, the node's own, in this order."""
        inherited = {name: os.environ[name] for name in program.entry.inherit if name in os.environ}
        return {
            **self.node.config.environment,
            "HOSTNAME": hostname(self.pod),
            **self.variables,
            **inherited,
            **program.env,
            ENV_ADDRESS: self.address,
            ENV_POD: name_of(self.pod),
            ENV_MOUNTS: ":".join(f"{mount.target}={mount.source}" for mount in self.mounts),
        }


def entry_service(pod: Object) -> NamespacedName | None:
    """The Service that a pod's containers have in `ENTRY_ADDRESS`."""
    for container in (pod.get("spec") or {}).get("containers") or ():
        for variable in container.get("env") or ():
            if variable.get("name") == ENV_ENTRY_ADDRESS:
                name, _, namespace = str(variable.get("value") or "").partition(".")
                return NamespacedName(namespace, name) if name and namespace else None
    return None


def hostname(pod: Object) -> str:
    """The host name of the pod's processes."""
    spec = pod.get("spec") or {}
    return str(spec.get("hostnameOverride") or spec.get("hostname") or name_of(pod))[:_MAX_HOSTNAME]


def own_names(pod: Object) -> list[str]:
    """The names by which a pod knows itself."""
    spec = pod.get("spec") or {}
    name = hostname(pod)
    if not spec.get("subdomain"):
        return [name]
    return [f"{name}.{spec['subdomain']}.{namespace_of(pod)}.svc.cluster.local", name]


def _exists(directory: str, mounts: Sequence[Mount]) -> bool:
    """Whether a working directory is there: on the host, or in a volume, where it is made."""
    for mount in sorted(mounts, key=lambda mount: len(mount.target), reverse=True):
        if f"{directory}/".startswith(f"{mount.target}/"):
            place = Path(mount.source) / directory[len(mount.target) :].lstrip("/")
            place.mkdir(parents=True, exist_ok=True)
            return True
    return Path(directory).is_dir()
