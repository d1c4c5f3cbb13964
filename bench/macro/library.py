"""Goal 13: what a frame costs from the socket to the caller's function, in the caller's process.

An exchange in a process on the other core speaks OKX's protocol (`library_exchange.py`) and sends
frames of 20 levels, in rounds of one for each of twenty books, all on one connection. Every
contender subscribes to the same books and reads the best bid and ask of each update: ours by
callback and by `async for`, with 50 levels a side in each update (and with all 400); cryptofeed by
its callback; ccxt by `watch_order_book`. All run on uvloop and keep whole books of 400 levels a
side. What counts is the CPU of the contender's process, kernel included, over the frames.

It is counted twice. In the busy phase a round is sent as soon as every book of the last one was
read, so that the process hardly sleeps: this is what a frame costs where CPU is short, and what the
goal is about. In the paced phase there is a round every eight milliseconds: to that is added what
waking up costs on the machine, whose caches are cold by then. Latency is measured there, from
before the exchange sends a frame until the caller has its book. A late reader sees the newest
book only: the share of frames that became an update is reported.

A floor stands beside them: the same socket with nothing behind picows, so that it is seen how much
of each is the kernel and the event loop. At the end every contender's books must have the best
prices of the exchange's.

    library.py KIND
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import load
import uvloop
from library_exchange import (
    BOOKS,
    BUSY,
    KEPT,
    NATIVES,
    PACED,
    SYMBOLS,
    WARM,
    Exchange,
    best_at_the_end,
)
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

import onebook
from onebook.library import BookUpdate, ExchangeSettings, FeedSettings, OrderBooks
from timing import report

DEPTH = 50  # levels a side in each of our updates, of the 400 that are kept
LOOK_S = 0.05  # how often to check whether every book was read
PATIENCE_S = 120.0
ROWS = {
    BUSY: "frame to the caller's function, 20 books",
    PACED: "the same with 7 ms of sleep between rounds",
}
LATENCY = "frame sent to the caller's function, 20 books"


class Meter:
    """What a contender has seen, and what it cost."""

    def __init__(self, name: str, exchange: Exchange) -> None:
        self._name = name
        self._exchange = exchange
        self._had = exchange.times.had
        self._at = {symbol: at for at, symbol in enumerate(SYMBOLS)}
        self._best: dict[str, tuple[Any, Any]] = {}
        self._updates = 0

    def update(self, symbol: str, bid: Any, ask: Any) -> None:
        assert bid < ask, (bid, ask)
        self._best[symbol] = bid, ask
        self._updates += 1
        self._had[self._at[symbol]] = time.perf_counter_ns()

    def count(self) -> None:
        """Count a frame that nothing was made of; every round has the books in the same order."""
        self._had[self._updates % BOOKS] = time.perf_counter_ns()
        self._updates += 1

    async def whole(self) -> None:
        """Have all phases played, and report what they cost."""
        name = self._name
        while not all(self._had):
            await asyncio.sleep(LOOK_S)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._exchange.play, WARM)
        for phase, row in ROWS.items():
            updates, cpu = self._updates, time.process_time()
            played = await loop.run_in_executor(None, self._exchange.play, phase)
            cost_us = (time.process_time() - cpu) / played.frames * 1e6
            share = (self._updates - updates) / played.frames
            report(row, {name: cost_us}, "us a frame")
            report(f"updates over frames, {phase}", {name: share}, "of 1")
            if phase == PACED:
                report(LATENCY, {f"{name} p50": played.p50_us, f"{name} p99": played.p99_us}, "us")

    def check(self) -> None:
        """Compare the last best prices of every book with the exchange's."""
        best = best_at_the_end()
        for symbol in SYMBOLS:
            bid, ask = self._best[symbol]
            assert (float(bid), float(ask)) == best, (symbol, bid, ask, best)


# The contenders


def ours(exchange: Exchange, depth: int = DEPTH) -> OrderBooks:
    place = ExchangeSettings(ws_url=exchange.ws, rest_url=exchange.rest)
    feeds = FeedSettings(overrides={"okx": place})
    return onebook.order_books(SYMBOLS, exchanges="okx", depth=depth, feeds=feeds)


async def with_callback(exchange: Exchange, meter: Meter, depth: int = DEPTH) -> None:
    def callback(update: BookUpdate) -> None:
        bid, ask = update.best_bid, update.best_ask
        assert bid is not None
        assert ask is not None
        meter.update(update.symbol, bid.price, ask.price)

    async with ours(exchange, depth) as books:
        running = asyncio.create_task(books.run(callback))
        await meter.whole()
        running.cancel()


