"""One request to a resource, as the verbs see it."""

from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from kthena.local.apiserver import errors
from kthena.local.apiserver.core import Core
from kthena.local.apiserver.identity import user_of
from kthena.local.apiserver.kinds import Kind, Representation, Strategy, Subresource
from kthena.local.apiserver.negotiation import Form, negotiate
from kthena.local.apiserver.options import Query
from kthena.local.apiserver.replies import json_reply, object_reply
from kthena.local.apiserver.requests import ResourcePath
from kthena.local.apiserver.store import Entry, Key
from kthena.local.apiserver.tables import check_include, partial_metadata, table
from kthena.machinery.managedfields.tracking import Tracker
from kthena.machinery.objects import Object

OBJECT_FORMS = (Form.TABLE, Form.METADATA)


@dataclass(slots=True)
class ResourceCall:
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
    def subresource(self) -> Subresource | None:
        """The subresource that the path names; None for the object itself."""
        return self.kind.subresources.get(self.path.subresource)

    @property
    def strategy(self) -> Strategy:
        """What a write to the path may do."""
        subresource = self.subresource
        own = subresource.strategy if subresource is not None else None
        return self.kind.strategy if own is None else own

    @property
    def tracker(self) -> Tracker:
        """Who owns what of the objects that are sent to the path."""
        management, name = self.core.registry.management, self.path.subresource
        subresource = self.subresource
        if subresource is not None and subresource.representation is not None:
            return management.of_part(subresource.representation, name)
        return management.of_kind(self.kind, self.strategy, name)

    @property
    def representation(self) -> Representation:
        """What is sent to the path, and answered from it."""
        subresource = self.subresource
        other = subresource.representation if subresource is not None else None
        return self.kind.representation if other is None else other

    @property
    def user(self) -> Object:
        """Who the request is from.

        Raises:
            ApiError: 400, it wants to be of a group, but nobody.
        """
        return user_of(self.request.headers.items())

    @property
    def user_agent(self) -> str:
        """How the client calls itself; headers are bytes, and this one is UTF-8 by custom."""
        header = self.request.headers.get("user-agent", "")
        return header.encode("latin-1").decode("utf-8", "replace")

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


def require_subresource(call: ResourceCall, verb: str) -> Subresource:
    """The subresource of the path, which is offered for a verb.

    Raises:
        ApiError: 404, there is no such subresource; 405, it is not offered or has not this verb.
    """
    subresource = call.subresource
    if call.path.subresource in call.kind.not_offered:
        raise errors.not_offered(call.kind.resource, call.path.subresource)
    if subresource is None:
        if call.kind.dialect.generic_errors:
            raise errors.no_such_resource()
        raise errors.not_found(call.kind.resource, call.path.name)
    if verb not in subresource.verbs:
        raise method_error(call, verb)
    return subresource


def method_error(call: ResourceCall, verb: str) -> errors.ApiError:
    """What the API answers to a method that a path is not for."""
    if call.kind.dialect.generic_errors:
        return errors.method_not_allowed()
    return errors.method_not_supported(call.kind.resource, verb)
