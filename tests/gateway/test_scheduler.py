"""The scheduler calls due targets once a tick, and no removed ones."""

import asyncio
import gc

import pytest

from clocks import sleeping
from onebook.gateway.scheduler import (
    PAUSE_S,
    PAUSES_S,
    TICK_S,
    TURN_S,
    Scheduler,
    Slices,
    Turns,
)
from steady import PATIENCE_S


class Hands:
    """A clock advanced by hand."""

    def __init__(self):
        self.now_s = 100.0
        self.calls = []

    def monotonic(self):
        return self.now_s

    def call_at(self, when, callback):
        self.calls.append((when, callback))


class Target:
    """Records its calls, and returns the next time given by the test."""

    def __init__(self, *following):
        self.called = []
        self.following = list(following)

    def on_time(self, now_s):
        self.called.append(now_s)
        return self.following.pop(0) if self.following else None


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def scheduler(hands):
    return Scheduler(hands, on_tick=lambda: None)


def test_a_target_is_called_in_the_first_tick_after_its_time(hands, scheduler):
    target = Target()
    scheduler.call_by(target, 102.5)
    for now_s in (101.0, 102.0, 103.0, 104.0):
        hands.now_s = now_s
        scheduler.tick()
    assert target.called == [103.0]
    assert not len(scheduler)


def test_the_earliest_time_counts(hands, scheduler):
    target = Target()
    for at_s in (110.0, 101.0, 120.0):
        scheduler.call_by(target, at_s)
    hands.now_s = 101.0
    scheduler.tick()
    hands.now_s = 130.0
    scheduler.tick()
    assert target.called == [101.0]


def test_a_target_says_when_it_is_next_called_and_at_most_once_a_tick(hands, scheduler):
    target = Target(100.0, 105.0)  # the first is past already
    scheduler.call_by(target, 100.0)
    for now_s in (100.0, 101.0, 104.0, 105.0):
        hands.now_s = now_s
        scheduler.tick()
    assert target.called == [100.0, 101.0, 105.0]


def test_a_forgotten_target_is_not_called_also_within_the_tick(hands, scheduler):
    first, second = Target(), Target()
    first.on_time = lambda now_s: scheduler.forget(second)
    scheduler.call_by(first, 100.0)
    scheduler.call_by(second, 100.5)
    hands.now_s = 101.0
    scheduler.tick()
    assert second.called == []
    assert not len(scheduler)


def test_one_that_fails_delays_no_other_and_is_tried_again(hands, scheduler, caplog):
    failing, other = Target(), Target()

    def fail(now_s):
        failing.called.append(now_s)
        raise RuntimeError("a defect")

    failing.on_time = fail
    scheduler.call_by(failing, 100.0)
    scheduler.call_by(other, 100.0)
    scheduler.tick()
    hands.now_s += TICK_S
    scheduler.tick()
    assert failing.called == [100.0, 101.0]
    assert other.called == [100.0]
    assert caplog.text.count("A timer of a connection failed.") == 2


def test_a_target_is_in_one_place_of_the_wheel_and_a_forgotten_one_in_none(hands, scheduler):
    target = Target()
    for step in range(3_000):
        scheduler.call_by(target, 10_000.5 - step)
        assert sum(map(len, scheduler._wheel.values())) == len(scheduler) == 1
    scheduler.forget(target)
    assert not scheduler._wheel
    hands.now_s = 10_001.0
    scheduler.tick()
    assert target.called == []


def test_the_garbage_collector_finds_a_target_in_one_place(scheduler):
    """It visited a hundred thousand in the slots of the wheel, for 15 ms."""
    target = Target()
    known = len(gc.get_referrers(target))
    scheduler.call_by(target, 102.5)
    assert len(gc.get_referrers(target)) == known + 1


class Slow(Target):
    """A target that takes part of a turn of the event loop."""

    def __init__(self, hands, share):
        super().__init__()
        self.hands, self.share = hands, share

    def on_time(self, now_s):
        self.hands.now_s += self.share * TURN_S
        return super().on_time(now_s)


def test_a_long_tick_continues_in_later_turns_and_reports_once():
    hands, reports = Hands(), []
    scheduler = Scheduler(hands, on_tick=lambda: reports.append(hands.now_s))
    targets = [Slow(hands, 0.6) for _ in range(5)]
    for each in targets:
        scheduler.call_by(each, 100.0)
    assert [scheduler.tick() for _ in range(3)] == [True, True, False]
    assert [len(each.called) for each in targets] == [1] * 5
    assert len(reports) == 1


def test_a_target_that_is_moved_or_forgotten_between_two_turns_is_not_called_with_the_old_time():
    hands = Hands()
    scheduler = Scheduler(hands, on_tick=lambda: None)
    slow, moved, gone = Slow(hands, 2.0), Target(), Target()
    for each in (slow, moved, gone):
        scheduler.call_by(each, 100.0)
    assert scheduler.tick()
    scheduler.call_by(moved, 99.0)
    scheduler.forget(gone)
    assert not scheduler.tick()
    assert (moved.called, gone.called) == ([], [])
    scheduler.tick()
    assert len(moved.called) == 1
    assert not len(scheduler)


