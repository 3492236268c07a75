"""The parts of one API server, put together; no HTTP.

`Core` owns the store and everything that works on it: the registry, the kinds, the watchers and the
server's own controllers. Handlers get it whole.
"""

from collections.abc import Iterable

from kthena.api.kubernetes import NAMESPACES, SERVICES
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.builtins.catalog import builtin_kinds
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.customresources.controller import (
    DefinitionController,
    definition_kind,
)
from kthena.local.apiserver.customresources.serving import SchemaCache
from kthena.local.apiserver.expiry import EventExpiry
from kthena.local.apiserver.garbage import GarbageCollector
from kthena.local.apiserver.logs import LogSources
from kthena.local.apiserver.namespaces import NamespaceController
from kthena.local.apiserver.registry import Registry
from kthena.local.apiserver.store import Store
from kthena.local.apiserver.watch import WatchHub
from kthena.machinery.objects import Object


class Core:
    """A server without its socket."""

    def __init__(self, config: ApiServerConfig) -> None:
        self.config = config
        self.store = Store(log_length=config.log_length)
        self.registry = Registry(self.store, config.now, config.random)
        self.catalog = Catalog()
        self.hub = WatchHub(config.watch_queue_length)
        self.background = Background()
        self.logs = LogSources()
        schemas = SchemaCache()
        self.definitions = DefinitionController(
            self.registry, self.catalog, schemas, self.background, self.hub
        )
        garbage = GarbageCollector(self.registry, self.catalog, self.background)
        namespaces = NamespaceController(self.registry, self.catalog, self.background)
        expiry = EventExpiry(self.registry, self.background)
        self.store.observe(self.hub.publish)
        for observer in (self.definitions, garbage, namespaces, expiry):
            self.store.observe(observer.observe)
        self.catalog.add([*builtin_kinds(self._services), definition_kind(schemas)])
        for name in config.namespaces:
            self._create_namespace(name)

    def _services(self) -> Iterable[Object]:
        return (entry.decode() for entry in self.store.list(str(SERVICES)))

    def _create_namespace(self, name: str) -> None:
        kind = self.catalog.find("", "v1", NAMESPACES.plural)
        if kind is not None:
            obj = kind.codec.decode({"metadata": {"name": name}}).obj
            self.registry.create(kind, obj)

    def stop(self) -> None:
        """End all watches and drop what waits."""
        self.hub.close()
        self.background.stop()
