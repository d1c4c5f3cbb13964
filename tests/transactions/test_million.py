"""Walks of long ledgers need no more memory than short ones, with their joins and their proof.

The suite walks a short ledger in small pages, with small bounds of what a walk may hold, and counts
allocated blocks: one object kept for each page or record is found. `ONEBOOK_BIG=1` reads a million
rows of each exchange with the bounds of the service, and measures resident memory.
"""

import asyncio
import gc
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from msgspec.structs import replace

from onebook.model import DAY_MS
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter, ExchangeDefinition
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.okx import OKX
from onebook.transactions.reconciliation import Verification
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import (
    CALLER,
    CLOCK,
    MASTER_KEY,
    NOW_MS,
    SETTINGS,
    MemoryStore,
    VirtualLoop,
    loop_now_ms,
    run,
)
from transactions.endless import Endless, EndlessKraken, EndlessOkx
from transactions.okx_support import KEY as OKX_KEY

BIG = os.environ.get("ONEBOOK_BIG") == "1"
MIB = 1 << 20
DEADLINE_S = 1e7  # in virtual time: a million rows take a key of Kraken a day
PAUSE_S = 3_600.0  # in virtual time, after which nothing is read until records are taken
GROWN_BYTES_MAX = 2 * MIB  # from the middle of the walk to its end
SECRET = "a3Jha2VuLXNlY3JldC1vZi10aGUtdGVzdHM="

# The short walk repeats itself in each period: it has whole windows, whole pages of fills and of
# rows, and whole cycles of `EACH` events.
EVENTS_DAILY = 25
PERIOD_DAYS = 4
PERIODS = 17
EARLIER, LATER = slice(6, 10), slice(10, 14)  # the first ones fill what is bounded
GROWN_BLOCKS_MAX = 100  # half as many as the pages between both
PAGE_ROWS = 5
HELD_MAX = 20
BOUNDS = {
    "kraken.adapter": {"PAGE_ROWS": PAGE_ROWS, "LIST_ROWS": PAGE_ROWS, "LIST_PAGES_MAX": 2},
    "merge": {"READY_MAX": PAGE_ROWS, "RECENT_MAX": HELD_MAX},
    "okx.adapter": {"PAGE_ROWS": PAGE_ROWS},
    "run": {"HELD_MAX": HELD_MAX},
    "walk": {"WINDOWS_AHEAD": 1},
    "windows": {"CURSORS_KEPT_MAX": 2},
}
PERIOD_MS = PERIOD_DAYS * DAY_MS
SPAN_MS = 90 * DAY_MS  # longer windows are those of whole lists
ROWS = 1_000_000 if BIG else 2 * EVENTS_DAILY * PERIOD_DAYS * PERIODS
STEP_MS = 13_000 if BIG else DAY_MS // EVENTS_DAILY  # less than three months, which OKX lists


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def allocated() -> int:
    """Blocks of memory that this process uses, without garbage, once nothing is read any more."""
    await asyncio.sleep(PAUSE_S)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.forget_cancelled()
    gc.collect()
    return sys.getallocatedblocks()


async def walked(
    definition: ExchangeDefinition, exchange: Endless, credentials: Credentials
) -> tuple[int, list[int], Verification]:
    """Records of a whole account, memory at the end of each period of them, and the proof."""
    name = definition.entry.name
    vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
    await vault.put(name, "mainnet", credentials, now_ms=NOW_MS)
    adapter = ExchangeAdapter(definition, SETTINGS, clock=CLOCK, transport=exchange)
    service = Transactions(
        [adapter], vault, cursor_secret=b"a secret", clock=CLOCK, settings=SETTINGS
    )
    types = [kind for kind in definition.entry.types if (name, kind) != ("kraken", "futures")]
    ask = TransactionsRequest(exchange=name, transaction_types=types, start_time=0, verify=True)
    count, memory, place = 0, [], exchange.events.at_ms(exchange.events.count) // PERIOD_MS
    try:
        query = service.plan(ask, key_id=CALLER, streamed=True)
        async with service.run(query, key_id=CALLER) as found:
            async for batch in found.records(DEADLINE_S):
                count += len(batch)
                before, place = place, batch[-1].timestamp // PERIOD_MS
                if before != place:
                    memory.append(resident() if BIG else await allocated())
            assert found.errors() == []
            proof = found.verification()
    finally:
        await service.close()
    assert proof is not None
    return count, memory, proof


@pytest.mark.parametrize(
    ("definition", "make", "credentials"),
    [
        (KRAKEN, EndlessKraken, Credentials("krakenkey0000000000", SECRET)),
        (
            OKX,
            EndlessOkx,
            Credentials(OKX_KEY.api_key, OKX_KEY.secret, passphrase=OKX_KEY.passphrase),
        ),
    ],
    ids=["kraken", "okx"],
)
def test_memory_does_not_grow_with_the_ledger(
    definition: ExchangeDefinition,
    make: Callable[..., Endless],
    credentials: Credentials,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not BIG:
        definition = in_small_parts(definition, monkeypatch)
    exchange = make(ROWS, now_ms=loop_now_ms, step_ms=STEP_MS)
    count, memory, proof = run(walked(definition, exchange, credentials))
    print(f"{definition.entry.name}: {count:,} records, {exchange.asked:,} requests, {memory}")
    assert proof.holds is True, [check for check in proof.checks if check.state != "holds"]
    assert count >= ROWS * 3 // 2
    if BIG:
        half = len(memory) // 2
        assert max(memory[half:]) - memory[half - 1] < GROWN_BYTES_MAX
    else:
        assert len(memory) == PERIODS
        between = exchange.asked * (LATER.start - EARLIER.start) // PERIODS
        assert between > 2 * GROWN_BLOCKS_MAX
        assert fmean(memory[LATER]) - fmean(memory[EARLIER]) < GROWN_BLOCKS_MAX


def in_small_parts(
    definition: ExchangeDefinition, monkeypatch: pytest.MonkeyPatch
) -> ExchangeDefinition:
    """The same exchange in small windows and pages, with bounds that a short walk reaches."""
    for module, bounds in BOUNDS.items():
        for name, bound in bounds.items():
            monkeypatch.setattr(f"onebook.transactions.{module}.{name}", bound)
    monkeypatch.setattr(EndlessKraken, "page_rows", PAGE_ROWS)
    sources = {}
    for name, each in definition.sources.items():
        window_ms = min(each.window_ms, PERIOD_MS) if each.window_ms < SPAN_MS else each.window_ms
        sources[name] = replace(each, page_rows=PAGE_ROWS, window_ms=window_ms)
    return replace(definition, sources=sources)
