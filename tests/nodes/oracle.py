"""The published books of exchanges, and a subscriber that compares every update with them."""

import asyncio
import json
from bisect import bisect_left
from decimal import Decimal

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

DEPTH = 20
BELOW = 2 * DEPTH  # levels of the depth, some of which newer best prices may have passed


class Published:
    """Every state of every simulated book, by its best levels, in publishing order."""

    def __init__(self, simulated, symbols):
        self.simulated = simulated
        self.books = [(name, symbol) for name in simulated.urls for symbol in symbols]
        self.states = {book: {} for book in self.books}  # levels: the numbers of all times
        self.counts = dict.fromkeys(self.books, 0)
        self.last = {}
        self.depth = {}  # the last message of each book's depth
        for name in simulated.urls:
            self._watch(simulated[name])

    def _watch(self, exchange):
        """Record each book after each step, published or not, because a snapshot may have any."""
        publish_state = exchange.publish_state

        def publish_and_note():
            publish_state()
            for book in self.books:
                if book[0] == exchange.name:
                    self.now(book)

        exchange.on_published = lambda symbol: self._note(exchange.name, symbol)
        exchange.publish_state = publish_and_note
        exchange.publish()

    def _note(self, name, symbol):
        book = name, symbol
        if book in self.states:
            exchange = self.simulated[name]
            newest = exchange.newest(symbol, 1)
            if book in self.depth:  # best prices ahead of the depth
                self._add(book, fused(self.depth[book], newest))
            self.depth[book] = exchange.book(symbol, BELOW)
            self._add(book, best(self.depth[book]))
            self._add(book, fused(self.depth[book], newest))

    def _add(self, book, levels):
        if self.last.get(book) != levels:
            self.last[book] = levels
            self.counts[book] += 1
            self.states[book].setdefault(levels, []).append(self.counts[book])

    def now(self, book):
        """Record the current book, published or not."""
        self._note(*book)


def best(truth):
    """The best levels of a truth as numbers."""
    return tuple(
        tuple((Decimal(price), Decimal(amount)) for price, amount in list(side.items())[:DEPTH])
        for side in truth
    )


def fused(depth, newest):
    """The best levels of the newest state over the strictly worse levels of the depth."""
    sides = []
    for side, newer, sign in zip(depth, newest, (1, -1), strict=True):
        top = dict(list(newer.items())[:1])
        price = next(map(Decimal, top), None)
        worse = {p: a for p, a in side.items() if price and sign * Decimal(p) < sign * price}
        assert price is None or len(worse) >= DEPTH or len(side) < BELOW
        sides.append(top | worse)
    return best(sides)


def shown(data):
    return tuple(
        tuple((Decimal(each[0]), Decimal(each[1])) for each in data[side])
        for side in ("bids", "asks")
    )


class Subscriber:
    """A client of one gateway that follows each book alone and checks each update.

    `wrong` has every update that is no state of the exchange, or older than one shown before.
    """

    def __init__(self, published):
        self.published = published
        self.wrong = []
        self.statuses = []  # (exchange, symbol, state, reason)
        self.number = dict.fromkeys(published.books, 0)  # of the newest state shown
        self.live = dict.fromkeys(published.books, False)
        self.updates = 0
        self.received_bytes = 0  # that are billed
        self.end_codes = []  # of the connections that the gateway closed
        self.reconnect_in_ms = []  # announced before
        self.by_id = {}
        self._moved = asyncio.Condition()

    async def run(self, url, key):
        """Read until the connections end: one per exchange, because symbols are unique on each."""
        async with asyncio.TaskGroup() as group:
            for name in self.published.simulated.urls:
                group.create_task(self._follow(url, key, name))

    async def _follow(self, url, key, name):
        async with connect(url, compression=None, close_timeout=1, max_size=None) as socket:
            await socket.recv()  # the first welcome is before the key, and not billed
            await socket.send(json.dumps({"type": "authenticate", "api_key": key}))
            for exchange, symbol in self.published.books:
                if exchange == name:
                    options = {"depth": DEPTH, "interval_ms": 10, "levels": "array"}
                    subscribe = {"type": "subscribe_aggregated", "symbol": symbol}
                    await socket.send(json.dumps({**subscribe, "exchanges": [name], **options}))
            try:
                while True:
                    text = await socket.recv()
                    self.received_bytes += len(text.encode())
                    await self._received(json.loads(text, parse_float=Decimal, parse_int=Decimal))
            except ConnectionClosed as end:
                self.end_codes.append(end.rcvd and end.rcvd.code)

    async def _received(self, message):
        kind = message["type"]
        if kind == "aggregated_subscription_response":
            assert message["success"], message
            (name,) = message["exchanges"]
            self.by_id[message["subscription_id"]] = name, message["symbol"]
        elif kind == "exchange_status":
            self.statuses.append(
                (message["exchange"], message["symbol"], message["state"], message["reason"])
            )
        elif kind == "server_shutdown":
            self.reconnect_in_ms = sorted([*self.reconnect_in_ms, int(message["reconnect_in_ms"])])
        elif kind in ("subscription_error", "error", "authentication_error"):
            raise AssertionError(message)
        elif kind == "aggregated_orderbook_update":
            self._check(self.by_id[message["subscription_id"]], message["data"])
        async with self._moved:
            self._moved.notify_all()

    def _check(self, book, data):
        self.updates += 1
        self.live[book] = not data["stale_exchanges"]
        if not self.live[book]:
            if data["bids"] or data["asks"]:
                self.wrong.append((book, "levels of a book that is not live"))
            return
        levels = shown(data)
        numbers = self.published.states[book].get(levels)
        if numbers is None:
            self.wrong.append((book, "levels that were never published", levels))
            return
        # A market may come back to the same levels: they are of the first time that they may be of.
        at = bisect_left(numbers, self.number[book])
        if at == len(numbers):
            self.wrong.append((book, "an older book after a newer one"))
        else:
            self.number[book] = numbers[at]

    async def until(self, condition):
        async with self._moved:
            await self._moved.wait_for(condition)

    async def fresh(self):
        """Wait until every book is live and newer than now."""
        marks = dict(self.published.counts)
        await self.until(
            lambda: all(
                self.live[book] and self.number[book] > marks[book] for book in self.published.books
            )
        )
