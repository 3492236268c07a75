"""Patches: the three kinds that are offered, what they refuse, and races."""

import threading

import pytest

from support.apiserver import (
    CORE,
    JSON,
    JSON_PATCH,
    MERGE,
    STRATEGIC,
    Api,
    Definition,
    Server,
    config_map,
    pod,
)


@pytest.fixture
def item(api: Api, namespace: str) -> str:
    maps = f"{CORE}/namespaces/{namespace}/configmaps"
    api.create(maps, config_map("a", {"k": "1", "l": "2"}, labels={"x": "y"})).expect(201)
    return f"{maps}/a"


def test_merge_patch_sets_and_removes(api: Api, item: str) -> None:
    patch = {"data": {"k": None, "m": "3"}, "metadata": {"labels": {"z": "w"}}}
    new = api.patch(item, patch, MERGE).expect(200)
    assert new["data"] == {"l": "2", "m": "3"}
    assert new["metadata"]["labels"] == {"x": "y", "z": "w"}


def test_json_patch_runs_its_operations_in_order(api: Api, item: str) -> None:
    patch = [
        {"op": "test", "path": "/data/k", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "9"},
        {"op": "add", "path": "/data/n", "value": "0"},
        {"op": "remove", "path": "/data/l"},
        {"op": "copy", "from": "/data/k", "path": "/data/c"},
        {"op": "move", "from": "/data/n", "path": "/data/~1m"},
    ]
    reply = api.patch(item, patch, JSON_PATCH)
    assert reply.status == 422  # a key with a slash is none of a ConfigMap
    patch[-1]["path"] = "/data/m"
    assert api.patch(item, patch, JSON_PATCH).expect(200)["data"] == {"k": "9", "c": "9", "m": "0"}


def test_json_patch_that_does_not_apply_is_invalid(api: Api, item: str) -> None:
    for patch in (
        [{"op": "test", "path": "/data/k", "value": "no"}],
        [{"op": "remove", "path": "/data/nosuch"}],
        [{"op": "replace", "path": "/nosuch/deep", "value": 1}],
    ):
        reply = api.patch(item, patch, JSON_PATCH)
        assert (reply.status, reply.reason) == (422, "Invalid"), patch
    assert api.get(item).body["data"] == {"k": "1", "l": "2"}


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", MERGE, 400),
        (b"[]", MERGE, 400),
        (b"", MERGE, 400),
        (b"{", JSON_PATCH, 400),
        (b"{}", JSON_PATCH, 400),
        (b'[{"op":"jump"}]', JSON_PATCH, 422),
        (b"{", STRATEGIC, 400),
    ],
)
def test_garbage_is_refused(api: Api, item: str, body: bytes, kind: str, status: int) -> None:
    reply = api.patch(item, body, kind)
    assert reply.status == status, reply.body
    assert reply.body["kind"] == "Status"


def test_strategic_patch_merges_lists_by_their_key(api: Api, namespace: str) -> None:
    path = f"{CORE}/namespaces/{namespace}/pods"
    containers = [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]
    api.create(path, pod("p", {"containers": containers})).expect(201)
    patch = {"spec": {"containers": [{"name": "b", "image": "y:2"}]}}
    new = api.patch(f"{path}/p", patch, STRATEGIC).expect(200)
    assert [(c["name"], c["image"]) for c in new["spec"]["containers"]] == [
        ("a", "x:1"),
        ("b", "y:2"),
    ] or [(c["name"], c["image"]) for c in new["spec"]["containers"]] == [
        ("b", "y:2"),
        ("a", "x:1"),
    ]


def test_strategic_patch_knows_directives(api: Api, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}],
            "tolerations": [{"key": "k"}],
        },
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    api.create(path, {"metadata": {"name": "d"}, "spec": spec}).expect(201)
    patch = {"spec": {"template": {"spec": {"containers": [{"name": "a", "$patch": "delete"}]}}}}
    new = api.patch(f"{path}/d", patch, STRATEGIC).expect(200)
    assert [c["name"] for c in new["spec"]["template"]["spec"]["containers"]] == ["b"]
    containers = [{"$patch": "replace"}, {"name": "z", "image": "z"}]
    patch = {"spec": {"template": {"spec": {"containers": containers}}}}
    new = api.patch(f"{path}/d", patch, STRATEGIC).expect(200)
    assert [c["name"] for c in new["spec"]["template"]["spec"]["containers"]] == ["z"]
    retained = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}
    new = api.patch(f"{path}/d", retained, STRATEGIC).expect(200)
    assert new["spec"]["strategy"] == {"type": "Recreate"}


def test_strategic_patch_is_not_for_custom_resources(
    api: Api, widgets: Definition, namespace: str
) -> None:
    path = widgets.collection(namespace)
    api.create(path, widgets.object("w")).expect(201)
    reply = api.patch(f"{path}/w", {"spec": {"size": 2}}, STRATEGIC)
    assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")
    assert api.patch(f"{path}/w", {"spec": {"size": 2}}, MERGE).expect(200)["spec"]["size"] == 2
    patch = [{"op": "replace", "path": "/spec/size", "value": 3}]
    assert api.patch(f"{path}/w", patch, JSON_PATCH).expect(200)["spec"]["size"] == 3


