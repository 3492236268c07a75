"""Names that the node puts into the environment of container processes and on objects."""

from typing import Final

ENV_ADDRESS: Final = "KTHENA_POD_IP"
"""The pod's address. Bundled programs bind it, whatever they are told."""
ENV_POD: Final = "KTHENA_POD_NAME"
ENV_MOUNTS: Final = "KTHENA_MOUNTS"
"""Where volumes lie on the host, as `mountPath=directory` joined by colons."""
ENV_CONTAINER_ID: Final = "KTHENA_CONTAINER_ID"
"""Marks every process of a container, so that none is lost when its launcher dies."""

CONTAINER_ID_SCHEME: Final = "kthena://"
EVENT_SOURCE: Final = "kthena-node"
LABEL_PLAYED_BY: Final = "node.serving.volcano.sh/played-by"
"""On a Node that another plays: the name of that other."""
