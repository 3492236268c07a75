"""Errors of the API server: exceptions that carry a `Status`.

A request ends with a reply or with an `ApiError`; the texts, reasons and details are those that
k8s.io/apimachinery/pkg/api/errors gives, since clients branch on the reason and users read the
message. Constructors are functions named for the reason; `ApiError.status` is the body.
"""

from collections.abc import Sequence
from typing import Any, Final

from kthena.machinery.fields import ErrorList, ErrorType, FieldError, join_errors
from kthena.machinery.gotext import quote
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource

OPTIMISTIC_LOCK = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


_MAX_MESSAGE_BYTES: Final = 2 * 1024 * 1024
"""The longest message that a client of etcd sends."""


class ApiError(Exception):
    """A request that fails, with the `Status` that says why."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Object | None = None,
        *,
        pretty: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.metadata: Object = {}
        self.pretty = pretty
        """Whether the body is indented, as the replies are that no serializer was found for."""

    @property
    def status(self) -> Object:
        """The `Status` object."""
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status

    @property
    def retry_after_s(self) -> int:
        """The `Retry-After` of the reply; 0 for none."""
        return int((self.details or {}).get("retryAfterSeconds") or 0)


def success(resource: Resource, name: str, uid: str) -> Object:
    """The `Status` of a deletion that returns no object."""
    details = {"name": name, "group": resource.group, "kind": resource.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


def not_found(resource: Resource, name: str) -> ApiError:
    """404: the object is not there."""
    return ApiError(
        404, "NotFound", f"{resource} {quote(name)} not found", _object_details(resource, name)
    )


def no_such_resource() -> ApiError:
    """404: the group and version are served, the resource is not."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: an object of that name is there."""
    return ApiError(
        409,
        "AlreadyExists",
        f"{resource} {quote(name)} already exists",
        _object_details(resource, name),
    )


def generated_name_exists(resource: Resource, name: str) -> ApiError:
    """409: the name that the server made up is taken; the client may try again."""
    return ApiError(
        409,
        "AlreadyExists",
        f"{resource} {quote(name)} already exists, the server was not able to generate a unique "
        "name for the object",
        _object_details(resource, name) | {"retryAfterSeconds": 1},
    )


def conflict(resource: Resource, name: str, cause: str = OPTIMISTIC_LOCK) -> ApiError:
    """409: the object is not in the state that the request supposes."""
    return ApiError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {resource} {quote(name)}: {cause}",
        _object_details(resource, name),
    )


def precondition_conflict(kind: Resource, name: str, cause: str) -> ApiError:
    """409: a precondition of DeleteOptions does not hold. The API names the kind here."""
    qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    details = {"name": name, "group": kind.group, "kind": kind.kind}
    return ApiError(
        409,
        "Conflict",
        f"Operation cannot be fulfilled on {qualified} {quote(name)}: {cause}",
        {key: value for key, value in details.items() if value},
    )


def forbidden(resource: Resource, name: str, cause: str, causes: Sequence[Object] = ()) -> ApiError:
    """403: policy refuses the request."""
    subject = f"{resource} {quote(name)}" if name else str(resource)
    details = _object_details(resource, name)
    if causes:
        details["causes"] = list(causes)
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {cause}", details)


_POLICY_CODES = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413}


def denied_by_policy(resource: Resource, name: str, message: str, reason: str) -> ApiError:
    """A ValidatingAdmissionPolicy refuses the request, for a reason of its own: mostly 422."""
    error = forbidden(resource, name, message, [{"message": message}])
    error.reason, error.code = reason, _POLICY_CODES.get(reason, 422)
    return error


def invalid(group: str, kind: str, name: str, errors: ErrorList) -> ApiError:
    """422: the object, or the options of the request, break the rules of their kind."""
    subject = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {"name": name, "group": group, "kind": kind}
    details = {key: value for key, value in details.items() if value}
    details["causes"] = [
        {"reason": error.type.reason, "message": error.message, "field": error.path}
        for error in errors
    ]
    message = f"{subject} {quote(name)} is invalid: {join_errors(_distinct(errors))}"
    return ApiError(422, "Invalid", message, details)


def invalid_object(resource: Resource, name: str, errors: ErrorList) -> ApiError:
    """422 for an object of a resource."""
    return invalid(resource.group, resource.kind, name, errors)


