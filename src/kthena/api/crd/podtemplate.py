"""The schema of a pod template inside a ModelServing: labels, annotations and a full PodSpec."""

from typing import Any

from kthena.api import openapi

IMAGE = r"^$|^[^ ]*[^\s\v\x{85}\p{Z}][^ ]*$"
"""Empty, or without an ASCII space and with something that is no white space at all."""


def pod_template_schema() -> dict[str, Any]:
    """Other fields of the template's metadata have no meaning and are pruned."""
    pod_spec = openapi.pod_spec_schema()
    pod_spec["properties"]["containers"]["items"]["properties"]["image"]["pattern"] = IMAGE
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "type": "object",
        "properties": {
            "metadata": {
                "type": "object",
                "description": "Labels and annotations of the pods.",
                "properties": {"annotations": texts, "labels": texts},
            },
            "spec": pod_spec,
        },
    }
