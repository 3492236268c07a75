"""Validation of a PodSpec, in a pod or in a template: the rules that manifests run into.

Texts and order follow ValidatePodSpec of k8s.io/kubernetes. Not checked: affinity terms, topology
spread, security contexts, resource claims, Windows, and volume types beyond their number; what is
wrong there is stored as it is.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from kthena.local.apiserver.builtins.fielderrors import (
    NEGATIVE,
    check_choice,
    check_not_negative,
    check_port_number,
    check_text,
    duplicate,
    forbidden,
    invalid,
    not_found,
    required,
    unsupported,
)
from kthena.machinery.fields import ErrorList
from kthena.machinery.names import (
    check_config_map_key,
    check_dns1123_label,
    check_dns1123_subdomain,
    check_env_var_name,
    check_label_value,
    check_port_name,
    check_qualified_name,
)
from kthena.machinery.objects import Object
from kthena.machinery.quantity import Quantity

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_SCHEMES: Final = ("HTTP", "HTTPS")
_TERMINATION_POLICIES: Final = ("File", "FallbackToLogsOnError")
_TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_CONTAINER_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_STANDARD_RESOURCES: Final = (
    *_CONTAINER_RESOURCES,
    *("requests.cpu", "requests.memory", "requests.ephemeral-storage"),
    *("limits.cpu", "limits.memory", "limits.ephemeral-storage"),
    *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets"),
    *("configmaps", "persistentvolumeclaims", "storage", "requests.storage"),
    *("services.nodeports", "services.loadbalancers"),
)
_FIELD_PATHS: Final = (
    *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName"),
    *("spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP"),
    "status.podIPs",
)
_KNOWN_FIELD_PATHS: Final = (
    *("metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName"),
    *("status.phase", "spec.host"),
)
_FIELD_MAPS: Final = ("metadata.annotations", "metadata.labels")
_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_NATIVE: Final = "kubernetes.io/"
_MAX_INT32: Final = 2**31 - 1
_ONE_HANDLER: Final = "may not specify more than 1 handler type"
_ONE_SOURCE: Final = "may not have more than one field specified at a time"
_INIT_ONLY: Final = "may not be set for init containers without restartPolicy=Always"


def validate_pod_spec(spec: Object, path: str) -> ErrorList:
    """What is wrong with a defaulted PodSpec."""
    volumes, errors = _check_volumes(spec.get("volumes") or (), f"{path}.volumes")
    containers = spec.get("containers") or []
    init_containers = spec.get("initContainers") or []
    if containers:
        errors += _check_containers(spec, volumes, f"{path}.containers")
    else:
        errors.append(required(f"{path}.containers"))
    if init_containers:
        errors += _check_init_containers(spec, volumes, f"{path}.initContainers")
    errors += check_choice(f"{path}.restartPolicy", spec.get("restartPolicy"), _RESTART_POLICIES)
    errors += check_choice(f"{path}.dnsPolicy", spec.get("dnsPolicy"), _DNS_POLICIES)
    errors += _check_labels(f"{path}.nodeSelector", spec.get("nodeSelector") or {})
    for index, reference in enumerate(spec.get("imagePullSecrets") or ()):
        if not reference.get("name"):
            below = f"{path}.imagePullSecrets[{index}]"
            errors.append(required(f"{below}.name"))
    errors += _check_gates(spec.get("schedulingGates") or (), f"{path}.schedulingGates")
    for name, check in (
        ("hostname", check_dns1123_label),
        ("subdomain", check_dns1123_label),
        ("serviceAccountName", check_dns1123_subdomain),
        ("nodeName", check_dns1123_subdomain),
        ("priorityClassName", check_dns1123_subdomain),
        ("runtimeClassName", check_dns1123_subdomain),
    ):
        if spec.get(name):
            errors += check_text(f"{path}.{name}", spec[name], check)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _MAX_INT32:
        detail = f"must be between 1 and {_MAX_INT32}, inclusive"
        errors.append(invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    return errors + check_tolerations(spec.get("tolerations") or (), f"{path}.tolerations")


def _check_gates(gates: Any, path: str) -> ErrorList:
    errors: ErrorList = []
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name, below = gate.get("name") or "", f"{path}[{index}]"
        errors += check_text(below, name, check_qualified_name)
        if name in seen:
            errors.append(duplicate(below, name))
        seen.add(name)
    return errors


def _check_labels(path: str, labels: Mapping[str, str]) -> ErrorList:
    errors: ErrorList = []
    for key, value in labels.items():
        errors += check_text(path, key, check_qualified_name)
        errors += check_text(path, value, check_label_value)
    return errors


def _check_volumes(volumes: Any, path: str) -> tuple[Mapping[str, Object], ErrorList]:
    """The good volumes by name, and the errors of the others."""
    good: dict[str, Object] = {}
    errors: ErrorList = []
    for index, volume in enumerate(volumes):
        below, name = f"{path}[{index}]", volume.get("name") or ""
        found = _check_volume_sources(volume, below)
        if name:
            found += check_text(f"{below}.name", name, check_dns1123_label)
        else:
            found.append(required(f"{below}.name"))
        if name in good:
            found.append(duplicate(f"{below}.name", name))
        if not found:
            good[name] = volume
        errors += found
    return good, errors


def _check_volume_sources(volume: Object, path: str) -> ErrorList:
    sources = [name for name in volume if name != "name"]
    errors = [forbidden(f"{path}.{name}", "may not specify more than 1 volume type")
              for name in sources[1:]]  # fmt: skip
    if not sources:
        errors.append(required(path, "must specify a volume type"))
    for name, key, field in (
        ("hostPath", "path", "path"),
        ("configMap", "name", "name"),
        ("secret", "secretName", "secretName"),
        ("persistentVolumeClaim", "claimName", "claimName"),
    ):
        if name in sources[:1] and not volume[name].get(key):
            errors.append(required(f"{path}.{name}.{field}"))
    return errors


def _check_containers(spec: Object, volumes: Mapping[str, Object], path: str) -> ErrorList:
    errors: ErrorList = []
    names: set[str] = set()
    host_ports: set[str] = set()
    for index, container in enumerate(spec["containers"]):
        below, name = f"{path}[{index}]", container.get("name") or ""
        errors += _check_container(container, volumes, below)
        if name in names:
            errors.append(duplicate(f"{below}.name", name))
        names.add(name)
        errors += _check_hooks(container, spec, below)
    for index, container in enumerate(spec["containers"]):
        errors += _check_host_ports(container, host_ports, f"{path}[{index}]")
    return errors


def _check_init_containers(spec: Object, volumes: Mapping[str, Object], path: str) -> ErrorList:
    errors: ErrorList = []
    names = {container.get("name") or "" for container in spec.get("containers") or ()}
    for index, container in enumerate(spec["initContainers"]):
        below, name = f"{path}[{index}]", container.get("name") or ""
        errors += _check_container(container, volumes, below)
        policy = container.get("restartPolicy")
        if policy is not None and policy not in _RESTART_POLICIES:
            errors.append(unsupported(f"{below}.restartPolicy", policy, _RESTART_POLICIES))
        if name in names:
            errors.append(duplicate(f"{below}.name", name))
        names.add(name)
        errors += _check_host_ports(container, set(), f"{path}[0]")
        if policy == "Always":
            errors += _check_hooks(container, spec, below)
        else:
            errors += [
                forbidden(f"{below}.{field}", _INIT_ONLY)
                for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
                if field in container
            ]
    return errors


def _check_host_ports(container: Object, seen: set[str], path: str) -> ErrorList:
    errors: ErrorList = []
    for index, port in enumerate(container.get("ports") or ()):
        if not port.get("hostPort"):
            continue
        text = f"{port['protocol']}/{port.get('hostIP') or ''}/{port['hostPort']}"
        if text in seen:
            errors.append(duplicate(f"{path}.ports[{index}].hostPort", text))
        seen.add(text)
    return errors


def _check_container(container: Object, volumes: Mapping[str, Object], path: str) -> ErrorList:
    """What holds for containers of every sort."""
    name = container.get("name") or ""
    errors = (
        check_text(f"{path}.name", name, check_dns1123_label)
        if name
        else [required(f"{path}.name")]
    )
    if not container.get("image"):
        errors.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy")
    errors += check_choice(f"{path}.terminationMessagePolicy", policy, _TERMINATION_POLICIES)
    errors += _check_ports(container.get("ports") or (), f"{path}.ports")
    errors += _check_env(container.get("env") or (), f"{path}.env")
    errors += _check_mounts(container.get("volumeMounts") or (), volumes, f"{path}.volumeMounts")
    pull = container.get("imagePullPolicy")
    errors += check_choice(f"{path}.imagePullPolicy", pull, _PULL_POLICIES)
    return errors + _check_resources(container.get("resources") or {}, f"{path}.resources")


def _check_ports(ports: Any, path: str) -> ErrorList:
    errors: ErrorList = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        below, name = f"{path}[{index}]", port.get("name")
        if name:
            found = check_text(f"{below}.name", name, check_port_name)
            if not found and name in names:
                found = [duplicate(f"{below}.name", name)]
            errors += found
            names.add(name)
        if not port["containerPort"]:
            errors.append(required(f"{below}.containerPort"))
        else:
            errors += check_port_number(f"{below}.containerPort", port["containerPort"])
        if port.get("hostPort"):
            errors += check_port_number(f"{below}.hostPort", port["hostPort"])
        errors += check_choice(f"{below}.protocol", port.get("protocol"), _PROTOCOLS)
    return errors


def _check_env(variables: Any, path: str) -> ErrorList:
    errors: ErrorList = []
    for index, variable in enumerate(variables):
        below, name = f"{path}[{index}]", variable.get("name") or ""
        if name:
            errors += check_text(f"{below}.name", name, check_env_var_name)
        else:
            errors.append(required(f"{below}.name"))
        if "valueFrom" in variable:
            errors += _check_env_source(variable, f"{below}.valueFrom")
    return errors


def _check_env_source(variable: Object, path: str) -> ErrorList:
    source = variable["valueFrom"]
    errors: ErrorList = []
    if "fieldRef" in source:
        errors += _check_field_ref(source["fieldRef"], f"{path}.fieldRef")
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            reference, below = source[name], f"{path}.{name}"
            errors += check_text(
                f"{below}.name", reference.get("name") or "", check_dns1123_subdomain
            )
            key = reference.get("key") or ""
            errors += (
                check_text(f"{below}.key", key, check_config_map_key)
                if key
                else [required(f"{below}.key")]
            )
    if not source:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        errors.append(invalid(path, "", f"must specify one of: {kinds}"))
    elif variable.get("value"):
        errors.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        errors.append(invalid(path, "", _ONE_SOURCE))
    return errors


def _check_field_ref(reference: Object, path: str) -> ErrorList:
    field = reference.get("fieldPath") or ""
    if not field:
        return [required(f"{path}.fieldPath")]
    name, subscript, _ = field.partition("['")
    if subscript and name in _FIELD_MAPS:
        return []
    if subscript:
        return [invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {field!r}")]
    if field in _FIELD_PATHS:
        return []
    if field not in _KNOWN_FIELD_PATHS:
        detail = f"error converting fieldPath: field label not supported: {field}"
        return [invalid(f"{path}.fieldPath", field, detail)]
    return [unsupported(f"{path}.fieldPath", field, sorted(_FIELD_PATHS))]


def _check_mounts(mounts: Any, volumes: Mapping[str, Object], path: str) -> ErrorList:
    errors: ErrorList = []
    places: set[str] = set()
    for index, mount in enumerate(mounts):
        below, name, place = f"{path}[{index}]", mount.get("name") or "", mount["mountPath"]
        if not name:
            errors.append(required(f"{below}.name"))
        if name not in volumes:
            errors.append(not_found(f"{below}.name", name))
        if not place:
            errors.append(required(f"{below}.mountPath"))
        if place in places:
            errors.append(invalid(f"{below}.mountPath", place, "must be unique"))
        places.add(place)
    return errors


@lru_cache(maxsize=4096)
def amount(text: str) -> Fraction:
    """The value of a quantity; few of them are in use, over and over."""
    return Quantity.parse(text).value


def _check_resources(resources: Object, path: str) -> ErrorList:
    errors: ErrorList = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, text in limits.items():
        errors += _check_resource(name, text, f"{path}.limits[{name}]")
    for name, text in requests.items():
        errors += _check_resource(name, text, f"{path}.requests[{name}]")
        overcommits = "/" not in name or _NATIVE in name
        if name not in limits:
            if not overcommits:
                detail = "Limit must be set for non overcommitable resources"
                errors.append(required(f"{path}.limits", detail))
            continue
        request, limit = amount(text), amount(limits[name])
        if request != limit and not overcommits:
            detail = f"must be equal to {name} limit of {limits[name]}"
            errors.append(invalid(f"{path}.requests", text, detail))
        elif request > limit:
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            errors.append(invalid(f"{path}.requests", text, detail))
    return errors


def _check_resource(name: str, text: str, path: str) -> ErrorList:
    errors = check_text(path, name, check_qualified_name)
    if not errors and "/" not in name and not name.startswith("hugepages-"):
        if name not in _STANDARD_RESOURCES:
            detail = "must be a standard resource type or fully qualified"
            errors.append(invalid(path, name, detail))
        if name not in _CONTAINER_RESOURCES:
            errors.append(invalid(path, name, "must be a standard resource for containers"))
    value = amount(text)
    if value < 0:
        errors.append(invalid(path, text, NEGATIVE))
    if "/" in name and _NATIVE not in name and value.denominator != 1:
        errors.append(invalid(path, text, "must be an integer"))
    return errors


def _check_hooks(container: Object, spec: Object, path: str) -> ErrorList:
    """Lifecycle hooks and probes."""
    errors: ErrorList = []
    grace = spec.get("terminationGracePeriodSeconds") or 0
    for hook in ("postStart", "preStop"):
        handler = (container.get("lifecycle") or {}).get(hook)
        if handler is not None:
            errors += _check_handler(handler, f"{path}.lifecycle.{hook}", grace)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe, below = container.get(name), f"{path}.{name}"
        if probe is None:
            continue
        errors += _check_handler(probe, below, grace)
        for field in (
            *("initialDelaySeconds", "timeoutSeconds", "periodSeconds"),
            *("successThreshold", "failureThreshold"),
        ):
            errors += check_not_negative(f"{below}.{field}", probe.get(field) or 0)
        own_grace = probe.get("terminationGracePeriodSeconds")
        if own_grace is not None and own_grace <= 0:
            field = f"{below}.terminationGracePeriodSeconds"
            errors.append(invalid(field, own_grace, "must be greater than 0"))
        if name == "readinessProbe" and own_grace is not None:
            field = f"{below}.terminationGracePeriodSeconds"
            errors.append(invalid(field, own_grace, "must not be set for readinessProbes"))
        if name != "readinessProbe" and probe["successThreshold"] != 1:
            threshold = probe["successThreshold"]
            errors.append(invalid(f"{below}.successThreshold", threshold, "must be 1"))
    return errors


def _check_handler(handler: Object, path: str, grace: int) -> ErrorList:
    names = [name for name in _HANDLERS if name in handler]
    if not names:
        return [required(path, "must specify a handler type")]
    action, below = handler[names[0]], f"{path}.{names[0]}"
    errors: ErrorList = []
    if names[0] == "exec" and not action.get("command"):
        errors.append(required(f"{below}.command"))
    elif names[0] == "httpGet":
        errors += _check_port_or_name(f"{below}.port", action["port"])
        if action["scheme"] not in _SCHEMES:
            errors.append(unsupported(f"{below}.scheme", action["scheme"], _SCHEMES))
    elif names[0] in ("tcpSocket", "grpc"):
        errors += _check_port_or_name(f"{below}.port", action["port"])
    elif names[0] == "sleep" and not 0 <= action["seconds"] <= grace:
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        errors.append(invalid(below, action["seconds"], detail))
    return errors + [forbidden(f"{path}.{name}", _ONE_HANDLER) for name in names[1:]]


def _check_port_or_name(path: str, value: int | str) -> ErrorList:
    if isinstance(value, str):
        return check_text(path, value, check_port_name)
    return check_port_number(path, value)


def check_tolerations(tolerations: Any, path: str) -> ErrorList:
    """What is wrong with tolerations."""
    errors: ErrorList = []
    for index, toleration in enumerate(tolerations):
        below = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        value, effect = toleration.get("value") or "", toleration.get("effect") or ""
        if key:
            errors += check_text(f"{below}.key", key, check_qualified_name)
        elif operator != "Exists":
            detail = (
                'operator must be Exists when `key` is empty, which means "match all values and '
                'all keys"'
            )
            errors.append(invalid(f"{below}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid(f"{below}.effect", effect, detail))
        if operator in ("", "Equal"):
            if found := check_label_value(value):
                errors.append(invalid(f"{below}.operator", value, ";".join(found)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid(f"{below}.operator", value, detail))
        else:
            errors.append(unsupported(f"{below}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in _TAINT_EFFECTS:
            errors.append(unsupported(f"{below}.effect", effect, _TAINT_EFFECTS))
    return errors
