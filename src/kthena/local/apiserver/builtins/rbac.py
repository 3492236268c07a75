"""Roles and their bindings. They are stored; the server lets whoever has the token do everything."""

from typing import Any, Final

from kthena.local.apiserver.builtins.fielderrors import check_text, invalid, required, unsupported
from kthena.local.apiserver.builtins.workloads import check_label_selector
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.machinery.fields import ErrorList
from kthena.machinery.names import check_dns1123_subdomain, check_path_segment
from kthena.machinery.objects import Object
from kthena.machinery.selectors import SelectorError, label_selector_from_object

_GROUP: Final = "rbac.authorization.k8s.io"
_ACCOUNT: Final = "ServiceAccount"
_NAMED_KINDS: Final = ("User", "Group")


def default_binding(obj: Object) -> None:
    """The groups of the role and of the subjects."""
    obj["roleRef"]["apiGroup"] = obj["roleRef"].get("apiGroup") or _GROUP
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in _NAMED_KINDS:
            subject.setdefault("apiGroup", _GROUP)


class RoleStrategy(PlainStrategy):
    """Writes of Roles and ClusterRoles."""

    allow_create_on_update = True
    repeats_metadata = True

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def prepare_create(self, obj: Object) -> None:
        """No rules are stored as null."""
        obj["rules"] = obj.get("rules") or None

    def prepare_update(self, new: Object, old: Object) -> None:
        """The same."""
        del old
        self.prepare_create(new)

    def validate_create(self, obj: Object) -> ErrorList:
        """Rules name verbs, and either resources or paths."""
        errors: ErrorList = []
        for index, rule in enumerate(obj.get("rules") or ()):
            errors += self._check_rule(rule, f"rules[{index}]")
        aggregation = obj.get("aggregationRule")
        if aggregation is None:
            return errors
        path = "aggregationRule.clusterRoleSelectors"
        selectors = aggregation.get("clusterRoleSelectors") or ()
        if not selectors:
            detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
            errors.append(required(path, detail))
        for index, selector in enumerate(selectors):
            errors += check_label_selector(selector, f"{path}[{index}]")
            try:
                label_selector_from_object(selector)
            except SelectorError:
                detail = "invalid label selector."
                errors.append(invalid(f"{path}[{index}]", None, detail))
        return errors

    def _check_rule(self, rule: Object, path: str) -> ErrorList:
        errors: ErrorList = []
        if not rule.get("verbs"):
            errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        paths = rule.get("nonResourceURLs")
        if paths:
            if self._namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                errors.append(invalid(f"{path}.nonResourceURLs", paths, detail))
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                errors.append(invalid(f"{path}.nonResourceURLs", paths, detail))
            return errors
        if not rule.get("apiGroups"):
            detail = "resource rules must supply at least one api group"
            errors.append(required(f"{path}.apiGroups", detail))
        if not rule.get("resources"):
            detail = "resource rules must supply at least one resource"
            errors.append(required(f"{path}.resources", detail))
        return errors


class BindingStrategy(PlainStrategy):
    """Writes of RoleBindings and ClusterRoleBindings: the role is fixed."""

    allow_create_on_update = True
    repeats_metadata = True

    def __init__(self, *, namespaced: bool) -> None:
        self._namespaced = namespaced

    def validate_create(self, obj: Object) -> ErrorList:
        """A role, and whom it is given to."""
        role = obj["roleRef"]
        kinds = ("Role", "ClusterRole") if self._namespaced else ("ClusterRole",)
        errors: ErrorList = []
        if role["apiGroup"] != _GROUP:
            errors.append(unsupported("roleRef.apiGroup", role["apiGroup"], (_GROUP,)))
        if role["kind"] not in kinds:
            errors.append(unsupported("roleRef.kind", role["kind"], kinds))
        if role["name"]:
            errors += check_text("roleRef.name", role["name"], check_path_segment)
        else:
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += self._check_subject(subject, f"subjects[{index}]")
        return errors

    def _check_subject(self, subject: Object, path: str) -> ErrorList:
        name, group = subject["name"], subject.get("apiGroup") or ""
        errors: ErrorList = [] if name else [required(f"{path}.name")]
        if subject["kind"] == _ACCOUNT:
            if name:
                errors += check_text(f"{path}.name", name, check_dns1123_subdomain)
            if group:
                errors.append(unsupported(f"{path}.apiGroup", group, ("",)))
            if not self._namespaced and not subject.get("namespace"):
                errors.append(required(f"{path}.namespace"))
        elif subject["kind"] not in _NAMED_KINDS:
            kinds = (_ACCOUNT, *_NAMED_KINDS)
            errors.append(unsupported(f"{path}.kind", subject["kind"], kinds))
        elif group != _GROUP:
            errors.append(unsupported(f"{path}.apiGroup", group, (_GROUP,)))
        return errors

    def validate_update(self, new: Object, old: Object) -> ErrorList:
        """The role stays."""
        errors = self.validate_create(new)
        if new["roleRef"] != old["roleRef"]:
            shown = _as_printed(new["roleRef"])
            errors.append(invalid("roleRef", shown, "cannot change roleRef"))
        return errors


def _as_printed(role: Object) -> dict[str, Any]:
    """A reference with the names of its fields inside the API server, which its errors show."""
    return {"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]}
