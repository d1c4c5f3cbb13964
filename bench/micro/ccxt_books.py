"""ccxt.pro on a simulated exchange without sockets: its own client class, whose messages we carry.

What the client does with a message is left as it is: it finds out whether it is JSON, reads it with
orjson and calls the exchange's `handle_message`. Compressed messages come inflated, as to our
session. Nothing awaits a book, so that no future is resolved and no task woken. `watch_order_book`
cuts each book that it returns to the depth of the channel, and here nothing calls it again: where
an exchange does not say which levels leave its window, that cut is made after each message.

How ccxt is asked for the channel that we follow stands where it judges our books (`tests/judges`),
and so do the exchanges that it reads in another way.
"""

import asyncio
import copy
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import ccxt.pro
import orjson
from simulated import Case, Simulated

from judges.ccxt_side import Judge, Levels, has, market
from judges.test_ccxt_books import EXEMPT, JUDGES
from onebook.simulator.kit import SimulatedSession as Client
from timing import each

TURNS = 20  # of the event loop, until what ccxt does at once is done
DELAY_S = 0.01  # it makes some requests a little later


def judge_of(case: Case) -> Judge | None:
    """How ccxt is asked for the channel; None where it does not read it."""
    judge = JUDGES.get(str(case), Judge())
    judge = judge._replace(name=judge.name or case.name)
    return judge if str(case) not in EXEMPT and has(judge.name) else None


class Theirs:
    """ccxt's order book of the first pair of a simulated exchange."""

    def __init__(self, simulated: Simulated, judge: Judge) -> None:
        self.client: Client | None = None  # of the last connection, as the exchange sees it
        self._simulated = simulated
        self._judge = judge
        self._symbol = simulated.listing.symbol
        config = {"enableRateLimit": False, "options": dict(judge.options)}
        self._exchange = getattr(ccxt.pro, judge.name)(config | dict(judge.keys))
        if judge.repair:
            judge.repair(self._exchange)
        self._client_of = self._exchange.client
        self._exchange.client = self._connected
        self._exchange.fetch = self._fetch
        self._connection: Any = None  # the same connection as ccxt sees it
        self._watching: asyncio.Task[Any] | None = None
        self._kept: dict[str, Any] = {}

    async def open(self) -> None:
        """Ask for the book."""
        self._exchange.open()  # as it does before its first request
        listings = self._simulated.board.listings.values()
        self._exchange.set_markets(
            await getattr(self._exchange, self._judge.markets)()
            if self._judge.markets
            else [market(listing) for listing in listings]
        )
        judge = self._judge
        asked = self._exchange.watch_order_book(
            self._symbol, judge.limit, copy.deepcopy(dict(judge.params))
        )
        self._watching = asyncio.create_task(asked)

    async def settle(self) -> None:
        """Let it do what it does at once.

        Raises:
            Exception: It gave up.
        """
        await asyncio.sleep(DELAY_S)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert self._watching is not None
        if self._watching.done():
            self._watching.result()

    def hear(self, frames: Iterable[bytes]) -> None:
        """Hand messages to it."""
        for frame in frames:
            self._connection.handle_text_or_binary_message(_message(frame))

    def keep(self) -> None:
        """Let each `cost` begin with the book as it is now."""
        self._kept = copy.deepcopy(self._exchange.orderbooks)

    def cost(self, frames: list[bytes]) -> float:
        """Nanoseconds per frame."""
        self._exchange.orderbooks = copy.deepcopy(self._kept)
        messages = [_message(frame) for frame in frames]
        handle = self._connection.handle_text_or_binary_message
        if not self._simulated.rules.silent_cuts:
            return each(handle, messages)
        books, symbol = self._exchange.orderbooks, self._symbol

        def handle_and_cut(message: str | bytes) -> None:
            handle(message)
            books[symbol].limit()

        return each(handle_and_cut, messages)

    def book(self, levels: int) -> tuple[Levels, Levels]:
        """The best levels, as the digits of ccxt's numbers say."""
        book = self._exchange.orderbooks.get(self._symbol) or {"bids": [], "asks": []}
        bids, asks = (
            [(Decimal(repr(each[0])), Decimal(repr(each[1]))) for each in book[side][:levels]]
            for side in ("bids", "asks")
        )
        return bids, asks

    async def close(self) -> None:
        """End."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._exchange.close()

    def _connected(self, url: str) -> Any:
        """Make its connection, which is one to the simulated exchange."""
        connection = self._client_of(url)
        if connection is self._connection:
            return connection
        client, first = self._simulated.connect(url)

        async def send(message: Any) -> None:
            text = message if isinstance(message, str) else orjson.dumps(message).decode()
            self.hear(self._simulated.received(client, text))

        connection.connect = lambda *words: connection.connected
        connection.send = send
        connection.connected.resolve(url)
        self.client, self._connection = client, connection
        self.hear(first)
        return connection

    async def _fetch(
        self, url: str, method: str = "GET", headers: Any = None, body: Any = None
    ) -> Any:
        return orjson.loads(self._simulated.rest(method, url))


def _message(frame: bytes) -> str | bytes:
    """A message as the socket's library hands it over: text, or what is not UTF-8."""
    try:
        return frame.decode()
    except UnicodeDecodeError:
        return frame
