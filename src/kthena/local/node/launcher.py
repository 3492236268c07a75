"""The small program between the node and one container process.

It runs as `python -I -S launcher.py`, imports the standard library alone, and keeps three promises:

* nothing survives: when the node dies, however it dies, its end of the control pipe closes, and the
  launcher kills every descendant of the container and exits; the same when the container's own
  process ends (a sub-reaper finds descendants that left their session);
* the process sees the pod's world: in a private mount namespace (a user namespace where the node is
  not root) the pod's hosts file and volumes are mounted at their paths, and nothing outside the
  data directory is written for it: a mount point that the host lacks exists in that namespace only;
* the node learns what happened, as text lines on standard output.

Input is one marshalled specification (a length line, then the bytes), then lines: `signal N`.
Output lines: `started PID`, `limit TEXT` (something of the specification could not be given),
`failed TEXT` (the program could not be started), `exited CODE`, `signaled N`.
"""
# pathlib would double the start-up time:
# ruff: noqa: PTH102, PTH103, PTH110, PTH112, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208, PTH211

import ctypes
import errno
import marshal
import os
import select
import signal
import sys

TYPE_CHECKING = False  # Known to type checkers by its name; importing typing would cost time.
if TYPE_CHECKING:
    import io
    from typing import Any, TypeAlias

    Spec: TypeAlias = dict[str, Any]

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY = 1
_MS_REMOUNT = 32
_MS_BIND = 4096
_MS_REC = 16384
_MS_PRIVATE = 1 << 18
_MNT_DETACH = 2
_LOCKED_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
_CONTROL, _STATUS = 0, 1
_EXIT_NOT_STARTED = 127

_libc = ctypes.CDLL(None, use_errno=True)


class _SetupError(OSError):
    """A step of the set-up that failed; the text says which."""


def main() -> int:
    """Read the specification, run the container, and return when nothing of it is left."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    control = os.fdopen(_CONTROL, "rb", buffering=0, closefd=False)
    spec = _read_spec(control)
    if spec is None:
        return 0
    wakeup = _wakeup_pipe()
    pid = _start(spec)
    if not pid:
        return 0
    _supervise(pid, control.fileno(), wakeup)
    return 0


def _read_spec(control: "io.FileIO") -> "Spec | None":
    """The specification, or None when the node is gone before it sent one."""
    size = b""
    while not size.endswith(b"\n"):
        byte = control.read(1)
        if not byte:
            return None
        size += byte
    raw = b""
    while len(raw) < int(size):
        part = control.read(int(size) - len(raw))
        if not part:
            return None
        raw += part
    spec: Spec = marshal.loads(raw)  # noqa: S302 - written by the parent over a private pipe
    return spec


def _wakeup_pipe() -> int:
    """A descriptor that becomes readable with every signal; signals to forward arrive as bytes."""
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    os.set_blocking(read_end, False)
    signal.set_wakeup_fd(write_end)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return read_end


def _tell(line: str) -> None:
    """One status line; a node that is gone reads nothing, and the control pipe says so too."""
    try:
        os.write(_STATUS, (line.replace("\n", " ") + "\n").encode("utf-8", "replace"))
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise


# --- starting --------------------------------------------------------------------------------


def _start(spec: "Spec") -> int:
    """Fork and exec the program; its process id, or 0 when it could not be started."""
    report_read, report_write = os.pipe()
    log = os.open(spec["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    launcher = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(report_read)
            _become(spec, report_write, log, launcher)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the child must not go on
            _report(report_write, f"failed {_text(error)}")
        finally:
            os._exit(_EXIT_NOT_STARTED)
    os.close(report_write)
    os.close(log)
    problem = _relay_reports(report_read)
    if problem:
        os.waitpid(pid, 0)
        _tell(problem)
        return 0
    _tell(f"started {pid}")
    return pid


def _relay_reports(report_read: int) -> str:
    """Pass limits on until the pipe closes, which exec does; the failure, if there was one."""
    problem = ""
    with os.fdopen(report_read, "rb") as reports:
        for raw in reports:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            if line.startswith("failed "):
                problem = line
            else:
                _tell(line)
    return problem


def _report(descriptor: int, line: str) -> None:
    os.write(descriptor, (line.replace("\n", " ") + "\n").encode("utf-8", "replace"))


def _become(spec: "Spec", report: int, log: int, launcher: int) -> None:
    """In the child: a session of its own, the pod's mounts, then the program."""
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    if spec["namespace"]:
        _enter_namespace(spec, report)
    # After the namespace: a change of credentials clears it.
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != launcher:
        return
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.umask(0o022)
    _change_directory(spec["directory"])
    program = _find(spec["argv"][0], spec["environment"])
    os.execve(program, spec["argv"], spec["environment"])  # noqa: S606 - what a launcher is for


