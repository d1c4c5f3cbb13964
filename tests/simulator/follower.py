"""The least that a feed does: a real connector, a real socket, the core's books."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Self

import httpx
import websockets
from websockets.asyncio.client import ClientConnection

from onebook.core import Book
from onebook.exchanges.contract import (
    DIGITS_10,
    Acknowledged,
    Delta,
    Exchange,
    Fetch,
    Gap,
    Output,
    ProtocolError,
    Refused,
    Send,
    Snapshot,
    Verify,
)
from onebook.model import Instrument

PATIENCE_S = 30.0


class Follower:
    """Follows some symbols of one exchange; what is odd is kept in `faults`."""

    def __init__(self, exchange: Exchange, symbols: Iterable[str]) -> None:
        self.exchange = exchange
        self.symbols = set(symbols)
        self.books: dict[str, Book] = {}
        self.acknowledged: set[str] = set()
        self.faults: list[Gap | Refused | ProtocolError | str] = []
        self.frames = 0
        self.frame_log: list[str] = []

    async def __aenter__(self) -> Self:
        async with httpx.AsyncClient() as http:
            body = await http.get(self.exchange.rest_url + self.exchange.instruments_path)
        listed = self.exchange.parse_instruments(body.content)
        self.instruments = {one.symbol: one for one in listed if one.symbol in self.symbols}
        self.connector = self.exchange.connector(list(self.instruments.values()))
        self.http = httpx.AsyncClient()
        self.ws: ClientConnection = await websockets.connect(
            self.exchange.ws_url, max_size=None, compression=None
        )
        await self._act(self.connector.opened())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ws.close()
        await self.http.aclose()

    async def until(self, true: Callable[[], bool]) -> None:
        """Read frames until something holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self.read()

    async def read(self) -> None:
        frame = await self.ws.recv(decode=False)
        assert isinstance(frame, bytes)
        self.frames += 1
        self.frame_log.append(frame.decode())
        try:
            await self._act(self.connector.received(frame))
        except ProtocolError as error:
            self.faults.append(error)

    async def resync(self, symbol: str) -> None:
        self.books.pop(symbol, None)
        self.faults.clear()
        await self._act(self.connector.resync(self.instruments[symbol]))

    def book(self, symbol: str) -> tuple[dict[str, str], dict[str, str]]:
        book = self.books.get(symbol)
        bids, asks = book.top(100_000) if book else ([], [])
        return dict(bids), dict(asks)

    async def _act(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case Send(frame):
                    await self.ws.send(frame.decode())
                case Fetch(instrument, path):
                    answer = await self.http.get(self.exchange.rest_url + path)
                    await self._act(self.connector.fetched(instrument, answer.content))
                case Acknowledged(instrument):
                    self.acknowledged.add(instrument.symbol)
                case Gap() | Refused():
                    self.faults.append(output)
                case Snapshot(instrument, bids, asks, shape):
                    self._book(instrument).replace(bids, asks, shape)
                case Delta(instrument, bids, asks, shape):
                    self._apply(instrument, output)
                case Verify(instrument, layout, expected):
                    self._verify(instrument, layout, expected)

    def _book(self, instrument: Instrument) -> Book:
        most = self.exchange.depth if self.exchange.truncate else 20_000
        return self.books.setdefault(instrument.symbol, Book(most))

    def _apply(self, instrument: Instrument, delta: Delta) -> None:
        book = self._book(instrument)
        try:
            book.apply(delta.bids, delta.asks, delta.shape)
        except ValueError as error:
            self.faults.append(str(error))
        if book.crossed:
            self.faults.append("crossed")

    def _verify(self, instrument: Instrument, layout: str, expected: int) -> None:
        book = self.books[instrument.symbol]
        actual = book.crc_digits(10) if layout == DIGITS_10 else book.crc_text(25)
        if actual & 0xFFFFFFFF != expected & 0xFFFFFFFF:
            self.faults.append("checksum")
