"""What keeps CustomResourceDefinitions true: accepted names, served kinds, and their end.

The work of kube-apiserver's naming, establishing and finalizing controllers. A CRD whose names are
free is established and served at once; one whose names another holds waits for them. A deleted CRD
takes its objects with it: it goes when the last of them, finalizers and all, is gone.
"""

from dataclasses import replace
from typing import Final

from kthena.api.kubernetes import CUSTOM_RESOURCE_DEFINITIONS
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.builtins.printers import STAMPED
from kthena.local.apiserver.builtins.representation import builtin
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.customresources.definition import (
    FINALIZER,
    DefinitionStatusStrategy,
    DefinitionStrategy,
    default_definition,
    plan_definition_deletion,
    set_definition_condition,
)
from kthena.local.apiserver.customresources.naming import accept_names
from kthena.local.apiserver.customresources.serving import SchemaCache, kinds_of
from kthena.local.apiserver.fieldmanagement import API_SERVER
from kthena.local.apiserver.kinds import DeletionRules, Kind, Names, Subresource
from kthena.local.apiserver.options import WriteOptions
from kthena.local.apiserver.registry import Registry, Write
from kthena.local.apiserver.store import Change, Entry, Key
from kthena.local.apiserver.strategies import PlainStrategy
from kthena.local.apiserver.watch import WatchHub
from kthena.machinery.conditions import FALSE, TRUE, Condition, is_true
from kthena.machinery.objects import Object, is_terminating, name_of

_CLOSED: Final = "create not allowed while custom resource definition is terminating"

_WATCHES_END_S: Final = 1.0
"""How long watches go on that were begun before a change of the CRD: their clients start again then."""

BUCKET: Final = str(CUSTOM_RESOURCE_DEFINITIONS)


def definition_kind(schemas: SchemaCache) -> Kind:
    """The kind of CRDs."""
    return Kind(
        builtin(
            CUSTOM_RESOURCE_DEFINITIONS,
            default_definition,
            package="io.k8s.apiextensions-apiserver.pkg.apis",
        ),
        DefinitionStrategy(schemas.compile),
        STAMPED,
        Names("customresourcedefinition", ("crd", "crds"), ("api-extensions",)),
        subresources={"status": Subresource(strategy=DefinitionStatusStrategy())},
        deletion=DeletionRules(plan_definition_deletion),
    )


