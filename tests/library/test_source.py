"""Sources, iterators and callbacks without sockets: pace, order, skipped updates."""

import asyncio
import gc
import weakref
from collections.abc import Callable

import pytest

from onebook.books import Books
from onebook.clock import Clock, ManualClock
from onebook.config import StreamSettings
from onebook.core import MEMBERS_MAX
from onebook.exchanges.kit import Delta, Snapshot
from onebook.library import BookUpdate
from onebook.library.book import options_of
from onebook.library.source import (
    BasketSource,
    BookCallbacks,
    BookReader,
    BookSource,
    BookUpdates,
    ReaderQueue,
    Wiring,
)
from onebook.model import Health, Instrument, Reason

OPTIONS = options_of(5, 0, None, split=False)
PACED = options_of(5, 1_000, None, split=False)
SYMBOL = "BTC/USDT"


class Desk:
    """The book of one exchange, as its frames change it."""

    def __init__(self, clock: Clock) -> None:
        self.books = Books()
        self.wiring = Wiring(self.books, clock=clock, streams=StreamSettings())
        self.source = BookSource(SYMBOL, ["okx"], self.books, 0.0)
        self.instrument = Instrument("okx", SYMBOL, "BTC-USDT")
        self.books.open(self.instrument)
        self.wiring.attach(self.source, self.instrument)
        self._amount = 1

    def fill(self) -> None:
        snapshot = Snapshot(self.instrument, b'[["100","1"]]', b'[["101","1"]]')
        assert self.books.fill(snapshot, 0.0) is None

    def change(self) -> None:
        self._amount += 1
        delta = Delta(self.instrument, b'[["100","%d"]]' % self._amount)
        assert self.books.change(delta, 0.0) is None

    def invalidate(self) -> None:
        self.books.set_health(self.instrument, Health.STALE, Reason.CHECKSUM, 0.0)


def amount_of(update: BookUpdate | None) -> int | None:
    return int(update.bids[0].amount) if update is not None and update.live else None


async def turn() -> None:
    """Run what the event loop has scheduled so far."""
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_callback_never_sees_a_book_that_its_frame_goes_on_to_refuse() -> None:
    clock = Clock()
    desk = Desk(clock)
    desk.fill()
    seen: list[BookUpdate] = []
    calls = BookCallbacks([desk.source], OPTIONS, clock, seen.append)
    await turn()
    desk.change()
    desk.change()
    assert [amount_of(each) for each in seen] == [1]
    await turn()
    assert [amount_of(each) for each in seen] == [1, 3]
    desk.change()
    desk.invalidate()
    await turn()
    assert [amount_of(each) for each in seen] == [1, 3, None]
    health = seen[-1].exchanges["okx"]
    assert (health.state, health.reason) == ("stale", "checksum")
    calls.close()
    desk.fill()
    await turn()
    assert len(seen) == 3


def read_one(updates: BookUpdates) -> Callable[[], int | None]:
    return lambda: amount_of(updates.next())


def test_an_interval_holds_changes_back_but_no_loss_of_health() -> None:
    clock = ManualClock()
    clock.move_to(100.0)
    desk = Desk(clock)
    desk.fill()
    updates = BookUpdates([desk.source], PACED, clock)
    read = read_one(updates)
    assert (read(), read()) == (1, None)
    clock.move_to(100.25)
    desk.change()
    desk.change()
    assert read() is None
    clock.move_to(100.999)
    assert read() is None
    clock.move_to(101.0)
    assert (read(), read()) == (3, None)
    desk.change()
    assert read() is None
    desk.invalidate()
    lost = updates.next()
    assert lost is not None
    assert not lost.live
    desk.fill()
    assert read() == 1, "a book that is live again is shown at once too"
    clock.move_to(110.0)
    desk.change()
    assert read() == 5, "after a longer pause nothing is held back"
    updates.close()


def test_the_states_that_a_reader_did_not_see_are_counted() -> None:
    desk = Desk(ManualClock())
    desk.fill()
    updates = BookUpdates([desk.source], OPTIONS, ManualClock())
    first = updates.next()
    assert first is not None
    assert first.skipped == 0
    counts = [3, 1, 4]
    for changes in counts:
        for _ in range(changes):
            desk.change()
        update = updates.next()
        assert update is not None
        assert update.skipped == changes - 1
    assert updates.next() is None


