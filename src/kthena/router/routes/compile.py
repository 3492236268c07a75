"""From plain route data to something that matches quickly.

A rule that cannot be compiled is dead: it never matches, its problem is reported with the field at
fault, and the other rules of its route serve as if it were not there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from kthena.machinery.fields import ErrorType, FieldError, child, item
from kthena.machinery.regexp import RegexpError, compile_regexp
from kthena.router.routes.draw import SmoothDraw
from kthena.router.routes.spec import Route, Rule, RuleMatch, StringMatch, Target

Matches = Callable[[str], bool]


class RequestView(Protocol):
    """What rules may look at."""

    @property
    def model(self) -> str:
        """The model name that the client asked for."""
        ...

    @property
    def path(self) -> str:
        """The decoded path, without the query."""
        ...

    def header(self, name: bytes) -> bytes | None:
        """The first value of a header field, named in lower case."""
        ...


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """Why a rule is dead: its index and the field at fault."""

    rule: int
    error: FieldError


class CompiledRule:
    """A rule that can match, at its place in the route.

    Its draw keeps its credit as long as the rule does not change (`compile_route`).
    """

    __slots__ = ("_body_model", "_headers", "_uri", "draw", "index", "name", "targets")

    def __init__(self, index: int, rule: Rule, draw: SmoothDraw | None = None) -> None:
        match = rule.match or RuleMatch()
        self.index = index
        self.name = rule.name
        self.targets: tuple[Target, ...] = rule.targets
        self.draw = draw or SmoothDraw([target.weight for target in rule.targets])
        self._body_model = match.body_model
        self._uri = _compile(match.uri) if match.uri is not None else None
        self._headers: Sequence[tuple[bytes, Matches]] = tuple(
            (name.lower().encode(), _compile(condition)) for name, condition in match.headers
        )

    def matches(self, view: RequestView) -> bool:
        """Whether all conditions hold. A missing header is an empty one, as in Go's net/http."""
        if self._body_model is not None and self._body_model != view.model:
            return False
        if self._uri is not None and not self._uri(view.path):
            return False
        for name, holds in self._headers:
            value = b"" if name == _HOST else view.header(name) or b""
            if not holds(value.decode(errors="replace")):
                return False
        return True


_HOST: Final = b"host"  # Go keeps it apart from the header fields, so a rule never sees it.


@dataclass(frozen=True, slots=True)
class CompiledRoute:
    """A route whose dead rules are left out and listed."""

    route: Route
    rules: tuple[CompiledRule, ...]
    problems: tuple[RuleProblem, ...]
    label: str
    """The route's key, as metrics and logs name it."""

    @property
    def takes_everything(self) -> bool:
        """Whether no request for its names can pass it by."""
        return self.route.refusal is not None or any(
            self.route.rules[rule.index].match in {None, RuleMatch()} for rule in self.rules
        )


def compile_route(route: Route, previous: CompiledRoute | None = None) -> CompiledRoute:
    """Compile the rules of a route one by one.

    A rule that is equal to one of `previous` goes on with its draw, wherever it stands now: shares
    stay exact while other rules, or names of the route, change.
    """
    draws = _draws_of(previous)
    rules, problems = [], []
    for index, rule in enumerate(route.rules):
        errors = _check(index, rule)
        if errors:
            problems += [RuleProblem(index, error) for error in errors]
        else:
            kept = draws.get(rule)
            rules.append(CompiledRule(index, rule, kept.pop(0) if kept else None))
    return CompiledRoute(route, tuple(rules), tuple(problems), str(route.key))


def _draws_of(compiled: CompiledRoute | None) -> dict[Rule, list[SmoothDraw]]:
    """The draws of a route by their rules, of which several may be equal."""
    draws: dict[Rule, list[SmoothDraw]] = {}
    if compiled is not None:
        for rule in compiled.rules:
            draws.setdefault(compiled.route.rules[rule.index], []).append(rule.draw)
    return draws


def _compile(condition: StringMatch) -> Matches:
    if condition.exact is not None:
        return condition.exact.__eq__
    prefix = condition.prefix
    if prefix is not None:
        return lambda value: value.startswith(prefix)
    if condition.regex is not None:
        return compile_regexp(condition.regex).search
    return lambda _: True


def _check(index: int, rule: Rule) -> list[FieldError]:
    """What makes a rule dead. A regex beside `exact` or `prefix` is never used but must compile."""
    path = item("spec.rules", index)
    errors = []
    if rule.match is not None:
        match_path = child(path, "modelMatch")
        conditions = [
            (item(child(match_path, "headers"), name), condition)
            for name, condition in rule.match.headers
        ]
        if rule.match.uri is not None:
            conditions.append((child(match_path, "uri"), rule.match.uri))
        errors += [
            error for where, condition in conditions for error in _check_regex(where, condition)
        ]
    if not any(target.weight > 0 for target in rule.targets):
        errors.append(
            FieldError(
                child(path, "targetModels"),
                ErrorType.INVALID,
                0,
                "the weights of all targets add up to 0, so no request can be sent anywhere",
            )
        )
    return errors


def _check_regex(path: str, condition: StringMatch) -> list[FieldError]:
    if condition.regex is None:
        return []
    try:
        compile_regexp(condition.regex)
    except RegexpError as exc:
        return [FieldError(child(path, "regex"), ErrorType.INVALID, condition.regex, str(exc))]
    return []
