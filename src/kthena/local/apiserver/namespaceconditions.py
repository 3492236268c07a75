"""The conditions of a terminating namespace: what is left in it, and what could not be deleted.

Types, reasons and texts are those of kube-controller-manager's namespace controller.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kthena.machinery.conditions import FALSE, TRUE, Condition, set_condition
from kthena.machinery.objects import Object
from kthena.machinery.resources import Resource


@dataclass(slots=True)
class Remainder:
    """What a look at a namespace has found. Mutable: filled while the look goes on.

    `instances` are objects by resource, `finalizers` the objects that each finalizer holds, and
    `failures` are the texts of errors, one for each resource that could not be emptied.
    """

    instances: Counter[str] = field(default_factory=Counter)
    finalizers: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, resource: Resource, finalizers: Sequence[str]) -> None:
        """Count an object that is still there."""
        self.instances[f"{resource.plural}.{resource.group}"] += 1
        self.finalizers.update(set(finalizers))

    def conditions(self, before: Sequence[Object], now: datetime) -> list[Object]:
        """The conditions after the look, which came to a change of those `before` at `now`."""
        conditions = list(before)
        for condition in self._found():
            conditions = set_condition(conditions, condition, now)
        return conditions

    def _found(self) -> list[Condition]:
        return [
            Condition(
                "NamespaceDeletionDiscoveryFailure",
                FALSE,
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            Condition(
                "NamespaceDeletionGroupVersionParsingFailure",
                FALSE,
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            self._content_failure(),
            self._content_remaining(),
            self._finalizers_remaining(),
        ]

    def _content_failure(self) -> Condition:
        kind = "NamespaceDeletionContentFailure"
        if not self.failures:
            text = "All content successfully deleted, may be waiting on finalization"
            return Condition(kind, FALSE, "ContentDeleted", text)
        text = ", ".join(sorted(self.failures))
        text = f"Failed to delete all resource types, {len(self.failures)} remaining: {text}"
        return Condition(kind, TRUE, "ContentDeletionFailed", text)

    def _content_remaining(self) -> Condition:
        kind = "NamespaceContentRemaining"
        if not self.instances:
            return Condition(kind, FALSE, "ContentRemoved", "All content successfully removed")
        shown = sorted(
            f"{resource} has {count} resource instances"
            for resource, count in self.instances.items()
        )
        text = f"Some resources are remaining: {', '.join(shown)}"
        return Condition(kind, TRUE, "SomeResourcesRemain", text)

    def _finalizers_remaining(self) -> Condition:
        kind = "NamespaceFinalizersRemaining"
        if not self.finalizers:
            text = "All content-preserving finalizers finished"
            return Condition(kind, FALSE, "ContentHasNoFinalizers", text)
        shown = sorted(
            f"{finalizer} in {count} resource instances"
            for finalizer, count in self.finalizers.items()
        )
        text = f"Some content in the namespace has finalizers remaining: {', '.join(shown)}"
        return Condition(kind, TRUE, "SomeFinalizersRemain", text)
