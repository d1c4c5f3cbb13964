"""Age of the best price at the caller: ours fused from two channels, and the peers'.

A simulated Binance in a process on the other core sends its best prices at once and its depth every
100 ms (`ages_exchange.py`), and keeps what its best prices were and when. Each contender follows
BTC/USDT in a process of its own and notes what the caller sees as the best bid and ask, and when.
Ours is the library; ccxt's `watch_order_book` and cryptofeed's L2 book follow the depth, ccxt's
`watch_bids_asks` and cryptofeed's ticker the best prices.

Age: for each change of the exchange's best price, the time until the caller has it, or a later one.
Wrong: the share of time in which the caller's best bid or ask is not the exchange's.

    ages.py KIND
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import load
import uvloop
from ages_exchange import NATIVE

import onebook
from onebook.library import BookUpdate, ExchangeSettings, FeedSettings
from timing import report

SYMBOL = "BTC/USDT"
WARM_S = 3.0  # until books are there
MEASURED_S = float(os.environ.get("BENCH_AGES_S", "30"))
PATIENCE_S = 120.0
ROW = "age of the best price at the caller, Binance"
Best = tuple[int, float, float]  # time of the monotonic clock in ns, bid, ask


class Exchange:
    """The other process, seen from the contender's."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("ages_exchange.py")
        self._process = subprocess.Popen(
            [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
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
    feeds = FeedSettings(overrides={"binance": place})
    async with onebook.order_book(SYMBOL, exchanges="binance", feeds=feeds) as book:
        await book.run(callback)


def _ccxt(exchange: Exchange) -> Any:
    import ccxt.pro

    client = ccxt.pro.binance({"options": {"defaultType": "spot"}})
    client.urls["api"]["ws"]["spot"] = f"ws://{exchange.place}/ws"
    client.urls["api"]["public"] = f"http://{exchange.place}/api/v3"
    client.set_markets(
        [
            client.safe_market_structure(
                {
                    "id": NATIVE, "lowercaseId": NATIVE.lower(), "symbol": SYMBOL, "base": "BTC",
                    "quote": "USDT", "baseId": "BTC", "quoteId": "USDT", "type": "spot",
                    "spot": True, "active": True, "info": {},
                    "precision": {"price": 0.01, "amount": 0.00001},
                }
            )
        ]
    )  # fmt: skip
    return client


async def with_ccxt_book(exchange: Exchange, shown: Shown) -> None:
    client = _ccxt(exchange)
    while True:
        book = await client.watch_order_book(SYMBOL)
        if book["bids"] and book["asks"]:
            shown.best(book["bids"][0][0], book["asks"][0][0])


async def with_ccxt_best(exchange: Exchange, shown: Shown) -> None:
    client = _ccxt(exchange)
    while True:
        ticker = (await client.watch_bids_asks([SYMBOL]))[SYMBOL]
        shown.best(ticker["bid"], ticker["ask"])


async def _with_cryptofeed(exchange: Exchange, channel: str, callback: Any) -> None:
    from cryptofeed.connection import RestEndpoint, Routes, WebsocketEndpoint
    from cryptofeed.exchanges import Binance
    from cryptofeed.symbols import Symbols

    kinds = {"BTC-USDT": "spot"}
    Symbols.set("BINANCE", {"BTC-USDT": NATIVE}, {"instrument_type": kinds, "tick_size": {}})
    Binance.websocket_endpoints = [
        WebsocketEndpoint(f"wss://{exchange.place}", options={"compression": None})
    ]
    routes = Routes("/api/v3/exchangeInfo", l2book="/api/v3/depth?symbol={}&limit={}")
    Binance.rest_endpoints = [RestEndpoint(exchange.rest, routes=routes)]
    feed = Binance(
        symbols=["BTC-USDT"], channels=[channel], callbacks={channel: callback},
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
        shown.best(book.book.bids.index(0)[0], book.book.asks.index(0)[0])

    await _with_cryptofeed(exchange, L2_BOOK, callback)


async def with_cryptofeed_ticker(exchange: Exchange, shown: Shown) -> None:
    from cryptofeed.defines import TICKER

    async def callback(ticker: Any, _: float) -> None:
        shown.best(ticker.bid, ticker.ask)

    await _with_cryptofeed(exchange, TICKER, callback)


KINDS: dict[str, tuple[str, Callable[[Exchange, Shown], Awaitable[None]]]] = {
    "onebook": ("onebook", with_onebook),
    "ccxt": ("ccxt watchOrderBook", with_ccxt_book),
    "ccxt_best": ("ccxt watchBidsAsks", with_ccxt_best),
    "cryptofeed": ("cryptofeed L2_BOOK", with_cryptofeed),
    "cryptofeed_ticker": ("cryptofeed TICKER", with_cryptofeed_ticker),
}


async def measure(kind: str) -> None:
    name, contender = KINDS[kind]
    exchange, shown = Exchange(), Shown()
    running = asyncio.ensure_future(contender(exchange, shown))
    async with asyncio.timeout(PATIENCE_S):
        while not shown.seen:
            if running.done():
                running.result()
            await asyncio.sleep(0.05)
    await asyncio.wait([running], timeout=WARM_S)
    begin = time.monotonic_ns()
    await asyncio.wait([running], timeout=MEASURED_S)
    end = time.monotonic_ns()
    if running.done():
        running.result()
    loop = asyncio.get_running_loop()
    truth = changes(await loop.run_in_executor(None, exchange.truth))
    seen = changes(shown.seen)
    ages = sorted(ages_ms(truth, seen, begin, end))
    if not ages:
        sys.exit("the exchange's best price never changed")
    report(
        ROW,
        {f"{name} p50": statistics.median(ages), f"{name} p90": ages[len(ages) * 9 // 10]},
        "ms",
    )
    share = 100 * wrong_share(truth, seen, begin, end)
    report("time with a wrong best price, Binance", {name: share}, "%")
    report("changes of the best price, Binance", {name: len(ages)}, "changes")
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    load.settle_on(0)
    uvloop.run(measure(sys.argv[1]))


if __name__ == "__main__":
    main()
