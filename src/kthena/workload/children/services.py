"""The headless service of a role instance: it gives the entry pod its name in DNS.

An instance has one when its role has a worker template, as in Kthena; `ENTRY_ADDRESS` resolves
through it, also while the entry pod is not ready.
"""

from kthena.api.kubernetes import SERVICES
from kthena.api.workload.names import LABEL_ENTRY, LABEL_NAME
from kthena.machinery.objects import Object, name_of, namespace_of
from kthena.workload.identity import (
    InstanceKey,
    child_labels,
    entry_name,
    owner_reference,
)


def build_service(modelserving: Object, instance: InstanceKey) -> Object:
    """The service, named as the entry pod that it selects."""
    owner = name_of(modelserving)
    labels = child_labels(owner, instance)
    selector = {key: value for key, value in labels.items() if key != LABEL_NAME}
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {
            "name": entry_name(owner, instance),
            "namespace": namespace_of(modelserving),
            "labels": labels,
            "ownerReferences": [owner_reference(modelserving)],
        },
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {**selector, LABEL_ENTRY: "true"},
        },
    }
