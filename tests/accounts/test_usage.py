"""The meter, its report to clients, and the usage file."""

import asyncio
import json
import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from onebook.accounts import Meter, UsageReport
from onebook.accounts.billing import period_at
from onebook.accounts.keys import Key, key_of
from onebook.accounts.usage import (
    FLUSH_INTERVAL_S,
    MARKS_AT_ONCE,
    SLOT_BYTES,
    SLOTS,
    Batch,
    UsageFile,
    UsageMark,
    apply_files,
    mark_of,
    stored_usage,
    usage_report,
)
from onebook.config import AccountsSettings
from onebook.errors import DatabaseUnavailable, ServiceUnavailable
from onebook.model import DAY_MS, KeyStatus, Tier
from onebook.store import Store, UsageCell
from steady import PATIENCE_S
from together import in_processes, taken_in

from .conftest import START_MS, Rig

ALLOWANCE_BYTES = AccountsSettings().allowance_bytes

UNAVAILABLE = ServiceUnavailable("The database does not answer; retry shortly.")


class Faults:
    """A connection between a meter and its store that can be cut."""

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
    assert meter.used(key.key_id, rig.clock.now_ms) == meter.pending_bytes() == 307
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 0
    await meter.flush()
    assert meter.pending_bytes() == 0
    assert meter.used(key.key_id, rig.clock.now_ms) == 307
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 307


async def test_a_meter_that_opens_a_key_knows_what_was_used_before(
    meter: Meter, rig: Rig, key: Key
) -> None:
    meter.add(key.key_id, 300)
    await meter.flush()
    again = Meter(rig.store, rig.clock)
    await again.open(key)
    assert again.used(key.key_id, rig.clock.now_ms) == 300


async def test_a_key_opened_twice_at_once_is_counted_once(rig: Rig, key: Key) -> None:
    meter = Meter(rig.store, rig.clock)
    await asyncio.gather(meter.open(key), meter.open(key))
    meter.add(key.key_id, 5)
    await meter.open(replace(key, tier=Tier.ENTERPRISE))
    assert meter.used(key.key_id, rig.clock.now_ms) == 5
    assert meter.report(key.key_id, rig.clock.now_ms).billing_tier == "enterprise"


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
    assert [meter.used(each.key_id, rig.clock.now_ms) for each in (key, *others)] == [5, 200, 0, 0]
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
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 200
    nodes[0].add(key.key_id, 1)
    await nodes[0].flush()
    assert nodes[0].used(key.key_id, rig.clock.now_ms) == 201, "the other node's bytes are heard of"


async def test_a_reset_exactly_at_the_boundary_loses_and_doubles_no_byte(
    meter: Meter, rig: Rig, key: Key
) -> None:
    first = period_at(key.created_at_ms, rig.clock.now_ms)
    rig.clock.now_ms = first.end_ms - 1
    meter.add(key.key_id, 900)
    rig.clock.now_ms = first.end_ms
    assert meter.used(key.key_id, rig.clock.now_ms) == 0
    meter.add(key.key_id, 5)
    await meter.flush()
    assert await rig.store.usage.total(UsageCell(key.key_id, first.start_ms)) == 900
    assert await rig.store.usage.total(UsageCell(key.key_id, first.end_ms)) == 5


async def test_what_came_since_the_last_flush_of_a_period_counts_in_that_period(
    meter: Meter, rig: Rig, key: Key
) -> None:
    """Usage was counted in the period of the first flush after midnight."""
    delivered = [1]

    turns: list[int] = []

    def collect(as_of_ms: int) -> Iterator[None]:
        while delivered:
            turns.append(turn)
            meter.add(key.key_id, delivered.pop(0), as_of_ms)
            yield

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        asyncio.get_running_loop().call_soon(count_turns)

    turn = 0
    count_turns()
    meter.collect_from(collect)
    ending = period_at(key.created_at_ms, rig.clock.now_ms)
    rig.clock.now_ms = ending.end_ms - 100
    await meter.round()
    delivered.extend([10, 20, 30])
    turns.clear()
    rig.clock.now_ms = ending.end_ms + 300  # the loop is late
    async with asyncio.timeout(PATIENCE_S):
        while delivered:
            await asyncio.sleep(0.005)
    assert len(set(turns)) == 3, "each portion has a turn of the event loop"
    delivered.append(100)
    await meter.round()
    cells = [UsageCell(key.key_id, each) for each in (ending.start_ms, ending.end_ms)]
    assert await rig.store.usage.totals(cells) == dict(zip(cells, (61, 100), strict=True))
    assert await meter.close() == 0


