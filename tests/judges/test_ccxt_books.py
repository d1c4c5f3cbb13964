"""ccxt beside us on each simulated exchange: its book, ours and the exchange's are equal."""

import asyncio
import inspect
from contextlib import AsyncExitStack, suppress
from decimal import Decimal
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import ccxt.pro
import pytest

from judges.ccxt_side import Judge, Levels, Watched, has
from onebook.books import Books
from onebook.config import ExchangeSettings, FeedSettings
from onebook.exchanges import EXCHANGES, channel_of
from onebook.feeds import Catalogue, Supervisor
from onebook.feeds.supervisor import enabled
from onebook.model import Health, Instrument
from onebook.rest import Rest
from onebook.simulator import DIALECTS, SimulatedExchanges

# Each exchange by its usual channel, and by every other one that an operator may choose.
CASES = tuple((name, channel) for name in EXCHANGES for channel in ("", *EXCHANGES[name].channels))
IDS = ["-".join(filter(None, case)) for case in CASES]

SPOT = {"fetchMarkets": {"types": ["spot"]}}


def name_sides_of_uta(client: Any) -> None:
    """Make kucoin's `handle_book_delta` find the sides of a UTA delta."""
    handle = client.handle_book_delta

    def handle_book_delta(book: Any, delta: dict[str, Any]) -> None:
        named = {"bids": delta["b"], "asks": delta["a"]} if "b" in delta else {}
        handle(book, delta | named)

    client.handle_book_delta = handle_book_delta


# How ccxt is asked where its defaults are not our channel, and why it proves less where it does.
JUDGES = {
    "binance": Judge(options=SPOT, markets="fetch_markets", levels=500),
    "bitfinex": Judge(limit=100, levels=100),
    "bitget": Judge(
        params={"uta": True},
        options={"watchOrderBook": {"checksum": False}},
        because="without its option `checksum`: ccxt takes the rule of v2, that of v3 is unknown",
    ),
    "bybit": Judge(limit=200, options=SPOT, markets="fetch_markets", levels=200),
    "coinbase": Judge(
        "coinbaseexchange",
        params={"channels": ["level2_batch"]},
        keys={"apiKey": "none", "secret": "bm9uZQ==", "password": "none"},
        markets="fetch_markets",
        levels=400,
        because="ccxt's coinbase is Advanced Trade, and its class of our interface asks for level2,"
        " which needs a key; level2_batch has the same messages",
    ),
    "coinbase-advanced": Judge(levels=400),
    "cryptocom": Judge(
        params={
            "params": {"book_subscription_type": "SNAPSHOT_AND_UPDATE", "book_update_frequency": 10}
        },
        because="ccxt writes bookSubscriptionType, which the page does not have",
    ),
    "htx": Judge(levels=150),
    "hyperliquid": Judge(
        params={"subscription": {"type": "l2Book", "coin": "UBTC/USDT0", "fast": True}},
        options={"defaultType": "spot"},
        levels=5,
        because="ccxt asks for the slow channel, whose frames have the same form",
    ),
    "hyperliquid-slow": Judge(options={"defaultType": "spot"}, levels=20),
    "kraken": Judge(
        limit=100,
        markets="fetch_markets",
        levels=100,
        because="without its option `checksum`: ccxt splits prices at the point as texts when it"
        " has made floats of them, and stops at the first frame",
    ),
    "kucoin": Judge(
        params={"uta": True, "utaDepth": "increment@10ms", "rpiFilter": 0},
        options={"fetchMarkets": {"types": ["spot"], "fetchTickersFees": False}},
        markets="fetch_markets",
        levels=500,
        because="with a repair: its `handle_book_delta` looks in a delta of UTA for the members"
        " `bids` and `asks` of the classic feed and takes no level, so it gets `b` and `a` by these"
        " names; request, snapshot (which it reads by `b` and `a`) and book are its own",
        repair=name_sides_of_uta,
    ),
    "kucoin-classic": Judge(limit=100, because="its seed has 100 levels, as ours has"),
    "mexc": Judge(
        markets="fetch_spot_markets",
        because="it asks for the default 100 levels of REST as its seed",
    ),
    "okx": Judge(options=SPOT, markets="fetch_markets", levels=400),
    "p2b": Judge(params={"interval": "0"}, levels=100),  # its default merges levels
    "phemex": Judge(markets="fetch_markets", levels=30),
    "poloniex": Judge(markets="fetch_spot_markets"),
    "whitebit": Judge(limit=100),
    "xt": Judge(
        options={"watchOrderBook": {"snapshotDelay": 0}},
        levels=30,
        step_s=0.5,
        because="it checks no number, so deltas that it reads after its snapshot must be newer: it"
        " asks for it with the first, and the market stands still meanwhile; its seed has 50"
        " levels",
    ),
}
# Exchanges whose channel no class of ccxt reads: by what its source would name the channel, and
# what it does instead.
EXEMPT = {
    "bingx": (
        "incrDepth",
        "ccxt follows `depth100`, whose frames are whole; ours is `incrDepth`",
    ),
    "bitstamp": (
        "'order_book_",
        "ccxt follows `diff_order_book` and seeds it by REST; ours is `order_book`, the other"
        " channel of the page, whose frames are whole",
    ),
    "cex": (
        "ws-public",
        "ccxt follows the book of the older exchange, ws.cex.io, which wants a login; ours is that"
        " of Spot Trading, whose list alone ccxt reads",
    ),
    "gemini": (
        "ws.gemini.com",
        "ccxt follows `l2` of /v2/marketdata, which Gemini lists as archived; ours is the socket"
        " that came after it",
    ),
    "upbit": (
        "SIMPLE",
        "ccxt asks for the DEFAULT format of `orderbook`, ours is SIMPLE: the same book with other"
        " names of its members",
    ),
    "woo": (
        "v3/public",
        "ccxt follows the socket of v1, whose `orderbook` has 100 levels; ours is `orderbook10` of"
        " v3, which its source of 2026-08 (pull request 29578) follows too",
    ),
}