class DefinitionController:
    """Mutable state: the uid and generation at which each CRD is served, and which terminate."""

    def __init__(
        self,
        registry: Registry,
        catalog: Catalog,
        schemas: SchemaCache,
        background: Background,
        hub: WatchHub,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._schemas = schemas
        self._background = background
        self._hub = hub
        self._kind = definition_kind(schemas)
        self._served: dict[str, tuple[str, int]] = {}
        self._terminating: set[str] = set()

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store."""
        del obj
        if change.bucket == BUCKET:
            self._background.add(self.sync, change.entry.key.name)
        elif change.bucket in self._terminating:
            self._background.add(self.sync, change.bucket)

    def resume(self) -> None:
        """Serve at once what was served when the store was last in use.

        Only then can objects of CRDs be looked after, and no CRD takes the names of another.
        """
        for entry in self._registry.store.list(BUCKET):
            crd = entry.decode()
            if is_true((crd.get("status") or {}).get("conditions") or (), "Established"):
                self._serve(crd)

    def sync(self, name: str) -> None:
        """Bring one CRD, and what is served for it, up to date."""
        entry = self._registry.store.get(BUCKET, Key("", name))
        if entry is None:
            self._withdraw(name)
            return
        crd = entry.decode()
        if is_terminating(crd):
            self._finalize(crd, entry)
            return
        if self._accept_names(crd):
            self._serve(crd)

    def _accept_names(self, crd: Object) -> bool:
        """Write which names are accepted, and whether the CRD is established; that is the result."""
        now, status = self._registry.now(), crd["status"]
        resources, kinds = self._taken_names(crd)
        held = status.get("acceptedNames") or {}
        naming = accept_names(crd["spec"]["names"], held, resources, kinds)
        status["acceptedNames"] = naming.accepted
        accepted = Condition("NamesAccepted", TRUE, "NoConflicts", "no conflicts found")
        if naming.reason:
            accepted = Condition("NamesAccepted", FALSE, naming.reason, naming.message)
        set_definition_condition(crd, accepted, now)
        if not is_true(status["conditions"], "Established"):
            established = Condition(
                "Established", TRUE, "InitialNamesAccepted", "the initial names have been accepted"
            )
            if naming.reason:
                established = Condition(
                    "Established", FALSE, "NotAccepted", "not all names are accepted"
                )
            set_definition_condition(crd, established, now)
        self._write_status(crd)
        return is_true(status["conditions"], "Established")

    def _taken_names(self, crd: Object) -> tuple[set[str], set[str]]:
        """The names of resources, and of kinds, that others of the group hold."""
        plural = crd["spec"]["names"]["plural"]
        others = [
            kind
            for kind in self._catalog.in_group(crd["spec"]["group"])
            if kind.resource.plural != plural
        ]
        resources = {
            name
            for kind in others
            for name in (kind.resource.plural, kind.names.singular, *kind.names.short)
        }
        kinds = {name for kind in others for name in (kind.resource.kind, kind.list_kind_name)}
        return resources, kinds

    def _serve(self, crd: Object) -> None:
        name = name_of(crd)
        at = (crd["metadata"]["uid"], crd["metadata"].get("generation") or 0)
        if self._served.get(name) == at:
            return
        spec = crd["spec"]
        if name in self._served:
            self._hub.close_bucket(name, _WATCHES_END_S)
        self._served[name] = at
        kinds = kinds_of(crd, self._schemas, self._registry.store.revision)
        if kinds and kinds[0].selectable:
            self._reindex(name, kinds[0])
        self._catalog.replace(spec["group"], spec["names"]["plural"], kinds)

    def _reindex(self, bucket: str, kind: Kind) -> None:
        """Read the selectable fields of objects that were stored when there were others."""
        self._registry.store.reindex(bucket, lambda entry: kind.fields_of(kind.read(entry)))

    def _withdraw(self, name: str) -> None:
        """Stop serving a CRD that is gone; names that it held may be free for others."""
        if self._served.pop(name, None) is None:
            return
        plural, _, group = name.partition(".")
        self._terminating.discard(name)
        self._catalog.replace(group, plural, ())
        self._hub.close_bucket(name)
        for entry in self._registry.store.list(BUCKET):
            self._background.add(self.sync, entry.key.name)

    def _finalize(self, crd: Object, entry: Entry) -> None:
        """Delete the objects of a terminating CRD; let it go when there are none."""
        name = name_of(crd)
        if FINALIZER not in (crd["metadata"].get("finalizers") or ()):
            return
        self._close(crd)
        kind = self._catalog.find_by_bucket(name)
        store = self._registry.store
        if kind is not None and store.count(name):
            deleting = Condition(
                "Terminating",
                TRUE,
                "InstanceDeletionInProgress",
                "CustomResource deletion is in progress",
            )
            set_definition_condition(crd, deleting, self._registry.now())
            self._write_status(crd)
            for item in store.list(name):
                if not is_terminating(item.decode()):
                    self._registry.delete(kind, item.key)
            if store.count(name):
                return
            entry = self._registry.get(self._kind, entry.key)
        self._release(entry)

    def _close(self, crd: Object) -> None:
        """Refuse new objects of a terminating CRD."""
        name = name_of(crd)
        if name in self._terminating:
            return
        self._terminating.add(name)
        spec = crd["spec"]
        kinds = [
            replace(kind, closed=_CLOSED)
            for kind in self._catalog.in_group(spec["group"])
            if kind.resource.plural == spec["names"]["plural"]
        ]
        self._catalog.replace(spec["group"], spec["names"]["plural"], kinds)

    def _release(self, entry: Entry) -> None:
        crd = entry.decode()
        done = Condition(
            "Terminating",
            FALSE,
            "InstanceDeletionCompleted",
            "removed all instances",
        )
        set_definition_condition(crd, done, self._registry.now())
        self._write_status(crd)

        def without_finalizer(old: Object | None) -> Object:
            new = dict(old or {})
            rest = [name for name in new["metadata"]["finalizers"] if name != FINALIZER]
            new["metadata"] = {**new["metadata"], "finalizers": rest}
            return new

        write = Write(WriteOptions(field_manager=API_SERVER))
        self._registry.update(self._kind, entry.key, without_finalizer, PlainStrategy(), write)

    def _write_status(self, crd: Object) -> None:
        key, strategy = Key("", name_of(crd)), DefinitionStatusStrategy()
        write = Write(WriteOptions(field_manager=API_SERVER), subresource="status")
        self._registry.update(self._kind, key, lambda _: crd, strategy, write)
