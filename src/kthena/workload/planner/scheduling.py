"""Which scheduler new pods are given to."""

from kthena.api.workload.names import SCHEDULER_VOLCANO
from kthena.workload.planner.observed import Observed


def falls_back(observed: Observed) -> bool:
    """Whether pods go to the default scheduler although the spec names `volcano`.

    A gang or a topology is what Volcano is for: with one there is no fallback.
    """
    capabilities, template = observed.capabilities, observed.spec.template
    return (
        observed.spec.scheduler_name == SCHEDULER_VOLCANO
        and not capabilities.volcano
        and capabilities.scheduler_fallback
        and template.gang_policy is None
        and template.network_topology is None
    )


def waits_for_pod_groups(observed: Observed) -> bool:
    """Whether new groups and updates wait, because gangs are asked for and cannot be told yet."""
    template = observed.spec.template
    return (
        observed.spec.scheduler_name == SCHEDULER_VOLCANO
        and observed.capabilities.pod_groups is None
        and not (template.gang_policy is None and template.network_topology is None)
    )


def scheduler_of(observed: Observed) -> str | None:
    """The scheduler of new pods; None for the cluster's default."""
    return None if falls_back(observed) else observed.spec.scheduler_name