async def with_all_levels(exchange: Exchange, meter: Meter) -> None:
    await with_callback(exchange, meter, KEPT)


async def with_iterator(exchange: Exchange, meter: Meter) -> None:
    async def iterate(books: OrderBooks) -> None:
        async for update in books:
            bid, ask = update.best_bid, update.best_ask
            assert bid is not None
            assert ask is not None
            meter.update(update.symbol, bid.price, ask.price)

    async with ours(exchange) as books:
        running = asyncio.create_task(iterate(books))
        await meter.whole()
        running.cancel()


async def with_cryptofeed(exchange: Exchange, meter: Meter) -> None:
    from cryptofeed.connection import WebsocketEndpoint
    from cryptofeed.defines import L2_BOOK
    from cryptofeed.exchanges import OKX
    from cryptofeed.symbols import Symbols

    async def callback(book: Any, _: float) -> None:
        symbol = book.symbol.replace("-", "/")
        meter.update(symbol, book.book.bids.index(0)[0], book.book.asks.index(0)[0])

    kinds = dict.fromkeys(NATIVES, "spot")
    names = {native: native for native in NATIVES}
    Symbols.set("OKX", names, {"instrument_type": kinds, "tick_size": {}})
    secure = exchange.ws.replace("ws:", "wss:", 1)
    OKX.websocket_endpoints = [WebsocketEndpoint(secure, options={"compression": None})]
    feed = OKX(
        symbols=NATIVES, channels=[L2_BOOK], callbacks={L2_BOOK: callback},
        config={"log": {"disabled": True, "filename": "/dev/null", "level": "ERROR"}},
    )  # fmt: skip
    connect = feed.connect

    def plainly() -> Any:
        """It takes no address without TLS; the others pay for no TLS here."""
        connections = connect()
        for connection, *_ in connections:
            connection.address = exchange.ws
        return connections

    feed.connect = plainly
    feed.start(asyncio.get_running_loop())
    await meter.whole()


async def with_ccxt(exchange: Exchange, meter: Meter) -> None:
    import ccxt.pro

    client = ccxt.pro.okx({"options": {"watchOrderBook": {"checksum": False}}})
    client.urls["api"]["ws"] = exchange.ws.removesuffix("/public")
    client.set_markets([_market(client, symbol) for symbol in SYMBOLS])

    async def watch(symbol: str) -> None:
        while True:
            book = await client.watch_order_book(symbol)
            meter.update(symbol, book["bids"][0][0], book["asks"][0][0])

    tasks = [asyncio.create_task(watch(symbol)) for symbol in SYMBOLS]
    whole = asyncio.create_task(meter.whole())
    done, _ = await asyncio.wait([whole, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


def _market(client: Any, symbol: str) -> dict[str, Any]:
    base, quote = symbol.split("/")
    return client.safe_market_structure(
        {
            "id": f"{base}-{quote}", "symbol": symbol, "base": base, "quote": quote,
            "baseId": base, "quoteId": quote, "type": "spot", "spot": True, "active": True,
            "precision": {"price": 0.01, "amount": 0.00001}, "info": {},
        }
    )  # fmt: skip


class Counter(WSListener):
    """Counts frames and looks at none."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter

    def on_ws_connected(self, transport: WSTransport) -> None:
        args = [{"channel": "books", "instId": native} for native in NATIVES]
        transport.send(WSMsgType.TEXT, json.dumps({"op": "subscribe", "args": args}).encode())

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._meter.count()


async def with_nothing(exchange: Exchange, meter: Meter) -> None:
    await ws_connect(lambda: Counter(meter), exchange.ws)
    await meter.whole()


KINDS: dict[str, tuple[str, Callable[[Exchange, Meter], Awaitable[None]]]] = {
    "floor": ("the socket alone", with_nothing),
    "callback": ("onebook", with_callback),
    "iterator": ("onebook, async for", with_iterator),
    "whole": ("onebook, 400 levels", with_all_levels),
    "cryptofeed": ("cryptofeed", with_cryptofeed),
    "ccxt": ("ccxt", with_ccxt),
}


async def measure(kind: str, exchange: Exchange) -> None:
    name, contender = KINDS[kind]
    meter = Meter(name, exchange)
    async with asyncio.timeout(PATIENCE_S):
        await contender(exchange, meter)
    if kind != "floor":
        meter.check()
    os._exit(0)  # the exchange ends with its standard input


def main() -> None:
    load.settle_on(0)
    uvloop.run(measure(sys.argv[1], Exchange()))


if __name__ == "__main__":
    main()
