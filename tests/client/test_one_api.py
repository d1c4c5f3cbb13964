"""One strategy on the library and on a service, over the same exchanges: equal results."""

import asyncio
import os
import runpy
import signal
import sys
import threading
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

import onebook
from client.place import NAMES, place
from library.place import SYMBOL, truth
from onebook import exchanges
from onebook.client import AsyncOnebook, BookView, Onebook, OrderBookState, Refused, Unavailable
from onebook.client.books import is_settled
from onebook.fees import fee_table, fees_of
from onebook.library import BookClosed, Health, NoLiveBook, UnknownExchange, UnknownSymbol
from onebook.routes import Rules
from steady import PATIENCE_S

ROOT = Path(__file__).parents[2]
ORDERED = sorted(NAMES)
DEPTH = 50


@pytest.fixture
async def rig(tmp_path, monkeypatch):
    async with asyncio.timeout(PATIENCE_S * 3), place(tmp_path, rate_hz=0) as found:
        for name, exchange in found.simulated.exchanges().items():
            monkeypatch.setitem(exchanges.EXCHANGES, name, exchange)
            found.simulated[name].admit_all()
        yield found


@pytest.fixture
async def sources(rig):
    async with AsyncOnebook(rig.url, rig.key) as client:
        yield onebook, client


def pairs(side):
    return [(level.price, level.amount) for level in side]


def seen(book):
    """Everything that both have in common, except times."""
    assert isinstance(book, OrderBookState)
    best = book.best_bid, book.best_ask, book.mid, book.spread, book.crossed
    levels = [tuple(level) for level in (*book.bids, *book.asks)]
    ccxt = {name: book.to_ccxt()[name] for name in ("symbol", "bids", "asks", "nonce")}
    sides = [
        (each.decimals(), each.floats(), each.attributions(), exact(each), len(each), each[:3])
        for each in (book.bids, book.asks)
    ]
    health = {name: each._replace(age_s=fresh(each)) for name, each in book.exchanges.items()}
    return (
        book.symbol, best, levels, ccxt, sides, health, book.horizon, book.live, book.stale,
        book.problem,
    )  # fmt: skip


def exact(side):
    """The levels of a side as numbers; the scales of the two may differ."""
    prices, amounts = Decimal(1).scaleb(-side.price_scale), Decimal(1).scaleb(-side.amount_scale)
    return [(price * prices, amount * amounts) for price, amount in side.ints()]


def fresh(health):
    """Whether the data of an exchange has an age, as every shown one has."""
    assert health.age_s is None or 0 <= health.age_s < PATIENCE_S
    return health.age_s is not None


async def settled(books, done):
    """Read until a condition holds."""
    if not done():
        async for _ in books:
            if done():
                return


async def until(updates, expected):
    """Read until the book equals the exchanges'."""
    async for update, cost in updates:
        if (pairs(update.bids), pairs(update.asks)) == expected and update.stale == ():
            return update, cost
    raise AssertionError("the updates ended")


async def test_one_strategy_has_equal_results_on_both(rig, sources):
    costs = runpy.run_path(str(ROOT / "examples/strategy.py"))["costs"]
    library, service = (costs(source, SYMBOL, ORDERED, "2.5") for source in sources)
    async with aclosing(library), aclosing(service):
        for _ in range(5):
            rig.simulated.step()
            expected = truth(rig.simulated, ORDERED, DEPTH)
            ours, our_cost = await until(library, expected)
            theirs, their_cost = await until(service, expected)
            assert seen(ours) == seen(theirs)
            assert our_cost == their_cost
            assert our_cost.complete
            assert len(our_cost.split) == 2
            # Far more than the levels hold: the exchanges with a horizon may have more.
            assert ours.fill("sell", notional=10**12) == theirs.fill("sell", notional=10**12)


FEES = {"*": "0.1", "kraken": "0.26"}
BASKET = {"quotes": ["USDC", "USD"], "split": True, "exchanges": ORDERED}


