"""One container with real processes: restarts, probes, hooks and stopping."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from kthena.kube.clock import Clock, FakeClock, SystemClock, settle
from kthena.local.node.container import ContainerRunner
from kthena.local.node.environment import ConfigError
from kthena.local.node.images import Entry, ImageNotMappedError, Program
from kthena.local.node.observer import Prepared
from kthena.local.node.podstatus import ContainerRecord, Running, Terminated, Waiting
from kthena.local.node.timekeeping import Timekeeping
from support.node import alive, output_of, python_spec, wait_for_text, wait_until

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
    "while True: time.sleep(600)"
)
POLITE = (
    "import signal,sys,time\n"
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print('up', flush=True)\n"
    "time.sleep(600)"
)


class Host:
    """The pod around a container under test; it prepares a Python program."""

    description = "pod=p_ns(uid)"
    grace_s = 30.0

    def __init__(self, folder: Path, code: str) -> None:
        self.folder = folder
        self.code = code
        self.problems: list[Exception] = []
        self.events: list[tuple[str, str, str]] = []
        self.port = 0
        self.exec_allowed = True
        self.prepared = 0
        self.on_prepared: Callable[[], Awaitable[None]] | None = None

    async def prepare(self, container: Mapping[str, Any], attempt: int) -> Prepared:
        del container
        if self.problems:
            raise self.problems[0]
        self.prepared += 1
        spec = python_spec(
            self.folder,
            self.code,
            log=str(self.log(attempt)),
            container_id=f"{self.folder}:{attempt}",
        )
        entry = Entry("*", command=("x",), exec_allowed=self.exec_allowed)
        program = Program(tuple(spec.argv), entry, port=self.port)
        if self.on_prepared is not None:
            await self.on_prepared()
        return Prepared(program, spec, "127.4.5.6", f"kthena://{attempt}")

    def log(self, attempt: int = 0) -> Path:
        return self.folder / f"{attempt}.log"

    def event(self, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason, message))

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.events]


async def let_pass(clock: FakeClock, seconds: float) -> None:
    """Let time pass once whoever is about to wait does wait."""
    await settle()
    await clock.advance(seconds)


async def advance_until(
    clock: FakeClock, condition: Callable[[], bool], step_s: float = 1
) -> float:
    """Let time pass until something has happened; how much it took."""
    started = clock.monotonic()
    async with asyncio.timeout(10):
        while not condition():
            await let_pass(clock, step_s)
            await asyncio.sleep(0.005)
    return clock.monotonic() - started


class Subject:
    """A running container, its host and its clock."""

    def __init__(self, runner: ContainerRunner, host: Host, records: list[ContainerRecord]) -> None:
        self.runner = runner
        self.host = host
        self.records = records

    @property
    def record(self) -> ContainerRecord:
        return self.runner.record

    async def until_waiting(self, reason: str, restarts: int) -> None:
        await wait_until(
            lambda: (
                isinstance(self.record.state, Waiting)
                and self.record.state.reason == reason
                and self.record.restarts == restarts
            )
        )


@asynccontextmanager
async def container(
    folder: Path,
    code: str,
    *,
    clock: Clock | None = None,
    wall: Clock | None = None,
    policy: str = "Always",
    scale: float = 1,
    prepare: Any = None,
    **fields: Any,
) -> AsyncIterator[Subject]:
    """Run a container until the context is left.

    `clock` is for delays, `wall` for grace periods and timeouts; each is real where not given.
    """
    host = Host(folder, code)
    if prepare is not None:
        prepare(host)
    records: list[ContainerRecord] = []
    time = Timekeeping(wall or SystemClock(), scale, 4)
    if clock is not None:
        time.scaled = clock
    spec = {"name": "c", "ports": [{"name": "http", "containerPort": 8080}], **fields}
    runner = ContainerRunner(
        spec, ContainerRecord("c", "image"), host, time, lambda: records.append(runner.record)
    )
    task = asyncio.create_task(runner.run(policy))
    try:
        yield Subject(runner, host, records)
    finally:
        await runner.dispose()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert not alive(f"{folder}:")


async def test_a_crashing_container_backs_off_as_the_kubelet_does(tmp_path: Path) -> None:
    clock = FakeClock()
    async with container(tmp_path, "import os; os._exit(3)", clock=clock) as subject:
        await subject.until_waiting("CrashLoopBackOff", 1)
        assert subject.host.prepared == 2, "the first restart comes at once"
        for restarts, delay in ((2, 10), (3, 20), (4, 40)):
            await let_pass(clock, delay - 0.1)
            assert subject.record.restarts == restarts - 1
            await let_pass(clock, 0.2)
            await subject.until_waiting("CrashLoopBackOff", restarts)
        state = subject.record.state

    assert isinstance(state, Waiting)
    assert state.message == "back-off 1m20s restarting failed container=c pod=p_ns(uid)"
    assert subject.record.last is not None
    assert subject.record.last.exit_code == 3
    assert subject.host.reasons().count("BackOff") == 4
    assert subject.host.reasons().count("Started") == 5


async def test_the_time_scale_shortens_the_back_off(tmp_path: Path) -> None:
    clock = FakeClock()
    async with container(tmp_path, "pass", wall=clock, scale=10) as subject:
        await subject.until_waiting("CrashLoopBackOff", 1)
        await let_pass(clock, 1.01)
        await subject.until_waiting("CrashLoopBackOff", 2)


@pytest.mark.parametrize(
    ("policy", "code", "runs"),
    [("Never", 0, 1), ("Never", 1, 1), ("OnFailure", 0, 1), ("OnFailure", 1, 2), ("Always", 0, 2)],
)
async def test_restart_policies(tmp_path: Path, policy: str, code: int, runs: int) -> None:
    source = f"import os; os._exit({code})"
    async with container(tmp_path, source, clock=FakeClock(), policy=policy) as subject:
        if runs == 1:
            await wait_until(lambda: isinstance(subject.record.state, Terminated))
        else:
            await subject.until_waiting("CrashLoopBackOff", 1)
        assert subject.host.prepared == runs
        end = subject.record.state if runs == 1 else subject.record.last
    assert isinstance(end, Terminated)
    assert (end.exit_code, end.reason) == (code, "Error" if code else "Completed")


async def test_a_program_that_cannot_start_is_a_failed_run(tmp_path: Path) -> None:
    def broken(host: Host) -> None:
        host.folder = tmp_path / "gone"

    async with container(tmp_path, "pass", policy="Never", prepare=broken) as subject:
        await wait_until(lambda: isinstance(subject.record.state, Terminated))
        end = subject.record.state

    assert isinstance(end, Terminated)
    assert (end.exit_code, end.reason) == (128, "StartError")
    assert "Failed" in subject.host.reasons()


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (ConfigError('secret "s" not found'), "CreateContainerConfigError"),
        (ImageNotMappedError("no program stands for image"), "ErrImagePull"),
    ],
)
async def test_what_is_missing_is_said_once_and_waited_for(
    tmp_path: Path, problem: Exception, reason: str
) -> None:
    clock = FakeClock()

    def missing(host: Host) -> None:
        host.problems.append(problem)

    async with container(tmp_path, SLEEP, wall=clock, prepare=missing) as subject:
        await subject.until_waiting(reason, 0)
        state = subject.record.state
        await let_pass(clock, 10)
        subject.host.problems.clear()
        await let_pass(clock, 3)
        await wait_until(lambda: isinstance(subject.record.state, Running))

    assert isinstance(state, Waiting)
    assert state.message == str(problem)
    assert subject.host.reasons().count("Failed") == 1


async def test_stopping_while_it_waits_starts_nothing(tmp_path: Path) -> None:
    def missing(host: Host) -> None:
        host.problems.append(ConfigError("x"))

    async with container(tmp_path, SLEEP, prepare=missing) as subject:
        await subject.until_waiting("CreateContainerConfigError", 0)
        await subject.runner.stop(30)
        subject.host.problems.clear()
    assert subject.host.prepared == 0


async def test_a_graceful_stop_is_a_completed_run(tmp_path: Path) -> None:
    async with container(tmp_path, POLITE) as subject:
        await wait_for_text(subject.host.log(), "up")
        await subject.runner.stop(30)
        await wait_until(lambda: isinstance(subject.record.state, Terminated))
        end = subject.record.state

    assert isinstance(end, Terminated)
    assert (end.exit_code, end.reason) == (0, "Completed")
    assert subject.host.prepared == 1, "it is not restarted"


async def test_a_stubborn_program_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    clock = FakeClock()
    async with container(tmp_path, STUBBORN, wall=clock) as subject:
        await wait_for_text(subject.host.log(), "up")
        stopping = asyncio.create_task(subject.runner.stop(30))
        await let_pass(clock, 29.9)
        await asyncio.sleep(0.05)
        assert isinstance(subject.record.state, Running)
        await let_pass(clock, 0.2)
        await stopping
        await wait_until(lambda: isinstance(subject.record.state, Terminated))
        end = subject.record.state

    assert isinstance(end, Terminated)
    assert (end.exit_code, end.signal) == (137, 9)


async def test_the_stop_signal_of_the_container(tmp_path: Path) -> None:
    code = POLITE.replace("SIGTERM", "SIGUSR1").replace("sys.exit(0)", "sys.exit(5)")
    async with container(tmp_path, code, lifecycle={"stopSignal": "SIGUSR1"}) as subject:
        await wait_for_text(subject.host.log(), "up")
        await subject.runner.stop(30)
        await wait_until(lambda: isinstance(subject.record.state, Terminated))
        end = subject.record.state
    assert isinstance(end, Terminated)
    assert end.exit_code == 5


async def test_a_stop_during_the_start_ends_the_process_with_its_signal(tmp_path: Path) -> None:
    host = Host(tmp_path, POLITE)
    time = Timekeeping(SystemClock(), 1, 4)
    runner = ContainerRunner({"name": "c"}, ContainerRecord("c", "image"), host, time, lambda: None)
    host.on_prepared = lambda: runner.stop(30)
    await runner.run("Always")
    assert isinstance(runner.record.state, Terminated)
    # It ended by SIGTERM, before or after it could handle it; never by SIGKILL.
    assert runner.record.state.signal != 9


async def test_pre_stop_runs_before_the_signal(tmp_path: Path) -> None:
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> trace"]}}}
    code = POLITE.replace("sys.exit(0)", "(open('trace', 'a').write('signal\\n'), sys.exit(0))")
    async with container(tmp_path, code, lifecycle=hook) as subject:
        await wait_for_text(subject.host.log(), "up")
        await subject.runner.stop(30)
        await wait_until(lambda: isinstance(subject.record.state, Terminated))

    assert (tmp_path / "trace").read_text() == "hook\nsignal\n"


async def test_pre_stop_is_part_of_the_grace_period(tmp_path: Path) -> None:
    clock = FakeClock()
    hook = {"preStop": {"sleep": {"seconds": 100}}}
    async with container(tmp_path, STUBBORN, wall=clock, lifecycle=hook) as subject:
        await wait_for_text(subject.host.log(), "up")
        stopping = asyncio.create_task(subject.runner.stop(30))
        await let_pass(clock, 30.1)
        await stopping

    assert ("Warning", "FailedPreStopHook") in [event[:2] for event in subject.host.events]


async def test_a_failing_post_start_hook_ends_the_run(tmp_path: Path) -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "echo no; exit 1"]}}}
    async with container(tmp_path, POLITE, policy="Never", lifecycle=hook) as subject:
        await wait_until(lambda: isinstance(subject.record.state, Terminated))

    assert ("Warning", "FailedPostStartHook", "PostStartHook failed: no") in subject.host.events
    assert not any(record.started for record in subject.records)


async def test_without_probes_a_container_is_ready_at_once(tmp_path: Path) -> None:
    async with container(tmp_path, SLEEP) as subject:
        await wait_until(lambda: subject.record.ready)
        assert subject.record.started


SERVE = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        try:
            status = int(open("status").read())
        except (OSError, ValueError):
            status = 200
        self.send_response(status)
        self.end_headers()
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.4.5.6", PORT), Handler)
print("up", flush=True)
server.serve_forever()
"""


