"""Checks of what a user may do: `authorizer.group('').resource('pods').check('get').allowed()`.

Whoever supplies the variable says what is allowed; without one the functions cannot be called.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from kthena.machinery.cel import typesystem as types
from kthena.machinery.cel.functions import Library, register_guard
from kthena.machinery.cel.values import CelError, register_type
from kthena.machinery.names import check_dns1123_label, check_dns1123_subdomain

AUTHORIZER = types.named("kubernetes.authorization.Authorizer")
PATH_CHECK = types.named("kubernetes.authorization.PathCheck")
GROUP_CHECK = types.named("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = types.named("kubernetes.authorization.ResourceCheck")
DECISION = types.named("kubernetes.authorization.Decision")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked: a verb on a path, or on a resource. Empty fields are unset."""

    user: str
    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer, and why."""

    allowed: bool
    reason: str = ""


Authorize: TypeAlias = Callable[[Attributes], Decision]


@dataclass(frozen=True, slots=True)
class Authorizer:
    """The value of the variable `authorizer`."""

    authorize: Authorize
    user: str


@dataclass(frozen=True, slots=True)
class PathCheck:
    """A path that is asked about."""

    authorize: Authorize
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class GroupCheck:
    """An API group that is asked about."""

    authorize: Authorize
    attributes: Attributes


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    """A resource that is asked about."""

    authorize: Authorize
    attributes: Attributes


for _class, _type in (
    (Authorizer, AUTHORIZER),
    (PathCheck, PATH_CHECK),
    (GroupCheck, GROUP_CHECK),
    (ResourceCheck, RESOURCE_CHECK),
    (Decision, DECISION),
):
    register_guard(_type, (_class,))
    register_type(_class, _type.name)

LIBRARY = Library()
_STRING = types.STRING


@LIBRARY.member("path", [AUTHORIZER, _STRING], PATH_CHECK)
def _path(authorizer: Authorizer, path: str) -> PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheck(authorizer.authorize, Attributes(authorizer.user, path=path))


@LIBRARY.member("group", [AUTHORIZER, _STRING], GROUP_CHECK)
def _group(authorizer: Authorizer, group: str) -> GroupCheck:
    return GroupCheck(authorizer.authorize, Attributes(authorizer.user, group=group))


@LIBRARY.member("serviceAccount", [AUTHORIZER, _STRING, _STRING], AUTHORIZER)
def _service_account(authorizer: Authorizer, namespace: str, name: str) -> Authorizer:
    if check_dns1123_subdomain(name):
        raise CelError("Invalid service account name")
    if check_dns1123_label(namespace):
        raise CelError("Invalid service account namespace")
    return Authorizer(authorizer.authorize, f"system:serviceaccount:{namespace}:{name}")


@LIBRARY.member("resource", [GROUP_CHECK, _STRING], RESOURCE_CHECK)
def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(check.authorize, replace(check.attributes, resource=resource))


def _refine(name: str, field: str) -> None:
    @LIBRARY.member(name, [RESOURCE_CHECK, _STRING], RESOURCE_CHECK)
    def refine(check: ResourceCheck, value: str) -> ResourceCheck:
        return ResourceCheck(check.authorize, replace(check.attributes, **{field: value}))


for _name, _field in (
    ("subresource", "subresource"),
    ("namespace", "namespace"),
    ("name", "name"),
    ("fieldSelector", "field_selector"),
    ("labelSelector", "label_selector"),
):
    _refine(_name, _field)


@LIBRARY.member("check", [PATH_CHECK, _STRING], DECISION)
def _check_path(check: PathCheck, verb: str) -> Decision:
    return check.authorize(replace(check.attributes, verb=verb))


@LIBRARY.member("check", [RESOURCE_CHECK, _STRING], DECISION)
def _check_resource(check: ResourceCheck, verb: str) -> Decision:
    return check.authorize(replace(check.attributes, verb=verb))


LIBRARY.member("allowed", [DECISION], types.BOOL)(lambda decision: decision.allowed)
LIBRARY.member("reason", [DECISION], _STRING)(lambda decision: decision.reason)
# Whoever answers always does.
LIBRARY.member("errored", [DECISION], types.BOOL)(lambda _decision: False)
LIBRARY.member("error", [DECISION], _STRING)(lambda _decision: "")
