"""Collection: equal to the exchange's answer, kept after its retention, safe against kills."""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from copy import copy
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import Row, select

from clocks import made_of
from databases import KINDS, database
from onebook.errors import ExchangeFailed, InvalidRequest
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.history import UNIT
from onebook.simulator.accounts.serving import SimulatedTransport
from onebook.store import Store
from onebook.store.leases import Lease, LeaseLost
from onebook.store.rows import RangeRow
from onebook.store.tables import collected_ranges, collected_records, leases, metadata
from onebook.transactions.adapter import Bookkeeping
from onebook.transactions.collected import REREAD_MS, StoredRanges
from onebook.transactions.collector import (
    RENEW_S,
    TICK_S,
    CollectedAccount,
    CollectionBusy,
    CollectionFull,
    Collector,
    Step,
)
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import Query, TransactionsRequest
from steady import PATIENCE_S
from together import upgraded
from transactions.bybit_support import MASTER_KEY, NOW_MS
from transactions.collecting import (
    SETTINGS,
    SOURCES,
    FennecHome,
    Passing,
    collecting,
    coverage_of,
    killed,
)
from transactions.fennec.account import PASSPHRASE, SECRET, FennecAccount, SimulatedFennec
from transactions.fennec.adapter import FENNEC

ALL = ("deposits", "withdrawals", "trades", "ledger")
OTHER_KEY = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
# What does not depend on the database, because others prove that each stores and returns records.
of_any_database = pytest.mark.parametrize(
    "url",
    [pytest.param(kind, marks=() if kind == KINDS[0] else pytest.mark.soak) for kind in KINDS],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module", params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with database(request.param, tmp_path_factory.mktemp("collected")) as url:
        asyncio.run(upgraded(url))
        yield url


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    async with Store(url) as opened:
        async with opened.database.writing() as connection:
            for table in reversed(metadata.sorted_tables):
                await connection.execute(table.delete())
        yield opened


async def test_each_list_is_named_before_its_first_record_and_then_how_far_it_was_read(
    store: Store,
) -> None:
    steps: list[Step] = []
    async with FennecHome(store) as home:
        await home.collector.collect(home.account, lambda step: steps.append(copy(step)))
        begins_ms = min(each.begins_ms for each in home.adapter.sources.values())
    first = {name: next(each for each in steps if each.name == name) for name in names_of(steps)}
    assert len(first) > 3
    assert all(each.reached_ms is None for each in first.values())
    assert (steps[0].records, steps[0].share) == (0, 0.0)
    shares = [each.share for each in steps]
    assert shares == sorted(shares)
    assert shares[-1] > 0.9  # of the time since the exchange began, not since 1970
    reached = [each.reached_ms for each in steps if each.reached_ms is not None]
    assert begins_ms <= min(reached) < NOW_MS


def names_of(steps: list[Step]) -> list[str]:
    return list(dict.fromkeys(each.name for each in steps))


async def test_what_was_collected_answers_like_the_exchange(store: Store) -> None:
    async with FennecHome(store) as home:
        done = await home.collect()
        assert done.complete
        assert done.new == done.records > 500
        asked = len(home.exchange.requests)
        for types in ((), ALL, ("deposits",), ("trades", "ledger")):
            for raw in (False, True):
                more = {"include_raw": raw, "verify": not types}
                stored, told = await home.ask(*types, source="collected", **more)
                assert len(home.exchange.requests) == asked
                end = {"end_time": told["summary"]["date_range"]["end"]}
                fetched, said = await home.ask(*types, source="exchange", **end, **more)
                assert stored == fetched
                asked = len(home.exchange.requests)
                assert all(each["complete"] for each in told["coverage"])
                assert all("collected" in each for each in told["coverage"])
                assert all("collected" not in each for each in said["coverage"])


@of_any_database
async def test_a_collection_is_proven_without_the_exchange(store: Store) -> None:
    async with FennecHome(store) as home:
        await home.collect()
        asked = len(home.exchange.requests)
        _, told = await home.ask(*ALL, "holdings", source="collected", verify=True)
        assert len(home.exchange.requests) == asked
        proof = told["verification"]
        assert proof["holds"] is True
        assert {each["name"]: each["checked"] for each in proof["checks"]}["holdings"] > 0
        # A line that is missing in the store is found.
        async with store.database.writing() as connection:
            await connection.execute(
                collected_records.delete().where(
                    collected_records.c.record_id.in_(
                        select(collected_records.c.record_id)
                        .where(collected_records.c.type == "ledger")
                        .order_by(collected_records.c.at_ms)
                        .offset(20)
                        .limit(1)
                    )
                )
            )
        _, told = await home.ask(*ALL, "holdings", source="collected", verify=True)
        assert told["verification"]["holds"] is False


@of_any_database
async def test_pages_of_a_joined_answer_are_those_of_the_exchange(store: Store) -> None:
    async with FennecHome(store) as home:
        await home.collect()
        home.time.passed_s += 7_200
        fetched, _ = await home.ask(*ALL, source="exchange")
        found, cursor = [], None
        while cursor or not found:
            page, summary = await home.ask(*ALL, limit=97, cursor=cursor)
            found += page
            cursor = summary["next_cursor"]
        assert found == fetched
        at = NOW_MS - REREAD_MS
        assert coverage_of(summary)["trades"]["collected"]["to"] < at


@of_any_database
async def test_a_joined_answer_asks_only_for_what_is_new(store: Store) -> None:
    async with FennecHome(store) as home:
        await home.collect()
        home.exchange.requests.clear()
        joined, summary = await home.ask(*ALL)
        assert summary["errors"] == []
        assert all(each["complete"] for each in summary["coverage"])
        # A page of each of five lists, and the markets.
        assert len(home.exchange.requests) <= 7
        fetched, _ = await home.ask(*ALL, source="exchange")
        assert joined == fetched


@of_any_database
async def test_what_the_exchange_forgot_is_still_there(store: Store) -> None:
    keeps_ms = 25 * DAY_MS
    sources = {
        name: replace(each, keeps_ms=keeps_ms) if each.window_ms else each
        for name, each in SOURCES.items()
    }
    async with FennecHome(store, sources=sources) as home:
        before, _ = await home.ask(*ALL, source="exchange")
        await home.collect()
        home.time.passed_s += 15 * 86_400
        forgotten_ms = home.time.now_ms() - keeps_ms
        for table in home.exchange.account.tables.values():
            for entry in table.entries:
                if entry.facts["at"] < forgotten_ms:
                    home.exchange.lost.add(entry.facts["id"])
        start = {"start_time": NOW_MS - 22 * DAY_MS}
        fetched, said = await home.ask(*ALL, source="exchange", **start)
        assert len(fetched) < len(before)
        assert {each["reason"] for each in said["coverage"]} == {"older_not_kept"}
        joined, summary = await home.ask(*ALL, **start)
        assert joined == before
        assert all(each["complete"] for each in summary["coverage"])
        # Nobody collected for so long that the exchange forgot what came in between.
        home.time.passed_s += 40 * 86_400
        await home.collect()
        stored, told = await home.ask(*ALL, source="collected", **start)
        assert stored == before
        trades = coverage_of(told)["trades"]
        assert (trades["complete"], trades["reason"]) == (False, "not_collected")
        assert trades["from"] > NOW_MS


LISTS = {"deposits": "deposits", "fills": "trades", "ledger": "ledger"}


@of_any_database
async def test_all_of_a_collected_account_begins_with_the_exchange(store: Store) -> None:
    """The time before it is stored as read: it once made `all` begin in 1970."""
    async with FennecHome(store) as home:
        await home.collect()
        request = TransactionsRequest(exchange="fennec", transaction_types=[*ALL], everything=True)
        query = await home.service.prepare(request, key_id="key", streamed=True)
        assert isinstance(query, Query)
        begins = {each.begins_ms for each in SOURCES.values()}
        assert query.from_ms == min(begins) > 0
        both = request.model_copy(update={"start_time": 0})
        with pytest.raises(InvalidRequest, match="either start_time or everything"):
            await home.service.prepare(both, key_id="key")


async def test_pages_of_everything_keep_the_start_of_the_first(store: Store) -> None:
    """The oldest time that an exchange keeps moves while a client reads."""
    keeps_ms = 15 * DAY_MS
    sources = {name: replace(each, keeps_ms=keeps_ms) for name, each in FENNEC.sources.items()}
    async with FennecHome(store, sources=sources) as home:
        asked = {"start_time": None, "everything": True, "source": "exchange"}
        whole, _ = await home.ask(*ALL, **asked)
        found, summary = await home.ask(*ALL, limit=61, **asked)
        while summary["next_cursor"]:
            home.time.passed_s += 60
            page, summary = await home.ask(*ALL, limit=61, cursor=summary["next_cursor"], **asked)
            found += page
        assert found == whole
        assert len(whole) > 200


def test_a_hole_between_collected_ranges_is_not_the_limit_of_the_exchange() -> None:
    rows = RangeRow(0, 99, "older_not_kept"), RangeRow(100, 199)
    assert StoredRanges(rows).reach(0, 199) == (100, "older_not_kept")
    later = RangeRow(200, 299, "older_not_kept"), RangeRow(300, 399)
    assert StoredRanges((*rows, *later)).reach(0, 399) == (300, "not_collected")


async def pages_with_a_failure(
    home: FennecHome, name: str, good: int, between: Callable[[], Awaitable[object]], **fields: Any
) -> list[str]:
    """The ids of all pages, if a list fails in the first page after some good requests.

    Args:
        between: Called after the first page.
    """
    home.exchange.faults.queue(f"/private/{name}", *[""] * good, *["503"] * 99)
    found, summary = await home.ask(*ALL, **fields)
    failed = home.exchange.faults.served[f"/private/{name}", "503"] > 0
    kinds = {each["transaction_type"] for each in summary["errors"]}
    assert kinds == ({LISTS[name]} if failed else set())
    home.exchange.faults = AccountFaults()
    await between()
    while summary["next_cursor"]:
        page, summary = await home.ask(*ALL, cursor=summary["next_cursor"], **fields)
        found += page
    assert summary["errors"] == []
    return sorted(each["transactionId"] for each in found)


@of_any_database
async def test_a_retry_repeats_nothing_that_the_collection_added(store: Store) -> None:
    """The exchange could fill a gap of the collection, but fails meanwhile."""

    async def nothing() -> None:
        pass

    async with FennecHome(store) as home:
        await home.collect()
        fetched, _ = await home.ask(*ALL, source="exchange")
        everything = sorted(each["transactionId"] for each in fetched)
        await with_a_gap(store)
        for name, good, limit in (
            *(("deposits", 1, None), ("fills", 0, 61)),
            *(("fills", 5, None), ("ledger", 3, 61)),
        ):
            found = await pages_with_a_failure(home, name, good, nothing, limit=limit)
            assert found == everything, (name, good, limit)


@of_any_database
async def test_what_the_exchange_refuses_for_good_is_added_by_the_collection(store: Store) -> None:
    async with FennecHome(store) as home:
        await home.collect()
        fetched, _ = await home.ask(*ALL, source="exchange")
        await with_a_gap(store)
        home.exchange.faults.queue("/private/fills", "", *["denied"] * 99)
        found, summary = await home.ask(*ALL)
        assert [each["transaction_type"] for each in summary["errors"]] == ["trades"]
        assert found == fetched
        coverage = coverage_of(summary)["trades"]
        assert (coverage["complete"], coverage["reason"]) == (False, "exchange_error")
        assert coverage["from"] is None  # the exchange itself has shown nothing


async def with_a_gap(store: Store) -> None:
    """Forget that the oldest days of every list were read."""
    async with store.database.writing() as connection:
        at_ms = NOW_MS - 15 * DAY_MS
        await connection.execute(collected_ranges.update().values(from_ms=at_ms))


@of_any_database
async def test_a_retry_after_a_collection_skips_nothing(store: Store) -> None:
    """By the time of the retry, the missing part has been collected."""
    time = Passing()
    account = GrowingFennec(NOW_MS - DAY_MS, days=5, orders_a_day=4)
    exchange = SimulatedFennec(account, now_ms=time.now_ms)
    async with FennecHome(store, exchange=exchange, time=time) as home:
        await home.collect()
        account.deposit(NOW_MS + 3_600_000, 5 * UNIT)
        time.passed_s += 86_400
        fetched, _ = await home.ask(*ALL, source="exchange")
        found = await pages_with_a_failure(home, "deposits", 0, home.collect)
        assert found == sorted(each["transactionId"] for each in fetched)


@of_any_database
async def test_an_event_that_changes_is_read_again(store: Store) -> None:
    recent = FennecAccount(NOW_MS - 600_000, days=20, orders_a_day=4)
    time = Passing()
    exchange = SimulatedFennec(recent, now_ms=time.now_ms)
    async with FennecHome(store, exchange=exchange, time=time) as home:
        rows = home.exchange.account.tables["deposits"]
        late = rows.entries[-1].facts["id"]
        home.exchange.lost.add(late)  # the exchange shows it an hour late
        first = await home.collect()
        home.exchange.lost.clear()
        home.time.passed_s += 1_800
        second = await home.collect()
        assert second.new == 1
        assert second.records < first.records / 5
        stored, _ = await home.ask("deposits", source="collected")
        fetched, _ = await home.ask("deposits", source="exchange")
        assert stored == fetched


class Killed(Exception):
    pass


async def test_a_kill_at_any_write_loses_nothing_and_claims_nothing(store: Store) -> None:
    async with FennecHome(store) as home:
        fetched, _ = await home.ask(*ALL, source="exchange")
        everything = {each["transactionId"]: each for each in fetched}
        write = store.collected.write
        killed = 0
        while True:
            left = killed

            async def dying(*args: object, **named: object) -> int:
                nonlocal left
                left -= 1
                if left < 0:
                    raise Killed
                return await write(*args, **named)

            store.collected.write = dying
            try:
                done = await home.collect()
            except Killed:
                killed += 1
            else:
                break
            finally:
                store.collected.write = write
            await claims_only_what_it_has(home, everything)
            assert killed < 40
        assert killed >= 2
        assert done.complete
        stored, _ = await home.ask(*ALL, source="collected")
        assert stored == fetched


async def test_a_killed_process_leaves_whole_writes(store: Store, url: str) -> None:
    assert await asyncio.to_thread(killed, url, 4) == -signal.SIGKILL
    async with FennecHome(store) as home:
        fetched, _ = await home.ask(*ALL, source="exchange")
        await claims_only_what_it_has(home, {each["transactionId"]: each for each in fetched})
        rows = await store.database.rows(select(collected_ranges))
        assert len(rows) == 3
        with pytest.raises(CollectionBusy):  # the lease of the dead process
            await home.collect()
        home.time.passed_s += 240
        assert (await home.collect()).complete
        stored, _ = await home.ask(*ALL, source="collected")
        assert stored == fetched


async def claims_only_what_it_has(home: FennecHome, everything: dict) -> None:
    """Each record within the covered ranges is stored exactly once."""
    rows = await home.store.database.rows(select(collected_records))
    ids = {row.record_id for row in rows}
    assert len(rows) == len(ids)
    assert ids <= everything.keys()
    lists = {
        each.list_id: each.name for each in await home.store.collected.lists("fennec", "mainnet")
    }
    of_list = {"deposits": "deposit", "withdrawals": "withdrawal", "fills": "trade",
               "orders": "order"}  # fmt: skip
    for part in await home.store.database.rows(select(collected_ranges)):
        name = lists[part.list_id].rpartition("/")[2]
        for record_id, record in everything.items():
            mine = (
                record["type"] == "ledger"
                if name == "ledger"
                else (record["type"] != "ledger" and record["kind"] == of_list[name])
            )
            if mine and part.from_ms <= record["timestamp"] <= part.to_ms:
                assert record_id in ids, (name, part)


async def test_two_collectors_at_once_are_one(store: Store) -> None:
    async with FennecHome(store) as home, FennecHome(store, time=home.time) as other:
        results = await asyncio.gather(home.collect(), other.collect(), return_exceptions=True)
        busy = [each for each in results if isinstance(each, CollectionBusy)]
        assert len(busy) == 1
        assert len([each for each in results if not isinstance(each, BaseException)]) == 1
        assert await store.database.rows(select(leases)) == []


async def test_a_collector_that_lost_its_lease_writes_nothing(store: Store) -> None:
    async with FennecHome(store) as home, FennecHome(store, time=home.time) as other:
        lease = home.collector.lease(home.account)
        assert await store.leases.acquire(lease, NOW_MS)
        theirs = other.collector.lease(home.account)
        assert not await store.leases.acquire(theirs, lease.until_ms - 1)
        assert await store.leases.acquire(
            Lease(theirs.name, theirs.holder, lease.until_ms + 1), lease.until_ms
        )
        row = await store.collected.add_list("fennec", "mainnet", "deposits")
        with pytest.raises(LeaseLost):
            await store.collected.write(lease, row.list_id, (), ())
        await store.leases.release(lease)
        assert len(await store.database.rows(select(leases))) == 1


async def test_sealed_records_are_unreadable_without_the_master_key(store: Store, url: str) -> None:
    async with FennecHome(store, sealed=True) as home:
        await home.collect()
        stored, _ = await home.ask("deposits", source="collected")
        rows = await store.database.rows(select(collected_records))
        assert all(row.sealed for row in rows)
        bodies = b"".join(bytes(row.body) for row in rows)
        assert b"fennec" not in bodies
        assert b"USDT" not in bodies
        body = bytes(rows[0].body)
        async with store.database.writing() as connection:  # a row at another's place
            await connection.execute(
                collected_records.update()
                .where(collected_records.c.record_id == rows[1].record_id)
                .values(body=body)
            )
        _, summary = await home.ask(*ALL, source="collected")
        assert summary["partial"]
        assert [each["error"] for each in summary["errors"]] == ["collection_unreadable"]
        await store.database.finish(restored(store, rows[1]))
        # A new master key: the records need not be written again.
        both = Vault(store.credentials, MasterKeys(None, value=f"{OTHER_KEY} {MASTER_KEY}"))
        assert await both.rotate() == 2
    async with FennecHome(store, master_key=OTHER_KEY) as home:
        again, _ = await home.ask("deposits", source="collected")
        assert again == stored
    async with FennecHome(store, master_key=MASTER_KEY) as home:
        with pytest.raises(ExchangeFailed, match="restore the key file"):
            await home.ask("deposits", source="collected")


async def restored(store: Store, row: Row) -> None:
    async with store.database.writing() as connection:
        await connection.execute(
            collected_records.update()
            .where(collected_records.c.record_id == row.record_id)
            .values(body=row.body)
        )


@of_any_database
async def test_a_collection_works_without_credentials(store: Store) -> None:
    async with FennecHome(store) as home:
        await home.collect()
        stored, _ = await home.ask(*ALL, source="collected")
        await home.vault.remove("fennec", "mainnet")
        again, _ = await home.ask(*ALL, source="collected")
        assert again == stored


@of_any_database
async def test_a_full_collection_says_so(store: Store) -> None:
    settings = SETTINGS.model_copy(update={"collected_records_max": 100})
    async with FennecHome(store, settings=settings) as home:
        with pytest.raises(CollectionFull, match="100 collected records"):
            await home.collect()
        assert len(await store.database.rows(select(collected_records))) <= 100


@of_any_database
async def test_nothing_collected_is_said(store: Store) -> None:
    async with FennecHome(store) as home:
        rows, summary = await home.ask(source="collected")
        assert (rows, summary["success"], summary["partial"]) == ([], True, True)
        assert {each["reason"] for each in summary["coverage"]} == {"not_collected"}
        assert {each["error"] for each in summary["errors"]} == {"not_collected"}
        home.service.collection = None
        with pytest.raises(InvalidRequest, match="does not collect records"):
            await home.ask(source="collected")


@of_any_database
async def test_a_service_collects_when_it_is_due(store: Store) -> None:
    settings = SETTINGS.model_copy(update={"collect_every": 3_600.0})
    async with FennecHome(store, settings=settings) as home:
        looks = 0

        async def sleep(seconds: float) -> None:
            nonlocal looks
            assert seconds <= TICK_S
            looks += 1
            await collected()
            home.time.passed_s += 900
            if looks > 9:
                raise asyncio.CancelledError

        clock = made_of(wall_ms=home.time.now_ms, sleep=_unless_renewing(sleep))
        collector = Collector(home.service, store.facts, settings=settings, clock=clock)
        with pytest.raises(asyncio.CancelledError):
            await collector.run()
        readings = await store.collected.readings(
            "fennec", "mainnet", from_ms=0, to_ms=home.time.now_ms(), limit=99
        )
        # At once, and after each hour.
        assert [(each.at_ms - NOW_MS) // 60_000 for each in readings] == [120, 60, 0]


async def test_why_a_collection_is_incomplete_is_logged_when_it_begins_or_changes(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SETTINGS.model_copy(update={"collect_every": 900.0})
    async with FennecHome(store, settings=settings) as home:
        looks = 0
        home.exchange.faults.queue("/private/fills", *["denied"] * 99)

        async def sleep(seconds: float) -> None:
            nonlocal looks
            looks += 1
            await collected()
            home.time.passed_s += 900
            if looks == 3:
                home.exchange.faults = AccountFaults()
            if looks > 4:
                raise asyncio.CancelledError

        clock = made_of(wall_ms=home.time.now_ms, sleep=_unless_renewing(sleep))
        collector = Collector(home.service, store.facts, settings=settings, clock=clock)
        with caplog.at_level(logging.WARNING), pytest.raises(asyncio.CancelledError):
            await collector.run()
    (said,) = caplog.messages
    assert said == (
        "The collection of fennec (mainnet) is incomplete (fills, trades): Fennec refused the "
        "request."
    )


async def collected() -> None:
    """Wait until no account is being collected."""
    while any(task.get_name().startswith("collect ") for task in asyncio.all_tasks()):
        await asyncio.sleep(0.001)


class Held(httpx.AsyncBaseTransport):
    """Never answers some API keys, as if their limits were exhausted for days."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.held = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if any(value.startswith("held") for value in request.headers.values()):
            self.held += 1
            await asyncio.Event().wait()
        return await self._inner.handle_async_request(request)


@of_any_database
async def test_a_long_collection_delays_no_other_account(store: Store) -> None:
    settings = SETTINGS.model_copy(update={"collect_every": 3_600.0})
    async with FennecHome(store, settings=settings) as home:
        transport = Held(SimulatedTransport(home.exchange))
        adapter = ExchangeAdapter(
            replace(FENNEC, sources=SOURCES), clock=home.time.clock, transport=transport
        )
        service = collecting(adapter, home.vault, store, home.time.clock, settings=settings)
        slow = ("fennec:a", "fennec:b", "fennec:c")  # listed before the others
        for name in slow:
            key = Credentials(f"held{name}", SECRET, passphrase=PASSPHRASE)
            await home.vault.put(name, "mainnet", key, now_ms=NOW_MS)
        looks, due_ms = 0, home.time.now_ms()

        async def sleep(seconds: float) -> None:
            nonlocal looks, due_ms
            await asyncio.sleep(0.01)
            if int(await store.facts.get(home.account.fact) or 0) < due_ms:
                return
            looks += 1
            home.time.passed_s += 3_600
            due_ms = home.time.now_ms()
            if looks == 3:
                raise asyncio.CancelledError

        clock = made_of(wall_ms=home.time.now_ms, sleep=_unless_renewing(sleep))
        collector = Collector(service, store.facts, settings=settings, clock=clock)
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE_S):
                await collector.run()
        assert transport.held >= len(slow)
        for name in slow:
            assert await store.facts.get(CollectedAccount.of(name).fact) is None
        assert not any(task.get_name().startswith("collect ") for task in asyncio.all_tasks())
        await service.close()


def _unless_renewing(sleep: Callable[[float], Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def sleeping(seconds: float) -> None:
        await (asyncio.sleep(seconds) if seconds == RENEW_S else sleep(seconds))

    return sleeping


class GrowingFennec(FennecAccount):
    """An account with continuing activity."""

    def deposit(self, at_ms: int, amount: int) -> None:
        self._deposit(at_ms, "USDT", amount)


@of_any_database
async def test_own_readings_prove_what_lies_between_them(store: Store) -> None:
    """Where an exchange has no ledger, holdings of two collections are compared."""
    kinds = tuple(kind for kind in FENNEC.entry.types if kind != "ledger")
    books = Bookkeeping(trades="trades", held=frozenset({"MAIN"}), readings=True)
    words = {kind: FENNEC.entry.sources_by_type[kind] for kind in kinds}
    entry = replace(FENNEC.entry, types=kinds, sources_by_type=words, bookkeeping=books)
    time = Passing()
    account = GrowingFennec(NOW_MS - DAY_MS, days=5, orders_a_day=4)
    exchange = SimulatedFennec(account, now_ms=time.now_ms)
    async with FennecHome(store, exchange=exchange, time=time, entry=entry) as home:
        for _ in range(3):
            await home.collect()
            time.passed_s += 86_400
            account.deposit(time.now_ms() - 7_200_000, 5 * UNIT)
        await home.collect()

        async def readings() -> tuple[str, int]:
            _, told = await home.ask(*kinds, verify=True)
            checks = {each["name"]: each for each in told["verification"]["checks"]}
            return checks["readings"]["state"], checks["readings"]["checked"]

        assert await readings() == ("holds", 6)  # two coins between each two of four
        lost = account.tables["deposits"].entries[-2].facts["id"]
        exchange.lost.add(lost)
        native = (await home.ask("deposits", source="collected"))[0][1]
        assert native["ids"]["native"] == lost
        async with store.database.writing() as connection:
            gone = collected_records.c.record_id == native["transactionId"]
            await connection.execute(collected_records.delete().where(gone))
        assert await readings() == ("broken", 6)
