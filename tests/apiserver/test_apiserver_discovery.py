"""Discovery, OpenAPI and version: how clients learn what there is."""

from typing import Any

import pytest

from support.apiserver import CRDS, SCALE, Api, Definition, Server, eventually

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def resources(api: Api, path: str) -> dict[str, Any]:
    body = api.get(path).expect(200)
    assert body["kind"] == "APIResourceList"
    return {item["name"]: item for item in body["resources"]}


def test_core_resources(api: Api) -> None:
    found = resources(api, "/api/v1")
    found["pods"].pop("storageVersionHash", None)
    assert found["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": [
            *("create", "delete", "deletecollection"),
            *("get", "list", "patch", "update", "watch"),
        ],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert found["pods/status"]["verbs"] == ["get", "patch", "update"]
    assert found["pods/log"]["verbs"] == ["get"]
    assert found["pods/binding"]["kind"] == "Binding"
    assert found["namespaces"]["namespaced"] is False


@pytest.mark.parametrize(
    ("group", "plural", "short"),
    [
        ("apps/v1", "deployments", ["deploy"]),
        ("apps/v1", "replicasets", ["rs"]),
        ("apps/v1", "controllerrevisions", None),
        ("coordination.k8s.io/v1", "leases", None),
        ("policy/v1", "poddisruptionbudgets", ["pdb"]),
        ("autoscaling/v2", "horizontalpodautoscalers", ["hpa"]),
        ("networking.k8s.io/v1", "networkpolicies", ["netpol"]),
        ("rbac.authorization.k8s.io/v1", "clusterroles", None),
        ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", None),
        ("events.k8s.io/v1", "events", ["ev"]),
        ("apiextensions.k8s.io/v1", "customresourcedefinitions", ["crd", "crds"]),
    ],
)
def test_group_resources(api: Api, group: str, plural: str, short: list[str] | None) -> None:
    assert resources(api, f"/apis/{group}")[plural].get("shortNames") == short


def test_scale_is_listed_with_its_own_group(api: Api) -> None:
    scale = resources(api, "/apis/apps/v1")["deployments/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


def test_groups(api: Api) -> None:
    body = api.get("/apis").expect(200)
    apps = next(group for group in body["groups"] if group["name"] == "apps")
    version = {"groupVersion": "apps/v1", "version": "v1"}
    assert (apps["versions"], apps["preferredVersion"]) == ([version], version)
    assert api.get("/apis/apps").expect(200)["kind"] == "APIGroup"
    assert api.get("/api").expect(200)["versions"] == ["v1"]


def test_unknown_paths_are_not_found(api: Api) -> None:
    for path in ("/nosuch", "/api/v2", "/apis/nosuch.io", "/apis/apps/v9", "/apis/apps/v9/x"):
        reply = api.get(path)
        assert reply.status == 404, path
        assert "404" in str(reply.body)
    reply = api.get("/api/v1/nosuchs")
    assert reply.body["message"] == "the server could not find the requested resource"


def aggregated(api: Api, group: str) -> Any:
    body = api.get("/apis", accept=AGGREGATED).expect(200)
    assert body["kind"] == "APIGroupDiscoveryList"
    found = [item for item in body["items"] if item["metadata"]["name"] == group]
    return found[0] if found else None


def test_aggregated_discovery(api: Api) -> None:
    core = api.get("/api", accept=AGGREGATED)
    assert core.headers["content-type"].startswith(
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    )
    (group,) = core.expect(200)["items"]
    pods = next(r for r in group["versions"][0]["resources"] if r["resource"] == "pods")
    assert pods["responseKind"] == {"group": "", "version": "", "kind": "Pod"}
    assert pods["scope"] == "Namespaced"
    assert {sub["subresource"] for sub in pods["subresources"]} >= {"status", "log", "binding"}
    apps = aggregated(api, "apps")
    deployments = next(
        r for r in apps["versions"][0]["resources"] if r["resource"] == "deployments"
    )
    scale = next(s for s in deployments["subresources"] if s["subresource"] == "scale")
    assert scale["responseKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}


def test_discovery_is_cached_by_its_tag(api: Api) -> None:
    first = api.get("/apis", accept=AGGREGATED)
    headers = {"Accept": AGGREGATED, "If-None-Match": first.headers["etag"]}
    assert api.request("GET", "/apis", headers=headers).status == 304


def test_groups_are_in_the_order_of_the_api(api: Api, unique: str) -> None:
    own = ["apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io"]
    own += ["apiextensions.k8s.io", "coordination.k8s.io"]
    definitions = [Definition(f"{first}.{unique}.test.kthena.io") for first in ("b", "a")]
    for found in definitions:
        found.install(api)
    wanted = [*own, definitions[1].group, definitions[0].group]

    def listed() -> bool:
        plain = [group["name"] for group in api.get("/apis").body["groups"]]
        items = api.get("/apis", accept=AGGREGATED).body["items"]
        aggregated = [group["metadata"]["name"] for group in items]
        return all(
            [name for name in names if name in wanted] == wanted for names in (plain, aggregated)
        )

    eventually(listed)
    for found in definitions:
        api.delete(found.path).expect(200)


def test_custom_resources_are_discovered_and_forgotten(api: Api, definition: Definition) -> None:
    entry = definition.version_entry(subresources={"status": {}, "scale": SCALE})
    crd = definition.crd(
        entry,
        definition.version_entry("v2alpha1", storage=False),
        definition.version_entry("v2", storage=False),
    )
    crd["spec"]["names"] |= {"shortNames": ["wd"], "categories": ["all"]}
    definition.install(api, crd)
    found = eventually(lambda: aggregated(api, definition.group))
    assert [version["version"] for version in found["versions"]] == ["v2", "v1", "v2alpha1"]
    listed = eventually(
        lambda: api.get(f"/apis/{definition.group}/v1").status == 200
    ) and resources(api, f"/apis/{definition.group}/v1")
    assert listed["widgets"]["shortNames"] == ["wd"]
    assert listed["widgets"]["categories"] == ["all"]
    assert set(listed) == {"widgets", "widgets/status", "widgets/scale"}
    api.delete(definition.path).expect(200)
    eventually(lambda: api.get(f"/apis/{definition.group}/v1").status == 404, timeout_s=60)
    eventually(lambda: aggregated(api, definition.group) is None)


def test_version(api: Api) -> None:
    body = api.get("/version").expect(200)
    assert (body["major"], body["minor"]) == ("1", "35")
    assert body["gitVersion"].startswith("v1.35.")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_health(api: Api, path: str) -> None:
    reply = api.get(path)
    assert (reply.status, reply.body) == (200, "ok")
    assert reply.headers["content-type"] == "text/plain; charset=utf-8"
    lines = str(api.get(path, verbose="").expect(200)).splitlines()
    assert (lines[0], lines[-1]) == ("[+]ping ok", f"{path[1:]} check passed")
    assert api.get(f"{path}/ping").expect(200) == "ok"
    assert "404 page not found" in str(api.get(f"{path}/nosuch").body)
    lines = str(api.get(f"{path}?verbose&exclude=ping&exclude=nosuch").body).splitlines()
    assert lines[0] == "[+]ping excluded: ok"
    assert lines[-2:] == [
        'warn: some health checks cannot be excluded: no matches for "nosuch"',
        f"{path[1:]} check passed",
    ]


def test_openapi_describes_every_kind(api: Api) -> None:
    paths = api.get("/openapi/v3").expect(200)["paths"]
    for place, kind in (
        ("api/v1", "io.k8s.api.core.v1.Pod"),
        ("apis/apps/v1", "io.k8s.api.apps.v1.Deployment"),
    ):
        document = api.get(paths[place]["serverRelativeURL"].split("?")[0]).expect(200)
        schemas = document["components"]["schemas"]
        assert kind in schemas
        assert dangling(document, schemas) == set()


def dangling(node: Any, schemas: Any) -> set[str]:
    """References that lead nowhere."""
    if isinstance(node, dict):
        found = set()
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                name = value.removeprefix("#/components/schemas/")
                found |= set() if name in schemas else {name}
            else:
                found |= dangling(value, schemas)
        return found
    if isinstance(node, list):
        return set().union(*(dangling(value, schemas) for value in node)) if node else set()
    return set()


def test_openapi_of_every_group_is_whole(embedded_apiserver: Server) -> None:
    api = Api(embedded_apiserver)
    for entry in api.get("/openapi/v3").expect(200)["paths"].values():
        document = api.get(entry["serverRelativeURL"].split("?")[0]).expect(200)
        assert dangling(document, document["components"]["schemas"]) == set()
        for path in document["paths"].values():
            for method, operation in path.items():
                if method == "patch":
                    names = {parameter["name"] for parameter in operation["parameters"]}
                    assert {"fieldValidation", "dryRun"} <= names
    api.close()


def test_openapi_has_the_schema_of_a_definition(api: Api, widgets: Definition) -> None:
    place = f"apis/{widgets.group}/v1"
    entry = eventually(lambda: api.get("/openapi/v3").body["paths"].get(place))
    document = api.get(entry["serverRelativeURL"].split("?")[0]).expect(200)
    name = ".".join(reversed(widgets.group.split("."))) + ".v1.Widget"
    schema = document["components"]["schemas"][name]
    assert schema["properties"]["spec"]["properties"]["size"]["minimum"] == 1
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": widgets.group, "kind": "Widget", "version": "v1"}
    ]
    assert dangling(document, document["components"]["schemas"]) == set()


def test_old_openapi_is_a_message_that_clients_can_read(api: Api) -> None:
    reply = api.get("/openapi/v2", accept=OPENAPI_V2)
    assert reply.status == 200
    assert reply.headers["content-type"] == OPENAPI_V2.replace("@", ".")
    assert str(reply.body).startswith("\n\x032.0")
    assert api.get("/openapi/v2").expect(200)["swagger"] == "2.0"


def test_definitions_are_a_kind_like_others(api: Api, widgets: Definition) -> None:
    body = api.get(CRDS, fieldSelector=f"metadata.name={widgets.name}").expect(200)
    assert body["kind"] == "CustomResourceDefinitionList"
    assert len(body["items"]) == 1