async def test_a_net_book_its_crossings_and_unknown_fees_are_equal_on_both(rig, sources):
    alone = {"kraken": "-1"}  # a rebate beyond the spread: kraken crosses itself
    for fees, chosen in (
        (FEES, {"net": True}),
        (FEES, {"net": True, "group": "25"}),
        (FEES, {"split": True}),
        (alone, {"net": True, "crossings": "0"}),
        (alone, {"split": True, "crossings": "0.5", "on": "crossing"}),
    ):
        options = {"exchanges": ORDERED, "depth": DEPTH, "fees": fees, **chosen}
        found = []
        for source in sources:
            extra = {} if source is onebook else {"ages": True, "coverage": True}
            async with source.order_book(SYMBOL, **options, **extra) as book:
                named = set(ORDERED) if "*" in fees else {"kraken"}
                await settled(
                    book,
                    lambda book=book, named=named: set(book.snapshot().stale).isdisjoint(named),
                )
                update = await anext(aiter(book))
                assert {*update.stale} == {*ORDERED} - named
                for name in update.stale:
                    assert update.exchanges[name].reason == "unknown_fee"
                crossed = [
                    (each.buy, each.sell, each.crossing, each.buy_age_ms >= 0)
                    for each in update.crossings
                ]
                assert bool(crossed) == ("crossings" in chosen)
                levels = (*update.bids, *update.asks)
                gross = [getattr(level, "gross", None) for level in levels]
                found.append((seen(update), gross, crossed))
        assert found[0] == found[1]
        assert any(gross for gross in found[0][1]) == ("net" in chosen and "group" not in chosen)


async def test_published_fees_are_equal_on_both(rig, sources):
    for chosen in (
        {"net": True},
        {"split": True, "crossings": "0"},
        {**BASKET, "net": True},
        BASKET,
    ):
        options = {"exchanges": ORDERED, "depth": 500, "fees": "published", **chosen}
        found = []
        for source in sources:
            extra = {} if source is onebook else {"ages": True, "coverage": True}
            async with source.order_book(SYMBOL, **options, **extra) as book:
                await settled(book, lambda book=book: {*book.snapshot().stale} == {"okx"})
                update = book.snapshot()
                assert update.exchanges["okx"].reason == "unknown_fee"
                assert {each.percent for each in update.published_fees} == {"0.26"}
                routes = []
                if "net" not in chosen:
                    routes = [
                        (
                            place.route("buy", amount="2.5", fees="published"),
                            place.route("buy", amount="2.5", fees=table),
                        )
                        for place in (book, update)
                        for table in [{"kraken": "0.26"}]
                    ]
                    assert all(stated == given for stated, given in routes)
                found.append((seen(update), update.published_fees, routes))
        assert found[0] == found[1]
        assert len(found[0][1]) == (5 if "quotes" in chosen else 1)


async def test_a_route_by_published_fees_needs_no_other_option_in_the_library(rig):
    async with onebook.order_book(SYMBOL, exchanges=ORDERED) as book:
        await settled(book, lambda: not book.snapshot().stale)
        stated = book.route("buy", amount="2.5", fees="published")
        assert stated == book.route("buy", amount="2.5", fees={"kraken": "0.26"})
        assert [*stated.split] == ["kraken"]
    async with onebook.order_book(SYMBOL, exchanges=["okx"]) as book:
        with pytest.raises(ValueError, match="No exchange of this book has a published fee"):
            book.route("buy", amount="2.5", fees="published")
    with pytest.raises(NoLiveBook, match="okx: offline, unknown_fee"):
        async with onebook.order_book(SYMBOL, exchanges=["okx"], fees="published"):
            pass


async def test_an_exchange_joins_a_book_in_the_library_when_its_list_states_a_fee(rig):
    async with onebook.order_book(SYMBOL, exchanges=ORDERED, fees="published") as book:
        await settled(book, lambda: book.snapshot().stale == ("okx",))
        lists = book._engine.catalogue
        stated = [msgspec.structs.replace(each, taker_fee="0.1") for each in lists.listed("okx")]
        lists.update("okx", stated)
        lists.on_read("okx")
        await settled(book, lambda: not book.snapshot().stale)
        assert {each.exchange for each in book.snapshot().published_fees} == {*ORDERED}