async def test_usage_collected_over_midnight_counts_in_the_period_in_which_that_began(
    meter: Meter, rig: Rig, key: Key
) -> None:
    """The rounds before and after midnight collect one after the other, each as of its begin."""
    ending = period_at(key.created_at_ms, rig.clock.now_ms)
    delivered, resumed = [1] * 20, asyncio.Event()

    def collect(as_of_ms: int) -> Iterator[None]:
        while delivered:
            meter.add(key.key_id, delivered.pop(0), as_of_ms)
            resumed.set()
            yield

    meter.collect_from(collect)
    rig.clock.now_ms = ending.end_ms - 1
    before = asyncio.create_task(meter.flush())
    await resumed.wait()
    rig.clock.now_ms = ending.end_ms
    after = asyncio.create_task(meter.round())
    meter.add(key.key_id, 10)  # of a connection that closes meanwhile
    await before
    delivered.append(100)
    await after
    await meter.flush()
    cells = [UsageCell(key.key_id, each) for each in (ending.start_ms, ending.end_ms)]
    assert await rig.store.usage.totals(cells) == dict(zip(cells, (20, 110), strict=True))
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
    rig.clock.now_ms = period_at(key.created_at_ms, rig.clock.now_ms).end_ms
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


class Elsewhere:
    """A store in which other nodes have used `used_bytes` of each key."""

    def __init__(self, used_bytes: int) -> None:
        self.usage = self
        self.used_bytes = used_bytes

    async def totals(self, cells: Collection[UsageCell]) -> dict[UsageCell, int]:
        return {}

    async def apply(
        self, batch: tuple[str, int], deltas: dict[UsageCell, int], now_ms: int
    ) -> dict[UsageCell, int]:
        return {cell: count + self.used_bytes for cell, count in deltas.items()}


@pytest.mark.parametrize("elsewhere_bytes", [0, 600])
async def test_the_marks_of_many_keys_are_compared_in_several_turns_of_the_loop(
    rig: Rig, key: Key, elsewhere_bytes: int
) -> None:
    keys = [replace(key, key_id=f"key_{number}") for number in range(2 * MARKS_AT_ONCE + 1)]
    meter = Meter(Elsewhere(elsewhere_bytes), rig.clock, allowance_bytes=1_000)  # type: ignore[arg-type]
    await meter.open(*keys)
    turns, told = [0], {}

    async def turn() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    def over(key_id: str) -> None:
        assert key_id not in told
        told[key_id] = turns[0]

    meter.on_over.subscribe(over)
    turning = asyncio.create_task(turn())
    for each in keys:
        meter.add(each.key_id, 1_001 - elsewhere_bytes)
    await meter.flush()
    turning.cancel()
    assert told.keys() == {each.key_id for each in keys}
    assert max(Counter(told.values()).values()) <= MARKS_AT_ONCE


async def test_a_reset_lets_a_key_in_again(meter: Meter, rig: Rig, key: Key) -> None:
    meter.add(key.key_id, 1_001)
    assert meter.over(key.key_id)
    rig.clock.now_ms = period_at(key.created_at_ms, rig.clock.now_ms).end_ms
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
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 12
    assert meter.used(key.key_id, rig.clock.now_ms) == 12


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
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 39


async def test_a_clean_stop_loses_nothing(rig: Rig, key: Key) -> None:
    faults = Faults(rig.store)
    meter = Meter(faults, rig.clock)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 10)
    faults.before = faults.after = 1
    await meter.close()
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 10


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
    assert FLUSH_INTERVAL_S <= 0.5
    meter = Meter(rig.store, rig.clock)
    await meter.open(key)
    meter.add(key.key_id, 10)
    running = asyncio.create_task(meter.run(0.001))
    async with asyncio.timeout(PATIENCE_S):
        while meter.pending_bytes():
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 10


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


KEY = Key("key_1", "id-alice", "alice", Tier.PREMIUM, KeyStatus.ACTIVE, "ob_live_", START_MS, None)


def report(used_bytes: int, *, now_ms: int = START_MS, key: Key = KEY) -> UsageReport:
    return usage_report(key, used_bytes, allowance_bytes=ALLOWANCE_BYTES, now_ms=now_ms)


def test_usage_report_has_every_field_of_the_specification() -> None:
    assert to_builtins(report(13_421_772_800)) == {
        "user_id": "id-alice",
        "username": "alice",
        "billing_tier": "premium",
        "api_key_active": True,
        "data_usage": {
            "used_gb": 12.5,
            "limit_gb": 50.0,
            "remaining_gb": 37.5,
            "usage_percentage": 25.0,
            "bytes_used": 13_421_772_800,
            "bytes_limit": 53_687_091_200,
        },
        "billing_period": {
            "reset_date": "2026-02-28T00:00:00.000Z",
            "days_until_reset": 27,
            "next_reset": "2026-03-31T00:00:00.000Z",
        },
        "status": {
            "limit_exceeded": False,
            "warning_threshold": False,
            "api_key_status": "active",
        },
        "timestamp": "2026-01-31T10:30:00.000Z",
    }


