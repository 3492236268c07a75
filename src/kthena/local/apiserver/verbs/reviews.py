"""Reviews: who the client is and what it may do. Whoever has the token is root.

They are answered and not stored.
"""

from typing import Final

from starlette.responses import Response

from kthena.local.apiserver.builtins.codec import BuiltinCodec
from kthena.local.apiserver.builtins.printers import PLAIN
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.local.apiserver.verbs.call import Call
from kthena.local.apiserver.verbs.writing import expected_of, read_object
from kthena.machinery.resources import Resource

ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)


SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    "SelfSubjectReview",
    namespaced=False,
)
USER: Final = {"username": "kthena", "groups": ["system:masters", "system:authenticated"]}


def review_kinds() -> list[Kind]:
    """The kinds of reviews."""
    return [
        _review_kind(ACCESS_REVIEWS, "authorization"),
        _review_kind(SUBJECT_REVIEWS, "authentication"),
    ]


def _review_kind(resource: Resource, package: str) -> Kind:
    return Kind(
        resource,
        BuiltinCodec(f"{package}.v1.{resource.kind}", resource.kind, None),
        PlainStrategy(),
        PLAIN,
        singular=resource.kind.lower(),
        verbs=("create",),
        merge_schema=f"io.k8s.api.{package}.v1.{resource.kind}",
    )


async def create_review(call: Call) -> Response:
    """The review with its answer."""
    _, review = await read_object(call, "CreateOptions", expected_of(call))
    access = call.kind.resource == ACCESS_REVIEWS
    status = {"allowed": True} if access else {"userInfo": USER}
    return call.value_reply(call.kind.named({**review, "status": status}), 201)