async def test_a_route_by_published_fees_needs_a_book_with_them(sources):
    for source in sources:
        async with source.order_book(SYMBOL, exchanges=ORDERED, split=True) as book:
            await settled(book, lambda book=book: not book.snapshot().stale)
            routes = [book.snapshot().route]
            routes += [book.route] if source is not onebook else []
            for route in routes:
                with pytest.raises(ValueError, match='no published fees: open it with fees="publ'):
                    route("buy", amount="2.5", fees="published")


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"fees": FEES, "net": True},
        {"fees": {"*": "0", "kraken": "0.26"}},
        {"fees": {"kraken": "0.26"}, "net": True, "group": "25"},
    ],
)
async def test_a_basket_is_equal_on_both(rig, sources, chosen):
    rig.simulated.step()
    found = []
    for source in sources:
        extra = {} if source is onebook else {"ages": True, "coverage": True}
        async with source.order_book(SYMBOL, depth=DEPTH, **BASKET, **chosen, **extra) as book:
            left_out = {"okx"} if chosen.get("fees", {"*": "0"}).keys() == {"kraken"} else set()
            await settled(book, lambda book=book, out=left_out: {*book.snapshot().stale} == out)
            update = book.snapshot()
            if left_out:
                assert update.exchanges["okx"].reason == "unknown_fee"
            steps = [each._replace(age_ms=each.age_ms >= 0) for each in update.conversions]
            found.append((seen(update), steps))
            route = {"amount": "2.5", "fees": FEES}
            if chosen.get("fees") == FEES:
                continue  # a net book of a service has no gross prices to route by
            if source is onebook:
                assert book.route("buy", **route).complete
            elif "net" not in chosen:
                with pytest.raises(ValueError, match="open it with the fees of the route"):
                    book.route("buy", **route)
    assert found[0] == found[1]
    assert {step.symbol for step in found[0][1]} == {"USDC/USDT", "USDT/USD"}


async def test_the_route_of_a_basket_pays_for_its_conversions_on_both(rig, sources):
    rig.simulated.step()
    fees = {"*": "0.1", "kraken": "0.05"}
    for chosen in ({}, {"exclude": ["okx"]}, {"max_exchanges": 2}):
        found = []
        for source in sources:
            # The library converts after the fees of the route, whatever those of the book.
            opened = {} if source is onebook else {"fees": fees, "coverage": True}
            async with source.order_book(SYMBOL, depth=500, **BASKET, **opened) as book:
                await settled(book, lambda book=book: not book.snapshot().stale)
                for way in ("buy", "sell"):
                    route = book.route(way, amount="25", fees=fees, **chosen)
                    free = book.route(way, amount="25", fees={"*": "0"}) if not opened else None
                    found.append(route)
                    if free is not None:
                        assert (route.net > free.net) == (way == "buy")
        assert found[:2] == found[2:]
        converted = {name for route in found for name in route.split if ":" in name}
        assert bool(converted) == ("max_exchanges" not in chosen)


async def test_a_book_that_nothing_converts_is_left_out_on_both(rig, sources):
    reasons = []
    for source in sources:
        options = {**BASKET, "exchanges": ["okx"], "ages": True, "coverage": True}
        async with source.order_book(SYMBOL, **options) as book:
            await settled(book, lambda book=book: book.snapshot().stale == ("okx:USD",))
            reasons.append(book.snapshot().exchanges["okx:USD"])
    assert reasons[0] == reasons[1]
    assert reasons[0].reason == "no_conversion"


@pytest.mark.parametrize(
    "chosen",
    [
        {"amount": "2.5"},
        {"amount": "2.5", "max_exchanges": 1},
        {"notional": 20_000, "exclude": ["okx"]},
        {"amount": "3", "limit": "1"},
        {"amount": "1.0005", "rules": {"kraken": Rules(Decimal("0.25")), "okx": Rules(Decimal(1))}},
    ],
)
async def test_a_route_is_equal_on_both_and_in_the_blocking_form(rig, sources, chosen):
    found = []
    for source in sources:
        options = {"exchanges": ORDERED, "depth": 500, "split": True}
        async with source.order_book(SYMBOL, **options, coverage=True) as book:
            await settled(book, lambda book=book: not book.snapshot().stale)
            for direction in ("buy", "sell"):
                route = book.route(direction, fees=FEES, **chosen)
                assert route == book.snapshot().route(direction, fees=FEES, **chosen)
                found.append(route)

    def blocking():
        with (
            Onebook(rig.url, rig.key) as client,
            client.order_book(SYMBOL, **options, coverage=True) as book,
        ):
            for _ in book:
                if not book.snapshot().stale:
                    break
            return [book.route(each, fees=FEES, **chosen) for each in ("buy", "sell")]

    found += await asyncio.to_thread(blocking)
    assert found[:2] == found[2:4] == found[4:]
    assert found[0].complete == (not {"limit", "rules"} & {*chosen})


