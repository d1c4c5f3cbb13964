"""Steps of the wall clock: by an hour, by a day, and across the end of a billing month.

What is counted is billed once. A session lives for a day of the wall clock, and a step does not
make it live for ever or end for good. Rates and retries go on.
"""

import pytest

from accounts.conftest import START_MS, Rig
from accounts.test_usage import Faults
from clocks import SteppedClock
from onebook.accounts import Accounts, Meter
from onebook.accounts.billing import period_at
from onebook.accounts.keys import Key, key_of
from onebook.accounts.limits import RateLimiter
from onebook.errors import ApiKeyDisabled, OnebookError, ServiceUnavailable, SessionExpired
from onebook.model import DAY_MS, MINUTE_MS, Tier
from onebook.store import UsageCell

HOUR_MS = 60 * MINUTE_MS
SECOND_MS = 1_000
STEPS = pytest.mark.parametrize(
    "step_ms",
    [
        pytest.param(-HOUR_MS, id="hour-back"),
        pytest.param(HOUR_MS, id="hour-forward"),
        pytest.param(DAY_MS, id="day-forward"),
        pytest.param(-DAY_MS, id="day-back"),
    ],
)
ALLOWANCE_BYTES = 1_000


@pytest.fixture
async def key(rig: Rig) -> Key:
    row = await rig.store.accounts.key(rig.key_id)
    assert row is not None
    return key_of(row)


async def billed(rig: Rig, key: Key) -> dict[int, int]:
    """The stored usage of a key in the periods around the present, by start of the period."""
    near = {
        period_at(key.created_at_ms, rig.clock.now_ms + days * DAY_MS).start_ms
        for days in range(-62, 63, 10)
    }
    cells = await rig.store.usage.totals({UsageCell(key.key_id, each) for each in near})
    return {cell.period_start_ms: count for cell, count in cells.items() if count}


async def usable(accounts: Accounts, header: str, now_ms: int) -> bool:
    try:
        await accounts.session(header, now_ms)
    except (SessionExpired, ApiKeyDisabled):
        return False
    return True


# Usage


@STEPS
async def test_bytes_are_billed_once_whichever_way_the_clock_is_set(
    rig: Rig, key: Key, step_ms: int
) -> None:
    meter = Meter(rig.store, rig.clock)
    await meter.open(key)
    meter.add(key.key_id, 100)
    await meter.flush()
    meter.add(key.key_id, 10)
    rig.clock.now_ms += step_ms
    meter.add(key.key_id, 1)
    await meter.flush()
    rig.clock.now_ms -= step_ms
    meter.add(key.key_id, 1_000)
    await meter.flush()
    assert sum((await billed(rig, key)).values()) == 1_111
    assert await meter.close() == 0
    assert sum((await billed(rig, key)).values()) == 1_111


@STEPS
async def test_a_batch_in_doubt_is_billed_once_also_when_old_numbers_were_pruned(
    rig: Rig, key: Key, step_ms: int
) -> None:
    faults = Faults(rig.store)
    meter = Meter(faults, rig.clock)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 7)
    faults.after = 1  # it is written, and the answer is lost
    with pytest.raises(ServiceUnavailable):
        await meter.flush()
    rig.clock.now_ms += step_ms
    for _ in range(2):
        await rig.accounts.poll(rig.clock.now_ms)  # prunes what is more than a day old
        rig.clock.now_ms += HOUR_MS
    await meter.flush()
    assert sum((await billed(rig, key)).values()) == 7


async def test_a_step_over_the_end_of_a_month_and_back_lifts_no_limit(rig: Rig, key: Key) -> None:
    meter = Meter(rig.store, rig.clock, allowance_bytes=ALLOWANCE_BYTES)
    await meter.open(key)
    period = period_at(key.created_at_ms, rig.clock.now_ms)
    meter.add(key.key_id, ALLOWANCE_BYTES + 1)
    await meter.flush()
    assert meter.over(key.key_id)
    rig.clock.now_ms = period.end_ms + HOUR_MS
    meter.add(key.key_id, 5)
    await meter.flush()
    assert not meter.over(key.key_id), "it is another month as far as anyone knows"
    rig.clock.now_ms = START_MS + SECOND_MS
    meter.add(key.key_id, 1)
    assert meter.over(key.key_id), "without waiting for what the store has"
    await meter.flush()
    assert meter.over(key.key_id)
    assert await billed(rig, key) == {period.start_ms: ALLOWANCE_BYTES + 2, period.end_ms: 5}


