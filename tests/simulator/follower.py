"""A minimal feed: a real connector, a real socket, the core's books."""

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Self

import httpx
import websockets
from websockets.asyncio.client import ClientConnection

from onebook.config import FeedSettings
from onebook.core import LEVELS_MAX, Book, ChecksumLayout
from onebook.exchanges.kit import (
    Acknowledged,
    BookRefused,
    Delta,
    Exchange,
    Fetch,
    FrameForm,
    Gap,
    Output,
    ProtocolError,
    Send,
    Snapshot,
    Verify,
)
from onebook.feeds.catalogue import read_list
from onebook.inflate import inflated
from onebook.model import Instrument
from onebook.rest import Rest, trusted_authorities

PATIENCE_S = 30.0
FRAME_BYTES_MAX = 1 << 24


class Follower:
    """Follows some symbols of one exchange; records anomalies in `faults`."""

    def __init__(self, exchange: Exchange, symbols: Iterable[str]) -> None:
        self.exchange = exchange
        self.symbols = set(symbols)
        self.books: dict[str, Book] = {}
        self.acknowledged: set[str] = set()
        self.faults: list[Gap | BookRefused | ProtocolError | str] = []
        self.frames = 0
        self.frame_log: list[str | bytes] = []

    async def __aenter__(self) -> Self:
        async with Rest() as rest:
            listed = await read_list(self.exchange, rest=rest, settings=FeedSettings())
        self.instruments = {one.symbol: one for one in listed if one.symbol in self.symbols}
        self.connector = self.exchange.connector(list(self.instruments.values()))
        self.http = httpx.AsyncClient(verify=trusted_authorities())
        self.ws: ClientConnection = await websockets.connect(
            self.exchange.ws_url, max_size=None, compression=None
        )
        await self._act(self.connector.opened())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ws.close()
        await self.http.aclose()

    async def until(self, true: Callable[[], bool]) -> None:
        """Read frames until a condition holds."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                await self.read()

    async def read(self) -> None:
        frame = await self.ws.recv()
        if self.exchange.frames is FrameForm.COMPRESSED:
            assert isinstance(frame, bytes)
            frame = inflated(frame, FRAME_BYTES_MAX).decode()
        self.frames += 1
        self.frame_log.append(frame)
        message = frame.encode() if isinstance(frame, str) else frame
        try:
            await self._act(self.connector.received(message))
        except ProtocolError as error:
            self.faults.append(error)

    async def resync(self, symbol: str) -> None:
        self.books.pop(symbol, None)
        self.faults.clear()
        await self._act(self.connector.resync([self.instruments[symbol]]))

    def book(self, symbol: str, levels: int | None = None) -> tuple[dict[str, str], dict[str, str]]:
        book = self.books.get(symbol)
        bids, asks = book.top(levels or 100_000) if book else ([], [])
        return dict(bids), dict(asks)

    async def _act(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            match output:
                case Send():
                    await self.ws.send(output.at(round(time.time() * 1_000)).decode())
                case Fetch(instrument, path):
                    answer = await self.http.get(self.exchange.rest_url + path)
                    await self._act(self.connector.fetched(instrument, answer.content))
                case Acknowledged(instrument):
                    self.acknowledged.add(instrument.symbol)
                case Gap() | BookRefused():
                    self.faults.append(output)
                case Snapshot(instrument, bids, asks, shape):
                    self._change(
                        instrument, partial(self._book(instrument).replace, bids, asks, shape)
                    )
                case Delta(instrument, bids, asks, shape):
                    self._change(
                        instrument, partial(self._book(instrument).apply, bids, asks, shape)
                    )
                case Verify(instrument, layout, expected):
                    self._verify(instrument, layout, expected)

    def _book(self, instrument: Instrument) -> Book:
        most = self.exchange.depth if self.exchange.truncate else LEVELS_MAX
        return self.books.setdefault(instrument.symbol, Book(most))

    def _change(self, instrument: Instrument, change: Callable[[], object]) -> None:
        try:
            change()
        except ValueError as error:
            self.faults.append(str(error))
        if self._book(instrument).crossed:
            self.faults.append("crossed")

    def _verify(self, instrument: Instrument, layout: ChecksumLayout, expected: int) -> None:
        book = self.books[instrument.symbol]
        if book.crc(layout) != expected & 0xFFFFFFFF:
            self.faults.append("checksum")
