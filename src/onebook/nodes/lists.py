"""Instrument lists between nodes: digests in heartbeats, pages on request. Sans-I/O."""

import re
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from hashlib import blake2b
from types import MappingProxyType
from typing import Annotated, Final

from msgspec import Meta, Struct, msgpack

from onebook.core.types import LEVELS_MAX, Decimals
from onebook.model import Instrument, InstrumentStatus
from onebook.nodes.payloads import PayloadReader, Time
from onebook.transfers import CoinTransfer, NetworkTransfer

PAGE_ROWS: Final = 1_000  # about 100 KB, to cross a slow link within `REQUEST_TIMEOUT_S`
PAGES_MAX: Final = 100
REQUEST_BYTES_MAX: Final = 256
_AMOUNT: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?", re.ASCII).fullmatch


class ListRequest(Struct, frozen=True, array_like=True):
    """Request one page of the list of an exchange."""

    exchange: str
    page: Annotated[int, Meta(ge=0, le=PAGES_MAX)] = 0


class Row(Struct, frozen=True, array_like=True):
    """One instrument."""

    symbol: str
    native: str
    tick: str
    lot: str
    status: InstrumentStatus
    codes: str
    via: str
    scales: tuple[Decimals, Decimals]
    least_amount: str
    least_notional: str
    taker_fee: str = ""  # with a default, because earlier versions do not send it


class NetworkRow(Struct, frozen=True, array_like=True):
    """One network of a coin; `withdraw_fee` is decimal text, "" if unknown."""

    network: str
    deposit: bool | None
    withdraw: bool | None
    withdraw_fee: str


class TransferRow(Struct, frozen=True, array_like=True):
    """The deposits and withdrawals of one coin."""

    via: str
    read_at_ms: Time
    deposit: bool | None
    withdraw: bool | None
    networks: list[NetworkRow]


class ListPage(Struct, frozen=True, kw_only=True):
    """A page of a list, and facts that a gateway needs about the exchange's books.

    `depth` is the number of levels per side that the channel keeps in sync (0: all), `levels_max`
    the number that the books hold. `read_on` is the day on which the list was read, `transfers`
    are those of the page's coins.
    """

    digest: str
    rows: Annotated[list[Row], Meta(max_length=PAGE_ROWS)]
    pages: Annotated[int, Meta(ge=1, le=PAGES_MAX)]
    depth: Annotated[int, Meta(ge=0, le=LEVELS_MAX)]
    levels_max: Annotated[int, Meta(ge=1, le=LEVELS_MAX)]
    read_on: date | None = None
    transfers: dict[str, TransferRow] = {}


_request = PayloadReader(ListRequest, bytes_max=REQUEST_BYTES_MAX)
_page = PayloadReader(ListPage)


class PublishedList:
    """An exchange's list as last read by this node."""

    def __init__(
        self,
        instruments: Sequence[Instrument],
        *,
        depth: int,
        levels_max: int,
        read_on: date | None = None,
        transfers: Mapping[str, CoinTransfer] = MappingProxyType({}),
    ) -> None:
        self._rows = sorted(map(_row, instruments), key=lambda row: (row.symbol, row.native))
        self._depth = depth
        self._levels_max = levels_max
        self._read_on = read_on
        self._transfers = {coin: _transfer_row(each) for coin, each in transfers.items()}
        facts = msgpack.encode((self._rows, depth, levels_max, read_on, self._transfers))
        self.digest = blake2b(facts, digest_size=8).hexdigest()

    def page(self, number: int) -> bytes:
        """Encode one page."""
        begin = number * PAGE_ROWS
        rows = self._rows[begin : begin + PAGE_ROWS]
        coins = {row.symbol.partition("/")[0] for row in rows}
        return msgpack.encode(
            ListPage(
                digest=self.digest,
                rows=rows,
                pages=max(1, -(-len(self._rows) // PAGE_ROWS)),
                depth=self._depth,
                levels_max=self._levels_max,
                read_on=self._read_on,
                transfers={
                    coin: self._transfers[coin] for coin in coins if coin in self._transfers
                },
            )
        )


def encode_request(exchange: str, page: int) -> bytes:
    """Encode a request."""
    return msgpack.encode(ListRequest(exchange, page))


def request_of(payload: bytes) -> ListRequest:
    """Decode a request.

    Raises:
        WireError: The payload is invalid.
    """
    return _request.read(payload)


def page_of(payload: bytes) -> ListPage:
    """Decode a page.

    Raises:
        WireError: The payload is invalid.
    """
    return _page.read(payload)


def instruments_of(exchange: str, rows: Sequence[Row]) -> list[Instrument]:
    """Return the instruments of a list."""
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
            row.least_amount,
            row.least_notional,
            row.taker_fee,
        )
        for row in rows
    ]


def transfers_of(rows: Mapping[str, TransferRow]) -> dict[str, CoinTransfer]:
    """Return the transfers of a list by coin; a fee that is no amount is unknown."""
    return {
        coin: CoinTransfer(
            each.via,
            each.read_at_ms,
            each.deposit,
            each.withdraw,
            tuple(
                NetworkTransfer(of.network, of.deposit, of.withdraw, _fee(of.withdraw_fee))
                for of in each.networks
            ),
        )
        for coin, each in rows.items()
    }


def _fee(text: str) -> Decimal | None:
    return Decimal(text) if _AMOUNT(text) else None


def _transfer_row(each: CoinTransfer) -> TransferRow:
    return TransferRow(
        each.via,
        each.read_at_ms,
        each.deposit,
        each.withdraw,
        [
            NetworkRow(
                of.network,
                of.deposit,
                of.withdraw,
                "" if of.withdraw_fee is None else f"{of.withdraw_fee:f}",
            )
            for of in each.networks
        ],
    )


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
        each.least_amount,
        each.least_notional,
        each.taker_fee,
    )
