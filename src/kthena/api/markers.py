"""What a field's schema says beyond its Python type: bounds, list semantics, defaults by reference.

The structs of this package are read tolerantly: an object that was stored before a bound existed
still decodes. So bounds are annotations of the schema (`Annotated[int, schema(minimum=0)]`), which
the CRD generator reads and which `msgspec.convert` does not enforce; the Python type is as wide as
anything that the API server may hold. Admission is the schema's business, reading is not.
"""

from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1
UINT32_MAX = 2**32 - 1

REQUIRED = "kthena:required"
COMPONENT = "kthena:component"
QUANTITY = "kthena:quantity"
MARKERS = frozenset({REQUIRED, COMPONENT, QUANTITY})
"""Keys that steer the generator; every other key is a keyword of the schema."""

_KEYWORDS = {
    "minimum": "minimum",
    "maximum": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
    "min_items": "minItems",
    "max_items": "maxItems",
    "min_properties": "minProperties",
    "max_properties": "maxProperties",
    "pattern": "pattern",
    "format": "format",
    "map_keys": "x-kubernetes-list-map-keys",
    "list_type": "x-kubernetes-list-type",
    "map_type": "x-kubernetes-map-type",
    "preserve_unknown_fields": "x-kubernetes-preserve-unknown-fields",
    "required": REQUIRED,
    "component": COMPONENT,
    "quantity": QUANTITY,
}


def schema(*, enum: Sequence[str] = (), **keywords: Any) -> Meta:
    """The schema keywords of one field, in Python case.

    Beyond the keywords of OpenAPI: `map_keys` makes a list a map by these fields, `list_type` and
    `map_type` are `atomic` (or `set`), `quantity` makes an int or string a Kubernetes quantity,
    `required` demands a field whose Python type has a default, and `component` takes the schema of
    a built-in type of Kubernetes (or `PodTemplate`) for a field that is kept as plain JSON.

    Raises:
        ValueError: a keyword is unknown.
    """
    unknown = keywords.keys() - _KEYWORDS.keys()
    if unknown:
        raise ValueError(f"no schema keyword is called {', '.join(sorted(unknown))}")
    translated: dict[str, Any] = {_KEYWORDS[key]: value for key, value in keywords.items()}
    if "map_keys" in keywords:
        translated["x-kubernetes-list-type"] = "map"
    if enum:
        translated["enum"] = list(enum)
    return Meta(extra_json_schema=translated)


Count: TypeAlias = Annotated[int, schema(format="int32", minimum=0, maximum=INT32_MAX)]
"""A number of things that a user asks for."""

ObservedCount: TypeAlias = Annotated[int, schema(format="int32")]
"""A number of things in a status."""

Generation: TypeAlias = Annotated[int, schema(format="int64")]
"""A `metadata.generation` in a status."""

GO_DURATION = r"^[-+]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
"""The syntax of Go's `time.ParseDuration`."""

Duration: TypeAlias = Annotated[str, schema(pattern=GO_DURATION)]
"""A duration in Go's syntax; `kthena.machinery.durations` reads it."""

PERCENT = r"^0*(100|\d{1,2})%$"
"""From 0 % to 100 %. A CEL rule repeats it: longer than 20 characters and the rule costs too much."""

CountOrPercent: TypeAlias = Annotated[
    int | str, schema(minimum=0, maximum=INT32_MAX, pattern=PERCENT)
]
"""A count, or a percentage from 0 to 100."""

Quantity: TypeAlias = Annotated[int | str, schema(quantity=True)]
"""A Kubernetes quantity; `kthena.machinery.quantity` reads it."""

LABEL_KEY = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
)
"""A label key, but for the length of its prefix (253)."""

LabelValue: TypeAlias = Annotated[
    str, schema(max_length=63, pattern=r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
]
"""The value of a label that pods must carry."""
