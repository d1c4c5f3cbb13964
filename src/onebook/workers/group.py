"""Starts the processes of `node.workers`, passes signals on to them and stops them in order.

Start order: nats-server, the feeds process, one gateway, which creates the database if there is
none, the other gateways. Stop order is the reverse: gateways drain while updates still arrive.
"""

import asyncio
import logging
import os
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

from msgspec import json

from onebook import http, logs, preflight
from onebook.config import Settings
from onebook.config.settings import variable_of
from onebook.workers.nats_server import EmbeddedNats, binary
from onebook.workers.process import KeptProcess, Program, StartFailed

log = logging.getLogger("onebook.workers")

STARTED: Final = "started"  # what a process prints when it listens
STOP_MARGIN_S: Final = 15.0  # beside the drain and the last flush
NATS_STOP_S: Final = 5.0
RESTART_DELAY_MAX_S: Final = 30.0

Variables = Mapping[str, Any]


class WorkerGroup:
    """All processes of one `onebook serve --workers`.

    Args:
        file: The settings file, as on the command line.
        flags: What the command line sets, by table and name.
        port: The port that gateways share.
        nats: The server that is started for them; None where `nats.servers` names others.
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
        self._feeds: list[KeptProcess] = []
        self._gateways: list[KeptProcess] = []

    async def start(self) -> None:
        """Start every process, and wait until each is ready.

        Raises:
            StartFailed: One of them could not start.
        """
        if self._nats is not None:
            await self._started(self._nats.as_program(), self._servers)
        settings = self._settings
        feeds = self._program("feeds", _feeds_variables(settings))
        await self._started(feeds, self._feeds)
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
    """Run `node.workers` gateways and what serves them until SIGTERM or SIGINT.

    Args:
        settings: The operator's.
        file: The settings file, which each process reads for itself.
        flags: What the command line sets, by table and name.

    Returns:
        The exit code: 0, that of the process that could not start, or 1 where usage may be lost.

    Raises:
        ConfigError: The settings do not allow it, or there is no nats-server.
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
            group.send(signal.SIGTERM)  # a second signal: do not wait for clients
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
    """Whether the operator named servers of NATS."""
    return "servers" in settings.nats.model_fields_set


def _gateway_variables(settings: Settings, number: int, port: int) -> Variables:
    variables: dict[str, Any] = {
        "node.role": "gateway",
        "server.port": port,
        "server.port_shared": True,
    }
    if settings.server.metrics_port is not None:
        first = settings.server.metrics_port
        variables["server.metrics_port"] = first and first + number
    return variables


def _feeds_variables(settings: Settings) -> Variables:
    """A feeds node has health and metrics alone: they are at the first port of metrics."""
    return {
        "node.role": "feeds",
        "server.host": settings.server.metrics_host,
        "server.port": settings.server.metrics_port or 0,
        "server.metrics_port": 0,
    }


def _environment(variables: Variables) -> dict[str, str]:
    """This process's environment with settings as variables, which override the file."""
    ours = {variable_of(name): _text(value) for name, value in variables.items()}
    kept = {name: value for name, value in os.environ.items() if name.upper() not in ours}
    return {**kept, **ours}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.encode(value).decode() if isinstance(value, list | tuple) else str(value)


def _host() -> str:
    return os.uname().nodename


async def _printed_started(process: Process) -> None:
    """Return when a node has printed that it listens."""
    assert process.stdout is not None
    while (line := await process.stdout.readline()).strip() != STARTED.encode():
        if not line:
            await process.wait()
            raise EOFError
