"""Deployments and ReplicaSets of the local cluster, where no kube-controller-manager runs.

`planner` decides and is pure; `controller` reads, executes and writes statuses.
"""

from kthena.local.deployments.controller import (
    DeploymentController,
    Informers,
    ReplicaSetController,
    deployment_runners,
)

__all__ = ["DeploymentController", "Informers", "ReplicaSetController", "deployment_runners"]