def test_other_media_types_are_unsupported(api: Api, item: str) -> None:
    for kind in (JSON, "text/plain", "application/strategic-merge-patch+yaml"):
        reply = api.patch(item, {}, kind)
        assert (reply.status, reply.reason) == (415, "UnsupportedMediaType")


def test_patch_of_what_does_not_exist(api: Api, item: str) -> None:
    assert api.patch(f"{item}x", {"data": {}}).status == 404


def test_patch_may_not_rename(api: Api, item: str) -> None:
    reply = api.patch(item, {"metadata": {"name": "b"}})
    assert reply.status == 400
    assert "the name of the object (b) does not match the name on the URL (a)" in reply.message
    reply = api.patch(item, {"metadata": {"namespace": "other"}})
    assert reply.status == 400


def test_patch_result_is_validated(api: Api, item: str) -> None:
    reply = api.patch(item, {"data": {"bad key": "v"}})
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.causes == [("data[bad key]", "FieldValueInvalid")]
    reply = api.patch(item, {"data": {"k": 5}})
    assert (reply.status, reply.causes) == (422, [("patch", "FieldValueInvalid")])
    assert "cannot unmarshal number into Go struct field ConfigMap.data of type string" in (
        reply.message
    )


WRONG_VALUES = [
    ({"data": {"k": 5}}, "cannot convert int64 to string"),
    ({"data": {"k": 1.5}}, "unrecognized type: string"),
    ({"data": {"k": True}}, "unrecognized type: string"),
    ({"data": {"k": ["x"]}}, "unrecognized type: string"),
    ({"data": 5}, "cannot restore map from int64"),
    ({"data": ["x"]}, "cannot restore map from slice"),
    ({"immutable": "yes"}, "unrecognized type: bool"),
    ({"binaryData": {"b": "!"}}, "error decoding from json: illegal base64 data at input byte 0"),
    ({"binaryData": {"b": 5}}, "cannot restore slice from int64"),
    ({"metadata": 5}, "cannot restore struct from: int64"),
    ({"metadata": {"generation": "1"}}, "unrecognized type: int64"),
    ({"metadata": {"generation": 1.5}}, "cannot convert float64 to int64"),
    (
        {"metadata": {"creationTimestamp": 5}},
        "json: cannot unmarshal number into Go value of type string",
    ),
]


@pytest.mark.parametrize(("patch", "text"), WRONG_VALUES, ids=str)
def test_strategic_patch_with_wrong_types_has_the_converter_s_text(
    api: Api, item: str, patch: dict[str, object], text: str
) -> None:
    reply = api.patch(item, patch, STRATEGIC)
    assert (reply.status, reply.reason) == (422, "Invalid")
    assert reply.message.startswith(' "" is invalid: patch: Invalid value: "map[')
    assert reply.message.endswith(f']": {text}')


def test_strategic_patch_of_a_port_with_a_wrong_type(api: Api, namespace: str) -> None:
    pods = f"{CORE}/namespaces/{namespace}/pods"
    api.create(pods, pod("p")).expect(201)
    for port, text in ((True, "bool"), (1.5, "number 1.5")):
        probe = {"name": "main", "readinessProbe": {"httpGet": {"port": port}}}
        reply = api.patch(f"{pods}/p", {"spec": {"containers": [probe]}}, STRATEGIC)
        assert reply.message.endswith(f"json: cannot unmarshal {text} into Go value of type int32")


@pytest.mark.parametrize("kind", [MERGE, STRATEGIC])
def test_patch_of_the_uid_is_invalid(api: Api, item: str, kind: str) -> None:
    reply = api.patch(item, {"metadata": {"uid": "another"}}, kind)
    assert (reply.status, set(reply.causes)) == (422, {("metadata.uid", "FieldValueInvalid")})
    assert "field is immutable" in reply.message


def test_patch_with_a_stale_version_is_a_conflict(api: Api, item: str) -> None:
    version = api.get(item).body["metadata"]["resourceVersion"]
    api.patch(item, {"data": {"k": "2"}}).expect(200)
    reply = api.patch(item, {"metadata": {"resourceVersion": version}, "data": {"k": "3"}})
    assert (reply.status, reply.reason) == (409, "Conflict")
    fresh = api.get(item).body["metadata"]["resourceVersion"]
    api.patch(item, {"metadata": {"resourceVersion": fresh}, "data": {"k": "3"}}).expect(200)


def test_patches_of_many_clients_all_land(api: Api, item: str, server: Server) -> None:
    statuses: list[int] = []

    def work(index: int) -> None:
        client = Api(server)
        for step in range(5):
            reply = client.patch(item, {"data": {f"c{index}-{step}": "x"}})
            statuses.append(reply.status)
        client.close()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 20
    assert len(api.get(item).body["data"]) == 22
