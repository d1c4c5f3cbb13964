"""The library on simulated exchanges, over real sockets: first data, states, order, end."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import onebook
from library.place import PATIENCE_S, SYMBOL, feeds, shown, truth, until
from onebook.exchanges import EXCHANGES
from onebook.feeds.limits import FeedLimits
from onebook.library import (
    BookClosed,
    BookUpdate,
    ExchangeSettings,
    FeedSettings,
    Health,
    NoLiveBook,
    Reason,
    StreamSettings,
    UnknownExchange,
    UnknownSymbol,
)
from onebook.library.engine import BookEngine
from onebook.library.source import BookOptions, BookUpdates
from onebook.simulator import SimulatedExchanges

NAMES = ["okx", "kraken"]
DEPTH = 30


@pytest.fixture
async def sim() -> AsyncIterator[SimulatedExchanges]:
    async with SimulatedExchanges(NAMES, seed=11, rate_hz=0) as sim:
        for name in NAMES:
            sim[name].admit_all()
        yield sim


def open_sockets() -> int:
    folder = Path("/proc/self/fd")
    links = [os.readlink(each) for each in folder.iterdir() if each.exists()]
    return sum(link.startswith("socket:") for link in links)


def named() -> set[str]:
    """Onebook's tasks, recognised by their names."""
    names = (task.get_name() for task in asyncio.all_tasks())
    return {name for name in names if not name.startswith("Task-")}


async def test_the_merged_book_is_the_sum_of_what_the_exchanges_published(
    sim: SimulatedExchanges,
) -> None:
    async with onebook.order_book(
        SYMBOL, exchanges=NAMES, depth=DEPTH, split=True, feeds=feeds(sim)
    ) as book:
        updates = aiter(book)
        first = await anext(updates)
        assert (first.number, first.symbol, first.live) == (1, SYMBOL, True)
        whole = await until(aiter(book), lambda each: each.stale == ())
        assert shown(whole) == shown(book.snapshot()) == truth(sim, NAMES, DEPTH)
        for _ in range(5):
            sim.step()
            expected = truth(sim, NAMES, DEPTH)
            update = await until(updates, lambda each, true=expected: shown(each) == true)  # type: ignore[misc]
        parts = {name: dict(sim[name].book(SYMBOL).bids) for name in NAMES}
        for level in update.bids:
            assert sum(level.amounts) == level.amount
            for name, amount in zip(level.exchanges, level.amounts, strict=True):
                own = {Decimal(price): Decimal(each) for price, each in parts[name].items()}
                assert own[level.price] == amount
        assert [each.state for each in update.exchanges.values()] == [Health.LIVE] * 2
        kraken = sim["kraken"].book(SYMBOL)
        horizon = update.exchanges["kraken"].horizon
        assert horizon.bid == min(map(Decimal, kraken.bids))
        assert update.horizon.bid is not None
        assert update.horizon.bid >= horizon.bid


async def test_an_exchange_that_is_lost_is_left_out_at_once_and_comes_back(
    sim: SimulatedExchanges,
) -> None:
    options: dict[str, Any] = {"exchanges": NAMES, "depth": DEPTH, "feeds": feeds(sim)}
    async with onebook.order_book(SYMBOL, interval_ms=3_600_000, **options) as book:
        updates = aiter(book)
        await until(updates, lambda each: each.stale == ())
        await sim["kraken"].stop()
        # The interval is an hour: only what changes who is shown comes before.
        lost = await until(updates, lambda each: each.stale == ("kraken",))
        assert shown(lost) == truth(sim, ["okx"], DEPTH)
        health = lost.exchanges["kraken"]
        assert not health.shown
        assert health.state is not Health.LIVE
        assert health.reason is not None
        assert health.age_s is None
        await sim["okx"].stop()
        nothing = await until(updates, lambda each: not each.live)
        assert shown(nothing) == ([], [])
        assert (nothing.best_bid, nothing.best_ask, nothing.mid, nothing.spread) == (None,) * 4
        assert nothing.stale == ("okx", "kraken")
        await sim["okx"].start()
        await until(updates, lambda each: each.stale == ("kraken",))


async def test_a_slow_consumer_gets_the_newest_book_and_nothing_in_between(
    sim: SimulatedExchanges,
) -> None:
    async with onebook.order_book(SYMBOL, exchanges=NAMES, depth=DEPTH, feeds=feeds(sim)) as book:
        await until(aiter(book), lambda each: each.stale == ())
        updates = aiter(book)
        first = await anext(updates)
        for _ in range(50):
            sim.step()
        newest = truth(sim, NAMES, DEPTH)
        async with asyncio.timeout(PATIENCE_S):
            while shown(book.snapshot()) != newest:
                await asyncio.sleep(0.01)
        second = await anext(updates)
        assert (second.number, shown(second)) == (first.number + 1, newest)
        sim.step()
        expected = truth(sim, NAMES, DEPTH)
        await until(updates, lambda each: shown(each) == expected)