def test_on_best_an_update_is_a_changed_best_level() -> None:
    desk = Desk(ManualClock())
    desk.fill()
    options = options_of(5, 0, None, split=False, on="best")
    updates = BookUpdates([desk.source], options, ManualClock())
    assert amount_of(updates.next()) == 1
    desk.books.change(Delta(desk.instrument, b'[["99","7"]]'), 0.0)
    assert updates.next() is None
    desk.change()
    assert amount_of(updates.next()) == 2
    desk.invalidate()
    lost = updates.next()
    assert lost is not None
    assert not lost.live


def test_levels_within_a_distance_of_the_mid_are_all_there_are() -> None:
    desk = Desk(ManualClock())
    desk.fill()
    desk.books.change(Delta(desk.instrument, b'[["99","7"]]'), 0.0)
    options = options_of(5, 0, None, split=False, within="60")
    update = BookUpdates([desk.source], options, ManualClock()).next()
    assert update is not None
    assert [level.price for level in update.bids] == [100]


def test_without_a_visible_change_there_is_no_update() -> None:
    clock = ManualClock()
    desk = Desk(clock)
    desk.fill()
    updates = BookUpdates([desk.source], options_of(1, 0, None, split=False), clock)
    assert amount_of(updates.next()) == 1
    delta = Delta(desk.instrument, b'[["99","1"]]')
    assert desk.books.change(delta, 0.0) is None
    assert updates.next() is None


async def test_an_iterator_that_was_left_is_let_go_after_one_change() -> None:
    clock = Clock()
    desk = Desk(clock)
    desk.fill()
    left = []
    for _ in range(10):
        updates = BookUpdates([desk.source], OPTIONS, clock)
        async for _update in updates:
            break
        left.append(weakref.ref(updates))
    del updates
    desk.change()
    gc.collect()
    assert [each() for each in left] == [None] * 10
    assert not desk.source.clean


async def test_two_tasks_may_not_wait_for_one_iterator() -> None:
    clock = Clock()
    desk = Desk(clock)
    desk.fill()
    updates = BookUpdates([desk.source], OPTIONS, clock)
    await anext(updates)
    first = asyncio.create_task(anext(updates))  # type: ignore[arg-type]
    await turn()
    with pytest.raises(RuntimeError, match="start an iteration in each task"):
        await anext(updates)
    desk.change()
    assert amount_of(await first) == 2
    second = asyncio.create_task(anext(updates))  # type: ignore[arg-type]
    await turn()
    updates.close()
    with pytest.raises(StopAsyncIteration):
        await second


def test_options_out_of_range_are_refused() -> None:
    for depth, interval_ms, group in ((0, 0, None), (501, 0, None), (5, -1, None), (5, 0, "x")):
        with pytest.raises(ValueError, match=r"not|above 0"):
            options_of(depth, interval_ms, group, split=False)
    for within, on in (("x", None), ("0", None), (None, "change")):
        with pytest.raises(ValueError, match=r"not|above 0"):
            options_of(5, 0, None, split=False, within=within, on=on)


def test_a_basket_of_too_many_books_names_those_that_it_leaves_out() -> None:
    exchanges = [f"x{at:02}" for at in range(40)]
    pairs = {
        (exchange, symbol): Instrument(exchange, symbol, symbol)
        for exchange in exchanges
        for symbol in ("BTC/USDT", "BTC/USDC", "USDC/USDT")
    }
    options = options_of(5, 0, None, split=False, quotes=["USDC"])
    source = BasketSource(
        "BTC/USDT", exchanges, Books(), 0.0, lambda *pair: pairs.get(pair), options
    )
    source.read_lists(lambda _: (Reason.NOT_LISTED, ""))
    source.refresh()
    assert len(source.names) == MEMBERS_MAX
    left_out = {each.exchange for each in source.conditions if "at most" in each.detail}
    assert left_out == {each for name in exchanges[32:] for each in (name, f"{name}:USDC")}
    BookReader(source, options, ReaderQueue((), options, ManualClock())).peek(0, 0.0)
