"""Pods on a node against an API server: the embedded one, and a real one."""

import asyncio
import os
import re
import signal

import pytest

from kthena.api.kubernetes import CONFIG_MAPS, NODES, PODS, SECRETS, SERVICES
from kthena.kube.client import PatchType
from kthena.local.apiserver.logs import LogError
from kthena.local.node.httpget import http_get
from kthena.machinery.objects import uid_of
from support.local_api import is_ready
from support.node import PYTHON, alive, wait_until
from support.node_world import (
    POLITE,
    STUBBORN,
    WAIT,
    World,
    condition,
    on_host,
    python,
    wait_for_log,
    wait_for_log_end,
    waiting_reason,
)


async def test_an_engine_pod_becomes_ready_and_answers(world: World) -> None:
    env = [{"name": "MODEL_NAME", "value": "org/m"}]
    await world.run("e", {"name": "c", "image": "x/vllm-openai:1", "env": env})
    pod = await world.api.until_ready("e")

    status = pod["status"]
    reply = await http_get(status["podIP"], 8000, "/v1/models", timeout_s=5)
    assert b'"id":"org/m"' in reply.body
    assert pod["spec"]["nodeName"] == world.name
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("127.")
    assert status["hostIP"] != status["podIP"]
    assert status["containerStatuses"][0]["started"] is True
    assert {"Scheduled", "Started"} <= {reason for reason, _ in await world.api.events("e")}


async def test_a_deleted_pod_stops_gracefully_and_goes(world: World) -> None:
    pod = await world.run("p", python(POLITE))
    await world.api.until_ready("p")
    assert alive(f"{world.data}:{uid_of(pod)}")
    await world.api.delete(PODS, "p")
    await world.api.until_gone(PODS, "p")

    assert not alive(f"{world.data}:{uid_of(pod)}")
    await wait_until(lambda: not (world.data / "pods" / uid_of(pod)).exists())


async def test_a_forced_deletion_kills_at_once(world: World) -> None:
    pod = await world.run("p", python(STUBBORN), terminationGracePeriodSeconds=600)
    await wait_for_log(world, await world.api.until_ready("p"), "up")
    await world.api.delete(PODS, "p", grace_s=0)

    await wait_until(lambda: not alive(f"{world.data}:{uid_of(pod)}"))


async def test_a_shorter_grace_period_set_later_counts(world: World) -> None:
    await world.run("p", python(STUBBORN), terminationGracePeriodSeconds=600)
    await wait_for_log(world, await world.api.until_ready("p"), "up")
    await world.api.delete(PODS, "p", grace_s=300)
    await world.api.until_event("p", "Killing")
    await world.api.delete(PODS, "p", grace_s=1)
    await world.api.until_gone(PODS, "p", timeout_s=10)


async def test_a_crash_loop_is_shown(world: World) -> None:
    await world.run("p", python("import sys; print('boom'); sys.exit(3)"))
    pod = await world.api.until(PODS, "p", lambda pod: waiting_reason(pod) == "CrashLoopBackOff")

    (entry,) = pod["status"]["containerStatuses"]
    assert entry["restartCount"] == 1
    assert entry["lastState"]["terminated"]["exitCode"] == 3
    assert pod["status"]["phase"] == "Running"
    assert await world.logs(pod) == "boom\n"
    assert await world.logs(pod, previous=True) == "boom\n"


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
async def test_a_pod_that_is_not_restarted_finishes(world: World, code: int, phase: str) -> None:
    await world.run("p", python(f"import os; os._exit({code})"), restartPolicy="Never")
    pod = await world.api.until(PODS, "p", lambda pod: pod["status"].get("phase") == phase)

    assert not is_ready(pod)
    await world.api.delete(PODS, "p")
    await world.api.until_gone(PODS, "p")


async def test_an_unmapped_image_waits_and_says_how_to_map_it(world: World) -> None:
    await world.run("p", {"name": "c", "image": "nginx"})
    pod = await world.api.until(PODS, "p", lambda pod: waiting_reason(pod) == "ErrImagePull")

    waiting = pod["status"]["containerStatuses"][0]["state"]["waiting"]
    assert '"nginx*": ["PROGRAM", "{args}"]' in waiting["message"]
    assert pod["status"]["phase"] == "Pending"
    await world.api.delete(PODS, "p")
    await world.api.until_gone(PODS, "p")


async def test_a_field_that_is_refused_keeps_the_pod_waiting(world: World) -> None:
    volume = {"name": "v", "nfs": {"server": "x", "path": "/"}}
    await world.run("p", python(WAIT), volumes=[volume], nodeSelector={"a": "b"})
    pod = await world.api.until(
        PODS, "p", lambda pod: waiting_reason(pod) == "CreateContainerConfigError"
    )

    message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]
    assert "spec.volumes[v].nfs is not supported" in message
    assert "nodeSelector" in await world.api.until_event("p", "FieldsIgnored")
    await world.api.delete(PODS, "p")
    await world.api.until_gone(PODS, "p")


