"""Defaults of a PodSpec, as kube-apiserver sets them in pods and in pod templates."""

from collections.abc import Iterator
from typing import Any, Final

from kthena.machinery.objects import Object

_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_DEFAULTS: Final = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
_DEFAULT_FILE_MODE: Final = 0o644
_VOLUME_MODES: Final = ("secret", "configMap", "downwardAPI", "projected")
_VOLUME_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {
        "cachingMode": "ReadWrite",
        "fsType": "ext4",
        "readOnly": False,
        "kind": "Shared",
    },
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
_SPEC_DEFAULTS: Final = {
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
}


def containers_of(spec: Object) -> Iterator[Object]:
    """Init containers, containers and ephemeral containers."""
    for name in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(name) or ()


def default_pod_spec(spec: Object) -> None:
    """Set what a PodSpec leaves open, wherever it stands."""
    for name, value in _SPEC_DEFAULTS.items():
        spec.setdefault(name, value)
    spec.setdefault("securityContext", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for container in containers_of(spec):
        _default_container(container)


def default_pod(pod: Object) -> None:
    """Set what only pods get, and templates do not: requests from limits, service links."""
    spec = pod["spec"]
    for name in ("containers", "initContainers"):
        for container in spec.get(name) or ():
            limits = container["resources"].get("limits")
            if limits:
                requests = container["resources"].get("requests") or {}
                container["resources"]["requests"] = {**limits, **requests}
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for name in ("containers", "initContainers"):
            for container in spec.get(name) or ():
                for port in container.get("ports") or ():
                    port.setdefault("hostPort", port["containerPort"])


def _default_volume(volume: Object) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}
    for name, source in volume.items():
        if name in _VOLUME_MODES:
            source.setdefault("defaultMode", _DEFAULT_FILE_MODE)
        for key, value in _VOLUME_DEFAULTS.get(name, {}).items():
            source.setdefault(key, value)
    _default_field_refs(volume.get("downwardAPI"))
    for source in (volume.get("projected") or {}).get("sources") or ():
        _default_field_refs(source.get("downwardAPI"))
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
    template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
    if template:
        template["spec"].setdefault("volumeMode", "Filesystem")
    if "image" in volume:
        reference = volume["image"].get("reference") or ""
        volume["image"].setdefault("pullPolicy", pull_policy_for(reference))


def _default_field_refs(source: Object | None) -> None:
    for file in (source or {}).get("items") or ():
        if "fieldRef" in file:
            file["fieldRef"].setdefault("apiVersion", "v1")


def _default_container(container: Object) -> None:
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy_for(container.get("image") or "")
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if "fieldRef" in source:
            source["fieldRef"].setdefault("apiVersion", "v1")
        if "fileKeyRef" in source:
            source["fileKeyRef"].setdefault("optional", False)
    for name in _PROBES:
        if name in container:
            for key, value in _PROBE_DEFAULTS.items():
                container[name].setdefault(key, value)
            _default_handler(container[name])
    for hook in ("postStart", "preStop"):
        _default_handler((container.get("lifecycle") or {}).get(hook))


def _default_handler(handler: Object | None) -> None:
    if not handler:
        return
    if "httpGet" in handler:
        handler["httpGet"].setdefault("path", "/")
        handler["httpGet"].setdefault("scheme", "HTTP")
    if "grpc" in handler and handler["grpc"].get("service") is None:
        handler["grpc"]["service"] = ""


def pull_policy_for(image: str) -> str:
    """`Always` for the tag `latest`, given or implied, else `IfNotPresent`."""
    name, _, digest = image.partition("@")
    if digest:
        return "IfNotPresent"
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"
