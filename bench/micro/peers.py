"""The peers' own handlers, each fed raw frames of its exchange's protocol.

A contender is made fresh for each pass and returns the nanoseconds per frame. What is stubbed is
said here: ccxt's futures are resolved by a counter instead of waking a task, its checksums are
off, as ours have none to verify in these frames; cryptofeed awaits its callback as it does live.
"""

import asyncio
import gc
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import orjson

import stream
from timing import each

Snapshot = tuple[list[stream.Level], list[stream.Level]]


def cryptofeed(
    name: str, frames: list[bytes], snapshot: Snapshot, read_best: bool = False
) -> float:
    """cryptofeed's `message_handler`, with its order book callback."""
    return asyncio.run(_cryptofeed(name, frames, snapshot, read_best))


async def _cryptofeed(name: str, frames: list[bytes], snapshot: Snapshot, read_best: bool) -> float:
    from cryptofeed.defines import L2_BOOK
    from cryptofeed.exchanges import EXCHANGE_MAP
    from cryptofeed.symbols import Symbols

    native = {"BINANCE": "BTCUSDT"}.get(name, "BTC-USDT")
    Symbols.set(
        name, {"BTC-USDT": native}, {"instrument_type": {"BTC-USDT": "spot"}, "tick_size": {}}
    )
    heard = 0

    async def callback(book: Any, _: float) -> None:
        nonlocal heard
        heard += 1
        if read_best:
            book.book.bids.index(0)
            book.book.asks.index(0)

    feed = EXCHANGE_MAP[name](
        symbols=["BTC-USDT"],
        channels=[L2_BOOK],
        callbacks={L2_BOOK: callback},
        config={"log": {"disabled": True, "filename": "/dev/null", "level": "ERROR"}},
    )
    await _fill_cryptofeed(feed, name, snapshot)
    heard = 0
    texts = [frame.decode() for frame in frames]
    handler = feed.message_handler
    gc.collect()
    gc.disable()
    began = time.perf_counter_ns()
    for text in texts:
        await handler(text, None, 1.0)
    took = time.perf_counter_ns() - began
    gc.enable()
    assert heard == len(frames), (heard, len(frames))
    return took / len(frames)


async def _fill_cryptofeed(feed: Any, name: str, snapshot: Snapshot) -> None:
    from cryptofeed.types import OrderBook

    bids, asks = snapshot
    if name == "BINANCE":
        feed._l2_book["BTC-USDT"] = OrderBook(
            feed.id, "BTC-USDT", bids=_decimals(bids), asks=_decimals(asks)
        )
        feed.last_update_id["BTC-USDT"] = 0
    elif name == "OKX":
        await feed.message_handler(stream.okx(bids, asks, 0, "snapshot").decode(), None, 0.0)
    else:
        await feed.message_handler(
            stream.coinbase_advanced(bids, asks, 0, "snapshot").decode(), None, 0.0
        )


def _decimals(side: stream.Side) -> dict[Decimal, Decimal]:
    return {Decimal(stream.price(p)): Decimal(stream.amount(q)) for p, q in side}


class _Client:
    """What ccxt's handlers need of their connection."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.subscriptions: dict[str, Any] = {}
        self.futures: dict[str, Any] = {}
        self.resolved = 0

    def resolve(self, _: Any, __: str) -> None:
        self.resolved += 1

    def reject(self, error: Exception, _: str | None = None) -> None:
        raise error


_CCXT = {
    "binance": ("BTCUSDT", "BTC/USDT", "wss://stream.binance.com:9443/ws"),
    "okx": ("BTC-USDT", "BTC/USDT", "wss://ws.okx.com:8443/ws/v5/public"),
    "kraken": ("BTC/USDT", "BTC/USDT", "wss://ws.kraken.com/v2"),
    "coinbase": ("BTC-USDT", "BTC/USDT", "wss://ws-feed.exchange.coinbase.com"),
}


def ccxt(name: str, frames: list[bytes], snapshot: Snapshot) -> float:
    """ccxt.pro's `handle_message` behind orjson, which it uses where it is installed."""
    return asyncio.run(_ccxt(name, frames, snapshot))


async def _ccxt(name: str, frames: list[bytes], snapshot: Snapshot) -> float:
    import ccxt.pro

    native, symbol, url = _CCXT[name]
    kind = "coinbaseexchange" if name == "coinbase" else name
    exchange = getattr(ccxt.pro, kind)({"options": {"watchOrderBook": {"checksum": False}}})
    base, quote = symbol.split("/")
    market = exchange.safe_market_structure(
        {
            "id": native, "symbol": symbol, "base": base, "quote": quote, "baseId": base,
            "quoteId": quote, "type": "spot", "spot": True, "active": True,
            "precision": {"price": 0.01, "amount": 0.00001}, "info": {"wsname": native},
        }
    )  # fmt: skip
    exchange.set_markets([market])
    client = _Client(url)
    handle: Callable[[Any, Any], Any] = exchange.handle_message
    _fill_ccxt(exchange, client, name, symbol, snapshot)
    client.resolved = 0
    cost = each(lambda frame: handle(client, orjson.loads(frame)), frames)
    assert client.resolved >= len(frames) - 1, client.resolved  # it passes over the first
    await exchange.close()
    return cost


def _fill_ccxt(exchange: Any, client: _Client, name: str, symbol: str, snapshot: Snapshot) -> None:
    bids, asks = snapshot
    if name == "binance":
        sides = [[[p / stream.TICKS, q / stream.LOTS] for p, q in side] for side in snapshot]
        book = {"bids": sides[0], "asks": sides[1], "nonce": 0, "timestamp": 1, "symbol": symbol}
        exchange.orderbooks[symbol] = exchange.order_book(book, 1 << 30)
        return
    if name == "coinbase":
        first = stream.coinbase_snapshot(bids, asks)
    elif name == "okx":
        first = stream.okx(bids, asks, 0, "snapshot")
    else:
        first = stream.kraken(bids, asks, 0, "snapshot")
    exchange.handle_message(client, orjson.loads(first))
