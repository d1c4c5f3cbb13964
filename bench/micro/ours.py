"""Our own path for the benchmarks: the session of a feed, its connector, the product's books."""

import json
from collections.abc import Callable

import stream
from onebook import books, core
from onebook.books import Books
from onebook.core import reference
from onebook.exchanges import EXCHANGES, kraken
from onebook.feeds.session import FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health, Instrument
from onebook.streams import stream as stream_module

Snapshot = tuple[list[stream.Level], list[stream.Level]]
NATIVE = {
    "binance": "BTCUSDT", "okx": "BTC-USDT", "kraken": "BTC/USDT", "coinbase": "BTC-USDT",
}  # fmt: skip


def use(implementation: str) -> None:
    """Run books and views on the `compiled` core or on the `reference` implementation."""
    chosen = reference if implementation == "reference" else core
    books.Book = chosen.Book  # type: ignore[misc]
    stream_module.View = chosen.View  # type: ignore[misc]


def checksums(snapshot: Snapshot, changes: list[Snapshot]) -> list[int]:
    """What Kraken would print into the snapshot and into each frame of changes."""
    book = core.Book(EXCHANGES["kraken"].depth)
    book.replace(*(_pairs(side) for side in snapshot))
    found = [book.crc(kraken.CHECKSUM)]
    for change in changes:
        book.apply(*(_pairs(side) for side in change))
        found.append(book.crc(kraken.CHECKSUM))
    return found


def _pairs(side: stream.Side) -> bytes:
    return json.dumps([[stream.price(p), stream.amount(q, 8)] for p, q in side]).encode()


class Feed:
    """A session with one live BTC/USDT book, ready for frames.

    `received` takes a raw frame, as the socket hands it over: sequence check, dispatch, health
    and the product's book included.
    """

    def __init__(
        self,
        protocol: str,
        snapshot: Snapshot,
        shared: Books | None = None,
        *,
        name: str = "",
        channel: str = "",
    ) -> None:
        exchange = EXCHANGES[protocol]
        if channel:
            exchange = exchange.channels[channel]
        self.instrument = Instrument(name or protocol, "BTC/USDT", NATIVE[protocol])
        self.books = Books() if shared is None else shared
        levels_max = exchange.depth if exchange.truncate else core.LEVELS_MAX
        self.book = self.books.open(self.instrument, levels_max=levels_max)
        self.session = FeedSession(
            exchange,
            [self.instrument],
            books=self.books,
            stats=ExchangeStats(name or protocol),
        )
        self.session.opened(0.0)
        self._start(protocol, snapshot)
        assert self.book.health is Health.LIVE, self.book.reason
        self.received: Callable[[bytes, float], None] = self.session.received

    def _start(self, name: str, snapshot: Snapshot) -> None:
        bids, asks = snapshot
        if name == "binance":
            self.session.received(b'{"result":null,"id":1}', 0.0)
            body = stream.binance_snapshot(bids, asks)
            self.session.fetched(self.instrument, body, 0.0)
        elif name == "okx":
            self.session.received(stream.okx(bids, asks, 0, "snapshot"), 0.0)
        elif name == "kraken":
            frame = stream.kraken(bids, asks, checksums(snapshot, [])[0], "snapshot")
            self.session.received(frame, 0.0)
        elif name == "coinbase":
            self.session.received(stream.coinbase_snapshot(bids, asks), 0.0)
        else:
            raise ValueError(f"no frames are made for {name}")