BURSTS = (1, 1, 2, 3, 5, 8, 10)
WAIT_S = 10.0


class Bench:
    """Three books of one pair: the simulated exchange's, our feed's, ccxt's."""

    def __init__(
        self,
        simulated: SimulatedExchanges,
        books: Books,
        instrument: Instrument,
        judge: Judge,
    ) -> None:
        name = instrument.exchange
        self._simulated = simulated
        self._books = books
        self._instrument = instrument
        self._levels = judge.levels
        self._step_s = judge.step_s
        self._stirred = asyncio.Event()
        books.subscribe(on_changed=lambda book: self._stirred.set())
        books.subscribe(on_health=lambda book, previous: self._stirred.set())
        self.watched = Watched(
            judge,
            simulated.urls[name],
            DIALECTS[name].listings,
            instrument.symbol,
            self._stirred.set,
        )

    def truth(self) -> tuple[Levels, Levels]:
        """The book that the simulated exchange published."""
        bids, asks = self._simulated[self._instrument.exchange].book(self._instrument.symbol)
        return self._best([*bids.items()]), self._best([*asks.items()])

    def ours(self) -> tuple[Levels, Levels]:
        """The book of our feed; None while it is not live."""
        book = self._books.get(self._instrument)
        if book is None or book.health is not Health.LIVE:
            return [], []
        bids, asks = book.core.top(self._levels)
        return self._best(bids), self._best(asks)

    def _best(self, levels: list[tuple[str, str]]) -> Levels:
        return [(Decimal(price), Decimal(amount)) for price, amount in levels[: self._levels]]

    async def join(self) -> None:
        """Move the market until both clients have a book."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while not (all(self.ours()) and all(self.watched.sides())):
                    self._stirred.clear()
                    try:
                        async with asyncio.timeout(self._step_s):
                            await self._stirred.wait()
                    except TimeoutError:
                        self._simulated.step()
        assert all(self.ours()), "our feed has no book"
        assert all(self.watched.sides()), "ccxt has no book"

    async def settle(self) -> None:
        """Wait until everything published is read; the three books must then be equal."""
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                while not self.truth() == self.ours() == self.watched.sides():
                    self._stirred.clear()
                    await self._stirred.wait()
        assert self.ours() == self.truth(), "our book is not that of the simulated exchange"
        assert self.watched.sides() == self.truth(), "ccxt has another book"


@pytest.mark.parametrize(("name", "channel"), CASES, ids=IDS)
async def test_ccxt_and_we_keep_the_book_of_the_exchange(name: str, channel: str) -> None:
    judge = judge_of(name, channel)
    async with AsyncExitStack() as stack:
        simulated = await stack.enter_async_context(SimulatedExchanges([name], seed=11, rate_hz=0))
        simulated[name].admit_all()
        place = simulated.urls[name]
        facts = channel_of(EXCHANGES[name], channel, has_key=True)
        ws_url = urlsplit(place.ws)._replace(path=urlsplit(facts.ws_url).path).geturl()
        chosen = ExchangeSettings(
            ws_url=ws_url if facts.key_header else place.ws,
            rest_url=place.rest,
            channel=channel,
            api_key="a key",
        )
        settings = FeedSettings(exchanges=(name,), overrides={name: chosen})
        exchanges = enabled(EXCHANGES, settings)
        rest, books = await stack.enter_async_context(Rest()), Books()
        catalogue = await stack.enter_async_context(
            Catalogue(exchanges, rest=rest, settings=settings)
        )
        assert await catalogue.first_read()
        supervisor = await stack.enter_async_context(
            Supervisor(
                exchanges,
                books=books,
                rest=rest,
                catalogue=catalogue,
                settings=settings,
                jitter=lambda: 0.0,
            )
        )
        instrument = catalogue.instrument(name, DIALECTS[name].listings[0].symbol)
        assert instrument is not None
        bench = Bench(simulated, books, instrument, judge)
        supervisor.acquire(instrument)
        await stack.enter_async_context(bench.watched)
        if judge.markets:
            assert bench.watched.steps(instrument.symbol) == (
                Decimal(instrument.tick),
                Decimal(instrument.lot),
            )
            stated = (instrument.least_amount, instrument.least_notional)
            for ours, theirs in zip(stated, bench.watched.leasts(instrument.symbol), strict=True):
                assert ours == "" or theirs is None or Decimal(ours) == theirs
        await bench.join()
        for burst in BURSTS:
            for _ in range(burst):
                simulated.step()
            await bench.settle()


@pytest.mark.parametrize("name", EXEMPT)
def test_an_exemption_ends_where_ccxt_names_the_channel(name: str) -> None:
    """If this fails, ccxt can judge the channel: remove its exemption."""
    channel, _ = EXEMPT[name]
    assert channel not in inspect.getsource(import_module(f"ccxt.pro.{name}"))


def test_ccxt_takes_no_level_from_a_delta_of_uta() -> None:
    """If this fails, ccxt has fixed it: remove the repair for kucoin."""
    client = ccxt.pro.kucoin()
    book = client.order_book()
    client.handle_book_delta(book, {"O": 2, "C": 2, "b": [["1", "3"]], "a": [["2", "1"]]})
    assert (book["bids"], book["asks"]) == ([], [])
    name_sides_of_uta(client)
    client.handle_book_delta(book, {"O": 3, "C": 3, "b": [["1", "3"]], "a": [["2", "1"]]})
    assert (book["bids"], book["asks"]) == ([[1.0, 3.0]], [[2.0, 1.0]])


def judge_of(name: str, channel: str) -> Judge:
    """ccxt's parameters for a channel; skips if it does not support it."""
    case = "-".join(filter(None, (name, channel)))
    if case in EXEMPT:
        _, because = EXEMPT[case]
        pytest.skip(because)
    judge = JUDGES.get(case, Judge())
    judge = judge._replace(name=judge.name or name)
    if not has(judge.name):
        pytest.skip(f"ccxt.pro has no order books of {name}")
    return judge
