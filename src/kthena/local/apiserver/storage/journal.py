"""Group commit: changes of the store become durable together, without holding the event loop up.

The store changes at once; a thread writes what has changed since its last transaction, and while it
writes, further changes gather for the next one. Nothing that a client gets may show a change that
could still be lost: replies and the events of watches wait in `settled`. So a revision that a crash
takes back was never seen, and is given again.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from kthena.local.apiserver.storage.datafile import DataFile, Place, StorageError, damaged
from kthena.local.apiserver.store import Change, ChangeType
from kthena.machinery.objects import Object
from kthena.telemetry.logging import get_logger

_LOG = get_logger("local.apiserver")


@dataclass(slots=True)
class _Batch:
    """What one transaction writes, and who waits for it."""

    changes: dict[Place, bytes | None] = field(default_factory=dict)
    revision: int = 0
    waiters: list["asyncio.Future[None]"] = field(default_factory=list)


class Journal:
    """Keeps a data file up with a store.

    Mutable state: the batch that gathers changes, the one that is being written, and the failure
    that ended it all.
    """

    def __init__(self, file: DataFile) -> None:
        self.failure: StorageError | None = None
        """Why nothing more can be kept; what was changed since then is not durable."""
        self._file = file
        self._gathering = _Batch()
        self._writing: _Batch | None = None
        self._scheduled = False
        self._failed = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "apiserver-journal")

    @property
    def revision(self) -> int:
        """The revision of the file, before the first change."""
        return self._file.revision

    def objects(self) -> Iterator[tuple[Place, bytes]]:
        """What the file holds, before the first change.

        Raises:
            StorageError: the file is damaged.
        """
        return self._file.objects()

    def damaged(self, place: Place, cause: str) -> StorageError:
        """An error that says what is wrong with an object of the file."""
        return damaged(self._file.path, f"{place.bucket} {place.path}: {cause}")

    def observe(self, change: Change, obj: Object) -> None:
        """Observe the store: the change becomes durable soon."""
        del obj
        batch = self._gathering
        entry = change.entry
        removed = change.type is ChangeType.DELETED
        batch.changes[Place(change.bucket, entry.key.path)] = None if removed else entry.data
        batch.revision = change.revision
        self._schedule()

    def _schedule(self) -> None:
        """Write at the end of this turn of the loop, when its other changes are there as well."""
        if self._scheduled or self._writing is not None or self.failure is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            # No loop runs yet; `write_now` does the work.
            return
        self._scheduled = True
        loop.call_soon(self._write, loop)

    def _write(self, loop: asyncio.AbstractEventLoop) -> None:
        self._scheduled = False
        if not self._gathering.changes or self._writing is not None:
            return
        batch = self._writing = self._gathering
        self._gathering = _Batch()
        written = loop.run_in_executor(
            self._thread, self._file.write, batch.changes, batch.revision
        )
        written.add_done_callback(lambda done: self._written(loop, batch, done))

    def _written(
        self, loop: asyncio.AbstractEventLoop, batch: _Batch, done: "asyncio.Future[None]"
    ) -> None:
        self._writing = None
        error = done.exception()
        if error is not None:
            self._fail(batch, error)
            return
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)
        if self._gathering.changes:
            self._write(loop)

    def _fail(self, batch: _Batch, error: BaseException) -> None:
        """The store is ahead of the file for good: nothing of it may be told to anyone."""
        failure = self.failure = (
            error
            if isinstance(error, StorageError)
            else StorageError(f"{self._file.path} cannot be written: {error!r}", "start again")
        )
        _LOG.error("objects cannot be kept", error=str(failure))
        for waiter in (*batch.waiters, *self._gathering.waiters):
            if not waiter.done():
                waiter.set_exception(failure)
        self._gathering.waiters.clear()
        self._failed.set()

    async def settled(self) -> None:
        """Wait until every change so far is durable.

        Raises:
            StorageError: it never will be.
        """
        if self.failure is not None:
            raise self.failure
        batch = self._gathering if self._gathering.changes else self._writing
        if batch is not None:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            batch.waiters.append(waiter)
            await waiter

    async def wait_failed(self) -> None:
        """Wait until nothing more can be kept.

        Raises:
            StorageError: always, when that is so.
        """
        await self._failed.wait()
        if self.failure is not None:
            raise self.failure

    def write_now(self) -> None:
        """Make every change so far durable; only while no loop has had a turn since the first one.

        Raises:
            StorageError: they cannot be.
        """
        if self._gathering.changes:
            batch, self._gathering = self._gathering, _Batch()
            self._file.write(batch.changes, batch.revision)

    def abandon(self) -> None:
        """Close the file without a write."""
        self._file.close()

    async def close(self) -> None:
        """Make the last changes durable, if that is possible, and close the file."""
        try:
            await self.settled()
        except StorageError:
            pass
        finally:
            await asyncio.to_thread(self._thread.shutdown)
            self._file.close()
