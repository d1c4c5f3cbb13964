"""One small exchange per protocol: it holds books, changes them at random and answers requests.

Written from the exchanges' pages, not from the connectors, and kept apart from the simulator: it
knows no sockets and no time, only which bytes an exchange would send.
"""

import json
import random
from binascii import crc32
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from urllib.parse import parse_qs, urlsplit

from contract.oracle import Sides
from onebook.model import Instrument

Rows = list[list[str]]
MID = 1_000  # bids live below, asks above: never crossed


@dataclass
class Market:
    """One true book: price and amount text a side, and the exchange's number for its state."""

    sides: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    sequence: int = 1_000

    def rows(self, side: int, depth: int | None = None) -> Rows:
        ranked = sorted(self.sides[side].items(), key=lambda row: Decimal(row[0]))
        if side == 0:
            ranked.reverse()
        return [list(row) for row in ranked[:depth]]


class Maker:
    """What all small exchanges share: true books and random changes."""

    name: str
    natives: tuple[str, str, str]
    levels = 12
    depth: int | None = None
    unknown: tuple[bytes, ...] = ()

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.markets = {native: self._market() for native in self.natives}
        self.subscribed: set[str] = set()
        self.instruments = [
            Instrument(self.name, f"COIN{rank}/USD", native)
            for rank, native in enumerate(self.natives)
        ]

    def sides(self, native: str) -> Sides:
        """The book as a client must have it."""
        bids, asks = (self.markets[native].rows(side, self.depth) for side in (0, 1))
        return (
            {Decimal(price): Decimal(amount) for price, amount in bids},
            {Decimal(price): Decimal(amount) for price, amount in asks},
        )

    def changed(self, native: str) -> bytes:
        """Change the book and tell it."""
        market = self.markets[native]
        before = [market.rows(side, self.depth) for side in (0, 1)]
        for _ in range(self.random.randint(1, 3)):
            self._change(market)
        after = [market.rows(side, self.depth) for side in (0, 1)]
        bids, asks = (self._difference(market, side, before, after) for side in (0, 1))
        if not bids and not asks:
            return self.changed(native)
        return self.delta(native, bids, asks)

    def answers(self, frame: bytes) -> Iterator[bytes]:
        """What comes back to a client's frame."""
        raise NotImplementedError

    def body(self, path: str) -> bytes:
        """What comes back to a GET."""
        raise NotImplementedError

    def snapshot(self, native: str) -> bytes:
        """The whole book as a frame."""
        raise NotImplementedError

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        """A change as a frame."""
        raise NotImplementedError

    def _market(self) -> Market:
        market = Market()
        for rank in range(1, self.levels + 1):
            market.sides[0][f"{MID - rank}.50"] = self._amount()
            market.sides[1][f"{MID + rank}.50"] = self._amount()
        return market

    def _amount(self) -> str:
        return f"{self.random.randint(1, 99_999) / 1000:.4f}"

    def _change(self, market: Market) -> None:
        side = self.random.randrange(2)
        steps = self.random.randint(1, self.levels)
        price = f"{MID - steps if side == 0 else MID + steps}.{self.random.choice(('25', '50'))}"
        if self.random.random() < 0.4 and len(market.sides[side]) > 3:
            market.sides[side].pop(price, None)
        else:
            market.sides[side][price] = self._amount()

    @staticmethod
    def _difference(market: Market, side: int, before: list[Rows], after: list[Rows]) -> Rows:
        old = {row[0]: row[1] for row in before[side]}
        new = {row[0]: row[1] for row in after[side]}
        gone = [[price, "0.0000"] for price in old if price not in market.sides[side]]
        return gone + [[price, amount] for price, amount in new.items() if old.get(price) != amount]


