"""The meter: what is counted, when it is written, and who is told."""

import asyncio
import logging
from collections.abc import Collection

import pytest
from msgspec.structs import replace

from onebook.accounts import Meter, UsageReport
from onebook.accounts.keys import Key, key_of
from onebook.accounts.periods import period_at
from onebook.accounts.usage_report import stored_usage
from onebook.config import AccountsSettings
from onebook.errors import ServiceUnavailable
from onebook.model import Tier
from onebook.store import Store, UsageCell
from steady import PATIENCE_S

from .conftest import START_MS, Rig

ALLOWANCE_BYTES = AccountsSettings().allowance_bytes

UNAVAILABLE = ServiceUnavailable("The database does not answer; retry shortly.")


class Faults:
    """Stands between a meter and its store, and breaks the line when told to."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.usage = self
        self.before = 0  # calls that fail before they reach the store
        self.after = 0  # calls that reach it, and whose answer is lost

    async def totals(self, cells: Collection[UsageCell]) -> dict[UsageCell, int]:
        return await self._store.usage.totals(cells)

    async def apply(
        self, batch: tuple[str, int], deltas: dict[UsageCell, int], now_ms: int
    ) -> dict[UsageCell, int] | None:
        if self.before:
            self.before -= 1
            raise UNAVAILABLE
        totals = await self._store.usage.apply(batch, deltas, now_ms)
        if self.after:
            self.after -= 1
            raise UNAVAILABLE
        return totals


@pytest.fixture
async def key(rig: Rig) -> Key:
    row = await rig.store.accounts.key(rig.key_id)
    assert row is not None
    return key_of(row)


@pytest.fixture
async def meter(rig: Rig, key: Key) -> Meter:
    meter = Meter(rig.store, rig.clock, allowance_bytes=1_000)
    await meter.open(key)
    return meter


def test_the_allowance_is_50_gib_for_every_tier() -> None:
    assert ALLOWANCE_BYTES == 53_687_091_200


async def test_bytes_are_counted_at_once_and_written_with_a_flush(
    meter: Meter, rig: Rig, key: Key
) -> None:
    meter.add(key.key_id, 300)
    meter.add(key.key_id, 7)
    assert meter.used(key.key_id, rig.clock()) == meter.pending_bytes() == 307
    assert await stored_usage(rig.store, key, rig.clock()) == 0
    await meter.flush()
    assert meter.pending_bytes() == 0
    assert meter.used(key.key_id, rig.clock()) == 307
    assert await stored_usage(rig.store, key, rig.clock()) == 307


async def test_a_meter_that_opens_a_key_knows_what_was_used_before(
    meter: Meter, rig: Rig, key: Key
) -> None:
    meter.add(key.key_id, 300)
    await meter.flush()
    again = Meter(rig.store, rig.clock)
    await again.open(key)
    assert again.used(key.key_id, rig.clock()) == 300


async def test_a_key_opened_twice_at_once_is_counted_once(rig: Rig, key: Key) -> None:
    meter = Meter(rig.store, rig.clock)
    await asyncio.gather(meter.open(key), meter.open(key))
    meter.add(key.key_id, 5)
    await meter.open(replace(key, tier=Tier.ENTERPRISE))
    assert meter.used(key.key_id, rig.clock()) == 5
    assert meter.report(key.key_id, rig.clock()).billing_tier == "enterprise"


async def test_many_keys_are_opened_with_one_read_and_the_open_ones_keep_their_count(
    meter: Meter, rig: Rig, key: Key, statements: list[str]
) -> None:
    made = [await rig.admin.create_key("alice", Tier.BASIC, rig.change()) for _ in range(3)]
    others = [key_of(each.row) for each in made]
    node = Meter(rig.store, rig.clock)
    await node.open(others[0])
    node.add(others[0].key_id, 200)
    await node.flush()
    meter.add(key.key_id, 5)
    statements.clear()
    await meter.open(key, *others, others[0])
    assert len(statements) == 1
    assert [meter.used(each.key_id, rig.clock()) for each in (key, *others)] == [5, 200, 0, 0]
    await meter.open(key, *others)
    await meter.open()
    assert len(statements) == 1, "they are all open"


async def test_two_nodes_add_up(rig: Rig, key: Key) -> None:
    nodes = [Meter(rig.store, rig.clock) for _ in range(2)]
    for node in nodes:
        await node.open(key)
        node.add(key.key_id, 100)
    for node in nodes:
        await node.flush()
    assert await stored_usage(rig.store, key, rig.clock()) == 200
    nodes[0].add(key.key_id, 1)
    await nodes[0].flush()
    assert nodes[0].used(key.key_id, rig.clock()) == 201, "the other node's bytes are heard of"


async def test_a_reset_exactly_at_the_boundary_loses_and_doubles_no_byte(
    meter: Meter, rig: Rig, key: Key
) -> None:
    first = period_at(key.created_at_ms, rig.clock())
    rig.clock.now_ms = first.end_ms - 1
    meter.add(key.key_id, 900)
    rig.clock.now_ms = first.end_ms
    assert meter.used(key.key_id, rig.clock()) == 0
    meter.add(key.key_id, 5)
    await meter.flush()
    assert await rig.store.usage.total(UsageCell(key.key_id, first.start_ms)) == 900
    assert await rig.store.usage.total(UsageCell(key.key_id, first.end_ms)) == 5


async def test_what_came_since_the_last_flush_of_a_period_counts_in_that_period(
    meter: Meter, rig: Rig, key: Key
) -> None:
    """It was collected by the first flush after midnight, and billed to the period that began."""
    delivered = [1]

    def collect() -> None:
        while delivered:
            meter.add(key.key_id, delivered.pop())

    meter.collect.subscribe(collect)
    ending = period_at(key.created_at_ms, rig.clock())
    rig.clock.now_ms = ending.end_ms - 100
    await meter.round()
    delivered.append(10)
    rig.clock.now_ms = ending.end_ms + 300  # the loop is late
    async with asyncio.timeout(PATIENCE_S):
        while delivered:
            await asyncio.sleep(0.005)
    delivered.append(100)
    await meter.round()
    cells = [UsageCell(key.key_id, each) for each in (ending.start_ms, ending.end_ms)]
    assert await rig.store.usage.totals(cells) == dict(zip(cells, (11, 100), strict=True))
    assert await meter.close() == 0


async def test_over_the_limit_on_over_is_called_once(meter: Meter, key: Key) -> None:
    told: list[str] = []
    meter.on_over.subscribe(told.append)
    meter.add(key.key_id, 1_000)
    await meter.flush()
    assert (meter.over(key.key_id), told) == (False, [])
    meter.add(key.key_id, 1)
    assert (meter.over(key.key_id), told) == (True, []), "known at once, told outside the fan-out"
    await meter.flush()
    meter.add(key.key_id, 1)
    await meter.flush()
    assert told == [key.key_id]


async def test_on_warning_is_called_once_per_period_with_the_report(
    meter: Meter, rig: Rig, key: Key
) -> None:
    told: list[tuple[str, UsageReport]] = []
    meter.on_warning.subscribe(lambda key_id, report: told.append((key_id, report)))
    for _ in range(2):
        meter.add(key.key_id, 400)
        await meter.flush()
        await meter.flush()
    meter.add(key.key_id, 1)
    await meter.flush()
    assert [(key_id, report.data_usage.bytes_used) for key_id, report in told] == [
        (key.key_id, 800)
    ]
    rig.clock.now_ms = period_at(key.created_at_ms, rig.clock()).end_ms
    meter.add(key.key_id, 800)
    await meter.flush()
    assert len(told) == 2


async def test_usage_that_jumps_over_both_marks_warns_before_it_ends(
    meter: Meter, key: Key
) -> None:
    told: list[tuple[str, float]] = []
    meter.on_warning.subscribe(
        lambda _, report: told.append(("warning", report.data_usage.usage_percentage))
    )
    meter.on_over.subscribe(lambda _: told.append(("over", 0.0)))
    meter.add(key.key_id, 1_001)
    await meter.flush()
    meter.add(key.key_id, 1_001)
    await meter.flush()
    assert told == [("warning", 100.1), ("over", 0.0)]


async def test_a_reset_lets_a_key_in_again(meter: Meter, rig: Rig, key: Key) -> None:
    meter.add(key.key_id, 1_001)
    assert meter.over(key.key_id)
    rig.clock.now_ms = period_at(key.created_at_ms, rig.clock()).end_ms
    assert not meter.over(key.key_id)


async def test_after_a_restart_nobody_is_told_again(meter: Meter, rig: Rig, key: Key) -> None:
    warned = key_of((await rig.admin.create_key("alice", Tier.BASIC, rig.change())).row)
    await meter.open(warned)
    meter.add(key.key_id, 1_001)
    meter.add(warned.key_id, 800)
    await meter.flush()
    told: list[str] = []
    again = Meter(rig.store, rig.clock, allowance_bytes=1_000)
    again.on_over.subscribe(told.append)
    again.on_warning.subscribe(lambda key_id, report: told.append(key_id))
    await again.open(key, warned)
    for each in (key, warned):
        again.add(each.key_id, 1)
    await again.flush()
    assert (again.over(key.key_id), again.over(warned.key_id), told) == (True, False, [])


async def test_the_limit_holds_while_the_store_is_away(rig: Rig, key: Key) -> None:
    faults = Faults(rig.store)
    meter = Meter(faults, rig.clock, allowance_bytes=1_000)  # type: ignore[arg-type]
    told: list[str] = []
    meter.on_over.subscribe(told.append)
    await meter.open(key)
    meter.add(key.key_id, 1_001)
    faults.before = 1
    with pytest.raises(ServiceUnavailable):
        await meter.flush()
    assert told == [key.key_id]
    assert meter.pending_bytes() == 1_001


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_doubtful_answer_is_asked_again_and_counts_once(
    rig: Rig, key: Key, where: str
) -> None:
    faults = Faults(rig.store)
    meter = Meter(faults, rig.clock)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 10)
    setattr(faults, where, 2)
    for _ in range(2):
        with pytest.raises(ServiceUnavailable):
            await meter.flush()
        meter.add(key.key_id, 1)
    await meter.flush()
    assert await stored_usage(rig.store, key, rig.clock()) == 12
    assert meter.used(key.key_id, rig.clock()) == 12


async def test_a_flush_that_is_cancelled_counts_once(rig: Rig, key: Key) -> None:
    meter = Meter(rig.store, rig.clock)
    await meter.open(key)
    for turns in range(1, 40):
        meter.add(key.key_id, 1)
        task = asyncio.create_task(meter.flush())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await meter.close()
    assert await stored_usage(rig.store, key, rig.clock()) == 39


async def test_a_clean_stop_loses_nothing(rig: Rig, key: Key) -> None:
    faults = Faults(rig.store)
    meter = Meter(faults, rig.clock)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 10)
    faults.before = faults.after = 1
    await meter.close()
    assert await stored_usage(rig.store, key, rig.clock()) == 10


async def test_a_stop_that_cannot_write_says_what_is_lost(
    rig: Rig, key: Key, caplog: pytest.LogCaptureFixture
) -> None:
    faults = Faults(rig.store)
    meter = Meter(faults, rig.clock)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 10)
    faults.before = 1_000
    with caplog.at_level(logging.ERROR, logger="onebook.accounts"):
        assert await meter.close(timeout_s=0.01) == 10
    assert caplog.messages == ["10 bytes of usage could not be written and are lost."]


async def test_usage_is_flushed_at_least_every_second(rig: Rig, key: Key) -> None:
    assert AccountsSettings().flush_interval_s <= 0.5
    meter = Meter(rig.store, rig.clock)
    await meter.open(key)
    meter.add(key.key_id, 10)
    running = asyncio.create_task(meter.run(0.001))
    async with asyncio.timeout(PATIENCE_S):
        while meter.pending_bytes():
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await stored_usage(rig.store, key, rig.clock()) == 10


async def test_a_key_with_its_own_allowance_is_over_by_that(rig: Rig, meter: Meter) -> None:
    over: list[str] = []
    meter.on_over = over.append
    meter.add(rig.key_id, 1_500)
    await meter.flush()
    assert over == [rig.key_id]
    change = rig.change()
    row = await rig.admin.change_key(rig.key_id, change, allowance_bytes=2_000)
    meter.change(key_of(row))
    assert not meter.over(rig.key_id)
    assert meter.report(rig.key_id, START_MS).data_usage.bytes_limit == 2_000
    meter.add(rig.key_id, 501)
    await meter.flush()
    assert over == [rig.key_id] * 2  # it is told again


async def test_another_allowance_of_the_settings_counts_at_once(rig: Rig, meter: Meter) -> None:
    meter.add(rig.key_id, 1_500)
    await meter.flush()
    assert meter.over(rig.key_id)
    meter.change_allowance(10_000)
    assert not meter.over(rig.key_id)
    meter.change_allowance(1_000)
    assert meter.over(rig.key_id)


async def test_a_change_of_a_key_reaches_the_meter_by_the_watch(rig: Rig) -> None:
    await rig.authenticate()
    rig.clock.now_ms += 1_000
    await rig.admin.change_key(rig.key_id, rig.change(), tier=Tier.ENTERPRISE, allowance_bytes=77)
    await rig.accounts.poll(rig.clock.now_ms)
    report = rig.accounts.meter.report(rig.key_id, rig.clock.now_ms)
    assert (report.billing_tier, report.data_usage.bytes_limit) == ("enterprise", 77)
