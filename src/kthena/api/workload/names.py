"""Names that the workload API puts on the wire. All are Kthena's, so that selectors keep working."""

from typing import Final

GROUP: Final = "workload.serving.volcano.sh"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

LABEL_PREFIX: Final = "modelserving.volcano.sh/"
LABEL_NAME: Final = "modelserving.volcano.sh/name"
LABEL_GROUP_NAME: Final = "modelserving.volcano.sh/group-name"
LABEL_ROLE: Final = "modelserving.volcano.sh/role"
LABEL_ROLE_ID: Final = "modelserving.volcano.sh/role-id"
LABEL_ENTRY: Final = "modelserving.volcano.sh/entry"
LABEL_REVISION: Final = "modelserving.volcano.sh/revision"
LABEL_ROLE_TEMPLATE_HASH: Final = "modelserving.volcano.sh/role-template-hash"

RESERVED_LABELS: Final = frozenset(
    {
        LABEL_NAME,
        LABEL_GROUP_NAME,
        LABEL_ROLE,
        LABEL_ROLE_ID,
        LABEL_ENTRY,
        LABEL_REVISION,
        LABEL_ROLE_TEMPLATE_HASH,
    }
)
"""Labels that the controller owns on the pods that it makes."""

ANNOTATION_POD_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

ENV_GROUP_SIZE: Final = "GROUP_SIZE"
ENV_ENTRY_ADDRESS: Final = "ENTRY_ADDRESS"
ENV_WORKER_INDEX: Final = "WORKER_INDEX"

SCHEDULER_VOLCANO: Final = "volcano"

LEASE_NAME: Final = "lease.kthena.controller-manager"
EVENT_SOURCE: Final = "modelserving-controller"