async def test_init_containers_run_in_order_and_sidecars_stay(world: World) -> None:
    def trace(word: str, then: str = "") -> str:
        return f"open('/shared/trace', 'a').write('{word} '){then}"

    mount = {"volumeMounts": [{"name": "s", "mountPath": "/shared"}]}
    stay = "; import time; time.sleep(600)"
    await world.run(
        "p",
        python(trace("app", f"; print(open('/shared/trace').read(), flush=True){stay}"), **mount),
        initContainers=[
            python(trace("one"), "one", **mount),
            python(trace("side", stay), "side", restartPolicy="Always", **mount),
            python(trace("two"), "two", **mount),
        ],
        volumes=[{"name": "s", "emptyDir": {}}],
    )
    pod = await world.api.until_ready("p")

    texts = [e["state"] for e in pod["status"]["initContainerStatuses"]]
    assert "terminated" in texts[0]
    assert "running" in texts[1]
    await wait_for_log(world, pod, "app")
    text = (await world.logs(pod)).split()
    assert text[:1] == ["one"]
    assert text.index("two") > 0
    assert set(text) <= {"one", "side", "two", "app"}
    await world.api.delete(PODS, "p")
    await world.api.until_gone(PODS, "p")


async def test_a_failing_init_container_keeps_the_pod_pending(world: World) -> None:
    fail = python("import os; os._exit(2)", "i")
    await world.run("p", python(WAIT), initContainers=[fail])
    pod = await world.api.until(
        PODS,
        "p",
        lambda pod: any(
            "waiting" in entry["state"] and entry["restartCount"] >= 1
            for entry in pod["status"].get("initContainerStatuses", ())
        ),
    )
    assert pod["status"]["phase"] == "Pending"
    assert waiting_reason(pod) == "PodInitializing"

    await world.run("q", python(WAIT), initContainers=[fail], restartPolicy="Never")
    await world.api.until(PODS, "q", lambda pod: pod["status"].get("phase") == "Failed")


async def test_environment_and_volumes_come_from_objects(world: World) -> None:
    api = world.api
    code = (
        "import os,time; e=os.environ; "
        "print(e['A'], e['B'], e['IP'], e['LABEL'], open('/cfg/k').read(), flush=True); time.sleep(600)"
    )
    env = [
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
        {"name": "B", "value": "<$(A)>"},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
    ]
    volumes = [{"name": "v", "secret": {"secretName": "s"}}]
    mount = [{"name": "v", "mountPath": "/cfg"}]
    await world.run("p", python(code, env=env, volumeMounts=mount), volumes=volumes)
    message = await api.until_event("p", "FailedMount")
    assert 'secret "s" not found' in message
    await api.create(SECRETS, {"metadata": {"name": "s"}, "data": {"k": "aHVzaA=="}})
    await api.until(PODS, "p", lambda pod: waiting_reason(pod) == "CreateContainerConfigError")
    await api.create(CONFIG_MAPS, {"metadata": {"name": "m"}, "data": {"k": "1"}})
    pod = await api.until_ready("p")

    await wait_for_log(world, pod, "hush")
    assert await world.logs(pod) == f"1 <1> {pod['status']['podIP']} p hush\n"


RESOLVE = """
import socket, sys, time
while True:
    names = []
    for name in sys.argv[1:]:
        try:
            names.append(name + "=" + ",".join(sorted({i[4][0] for i in socket.getaddrinfo(name, 1)})))
        except OSError:
            names.append(name + "=")
    print(" ".join(names), flush=True)
    time.sleep(0.05)
"""


async def test_service_names_resolve_in_a_plain_python_process(world: World) -> None:
    api, namespace = world.api, world.api.namespace
    limits = (await api.client.get(NODES, world.name))["status"]["conditions"]
    if "private mounts" in limits[0].get("message", ""):
        pytest.skip(limits[0]["message"])
    headless = {
        "metadata": {"name": "entry"},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"app": "entry"},
            "ports": [{"port": 1}],
        },
    }
    await api.create(SERVICES, headless)
    names = [f"entry.{namespace}", f"entry.{namespace}.svc", "entry", "worker", "localhost"]
    worker = await world.run("worker", {**python(RESOLVE), "args": ["-c", RESOLVE, *names]})
    worker = await api.until_ready("worker")
    own = worker["status"]["podIP"]
    await wait_for_log(world, worker, f"entry= worker={own} localhost={own}")
    await world.run("one", python(WAIT), labels={"app": "entry"})
    address = (await api.until(PODS, "one", lambda pod: pod["status"].get("podIP")))["status"][
        "podIP"
    ]
    await wait_for_log(world, worker, " ".join(f"{name}={address}" for name in names[:3]))
    await api.delete(PODS, "one", grace_s=0)
    await wait_for_log_end(world, worker, f"entry= worker={own} localhost={own}")


