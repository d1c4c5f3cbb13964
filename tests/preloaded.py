"""Processes of `python -m onebook` and of xdist without another import: a plugin of pytest.

Importing takes most of the processor time of a command, and hundreds of tests start one. Here each
worker of the suite starts one process that imports all commands and then forks, for each
`subprocess` (also asyncio's) of exactly `sys.executable -m onebook ...`, also with `-W error`, a
process that runs it: with the arguments, environment, folder, limits and files of that call, and as
a child of the worker, so that signals, exit codes and processor time are as ever. It has its own
memory; only modules are there already. An import that warns fails the start of all commands.

The workers too are forked, from one process that has compiled and imported the test modules. Each
worker collects the tests as ever; a module that could not be imported is imported again, so that
the worker reports the error.

Whatever else a test starts, it starts as ever: other programs, Python with other options (`-c`),
what has a `preexec_fn`, or variables that Python reads when it starts. So do all tests where
the system is not Linux, under `--cov`, and with `-p no:preloaded`.
"""

import ctypes
import gc
import io
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from typing import Any, Final

import pytest

MODULES = {"onebook"}
# What Python, the C library and OpenSSL read when a process starts.
EARLY: Final = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENSSL_", "GLIBC_")
LIMITS: Final = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
STRICT: Final = ("-W", "error")
WORKER: Final = [sys.executable, "-u", "-c"]  # then what execnet lets it read and execute
HEADER_BYTES: Final = 8
PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2)


def pytest_configure(config: Any) -> None:
    """Fork commands, unless coverage is measured, which needs the start of a process."""
    if sys.platform == "linux" and not config.getoption("cov_source", None):
        subprocess.Popen = Popen  # type: ignore[misc]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: Any) -> None:
    """Fork workers that run tests of these paths."""
    global _workers
    _workers = Parent(config.args)


def pytest_unconfigure() -> None:
    """End the process that forks workers."""
    if _workers is not None:
        _workers.end()


@pytest.fixture(scope="session", autouse=True)
def _ends_with_the_worker() -> Iterator[None]:
    """Add the cost of the forking process to the shared costs of this worker."""
    yield
    _commands.end()


def early(variables: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that are read before a program runs."""
    return {name: text for name, text in variables.items() if name.startswith(EARLY)}


class Parent:
    """Our side of a process with imported modules, which is started on demand.

    It imports the test modules of these paths; without paths, the commands.
    """

    def __init__(self, paths: Sequence[str] = ()) -> None:
        self._paths = paths
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._libc = ctypes.CDLL(None, use_errno=True)

    def fork(self, request: dict[str, Any], files: list[int]) -> int:
        """Start a process; return its id once it is a child of this one."""
        with self._lock:
            if self._process is None:
                self._start()
            body = json.dumps(request).encode()
            # An orphan becomes the child of the next ancestor that asked for orphans.
            self._adopt(1)
            try:
                header = len(body).to_bytes(HEADER_BYTES)
                socket.send_fds(self._socket, [header], files)
                self._socket.sendall(body)
                return int.from_bytes(_read(self._socket, HEADER_BYTES))
            finally:
                self._adopt(0)

    def end(self) -> None:
        """End the process, and count its cost."""
        if self._process is not None:
            self._socket.close()
            self._process.wait()
            self._process = None

    def _start(self) -> None:
        self._socket, other = socket.socketpair()
        with other:
            options = () if self._paths else STRICT
            self._process = Plain(
                [sys.executable, *options, __file__, str(other.fileno()), *self._paths],
                stdin=subprocess.DEVNULL,
                pass_fds=[other.fileno()],
                cwd=None if self._paths else "/",
            )
        _read(self._socket, HEADER_BYTES)

    def _adopt(self, value: int) -> None:
        if self._libc.prctl(PR_SET_CHILD_SUBREAPER, value, 0, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")


Plain = subprocess.Popen
_commands = Parent()
_workers: Parent | None = None


class Popen(Plain):  # type: ignore[type-arg]
    """`subprocess.Popen` that forks Onebook's commands."""

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any,
                       pass_fds: Any, cwd: Any, env: Any, startupinfo: Any, creationflags: Any,
                       shell: Any, *rest: Any) -> None:  # fmt: skip
        files, (p2c, c2p, error) = rest[:6], (rest[0], rest[3], rest[5])
        restore_signals, gid, gids, uid, umask, start_new_session, process_group = rest[6:]
        variables = os.environ if env is None else env
        words = [] if isinstance(args, str | bytes | os.PathLike) else list(args)
        options = words[1:3] if tuple(words[1:3]) == STRICT else []
        starts, place = [sys.executable, *options, "-m"], len(options) + 2  # where the module is
        parent = None
        if not all(isinstance(each, str) for each in words):
            pass
        elif words[:3] == WORKER and len(words) == 4:
            parent, place = _workers, 3
        elif words[:place] == starts and words[place] in MODULES:
            parent = _commands
        if (
            parent is None
            or executable not in (None, sys.executable)
            or preexec_fn or pass_fds or shell or not close_fds or not restore_signals
            or (gid, gids, uid, umask) != (None, None, None, -1)
            or not all(isinstance(each, str) for pair in variables.items() for each in pair)
            or early(variables) != early(os.environ)
            or not os.path.isdir(cwd or ".")
        ):  # fmt: skip
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
                creationflags, shell, *rest,
            )  # fmt: skip
            return
        request = {
            "words": words,
            "place": place,
            "strict": bool(options),
            "folder": os.path.abspath(cwd or "."),
            "variables": dict(variables),
            "limits": [resource.getrlimit(each) for each in LIMITS],
            "session": bool(start_new_session),
            "group": process_group,
            "parent": os.getpid(),
        }
        stdio = [own if given == -1 else given for own, given in enumerate((p2c, c2p, error))]
        self.pid = parent.fork(request, stdio)
        self._child_created = True
        self._close_pipe_fds(*files)  # type: ignore[attr-defined]