async def test_readiness_follows_the_probe(tmp_path: Path) -> None:
    probe = {"httpGet": {"port": 18231, "path": "/"}, "periodSeconds": 1, "failureThreshold": 2}
    code = SERVE.replace("PORT", "18231")
    async with container(tmp_path, code, scale=50, readinessProbe=probe) as subject:
        await wait_until(lambda: subject.record.ready)
        (tmp_path / "status").write_text("503")
        await wait_until(lambda: not subject.record.ready)
        (tmp_path / "status").write_text("200")
        await wait_until(lambda: subject.record.ready)
        assert subject.host.prepared == 1

    texts = [message for _, reason, message in subject.host.events if reason == "Unhealthy"]
    assert "Readiness probe failed: HTTP probe failed with statuscode: 503" in texts


async def test_initial_delay_is_honoured_and_scaled(tmp_path: Path) -> None:
    clock = FakeClock()
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": 180}
    async with container(tmp_path, SLEEP, wall=clock, scale=10, readinessProbe=probe) as subject:
        await wait_until(lambda: subject.record.started)
        await let_pass(clock, 17.9)
        await asyncio.sleep(0.1)
        assert not subject.record.ready
        await let_pass(clock, 0.2)
        await wait_until(lambda: subject.record.ready)


async def test_a_failing_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    clock = FakeClock()
    probe = {"exec": {"command": ["sh", "-c", "test ! -e sick"]}, "failureThreshold": 2}
    async with container(tmp_path, POLITE, clock=clock, livenessProbe=probe) as subject:
        await wait_until(lambda: subject.record.ready)
        (tmp_path / "sick").touch()
        took = await advance_until(clock, lambda: subject.record.restarts == 1)

    assert took >= 10, "two failures are needed"
    assert ("Normal", "Killing", "Container c failed liveness probe, will be restarted") in (
        subject.host.events
    )


