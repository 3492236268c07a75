"""Container processes through the launcher: what they see, and that nothing of them survives."""

import asyncio
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kthena.local.node.processes import (
    ContainerProcess,
    Exit,
    Mount,
    StartError,
    find_namespace,
    kill_marked,
)
from kthena.local.node.resolution import rewrite
from support.node import (
    PYTHON,
    alive,
    process_spec,
    python_spec,
    run,
    wait_for_text,
    wait_until,
)


def read(path: Path) -> bytes:
    return path.read_bytes()


def exists(path: str) -> bool:
    return Path(path).exists()


TREE = """
import os, signal, subprocess, sys, time
# A child of its own session whose parent ends at once: nothing but a sub-reaper finds it.
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("orphan", flush=True)
        time.sleep(600)
    os._exit(0)
subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"])
time.sleep(0.1)
print("ready", flush=True)
"""


@pytest.mark.parametrize("code", [0, 3, 255])
async def test_the_exit_code_is_reported(tmp_path: Path, code: int) -> None:
    end, _ = await run(python_spec(tmp_path, f"import os; os._exit({code})"))
    assert end == Exit(code)


async def test_death_by_a_signal_is_reported(tmp_path: Path) -> None:
    end, _ = await run(python_spec(tmp_path, "import os; os.kill(os.getpid(), 9)"))
    assert end == Exit(137, 9)


async def test_environment_directory_and_output(tmp_path: Path) -> None:
    code = (
        "import os,sys; print(sorted(set(os.environ) - {'LC_CTYPE'})); print(os.environ['A'], os.getcwd()); "
        "print('err', file=sys.stderr); print(repr(sys.stdin.read()), os.getsid(0) == os.getpid())"
    )
    spec = python_spec(tmp_path, code, environment={"A": "ü$(B)", "PATH": "/bin"})
    _, text = await run(spec)

    assert "['A', 'KTHENA_CONTAINER_ID', 'PATH']" in text
    assert f"ü$(B) {tmp_path}" in text
    assert "err" in text
    assert "'' True" in text


