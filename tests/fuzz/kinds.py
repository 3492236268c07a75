"""The kinds that sequences use: where their objects are, and what can be written into them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fuzz.definitions import GADGETS, GROUP

_NETWORKING = "/apis/networking.serving.volcano.sh/v1alpha1"
_WORKLOAD = "/apis/workload.serving.volcano.sh/v1alpha1"


class Field(NamedTuple):
    """A place in an object, values that it may have, and values that it may not."""

    path: str
    valid: Sequence[Any]
    invalid: Sequence[Any] = ()

    @property
    def names(self) -> list[str]:
        """The names on the way; a `/` within a name is written `~1`."""
        return [name.replace("~1", "/") for name in self.path.split("/")]


@dataclass(frozen=True)
class FuzzKind:
    """A kind. `base` is the least that is valid, without its metadata."""

    api: str
    plural: str
    kind: str
    base: Mapping[str, Any]
    fields: Sequence[Field]
    status: Sequence[Field] = ()
    scale: bool = False
    custom: bool = False
    weight: int = 2
    namespaced: bool = True
    selectable: Sequence[str] = ("metadata.name",)
    lists: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    """Strategic merge patches of lists."""

    @property
    def version(self) -> str:
        """The `apiVersion`."""
        return self.api.removeprefix("/apis/").removeprefix("/api/")

    def collection(self, namespace: str) -> str:
        """Where its objects are."""
        scope = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"{self.api}{scope}/{self.plural}"


def _container(name: str = "main", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "busybox:1", **more}


_ENV = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
_PORTS = [{"containerPort": 80}, {"containerPort": 80, "protocol": "UDP", "name": "u"}]
_CONTAINERS = [
    [_container()],
    [_container(env=_ENV)],
    [_container(image="busybox:2", ports=_PORTS)],
    [_container(), _container("side", command=["sleep"], args=["1"])],
    [
        _container(
            resources={"limits": {"cpu": "1500m", "memory": "1024Mi"}, "requests": {"cpu": 1}}
        )
    ],
    [_container(readinessProbe={"httpGet": {"path": "/", "port": 80}, "periodSeconds": 3})],
    [_container(imagePullPolicy="Never", envFrom=[{"configMapRef": {"name": "a"}}])],
]
_BAD_CONTAINERS = [
    [],
    [{"image": "x"}],
    [{"name": "Main", "image": "x"}],
    [_container(), _container()],
    [_container(ports=[{"containerPort": 0}])],
    [_container(ports=[{"containerPort": 80, "protocol": "HTTP"}])],
    [_container(env=[{"name": "a b=c", "value": "1"}])],
    [_container(env=[{"value": "1"}])],
    [_container(resources={"limits": {"cpu": "-1"}})],
    [_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}})],
    [_container(resources={"limits": {"cpu": "x"}})],
    [_container(volumeMounts=[{"name": "none", "mountPath": "/x"}])],
    [_container(imagePullPolicy="Sometimes")],
    [_container(bogus=1)],
    {"name": "x"},
    "x",
]
_POD_LISTS: Sequence[Mapping[str, Any]] = (
    {"containers": [{"name": "main", "image": "busybox:3"}]},
    {"containers": [{"name": "side", "image": "busybox:3"}]},
    {"containers": [{"name": "side", "$patch": "delete"}]},
    {
        "containers": [
            {"name": "main", "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]}
        ]
    },
    {"containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]},
    {
        "containers": [
            {"name": "main", "ports": [{"containerPort": 80, "protocol": "UDP", "name": "v"}]}
        ]
    },
    {
        "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
        "containers": [{"name": "side", "image": "busybox:4"}, {"name": "main"}],
    },
    {"tolerations": [{"key": "a", "operator": "Exists"}]},
    {"containers": [{"image": "nameless"}]},
    {"containers": [{"$patch": "replace"}, {"name": "only", "image": "busybox:5"}]},
)
_POD_FIELDS = (
    Field("spec/containers", _CONTAINERS, _BAD_CONTAINERS),
    Field("spec/initContainers", [[_container("init")]], [[_container("main")], [_container("i", bogus=1)]]),
    Field("spec/terminationGracePeriodSeconds", [0, 5, 30], [-1, "x", 1.5]),
    Field("spec/volumes", [[{"name": "v", "emptyDir": {}}], [{"name": "c", "configMap": {"name": "a"}}]],
          [[{"name": "V"}], [{"name": "v"}, {"name": "v"}], [{"emptyDir": {}}], [{"name": "v", "emptyDir": {}, "secret": {"secretName": "x"}}]]),
    Field("spec/tolerations", [[{"key": "k", "operator": "Exists"}], [{"key": "k", "value": "v", "effect": "NoSchedule"}]],
          [[{"key": "k", "operator": "Sometimes"}], [{"operator": "Equal", "value": "x"}]]),
    Field("spec/nodeSelector", [{"disk": "ssd"}], [{"a b": "c"}, {"a": "b c"}]),
    Field("spec/hostname", ["host"], ["Host_"]),
    Field("spec/serviceAccountName", ["robot"], ["Robot!"]),
    Field("spec/securityContext", [{"runAsUser": 1000}, {"fsGroup": 5}], [{"bogus": 1}]),
    Field("spec/automountServiceAccountToken", [True, False], ["yes"]),
)  # fmt: skip
_TEMPLATES = [
    {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}
    for containers in _CONTAINERS
]
_BAD_TEMPLATES = [
    {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers}}
    for containers in _BAD_CONTAINERS
] + [
    {"metadata": {"labels": {"app": "zzz"}}, "spec": {"containers": _CONTAINERS[0]}},
    {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": _CONTAINERS[0], "restartPolicy": "Never"},
    },
    {"spec": {"containers": _CONTAINERS[0]}},
]
_WORKLOAD_BASE = {"spec": {"selector": {"matchLabels": {"app": "a"}}, "template": _TEMPLATES[0]}}
_SELECTORS = Field(
    "spec/selector",
    [{"matchLabels": {"app": "a"}}],
    [
        {"matchLabels": {"app": "b"}},
        {},
        {"matchExpressions": [{"key": "app", "operator": "Is"}]},
        {"matchExpressions": [{"key": "app", "operator": "In"}]},
        {"matchLabels": {"a b": "c"}},
    ],
)
_CONDITIONS = [
    [{"type": "Ready", "status": "True", "reason": "Fine"}],
    [{"type": "Ready", "status": "False"}, {"type": "Other", "status": "Unknown"}],
]

CONFIG_MAPS = FuzzKind(
    "/api/v1", "configmaps", "ConfigMap", {},
    (
        Field("data/k1", ["", "v", "w", "${ns}"], [5, ["x"], {"a": "b"}, True, None]),
        Field("data/k2", ["x", "y"]),
        Field("data", [{"k3": "z"}], [[], "x", {"a b": "c"}, {"..": "x"}]),
        Field("binaryData/b", ["AA==", "AQI="], ["!", "A", 5]),
        Field("binaryData", [{"k9": "AA=="}], [{"k1": "AA=="}]),
        Field("immutable", [False], ["yes", 1]),
        Field("immutable", [True]),
    ),
    weight=4,
)  # fmt: skip
SECRETS = FuzzKind(
    "/api/v1", "secrets", "Secret", {},
    (
        Field("stringData/k1", ["", "v"], [5]),
        Field("data/k2", ["AA==", "AQI="], ["!", 7]),
        Field("type", ["Opaque", "x/y"], ["kubernetes.io/tls", "kubernetes.io/basic-auth", 5]),
        Field("immutable", [False], ["no"]),
    ),
    selectable=("metadata.name", "type"),
)  # fmt: skip
SERVICES = FuzzKind(
    "/api/v1", "services", "Service", {"spec": {"clusterIP": "None"}},
    (
        Field("spec/ports", [[{"port": 80}], [{"name": "a", "port": 80}, {"name": "b", "port": 81, "targetPort": "http"}],
                             [{"port": 53, "protocol": "UDP", "targetPort": 53}]],
              [[{"port": 0}], [{"port": 70000}], [{"port": 80}, {"port": 81}], [{"port": 80, "protocol": "X"}], [{}], "x",
               [{"name": "A_", "port": 80}], [{"name": "a", "port": 80}, {"name": "a", "port": 81}],
               [{"port": 80, "targetPort": "Not A Name"}]]),
        Field("spec/selector/app", ["a", "b"], [5, "a b"]),
        Field("spec/publishNotReadyAddresses", [True, False], ["x"]),
        Field("spec/sessionAffinity", ["None"], ["Sticky", 5]),
        Field("spec/internalTrafficPolicy", ["Cluster", "Local"], ["Global"]),
        Field("spec/type", ["ClusterIP"], ["Bogus"]),
        Field("spec/externalTrafficPolicy", [], ["Local"]),
        Field("spec/clusterIP", ["None"], ["none", "1.2.3.4.5"]),
    ),
    status=(Field("status/loadBalancer/ingress", [[{"ip": "1.2.3.4"}], [{"hostname": "a.b"}]], [[{"ip": "x"}], 5]),),
    lists=(
        {"spec": {"ports": [{"port": 80, "name": "c"}]}},
        {"spec": {"ports": [{"port": 81, "$patch": "delete"}]}},
        {"spec": {"ports": [{"port": 82}], "$setElementOrder/ports": [{"port": 82}, {"port": 80}]}},
        {"spec": {"$retainKeys": ["ports", "clusterIP", "type"], "ports": [{"port": 83}]}},
    ),
    selectable=("metadata.name", "spec.type", "spec.clusterIP"),
)  # fmt: skip
PODS = FuzzKind(
    "/api/v1", "pods", "Pod", {"spec": {"containers": [_container()]}},
    (
        *_POD_FIELDS,
        Field("spec/restartPolicy", ["Always", "Never", "OnFailure"], ["Sometimes"]),
        Field("spec/activeDeadlineSeconds", [10, 100], [0, -5]),
        Field("spec/nodeName", ["node-a"], ["Node!"]),
        Field("spec/schedulerName", ["other"]),
        Field("spec/schedulingGates", [[{"name": "a/gate"}]], [[{"name": "bad gate"}]]),
    ),
    status=(
        Field("status/phase", ["Running", "Succeeded", "Failed", "Pending"], [5]),
        Field("status/conditions", _CONDITIONS, ["x", [{"type": 5}]]),
        Field("status/podIP", ["10.1.2.3"], [["x"]]),
        Field("status/podIPs", [[{"ip": "10.1.2.3"}]], ["x"]),
        Field("status/message", ["text"], [5]),
        Field("status/observedGeneration", [1, 2], ["x"]),
        Field("status/containerStatuses", [[{"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0,
              "state": {"running": {"startedAt": "2024-01-01T00:00:00Z"}}}]], [[{"name": 5}]]),
    ),
    lists=tuple({"spec": entry} for entry in _POD_LISTS),
    selectable=("metadata.name", "status.phase", "spec.nodeName", "spec.restartPolicy"),
    weight=3,
)  # fmt: skip
DEPLOYMENTS = FuzzKind(
    "/apis/apps/v1", "deployments", "Deployment", _WORKLOAD_BASE,
    (
        _SELECTORS,
        Field("spec/template", _TEMPLATES, _BAD_TEMPLATES),
        Field("spec/replicas", [0, 1, 3], [-1, "x", 1.5, 1.0, 3_000_000_000]),
        Field("spec/strategy", [{"type": "Recreate"}, {"type": "RollingUpdate"},
                                {"rollingUpdate": {"maxSurge": "30%", "maxUnavailable": 0}}],
              [{"type": "Bogus"}, {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
               {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}, {"rollingUpdate": {"maxSurge": "x%"}}]),
        Field("spec/minReadySeconds", [0, 5], [-1, 700]),
        Field("spec/paused", [True, False], ["x"]),
        Field("spec/progressDeadlineSeconds", [600, 60], [-1, 0]),
        Field("spec/revisionHistoryLimit", [2, 0], [-3]),
        *(Field(f"spec/template/{entry.path}", entry.valid, entry.invalid) for entry in _POD_FIELDS),
    ),
    status=(
        Field("status/replicas", [1, 2], [-1, "x"]),
        Field("status/readyReplicas", [0, 1], [-1]),
        Field("status/observedGeneration", [1, 2], [-1]),
        Field("status/conditions", _CONDITIONS, ["x"]),
    ),
    scale=True,
    lists=(
        *({"spec": {"template": {"spec": entry}}} for entry in _POD_LISTS),
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"$patch": "replace", "type": "Recreate"}}},
    ),
)  # fmt: skip
REPLICA_SETS = FuzzKind(
    "/apis/apps/v1", "replicasets", "ReplicaSet", _WORKLOAD_BASE,
    (
        _SELECTORS,
        Field("spec/template", _TEMPLATES, _BAD_TEMPLATES),
        Field("spec/replicas", [0, 1, 3], [-1, "x"]),
        Field("spec/minReadySeconds", [0, 5], [-1]),
    ),
    status=(
        Field("status/replicas", [1, 2], [-1]),
        Field("status/fullyLabeledReplicas", [0, 1], [-1, 9]),
        Field("status/observedGeneration", [1, 2], [-1]),
        Field("status/conditions", _CONDITIONS, ["x"]),
    ),
    scale=True,
    weight=1,
)  # fmt: skip
LEASES = FuzzKind(
    "/apis/coordination.k8s.io/v1", "leases", "Lease", {},
    (
        Field("spec/holderIdentity", ["a", "b", ""], [5]),
        Field("spec/leaseDurationSeconds", [15, 30], [0, -1, "x"]),
        Field("spec/renewTime", ["2024-01-01T00:00:00.000000Z", "2024-01-01T00:00:00.123456Z"], ["2024", 5, "x"]),
        Field("spec/acquireTime", ["2024-01-01T00:00:00.500000Z"], ["now", "2024-01-01T00:00:00.5Z"]),
        Field("spec/leaseTransitions", [0, 3], [-1]),
        Field("spec/strategy", [], ["OldestEmulationVersion", "x"]),
    ),
)  # fmt: skip
EVENTS = FuzzKind(
    "/api/v1", "events", "Event", {"involvedObject": {"namespace": "{ns}"}},
    (
        Field("involvedObject", [{"namespace": "{ns}", "kind": "Pod", "name": "a"}], [{}, {"namespace": "other"}]),
        Field("reason", ["Started", "Killed"], [5]),
        Field("message", ["text", "other"], [{}]),
        Field("type", ["Normal", "Warning"], [7]),
        Field("count", [1, 2], ["x"]),
        Field("source", [{"component": "c"}], ["x"]),
        Field("firstTimestamp", ["2024-01-01T00:00:00Z"], ["x"]),
        Field("eventTime", ["2024-01-01T00:00:00.000000Z"], ["x"]),
        Field("reportingComponent", ["a/b"], [5]),
        Field("action", ["Do"], [5]),
    ),
    selectable=("metadata.name", "reason", "type", "involvedObject.kind", "source"),
)  # fmt: skip
NEW_EVENTS = FuzzKind(
    "/apis/events.k8s.io/v1", "events", "Event",
    {
        "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "a/b", "reportingInstance": "i",
        "action": "Do", "reason": "Why", "type": "Normal", "regarding": {"namespace": "{ns}", "kind": "Pod"},
    },
    (
        Field("note", ["text", "other"], [5, "x" * 1100]),
        Field("reason", ["Started", "Killed"], ["", "x" * 200]),
        Field("type", ["Normal", "Warning"], ["Odd"]),
        Field("action", ["Do"], [""]),
        Field("series", [{"count": 2, "lastObservedTime": "2024-01-01T00:00:00.000000Z"}], [{"count": 1}]),
        Field("reportingController", ["a/b"], ["not a name"]),
        Field("deprecatedCount", [], [5]),
    ),
    selectable=("metadata.name", "reason", "type", "regarding.kind", "reportingController"),
    weight=1,
)  # fmt: skip
CONTROLLER_REVISIONS = FuzzKind(
    "/apis/apps/v1", "controllerrevisions", "ControllerRevision", {"data": {"a": 1}, "revision": 1},
    (
        Field("revision", [1, 2, 3], [-1, "x", 1.5]),
        Field("data", [{"a": 1}], [{"a": [1, 2.5, None, "x"]}, None, 5]),
    ),
)  # fmt: skip
SERVICE_ACCOUNTS = FuzzKind(
    "/api/v1", "serviceaccounts", "ServiceAccount", {},
    (
        Field("secrets", [[{"name": "a"}, {"name": "b"}], [{"name": "a"}]], ["x", [5]]),
        Field("imagePullSecrets", [[{"name": "a"}]], [[{"bogus": "x"}]]),
        Field("automountServiceAccountToken", [True, False], ["x"]),
    ),
    lists=({"secrets": [{"name": "c"}]}, {"secrets": [{"name": "a", "$patch": "delete"}]}, {"imagePullSecrets": [{"name": "z"}]}),
)  # fmt: skip
NAMESPACES = FuzzKind(
    "/api/v1", "namespaces", "Namespace", {},
    (
        Field("spec/finalizers", [["kubernetes"]], [["bad finalizer!"], "x"]),
        Field("metadata/labels/kubernetes.io~1metadata.name", [], ["other"]),
    ),
    status=(Field("status/phase", ["Active"], ["Terminating", 5]),),
    namespaced=False,
    weight=1,
    selectable=("metadata.name", "status.phase"),
)  # fmt: skip

_MAP_ITEMS = [
    [{"name": "a"}],
    [{"name": "a", "value": "x"}, {"name": "b", "port": 81}],
    [{"name": "b", "value": None}],
]
_GADGET_FIELDS = (
    Field("spec/replicas", [0, 2, 5], [-1, 101, "x", 1.5, None]),
    Field("spec/size", [2, 4], [0, 3, "x", 1.5]),
    Field("spec/ratio", [0.5, 1, 2.0], [0, -1, "x"]),
    Field("spec/color", ["red", "green"], ["blue", 5]),
    Field("spec/name", ["abc"], ["ABC", "abcdefg", 5]),
    Field("spec/timeout", ["5s", "1h"], ["5", "x", 5]),
    Field("spec/at", ["2024-01-01T00:00:00Z"], ["yesterday"]),
    Field("spec/port", [80, "http"], [1.5, True, {}]),
    Field("spec/note", ["n", None], [5]),
    Field("spec/fixed", ["a"], ["b"]),
    Field("spec/map", _MAP_ITEMS, [[{"name": "a"}, {"name": "a"}], [{"value": "x"}], [{"name": "x" * 9}], {}, [5]]),
    Field("spec/ports", [[{"name": "a"}, {"name": "a", "port": 81}]], [[{"name": "a"}, {"name": "a", "port": 80}]]),
    Field("spec/atoms", _MAP_ITEMS, [[{"name": 5}]]),
    Field("spec/plain", _MAP_ITEMS, [[{"bogus": 5}]]),
    Field("spec/set", [["a", "b"], ["b"], []], [["a", "a"], ["toolong"], [5], ["a", "a", "b", "b"]]),
    Field("spec/labels", [{"a": "b"}, {}], [{"a": 5}, {"a": "1", "b": "2", "c": "3", "d": "4"}]),
    Field("spec/whole", [{"a": "1"}, {"a": "2", "b": "3"}], [{"c": "4"}]),
    Field("spec/free", [{"x": {"y": [1, None, 2.5]}}], [[], 5]),
    Field("spec/nested", [{}, {"flag": True}, {"inner": {}}], [{"level": "x"}, None]),
    Field("spec/low", [1, 5], ["x"]),
    Field("spec/high", [5, 9], [0]),
    # A merge with another alternative would be wrong, and of several mistakes the order is that of a map.
    Field("spec/one", [{"a": "1"}, {"a": "2"}], [{}, {"a": "1", "b": "1"}]),
    Field("spec/bogus", [], [1, {"x": 1}]),
)  # fmt: skip
GADGET_KIND = FuzzKind(
    f"/apis/{GROUP}/v1", GADGETS, "Gadget", {"spec": {}}, _GADGET_FIELDS,
    status=(
        Field("status/phase", ["New", "Done"], ["Odd", 5]),
        Field("status/replicas", [1, 2], ["x"]),
        Field("status/selector", ["a=b"], [5]),
        Field("status/conditions", _CONDITIONS, [[{"type": "A"}], [{"type": "A", "status": "1"}, {"type": "A", "status": "2"}]]),
        Field("status/bogus", [], [1]),
    ),
    scale=True,
    custom=True,
    weight=5,
    selectable=("metadata.name", "spec.color"),
)  # fmt: skip
MODEL_ROUTES = FuzzKind(
    _NETWORKING, "modelroutes", "ModelRoute",
    {"spec": {"modelName": "m", "rules": [{"name": "r", "targetModels": [{"modelServerName": "a"}]}]}},
    (
        # It never changes: of several rules that are broken a real server tells in the order of a map.
        Field("spec/modelName", ["m"], ["n", 5, ""]),
        Field("spec/rules", [[{"name": "r", "targetModels": [{"modelServerName": "b", "weight": 3}, {"modelServerName": "c", "weight": 7}]}]],
              [[], [{"name": "r"}], [{"name": "r", "targetModels": []}], [{"targetModels": [{"weight": 101}]}]]),
        Field("spec/loraAdapters", [["x"], ["x", "y"]], [["x", "x"], "x"]),
        Field("spec/rateLimit", [{"inputTokensPerUnit": 10, "unit": "minute"}], [{"unit": "year"}]),
    ),
    status=(Field("status/observedGeneration", [1], ["x"]),),
    custom=True,
)  # fmt: skip
MODEL_SERVERS = FuzzKind(
    _NETWORKING, "modelservers", "ModelServer",
    {"spec": {"inferenceEngine": "vLLM", "workloadSelector": {"matchLabels": {"a": "b"}}, "workloadPort": {"port": 8000}}},
    (
        Field("spec/inferenceEngine", ["vLLM", "SGLang"], ["other", 5]),
        Field("spec/model", ["m"], [5]),
        Field("spec/workloadPort", [{"port": 80}, {"port": 81, "protocol": "http"}], [{"port": 0}, {"port": 70000}, {}]),
        Field("spec/workloadSelector", [{"matchLabels": {"a": "c"}}], [{}, {"matchLabels": {}}]),
        Field("spec/trafficPolicy", [{"timeout": "5s"}, {"timeout": "1m0s", "retry": {"attempts": 2}}],
              [{"timeout": "x"}, {"timeout": "-1s"}, {"retry": {"attempts": -1}}]),
    ),
    custom=True,
)  # fmt: skip


def _role(name: str, **more: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [_container()]}}
    return {"name": name, "replicas": 1, "workerReplicas": 0, "entryTemplate": template, **more}


MODEL_SERVINGS = FuzzKind(
    _WORKLOAD, "modelservings", "ModelServing",
    {"spec": {"replicas": 1, "schedulerName": "default-scheduler", "template": {"roles": [_role("a")]}}},
    (
        Field("spec/replicas", [0, 1, 3], [-1, "x"]),
        Field("spec/template/roles", [[_role("a")], [_role("a"), _role("b", replicas=2)]],
              [[], [_role("a"), _role("a")], [_role("A")], [_role("a", replicas=-1)], [{"name": "a"}]]),
        Field("spec/schedulerName", ["default-scheduler", "volcano"], [5]),
        Field("spec/recoveryPolicy", ["ServingGroupRecreate", "RoleRecreate", "None"], ["Odd"]),
        Field("spec/rolloutStrategy", [{"type": "ServingGroupRollingUpdate", "rollingUpdateConfiguration": {"maxUnavailable": 1}}],
              [{"type": "Odd"}, {"rollingUpdateConfiguration": {"maxUnavailable": "x"}}]),
        Field("spec/template/restartGracePeriodSeconds", [0, 5], [-1]),
    ),
    status=(
        Field("status/replicas", [1, 2], ["x"]),
        Field("status/conditions", [[{"type": "Ready", "status": "True", "reason": "R", "message": "",
              "lastTransitionTime": "2024-01-01T00:00:00Z"}]], _CONDITIONS),
    ),
    scale=True,
    custom=True,
)  # fmt: skip

KINDS = (
    CONFIG_MAPS, SECRETS, SERVICES, PODS, DEPLOYMENTS, REPLICA_SETS, LEASES, EVENTS, NEW_EVENTS,
    CONTROLLER_REVISIONS, SERVICE_ACCOUNTS, NAMESPACES, GADGET_KIND, MODEL_ROUTES, MODEL_SERVERS,
    MODEL_SERVINGS,
)  # fmt: skip
