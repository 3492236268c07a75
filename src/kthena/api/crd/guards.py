"""Guards: what lets a stored object pass a rule that it breaks.

`validation` is the only place that turns a `Rule` into an entry of `x-kubernetes-validations`, so no
rule is without its guard. `oldSelf` is an optional there (`optionalOldSelf`), absent on creation.
Two facts of the API server shape the expressions: an error of evaluation never ratchets, so the
guard stands first and short-circuits it; and a list that is reached through `oldSelf` has unbounded
estimated cost unless it is the variable of a loop over a list of one element. That variable is `p`;
expressions of rules name theirs otherwise.
"""

import re
from typing import Any

from kthena.api.rules import AlreadyBroken, Rule, SelfGuarded, Transition, Unchanged

_OLD = "[oldSelf.orValue(self)]"


def validation(rule: Rule) -> dict[str, Any]:
    """The rule as an entry of `x-kubernetes-validations`, with its guard written in.

    Raises:
        ValueError: a rule that guards itself, or speaks of transitions, does not look at `oldSelf`.
    """
    entry: dict[str, Any] = {"rule": _guarded(rule), "message": rule.message}
    if not isinstance(rule.guard, Transition):
        entry["optionalOldSelf"] = True
    if rule.reason:
        entry["reason"] = rule.reason
    if rule.field_path:
        entry["fieldPath"] = rule.field_path
    return entry


def _guarded(rule: Rule) -> str:
    match rule.guard:
        case Unchanged(fields=()):
            return f"(oldSelf.hasValue() && oldSelf.value() == self) || ({rule.expression})"
        case Unchanged(fields=fields):
            same = " && ".join(_same(field.split(".")) for field in fields)
            return f"(oldSelf.hasValue() && {_OLD}.all(p, {same})) || ({rule.expression})"
        case AlreadyBroken():
            before = re.sub(r"\bself\b", "p", rule.expression)
            return (
                f"(oldSelf.hasValue() && (oldSelf.value() == self || !{_OLD}.all(p, {before})))"
                f" || ({rule.expression})"
            )
        case Transition() | SelfGuarded():
            if "oldSelf" not in rule.expression:
                raise ValueError(f"rule {rule.message!r} at {rule.at!r} does not look at oldSelf")
            return rule.expression


def _same(path: list[str], parent: str = "") -> str:
    """Whether a field below the node is what it was, present or absent.

    Required fields are tested for presence too: an object that lacks one may be stored.
    """
    field = f"{parent}.{path[0]}"
    rest = _same(path[1:], field) if path[1:] else f"p{field} == self{field}"
    return f"has(p{field}) == has(self{field}) && (!has(self{field}) || ({rest}))"
