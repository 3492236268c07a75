"""Prefill and decode: an endpoint for each, from the same group.

The decode endpoint is chosen first, among all groups that have both roles, since it carries the
request longest; then a prefill endpoint of its group.
"""

from collections.abc import Collection
from typing import NamedTuple

from kthena.router.endpoints import Endpoint, EndpointSet
from kthena.router.scheduler.contract import SchedulingRequest
from kthena.router.scheduler.profile import Profile


class Pair(NamedTuple):
    """Who computes the prompt, and who generates."""

    prefill: Endpoint
    decode: Endpoint


def choose_pair(
    profile: Profile,
    request: SchedulingRequest,
    endpoints: EndpointSet,
    failed: Collection[Endpoint],
) -> Pair | None:
    """A pair without `failed` endpoints, or None when no group has both roles left."""
    prefill_of: dict[Endpoint, list[Endpoint]] = {}
    for group in endpoints.groups:
        prefill = [endpoint for endpoint in group.prefill if endpoint not in failed]
        if prefill:
            for endpoint in group.decode:
                if endpoint not in failed:
                    prefill_of[endpoint] = prefill
    decode = profile.choose(request, list(prefill_of))
    if decode is None:
        return None
    chosen = profile.choose(request, prefill_of[decode])
    return None if chosen is None else Pair(chosen, decode)


def missing_role(endpoints: EndpointSet) -> str:
    """What keeps a disaggregated server from being asked, in words."""
    has_prefill = any(group.prefill for group in endpoints.groups)
    has_decode = any(group.decode for group in endpoints.groups)
    if has_prefill and has_decode:
        return "no group has both a ready prefill and a ready decode pod"
    if not has_prefill and not has_decode:
        return "there is neither a ready prefill nor a ready decode pod"
    return f"there is no ready {'decode' if has_prefill else 'prefill'} pod"
