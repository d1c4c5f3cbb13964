"""An address shares one limit among all processes of a machine, over files and sockets."""

import asyncio
import logging
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from client.place import Place
from clocks import SleepingClock
from disks import filled, small_disk
from onebook.cli.fetching import FetchRequest, fetch_here, fetch_there
from onebook.client import Unavailable
from onebook.clock import SYSTEM_CLOCK
from onebook.errors import ExchangeFailed
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AddressBans
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.serving import serving
from onebook.transactions.adapter import Environment
from onebook.transactions.address import AddressWindow
from onebook.transactions.bybit import BYBIT
from onebook.transactions.bybit.api import API
from onebook.transactions.bybit.endpoints import ADDRESS, ENTRY
from onebook.transactions.client import Call, ExchangeClient
from onebook.transactions.limits import Retries, Waits
from onebook.transactions.pools import CostLimit, PoolScope
from onebook.transactions.registry import EXCHANGES

LIMIT = CostLimit(40, 1.0, scope=PoolScope.ADDRESS)


def window(path: Path, clock: SleepingClock) -> AddressWindow:
    return AddressWindow(LIMIT, clock, path)


async def times_of(count: int, clock: SleepingClock, *windows: AddressWindow) -> list[float]:
    """Times of the requests that several windows, acting as processes, send in turn."""
    times = []
    for number in range(count):
        async with windows[number % len(windows)].request(1, Waits(clock)):
            times.append(clock.now_s)
    return times


def most_in(times: list[float], period_s: float) -> int:
    times = sorted(times)
    return max(sum(first <= at < first + period_s for at in times) for first in times)


async def test_windows_of_one_file_have_one_limit(tmp_path: Path) -> None:
    clock = SleepingClock(100.0)
    both = [window(tmp_path / "a", clock), window(tmp_path / "a", clock)]
    times = await times_of(200, clock, *both)
    assert most_in(times, 1.0) == int(LIMIT.units)
    # A new process begins where the others are.
    later = await times_of(40, clock, window(tmp_path / "a", clock))
    assert most_in(times + later, 1.0) == int(LIMIT.units)
    assert later[-1] < 105.3, "and it waits no longer than it has to"


async def test_a_slow_request_counts_until_a_period_after_its_answer(tmp_path: Path) -> None:
    """A request arrives at the exchange some time before its answer."""
    clock = SleepingClock(100.0)
    slow, others = window(tmp_path / "a", clock), window(tmp_path / "a", clock)
    async with AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(slow.request(1, Waits(clock)))
        assert len(set(await times_of(60, clock, others))) == 2, "the rest of the window is in use"
        clock.move_to(150.0)
    answered = await times_of(60, clock, others)
    assert answered[:30] == [150.0] * 30
    assert min(answered[30:]) > 151.0


async def test_the_places_of_a_killed_process_are_free_again(tmp_path: Path) -> None:
    clock = SleepingClock(100.0)
    killed, other = window(tmp_path / "a", clock), window(tmp_path / "a", clock)
    held = [killed.request(1, Waits(clock)) for _ in range(40)]
    for one in held:
        await one.__aenter__()
    (at_s,) = await times_of(1, clock, other)
    assert 160.0 < at_s < 162.0


async def test_a_request_may_cost_several_units(tmp_path: Path) -> None:
    clock = SleepingClock(100.0)
    ours, theirs = window(tmp_path / "a", clock), window(tmp_path / "a", clock)
    async with ours.request(29.5, Waits(clock)):
        assert clock.now_s == 100.0
    assert len(set(await times_of(11, clock, theirs))) == 2
    async with theirs.request(1_000, Waits(clock)):
        assert clock.now_s > 102.0, "all of the window at most"


async def test_a_reboot_voids_what_was_before_it(tmp_path: Path) -> None:
    before, after = SleepingClock(90_000.0), SleepingClock(3.0)
    old = window(tmp_path / "a", before)
    await times_of(60, before, old)
    new = window(tmp_path / "a", after)
    assert await times_of(40, after, new) == [3.0] * 40


async def test_a_refusal_is_known_to_all_and_ends(tmp_path: Path) -> None:
    clock = SleepingClock(100.0)
    ours, theirs = window(tmp_path / "a", clock), window(tmp_path / "a", clock)
    assert theirs.refused_s() == 0
    ours.refuse(600)
    await times_of(3, clock, theirs)
    assert theirs.refused_s() == 600
    clock.move_to(700.0)
    assert (theirs.refused_s(), ours.refused_s()) == (0, 0)


async def test_a_file_that_cannot_be_opened_is_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SleepingClock(100.0)
    alone = window(tmp_path, clock)
    with caplog.at_level(logging.WARNING, "onebook"):
        assert await times_of(100, clock, alone) == [100.0] * 100
        alone.refuse(600)
    assert alone.refused_s() == 0
    (said,) = caplog.messages
    assert said.startswith("Cannot share a request limit with other processes")
    assert said.endswith("Is a directory.")


