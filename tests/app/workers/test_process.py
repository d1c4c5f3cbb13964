"""A process is restarted when it ends, with growing delays, and stopped in bounded time."""

import asyncio
import signal
import sys

import pytest

from onebook.app import workers
from onebook.app.workers import KeptProcess, Program, StartFailed
from steady import PATIENCE_S

WORKS = "print('works', flush=True); import time; time.sleep(600)"


async def printed(running):
    if not await running.stdout.readline():
        raise EOFError


def program(code, seen=None):
    def command(restarts):
        if seen is not None:
            seen.append(restarts)
        return (sys.executable, "-c", code)

    return Program("the process", command, {}, printed)


async def restarted(kept, times):
    async with asyncio.timeout(PATIENCE_S):
        while kept.restarts < times:
            await asyncio.sleep(0.01)


async def test_it_is_started_again_and_reported_how_often():
    seen = []
    kept = KeptProcess(program(WORKS, seen), delay_max_s=0.1)
    await kept.start()
    first = kept.pid
    kept.send(signal.SIGKILL)
    async with asyncio.timeout(PATIENCE_S):
        while kept.pid in (None, first):
            await asyncio.sleep(0.01)
    await kept.stop(PATIENCE_S)
    assert seen == [0, 1]


async def test_each_further_restart_waits_longer_up_to_the_longest(caplog):
    kept = KeptProcess(program("print('works', flush=True)"), delay_max_s=0.3)
    await kept.start()
    await restarted(kept, 4)
    assert await kept.stop(PATIENCE_S) == 0
    waits = [record.args[3] for record in caplog.records if "is restarted in" in record.msg]
    assert waits[:4] == [0.1, 0.2, 0.3, 0.3]


async def test_a_process_that_cannot_start_gives_its_exit_code():
    kept = KeptProcess(program("raise SystemExit(2)"), delay_max_s=0.1)
    with pytest.raises(StartFailed) as failed:
        await kept.start()
    assert failed.value.code == 2
    assert kept.restarts == 0
    assert await kept.stop(PATIENCE_S) == 0


async def test_a_process_that_never_works_is_killed(monkeypatch):
    monkeypatch.setattr(workers, "START_S", 0.2)
    kept = KeptProcess(program("import time; time.sleep(600)"), delay_max_s=0.1)
    with pytest.raises(StartFailed) as failed:
        await kept.start()
    assert failed.value.code == workers.KILLED


@pytest.mark.parametrize("code", [0, 1])
async def test_a_stop_gives_the_exit_code(code):
    ending = f"import signal, sys; signal.signal(15, lambda *_: sys.exit({code})); {WORKS}"
    kept = KeptProcess(program(ending), delay_max_s=0.1)
    await kept.start()
    assert await kept.stop(PATIENCE_S) == code
    assert kept.pid is None


async def test_a_process_that_does_not_stop_is_killed():
    kept = KeptProcess(
        program(f"import signal; signal.signal(15, signal.SIG_IGN); {WORKS}"), delay_max_s=0.1
    )
    await kept.start()
    assert await kept.stop(0.2) == workers.KILLED


async def test_a_stop_while_a_restart_waits_ends_at_once():
    kept = KeptProcess(program("print('works', flush=True)"), delay_max_s=600.0)
    await kept.start()
    await restarted(kept, 2)
    async with asyncio.timeout(PATIENCE_S):
        assert await kept.stop(PATIENCE_S) == 0
