"""Reviews: who the client is and what it may do. Whoever has the token is root.

They are answered and not stored.
"""

from typing import Final

from kthena.machinery.objects import Object

USER: Final = {"username": "kthena", "groups": ["system:masters", "system:authenticated"]}


def review_access(review: Object) -> Object:
    """A SelfSubjectAccessReview with its answer."""
    return {**review, "status": {"allowed": True}}


def review_subject(review: Object) -> Object:
    """A SelfSubjectReview with its answer."""
    return {**review, "status": {"userInfo": USER}}
