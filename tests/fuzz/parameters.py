"""Queries, selectors and options of requests: right ones mostly, and wrong ones."""

from random import Random
from typing import Any

from fuzz import metadata
from fuzz.kinds import DEPLOYMENTS, NAMESPACES, REPLICA_SETS, FuzzKind


class Parameters:
    """Chooses what goes along with a request. Mutable state: the randomness."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def of_write(self, *, patch: bool = False) -> dict[str, str]:
        """The query of a write."""
        query: dict[str, str] = {}
        if self._chance(0.06):
            query["dryRun"] = "All" if self._chance(0.85) else "Some"
        if self._chance(0.25):
            query["fieldValidation"] = self._random.choice(
                [
                    "Strict",
                    "Strict",
                    "Warn",
                    "Ignore",
                    "Ignore",
                    "Bogus" if self._chance(0.2) else "Warn",
                ]
            )
        if self._chance(0.15):
            query["fieldManager"] = (
                self._random.choice(["one", "two"]) if self._chance(0.9) else "x" * 130
            )
        if patch and self._chance(0.02):
            query["force"] = "true"
        return query

    def accept(self, other: str) -> str:
        if self._chance(0.92):
            return ""
        return self._random.choice([other, other, "*/*"])

    def of_delete(self, path: str, *, foreground: bool) -> tuple[Any, dict[str, str], bool]:
        """A body, a query, and whether controllers act upon it."""
        random = self._random
        body: dict[str, Any] = {}
        settles = False
        if self._chance(0.35):
            policy = (
                random.choice(["Background", "Foreground" if foreground else "Orphan", "Orphan"])
                if self._chance(0.93)
                else "Bogus"
            )
            body["propagationPolicy"] = policy
            settles = True
        if self._chance(0.05):
            body["orphanDependents"] = self._chance(0.5) or not foreground
            settles = True
        if self._chance(0.2):
            body["gracePeriodSeconds"] = random.choice([0, 0, 1, 30, -1])
        if self._chance(0.2):
            conditions: dict[str, Any] = {}
            which = "last" if self._chance(0.75) else "first"
            if self._chance(0.6):
                conditions["uid"] = (
                    f"${{{which}|{path}|metadata.uid}}" if self._chance(0.8) else metadata.NO_UID
                )
            if self._chance(0.6):
                conditions["resourceVersion"] = f"${{{which}|{path}|metadata.resourceVersion}}"
            body["preconditions"] = conditions
        if self._chance(0.05):
            body["dryRun"] = ["All"]
        if self._chance(0.04):
            body |= random.choice(
                [{"bogus": 1}, {"kind": "Bogus"}, {"apiVersion": "v9"}, {"gracePeriodSeconds": "x"}]
            )
        if (
            body
            and self._chance(0.3)
            and set(body) <= {"propagationPolicy", "gracePeriodSeconds", "orphanDependents"}
        ):
            return (
                None,
                {
                    name: str(value).lower() if isinstance(value, bool) else str(value)
                    for name, value in body.items()
                },
                settles,
            )
        return body or None, {}, settles

    def label_selector(self) -> str:
        good = (
            "app=a",
            "app!=a",
            "app",
            "!tier",
            "app in (a,b)",
            "tier notin (x)",
            "app=a,tier=x",
            "app==b",
        )
        wrong = ("app in", "a b", "app=a=b", "in (", "app in ()", "=x", "-x=a", "app>x", ",")
        return self._random.choice(wrong if self._chance(0.08) else good)

    def field_selector(self, kind: FuzzKind) -> str:
        if self._chance(0.08):
            return self._random.choice(
                ("bogus=x", "metadata.name in (a)", "metadata.name", "metadata.labels=x")
            )
        name = self._random.choice(list(kind.selectable))
        value = self._random.choice(
            ("a", "b", "Running", "Opaque", "red", "Normal", "ClusterIP", "Pending", "")
        )
        return f"{name}{self._random.choice(('=', '!=', '=='))}{value}"

    def selectors(self, kind: FuzzKind) -> dict[str, str]:
        query: dict[str, str] = {}
        if self._chance(0.4):
            query["labelSelector"] = self.label_selector()
        if self._chance(0.25):
            query["fieldSelector"] = self.field_selector(kind)
        if kind is NAMESPACES:
            query["labelSelector"] = "run={ns}"
        return query

    def of_list(self, kind: FuzzKind, collection: str) -> dict[str, str]:
        """The query of a list."""
        query = self.selectors(kind)
        if self._chance(0.3):
            query["limit"] = self._random.choice(
                ("1", "2", "3", "0", "-1" if self._chance(0.2) else "1")
            )
        if self._chance(0.15):
            query["resourceVersion"] = self._random.choice(
                [
                    f"${{last|list:{collection}|metadata.resourceVersion}}",
                    "x" if self._chance(0.3) else "",
                ]
            )
            if self._chance(0.6):
                query["resourceVersionMatch"] = self._random.choice(
                    ["Exact", "NotOlderThan", "Bogus"]
                )
        if query.get("limit") and query.get("resourceVersionMatch") == "NotOlderThan":
            # A real server answers from its cache, or from etcd, as it likes: with or without a page.
            del query["resourceVersionMatch"]
        return query

    def of_watch(self, kind: FuzzKind) -> tuple[dict[str, str], bool]:
        """The query of a watch, and whether it has to be opened at once."""
        query: dict[str, str] = {}
        if self._chance(0.5):
            query["labelSelector"] = self._random.choice(
                ("app=a", "app", "!tier", "app in (a,b)", "tier!=x")
            )
        if self._chance(0.1):
            query["fieldSelector"] = "metadata.name!=b"
        choice = self._random.random()
        live = self._chance(0.5)
        if choice < 0.6:
            query["resourceVersion"] = "${last|start|metadata.resourceVersion}"
        elif choice < 0.8 and kind not in (DEPLOYMENTS, REPLICA_SETS):
            # The bookmark after the initial events of these has zeros of types within the API server.
            query |= {
                "sendInitialEvents": "true",
                "resourceVersionMatch": "NotOlderThan",
                "allowWatchBookmarks": "true",
            }
        elif choice < 0.9:
            query["resourceVersion"] = "0"
            live = True
        else:
            live = True
        query |= {"watch": "true", "timeoutSeconds": "60"}
        return query, live