async def test_output_is_appended(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("before\n")
    _, text = await run(process_spec(tmp_path, "echo", "after"))
    assert text == "before\nafter\n"


@pytest.mark.parametrize(
    ("argv", "directory", "text"),
    [
        (["no-such-program"], None, "program no-such-program is not on the PATH"),
        (["/no/such"], None, "program /no/such does not exist"),
        (["true"], "/no/such", "working directory /no/such: No such file"),
        (["/etc/passwd"], None, "PermissionError"),
    ],
)
async def test_a_program_that_cannot_be_started(
    tmp_path: Path, argv: list[str], directory: str | None, text: str
) -> None:
    spec = process_spec(tmp_path, *argv)
    with pytest.raises(StartError, match=text):
        await ContainerProcess.start(replace(spec, directory=directory or spec.directory))
    assert not alive(spec.container_id)


async def test_sigterm_reaches_the_program_and_its_code_counts(tmp_path: Path) -> None:
    code = (
        "import signal,sys,time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True); time.sleep(600)"
    )
    spec = python_spec(tmp_path, code)
    process = await ContainerProcess.start(spec)
    await wait_for_text(Path(spec.log), "up")
    process.signal(signal.SIGTERM)

    assert await process.wait() == Exit(7)
    process.signal(signal.SIGTERM)
    process.kill()


async def test_a_killed_container_leaves_nothing(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, TREE + "time.sleep(600)")
    process = await ContainerProcess.start(spec)
    await wait_for_text(Path(spec.log), "ready")
    assert len(alive(spec.container_id)) == 4
    process.kill()

    assert await process.wait() == Exit(137, 9)
    assert not alive(spec.container_id)


async def test_the_end_of_the_program_ends_what_it_started(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, TREE)
    end, text = await run(spec)

    assert end == Exit(0)
    assert "orphan" in text
    assert not alive(spec.container_id)


async def test_kill_9_of_the_launcher_leaves_nothing(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, TREE + "time.sleep(600)")
    process = await ContainerProcess.start(spec)
    await wait_for_text(Path(spec.log), "ready")
    os.kill(process._launcher.pid, signal.SIGKILL)

    assert await process.wait() == Exit(137, 9)
    assert not alive(spec.container_id)


async def test_kill_9_of_the_node_leaves_nothing(tmp_path: Path) -> None:
    parent = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from support.node import python_spec
from kthena.local.node.processes import ContainerProcess
async def main():
    for number in range(3):
        spec = python_spec(Path({str(tmp_path)!r}), {TREE + "time.sleep(600)"!r})
        await ContainerProcess.start(spec)
    await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", parent]) as node:  # noqa: ASYNC220 - short
        await wait_until(
            lambda: (
                (tmp_path / "log").exists() and (tmp_path / "log").read_text().count("ready") == 3
            )
        )
        assert len(alive(f"{tmp_path}:test")) == 12
        node.kill()
        node.wait()

    await wait_until(lambda: not alive(f"{tmp_path}:test"), 5)


async def test_cancelling_a_start_leaves_nothing(tmp_path: Path) -> None:
    spec = python_spec(tmp_path, "import time; time.sleep(600)")
    for delay in (0.0, 0.005, 0.02):
        task = asyncio.create_task(ContainerProcess.start(spec))
        await asyncio.sleep(delay)
        if not task.cancel():
            (await task).kill()
        await asyncio.gather(task, return_exceptions=True)
        if not task.cancelled():
            await task.result().dispose()
    assert not alive(spec.container_id)


async def test_what_an_earlier_life_left_is_found_by_its_marker(tmp_path: Path) -> None:
    env = {"KTHENA_CONTAINER_ID": f"{tmp_path}:left", "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "600"], env=env) as left:  # noqa: ASYNC220 - short
        await wait_until(lambda: bool(alive(f"{tmp_path}:left")))
        reaper = asyncio.create_task(asyncio.to_thread(left.wait))
        assert await kill_marked(f"{tmp_path}:") == 1
        assert await reaper == -signal.SIGKILL


async def test_many_programs_at_once(tmp_path: Path) -> None:
    ends = await asyncio.gather(
        *(
            run(
                python_spec(
                    tmp_path, f"import os; os._exit({number})", log=str(tmp_path / str(number))
                )
            )
            for number in range(20)
        )
    )
    assert [end.code for end, _ in ends] == list(range(20))


# --- the private view --------------------------------------------------------------------------


@pytest.fixture(params=["root", "user"])
async def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A way to private mounts; skipped where the host does not have it."""
    limits: list[str] = []
    spec = process_spec(tmp_path, "true", namespace=request.param, hostname="probe")
    await run(spec, limits)
    if limits:
        pytest.skip(f"no {request.param} namespaces on this host: {limits[0]}")
    return str(request.param)


RESOLVE = """
import socket, sys, time
for name in sys.argv[1:]:
    try:
        print(name, sorted({info[4][0] for info in socket.getaddrinfo(name, 80)}), flush=True)
    except OSError as error:
        print(name, "unknown", flush=True)
"""


async def test_names_of_the_pods_hosts_file_resolve(tmp_path: Path, namespace: str) -> None:
    (tmp_path / "hosts").write_text("127.2.0.9\tlocalhost p-0\n127.2.0.3\te.ns.svc e.ns\n")
    spec = process_spec(
        tmp_path,
        *(
            PYTHON,
            "-I",
            "-S",
            "-c",
            RESOLVE,
            "e.ns",
            "e.ns.svc",
            "p-0",
            "localhost",
            "other.invalid",
        ),
        namespace=namespace,
        hostname="p-0",
        mounts=[Mount(str(tmp_path / "hosts"), "/etc/hosts")],
    )
    before = read(Path("/etc/hosts"))
    _, text = await run(spec)

    assert text.splitlines() == [
        "e.ns ['127.2.0.3']",
        "e.ns.svc ['127.2.0.3']",
        "p-0 ['127.2.0.9']",
        "localhost ['127.2.0.9']",
        "other.invalid unknown",
    ]
    assert read(Path("/etc/hosts")) == before


async def test_a_running_process_sees_new_names(tmp_path: Path, namespace: str) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.2.0.9\tlocalhost\n")
    code = RESOLVE.replace("for name", "while not open('go').read(): time.sleep(0.01)\nfor name")
    (tmp_path / "go").write_text("")
    spec = process_spec(
        tmp_path, *(PYTHON, "-I", "-S", "-c", "print('up', flush=True)\n" + code, "new.ns"),
        namespace=namespace, mounts=[Mount(str(hosts), "/etc/hosts")],
    )  # fmt: skip
    process = await ContainerProcess.start(spec)
    await wait_for_text(Path(spec.log), "up")
    rewrite(hosts, b"127.2.0.9\tlocalhost\n127.2.0.4\tnew.ns\n")
    (tmp_path / "go").write_text("1")
    await process.wait()

    assert "new.ns ['127.2.0.4']" in read(Path(spec.log)).decode()


SHELL = "set -e; umask; hostname; {}"


async def test_mount_points_that_the_host_lacks(tmp_path: Path, namespace: str) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "which").write_text(name)
    (tmp_path / "file").write_text("content")
    targets = {
        "/kthena-test-root": "a",
        "/etc/kthena-test/deep/er": "b",
        f"{tmp_path}/under/tmp": "c",
        "/kthena-test-file/x.conf": "file",
    }
    host = {target: exists(target) for target in targets}
    script = "; ".join(
        f"cat {target}" if name == "file" else f"cat {target}/which; echo new > {target}/made"
        for target, name in targets.items()
    )
    listing = "; ls /usr /etc/passwd /proc/self/status > /dev/null; echo ' ok'"
    limits: list[str] = []
    end, text = await run(
        process_spec(
            tmp_path, *("sh", "-c", f"set -e; {script}{listing}"), namespace=namespace,
            mounts=[Mount(str(tmp_path / name), target) for target, name in targets.items()],
        ),
        limits,
    )  # fmt: skip

    assert limits == []
    assert end == Exit(0), text
    assert text == "abccontent ok\n"
    assert all((tmp_path / name / "made").exists() for name in ("a", "b", "c"))
    assert host == dict.fromkeys(targets, False)
    assert not any(exists(target) for target in targets), "the host was written to"


async def test_mounts_within_mounts_and_read_only_ones(tmp_path: Path, namespace: str) -> None:
    for name in ("outer", "inner", "fixed"):
        (tmp_path / name).mkdir()
    script = (
        "echo 1 > /kt/x && echo 2 > /kt/sub/y && cat /kt/sub/y && ! (echo 3 > /kt/fixed/z) 2>/dev/null "
        "&& echo refused"
    )
    spec = process_spec(
        tmp_path, "sh", "-c", script, namespace=namespace,
        mounts=[Mount(str(tmp_path / "inner"), "/kt/sub"), Mount(str(tmp_path / "outer"), "/kt"),
                Mount(str(tmp_path / "fixed"), "/kt/fixed", read_only=True)],
    )  # fmt: skip
    end, text = await run(spec)

    assert (end, text) == (Exit(0), "2\nrefused\n")
    assert (tmp_path / "outer" / "x").read_text() == "1\n"
    assert (tmp_path / "inner" / "y").read_text() == "2\n"


async def test_a_mount_that_cannot_be_made_is_told_and_left_out(
    tmp_path: Path, namespace: str
) -> None:
    (tmp_path / "file").write_text("x")
    limits: list[str] = []
    spec = process_spec(
        tmp_path, "echo", "ran", namespace=namespace,
        mounts=[Mount(str(tmp_path / "file"), "/usr"), Mount(str(tmp_path / "gone"), "/kt-gone")],
    )  # fmt: skip
    end, text = await run(spec, limits)

    assert (end.code, text) == (0, "ran\n")
    assert len(limits) == 2
    assert "/usr is not mounted: /usr is a directory on this host" in limits


async def test_the_host_name_is_the_pods(tmp_path: Path, namespace: str) -> None:
    spec = process_spec(tmp_path, "hostname", namespace=namespace, hostname="pod-7")
    _, text = await run(spec)
    assert text == "pod-7\n"


async def test_identity_is_kept(tmp_path: Path, namespace: str) -> None:
    spec = process_spec(tmp_path, "id", "-u", namespace=namespace, hostname="x")
    _, text = await run(spec)
    assert text == f"{os.getuid()}\n"


async def test_the_way_of_this_host_is_found(tmp_path: Path) -> None:
    way, problem = await find_namespace(tmp_path)
    assert way in {"", "user", "root"}
    assert bool(way) != bool(problem)
