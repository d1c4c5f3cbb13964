"""Age of the best price at the caller: ours fused from two channels, and the peers'.

A simulated exchange in a process on the other core sends its best prices at once and its depth at
the interval of the exchange (`ages_exchange.py`), and keeps what its best prices were and when.
Each contender follows the first pair in a process of its own and notes what the caller sees as the
best bid and ask, and when. Ours is the library; ccxt's `watch_order_book` and cryptofeed's L2 book
follow the depth, ccxt's `watch_bids_asks` and cryptofeed's ticker the best prices (of Binance). How
ccxt is asked for the channel that we follow is said in `tests/judges`; cryptofeed is beside us
where the simulated exchange has its channel (`CRYPTOFEED`). Of Gemini both use the archived socket,
which sends every change at once.

Age: for each change of the exchange's best price, the time until the caller has it, or a later one.
Wrong: the share of time in which the caller's best bid or ask is not the exchange's. A frame is
under way for a moment, and the machine delays it, so this is never 0: beside ours on Binance a bare
reader of the best prices, in the same process, shows how much of it any client has.

    ages.py KIND [EXCHANGE]
"""

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import load
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

import onebook
from onebook.exchanges import EXCHANGES
from onebook.library import BookUpdate, ExchangeSettings, FeedSettings
from onebook.simulator import DIALECTS
from onebook.simulator.kit.loopback import Urls
from timing import report

WARM_S = 1.5  # after the first best prices, until books are there
MEASURED_S = float(os.environ.get("BENCH_AGES_S", "5"))  # of Binance
OTHERS_S = 4.0  # of another exchange
PATIENCE_S = 15.0
BARE = "bare reader"
Best = tuple[int, float, float]  # time of the monotonic clock in ns, bid, ask