async def test_a_route_that_unsubscribed_levels_may_change_is_refused(rig, sources):
    _, client = sources
    options = {"exchanges": ORDERED, "split": True, "coverage": True}
    async with client.order_book(SYMBOL, depth=1, **options) as book:
        await settled(book, lambda: not book.snapshot().stale)
        best = book.snapshot().asks[0]
        assert book.route("buy", amount=best.amount / 2, fees={"*": "0"}).complete
        refused = [
            {"amount": 10**6, "fees": FEES},  # too few levels
            {"amount": best.amount, "fees": {best.exchanges[0]: "10", "*": "0"}},
        ]
        for each in refused:
            with pytest.raises(ValueError, match="do not decide this route"):
                book.route("buy", **each)
        limit = best.price - 1  # all levels within it are subscribed
        assert not book.route("buy", amount=10**6, fees=FEES, limit=limit).complete
    async with client.order_book(SYMBOL, group="50", **options) as book:
        with pytest.raises(ValueError, match="without group"):
            book.route("buy", amount=1, fees=FEES)


@pytest.mark.parametrize(
    ("fees", "chosen", "settled"),
    [
        ({"*": "0"}, {"amount": 2}, True),
        ({"*": "0"}, {"amount": 5}, False),  # more than these levels hold
        ({"okx": "1", "*": "0"}, {"amount": 2}, True),  # kraken, and then nothing is below 101
        ({"kraken": "1", "*": "0"}, {"amount": 4}, False),  # okx may have more below 102.01
        ({"*": "0"}, {"amount": 2, "max_exchanges": 1}, False),  # okx may have more at 101
        ({"*": "0"}, {"amount": "0.5", "max_exchanges": 1}, True),
        ({"*": "0"}, {"amount": 5, "limit": 100}, True),
        ({"kraken": "0"}, {"amount": "2.5", "rules": {"kraken": Rules(Decimal(1))}}, False),
        ({"kraken": "0"}, {"amount": "1.5", "rules": {"kraken": Rules(Decimal(1))}}, True),
    ],
)
def test_levels_settle_a_route_that_no_further_level_can_improve(fees, chosen, settled):
    view = BookView("BTC/USDT")
    parts = [[100, 1, [["okx", 1]]], [101, 3, [["kraken", 3]]]]
    stats = {"bids": [], "asks": parts, "market_stats": {}, "stale_exchanges": []}
    view.apply(
        {"type": "aggregated_orderbook_update", "data": stats, "timestamp": "", "update_number": 1}
    )
    route = view.route("buy", fees=fees, **chosen)
    known = fees_of(fee_table(fees), ("okx", "kraken"), "BTC/USDT").known
    assert (
        is_settled(route, view.asks, known, chosen.get("limit"), chosen.get("rules", {})) == settled
    )


async def test_each_exchange_may_have_a_book_of_its_own_on_both(rig, sources):
    rig.simulated.step()
    for chosen, names in ((ORDERED, ORDERED), ("okx", ["okx"])):
        found = []
        for source in sources:
            options = {"exchanges": chosen, "merged": False, "depth": 5, "split": True}
            async with source.order_books([SYMBOL, "ETH/USDT"], **options) as books:
                assert books.symbols == (SYMBOL, "ETH/USDT")
                assert [*books.exchanges] == names
                await settled(books, lambda: all(each.live for each in books.snapshots()))
                snapshots = books.snapshots()
                assert [(each.symbol, each.exchange) for each in snapshots] == [
                    (symbol, name) for symbol in books.symbols for name in names
                ]
                for each in snapshots:
                    sides = [each.exchange] * len(each.bids)
                    assert [name for (name,) in each.bids.attributions()] == sides
                found.append([seen(each) for each in snapshots])
        assert found[0] == found[1]


async def test_the_books_of_all_exchanges_of_a_service_are_apart_too(sources):
    _, client = sources
    for chosen, names in (("all", ORDERED), (["all", "-okx"], ["kraken"]), (["-kraken"], ["okx"])):
        async with client.order_books(SYMBOL, exchanges=chosen, merged=False) as books:
            assert sorted(books.exchanges) == names
            assert sorted(each.exchange for each in books.snapshots()) == names
            assert all(each.live for each in books.snapshots())
    for none in ([], ["all", "-okx", "-kraken"]):
        with pytest.raises(ValueError, match="exchanges: none is left"):
            async with client.order_books(SYMBOL, exchanges=none, merged=False):
                pass