async def test_after_a_step_back_the_report_and_the_bill_are_of_the_same_month(
    rig: Rig, key: Key
) -> None:
    accounts = rig.accounts
    await accounts.verify_key(rig.text, rig.clock.now_ms)
    period = period_at(key.created_at_ms, rig.clock.now_ms)
    accounts.meter.add(key.key_id, 100)
    await accounts.meter.flush()
    rig.clock.now_ms = period.end_ms
    accounts.meter.add(key.key_id, 40)
    await accounts.meter.flush()
    rig.clock.now_ms = START_MS
    report = await accounts.report(key, rig.clock.now_ms)
    assert report.data_usage.bytes_used == 100
    accounts.meter.add(key.key_id, 1)
    await accounts.meter.flush()
    report = await accounts.report(key, rig.clock.now_ms)
    assert report.data_usage.bytes_used == 101


# Sessions and keys


@STEPS
async def test_a_session_is_neither_immortal_nor_dead_for_good(rig: Rig, step_ms: int) -> None:
    header = await rig.authenticate()
    stepped = START_MS + step_ms
    await rig.accounts.poll(stepped)
    assert await usable(rig.accounts, header, stepped) is (step_ms < DAY_MS)
    await rig.accounts.poll(START_MS + SECOND_MS)
    assert await usable(rig.accounts, header, START_MS + SECOND_MS), "the clock is right again"
    await rig.accounts.poll(START_MS + DAY_MS)
    assert not await usable(rig.accounts, header, START_MS + DAY_MS)


@STEPS
async def test_a_session_made_while_the_clock_was_wrong_lives_for_a_day_of_it(
    rig: Rig, clock: SteppedClock, step_ms: int
) -> None:
    clock.now_ms = made_ms = START_MS + step_ms
    header = await rig.authenticate()
    assert await usable(rig.accounts, header, made_ms)
    for now_ms in (START_MS, made_ms + DAY_MS):
        await rig.accounts.poll(now_ms)
        expected = now_ms < made_ms + DAY_MS
        assert await usable(rig.accounts, header, now_ms) is expected


async def test_a_key_that_expires_after_the_clock_was_ahead_is_told_when_it_does(
    rig: Rig,
) -> None:
    made = await rig.admin.create_key(
        "alice", Tier.BASIC, rig.change(), expires_at_ms=START_MS + HOUR_MS
    )
    notified: list[str] = []
    rig.accounts.on_disabled.subscribe(notified.append)
    await rig.accounts.poll(START_MS)
    await rig.accounts.verify_key(made.text, START_MS)
    await rig.accounts.poll(START_MS + DAY_MS)  # its connections are closed: it seems expired
    assert notified == [made.row.key_id]
    await rig.accounts.poll(START_MS + SECOND_MS)
    await rig.accounts.verify_key(made.text, START_MS + SECOND_MS)  # and it is back
    await rig.accounts.poll(START_MS + HOUR_MS)
    assert notified == [made.row.key_id] * 2


async def test_after_a_step_back_a_suspension_is_heard_of_and_uses_are_noted(rig: Rig) -> None:
    await rig.accounts.poll(START_MS + DAY_MS)
    await rig.accounts.poll(START_MS)
    header = await rig.authenticate()
    await rig.accounts.session(header, START_MS)
    await rig.accounts.poll(START_MS + MINUTE_MS)
    row = await rig.store.accounts.key(rig.key_id)
    assert row is not None
    assert row.last_used_at_ms == START_MS
    await rig.admin.move_key(rig.key_id, "suspend", rig.change())
    await rig.accounts.poll(START_MS + MINUTE_MS + SECOND_MS)
    with pytest.raises(OnebookError):
        await rig.accounts.session(header, START_MS + MINUTE_MS + SECOND_MS)


@STEPS
async def test_a_store_that_does_not_answer_is_noticed_after_a_step(rig: Rig, step_ms: int) -> None:
    await rig.accounts.poll(START_MS)
    await rig.accounts.poll(START_MS + step_ms)
    assert rig.accounts.reachable(START_MS + step_ms + 4_999)
    assert not rig.accounts.reachable(START_MS + step_ms + 5_000)


# Rates


@STEPS
def test_a_step_gives_at_most_one_more_minute_of_a_rate_and_takes_none(step_ms: int) -> None:
    limiter, now_s = RateLimiter(), START_MS / 1_000
    allowed = 0
    while limiter.take("key", Tier.BASIC, now_s).allowed:
        allowed += 1
    assert allowed == 600
    now_s += step_ms / 1_000
    again = 0
    while limiter.take("key", Tier.BASIC, now_s).allowed:
        again += 1
    assert again == 600
    refused = limiter.take("key", Tier.BASIC, now_s)
    assert refused.retry_after_s <= 1
    assert limiter.take("key", Tier.BASIC, now_s + refused.retry_after_s).allowed
