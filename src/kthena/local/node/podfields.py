"""What the node does with every field of a PodSpec: honour it, ignore it and say so, or refuse it.

The table is the whole truth: a test compares it with the PodSpec schema of the API, the reference
page prints it, and `judge` reads it. A field that is ignored is named in an event of the pod
unless it has its default value; one that is refused keeps the pod's containers from being started.
Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Treatment: TypeAlias = Literal["honoured", "ignored", "refused"]


@dataclass(frozen=True, slots=True)
class FieldRule:
    """One row: a path below PodSpec (`[]` for list items), what happens, and how or why.

    `silent` are values that need no event: the defaults that the API server fills in.
    """

    path: str
    treatment: Treatment
    note: str
    silent: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a PodSpec asks for that it does not get: paths of ignored fields, texts of refusals."""

    ignored: tuple[str, ...]
    refused: tuple[str, ...]


_ISOLATION = "processes run as the user of the node, without isolation beyond their mounts"
_PLACEMENT = "there is one node; it takes every pod of the schedulers it was given"
_VOLUME = "there is no such storage here; use emptyDir, hostPath or a claim"


def _rules(treatment: Treatment, note: str, *paths: str) -> Iterator[FieldRule]:
    for path in paths:
        yield FieldRule(path, treatment, note)


_POD: Final = (
    FieldRule("activeDeadlineSeconds", "honoured", "the pod fails with `DeadlineExceeded`"),
    FieldRule("affinity", "ignored", _PLACEMENT),
    FieldRule("automountServiceAccountToken", "ignored", "there are no tokens for pods", (True, False)),
    FieldRule("dnsConfig", "ignored", "names come from the hosts file, then from the host's resolver"),
    FieldRule(
        "dnsPolicy", "ignored", "as `dnsConfig`", ("ClusterFirst", "Default", "ClusterFirstWithHostNet")
    ),
    FieldRule("enableServiceLinks", "ignored", "service variables are not made", (True, False)),
    FieldRule("ephemeralContainers", "ignored", "no container can be added to a running pod", ([],)),
    FieldRule("hostAliases", "honoured", "lines of the pod's hosts file"),
    *_rules("honoured", "always so: the host's processes are not hidden", "hostIPC", "hostPID"),
    FieldRule("hostNetwork", "ignored", "every pod has its own loopback address", (False,)),
    FieldRule("hostUsers", "ignored", _ISOLATION, (True,)),
    FieldRule("hostname", "honoured", "host name of the processes, and name below a headless Service"),
    FieldRule("hostnameOverride", "honoured", "host name of the processes"),
    FieldRule("imagePullSecrets", "ignored", "no image is pulled", ([],)),
    FieldRule("nodeName", "honoured", "the node runs the pods that are bound to it"),
    FieldRule("nodeSelector", "ignored", _PLACEMENT),
    FieldRule("os", "honoured", "anything but `linux` is refused"),
    FieldRule("overhead", "ignored", "resources are not enforced"),
    FieldRule("preemptionPolicy", "ignored", _PLACEMENT, ("PreemptLowerPriority", "Never")),
    FieldRule("priority", "ignored", _PLACEMENT, (0,)),
    FieldRule("priorityClassName", "ignored", _PLACEMENT),
    FieldRule("readinessGates", "honoured", "the pod is Ready when these conditions are True too"),
    FieldRule("resourceClaims", "ignored", "there are no devices to claim", ([],)),
    FieldRule("resources", "ignored", "resources are not enforced"),
    FieldRule("restartPolicy", "honoured", "with the kubelet's back-off, 10 s to 5 min"),
    FieldRule("runtimeClassName", "ignored", "there is no container runtime"),
    FieldRule("schedulerName", "honoured", "the node schedules for the names that it was given"),
    FieldRule("schedulingGates", "honoured", "a gated pod is not bound"),
    FieldRule("securityContext", "ignored", _ISOLATION, ({},)),
    *_rules("honoured", "for the downward API; it gives no rights", "serviceAccount", "serviceAccountName"),
    FieldRule("setHostnameAsFQDN", "ignored", "the host name is the short one", (False,)),
    FieldRule("shareProcessNamespace", "honoured", "always so: the host's processes are not hidden"),
    FieldRule("subdomain", "honoured", "with `hostname`, a name below the headless Service"),
    FieldRule("terminationGracePeriodSeconds", "honoured", "then SIGKILL; less when the node stops"),
    FieldRule("tolerations", "honoured", "the node has no taints"),
    FieldRule("topologySpreadConstraints", "ignored", _PLACEMENT, ([],)),
    FieldRule("workloadRef", "ignored", _PLACEMENT),
)  # fmt: skip

