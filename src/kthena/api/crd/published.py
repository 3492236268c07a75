"""The generated CRDs as the installed package carries them.

They are what `kthena crds` prints and what local mode installs, descriptions included, so that
`kubectl explain` works everywhere.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import msgspec

from kthena.api.registry import Plane
from kthena.machinery.objects import Object

SERVED = (Plane.WORKLOAD, Plane.NETWORKING)
"""The planes whose kinds this project serves."""


def published_crds(planes: Sequence[Plane] = SERVED) -> list[Object]:
    """The CRDs of the planes, each a new object that the caller may change."""
    return [crd for plane in planes for crd in msgspec.json.decode(_load()[plane.value])]


@cache
def _load() -> dict[str, msgspec.Raw]:
    source = Path(__file__).parent.with_name("data") / "crds.json"
    return msgspec.json.decode(source.read_bytes(), type=dict[str, msgspec.Raw])