async def test_a_fill_is_over_whole_books_whatever_the_depth(sim: SimulatedExchanges) -> None:
    async with onebook.order_book(
        SYMBOL, exchanges=NAMES, depth=1, group="50", feeds=feeds(sim)
    ) as book:
        await until(aiter(book), lambda each: each.stale == ())
        orders = sorted(
            (Decimal(price), -Decimal(amount), name)
            for name in NAMES
            for price, amount in dict(sim[name].book(SYMBOL).asks).items()
        )[:12]
        wanted = sum(-amount for _, amount, _ in orders)
        fill = book.fill("buy", amount=wanted)
        assert fill.complete
        assert fill.amount == wanted
        assert fill.worst == orders[-1][0]
        assert fill.notional == sum(price * -amount for price, amount, _ in orders)
        for name, part in fill.split.items():
            assert part.amount == sum(-amount for _, amount, each in orders if each == name)
        refused: dict[str, Any] = {
            "either": {},
            "float": {"amount": 0.5},
            "0.5": {"notional": "-1"},
        }
        for words, options in refused.items():
            with pytest.raises(ValueError, match=words):
                book.fill("sell", **options)
        with pytest.raises(ValueError, match="split"):
            book.snapshot().fill("buy", amount=1)


async def test_leaving_closes_every_socket_and_ends_every_task_and_iteration(
    sim: SimulatedExchanges,
) -> None:
    settings = feeds(sim)
    async with onebook.order_book(SYMBOL, exchanges=NAMES, feeds=settings):
        pass  # what is made once is made now
    tasks, sockets = asyncio.all_tasks(), open_sockets()
    assert not named()
    called = asyncio.Event()
    async with onebook.order_books([SYMBOL, "ETH/USDT"], exchanges=NAMES, feeds=settings) as books:
        assert named() >= {"feeds sweep", "feed okx", "feed kraken"}
        assert open_sockets() > sockets
        read = asyncio.create_task(_all(aiter(books)))
        run = asyncio.create_task(books.run(lambda update: called.set()))
        async with asyncio.timeout(PATIENCE_S):
            await called.wait()
    assert not named()
    async with asyncio.timeout(PATIENCE_S):
        assert {each.symbol for each in await read} == {SYMBOL, "ETH/USDT"}
        await run
        while open_sockets() > sockets or not asyncio.all_tasks() <= tasks:
            await asyncio.sleep(0.01)  # the simulator's own half of each connection
    with pytest.raises(BookClosed, match="inside of its `async with`"):
        books.snapshots()


async def _all(updates: AsyncIterator[BookUpdate]) -> list[BookUpdate]:
    return [update async for update in updates]


async def test_another_event_loop_cannot_read_the_book(sim: SimulatedExchanges) -> None:
    async with onebook.order_book(SYMBOL, exchanges="okx", feeds=feeds(sim)) as book:
        for reading in (lambda: _all(aiter(book)), lambda: book.run(print)):
            with pytest.raises(RuntimeError, match="opened on another event loop"):
                await asyncio.to_thread(lambda read=reading: asyncio.run(_at_once(read)))


