"""ExternalModelProvider: a model that somebody else serves over HTTPS."""

from typing import Annotated, Literal

from msgspec import field

from kthena.api.markers import Generation, schema
from kthena.api.meta import ApiStruct, Condition, ObjectMeta
from kthena.api.meta import decode as decode_as
from kthena.api.rules import FORBIDDEN, REQUIRED, Rule, spec_required
from kthena.machinery.objects import Object

RESERVED_HEADERS = (
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "host",
    "content-length",
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "trailer",
    "te",
)
"""Headers that the router sets itself, or that belong to one connection."""


class SecretReference(ApiStruct, frozen=True, kw_only=True):
    """A key of a Secret."""

    name: str = ""
    """The Secret, in the same namespace. It must carry the label
    `networking.serving.volcano.sh/external-model-provider-credential: "true"`."""

    key: Annotated[str, schema(min_length=1)]
    """The key whose value is the credential."""

    optional: bool | None = None
    """Must be unset or false."""


class ProviderAuth(ApiStruct, frozen=True, kw_only=True):
    """How the router identifies itself to the provider."""

    scheme: Literal["Bearer", "APIKey"] | None = None
    """`Bearer` sends the header `Authorization`, `APIKey` sends `x-api-key`. Unset means `Bearer`
    for OpenAI and `APIKey` for Anthropic."""

    secret_ref: Annotated[SecretReference, schema(map_type="atomic")]
    """The credential."""


class ExternalModelProviderSpec(ApiStruct, frozen=True, kw_only=True):
    """Where the model is, and how to talk to it."""

    provider_type: Literal["OpenAI", "Anthropic"] = "OpenAI"
    """The dialect of the provider's API."""

    model: Annotated[str, schema(max_length=256)] | None = None
    """The name by which the provider knows the model. Requests are rewritten to it."""

    base_url: Annotated[str, schema(min_length=1, pattern=r"^https://[^/?#@]+(/[^?#]*)?\??#?$")] = (
        field(name="baseURL")
    )
    """The URL that request paths are appended to: https, without user info, query or fragment."""

    insecure_skip_verify: bool = False
    """Accept any certificate of the provider. For tests only."""

    auth: ProviderAuth | None = None
    """How the router identifies itself to the provider."""

    headers: Annotated[
        dict[str, Annotated[str, schema(pattern=r"^[^\r\n]*$")]],
        schema(max_properties=64),
    ] = field(default_factory=dict)
    """Headers that are added to each request."""


class ExternalModelProviderStatus(ApiStruct, frozen=True, kw_only=True):
    """Whether the provider can be used."""

    observed_generation: Generation = 0
    """The `metadata.generation` that this status speaks of."""

    conditions: Annotated[list[Condition], schema(map_keys=["type"])] = field(default_factory=list)
    """`Ready` and `CredentialsResolved`, and `Accepted` when the kind is not supported."""


class ExternalModelProvider(ApiStruct, frozen=True, kw_only=True):
    """ExternalModelProvider is a model that somebody else serves over HTTPS."""

    metadata: ObjectMeta
    spec: ExternalModelProviderSpec
    """Where the model is, and how to talk to it."""

    status: ExternalModelProviderStatus | None = None
    """Whether the provider can be used, written by the router."""


def decode(obj: Object) -> ExternalModelProvider:
    """A typed view of an ExternalModelProvider.

    Raises:
        DecodeError: the object has not the shape of one.
    """
    return decode_as(obj, ExternalModelProvider)


_NAMES = ", ".join(f"'{name}'" for name in RESERVED_HEADERS)
_WITHOUT_SUFFIX = "self.find('^[^?#]*')"

RULES = (
    spec_required("ExternalModelProvider"),
    Rule(
        at="spec.baseURL",
        # `isURL` takes a '#' for a part of host or path; the pattern has seen to what follows it.
        expression=f"isURL({_WITHOUT_SUFFIX}) && url({_WITHOUT_SUFFIX}).getHost() != ''",
        message="baseURL must be a URL with a host, for instance https://api.example.com/v1",
    ),
    Rule(
        at="spec.auth",
        expression="!has(self.secretRef.optional) || !self.secretRef.optional",
        message="secretRef.optional must be false or unset",
    ),
    Rule(
        at="spec.auth",
        # A default must be valid, so minLength cannot say this while the default is empty.
        expression="has(self.secretRef.name) && self.secretRef.name != ''",
        message="secretRef needs the name of a Secret",
        reason=REQUIRED,
        field_path=".secretRef.name",
    ),
    Rule(
        at="spec.headers",
        expression=r"self.all(k, k.matches('^[!#$%&\'*+.^_`|~0-9A-Za-z-]+$'))",
        message="a header name must be a token: letters, digits and !#$%&'*+-.^_`|~",
    ),
    Rule(
        at="spec.headers",
        expression=f"self.all(k, !(k.lowerAscii() in [{_NAMES}]))",
        message="a header belongs to the connection or is set by the router: authorization, "
        "cookie, x-api-key, host, content-length and hop-by-hop headers",
        reason=FORBIDDEN,
    ),
)
"""What admission refuses beyond the bounds of single fields."""
