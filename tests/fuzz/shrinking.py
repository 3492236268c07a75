"""Makes a sequence that shows a difference as short as it gets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from fuzz.operations import Operation

_KEPT: Final = frozenset(
    ("$seen", "apiVersion", "kind", "metadata", "name", "generateName", "clusterIP")
)
"""Without these a sequence goes wrong in other ways than it did."""

Fails = Callable[[Sequence[Operation]], bool]


def shrink(operations: Sequence[Operation], fails: Fails, attempts: int = 150) -> list[Operation]:
    """A short sequence that still fails: fewer operations, then smaller bodies."""
    budget = _Budget(attempts, fails)
    found = _fewer(list(operations), budget)
    found = _smaller(found, budget)
    return _fewer(found, budget)


class _Budget:
    """Mutable state: how many attempts are left."""

    def __init__(self, attempts: int, fails: Fails) -> None:
        self._left = attempts
        self._fails = fails

    def fails(self, operations: Sequence[Operation]) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        return self._fails(operations)


def _fewer(operations: list[Operation], budget: _Budget) -> list[Operation]:
    size = len(operations) // 2
    while size >= 1:
        start = 0
        while start < len(operations):
            shorter = operations[:start] + operations[start + size :]
            if shorter and budget.fails(shorter):
                operations = shorter
            else:
                start += size
        size //= 2
    return operations


def _smaller(operations: list[Operation], budget: _Budget) -> list[Operation]:
    for index in range(len(operations)):
        progress = True
        while progress:
            progress = False
            for simpler in _simpler_operations(operations[index]):
                candidate = [*operations[:index], simpler, *operations[index + 1 :]]
                if budget.fails(candidate):
                    operations, progress = candidate, True
                    break
    return operations


def _simpler_operations(operation: Operation) -> Iterator[Operation]:
    for name in operation.query:
        if operation.watch and name in ("watch", "timeoutSeconds"):
            continue
        rest = {key: value for key, value in operation.query.items() if key != name}
        yield replace(operation, query=rest)
    if operation.accept:
        yield replace(operation, accept="")
    for body in _simpler_values(operation.body):
        yield replace(operation, body=body)


def _simpler_values(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for key in value:
            if key in _KEPT:
                continue
            yield {name: entry for name, entry in value.items() if name != key}
        for key, entry in value.items():
            for simpler in _simpler_values(entry):
                yield {**value, key: simpler}
    elif isinstance(value, list):
        for index in range(len(value)):
            yield [*value[:index], *value[index + 1 :]]
        for index, entry in enumerate(value):
            for simpler in _simpler_values(entry):
                yield [*value[:index], simpler, *value[index + 1 :]]
