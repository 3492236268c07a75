"""Kinds that a whole install has and that are only stored: no controller of the server acts on them."""

from typing import Final

from kthena.local.apiserver.builtins import (
    autoscalers,
    claims,
    disruption,
    networkpolicies,
    printers,
    rbac,
    storedprinters,
)
from kthena.local.apiserver.builtins.representation import Default, builtin
from kthena.local.apiserver.kinds import (
    DeletionRules,
    Kind,
    Names,
    Strategy,
    Subresource,
    TablePrinter,
)
from kthena.machinery.resources import Resource

BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
AUTOSCALERS: Final = Resource(
    "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"
)
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy")
_RBAC: Final = "rbac.authorization.k8s.io"


def stored_kinds() -> list[Kind]:
    """PersistentVolumeClaims, PodDisruptionBudgets, autoscalers, NetworkPolicies and RBAC."""
    return [
        Kind(
            builtin(claims.RESOURCE, claims.default),
            claims.ClaimStrategy(),
            storedprinters.CLAIMS,
            Names("persistentvolumeclaim", ("pvc",)),
            subresources={"status": Subresource(strategy=claims.ClaimStatusStrategy())},
            deletion=DeletionRules(returns_object=True),
        ),
        Kind(
            builtin(BUDGETS),
            disruption.BudgetStrategy(),
            storedprinters.BUDGETS,
            Names("poddisruptionbudget", ("pdb",)),
            subresources={"status": Subresource(strategy=disruption.BudgetStatusStrategy())},
        ),
        Kind(
            builtin(AUTOSCALERS, autoscalers.default),
            autoscalers.AutoscalerStrategy(),
            storedprinters.AUTOSCALERS,
            Names("horizontalpodautoscaler", ("hpa",), ("all",)),
            subresources={"status": Subresource(strategy=autoscalers.AutoscalerStatusStrategy())},
        ),
        Kind(
            builtin(NETWORK_POLICIES, networkpolicies.default),
            networkpolicies.NetworkPolicyStrategy(),
            storedprinters.NETWORK_POLICIES,
            Names("networkpolicy", ("netpol",)),
        ),
        *_roles(),
    ]


def _roles() -> list[Kind]:
    found = []
    for prefix, namespaced in (("", True), ("Cluster", False)):
        role, binding = rbac.RoleStrategy(namespaced=namespaced), f"{prefix}RoleBinding"
        bind = rbac.BindingStrategy(namespaced=namespaced)
        found += [
            _rbac_kind(f"{prefix}Role", None, role, printers.STAMPED, namespaced=namespaced),
            _rbac_kind(
                binding,
                rbac.default_binding,
                bind,
                storedprinters.BINDINGS,
                namespaced=namespaced,
            ),
        ]
    return found


def _rbac_kind(
    kind: str,
    default: Default | None,
    strategy: Strategy,
    printer: TablePrinter,
    *,
    namespaced: bool,
) -> Kind:
    name = kind.lower()
    resource = Resource(_RBAC, "v1", f"{name}s", kind, namespaced=namespaced)
    return Kind(builtin(resource, default), strategy, printer, Names(name))
