"""The list of trades: what it adds to the rows of the ledger, and what the ledger does not have.

https://docs.kraken.com/api-reference/account-data/get-trades-history

The id of a trade is the `refid` of its rows in the ledger, and both bear the same time but for
milliseconds. A trade that the ledger does not have moved nothing that can be summed: it is a
`summary`, and says so.
"""

from typing import Final

from msgspec import Struct

from onebook.core import canonicals, iso
from onebook.transactions.kraken.events import DIRECTIONS
from onebook.transactions.kraken.rows import EXCHANGE, RowContext, make_id, time_ms
from onebook.transactions.kraken.words import MARGIN, TITLES, TRADES, UNIFIED
from onebook.transactions.mapping import Row, require, text
from onebook.transactions.record import (
    Description,
    Ids,
    Record,
    RecordView,
    Status,
    TradedMarket,
)

NOT_BOOKED: Final = "ledger"  # what is incomplete of a trade that only the list has


class ListedTrade(Struct, frozen=True):
    """A row of the list of trades."""

    id: str
    at_ms: int
    row: Row

    @property
    def key(self) -> str:
        """As the rows of the ledger have it; see `events.group_key`."""
        return f"trade:{self.id}"


def listed_trade(trade_id: str, row: Row) -> ListedTrade:
    """Read a row of the list of trades.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: It has no id or time.
    """
    return ListedTrade(require(trade_id, "id"), time_ms(row["time"]), row)


def unbooked(trade: ListedTrade, context: RowContext) -> Record:
    """A trade that only the list has."""
    row = trade.row
    price, quantity, value, margin = canonicals(
        row.get("price"), row.get("vol"), row.get("cost"), row.get("margin")
    )
    side = str(row["type"]) if row.get("type") in DIRECTIONS else None
    kind, pair = MARGIN if margin not in (None, "0") else TRADES, text(row, "pair") or ""
    return Record(
        transactionId=make_id(context, "listed_trade", trade.id),
        timestamp=trade.at_ms,
        label=side.capitalize() if side else "Trade",
        description=Description(TITLES[kind], f"{side or 'trade'} {quantity} {pair} at {price}"),
        datetime=iso(trade.at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=kind,
        unified_type=UNIFIED[kind],
        kind="trade",
        native_type=text(row, "ordertype"),
        status=Status.UNKNOWN,
        view=RecordView.SUMMARY,
        side=side,
        amount=quantity,
        instrument=TradedMarket(pair, "spot", None, None, None, None, None),
        price=price,
        quantity=quantity,
        quantity_unit="base",
        value=value,
        ids=Ids(
            native=trade.id,
            trade_id=trade.id,
            order_id=text(row, "ordertxid"),
            sequence=text(row, "trade_id"),
        ),
        incomplete=(NOT_BOOKED,),
    )
