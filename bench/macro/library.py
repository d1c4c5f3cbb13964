"""Goal 13: what a frame costs from the socket to the caller's function, in the caller's process.

An exchange in a process on the other core speaks OKX's protocol and sends a frame of 20 levels on
each of twenty books every eight milliseconds, all on one connection. Every contender subscribes to
the same books and reads the best bid and ask of each update: ours by callback and by `async for`,
with 50 levels a side in each update (and with all 400); cryptofeed by its callback; ccxt by
`watch_order_book`. All run on uvloop and keep whole books of 400 levels a side. What counts is the
CPU of the contender's process, kernel included, from its 1,000th update until it has read the last
frame, over the frames that were sent after that update. Who reads late sees the newest book only:
the share of frames that became an update is reported, and the CPU for each update.

A floor stands beside them: the same socket with nothing behind picows, so that it is seen how much
of each is the kernel and the event loop. At the end every contender's books must have the best
prices of the exchange's.

    library.py KIND
"""

import asyncio
import json
import os
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import load
import receive
import uvloop
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

import onebook
import stream
from onebook.library import BookUpdate, ExchangeSettings, FeedSettings, OrderBooks
from timing import report

COINS = (
    "BTC", "ETH", "SOL", "DOGE", "XRP", "ADA", "AVAX", "DOT", "LINK", "LTC", "BCH", "ATOM", "NEAR",
    "UNI", "AAVE", "ETC", "FIL", "APT", "ARB", "SUI",
)  # fmt: skip
SYMBOLS = [f"{coin}/USDT" for coin in COINS]
NATIVES = [symbol.replace("/", "-") for symbol in SYMBOLS]
LEVELS = 20
KEPT = 400  # levels a side that OKX keeps in step
DEPTH = 50  # of them in each of our updates
PACE_S = 0.008
ROUNDS = 600
UPDATES_FIRST = 1_000  # before it counts
LOOK_S = 0.5  # without an update for so long after the last frame, all are read
PATIENCE_S = 120.0
ROW = "frame to the caller's function, 20 books"


# The exchange, a process of its own


def serve() -> None:
    """Answer the list of instruments and one subscriber, and send it paced frames.

    A line on standard input is answered with the number of frames that were sent so far.
    """
    load.settle_on(1)
    market = stream.Stream(KEPT, seed=5)
    snapshot = stream.okx(*market.snapshot(), 0, "snapshot")
    frames = [stream.okx(*market.frame(LEVELS), n) for n in range(1, ROUNDS + 1)]
    rounds = [[receive.framed(_about(native, frame)) for native in NATIVES] for frame in frames]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        connection = _subscribed(listening)
        for native in NATIVES:
            acknowledged = {"event": "subscribe", "arg": {"channel": "books", "instId": native}}
            connection.sendall(receive.framed(json.dumps(acknowledged).encode()))
            connection.sendall(receive.framed(_about(native, snapshot)))
        time.sleep(0.5)
        due, sent = time.perf_counter(), 0
        for each in rounds:
            while time.perf_counter() < due:
                pass
            try:
                for frame in each:
                    connection.sendall(frame)
            except ConnectionError:
                return  # the contender has seen enough
            sent += len(each)
            due = max(due + PACE_S, time.perf_counter())  # what is late is not made up for
            if select.select([sys.stdin], [], [], 0)[0] and sys.stdin.readline():
                print(sent, flush=True)
        while sys.stdin.readline():
            print(sent, flush=True)


def _about(native: str, frame: bytes) -> bytes:
    return frame.replace(b"BTC-USDT", native.encode())