_CONTAINER: Final = (
    FieldRule("args", "honoured", "with `$(VAR)`; what runs is decided by the image map"),
    FieldRule("command", "honoured", "with `$(VAR)`; what runs is decided by the image map"),
    FieldRule("env", "honoured", "values, fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef"),
    FieldRule("envFrom", "honoured", "ConfigMaps and Secrets"),
    FieldRule("image", "honoured", "by the image map; without an entry the container waits with `ErrImagePull`"),
    FieldRule("imagePullPolicy", "ignored", "no image is pulled", ("Always", "IfNotPresent", "Never")),
    FieldRule("lifecycle", "honoured", "postStart, preStop and stopSignal; exec only where the image map allows it"),
    *_rules(
        "honoured",
        "httpGet and tcpSocket; grpc as a connection to the port; exec only where the image map "
        "allows it, otherwise left out with an event",
        "livenessProbe", "readinessProbe", "startupProbe",
    ),
    FieldRule("name", "honoured", "name of the log directory"),
    FieldRule("ports", "honoured", "names for probes, and `{port}` in the image map; hostPort means nothing"),
    FieldRule("resizePolicy", "ignored", "resources are not enforced", ([],)),
    FieldRule("resources", "ignored", "resources are not enforced; the downward API sees them", ({},)),
    FieldRule("restartPolicy", "honoured", "`Always` on an init container makes a sidecar"),
    FieldRule("restartPolicyRules", "refused", "restart rules by exit code are not implemented"),
    FieldRule("securityContext", "ignored", _ISOLATION, ({},)),
    *_rules("ignored", "standard input is empty and no terminal", "stdin", "stdinOnce", "tty"),
    FieldRule("terminationMessagePath", "ignored", "no message file is read", ("/dev/termination-log",)),
    FieldRule("terminationMessagePolicy", "ignored", "no message file is read", ("File",)),
    FieldRule("volumeDevices", "refused", "there are no block devices"),
    FieldRule("volumeMounts", "honoured", "in a private mount namespace; see Volumes"),
    FieldRule("workingDir", "honoured", "made in the pod's own view where the host lacks it"),
)  # fmt: skip

_VOLUMES: Final = (
    FieldRule("name", "honoured", "referred to by volumeMounts"),
    FieldRule("configMap", "honoured", "as it is when the pod starts"),
    FieldRule("downwardAPI", "honoured", "as it is when the pod starts"),
    FieldRule("emptyDir", "honoured", "a directory below the data directory; medium and sizeLimit mean nothing"),
    FieldRule("hostPath", "honoured", "a directory below the data directory in its place"),
    FieldRule("persistentVolumeClaim", "honoured", "a directory for each claim below the data directory"),
    FieldRule("projected", "honoured", "configMap, secret and downwardAPI sources; tokens and bundles are left out"),
    FieldRule("secret", "honoured", "as it is when the pod starts"),
    *_rules(
        "refused", _VOLUME,
        "awsElasticBlockStore", "azureDisk", "azureFile", "cephfs", "cinder", "csi", "ephemeral", "fc",
        "flexVolume", "flocker", "gcePersistentDisk", "gitRepo", "glusterfs", "image", "iscsi", "nfs",
        "photonPersistentDisk", "portworxVolume", "quobyte", "rbd", "scaleIO", "storageos",
        "vsphereVolume",
    ),
)  # fmt: skip

CONTAINER_LISTS: Final = ("containers", "initContainers")

RULES: Final[tuple[FieldRule, ...]] = (
    *_POD,
    *(
        FieldRule(f"{name}[].{rule.path}", rule.treatment, rule.note, rule.silent)
        for name in CONTAINER_LISTS
        for rule in _CONTAINER
    ),
    *(FieldRule(f"volumes[].{rule.path}", rule.treatment, rule.note) for rule in _VOLUMES),
)
"""Every field of a PodSpec."""


def judge(spec: Mapping[str, Any]) -> Judgement:
    """What the node ignores or refuses of `spec`."""
    ignored: list[str] = []
    refused: list[str] = []
    for rule in RULES:
        if rule.treatment == "honoured":
            continue
        for path, value in _values(spec, rule.path):
            if value is None or value in rule.silent:
                continue
            if rule.treatment == "refused":
                refused.append(f"spec.{path} is not supported by the local node: {rule.note}")
            else:
                ignored.append(path)
    system = (spec.get("os") or {}).get("name", "linux")
    if system != "linux":
        refused.append(
            f"spec.os.name {system} is not supported by the local node: it is a Linux host"
        )
    return Judgement(tuple(ignored), tuple(refused))


def _values(spec: Mapping[str, Any], path: str) -> Iterator[tuple[str, Any]]:
    """The values at a path of the table, each with its own path."""
    head, brackets, rest = path.partition("[].")
    if not brackets:
        if path in spec:
            yield path, spec[path]
        return
    for item in spec.get(head) or ():
        if rest in item:
            yield f"{head}[{item.get('name')}].{rest}", item[rest]


def render_table() -> str:
    """The table as Markdown; the container rows stand for `containers` and `initContainers`."""
    lines = ["| Field | Treatment | How |", "|---|---|---|"]
    for rule in RULES:
        if rule.path.startswith("initContainers"):
            continue
        treatment = "ignored, with an event" if rule.treatment == "ignored" else rule.treatment
        lines.append(f"| `{rule.path}` | {treatment} | {rule.note} |")
    return "\n".join(lines) + "\n"
