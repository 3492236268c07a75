"""What a data file holds, read back for the store."""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from kthena.local.apiserver.kinds import Kind
from kthena.local.apiserver.storage.datafile import Place
from kthena.local.apiserver.storage.journal import Journal
from kthena.local.apiserver.store import NO_FIELDS, Stored
from kthena.machinery.objects import Object, name_of, namespace_of, uid_of


def stored_objects(journal: Journal, kinds: Iterable[Kind]) -> Iterator[Stored]:
    """The objects of a journal's file, with the selectable fields that `kinds` name.

    Raises:
        StorageError: one of them is damaged.
    """
    indexers = {kind.bucket: kind.fields_of for kind in kinds}
    revision = journal.revision
    for place, data in journal.objects():
        try:
            obj = _checked(place, msgspec.json.decode(data), revision)
        except (ValueError, TypeError, KeyError, AttributeError) as exc:
            raise journal.damaged(place, str(exc)) from exc
        indexer = indexers.get(place.bucket)
        yield Stored(place.bucket, obj, data, NO_FIELDS if indexer is None else indexer(obj))


def _checked(place: Place, obj: Any, revision: int) -> Object:
    name, namespace = name_of(obj), namespace_of(obj)
    if place.path != (f"{namespace}/{name}" if namespace else name) or not uid_of(obj):
        raise ValueError(f"the object is {namespace}/{name}")
    if not 0 < int(obj["metadata"]["resourceVersion"]) <= revision:
        raise ValueError(f"it is newer than revision {revision} of the file")
    found: Object = obj
    return found