async def test_liveness_waits_for_the_startup_probe(tmp_path: Path) -> None:
    clock = FakeClock()
    startup = {
        "exec": {"command": ["test", "-e", "started"]},
        "periodSeconds": 5,
        "failureThreshold": 9,
    }
    liveness = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
    async with container(
        tmp_path, POLITE, clock=clock, startupProbe=startup, livenessProbe=liveness
    ) as subject:
        await wait_until(lambda: "Unhealthy" in subject.host.reasons())
        await advance_until(clock, lambda: clock.monotonic() > 15)
        assert not subject.record.started
        assert subject.record.restarts == 0
        (tmp_path / "started").touch()
        await advance_until(clock, lambda: subject.record.restarts == 1)

    assert any(record.started for record in subject.records)


async def test_a_startup_probe_that_never_succeeds_restarts_the_container(tmp_path: Path) -> None:
    clock = FakeClock()
    probe = {"tcpSocket": {"port": 1}, "periodSeconds": 5, "failureThreshold": 2}
    async with container(tmp_path, POLITE, clock=clock, startupProbe=probe) as subject:
        await wait_until(lambda: "Unhealthy" in subject.host.reasons())
        took = await advance_until(clock, lambda: subject.record.restarts == 1)
    assert took >= 5
    assert not any(record.started for record in subject.records)


