"""The Kubernetes client: raw objects in and out, over an exchangeable transport."""

from kthena.kube.client.client import FieldValidation, KubeClient, Observer, Watch
from kthena.kube.client.options import (
    ClientConfig,
    DeleteParams,
    ObjectList,
    PatchType,
    RawResponse,
    WatchEvent,
    WatchParams,
)
from kthena.kube.client.transport import BufferedReply, Reply, Request, Transport

__all__ = [
    "BufferedReply",
    "ClientConfig",
    "DeleteParams",
    "FieldValidation",
    "KubeClient",
    "ObjectList",
    "Observer",
    "PatchType",
    "RawResponse",
    "Reply",
    "Request",
    "Transport",
    "Watch",
    "WatchEvent",
    "WatchParams",
]