async def test_a_symbol_that_one_exchange_does_not_list_is_a_book_that_is_not_live(sources):
    for source in sources:
        symbols = [SYMBOL, "BTC/USTD"]
        async with source.order_books(symbols, exchanges=["okx"], merged=False) as books:
            good, bad = books.snapshots()
            assert (good.live, good.exchange) == (True, "okx")
            assert (bad.live, bad.exchange, bad.problem.code) == (False, "okx", "invalid_symbol")
            assert bad.stale == ("okx",)


async def test_a_book_of_several_exchanges_has_no_single_one(sources):
    for source in sources:
        async with source.order_book(SYMBOL, exchanges=ORDERED, depth=3) as book:
            with pytest.raises(ValueError, match="of 2 exchanges, not of one"):
                _ = book.snapshot().exchange


async def test_the_cost_of_a_size_is_that_of_the_best_500_levels_or_says_what_is_missing(
    rig, sources
):
    rig.simulated.step()
    deep = {"exchanges": ORDERED, "depth": 500, "split": True, "mode": "delta"}
    sizes = [{"amount": "3"}, {"notional": 10**15}, {"amount": Decimal("0.001")}]
    found = []
    for source in sources:
        async with source.order_book(SYMBOL, **deep) as book:
            await settled(book, lambda book=book: not book.snapshot().stale)
            found.append([book.fill(way, **size) for way in ("buy", "sell") for size in sizes])
            assert not found[-1][1].complete
    assert found[0] == found[1]
    _, client = sources
    for options, size, missing in (
        ({"split": False}, "1", "open the book with split"),
        ({"split": True, "group": "10"}, "1", "open the book without group"),
        ({"split": True, "depth": 3}, 10**9, "The 3 subscribed levels do not cover this size"),
    ):
        async with client.order_book(SYMBOL, exchanges=ORDERED, **options) as book:
            with pytest.raises(ValueError, match=missing):
                book.fill("buy", amount=size)


async def test_a_view_without_ages_or_coverage_says_so(rig, sources):
    _, client = sources
    for options, missing in (
        ({"ages": False}, "ages=True"),
        ({"coverage": False}, "coverage=True"),
    ):
        async with client.order_book(SYMBOL, exchanges=ORDERED, **options) as book:
            with pytest.raises(ValueError, match=missing):
                _ = book.snapshot().exchanges
    assert (await client.snapshot(SYMBOL, exchanges=ORDERED)).exchanges.keys() == set(ORDERED)


async def test_an_exchange_that_stops_is_named_alike(rig, sources):
    found = []
    for source in sources:
        async with source.order_book(SYMBOL, exchanges=ORDERED, depth=3) as book:
            await rig.simulated["okx"].stop()
            async for update in book:
                okx = update.exchanges["okx"]
                if "okx" in update.stale and okx.reason is not None:
                    break
            found.append((update.stale, okx.exchange, okx.shown, okx.age_s, okx.horizon))
            assert okx.state in (Health.STALE, Health.OFFLINE, Health.SYNCING)
            assert update.exchanges["kraken"].shown
        await rig.simulated["okx"].start()
        async with source.order_book(SYMBOL, exchanges=ORDERED) as book:
            await settled(book, lambda book=book: not book.snapshot().stale)
    assert found == [(("okx",), "okx", False, None, (None, None))] * 2


async def test_names_are_read_alike(sources):
    for source in sources:
        for chosen in ("okx", [" OKX "], ["all", "-kraken"], ("okx",)):
            async with source.order_book("btc/usdt ", exchanges=chosen, depth=3) as book:
                assert book.symbol == SYMBOL
                snapshot = book.snapshot()
                assert {name for each in snapshot.bids for name in each.exchanges} == {"okx"}
        with pytest.raises(TypeError, match="exchanges must be text"):
            source.order_book(SYMBOL, exchanges=[3])
        with pytest.raises(TypeError, match="symbol must be text"):
            source.order_book([SYMBOL])
        for none in ([], "", ["BTC/USDT", " "]):
            with pytest.raises(ValueError, match="symbols is empty"):
                source.order_books(none)