def test_usage_percentage_has_two_decimals() -> None:
    assert report(ALLOWANCE_BYTES // 3).data_usage.usage_percentage == 33.33


@pytest.mark.parametrize("used_bytes", [1, 4_000, 53_687, 60_000, 107_374, 1 << 20])
def test_no_number_has_an_exponent(used_bytes: int) -> None:
    found = to_builtins(report(used_bytes).data_usage)
    assert found["bytes_used"] == used_bytes
    for text in (json.dumps(found), msgspec.json.encode(found).decode()):
        assert not re.search(r"\de", text)


def test_remaining_gb_never_falls_below_zero() -> None:
    used = report(ALLOWANCE_BYTES + 2**30).data_usage
    assert (used.remaining_gb, used.used_gb, used.usage_percentage) == (0.0, 51.0, 102.0)


@pytest.mark.parametrize(
    ("left_ms", "days"), [(1, 0), (DAY_MS - 1, 0), (DAY_MS, 1), (27 * DAY_MS + 1, 27)]
)
def test_days_until_reset_are_whole_days_left(left_ms: int, days: int) -> None:
    end_ms = period_at(START_MS, START_MS).end_ms
    assert report(0, now_ms=end_ms - left_ms).billing_period.days_until_reset == days


@pytest.mark.parametrize(
    ("used_bytes", "mark"),
    [
        (0, UsageMark.WITHIN),
        (799, UsageMark.WITHIN),
        (800, UsageMark.WARNING),
        (1_000, UsageMark.WARNING),
        (1_001, UsageMark.OVER),
    ],
)
def test_warning_threshold_is_80_percent_and_the_limit_all_of_it(
    used_bytes: int, mark: UsageMark
) -> None:
    assert mark_of(used_bytes, 1_000) is mark
    status = usage_report(KEY, used_bytes, allowance_bytes=1_000, now_ms=START_MS).status
    assert status.warning_threshold is (mark is not UsageMark.WITHIN)
    assert status.limit_exceeded is (mark is UsageMark.OVER)


def test_an_expired_key_is_reported_as_expired_and_not_active() -> None:
    expired = report(0, key=replace(KEY, expires_at_ms=START_MS))
    assert expired.api_key_active is False
    assert expired.status.api_key_status == "expired"


NAME = "onebook.db"


def batch(seq: int, key: Key, count: int) -> Batch:
    return Batch(seq, {UsageCell(key.key_id, START_MS): count})


async def total(rig: Rig, key: Key) -> int:
    return await rig.store.usage.total(UsageCell(key.key_id, START_MS))


async def test_what_a_node_left_is_taken_in_once_also_from_a_copy(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10), batch(2, key, 5)])
    await rig.store.usage.apply(("epoch", 1), {UsageCell(key.key_id, START_MS): 10}, 0)
    file.release()
    assert file.path.stat().st_mode & 0o777 == 0o600
    copy = shutil.copy(file.path, tmp_path / "copy")
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 5, "batch 1 was counted"
    assert not file.path.exists()
    os.rename(copy, file.path)
    await rig.store.prune(sessions_before_ms=0, batches_before_ms=START_MS + 10**12)
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 0
    assert await total(rig, key) == 15


async def test_the_file_of_a_living_node_is_left_alone(rig: Rig, key: Key, tmp_path: Path) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10)])
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 0
    assert file.path.exists()
    file.put([])
    file.release()
    assert not file.path.exists(), "it held nothing"


@pytest.mark.parametrize("cut", [0, 1, 8, 20, 30])
async def test_a_write_that_was_cut_off_leaves_the_one_before(
    rig: Rig, key: Key, tmp_path: Path, cut: int
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10)])
    file.put([batch(1, key, 10), batch(2, key, 7)])
    offset = 2 % SLOTS * SLOT_BYTES
    with file.path.open("r+b") as raw:
        raw.seek(offset + cut)
        raw.write(b"\xff" * 16)
    file.release()
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 10


async def test_a_file_without_a_whole_slot_stays_and_is_named(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{NAME}.usage-x").write_bytes(b"damaged" * 100)
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 0
    assert "is damaged" in caplog.text
    assert (tmp_path / f"{NAME}.usage-x").exists()


async def test_usage_of_keys_that_another_database_has_stays(
    rig: Rig, key: Key, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([Batch(1, {UsageCell("key_of_another", START_MS): 10})])
    file.release()
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 0
    assert "contains 10 bytes of usage for keys that do not exist" in caplog.text
    assert file.path.exists()


async def test_too_many_keys_are_an_error_and_what_was_kept_stays(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10)])
    many = {UsageCell(f"key_{number:012}", START_MS): number for number in range(60_000)}
    with pytest.raises(OSError, match="the usage of all keys"):
        file.put([Batch(1, many)])
    file.release()
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 10