def _change_directory(directory: str) -> None:
    try:
        os.chdir(directory)
    except OSError as error:
        raise _SetupError(f"working directory {directory}: {error.strerror}") from error


def _find(program: str, environment: dict[str, str]) -> str:
    """The program's path, by the container's own PATH."""
    if "/" in program:
        if not os.path.exists(program):
            raise _SetupError(f"program {program} does not exist")
        return program
    for directory in environment.get("PATH", os.defpath).split(":"):
        candidate = os.path.join(directory, program)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise _SetupError(f"program {program} is not on the PATH")


def _text(error: BaseException) -> str:
    if isinstance(error, _SetupError):
        return str(error.args[-1])
    return f"{type(error).__name__}: {error}"


# --- namespaces and mounts -------------------------------------------------------------------


def _enter_namespace(spec: "Spec", report: int) -> None:
    """A private view of mounts and host name; what cannot be had is reported and left out."""
    user, group = os.getuid(), os.getgid()
    try:
        if spec["namespace"] == "user":
            _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS | _CLONE_NEWUTS)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        else:
            _call("unshare", _CLONE_NEWNS | _CLONE_NEWUTS)
        _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
        name = spec["hostname"].encode()
        _call("sethostname", name, len(name))
    except OSError as error:
        _report(report, f"limit no private mounts: {error.args[-1]}")
        return
    mounts = _Mounts(spec["staging"])
    for source, target, read_only in sorted(spec["mounts"], key=lambda mount: mount[1]):
        try:
            mounts.bind(source, target, read_only=read_only)
        except OSError as error:
            _report(report, f"limit {target} is not mounted: {error.args[-1]}")
    try:
        mounts.enter_root()
    except OSError as error:
        raise _SetupError(f"cannot enter the pod's root directory: {error.args[-1]}") from error


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


class _Mounts:
    """Bind mounts whose mount points need not exist on the host.

    A missing mount point is made by masking its deepest existing parent with a memory file system
    that holds binds of everything that was there; for the root directory this means a new root,
    which `enter_root` changes to.
    """

    def __init__(self, staging: str) -> None:
        self._staging = staging
        self._new_root = ""
        self._volumes: list[str] = []
        self._memory: set[int] = set()

    def bind(self, source: str, target: str, *, read_only: bool) -> None:
        """Mount `source` at the absolute path `target`."""
        place = self._place(target, is_directory=os.path.isdir(source))
        _mount(source, place, None, _MS_BIND | _MS_REC)
        if read_only:
            locked = os.statvfs(place).f_flag & _LOCKED_FLAGS
            _mount(None, place, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | locked)
        else:
            self._volumes.append(os.path.realpath(target))

    def enter_root(self) -> None:
        """Change to the new root directory, if one had to be built."""
        if self._new_root:
            os.chroot(self._new_root)
            os.chdir("/")

    def _place(self, target: str, *, is_directory: bool) -> str:
        """The existing path to mount on, made where it is missing."""
        path = os.path.realpath(target)
        if not os.path.lexists(self._new_root + path):
            self._make(path, is_directory=is_directory)
        place = self._new_root + path
        if os.path.isdir(place) != is_directory:
            kind = "file" if is_directory else "directory"
            raise _SetupError(f"{path} is a {kind} on this host")
        return place

    def _make(self, path: str, *, is_directory: bool) -> None:
        parent = os.path.dirname(path)
        while not os.path.isdir(self._new_root + parent):
            parent = os.path.dirname(parent)
        in_volume = any(f"{path}/".startswith(f"{volume}/") for volume in self._volumes)
        if not in_volume and not self._is_ours(parent):
            self._mask(parent)
        place = self._new_root + path
        if is_directory:
            os.makedirs(place)
        else:
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))

    def _is_ours(self, directory: str) -> bool:
        """Whether the directory lies in a memory file system that was mounted here."""
        place = self._new_root + directory
        return os.path.isdir(place) and os.stat(place).st_dev in self._memory

    def _mask(self, directory: str) -> None:
        """Put a memory file system with binds of the same entries in the place of `directory`."""
        place = self._new_root + directory
        stage = os.path.join(self._staging, str(len(self._memory)))
        os.makedirs(stage, exist_ok=True)
        mode = os.stat(place).st_mode & 0o7777
        entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        _mount("tmpfs", stage, "tmpfs", 0, f"mode={mode:o}")
        self._memory.add(os.stat(stage).st_dev)
        for entry in entries:
            _bind_entry(entry, os.path.join(stage, entry.name))
        if directory == "/":
            self._new_root = stage
            return
        _mount(stage, place, None, _MS_BIND | _MS_REC)
        _call("umount2", stage.encode(), _MNT_DETACH)


