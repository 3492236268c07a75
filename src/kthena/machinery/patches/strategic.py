"""Strategic merge patch: a merge patch that merges lists by key, and obeys directives.

How a list merges is said by the schema of the kind: its patch strategy (`merge`, `replace`,
`retainKeys`) and merge key. As in the API server, list-type and list-map-keys have no say here: ports
merge by containerPort alone. Results and error texts are those of apimachinery's
StrategicMergePatch. Directives: `$patch` (replace, delete), `$retainKeys`, `$setElementOrder/FIELD`,
`$deleteFromPrimitiveList/FIELD`. What is given stays as it is: the merge changes copies.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from kthena.machinery.gotext import show_value
from kthena.machinery.objects import Object, copy_json
from kthena.machinery.schema.topology import Topology

_DIRECTIVE = "$patch"
_RETAIN_KEYS = "$retainKeys"
_DELETE_PREFIX = "$deleteFromPrimitiveList"
_ORDER_PREFIX = "$setElementOrder"


class StrategicMergeError(ValueError):
    """A patch that does not apply; `status` is the HTTP status that the API server answers with."""

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class Merged(NamedTuple):
    """The document after the merge, and what the merge has left of the patch.

    The API server works on the patch itself: directives that were obeyed are gone from it, and so are
    lists that were put in order and nulls that met nothing. That rest is what it shows of a patch whose
    result it refuses.
    """

    document: Object
    rest: Object


def apply_strategic_merge_patch(document: Object, patch: Any, schema: Topology) -> Merged:
    """The document with the patch merged in as the schema says.

    Args:
        document: the object to patch.
        patch: the decoded patch.
        schema: that of the object's kind.

    Raises:
        StrategicMergeError: the patch is malformed, or does not fit the schema.
    """
    if not isinstance(patch, dict):
        raise StrategicMergeError("invalid JSON document", 400)
    rest = copy_json(patch)
    return Merged(_merge_map(copy_json(document), rest, schema), rest)


class _Field(NamedTuple):
    """What the schema says of one field: its own schema, strategy and merge key."""

    schema: Topology
    strategy: str
    merge_key: str


def _merge_map(original: Object, patch: Object, schema: Topology) -> Object:
    if _DIRECTIVE in patch:
        return _apply_map_directive(patch)
    _apply_retain_keys(original, patch)
    for key in [key for key in patch if key.startswith(_ORDER_PREFIX)]:
        _merge_ordered_list(original, patch, key, schema)
    for key, value in patch.items():
        name, deletes = key, key.startswith(_DELETE_PREFIX)
        if deletes:
            name = _field_of(key, _DELETE_PREFIX)
        _merge_field(original, name, value, schema, deletes=deletes)
    return original


def _merge_field(
    original: Object, name: str, value: Any, schema: Topology, *, deletes: bool
) -> None:
    if value is None:
        original.pop(name, None)
        return
    current: Any = original.get(name)
    if name not in original or type(current) is not type(value):
        if not deletes:
            _drop_nulls(value)
            _put(original, name, value)
    elif isinstance(value, dict):
        field = _field(schema, name)
        if field.strategy != "replace":
            value = _merge_map(current, value, field.schema)
        original[name] = value
    elif isinstance(value, list):
        field = _list_field(schema, name)
        if deletes or field.strategy == "merge":
            value = _merge_list(current, value, field, deletes=deletes)
        original[name] = value
    else:
        original[name] = value


# --- lists ----------------------------------------------------------------------------------------


def _merge_list(
    current: list[Any], patch: list[Any], field: _Field, *, deletes: bool = False
) -> list[Any]:
    if not current and not patch:
        return current
    merge_key = field.merge_key
    if _element_type(current, patch) is not dict:
        if deletes:
            deleted = {_mark(entry) for entry in patch}
            return [entry for entry in current if _mark(entry) not in deleted]
        distinct: dict[_Mark, Any] = {}
        for entry in current + patch:
            distinct.setdefault(_mark(entry), entry)
        merged = list(distinct.values())
        merge_key = ""
    else:
        if not merge_key:
            raise StrategicMergeError("cannot merge lists without merge key for struct")
        current, patch = _apply_list_directives(current, patch, merge_key)
        merged = _merge_by_key(current, patch, field)
    return _ordered(merged, patch, current, merge_key)


def _merge_by_key(current: list[Any], patch: list[Any], field: _Field) -> list[Any]:
    merge_key = field.merge_key
    merged = list(current)
    places = _places(merged, merge_key)
    for entry in patch:
        mark = _mark(_key_value(entry, merge_key))
        index = places.get(mark)
        if index is None:
            places[mark] = len(merged)
            merged.append(entry)
            continue
        merged[index] = _merge_map(merged[index], entry, field.schema)
        if merge_key not in merged[index]:
            # A null has taken the key away.
            places = _places(merged, merge_key)
    return merged


def _merge_ordered_list(original: Object, patch: Object, key: str, schema: Topology) -> None:
    """Merge the list that an order directive belongs to, and take both out of the patch."""
    order = patch.pop(key)
    if not isinstance(order, list):
        raise _wrong_type(list, order)
    name = _field_of(key, _ORDER_PREFIX)
    current, change = original.get(name), patch.get(name)
    for value, present in ((current, name in original), (change, name in patch)):
        if present and not isinstance(value, list):
            raise _wrong_type(list, value)
    field = _list_field(schema, name)
    _check_order(change or [], order, field.merge_key)
    if name in original and name in patch:
        merged = change or []
        if field.strategy == "merge":
            merged = _merge_list(list(current or ()), list(change or ()), field)
    elif name in original:
        merged = current or []
    elif name in patch:
        merged = _without_directives(change or [])
    else:
        return
    if _element_type(current or [], change or []) is dict and not field.merge_key:
        raise StrategicMergeError("cannot merge lists without merge key for struct")
    original[name] = _ordered(merged, order, current or [], field.merge_key)
    patch.pop(name, None)


# --- schema ---------------------------------------------------------------------------------------


def _list_field(schema: Topology, name: str) -> _Field:
    field = _field(schema, name)
    if field.schema.items is None:
        kind = schema.type or "object"
        raise StrategicMergeError(f"expected slice or array type, but got: {kind}")
    return field._replace(schema=field.schema.items)


def _field(schema: Topology, name: str) -> _Field:
    if not schema.properties:
        raise StrategicMergeError(
            "merging an object in json but data type is not struct, instead is: map"
        )
    field = schema.properties.get(name)
    if field is None:
        raise StrategicMergeError(f'unable to find api field "{name}"')
    strategies = field.patch_strategy.split(",")
    merging = [strategy for strategy in strategies if strategy != "retainKeys"]
    if len(merging) > 1:
        raise StrategicMergeError(f"unexpected patch strategy: {strategies}")
    return _Field(field, merging[0] if merging else "", field.patch_merge_key)


# --- directives -----------------------------------------------------------------------------------


def _apply_map_directive(patch: Object) -> Object:
    directive = patch[_DIRECTIVE]
    if directive == "replace":
        del patch[_DIRECTIVE]
        return patch
    if directive == "delete":
        return {}
    raise _bad_directive(directive, patch)


def _apply_list_directives(
    current: list[Any], patch: list[Any], merge_key: str
) -> tuple[list[Any], list[Any]]:
    """The list without what the patch deletes, and the patch without its directives."""
    plain = []
    deleted: set[_Mark] = set()
    replaces = False
    for entry in patch:
        directive = entry.get(_DIRECTIVE)
        if _DIRECTIVE not in entry:
            plain.append(entry)
        elif directive == "delete":
            deleted.add(_mark(_key_value(entry, merge_key)))
            _check_maps(current)
        elif directive == "replace":
            replaces = True
        elif directive == "merge":
            raise StrategicMergeError("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, entry)
    if replaces:
        return plain, []
    return [
        entry
        for entry in current
        if merge_key not in entry or _mark(entry[merge_key]) not in deleted
    ], plain


def _apply_retain_keys(original: Object, patch: Object) -> None:
    """Drop the members that `$retainKeys` does not name; it must name all that the patch sets."""
    if _RETAIN_KEYS not in patch:
        return
    retained = patch.pop(_RETAIN_KEYS)
    problem = StrategicMergeError("invalid patch format of retainKeys", 400)
    if not isinstance(retained, list):
        raise problem
    for key, value in patch.items():
        if value is None or key.startswith((_DELETE_PREFIX, _ORDER_PREFIX)):
            continue
        if key not in retained:
            raise problem
    for key in [key for key in original if key not in retained]:
        del original[key]


def _check_order(patch: list[Any], order: list[Any], merge_key: str) -> None:
    """The entries that the patch sets must stand in the order list, in the same order."""
    if not patch or not order:
        return
    if merge_key:
        _check_maps(patch)
        patch = [entry for entry in patch if entry.get(_DIRECTIVE) != "delete"]
    remaining = iter(order)
    for entry in patch:
        if isinstance(entry, dict) and _DIRECTIVE in entry:
            continue
        if not any(_same_entry(entry, wanted, merge_key) for wanted in remaining):
            raise StrategicMergeError(
                f"The order in patch list:\n{show_value(patch)}\n doesn't match "
                f"{_ORDER_PREFIX} list:\n{show_value(order)}\n"
            )


def _same_entry(entry: Any, wanted: Any, merge_key: str) -> bool:
    if not merge_key:
        return _same(entry, wanted)
    return _same(_key_value(entry, merge_key), _key_value(wanted, merge_key))


def _field_of(key: str, prefix: str) -> str:
    """The field that a directive such as `$setElementOrder/ports` is about."""
    head, slash, name = key.partition("/")
    if head != prefix or not slash:
        what = "primitive list" if prefix == _DELETE_PREFIX else "setElementOrder list"
        raise StrategicMergeError(f"invalid patch format of {what}", 400)
    return name


def _without_directives(value: Any) -> Any:
    """A new value as it is stored: objects with a directive leave no trace, in the patch either."""
    if isinstance(value, dict):
        for key, entry in list(value.items()):
            if _is_directive(entry):
                del value[key]
            else:
                value[key] = _without_directives(entry)
        return value
    if isinstance(value, list):
        return [_without_directives(entry) for entry in value if not _is_directive(entry)]
    return value


def _is_directive(value: Any) -> bool:
    return isinstance(value, dict) and _DIRECTIVE in value


def _put(original: Object, name: str, value: Any) -> None:
    """Set a member to a new value, or take it away where the value is a directive."""
    if _is_directive(value):
        original.pop(name, None)
    else:
        original[name] = _without_directives(value)


def _drop_nulls(value: Any) -> None:
    """Take the members that are null out of a new value; elements of lists that are null stay."""
    if isinstance(value, dict):
        for key in [key for key, entry in value.items() if entry is None]:
            del value[key]
        value = list(value.values())
    if isinstance(value, list):
        for entry in value:
            _drop_nulls(entry)


# --- lists as the schema sees them ----------------------------------------------------------------


def _element_type(*lists: list[Any]) -> type:
    """The one type of all elements."""
    entries = [entry for entries in lists for entry in entries]
    if not entries:
        raise StrategicMergeError("no elements in any of the given slices")
    first = type(entries[0])
    if first is list:
        raise StrategicMergeError("lists of lists are not supported", 422)
    if any(type(entry) is not first for entry in entries):
        shown = " ".join(show_value(entries) for entries in lists)
        raise StrategicMergeError(f"list element types are not identical: [{shown}]")
    return first


def _ordered(merged: list[Any], wanted: list[Any], server: list[Any], merge_key: str) -> list[Any]:
    """The merged list: wanted entries in their order, the others as near their place as may be.

    An entry of the server's own goes before the first wanted entry that it preceded there.
    """
    if merge_key:
        for entry in (*merged, *wanted, *server):
            _key_value(entry, merge_key)
    in_wanted, in_server = _places(wanted, merge_key), _places(server, merge_key)

    def position(places: Mapping[_Mark, int], entry: Any) -> int:
        return places.get(_mark(entry[merge_key] if merge_key else entry), -1)

    chosen = [entry for entry in merged if position(in_wanted, entry) >= 0]
    chosen.sort(key=lambda entry: position(in_wanted, entry))
    others = [entry for entry in merged if position(in_wanted, entry) < 0]
    others.sort(key=lambda entry: position(in_server, entry))
    result = []
    waiting, rest = deque(chosen), deque(others)
    while rest and waiting:
        place, limit = position(in_server, rest[0]), position(in_server, waiting[0])
        source = rest if 0 <= place < limit else waiting
        result.append(source.popleft())
    return [*result, *rest, *waiting]


def _places(entries: list[Any], merge_key: str) -> dict["_Mark", int]:
    """Where each entry stands first, by its value, or by that of the merge key where it has one."""
    places: dict[_Mark, int] = {}
    for index, entry in enumerate(entries):
        if not merge_key:
            places.setdefault(_mark(entry), index)
        elif merge_key in entry:
            places.setdefault(_mark(entry[merge_key]), index)
    return places


def _key_value(entry: Any, merge_key: str) -> Any:
    _check_maps([entry])
    if merge_key not in entry:
        raise StrategicMergeError(
            f"map: {show_value(entry)} does not contain declared merge key: {merge_key}"
        )
    return entry[merge_key]


def _check_maps(entries: list[Any]) -> None:
    for entry in entries:
        if not isinstance(entry, dict):
            raise _wrong_type(dict, entry)


_Mark: TypeAlias = tuple[type, Any]


def _mark(value: Any) -> _Mark:
    """Equal for equal values, without Python's True == 1, and to be looked up."""
    if isinstance(value, dict | list):
        return type(value), json.dumps(value, sort_keys=True)
    return type(value), value


def _same(left: Any, right: Any) -> bool:
    """Equality without Python's True == 1."""
    return type(left) is type(right) and bool(left == right)


# --- texts ----------------------------------------------------------------------------------------

_GO_TYPES = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    type(None): "%!s(<nil>)",
}


def _wrong_type(expected: type, actual: Any) -> StrategicMergeError:
    shown = _GO_TYPES[type(actual)]
    return StrategicMergeError(f"expected a {_GO_TYPES[expected]}, but received a {shown}")


def _bad_directive(directive: Any, entry: Object) -> StrategicMergeError:
    shown = directive
    if directive is None:
        shown = _GO_TYPES[type(None)]
    elif not isinstance(directive, str):
        shown = f"%!s({_GO_TYPES[type(directive)]}={show_value(directive)})"
    return StrategicMergeError(f"unknown patch type: {shown} in map: {show_value(entry)}")