def _subscribed(listening: socket.socket) -> socket.socket:
    """Answer requests until one is an upgrade whose client has asked for every book."""
    while True:
        connection, _ = listening.accept()
        heard = _request(connection)
        if b"upgrade: websocket" in heard.lower():
            receive.upgrade(connection, heard)
            wanted = set(NATIVES)
            while wanted:
                wanted -= set(re.findall(r"[A-Z]+-USDT", _message(connection)))
            return connection
        body = json.dumps({"code": "0", "data": [_listing(native) for native in NATIVES]}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.close()


def _request(connection: socket.socket) -> bytes:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    heard = b""
    while not heard.endswith(b"\r\n\r\n"):
        heard += connection.recv(4_096)
    return heard


def _listing(native: str) -> dict[str, str]:
    base, quote = native.split("-")
    return {
        "instType": "SPOT", "instId": native, "baseCcy": base, "quoteCcy": quote,
        "tickSz": "0.01", "lotSz": "0.00001", "state": "live",
    }  # fmt: skip


def _message(connection: socket.socket) -> str:
    """Read one masked frame (RFC 6455 section 5.2)."""
    length = _exactly(connection, 2)[1] & 0x7F
    if length == 126:
        length = int.from_bytes(_exactly(connection, 2))
    mask = _exactly(connection, 4)
    payload = _exactly(connection, length)
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload)).decode()


def _exactly(connection: socket.socket, count: int) -> bytes:
    return connection.recv(count, socket.MSG_WAITALL)


class Exchange:
    """The other process: where it is, and how many frames it has sent."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        place = f"127.0.0.1:{self._line().strip()}"
        self.ws, self.rest = f"ws://{place}/ws/v5/public", f"http://{place}"

    def sent(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


class Meter:
    """CPU over frames; `update` is called for each update."""

    def __init__(self, exchange: Exchange) -> None:
        self.cost_us = 0.0
        self.share = 0.0  # updates over frames: what was not overtaken by the next
        self._exchange = exchange
        self._best: dict[str, tuple[Any, Any]] = {}
        self._updates = 0
        self._began = (0.0, 0)

    def update(self, symbol: str, bid: Any, ask: Any) -> None:
        assert bid < ask, (bid, ask)
        self._best[symbol] = bid, ask
        self.count()

    def count(self) -> None:
        """Count an update that has no book."""
        self._updates += 1
        if self._updates == UPDATES_FIRST:
            self._began = time.process_time(), self._exchange.sent()

    async def whole(self) -> None:
        """Wait until everything was sent and read."""
        before = -1
        while before != self._updates or self._updates < UPDATES_FIRST or not self._all_sent():
            before = self._updates
            await asyncio.sleep(LOOK_S)
        cpu, before_sent = self._began
        frames = self._exchange.sent() - before_sent
        self.cost_us = (time.process_time() - cpu) / frames * 1e6
        self.share = (self._updates - UPDATES_FIRST) / frames

    def check(self) -> None:
        """Compare the last best prices of every book with the exchange's."""
        market = stream.Stream(KEPT, seed=5)
        market.snapshot()  # as the exchange does: its amounts are drawn from the same numbers
        for _ in range(ROUNDS):
            market.frame(LEVELS)
        bids, asks = market.snapshot()
        best = float(stream.price(bids[0][0])), float(stream.price(asks[0][0]))
        for symbol in SYMBOLS:
            bid, ask = self._best[symbol]
            assert (float(bid), float(ask)) == best, (symbol, bid, ask, best)

    def _all_sent(self) -> bool:
        return self._exchange.sent() == ROUNDS * len(NATIVES)


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
    meter = Meter(exchange)
    async with asyncio.timeout(PATIENCE_S):
        await contender(exchange, meter)
    if kind != "floor":
        meter.check()
    report(ROW, {name: meter.cost_us}, "us a frame")
    report("update to the caller's function, 20 books", {name: meter.cost_us / meter.share}, "us")
    report("updates over frames, 20 books", {name: meter.share}, "of 1")
    os._exit(0)  # the exchange ends with its standard input


def main() -> None:
    if sys.argv[1] == "serve":
        serve()
        return
    load.settle_on(0)
    uvloop.run(measure(sys.argv[1], Exchange()))


if __name__ == "__main__":
    main()