def _bind_entry(entry: "os.DirEntry[str]", place: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), place)
        return
    if entry.is_dir(follow_symlinks=False):
        os.mkdir(place)
    else:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o600))
    try:
        _mount(entry.path, place, None, _MS_BIND | _MS_REC)
    except OSError as error:
        # An entry that vanished since it was listed leaves an empty place.
        if error.errno != errno.ENOENT:
            raise


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    arguments = [part.encode() if part else None for part in (source, target, kind)]
    data = options.encode() if options else None
    if _libc.mount(*arguments, ctypes.c_ulong(flags), data):
        number = ctypes.get_errno()
        raise _SetupError(number, f"mount on {target}: {os.strerror(number)}")


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments):
        number = ctypes.get_errno()
        raise _SetupError(number, f"{name}: {os.strerror(number)}")


# --- supervising -----------------------------------------------------------------------------


def _supervise(pid: int, control: int, wakeup: int) -> None:
    """Forward signals until the program has ended or the node is gone, then leave nothing."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    pending = b""
    result = ""
    while not result:
        for descriptor, _ in poll.poll():
            if descriptor == wakeup:
                _forward(pid, os.read(wakeup, 256))
                continue
            data = os.read(control, 4096)
            if not data:
                _kill_descendants()
                _tell(f"signaled {int(signal.SIGKILL)}")
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                _signal(pid, int(line.split()[1]))
        result = _reap(pid)
    _kill_descendants()
    _tell(result)


def _forward(pid: int, numbers: bytes) -> None:
    for number in numbers:
        if number != signal.SIGCHLD:
            _signal(pid, number)


def _signal(pid: int, number: int) -> None:
    try:  # noqa: SIM105 - contextlib would cost start-up time
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # It ended already; the next reap says how.


def _reap(main: int) -> str:
    """Collect ended children; how the program ended, or nothing while it runs."""
    result = ""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if pid == 0:
            return result
        if pid == main and os.WIFSIGNALED(status):
            result = f"signaled {os.WTERMSIG(status)}"
        elif pid == main:
            result = f"exited {os.WEXITSTATUS(status)}"


def _kill_descendants() -> None:
    """Kill until no descendant is left. New forks are found by the next round."""
    while True:
        found = _descendants()
        for pid in found:
            _signal(pid, signal.SIGKILL)
        _reap(0)
        if not found:
            return
        select.poll().poll(2)


def _descendants() -> list[int]:
    """Process ids below this one; all are its own, since orphans come to the sub-reaper."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        # A zombie cannot be killed; its parent or the next reap removes it.
        if fields[0] != b"Z":
            children.setdefault(int(fields[1]), []).append(int(name))
    found = []
    waiting = [os.getpid()]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


if __name__ == "__main__":
    sys.exit(main())
