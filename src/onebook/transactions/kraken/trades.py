"""The list of trades: details for ledger rows, and trades that the ledger lacks.

https://docs.kraken.com/api-reference/account-data/get-trades-history

The id of a trade is the `refid` of its ledger rows, and their times differ by at most milliseconds.
A trade that the ledger lacks moved no amount that can be summed: its view is `summary`.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Final

from msgspec import Struct

from onebook.core import canonicals, iso, show
from onebook.transactions.decimals import ZERO, multiply, subtract
from onebook.transactions.kraken.assets import MONEY
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

ROUNDED_MONEY: Final = Decimal("0.01")  # yen have two places, other fiat money four
ROUNDED: Final = Decimal("0.00000001")
ROUNDED_SHARE: Final = Decimal("0.00001")
NOT_BOOKED: Final = "ledger"  # in `incomplete` if a trade is only in the list


class ListedTrade(Struct, frozen=True):
    """A row of the list of trades."""

    id: str
    at_ms: int
    row: Row

    @property
    def key(self) -> str:
        """The key of its ledger rows; see `events.group_key`."""
        return f"trade:{self.id}"


def listed_trade(trade_id: str, row: Row) -> ListedTrade:
    """Read a row of the list of trades.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: It has no id or time.
    """
    return ListedTrade(require(trade_id, "id"), time_ms(row["time"]), row)


def unbooked(trade: ListedTrade, context: RowContext) -> Record:
    """Map a trade that is only in the list."""
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


def differences(record: Record) -> Iterator[tuple[str, str, str]]:
    """Differences between ledger and list in one trade: (field, ledger, list).

    The ledger rounds to the precision of the asset, the list to that of the pair.
    """
    market, price = record.instrument, record.price
    if market is None or price is None or not record.sentCurrency or not record.receivedCurrency:
        return
    legs = (record.receivedCurrency, record.sentCurrency)
    base, quote = legs if record.side == "buy" else legs[::-1]
    quantity, value = Decimal(record.quantity or 0), Decimal(record.value or 0)
    for name, leg, said in (("quantity", base, quantity), ("value", quote, value)):
        if not _near(Decimal(leg.amount_str), said, leg.currency):
            yield f"its {name} differs from the ledger", leg.amount_str, show(said)
    cost = multiply(Decimal(price), quantity)
    digit = Decimal((0, (1,), int(Decimal(price).as_tuple().exponent)))  # its last digit
    if not _near(cost, value, quote.currency, multiply(digit, quantity)):
        yield "its price is not value divided by quantity", show(value), show(cost)


def _near(one: Decimal, other: Decimal, currency: str, more: Decimal = ZERO) -> bool:
    least = ROUNDED_MONEY if currency in MONEY else ROUNDED
    share = multiply(max(one, other), ROUNDED_SHARE)
    return abs(subtract(one, other)) <= max(least, share, more)
