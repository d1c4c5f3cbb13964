"""Several types read with Kraken's own filters: the records of the walk of the entire ledger."""

from functools import cache
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from onebook.config import TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import KrakenHistory
from onebook.transactions.adapter import EventRow, Page
from onebook.transactions.credentials import Credentials
from onebook.transactions.kraken import KRAKEN
from onebook.transactions.kraken.filtered import FilteredLedger
from transactions.accounting import EXACT, asked
from transactions.bybit_support import NOW_MS, AccountWorld, loop_s, run
from transactions.kraken.test_random import HOSTS, TYPES, account_of
from transactions.kraken_support import FUTURES_KEY, KEY, KrakenWorld
from transactions.oracle.kraken.exchange import RandomKrakenExchange, listening
from transactions.test_random_accounts import passing

FILTERED = ("deposits", "withdrawals", "trades")
SETS = [types for size in (2, 3) for types in combinations(FILTERED, size)]
Records = list[dict[str, Any]]


async def records_of(seed: int, tmp: Path, *types: str, limit: int | None = None) -> Records:
    """All records of a random account: a stream, or pages of a limit."""
    account = account_of(seed)
    exchange = RandomKrakenExchange(account, seed, now_ms=lambda: NOW_MS)
    async with listening(exchange) as url:
        credentials = Credentials(
            KEY.api_key, KEY.secret,
            futures_key=FUTURES_KEY.api_key, futures_secret=FUTURES_KEY.secret,
        )  # fmt: skip
        settings = TransactionSettings(
            overrides={"kraken": HOSTS["one"](url)},
            master_key_file=tmp / "master.key",
            deadline_s=3_600.0,
            stream_deadline_s=86_400.0,
        )
        world = AccountWorld(
            KRAKEN, credentials, None, settings=settings, clock=passing(), decode=EXACT
        )
        found = await asked(
            world, *types, start_time=account.from_ms, end_time=account.to_ms,
            streamed=limit is None, limit=limit, include_raw=True,
        )  # fmt: skip
    assert exchange.violations == []
    return found.records


@pytest.mark.parametrize("seed", [0, 1, 3, 4])  # without events that are booked late
async def test_random_accounts_have_the_same_records_and_ids(seed: int, tmp_path: Path) -> None:
    whole = await records_of(seed, tmp_path, *TYPES)
    for types in SETS:
        expected = [each for each in whole if each["type"] in types]
        assert expected
        limit = Random(f"{seed} {types}").choice([None, 13, 60])
        assert await records_of(seed, tmp_path, *types, limit=limit) == expected


@pytest.mark.parametrize("seed", range(40))
async def test_merged_pages_return_every_row_once_in_order_from_any_cursor(seed: int) -> None:
    """Rows with equal times over page boundaries, unreadable pages, and a reader for each page."""
    random = Random(seed)
    size, spread = random.choice([1, 2, 3, 7]), random.choice([1, 5, 40, 1_000])
    rows = {
        kind: sorted((random.randrange(spread) for _ in range(random.choice([0, 1, 9, 40]))),
                     reverse=True)
        for kind in "dwt"
    }  # fmt: skip
    bad = {(kind, at) for kind in rows for at in range(0, 40, size) if random.random() < 0.1}

    async def fetch(kind: str, offset: str) -> Page:
        first = int(offset)
        times = rows[kind][first : first + size]
        following = str(first + size) if len(times) == size else ""
        if (kind, first) in bad:
            return Page([], len(times), following, len(times))
        parts = [EventRow(kind, f"{kind}{first + n}", at, None) for n, at in enumerate(times)]
        return Page([], len(times), following, parts=parts)

    kept = FilteredLedger(list("dwt"), fetch, rows_min=size)
    seen: list[EventRow] = []
    cursor, unreadable = "", 0
    for _ in range(500):
        anew = FilteredLedger(list("dwt"), fetch, rows_min=size)
        page = await (anew if random.random() < 0.5 else kept).page(cursor)
        seen += page.parts
        unreadable += page.unreadable
        cursor = page.cursor
        if not cursor:
            break
        assert page.rows >= size
    assert not cursor
    times = [part.at_ms for part in seen]
    assert times == sorted(times, reverse=True)
    expected = {
        f"{kind}{n}" for kind, each in rows.items() for n in range(len(each))
        if (kind, n // size * size) not in bad
    }  # fmt: skip
    assert sorted(part.row_id for part in seen) == sorted(expected)
    assert unreadable == sum(map(len, rows.values())) - len(expected)


@cache
def spent(*types: str) -> tuple[int, float]:
    """Records and virtual seconds of an answer for an account with many trades."""
    history = KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=2_000)

    async def story() -> tuple[int, float]:
        async with KrakenWorld(history=history) as world:
            began_s = loop_s()
            *records, _ = await world.everything(*types)
            return len(records), loop_s() - began_s

    return run(story())


def test_deposits_and_withdrawals_together_do_not_read_the_whole_ledger() -> None:
    both, both_s = spent("deposits", "withdrawals")
    alone = [spent("deposits")[0], spent("withdrawals")[0]]
    assert both == sum(alone) > 0
    assert both_s < 10.0 < spent("deposits", "withdrawals", "fees")[1]