async def _at_once(read: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        await read()


async def test_a_failure_inside_of_the_block_closes_everything_too(
    sim: SimulatedExchanges,
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with onebook.order_book(SYMBOL, exchanges="okx", feeds=feeds(sim)):
            raise ZeroDivisionError
    assert not named()


async def test_a_callback_gets_every_change_until_it_raises(sim: SimulatedExchanges) -> None:
    seen: list[BookUpdate] = []
    enough = asyncio.Event()

    def callback(update: BookUpdate) -> None:
        seen.append(update)
        if len(seen) == 4:
            enough.set()
            raise KeyError("enough")

    async with onebook.order_book(SYMBOL, exchanges="kraken", depth=5, feeds=feeds(sim)) as book:
        running = asyncio.create_task(book.run(callback))
        async with asyncio.timeout(PATIENCE_S):
            while not enough.is_set():
                sim.step()
                await asyncio.sleep(0.01)
            with pytest.raises(KeyError, match="enough"):
                await running
        assert [each.number for each in seen] == [1, 2, 3, 4]
        assert len({tuple(each.bids.ints() + each.asks.ints()) for each in seen}) == 4

        async def coroutine(update: BookUpdate) -> None: ...

        with pytest.raises(TypeError, match="use `async for`"):
            await book.run(coroutine)


async def test_a_repr_is_short_and_says_whether_the_book_is_open(sim: SimulatedExchanges) -> None:
    book = onebook.order_book(SYMBOL, exchanges=NAMES, feeds=feeds(sim))
    assert repr(book) == f"<OrderBook {SYMBOL} (okx, kraken): not open>"
    async with book:
        assert repr(book) == f"<OrderBook {SYMBOL} (okx, kraken): open>"
    every = onebook.order_books([SYMBOL, "ETH/USDT"])
    assert repr(every).startswith(f"<OrderBooks {SYMBOL}, ETH/USDT (")
    assert repr(every).endswith(f" and {len(every.exchanges) - 5} more): not open>")


async def test_books_of_single_exchanges_and_of_several_symbols(sim: SimulatedExchanges) -> None:
    symbols = (SYMBOL, "ETH/USDT")
    async with onebook.order_books(
        symbols, exchanges=NAMES, merged=False, depth=DEPTH, feeds=feeds(sim)
    ) as books:
        got = {}

        def take(update: BookUpdate) -> bool:
            if update.live:
                got[update.symbol, update.exchange] = shown(update)
            return len(got) == len(symbols) * len(NAMES)

        await until(aiter(books), take)
        assert [each.symbol for each in books.snapshots()] == [SYMBOL] * 2 + ["ETH/USDT"] * 2
    assert got == {
        (symbol, name): truth(sim, [name], DEPTH, symbol) for symbol in symbols for name in NAMES
    }


async def test_an_exchange_that_does_not_list_the_symbol_is_reported(
    sim: SimulatedExchanges,
) -> None:
    async with SimulatedExchanges(["binance"], seed=11, rate_hz=0) as other:
        settings = feeds(sim)
        overrides = {**settings.overrides, **feeds(other).overrides}
        settings = settings.model_copy(update={"overrides": overrides})
        async with onebook.order_book(
            "BTC/USD", exchanges=["binance", "okx"], feeds=settings
        ) as book:
            update = await until(
                aiter(book), lambda each: each.exchanges["binance"].reason is Reason.NOT_LISTED
            )
    assert update.exchanges["binance"].state is Health.OFFLINE
    assert update.stale == ("binance",)


async def test_an_exchange_whose_list_comes_late_joins(sim: SimulatedExchanges) -> None:
    sim["okx"].fail_rest(404)
    limits = FeedLimits(reload_retry_s=1.0)
    engine = BookEngine(NAMES, feeds=feeds(sim), streams=StreamSettings(), limits=limits)
    async with engine:
        sources = [engine.source(SYMBOL, NAMES, BookOptions(20, None, split=False, interval_s=0))]
        options = BookOptions(DEPTH, None, split=False, interval_s=0.0)
        updates = BookUpdates(sources, options, engine.clock)
        update = await until(updates, lambda each: each.stale == ())
        assert shown(update) == truth(sim, NAMES, DEPTH)


async def test_another_coin_under_the_same_letters_is_not_merged() -> None:
    names = ["okx", "kraken", "binance", "bybit"]
    async with SimulatedExchanges(names, seed=3, rate_hz=0) as sim:
        sim["okx"].relist(SYMBOL, 2_000_000)
        async with onebook.order_books(
            [SYMBOL],
            exchanges=names,
            depth=DEPTH,
            feeds=feeds(sim),
        ) as books:
            update = await until(
                aiter(books),
                lambda each: (
                    each.stale == ("okx",)
                    and each.exchanges["okx"].reason is Reason.IDENTITY_CONFLICT
                ),
            )
            assert shown(update) == truth(sim, names[1:], DEPTH)
            assert update.exchanges["okx"].state is Health.STALE


async def test_names_that_are_not_listed_raise_with_near_ones(sim: SimulatedExchanges) -> None:
    book = onebook.order_book("BTC/USTD", exchanges=NAMES, feeds=feeds(sim))
    with pytest.raises(UnknownSymbol, match=r"okx, kraken lists BTC/USTD. Did you mean .*BTC/USDT"):
        await book.__aenter__()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": "10"}, "depth must be a whole number, not '10'."),
        ({"interval_ms": "100"}, "interval_ms must be a number, not '100'."),
        ({"timeout_s": None}, "timeout_s must be a number, not None."),
        (
            {"group": Decimal("0.5")},
            "group must be decimal text such as \"0.5\", not Decimal('0.5').",
        ),
        ({"exchanges": 5}, "exchanges must be text such as okx, or a list of them, not 5."),
        (
            {"exchanges": ["okx", None]},
            "exchanges must be text such as okx, or a list of them, not None.",
        ),
        ({"feeds": {}}, "feeds must be a FeedSettings, not {}."),
        ({"streams": 1}, "streams must be a StreamSettings, not 1."),
    ],
)
def test_an_option_of_another_type_is_named(options: dict[str, Any], message: str) -> None:
    for opened in (onebook.order_book, onebook.order_books):
        with pytest.raises(TypeError) as raised:
            opened(SYMBOL, **options)
        assert str(raised.value) == message