def invalid_options(kind: str, errors: ErrorList) -> ApiError:
    """422 for the query parameters or the body of DeleteOptions, ListOptions and so on."""
    return invalid("meta.k8s.io", kind, "", errors)


def wrong_type(resource: Resource, given: Object, name: str) -> ApiError:
    """422: a custom resource that says it is of another kind or version."""
    found = []
    kind, version = given.get("kind") or "", given.get("apiVersion") or ""
    if kind != resource.kind:
        found.append(FieldError("kind", ErrorType.INVALID, kind, f"must be {resource.kind}"))
    if version != resource.api_version:
        detail = f"must be {resource.api_version}"
        found.append(FieldError("apiVersion", ErrorType.INVALID, version, detail))
    return invalid(version.rpartition("/")[0], kind, name, found)


def version_required(resource: Resource, name: str) -> ApiError:
    """422: an update that has to say which version it is based on. The API names the plural here."""
    error = FieldError(
        "metadata.resourceVersion", ErrorType.INVALID, 0, "must be specified for an update"
    )
    return invalid(resource.group, resource.plural, name, [error])


def unprocessable_patch() -> ApiError:
    """422: a JSON Patch does not apply to the object. The API does not say which operation."""
    return ApiError(
        422, "Invalid", "the server rejected our request due to an error in our request", {}
    )


def bad_request(message: str) -> ApiError:
    """400: the request cannot be understood."""
    return ApiError(400, "BadRequest", message)


def method_not_allowed() -> ApiError:
    """405: the path exists for other methods."""
    return ApiError(
        405,
        "MethodNotAllowed",
        "the server does not allow this method on the requested resource",
        {},
    )


def not_offered(resource: Resource, subresource: str) -> ApiError:
    """405: the API has the subresource, and this server has not."""
    message = f"{resource.plural}/{subresource} is not offered by this server"
    return ApiError(405, "MethodNotAllowed", message, {})


def method_not_supported(resource: Resource, verb: str) -> ApiError:
    """405, as custom resources answer."""
    details = {"group": resource.group, "kind": resource.plural}
    message = f"{verb} is not supported on resources of kind {quote(str(resource))}"
    return ApiError(405, "MethodNotAllowed", message, details)


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415: the body has a content type that this endpoint does not read."""
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(accepted)}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable(accepted: Sequence[str]) -> ApiError:
    """406: the client accepts nothing that this endpoint can write."""
    message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", message, {}, pretty=True)


def not_convertible(accepted: Sequence[str]) -> ApiError:
    """406: the client asks for a form of the object (`as=...`) that the API does not have."""
    message = f"only the following media types are accepted: {', '.join(accepted)}"
    return ApiError(406, "NotAcceptable", message, pretty=True)


def expired(message: str) -> ApiError:
    """410: the resourceVersion or the continue token is too old."""
    return ApiError(410, "Expired", message)


def too_large(message: str) -> ApiError:
    """413: the body is beyond the limit."""
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {message}")


def too_large_to_store(size: int) -> ApiError:
    """500: the object is beyond what etcd takes, in its words or, before it sees it, its client's."""
    message = "etcdserver: request is too large"
    if size > _MAX_MESSAGE_BYTES:
        message = (
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max "
            f"({size} vs. {_MAX_MESSAGE_BYTES})"
        )
    return ApiError(500, "", message)


def version_too_large(requested: int, current: int) -> ApiError:
    """504: the resourceVersion is not reached yet."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiError(504, "Timeout", message, details)


def unauthorized() -> ApiError:
    """401: no token, or a wrong one."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def unavailable(message: str) -> ApiError:
    """503: what the request needs is not there."""
    return ApiError(503, "ServiceUnavailable", message)


def internal(message: str) -> ApiError:
    """500 without a reason, as the API answers errors that it did not foresee."""
    return ApiError(500, "", message)


def internal_error(cause: str) -> ApiError:
    """500 with a reason: the request is good and cannot be carried out."""
    return ApiError(
        500,
        "InternalError",
        f"Internal error occurred: {cause}",
        {"causes": [{"message": cause}]},
    )


def _object_details(resource: Resource, name: str) -> Object:
    details = {"name": name, "group": resource.group, "kind": resource.plural}
    return {key: value for key, value in details.items() if value}


def _distinct(errors: ErrorList) -> ErrorList:
    """The errors with repeated texts left out, as the API joins them."""
    return list({str(error): error for error in errors}.values())
