"""CEL rules of a kind, as data: where a rule stands, what it says, and how it spares stored objects.

A rule without a guard bricks objects: one that was stored before the rule came can then neither be
relabelled nor released from its finalizers. So each rule names the guard that fits it;
`kthena.api.crd.guards` writes it into the expression. A rule stands on the deepest node that it
needs, and what a schema keyword can say is no rule.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

REQUIRED: Final = "FieldValueRequired"
INVALID: Final = "FieldValueInvalid"
FORBIDDEN: Final = "FieldValueForbidden"


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Passes while the node, or the named fields of it, are as they were stored.

    A field is a path below the node, as `template.roles`. Errors of the rule's evaluation pass as
    well then: a stored regex that does not compile must not lock its object.
    """

    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlreadyBroken:
    """Passes while the node is as it was stored, and where the stored node broke the same rule.

    So an object can be mended step by step.
    """


@dataclass(frozen=True, slots=True)
class Transition:
    """The rule compares `self` with `oldSelf`: it speaks of updates only, and unchanged passes."""


@dataclass(frozen=True, slots=True)
class SelfGuarded:
    """The expression handles `oldSelf`, an optional, in its own way."""


Guard: TypeAlias = Unchanged | AlreadyBroken | Transition | SelfGuarded


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a kind.

    `at` is the place in the schema, as `spec.template.roles[]` (an item of a list) or
    `spec.disaggregatedTarget.roles{}` (a value of a map); the empty string is the root.
    `field_path` moves the error to a field below it.
    """

    at: str
    expression: str
    message: str
    guard: Guard = Unchanged()
    reason: str = INVALID
    field_path: str = ""


def spec_required(kind: str) -> Rule:
    """The spec must be there. `required` at the root would lock what was stored without one."""
    return Rule(
        at="",
        expression="has(self.spec)",
        message=f"{kind} needs a spec",
        guard=AlreadyBroken(),
        reason=REQUIRED,
        field_path=".spec",
    )