def _read(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = source.recv(count - len(found))
        if not part:
            raise EOFError("the process that forks commands has ended")
        found += part
    return found


def preload() -> None:
    """Import the modules that commands import; no thread is left."""
    from onebook.cli import commands

    for name in commands.COMMANDS:
        commands.loaded(name)
    import onebook.app.process  # noqa: F401

    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost by the fork"


def preload_tests(paths: Sequence[str]) -> None:
    """Import the test modules of these paths, and what Hypothesis looks for in their imports.

    PyArrow's jemalloc has a thread, which may be lost: it only returns memory in the background.
    """
    with open(os.devnull, "w") as nothing, redirect_stdout(nothing):
        pytest.main(["--collect-only", "-n0", "-s", "-pno:cacheprovider", *paths], [Imports()])

    from hypothesis import given, settings, strategies  # after pytest, which rewrites its asserts

    settings(max_examples=1, database=None)(given(strategies.none())(lambda value: None))()
    names = {_comm(each) for each in os.listdir("/proc/self/task")}
    assert names <= {_comm(str(os.getpid())), "jemalloc_bg_thd"}, names


class Imports:
    """A plugin of pytest that imports modules, and makes no test of what they define."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self) -> list[pytest.Item]:
        """Nothing is collected, in place of other plugins' items."""
        return []


def _comm(thread: str) -> str:
    with open(f"/proc/self/task/{thread}/comm") as file:
        return file.read().strip()


def serve(worker: socket.socket) -> dict[str, Any] | None:
    """Fork on request; return its program in each new process, and None here at the end."""
    worker.sendall(bytes(HEADER_BYTES))
    while True:
        header, files, _, _ = socket.recv_fds(worker, HEADER_BYTES, 3)
        if not header:
            return None
        header += _read(worker, HEADER_BYTES - len(header))
        request: dict[str, Any] = json.loads(_read(worker, int.from_bytes(header)))
        source, sink = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid == 0:
                worker.detach()
                become(request, files)
                return request
            os.write(sink, pid.to_bytes(HEADER_BYTES))
            os._exit(0)  # so that the worker becomes the parent
        os.waitpid(between, 0)
        worker.sendall(os.read(source, HEADER_BYTES))
        for each in (*files, source, sink):
            os.close(each)


def become(request: dict[str, Any], files: list[int]) -> None:
    """Bring this process into the state that `subprocess` and Python's start create."""
    while os.getppid() != request["parent"]:
        time.sleep(0.0005)
    high = [os.dup2(each, 10 + place) for place, each in enumerate(files)]
    for place, each in enumerate(high):
        os.dup2(each, place)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["variables"])
    time.tzset()
    if request["session"]:
        os.setsid()
    if request["group"] >= 0:
        os.setpgid(0, request["group"])
    for which, limit in zip(LIMITS, request["limits"], strict=True):
        with suppress(ValueError):  # of a user who may not raise what the worker has lowered
            resource.setrlimit(which, limit)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = sys.__stdin__ = _text(0, "r", sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _text(1, "w", sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2, "w", sys.stderr)  # type: ignore[misc]
    if not request["strict"] and sys.warnoptions:
        sys.warnoptions.clear()
        # `_filters_mutated` is what `warnings.simplefilter` calls: messages are looked up anew.
        warnings.filters.remove(("error", None, Warning, None, 0))  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]
    words, place = request["words"], request["place"]
    sys.path[0] = request["folder"]
    sys.argv = [words[place - 1], *words[place + 1 :]]
    sys.orig_argv = words


def _text(number: int, mode: str, old: Any) -> Any:
    """A standard file, buffered as Python does."""
    raw: Any = io.FileIO(number, mode, closefd=False)
    is_direct = old.write_through  # by PYTHONUNBUFFERED
    is_lines = not is_direct and (number == 2 or raw.isatty())
    if mode == "r":
        raw = io.BufferedReader(raw)
    elif not is_direct:
        raw = io.BufferedWriter(raw)
    return io.TextIOWrapper(
        raw, old.encoding, old.errors, line_buffering=is_lines, write_through=is_direct
    )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that of a terminal goes to the worker too
    gc.disable()
    preload_tests(sys.argv[2:]) if sys.argv[2:] else preload()
    gc.freeze()
    gc.enable()
    with socket.socket(fileno=int(sys.argv[1])) as _socket:
        _request = serve(_socket)
    if _request is not None:
        _main = sys.modules["__main__"] = types.ModuleType("__main__")
        _program = _request["words"][_request["place"]]
        if sys.argv[0] == "-c":
            exec(_program, vars(_main))
        else:
            runpy._run_module_as_main(_program)  # type: ignore[attr-defined]
