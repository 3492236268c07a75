"""Who a request is from.

Whoever has the token is root. Root may act as someone else, which changes what the server calls the
client and nothing else, as nobody's rights are checked. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

from kthena.local.apiserver import errors
from kthena.machinery.objects import Object

AUTHENTICATED: Final = "system:authenticated"
ROOT: Final[Mapping[str, Any]] = {
    "username": "kthena",
    "groups": ["system:masters", AUTHENTICATED],
}
"""The UserInfo of whoever has the token."""

_ANONYMOUS: Final = "system:anonymous"
_ACCOUNT: Final = "system:serviceaccount:"
_USER: Final = "impersonate-user"
_UID: Final = "impersonate-uid"
_GROUP: Final = "impersonate-group"
_EXTRA: Final = "impersonate-extra-"


def user_of(headers: Iterable[tuple[str, str]]) -> Object:
    """The UserInfo of a request; names of headers are in lower case.

    Raises:
        ApiError: 400, it wants to be of a group, but nobody.
    """
    given: dict[str, list[str]] = {}
    for name, value in headers:
        if name.startswith("impersonate-"):
            given.setdefault(name, []).append(value)
    name, uid = (given.get(key, [""])[0] for key in (_USER, _UID))
    groups = given.get(_GROUP, [])
    extra = {
        unquote(key.removeprefix(_EXTRA)): values
        for key, values in given.items()
        if key.startswith(_EXTRA)
    }
    if not name:
        if given:
            raise errors.bad_request(
                f"requested [{_requested(uid, groups)}] without impersonating a user"
            )
        return dict(ROOT)
    user: Object = {"username": name}
    if uid:
        user["uid"] = uid
    user["groups"] = _groups(name, groups)
    if extra:
        user["extra"] = extra
    return user


def _requested(uid: str, groups: Sequence[str]) -> str:
    """What was asked for, as Go prints the references."""
    found = [f"{{Group  {group}    }}" for group in groups]
    if uid:
        found.append(f"{{UID  {uid} authentication.k8s.io/v1   }}")
    return " ".join(found)


def _groups(name: str, groups: Sequence[str]) -> list[str]:
    found = list(groups)
    if not found and name.startswith(_ACCOUNT) and name.count(":") == 3:
        namespace = name.removeprefix(_ACCOUNT).partition(":")[0]
        found = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    if name == _ANONYMOUS:
        return found if "system:unauthenticated" in found else [*found, "system:unauthenticated"]
    return found if AUTHENTICATED in found else [*found, AUTHENTICATED]