def test_a_long_tick_pauses_also_at_targets_that_are_not_due():
    """All of a second were sorted out at the start of its tick: 7 ms for 2,500 connections."""
    hands = Hands()
    scheduler = Scheduler(hands, on_tick=lambda: None)
    later = [Target() for _ in range(5)]
    for each in later:
        scheduler.call_by(each, 100.5)
    now_s = iter(range(100))
    hands.monotonic = lambda: 100.0 + next(now_s) * 0.6 * TURN_S
    assert [scheduler.tick() for _ in range(3)] == [True, True, False]
    hands.monotonic = lambda: 101.0
    scheduler.tick()
    assert [len(each.called) for each in later] == [1] * 5


async def test_slices_let_the_loop_turn_when_their_time_is_over():
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    hands = Hands()
    hands.sleep = sleep
    slices = Slices(hands)
    for _ in range(6):
        hands.now_s += 0.4 * TURN_S
        await slices.next()
    assert slept == [0, 0]


def test_short_delays_are_callbacks_of_the_loop(hands, scheduler):
    scheduler.after(0.01, print)
    assert hands.calls == [(100.01, print)]


async def test_it_ticks_once_a_second_also_after_a_tick_that_failed(hands):
    ticks, slept = asyncio.Semaphore(0), []

    def fail():
        ticks.release()
        raise RuntimeError("a defect")

    async def sleep(seconds):
        slept.append(seconds)
        await asyncio.sleep(0)

    async with Scheduler(sleeping(sleep), on_tick=fail), asyncio.timeout(PATIENCE_S):
        for _ in range(3):
            await ticks.acquire()
    assert set(slept) == {TICK_S}


async def test_turns_of_a_long_tick_are_apart_but_delay_neither_the_rest_nor_the_next_tick():
    hands, slept, ticked = Hands(), [], asyncio.Event()
    turns = round(PAUSES_S / PAUSE_S) + 3

    async def sleep(seconds):
        slept.append(seconds)
        await asyncio.sleep(0)

    def tick():
        if len(slept) > turns + 1:
            ticked.set()

    hands.sleep = sleep
    scheduler = Scheduler(hands, on_tick=tick)
    for _ in range(turns):
        scheduler.call_by(Slow(hands, 1.0), hands.now_s)
    async with scheduler, asyncio.timeout(PATIENCE_S):
        await ticked.wait()
    pauses = [PAUSE_S] * round(PAUSES_S / PAUSE_S)
    assert slept[: turns + 2] == [TICK_S, *pauses, 0, 0, 0, pytest.approx(TICK_S - PAUSES_S)]


class Loop:
    """An event loop and a clock advanced by hand."""

    def __init__(self, turn_s=1.0):
        self.now_s = 0.0
        self.soon = []
        self.log = []
        self.turns = Turns(
            turn_s=turn_s,
            monotonic=lambda: self.now_s,
            call_soon=lambda call: self.soon.append(call),
        )

    def turn(self):
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()
        log, self.log = self.log, []
        return log


class TurnReader:
    def __init__(self, loop, name, frames, cost_s=0.0):
        self.loop, self.name, self.frames, self.cost_s = loop, name, frames, cost_s
        self.queued = False
        self.paced = 0

    def read(self, ends_at):
        self.loop.now_s += self.cost_s
        self.frames -= 1
        self.loop.log.append(self.name)
        return self.frames > 0

    def pace_reading(self):
        self.paced += 1


def test_what_is_done_at_once_is_not_queued():
    loop = Loop()
    one = TurnReader(loop, "one", 1)
    loop.turns.read(one)
    assert loop.turn() == ["one"]
    assert (one.queued, one.paced) == (False, 0)
    assert loop.turn() == []
    assert loop.soon == []


def test_each_connection_has_one_share_of_a_turn_and_reads_again_when_it_is_done():
    loop = Loop()
    one, two = TurnReader(loop, "one", 3), TurnReader(loop, "two", 2)
    for each in (one, two, one, two):
        loop.turns.read(each)
    assert loop.turn() == ["one", "two", "one", "two"]
    assert loop.turn() == ["one"]
    assert len(loop.turns) == 0
    assert (one.queued, one.paced) == (False, 2)


def test_a_turn_ends_with_its_time_and_the_next_begins_with_the_one_that_waited():
    loop = Loop(turn_s=1.0)
    readers = [TurnReader(loop, name, 4, cost_s=0.6) for name in "abc"]
    for each in readers:
        loop.turns.read(each)
    assert loop.log == ["a", "b"]
    loop.log.clear()
    assert [loop.turn() for _ in range(3)] == [["a", "b"], ["c", "a"], ["b", "c"]]


def test_what_costs_a_turn_leaves_the_rest_to_the_next():
    loop = Loop()
    one, two = TurnReader(loop, "one", 1), TurnReader(loop, "two", 1)
    loop.turns.read(one)
    loop.turns.spend()
    loop.turns.read(two)
    assert (loop.log, two.queued) == (["one"], True)
    loop.log.clear()
    assert loop.turn() == ["two"]


def test_one_that_is_gone_has_no_turn():
    loop = Loop()
    one = TurnReader(loop, "one", 5)
    loop.turns.read(one)
    loop.turns.forget(one)
    loop.turns.forget(one)
    assert loop.turn() == ["one"]
    assert loop.turn() == []
