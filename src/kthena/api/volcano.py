"""What this project says to Volcano: PodGroups, and the names by which pods and queues refer to them."""

from typing import Final

from kthena.machinery.resources import Resource

POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
POD_GROUP_CRD: Final = str(POD_GROUPS)
"""The name of the CRD."""

ANNOTATION_GROUP_NAME: Final = "scheduling.k8s.io/group-name"
"""On a pod: the PodGroup, of its own namespace, with which it is placed."""

ANNOTATION_TASK_SPEC: Final = "volcano.sh/task-spec"
"""On a pod: its part in the PodGroup."""

ANNOTATION_QUEUE_NAME: Final = "scheduling.volcano.sh/queue-name"
"""On a ModelServing: the queue of its PodGroups."""