async def test_ten_thousand_keys_fit(tmp_path: Path) -> None:
    cells = {UsageCell(f"key_{number:012}", START_MS): 10**12 for number in range(10_000)}
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([Batch(1, cells), Batch(2, cells)])
    file.release()


async def test_of_processes_that_start_at_once_one_takes_it_in(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    for number in range(20):
        file = UsageFile.create(folder, NAME, f"epoch{number}")
        file.put([batch(1, key, 10)])
        file.release()
    url = str(rig.store.database._engine.url)
    taken = await asyncio.to_thread(in_processes, 3, taken_in, folder, NAME, url, START_MS)
    assert sum(taken) == 200
    assert await total(rig, key) == 200
    assert list(folder.iterdir()) == []


class Away:
    """A store whose writes never return, or fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.usage = self
        self.totals = store.usage.totals
        self.facts = store.facts
        self.hangs = False
        self.fails = False

    async def apply(self, *details: object) -> object:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise DatabaseUnavailable("it is away")
        return await self._store.usage.apply(*details)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_each_round_without_the_store_reaches_the_file(
    rig: Rig, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 0.01)
    away = Away(rig.store)
    setattr(away, how, True)
    file = UsageFile.create(tmp_path, NAME, "epoch")
    meter = Meter(away, rig.clock, file=file)  # type: ignore[arg-type]
    await meter.open(key)
    unsettled = [3, 4, 5]

    def collect(as_of_ms: int) -> Iterator[None]:
        if unsettled:
            meter.add(key.key_id, unsettled.pop(), as_of_ms)
        yield

    meter.collect_from(collect)
    for _ in range(3):
        if how == "fails":
            with pytest.raises(DatabaseUnavailable):
                await meter.round()
        else:
            await meter.round()
    if meter._writing is not None:
        meter._writing.cancel()
    file.release()  # as the kernel does when the node is killed
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 12
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 12


async def test_when_the_store_is_back_the_file_is_emptied_and_nothing_counts_twice(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    away = Away(rig.store)
    away.fails = True
    file = UsageFile.create(tmp_path, NAME, "epoch")
    meter = Meter(away, rig.clock, file=file)  # type: ignore[arg-type]
    await meter.open(key)
    for _ in range(2):
        meter.add(key.key_id, 10)
        with pytest.raises(DatabaseUnavailable):
            await meter.round()
    kept = file.path.read_bytes()
    away.fails = False
    await meter.round()
    assert not file.holds_usage
    file.release()
    file.path.write_bytes(kept)  # a crash before it was emptied
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 0
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 20


class Slow(Away):
    """A store whose first write blocks until released."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.go_on = asyncio.Event()

    async def apply(self, *details: object) -> object:
        await self.go_on.wait()
        return await self._store.usage.apply(*details)  # type: ignore[arg-type]


async def writing_slowly(rig: Rig, key: Key, folder: Path) -> tuple[Meter, Slow, UsageFile]:
    """A meter whose write of 10 bytes takes longer than its timeout."""
    slow = Slow(rig.store)
    file = UsageFile.create(folder, NAME, "epoch")
    meter = Meter(slow, rig.clock, file=file)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 10)
    await meter.round()
    return meter, slow, file


async def test_usage_that_was_collected_during_a_slow_write_stays_in_the_file_after_it(
    rig: Rig, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 0.01)
    meter, slow, file = await writing_slowly(rig, key, tmp_path)
    meter.add(key.key_id, 7)
    await meter.round()
    slow.go_on.set()
    assert meter._writing is not None
    await meter._writing
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 10
    file.release()  # as the kernel does when the node is killed
    assert await apply_files(tmp_path, NAME, rig.store, START_MS) == 7
    assert await stored_usage(rig.store, key, rig.clock.now_ms) == 17


async def test_the_file_is_empty_again_after_a_fast_write_though_usage_goes_on(
    rig: Rig, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 0.01)
    meter, slow, file = await writing_slowly(rig, key, tmp_path)
    assert file.holds_usage
    slow.go_on.set()
    assert meter._writing is not None
    await meter._writing
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 60.0)
    apply = slow.apply

    async def counted_meanwhile(*details: object) -> object:
        meter.add(key.key_id, 7)
        return await apply(*details)

    slow.apply = counted_meanwhile  # type: ignore[method-assign]
    for _ in range(2):  # the first takes over what the slow write left
        meter.add(key.key_id, 1)
        await meter.round()
    assert not file.holds_usage
