"""A supervised child process: restarted with exponential backoff when it ends."""

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from onebook.backoff import Backoff

log = logging.getLogger("onebook.workers")

START_S: Final = 120.0  # start timeout: then the process is killed
DELAY_S: Final = 0.1  # before the first restart; each further one waits twice as long
STEADY_S: Final = 60.0  # after running this long, backoff starts again at `DELAY_S`
PIPE_S: Final = 1.0  # for the end of the output of a process that has ended
KILLED: Final = 1  # the exit code of a process that had to be killed: its last usage may be lost

PR_SET_PDEATHSIG: Final = 1
_libc: Final = ctypes.CDLL(None) if sys.platform == "linux" else None


class StartFailed(Exception):
    """A process ended, or was not ready within `START_S`, at its first start."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name} could not start.")
        self.code = code


class Program(NamedTuple):
    """What a process runs.

    `command` gets the number of restarts; `working` returns once the process is ready.
    """

    name: str
    command: Callable[[int], Sequence[str]]
    environment: Mapping[str, str]
    working: Callable[[Process], Awaitable[None]]
    last_words: Callable[[], str] = lambda: ""


class KeptProcess:
    """One process, from `start` to `stop`.

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
        """The process number; None while it does not run."""
        return None if self._process is None else self._process.pid

    async def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            StartFailed: It ended before, or took longer than `START_S`.
        """
        if not await self._begin():
            code = await self._ended()
            raise StartFailed(self._program.name, code if code > 0 else KILLED)
        self._keeping = asyncio.create_task(self._keep(), name=f"keep {self._program.name}")

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process runs."""
        process = self._process
        if process is not None and process.returncode is None:
            # `Process.send_signal` would reap a process that has ended, and its exit code be lost.
            with suppress(ProcessLookupError):
                os.kill(process.pid, number)

    async def stop(self, timeout_s: float) -> int:
        """Send SIGTERM and wait, SIGKILL after `timeout_s`; returns the exit code."""
        self._stopping.set()
        self.send(signal.SIGTERM)
        ending = self._keeping or asyncio.create_task(self._ended())
        _, running = await asyncio.wait((ending,), timeout=timeout_s)
        if running:
            log.error("%s did not stop in %g s and is killed.", self._program.name, timeout_s)
            self.send(signal.SIGKILL)
        code = await ending
        if code == -signal.SIGTERM:  # it was starting, and has no usage
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
            start_new_session=True,  # Ctrl-C reaches only this process
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
        """Wait for the end of the process; 0 where none runs."""
        process = self._process
        if process is None:
            return 0
        code = await process.wait()
        self._process = None
        assert process.stdout is not None
        with suppress(TimeoutError):  # a child of its own may hold the pipe open
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
                return code if self._works else 0  # never ready: no usage to lose
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
            if self._stopping.is_set():  # `stop` may have been called before there was a process
                self.send(signal.SIGTERM)

    def _log_end(self, pid: int | None, code: int, delay_s: float) -> None:
        words = self._program.last_words()
        log.error(
            "%s (process %s) ended with %s and is started again in %g s.%s",
            self._program.name,
            pid or "-",
            f"signal {-code}" if code < 0 else f"exit code {code}",
            delay_s,
            f" Its last line: {words}" if words else "",
        )


def _end_with_parent() -> None:
    """Have the kernel send SIGTERM when the parent ends, whatever ended it. Linux only."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