@pytest.mark.parametrize("chosen", ["krakn", ["okx", "krakn"], ["all", "-krakn"]])
async def test_a_misspelt_exchange_raises_with_a_suggestion(sources, chosen):
    for source in sources:
        with pytest.raises((UnknownExchange, Refused), match="Did you mean kraken") as refused:
            async with source.order_book(SYMBOL, exchanges=chosen):
                pass
        assert refused.value.code == "invalid_exchange"
        assert refused.value.details["near"] == ["kraken"]


async def test_a_misspelt_symbol_among_others_is_a_status_and_alone_an_error(sources):
    for source in sources:
        symbols = [SYMBOL, "BTC/USTD"]
        async with source.order_books(symbols, exchanges=ORDERED, depth=3) as books:
            good, bad = books.snapshots()
            assert (good.live, good.problem) == (True, None)
            assert (bad.symbol, bad.live, bad.problem.code) == ("BTC/USTD", False, "invalid_symbol")
            assert (bad.best_bid, bad.mid, len(bad.asks)) == (None, None, 0)
            found = {}
            async for update in books:
                found[update.symbol] = update.live
                if len(found) == 2:
                    break
            assert found == {SYMBOL: True, "BTC/USTD": False}
        with pytest.raises((UnknownSymbol, Refused), match="list") as refused:
            async with source.order_books("BTC/USTD", exchanges=ORDERED):
                pass
        assert refused.value.code == "invalid_symbol"


async def test_nothing_live_in_time_is_an_error_that_says_why(rig, sources):
    for name in NAMES:
        await rig.simulated[name].stop()
    for source in sources:
        with pytest.raises((NoLiveBook, Unavailable), match="No book was live within"):
            async with source.order_book(SYMBOL, exchanges=ORDERED, timeout_s=0.5):
                pass


async def test_a_book_that_was_left_ends_every_reading(sources):
    for source in sources:
        async with source.order_book(SYMBOL, exchanges=ORDERED, depth=3) as book:
            updates, samples = aiter(book), book.sampled(every_s=0.01)
            await anext(updates)
            for _ in range(3):
                assert (await anext(samples)).live
            calls = []
            running = asyncio.create_task(book.run(calls.append))
            while not calls:
                await asyncio.sleep(0)
        await running
        assert [each async for each in samples] == []
        assert [each async for each in updates] == []
        with pytest.raises((BookClosed, Refused)) as closed:
            book.snapshot()
        assert closed.value.code == "book_closed"
        with pytest.raises(TypeError, match="coroutine"):
            async with source.order_book(SYMBOL, exchanges=ORDERED, depth=3) as book:
                await book.run(asyncio.sleep)


async def test_without_asyncio_the_same_names_have_the_same_books(rig):
    def read():
        found = []
        with Onebook(rig.url, rig.key) as client:
            for source in (onebook.sync, client):
                with source.order_book(SYMBOL, exchanges=ORDERED, depth=3) as book:
                    first = next(iter(book))
                    sample = next(iter(book.sampled(every_s=0.01)))
                    found.append([seen(each) for each in (first, sample, book.snapshot())])
                    found[-1].append((book.symbol, book.symbols, [*book.exchanges]))
                with source.order_books([SYMBOL, "BTC/USTD"], exchanges=ORDERED, depth=3) as books:
                    found[-1] += [(each.symbol, each.live) for each in books.snapshots()]
                with pytest.raises((UnknownExchange, Refused), match="Did you mean kraken"):
                    source.order_book(SYMBOL, exchanges="krakn").__enter__()
        return found

    before = {each.name for each in threading.enumerate()}
    ours, theirs = await asyncio.to_thread(read)
    assert ours == theirs
    assert ours[3:] == [
        (SYMBOL, (SYMBOL,), ORDERED), (SYMBOL, True), ("BTC/USTD", False)
    ]  # fmt: skip
    assert "onebook.client" not in {each.name for each in threading.enumerate()} - before


CTRL_C = ["watch", "strategy", "frugal", "deltas", "socket_client", "simulated"]


@pytest.mark.parametrize("name", CTRL_C)
async def test_ctrl_c_ends_an_example_without_a_traceback(rig, name):
    rig.simulated.step()
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", INTERRUPTED, str(ROOT / f"examples/{name}.py")),
        env={"ONEBOOK_URL": rig.url, "ONEBOOK_KEY": rig.key, "PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert await running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, errors = await running.communicate()
    assert (running.returncode, errors.decode()) == (0, "")


INTERRUPTED = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job begins with it ignored
runpy.run_path(sys.argv[1], run_name="__main__")
"""
