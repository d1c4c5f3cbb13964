"""Instrument lists between nodes: digests in heartbeats, pages on request. Sans-I/O."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec
from msgspec import Struct, msgpack

from onebook.model import Instrument, InstrumentStatus

PAGE_ROWS: Final = 1_000  # about 100 KB: soon across a slow link, within `request_timeout_s`
PAGES_MAX: Final = 1_000


class ListRequest(Struct, frozen=True, array_like=True):
    """Request one page of the list of an exchange."""

    exchange: str
    page: int = 0


class Row(Struct, frozen=True, array_like=True):
    """One instrument."""

    symbol: str
    native: str
    tick: str
    lot: str
    status: InstrumentStatus
    codes: str
    via: str
    scales: tuple[int, int]


class ListPage(Struct, frozen=True, kw_only=True):
    """A page of a list, and what a gateway must know about the books of the exchange.

    `depth` is how many levels a side its channel keeps in sync (0: all), `levels_max` how many a
    book of it holds.
    """

    digest: str
    rows: list[Row]
    pages: int
    depth: int
    levels_max: int


_request = msgpack.Decoder(ListRequest)
_page = msgpack.Decoder(ListPage)


class PublishedList:
    """The list of one exchange as this node last read it."""

    def __init__(self, instruments: Sequence[Instrument], *, depth: int, levels_max: int) -> None:
        self._rows = sorted(map(_row, instruments), key=lambda row: (row.symbol, row.native))
        self._depth = depth
        self._levels_max = levels_max
        facts = msgpack.encode((self._rows, depth, levels_max))
        self.digest = blake2b(facts, digest_size=8).hexdigest()

    def page(self, number: int) -> bytes:
        """Write one page."""
        begin = number * PAGE_ROWS
        return msgpack.encode(
            ListPage(
                digest=self.digest,
                rows=self._rows[begin : begin + PAGE_ROWS],
                pages=max(1, -(-len(self._rows) // PAGE_ROWS)),
                depth=self._depth,
                levels_max=self._levels_max,
            )
        )


def encode_request(exchange: str, page: int) -> bytes:
    """Write a request."""
    return msgpack.encode(ListRequest(exchange, page))


def request_of(payload: bytes) -> ListRequest | None:
    """Decode a request; None if it is not one."""
    try:
        return _request.decode(payload)
    except (msgspec.MsgspecError, ValueError):
        return None


def page_of(payload: bytes) -> ListPage | None:
    """Decode a page; None if it is not one."""
    try:
        return _page.decode(payload)
    except (msgspec.MsgspecError, ValueError):
        return None


def instruments_of(exchange: str, rows: Sequence[Row]) -> list[Instrument]:
    """The instruments of a list."""
    return [
        Instrument(
            exchange,
            row.symbol,
            row.native,
            row.tick,
            row.lot,
            row.status,
            row.codes,
            row.via,
            row.scales,
        )
        for row in rows
    ]


def _row(each: Instrument) -> Row:
    return Row(
        each.symbol,
        each.native,
        each.tick,
        each.lot,
        each.status,
        each.codes,
        each.via,
        each.scales,
    )
