"""One request to a resource, as the verbs see it."""

from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from kthena.local.apiserver import errors
from kthena.local.apiserver.content import Form, negotiate
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.options import Query
from kthena.local.apiserver.replies import json_reply, object_reply
from kthena.local.apiserver.requests import ResourcePath
from kthena.local.apiserver.store import Entry, Key
from kthena.local.apiserver.tables import check_include, partial_metadata, table
from kthena.machinery.objects import Object

OBJECT_FORMS = (Form.TABLE, Form.METADATA)


@dataclass(slots=True)
class Call:
    """The request, what its path means, and the server. Mutable: warnings are added on the way."""

    core: Core
    request: Request
    path: ResourcePath
    kind: Kind
    query: Query
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """The object that the path names."""
        return Key(self.path.namespace, self.path.name)

    @property
    def include(self) -> str:
        """What the rows of a table carry.

        Raises:
            ApiError: 400, the query asks for something else.
        """
        include = self.query.text("includeObject")
        check_include(include)
        return include

    def object_form(self) -> Form:
        """The form in which the client wants an object.

        Raises:
            ApiError: 406, none that can be given.
        """
        return negotiate(self.request.headers.get("accept", ""), OBJECT_FORMS)

    def entry_reply(self, entry: Entry, form: Form, status: int = 200) -> Response:
        """A reply with a stored object."""
        if form is Form.OBJECT:
            return json_reply(self.kind.encoded(entry), status, self.warnings)
        if form is Form.TABLE:
            rows = table(self.kind, [entry], self.include, self.core.config.now())
            rows["metadata"] = {"resourceVersion": str(entry.revision)}
            return object_reply(rows, status, self.warnings)
        return object_reply(partial_metadata(self.kind.read(entry)), status, self.warnings)

    def value_reply(self, value: Object, status: int = 200) -> Response:
        """A reply with an object that is not stored as it is: a Scale, a Status."""
        return object_reply(value, status, self.warnings)


def require_subresource(call: Call, verb: str) -> None:
    """Whether the subresource of the path is offered for a verb.

    Raises:
        ApiError: 404, there is no such subresource; 405, it has not this verb.
    """
    name = call.path.subresource
    verbs = call.kind.other_subresources.get(name, ())
    if (name == "status" and call.kind.status) or (name == "scale" and call.kind.scale):
        verbs = ("get", "patch", "update")
    if not verbs:
        if call.kind.builtin:
            raise errors.no_such_resource()
        raise errors.not_found(call.kind.resource, call.path.name)
    if verb not in verbs:
        raise method_error(call, verb)


def method_error(call: Call, verb: str) -> errors.ApiError:
    """What the API answers to a method that a path is not for."""
    if call.kind.builtin:
        return errors.method_not_allowed()
    return errors.method_not_supported(call.kind.resource, verb)