async def test_commands_are_left_out_where_the_image_map_does_not_allow_them(
    tmp_path: Path,
) -> None:
    def forbid(host: Host) -> None:
        host.exec_allowed = False

    write = {"exec": {"command": ["sh", "-c", f"echo ran >> {tmp_path}/ran"]}}
    fields: Any = {
        "readinessProbe": write,
        "livenessProbe": write,
        "lifecycle": {"postStart": write, "preStop": write},
    }
    async with container(tmp_path, POLITE, prepare=forbid, **fields) as subject:
        await wait_until(lambda: subject.record.ready)
        await subject.runner.stop(5)

    assert not (tmp_path / "ran").exists()
    assert subject.host.reasons().count("ExecNotAllowed") == 4


async def test_a_command_that_takes_too_long_fails_and_is_killed(tmp_path: Path) -> None:
    clock = FakeClock()
    probe = {"exec": {"command": ["sleep", "613"]}, "timeoutSeconds": 2, "failureThreshold": 1}
    async with container(
        tmp_path, POLITE, wall=clock, startupProbe=probe, policy="Never"
    ) as subject:
        await wait_until(lambda: bool(alive("sleep\x00613")))
        await advance_until(clock, lambda: isinstance(subject.record.state, Terminated), 0.5)
        assert not alive("sleep\x00613")

    assert "Startup probe failed: command timed out after 2s" in [e[2] for e in subject.host.events]


async def test_a_stand_in_is_ready_when_it_listens(tmp_path: Path) -> None:
    def listen(host: Host) -> None:
        host.port = 18232

    code = "import time; time.sleep(0.3)\n" + SERVE.replace("PORT", "18232")
    async with container(tmp_path, code, prepare=listen) as subject:
        await wait_until(lambda: subject.record.ready)
        assert "up" in output_of(python_spec(tmp_path, "", log=str(subject.host.log())))


async def test_few_stand_ins_start_at_a_time(tmp_path: Path) -> None:
    time = Timekeeping(FakeClock(), 1, 2)
    first, second = await time.start_place(), await time.start_place()
    third = asyncio.create_task(time.start_place())
    await asyncio.sleep(0)
    assert not third.done()
    first.leave()
    first.leave()
    (await third).leave()
    second.leave()
    assert time._places._value == 2


def test_probes_that_kill_get_a_second_of_real_time() -> None:
    fast, plain = Timekeeping(FakeClock(), 100, 1), Timekeeping(FakeClock(), 1, 1)

    assert fast.failure_period(10) == 100
    assert fast.failure_period(0.5) == 50
    assert plain.failure_period(10) == 10


@pytest.mark.parametrize("scale", [0, -1])
def test_a_time_scale_must_be_positive(scale: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        Timekeeping(FakeClock(), scale, 1)