def test_a_symbol_that_is_none_is_named_before_anything_is_connected() -> None:
    with pytest.raises(
        TypeError, match=r"^symbol must be text such as BTC/USDT, not .*order_books"
    ):
        onebook.order_book([SYMBOL])  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"^symbols must be text such as BTC/USDT, or a list of them"
    ):
        onebook.order_books([SYMBOL, 1])  # type: ignore[list-item]
    for empty in ("", " ", []):
        with pytest.raises(ValueError, match=r"^symbols is empty: give at least one"):
            onebook.order_books(empty)


async def test_a_callback_that_ends_an_iterator_or_cancels_ends_run(
    sim: SimulatedExchanges,
) -> None:
    """No future takes a StopIteration, and a CancelledError is no Exception."""
    calls = 0

    def exhausted(update: BookUpdate) -> None:
        nonlocal calls
        calls += 1
        next(iter(()))

    def cancelled(update: BookUpdate) -> None:
        nonlocal calls
        calls += 1
        raise asyncio.CancelledError

    class Later:
        async def __call__(self, update: BookUpdate) -> None:
            """Never awaited."""

    async with onebook.order_book(SYMBOL, exchanges=NAMES, feeds=feeds(sim)) as book:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(RuntimeError, match=r"^The callback raised StopIteration"):
                await book.run(exhausted)
            with pytest.raises(asyncio.CancelledError):
                await book.run(cancelled)
            with pytest.raises(TypeError, match="use `async for` over the book"):
                await book.run(Later())
        sim.step()
        await until(aiter(book), lambda each: each.live)
    assert calls == 2


@pytest.mark.parametrize(
    ("exchanges", "names"),
    [
        (None, [*EXCHANGES]),
        ("all", [*EXCHANGES]),
        (" ALL ", [*EXCHANGES]),
        (["all", "-okx", "-Huobi"], [name for name in EXCHANGES if name not in ("okx", "htx")]),
        (["-okx", "all", "okx"], [name for name in EXCHANGES if name != "okx"]),
        (["okx", "kraken", "okx", "-kraken"], ["okx"]),
        (("gateio",), ["gate"]),
    ],
)
def test_exchanges_are_named_as_in_a_subscription(
    exchanges: str | list[str] | None, names: list[str]
) -> None:
    assert [*onebook.order_book(SYMBOL, exchanges=exchanges).exchanges] == names


@pytest.mark.parametrize(
    ("exchanges", "error", "message"),
    [
        ([], ValueError, 'give at least one, or "all"'),
        ("-okx", ValueError, 'give at least one, or "all"'),
        (["okx", "-okx"], ValueError, "excludes every exchange"),
        (["all", "-okay"], UnknownExchange, "Unknown exchange 'okay'. Did you mean okx"),
        (["all", "okay"], UnknownExchange, "Unknown exchange 'okay'. Did you mean okx"),
    ],
)
def test_a_list_of_exchanges_without_any_is_refused(
    exchanges: str | list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        onebook.order_book(SYMBOL, exchanges=exchanges)


async def test_nothing_hangs_where_no_book_comes(sim: SimulatedExchanges) -> None:
    sim["okx"].ack_without_snapshot(SYMBOL)
    book = onebook.order_book(SYMBOL, exchanges="okx", feeds=feeds(sim), timeout_s=1.0)
    with pytest.raises(NoLiveBook, match=r"within 1 s\. BTC/USDT on okx: \w+, \w+"):
        await book.__aenter__()
    sim["kraken"].refuse(SYMBOL)
    book = onebook.order_book(SYMBOL, exchanges="kraken", feeds=feeds(sim))
    with pytest.raises(NoLiveBook, match=r"can become live. BTC/USDT on kraken: offline, refused"):
        async with asyncio.timeout(PATIENCE_S):
            await book.__aenter__()
    assert not named()


async def test_an_exchange_that_cannot_be_reached_is_said_so(unused_tcp_port: int) -> None:
    nowhere = ExchangeSettings(
        ws_url=f"ws://127.0.0.1:{unused_tcp_port}/", rest_url=f"http://127.0.0.1:{unused_tcp_port}"
    )
    settings = FeedSettings(overrides={"okx": nowhere})
    said = r"BTC/USDT on okx: (syncing, subscribing|offline, unreachable) \(its instrument list "
    with pytest.raises(NoLiveBook, match=said):
        async with onebook.order_book(SYMBOL, exchanges="okx", feeds=settings, timeout_s=0.5):
            pass
