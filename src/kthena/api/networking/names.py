"""Names that the networking API puts on the wire."""

from typing import Final

GROUP: Final = "networking.serving.volcano.sh"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

LABEL_PROVIDER_CREDENTIAL: Final = (
    "networking.serving.volcano.sh/external-model-provider-credential"
)

LEASE_NAME: Final = "lease.kthena.router"
EVENT_SOURCE: Final = "kthena-router"