class Exchange:
    """The other process, seen from the contender's."""

    def __init__(self, name: str) -> None:
        script = Path(__file__).with_name("ages_exchange.py")
        self._process = subprocess.Popen(
            [sys.executable, script, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.name = name
        self.listing = DIALECTS[name].listings[0]
        self.ws, self.rest = json.loads(self._process.stdout.readline())
        self.place = self.rest.removeprefix("http://")

    def truth(self) -> list[Best]:
        """End it and return its best prices."""
        out, _ = self._process.communicate("")
        return [(at, float(bid), float(ask)) for at, bid, ask in json.loads(out)]


class Shown:
    """What a contender's caller has seen."""

    def __init__(self) -> None:
        self.seen: list[Best] = []

    def best(self, bid: Any, ask: Any) -> None:
        self.seen.append((time.monotonic_ns(), float(bid), float(ask)))


def changes(states: list[Best]) -> list[Best]:
    """The states whose prices differ from those before."""
    found: list[Best] = []
    for state in states:
        if not found or state[1:] != found[-1][1:]:
            found.append(state)
    return found


def ages_ms(truth: list[Best], seen: list[Best], begin: int, end: int) -> list[float]:
    """The time until each true state, or a later one, was seen.

    States may recur, so what was seen is matched to the newest equal state before it that is not
    older than the one matched last.
    """
    known_at: list[int | None] = [None] * len(truth)
    last = newest = 0
    for at, bid, ask in seen:
        while newest + 1 < len(truth) and truth[newest + 1][0] <= at:
            newest += 1
        for place in range(newest, last - 1, -1):
            if truth[place][1:] == (bid, ask):
                for each in range(last, place + 1):
                    if known_at[each] is None:
                        known_at[each] = at
                last = place
                break
    return [
        (end - at if known is None else known - at) / 1e6
        for (at, *_), known in zip(truth, known_at, strict=True)
        if begin <= at < end
    ]


def wrong_share(truth: list[Best], seen: list[Best], begin: int, end: int) -> float:
    """The share of time in which the seen prices are not the true ones."""
    events = sorted([(state[0], 0, state[1:]) for state in truth]
                    + [(state[0], 1, state[1:]) for state in seen])  # fmt: skip
    now: list[Any] = [None, None]
    wrong, before = 0, begin
    for at, who, prices in events:
        until = min(max(at, begin), end)
        if now[0] != now[1]:
            wrong += until - before
        before = until
        now[who] = prices
    if now[0] != now[1]:
        wrong += end - before
    return wrong / (end - begin)


# The contenders


async def with_onebook(exchange: Exchange, shown: Shown) -> None:
    def callback(update: BookUpdate) -> None:
        if update.best_bid is not None and update.best_ask is not None:
            shown.best(update.best_bid.price, update.best_ask.price)

    place = ExchangeSettings(ws_url=exchange.ws, rest_url=exchange.rest)
    feeds = FeedSettings(overrides={exchange.name: place})
    symbol = exchange.listing.symbol
    async with onebook.order_book(symbol, exchanges=exchange.name, feeds=feeds) as book:
        await book.run(callback)


async def _ccxt(exchange: Exchange) -> tuple[Any, Any]:
    """A client that finds only the simulated exchange, and how it is asked for the book."""
    import aiohttp
    import ccxt.pro

    from judges.ccxt_side import Judge, NoNames, market, redirected
    from judges.test_ccxt_books import JUDGES

    judge = JUDGES.get(exchange.name, Judge())
    config = {"enableRateLimit": False, "options": dict(judge.options)}
    client = getattr(ccxt.pro, judge.name or exchange.name)(config | dict(judge.keys))
    client.urls = redirected(client.urls, Urls(exchange.ws, exchange.rest))
    if judge.repair:
        judge.repair(client)
    client.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(resolver=NoNames()))
    client.open()
    listings = DIALECTS[exchange.name].listings
    client.set_markets(
        await getattr(client, judge.markets)()
        if judge.markets
        else [market(listing) for listing in listings]
    )
    return client, judge


async def with_ccxt_book(exchange: Exchange, shown: Shown) -> None:
    client, judge = await _ccxt(exchange)
    symbol = exchange.listing.symbol
    while True:
        book = await client.watch_order_book(symbol, judge.limit, deepcopy(dict(judge.params)))
        if book["bids"] and book["asks"]:
            shown.best(book["bids"][0][0], book["asks"][0][0])


async def with_ccxt_best(exchange: Exchange, shown: Shown) -> None:
    client, _ = await _ccxt(exchange)
    symbol = exchange.listing.symbol
    while True:
        ticker = (await client.watch_bids_asks([symbol]))[symbol]
        shown.best(ticker["bid"], ticker["ask"])


class Cryptofeed(NamedTuple):
    """A class of cryptofeed that follows a channel of a simulated exchange, and its addresses."""

    name: str
    path: str = ""
    seed: str = ""  # of its REST request for a book
    native: str = ""  # its name of the pair, where that is not the exchange's


BINANCE_SEED = "/api/v3/depth?symbol={}&limit={}"
CRYPTOFEED = {
    "binance": Cryptofeed("Binance", seed=BINANCE_SEED),
    "binanceus": Cryptofeed("BinanceUS", seed=BINANCE_SEED),
    "bybit": Cryptofeed("Bybit", "/v5/public/spot", native="BTC/USDT"),
    "gemini": Cryptofeed("Gemini", "/v2/marketdata", native="BTCUSDT"),
    "okx": Cryptofeed("OKX", "/ws/v5/public"),
    "okxus": Cryptofeed("OKX", "/ws/v5/public"),
}


async def _with_cryptofeed(exchange: Exchange, channel: str, callback: Any) -> None:
    from cryptofeed import exchanges
    from cryptofeed.connection import RestEndpoint, Routes, WebsocketEndpoint
    from cryptofeed.symbols import Symbols

    facts = CRYPTOFEED[exchange.name]
    kind = getattr(exchanges, facts.name)
    symbol = exchange.listing.symbol.replace("/", "-")
    Symbols.set(
        kind.id,
        {symbol: facts.native or exchange.listing.native},
        {"instrument_type": {symbol: "spot"}, "tick_size": {}},
    )
    kind.websocket_endpoints = [
        WebsocketEndpoint(f"wss://{exchange.place}{facts.path}", options={"compression": None})
    ]
    kind.rest_endpoints = [RestEndpoint(exchange.rest, routes=Routes("/", l2book=facts.seed))]
    feed = kind(
        symbols=[symbol], channels=[channel], callbacks={channel: callback},
        config={"log": {"disabled": True, "filename": "/dev/null", "level": "ERROR"}},
    )  # fmt: skip
    connect = feed.connect

    def plainly() -> Any:
        """It takes no address without TLS."""
        connections = connect()
        for connection, *_ in connections:
            connection.address = connection.address.replace("wss:", "ws:", 1)
        return connections

    feed.connect = plainly
    feed.start(asyncio.get_running_loop())
    await asyncio.Event().wait()


async def with_cryptofeed(exchange: Exchange, shown: Shown) -> None:
    from cryptofeed.defines import L2_BOOK

    async def callback(book: Any, _: float) -> None:
        if len(book.book.bids) and len(book.book.asks):
            shown.best(book.book.bids.index(0)[0], book.book.asks.index(0)[0])

    await _with_cryptofeed(exchange, L2_BOOK, callback)


async def with_cryptofeed_ticker(exchange: Exchange, shown: Shown) -> None:
    from cryptofeed.defines import TICKER

    async def callback(ticker: Any, _: float) -> None:
        shown.best(ticker.bid, ticker.ask)

    await _with_cryptofeed(exchange, TICKER, callback)


class BareReader(WSListener):
    """Reads Binance's best prices and does nothing else: what the machine and the socket cost."""

    BEST = re.compile(rb'"b":"([^"]+)".*"a":"([^"]+)"')

    def __init__(self, native: str, shown: Shown) -> None:
        super().__init__()
        self._native = native
        self._shown = shown

    def on_ws_connected(self, transport: WSTransport) -> None:
        streams = [f"{self._native.lower()}@bookTicker"]
        request = {"method": "SUBSCRIBE", "params": streams, "id": 1}
        transport.send(WSMsgType.TEXT, json.dumps(request).encode())

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        found = self.BEST.search(frame.get_payload_as_bytes())
        if found:
            self._shown.best(*found.groups())


KINDS: dict[str, tuple[str, Callable[[Exchange, Shown], Awaitable[None]]]] = {
    "onebook": ("onebook", with_onebook),
    "ccxt": ("ccxt watchOrderBook", with_ccxt_book),
    "ccxt_best": ("ccxt watchBidsAsks", with_ccxt_best),
    "cryptofeed": ("cryptofeed L2_BOOK", with_cryptofeed),
    "cryptofeed_ticker": ("cryptofeed TICKER", with_cryptofeed_ticker),
}


async def measure(kind: str, exchange_name: str) -> None:
    name, contender = KINDS[kind]
    exchange, readers = Exchange(exchange_name), {name: Shown()}
    on_binance = exchange_name == "binance"
    if on_binance and contender is with_onebook:
        # Its connection is the first, so its frames are sent first: the difference includes ours.
        readers[BARE] = Shown()
        native = exchange.listing.native
        await ws_connect(lambda: BareReader(native, readers[BARE]), exchange.ws)
    running = asyncio.ensure_future(contender(exchange, readers[name]))
    async with asyncio.timeout(PATIENCE_S):
        while not all(shown.seen for shown in readers.values()):
            if running.done():
                running.result()
            await asyncio.sleep(0.05)
    await asyncio.wait([running], timeout=WARM_S)
    begin = time.monotonic_ns()
    await asyncio.wait([running], timeout=MEASURED_S if on_binance else OTHERS_S)
    end = time.monotonic_ns()
    if running.done():
        running.result()
    loop = asyncio.get_running_loop()
    truth = changes(await loop.run_in_executor(None, exchange.truth))
    found, wrong = {}, {}
    for each, shown in readers.items():
        seen = changes(shown.seen)
        ages = sorted(ages_ms(truth, seen, begin, end))
        if not ages:
            sys.exit("the exchange's best price never changed")
        found |= {f"{each} p50": statistics.median(ages), f"{each} p90": ages[len(ages) * 9 // 10]}
        wrong[each] = 100 * wrong_share(truth, seen, begin, end)
    display = EXCHANGES[exchange_name].display
    report(f"age of the best price at the caller, {display}", found, "ms")
    report(f"time with a wrong best price, {display}", wrong, "%")
    report(f"changes of the best price, {display}", {name: len(ages)}, "changes")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    load.settle_on(0)
    uvloop.run(measure(sys.argv[1], *(sys.argv[2:] or ["binance"])))


if __name__ == "__main__":
    main()