def encode(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


class BinanceMaker(Maker):
    name, natives = "binance", ("BTCUSDT", "ETHUSDT", "币安BTC")
    unknown = (
        b'{"stream":"btcusdt@trade","data":{"e":"trade","s":"BTCUSDT","p":"1","q":"2"}}',
        b'{"stream":"!ticker@arr","data":[{"e":"24hrTicker","s":"BTCUSDT"}]}',
        b'{"result":["btcusdt@depth@100ms"],"id":99}',
        b"{}",
    )

    def answers(self, frame: bytes) -> Iterator[bytes]:
        request = json.loads(frame)
        known = {native.lower(): native for native in self.natives}
        named = {known[param.removesuffix("@depth@100ms")] for param in request["params"]}
        if request["method"] == "SUBSCRIBE":
            self.subscribed |= named
        else:
            self.subscribed -= named
        yield encode({"result": None, "id": request["id"]})

    def body(self, path: str) -> bytes:
        query = parse_qs(urlsplit(path).query)
        assert (urlsplit(path).path, query["limit"]) == ("/api/v3/depth", ["1000"])
        market = self.markets[query["symbol"][0]]
        return encode(
            {
                "lastUpdateId": market.sequence,
                "bids": market.rows(0, 1000),
                "asks": market.rows(1, 1000),
            }
        )

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        market = self.markets[native]
        first = market.sequence + 1
        market.sequence += self.random.randint(1, 4)
        change = {"e": "depthUpdate", "E": 1, "s": native, "U": first, "u": market.sequence}
        return encode({"stream": f"{native.lower()}@depth@100ms", "data": change | _ba(bids, asks)})


def _ba(bids: Rows, asks: Rows) -> dict[str, Rows]:
    return {"b": bids, "a": asks}


class OkxMaker(Maker):
    name, natives = "okx", ("BTC-USDT", "ETH-USDT", "SOL-USDC")
    unknown = (
        b"pong",
        b'{"event":"channel-conn-count","channel":"books","connCount":"1","connId":"a"}',
        b'{"event":"notice","code":"1","msg":"hello"}',
        b'{"arg":{"channel":"tickers","instId":"BTC-USDT"},"data":[{"last":"1"}]}',
        b'{"arg":{"channel":"bbo-tbt","instId":"BTC-USDT"},"action":"snapshot","data":[{"asks":[],'
        b'"bids":[]}]}',
        b"{}",
    )

    def answers(self, frame: bytes) -> Iterator[bytes]:
        request = json.loads(frame)
        for arg in request["args"]:
            yield encode({"event": request["op"], "arg": arg, "connId": "a"})
            if request["op"] == "subscribe":
                self.subscribed.add(arg["instId"])
                yield self.snapshot(arg["instId"])
            else:
                self.subscribed.discard(arg["instId"])

    def snapshot(self, native: str) -> bytes:
        market = self.markets[native]
        return self._frame(native, "snapshot", market.rows(0), market.rows(1), -1)

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        market = self.markets[native]
        previous = market.sequence
        # At maintenance the number falls, and the chain holds all the same.
        market.sequence += self.random.choice((1, 7, 30, -500)) if previous > 600 else 1
        return self._frame(native, "update", bids, asks, previous)

    def _frame(self, native: str, action: str, bids: Rows, asks: Rows, previous: int) -> bytes:
        data = {
            "asks": [[*row, "0", "2"] for row in asks],
            "bids": [[*row, "0", "2"] for row in bids],
            "ts": "1",
            "checksum": 0,
            "prevSeqId": previous,
            "seqId": self.markets[native].sequence,
        }
        arg = {"channel": "books", "instId": native}
        return encode({"arg": arg, "action": action, "data": [data]})


class BybitMaker(Maker):
    name, natives = "bybit", ("BTCUSDT", "ETHUSDT", "SOLUSDC")
    unknown = (
        b'{"success":true,"ret_msg":"pong","conn_id":"a","op":"ping"}',
        b'{"topic":"publicTrade.BTCUSDT","type":"snapshot","ts":1,"data":[{"s":"BTCUSDT"}]}',
        b'{"topic":"orderbook.50.BTCUSDT","type":"delta","ts":1,"data":{"s":"BTCUSDT","b":[],'
        b'"a":[],"u":5,"seq":1}}',
        b"{}",
    )

    def answers(self, frame: bytes) -> Iterator[bytes]:
        request = json.loads(frame)
        assert len(request["args"]) <= 10
        named = [topic.removeprefix("orderbook.200.") for topic in request["args"]]
        yield encode({"success": True, "ret_msg": request["op"]} | _echo(request, "req_id", "op"))
        if request["op"] == "unsubscribe":
            self.subscribed.difference_update(named)
            return
        self.subscribed.update(named)
        for native in named:
            yield self.snapshot(native)

    def snapshot(self, native: str) -> bytes:
        market = self.markets[native]
        return self._frame(native, "snapshot", market.rows(0), market.rows(1))

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        self.markets[native].sequence += 1
        return self._frame(native, "delta", bids, asks)

    def _frame(self, native: str, kind: str, bids: Rows, asks: Rows) -> bytes:
        data = {"s": native, "u": self.markets[native].sequence, "seq": 9} | _ba(bids, asks)
        return encode(
            {"topic": f"orderbook.200.{native}", "ts": 1, "type": kind, "data": data, "cts": 1}
        )


def _echo(request: dict[str, object], *names: str) -> dict[str, object]:
    return {name: request[name] for name in names}


class CoinbaseMaker(Maker):
    name, natives = "coinbase", ("BTC-USD", "ETH-USD", "SOL-USDC")
    unknown = (
        b'{"type":"ticker","product_id":"BTC-USD","price":"1"}',
        b'{"type":"status","products":[],"currencies":[]}',
        b"{}",
    )

    def answers(self, frame: bytes) -> Iterator[bytes]:
        request = json.loads(frame)
        if request["type"] == "subscribe":
            self.subscribed.update(request["product_ids"])
        else:
            self.subscribed.difference_update(request["product_ids"])
        channels = [
            {"name": name, "product_ids": sorted(self.subscribed)}
            for name in ("level2_batch", "heartbeat")
        ]
        if request["type"] == "subscribe":
            for native in request["product_ids"]:
                yield self.snapshot(native)
        yield encode({"type": "subscriptions", "channels": channels})

    def snapshot(self, native: str) -> bytes:
        market = self.markets[native]
        book = {"bids": market.rows(0), "asks": market.rows(1)}
        return encode({"type": "snapshot", "product_id": native} | book)

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        changes = [["buy", *row] for row in bids] + [["sell", *row] for row in asks]
        self.random.shuffle(changes)
        return encode({"type": "l2update", "product_id": native, "time": "now", "changes": changes})


class KrakenMaker(Maker):
    name, natives = "kraken", ("BTC/USD", "DOGE/EUR", "ETH/BTC")
    levels, depth = 104, 100  # more than a client gets
    unknown = (
        b'{"channel":"heartbeat"}',
        b'{"channel":"status","type":"update","data":[{"system":"online","api_version":"v2"}]}',
        b'{"method":"pong","req_id":1,"time_in":"now","time_out":"now"}',
        b'{"channel":"trade","type":"update","data":[{"symbol":"BTC/USD","price":1.0}]}',
        b'{"Error":"Exceeded msg rate"}',
        b"{}",
    )

    def answers(self, frame: bytes) -> Iterator[bytes]:
        request = json.loads(frame)
        params, method = request["params"], request["method"]
        assert (params["channel"], params["depth"]) == ("book", 100)
        for native in params["symbol"]:
            result = {"channel": "book", "symbol": native, "depth": 100, "snapshot": True}
            yield encode({"method": method, "result": result, "success": True, "time_in": "now"})
            if method == "subscribe":
                self.subscribed.add(native)
                yield self.snapshot(native)
            else:
                self.subscribed.discard(native)

    def snapshot(self, native: str) -> bytes:
        market = self.markets[native]
        return self._frame(native, "snapshot", market.rows(0, 100), market.rows(1, 100))

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        return self._frame(native, "update", bids, asks)

    def _change(self, market: Market) -> None:
        """Mostly where the checksum looks, sometimes at the rim of what a client gets."""
        side = self.random.randrange(2)
        steps = self.random.choice((*range(1, 9), 98, 101, 103))
        price = f"{MID - steps if side == 0 else MID + steps}.{self.random.choice(('25', '50'))}"
        if self.random.random() < 0.4 and len(market.sides[side]) > 101:
            market.sides[side].pop(price, None)
        else:
            market.sides[side][price] = self._amount()

    def _frame(self, native: str, kind: str, bids: Rows, asks: Rows) -> bytes:
        sides = ",".join(
            f'"{name}":[{",".join(_object(row) for row in rows)}]'
            for name, rows in (("bids", bids), ("asks", asks))
        )
        checksum = f'"checksum":{self._checksum(native)},"timestamp":"now"'
        data = f'"data":[{{"symbol":"{native}",{sides},{checksum}}}]'
        return f'{{"channel":"book","type":"{kind}",{data}}}'.encode()

    def _checksum(self, native: str) -> int:
        market = self.markets[native]
        digits = [
            number.replace(".", "").lstrip("0")
            for side in (1, 0)
            for row in market.rows(side, 10)
            for number in row
        ]
        return crc32("".join(digits).encode())


def _object(row: list[str]) -> str:
    return f'{{"price":{row[0]},"qty":{row[1]}}}'


class PoloniexMaker(Maker):
    name, natives = "poloniex", ("BTC_USDT", "ETH_USDT", "SOL_USDC")
    unknown = (
        b'{"event":"pong"}',
        b'{"channel":"trades","data":[{"symbol":"BTC_USDT","price":"1"}]}',
        b'{"event":"subscribe","channel":"trades","symbols":["BTC_USDT"]}',
        b'{"event":"unsubscribe","channel":"book_lv2","symbols":["BTC_USDT"]}',
        b"{}",
    )

    def answers(self, frame: bytes) -> Iterator[bytes]:
        request = json.loads(frame)
        (channel,) = request["channel"]
        yield encode(_echo(request, "event", "symbols") | {"channel": channel})
        if request["event"] == "unsubscribe":
            self.subscribed.difference_update(request["symbols"])
            return
        self.subscribed.update(request["symbols"])
        for native in request["symbols"]:
            yield self.snapshot(native)

    def snapshot(self, native: str) -> bytes:
        market = self.markets[native]
        return self._frame(native, "snapshot", market.rows(0), market.rows(1))

    def delta(self, native: str, bids: Rows, asks: Rows) -> bytes:
        self.markets[native].sequence += 1
        return self._frame(native, "update", bids, asks)

    def _frame(self, native: str, action: str, bids: Rows, asks: Rows) -> bytes:
        sequence = self.markets[native].sequence
        data = {"symbol": native, "createTime": 1, "asks": asks, "bids": bids}
        numbers = {"lastId": sequence - 1, "id": sequence, "ts": 1}
        return encode({"channel": "book_lv2", "data": [data | numbers], "action": action})


MAKERS: dict[str, type[Maker]] = {
    maker.name: maker
    for maker in (BinanceMaker, OkxMaker, BybitMaker, CoinbaseMaker, KrakenMaker, PoloniexMaker)
}
