"""The parts of one API server, put together; no HTTP.

`Core` owns the store and everything that works on it: the registry, the kinds, the watchers and the
server's own controllers. Handlers get it whole.
"""

import contextlib
from collections.abc import Iterable

from kthena.api.kubernetes import NAMESPACES, SERVICES
from kthena.local.apiserver.background import Background
from kthena.local.apiserver.builtins.catalog import builtin_kinds
from kthena.local.apiserver.builtins.reviews import review_kinds
from kthena.local.apiserver.catalog import Catalog
from kthena.local.apiserver.claimprotection import ClaimProtection
from kthena.local.apiserver.config import ApiServerConfig
from kthena.local.apiserver.customresources.controller import (
    DefinitionController,
    definition_kind,
)
from kthena.local.apiserver.customresources.serving import SchemaCache
from kthena.local.apiserver.expiry import EventExpiry
from kthena.local.apiserver.fieldmanagement import API_SERVER
from kthena.local.apiserver.garbage import GarbageCollector
from kthena.local.apiserver.logs import LogSources
from kthena.local.apiserver.namespaces import NamespaceController
from kthena.local.apiserver.options import WriteOptions
from kthena.local.apiserver.policies.enforcement import Enforcer
from kthena.local.apiserver.registry import Registry, Write
from kthena.local.apiserver.storage.datafile import DataFile
from kthena.local.apiserver.storage.journal import Journal
from kthena.local.apiserver.storage.restoring import stored_objects
from kthena.local.apiserver.store import Key, Store
from kthena.local.apiserver.watch import WatchHub
from kthena.machinery.objects import Object


class Core:
    """A server without its socket.

    With a `data_dir` it begins with what an earlier one has kept there: definitions are served, and
    what was under way is carried on, before the first request.

    Raises:
        StorageError: the data directory cannot be used.
    """

    def __init__(self, config: ApiServerConfig) -> None:
        self.config = config
        self.store = Store(log_length=config.log_length)
        self.catalog = Catalog()
        self.registry = Registry(self.store, self.catalog, config.now, config.random)
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
        claims = ClaimProtection(self.registry, self.catalog, self.background)
        self.policies = Enforcer(self.store, self.catalog)
        self.store.observe(self.hub.publish)
        for observer in (self.definitions, garbage, namespaces, expiry, claims, self.policies):
            self.store.observe(observer.observe)
        self.catalog.add(
            [*builtin_kinds(self._services), *review_kinds(config.token), definition_kind(schemas)]
        )
        with contextlib.ExitStack() as stack:
            self.journal: Journal | None = None
            if config.data_dir is not None:
                self.journal = Journal(DataFile.open(config.data_dir))
                # A server that cannot begin leaves the directory to others.
                stack.callback(self.journal.abandon)
                self._restore(self.journal)
            for name in config.namespaces:
                self._create_namespace(name)
            if self.journal is not None:
                self.background.drain()
                self.journal.write_now()
            stack.pop_all()

    def _restore(self, journal: Journal) -> None:
        """Take over what a journal's file holds, and keep it up from here on."""
        self.store.restore(journal.revision, stored_objects(journal, self.catalog))
        # First: no other observer can then fail between a change and its record.
        self.store.observe(journal.observe, first=True)
        self.definitions.resume()

    def _services(self) -> Iterable[Object]:
        return (entry.decode() for entry in self.store.list(str(SERVICES)))

    def _create_namespace(self, name: str) -> None:
        kind = self.catalog.find("", "v1", NAMESPACES.plural)
        if kind is not None and self.store.get(kind.bucket, Key("", name)) is None:
            obj = kind.codec.decode({"metadata": {"name": name}}).obj
            self.registry.create(kind, obj, write=Write(WriteOptions(field_manager=API_SERVER)))

    def stores_well(self) -> bool:
        """Whether what is written can be kept."""
        return self.journal is None or self.journal.failure is None

    def stop(self) -> None:
        """End all watches and drop what waits."""
        self.hub.close()
        self.background.stop()

    async def close(self) -> None:
        """Keep what is not kept yet, and let go of the data directory."""
        if self.journal is not None:
            await self.journal.close()