async def test_probes_hooks_and_the_working_directory(world: World) -> None:
    code = (
        "import http.server,os; os.makedirs('sub', exist_ok=True); print(os.getcwd(), flush=True)\n"
        "class H(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200 if os.path.exists('go') else 500); self.end_headers()\n"
        "http.server.HTTPServer((os.environ['KTHENA_POD_IP'], 8765), H).serve_forever()\n"
    )
    probe = {"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 1}
    container = {
        "name": "c", "image": "own", "command": [PYTHON, "-c", code], "workingDir": "/kthena-work",
        "ports": [{"name": "http", "containerPort": 8765}], "readinessProbe": probe,
        "lifecycle": {"postStart": {"exec": {"command": ["touch", "hooked"]}}},
    }  # fmt: skip
    await world.run("p", container)
    await world.api.until_event("p", "Unhealthy")
    pod = await world.api.get(PODS, "p")
    work = world.data / "pods" / uid_of(pod) / "work" / "c"
    assert not is_ready(pod)
    assert (work / "hooked").exists()
    (work / "go").touch()
    pod = await world.api.until_ready("p")

    assert (await world.logs(pod)).startswith("/kthena-work\n")
    assert not on_host("/kthena-work")


async def test_readiness_gates_are_waited_for(world: World) -> None:
    gate = "example.com/gate"
    await world.run("p", python(WAIT), readinessGates=[{"conditionType": gate}])
    pod = await world.api.until(
        PODS, "p", lambda pod: condition(pod, "Ready").get("reason") == "ReadinessGatesNotReady"
    )
    patch = {"status": {"conditions": [{"type": gate, "status": "True"}]}}
    await world.api.client.patch(
        PODS, "p", world.api.namespace, patch, PatchType.STRATEGIC, subresource="status"
    )
    pod = await world.api.until_ready("p")

    assert condition(pod, gate)["status"] == "True"


async def test_a_deadline_ends_the_pod(world: World) -> None:
    await world.run("p", python(POLITE), activeDeadlineSeconds=1)
    pod = await world.api.until(PODS, "p", lambda pod: pod["status"].get("phase") == "Failed")

    assert pod["status"]["reason"] == "DeadlineExceeded"
    await wait_until(lambda: not alive(f"{world.data}:{uid_of(pod)}"))


async def test_logs_and_their_errors(world: World) -> None:
    code = "import time\nfor i in range(5): print('line', i, flush=True)\ntime.sleep(600)"
    await world.run("p", python(code), python(WAIT, "d"))
    pod = await world.api.until_ready("p")
    await wait_for_log(world, pod, "line 4")

    assert await world.logs(pod, tail_lines=2) == "line 3\nline 4\n"
    assert await world.logs(pod, limit_bytes=6) == "line 0"
    for container, options, text in (
        ("", {}, "a container name must be specified for pod p, choose one of: [c d]"),
        ("x", {}, "container x is not valid for pod p"),
        ("c", {"previous": True}, 'previous terminated container "c" in pod "p" not found'),
        ("c", {"timestamps": True}, "have no times"),
    ):
        with pytest.raises(LogError, match=re.escape(text)):
            await world.logs(pod, container=container, **options)
    if world.api.embedded is not None:
        world.api.embedded.register_log_source(world.name, world.node)
        path = PODS.path(world.api.namespace, "p", "log")
        params = {"container": "c", "tailLines": "1"}
        parts = [part async for part in world.api.client.stream(path, params)]
        assert b"".join(parts) == b"line 4\n"
    follow = asyncio.create_task(world.logs(pod, follow=True))
    await asyncio.sleep(0.2)
    await world.api.delete(PODS, "p", grace_s=0)
    assert (await follow).endswith("line 4\n")


async def test_a_killed_program_is_restarted(world: World) -> None:
    pod = await world.run("p", python(WAIT))
    pod = await world.api.until_ready("p")
    program = max(alive(f"{world.data}:{uid_of(pod)}"))
    os.kill(program, signal.SIGKILL)
    pod = await world.api.until(
        PODS,
        "p",
        lambda p: is_ready(p) and p["status"]["containerStatuses"][0]["restartCount"] == 1,
    )

    end = pod["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert (end["exitCode"], end["signal"]) == (137, 9)