async def test_a_full_disk_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A memory-mapped file would kill the process here."""
    clock = SleepingClock(100.0)
    with caplog.at_level(logging.WARNING, "onebook"), small_disk(tmp_path / "disk") as disk:
        (disk / "a").touch()
        alone = window(disk / "a", clock)
        with filled(disk):
            assert await times_of(100, clock, alone) == [100.0] * 100
            alone.refuse(600)
            assert alone.refused_s() == 0
    (said,) = caplog.messages
    assert said.endswith("No space left on device.")


async def test_a_closed_window_shares_nothing(tmp_path: Path) -> None:
    clock = SleepingClock(100.0)
    never, closed = window(tmp_path / "never", clock), window(tmp_path / "a", clock)
    await times_of(1, clock, closed)
    for one in (never, closed):
        one.close()
        await times_of(100, clock, one)
        one.close()
    assert clock.now_s == 100.0
    assert [each.name for each in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


PROCESS = """
import asyncio, sys, time
from pathlib import Path
from onebook.clock import SYSTEM_CLOCK
from onebook.simulator.accounts.admission import AddressBans
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit
from onebook.simulator.accounts.serving import serving
from onebook.transactions.adapter import Environment
from onebook.transactions.address import AddressWindow
from onebook.transactions.bybit import BYBIT
from onebook.transactions.bybit.api import API
from onebook.transactions.bybit.endpoints import ADDRESS, ENTRY
from onebook.transactions.client import Call, ExchangeClient
from onebook.transactions.limits import Retries, Waits
from onebook.transactions.pools import CostLimit, PoolScope
from onebook.transactions.registry import EXCHANGES

async def main():
    window = AddressWindow(CostLimit(40, 1.0), SYSTEM_CLOCK, Path(sys.argv[1]))
    async def one():
        async with window.request(1, Waits(SYSTEM_CLOCK)):
            print(time.monotonic())
    await asyncio.gather(*(one() for _ in range(45)))

asyncio.run(main())
"""


def test_real_processes_at_once_have_one_limit(tmp_path: Path) -> None:
    words = [sys.executable, "-c", PROCESS, str(tmp_path / "a")]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    times = [float(line) for each in running for line in each.communicate()[0].splitlines()]
    assert [each.returncode for each in running] == [0, 0]
    assert len(times) == 90
    assert most_in(times, 1.0) <= int(LIMIT.units)
    assert max(times) - min(times) > 2.0


def everything(folder: Path) -> FetchRequest:
    now_ms = time.time_ns() // 1_000_000
    return FetchRequest(
        exchange="bybit", types=[], testnet=False, start_ms=now_ms - 30 * DAY_MS,
        end_ms=now_ms - 60_000, verify=False, output=folder / "a.jsonl", form="jsonl",
    )  # fmt: skip


async def test_clients_of_several_processes_are_never_banned(tmp_path: Path) -> None:
    """Each process had the whole limit, so that together they exceeded it."""
    call = Call("/v5/market/instruments-info", "category=spot&limit=1000")
    limit = CostLimit(30, 2.0, scope=PoolScope.ADDRESS)
    api = replace(API, limits={call.path: CostLimit(1_000, 1.0), ADDRESS: limit})
    exchange = SimulatedBybit(Account(History(0, DAY_MS, executions=1)), [])
    exchange.bans = AddressBans(30, 2.0, ban_s=600)
    async with serving(exchange) as url, AsyncExitStack() as stack:

        async def process() -> None:
            client = ExchangeClient(ENTRY, api, SYSTEM_CLOCK, shared_folder=tmp_path)
            stack.push_async_callback(client.close)
            site, retries = client.site(Environment.MAINNET, {"": url}), Retries(Random(1))
            asks = (client.ask(site, call, credentials=None, retries=retries) for _ in range(20))
            await asyncio.gather(*asks)

        await asyncio.gather(process(), process())  # at once, and then one after the other
        await process()
        await process()
    assert exchange.requests == {call.path: 80}


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> CostLimit:
    """The limit of the node and of the command, which a slow machine reaches too."""
    limit = CostLimit(60, 2.0, scope=PoolScope.ADDRESS)
    api = replace(BYBIT.api, limits={**BYBIT.api.limits, ADDRESS: limit})
    monkeypatch.setitem(EXCHANGES, "bybit", replace(BYBIT, api=api))
    return limit


async def test_a_full_export_beside_one_of_the_service_is_not_banned(
    narrow: CostLimit, rig: Place, tmp_path: Path
) -> None:
    rig.bybit.bans = AddressBans(int(narrow.units), narrow.period_s, ban_s=600)
    here = everything(tmp_path)
    there = replace(here, output=tmp_path / "b.jsonl")
    work = fetch_here(here, None), fetch_there(there, rig.url, rig.key)
    assert all(outcome.complete for outcome in await asyncio.gather(*work))
    assert here.output.read_bytes() == there.output.read_bytes()
    assert sum(rig.bybit.requests.values()) > 4 * narrow.units


async def test_a_process_that_begins_during_a_ban_requests_nothing(
    rig: Place, tmp_path: Path
) -> None:
    one = everything(tmp_path)
    rig.bybit.bans.ban("127.0.0.1", time.time_ns() // 1_000_000)
    with pytest.raises(ExchangeFailed, match="refuses this address after too many requests"):
        await fetch_here(one, None)
    asked = sum(rig.bybit.requests.values())
    for way in (fetch_here(one, None), fetch_there(one, rig.url, rig.key)):
        with pytest.raises((ExchangeFailed, Unavailable), match="has refused this address"):
            await way
    assert sum(rig.bybit.requests.values()) == asked
