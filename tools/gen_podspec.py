"""Writes the schemas of built-in kinds in `src/kthena/api/data` from a running kube-apiserver.

`kubernetes-openapi.json` holds the OpenAPI v3 component schemas, with their `x-kubernetes` extensions
and without descriptions, of the built-in kinds that local mode serves and of everything that they
refer to. It gives the PodSpec of the CRDs, and the embedded API server validates, merges and documents
by it. `kubernetes-descriptions.json.gz` holds the descriptions, which only documents show.

    python tools/gen_podspec.py --kubeconfig FILE --release 1.35.4

Only a server is a true source. Its release is an argument, since a server that is built from the
module proxy does not know it.
"""

import argparse
import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "src/kthena/api/data"
TARGET = DATA / "kubernetes-openapi.json"
DESCRIPTIONS = DATA / "kubernetes-descriptions.json.gz"

KINDS: dict[str, tuple[str, ...]] = {
    "v1": (
        "Binding", "ConfigMap", "ConfigMapList", "Event", "EventList", "Namespace",
        "NamespaceList", "Node", "NodeList", "PersistentVolumeClaim", "PersistentVolumeClaimList",
        "Pod", "PodList", "Secret", "SecretList", "Service", "ServiceAccount",
        "ServiceAccountList", "ServiceList", "Status",
    ),
    "admissionregistration.k8s.io/v1": (
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicyBindingList", "ValidatingAdmissionPolicyList",
    ),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition", "CustomResourceDefinitionList"),
    "apps/v1": (
        "ControllerRevision", "ControllerRevisionList", "Deployment", "DeploymentList",
        "ReplicaSet", "ReplicaSetList",
    ),
    "authentication.k8s.io/v1": ("SelfSubjectReview", "TokenRequest", "TokenReview"),
    "authorization.k8s.io/v1": (
        "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview",
        "SubjectAccessReview",
    ),
    "autoscaling/v1": ("Scale",),
    "autoscaling/v2": ("HorizontalPodAutoscaler", "HorizontalPodAutoscalerList"),
    "coordination.k8s.io/v1": ("Lease", "LeaseList"),
    "events.k8s.io/v1": ("Event", "EventList"),
    "networking.k8s.io/v1": ("NetworkPolicy", "NetworkPolicyList"),
    "policy/v1": ("Eviction", "PodDisruptionBudget", "PodDisruptionBudgetList"),
    "rbac.authorization.k8s.io/v1": (
        "ClusterRole", "ClusterRoleBinding", "ClusterRoleBindingList", "ClusterRoleList",
        "Role", "RoleBinding", "RoleBindingList", "RoleList",
    ),
}  # fmt: skip

OPTIONS = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
)
"""Schemas of request bodies and parts that no kind above names."""

_REF = "#/components/schemas/"


def main() -> None:
    """Read every group version, keep what is reachable, write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--release", required=True, help="of the server, for instance 1.35.4")
    arguments = parser.parse_args()
    kubeconfig: Path = arguments.kubeconfig

    paths = json.loads(_get(kubeconfig, "/openapi/v3"))["paths"]
    published: dict[str, Any] = {}
    for api_version in KINDS:
        key = f"apis/{api_version}" if "/" in api_version else f"api/{api_version}"
        document = json.loads(_get(kubeconfig, paths[key]["serverRelativeURL"]))
        published.update(document["components"]["schemas"])

    roots = [_name_of(published, api, kind) for api, kinds in KINDS.items() for kind in kinds]
    kept = _reachable(published, [*roots, *OPTIONS])
    schemas = {name: _bare(published[name]) for name in sorted(kept)}
    TARGET.write_text(_render(arguments.release, schemas))
    texts = {name: _descriptions(published[name]) for name in sorted(kept)}
    DESCRIPTIONS.write_bytes(_compressed({name: text for name, text in texts.items() if text}))
    print(f"{TARGET.name}: {len(kept)} schemas of Kubernetes {arguments.release}")


def _get(kubeconfig: Path, path: str) -> bytes:
    command = ["kubectl", f"--kubeconfig={kubeconfig}", "get", "--raw", path]
    return subprocess.run(command, check=True, capture_output=True).stdout


def _name_of(schemas: dict[str, Any], api_version: str, kind: str) -> str:
    group, _, version = api_version.rpartition("/")
    wanted = {"group": group, "version": version, "kind": kind}
    for name, schema in schemas.items():
        if wanted in schema.get("x-kubernetes-group-version-kind", ()):
            return name
    raise SystemExit(f"the server publishes no schema for {kind} of {api_version}")


def _reachable(schemas: dict[str, Any], roots: list[str]) -> set[str]:
    seen: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(_references(schemas[name]))
    return seen


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_REF)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _bare(node: Any) -> Any:
    """The schema without descriptions; a property that is called `description` stays."""
    if isinstance(node, dict):
        return {
            key: _bare(value)
            for key, value in node.items()
            if not (key == "description" and isinstance(value, str))
        }
    return [_bare(value) for value in node] if isinstance(node, list) else node


def _descriptions(schema: dict[str, Any]) -> dict[str, str]:
    """The descriptions of a component by property; that of the component has the empty name."""
    described = {"": schema, **schema.get("properties", {})}
    return {
        name: node["description"] for name, node in described.items() if node.get("description")
    }


def _compressed(value: Any) -> bytes:
    """JSON in gzip's format, which depends on the value alone."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def _render(release: str, schemas: dict[str, Any]) -> str:
    """One schema a line, sorted, so that a new release reads as a diff."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(schema, sort_keys=True, separators=(',', ':'))}"
        for name, schema in schemas.items()
    ]
    body = ",\n".join(lines)
    return f'{{"kubernetes":{json.dumps(release)},"schemas":{{\n{body}\n}}}}\n'


if __name__ == "__main__":
    main()
