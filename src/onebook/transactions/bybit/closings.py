"""Mapping of rows derived from trades: closed positions, deliveries, USDC sessions.


- Closed P&L: https://bybit-exchange.github.io/docs/v5/position/close-pnl
- Deliveries: https://bybit-exchange.github.io/docs/v5/asset/delivery
- USDC sessions: https://bybit-exchange.github.io/docs/v5/asset/settlement

They are what futures gained or lost: a fill of a future moves nothing but its fee. What a closed
position gained is `cumExitValue - cumEntryValue`, signed by its side: `closedPnl` is net of fees
that stand at the fills already, and in old rows it may include funding
(https://www.bybit.com/en/help-center/article/Closed-P-L-Calculations). What a delivery or a session
gained stands in its own list, so a closed position of that kind is a `summary`.
"""

from typing import Final

from msgspec import UNSET

from onebook.core import canonicals, iso, show
from onebook.transactions.bybit.rows import (
    EXCHANGE,
    Context,
    Row,
    as_money,
    digits,
    direction_of,
    make_id,
    ms,
    nonzero,
    plain,
    stated,
    text,
)
from onebook.transactions.bybit.trades import (
    SIDES,
    TYPES,
    UNIFIED_TYPES,
    UNIFIED_WALLET,
    unit_of,
)
from onebook.transactions.decimals import add, number, subtract, unsigned
from onebook.transactions.record import (
    Description,
    Ids,
    Money,
    Position,
    Record,
    RecordView,
)

# `execType` of closed positions that have a record of their own in another list.
LISTED_APART: Final = frozenset({"Delivery", "SessionSettlePnL", "Settle"})


def closed_pnl(row: Row, context: Context) -> Record:
    """What an order that closed a position realised; it and its fills share the order's id."""
    market = context.markets.find(context.category, row["symbol"])
    at_ms = ms(row, "updatedTime") or ms(row, "createdTime") or context.asked_at_ms
    realised = stated(digits(row, "closedPnl"), "closedPnl")
    open_fee, close_fee = canonicals(row.get("openFee"), row.get("closeFee"))
    gross = gross_pnl(row, context.category)
    sent, received = _gained(market.settle, gross)
    native_type, order_id = text(row, "execType"), stated(text(row, "orderId"), "orderId")
    native_key = f"{context.category}:{row['symbol']}:{order_id}:{at_ms}"
    return Record(
        transactionId=make_id(context, "closed_pnl", native_key),
        timestamp=at_ms,
        label="Realised PnL",
        sentCurrency=sent or UNSET,
        receivedCurrency=received or UNSET,
        description=Description(
            "Bybit Closed Position",
            f"Realised {realised} {market.settle or ''} on {row['symbol']}",
        ),
        datetime=iso(at_ms),
        updated_at=ms(row, "updatedTime"),
        exchange=EXCHANGE,
        environment=context.environment,
        type=TYPES.get(context.category, context.category),
        unified_type=UNIFIED_TYPES.get(context.category),
        kind="closed_pnl",
        native_type=native_type,
        view=RecordView.SUMMARY if native_type in LISTED_APART else RecordView.PRIMARY,
        account=UNIFIED_WALLET,
        direction=direction_of(gross or "0"),
        side=SIDES.get(plain(row, "side")),
        asset=market.settle,
        amount=None if gross is None else unsigned(gross),
        instrument=market,
        price=digits(row, "avgExitPrice"),
        quantity=digits(row, "closedSize"),
        quantity_unit=unit_of(context.category),
        value=digits(row, "cumExitValue"),
        position=Position(
            closed_size=digits(row, "closedSize"),
            entry_price=digits(row, "avgEntryPrice"),
            exit_price=digits(row, "avgExitPrice"),
            leverage=digits(row, "leverage"),
            realised_pnl=realised,
            open_fee=open_fee,
            close_fee=close_fee,
        ),
        ids=Ids(native=order_id, order_id=order_id),
        incomplete=("instrument",) * (market.settle is None) + ("amount",) * (gross is None),
    )


def gross_pnl(row: Row, category: str) -> str | None:
    """Gross profit of a closed position; None where the row does not allow to compute it.

    A long position is closed by selling. The value of an inverse contract is in its coin, and
    falls while the price rises.
    """
    left, entered = number(row.get("cumExitValue")), number(row.get("cumEntryValue"))
    if left is not None and entered is not None:
        rising = (plain(row, "side") == "Sell") != (category == "inverse")
        return show(subtract(left, entered) if rising else subtract(entered, left))
    net, *fees = (number(row.get(name)) for name in ("closedPnl", "openFee", "closeFee"))
    if net is None or None in fees:
        return None
    return show(add(net, *(fee for fee in fees if fee is not None)))


def _gained(currency: str | None, amount: str | None) -> tuple[Money | None, Money | None]:
    """A gain as received, a loss as sent."""
    if amount is None or amount == "0":
        return None, None
    moved = as_money(currency, amount)
    return (moved, None) if amount[0] == "-" else (None, moved)


def delivery(row: Row, context: Context) -> Record:
    """Delivery of an expired contract, and its profit."""
    realised, at_ms = stated(digits(row, "deliveryRpl"), "deliveryRpl"), int(row["deliveryTime"])
    native_key = f"{row['symbol']}:{at_ms}:{plain(row, 'side')}:{plain(row, 'position')}"
    return _expired(
        row,
        context,
        source="delivery",
        native_key=native_key,
        at_ms=at_ms,
        realised=realised,
        quantity=digits(row, "position"),
        position=Position(
            entry_price=digits(row, "entryPrice"),
            exit_price=digits(row, "deliveryPrice"),
            closed_size=digits(row, "position"),
            realised_pnl=realised,
            close_fee=nonzero(row, "fee"),  # the fill of the delivery pays it
        ),
    )


def settlement(row: Row, context: Context) -> Record:
    """A session of a USDC contract that was settled (every eight hours)."""
    realised, at_ms = stated(digits(row, "realisedPnl"), "realisedPnl"), int(row["createdTime"])
    return _expired(
        row,
        context,
        source="settlement",
        native_key=f"{row['symbol']}:{at_ms}:{plain(row, 'side')}",
        at_ms=at_ms,
        realised=realised,
        quantity=unsigned(digits(row, "size") or "0"),
        position=Position(
            size_after=digits(row, "size"),
            mark_price=digits(row, "markPrice"),
            session_price=digits(row, "sessionAvgPrice"),
            realised_pnl=realised,
        ),
    )


def _expired(
    row: Row,
    context: Context,
    *,
    source: str,
    native_key: str,
    at_ms: int,
    realised: str,
    quantity: str | None,
    position: Position,
) -> Record:
    market = context.markets.find(context.category, row["symbol"])
    sent, received = _gained(market.settle, realised)
    word = source.capitalize()
    return Record(
        transactionId=make_id(context, source, native_key),
        timestamp=at_ms,
        label=word,
        sentCurrency=sent or UNSET,
        receivedCurrency=received or UNSET,
        description=Description(
            f"Bybit {word}", f"Realised {realised} {market.settle or ''} on {row['symbol']}"
        ),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=TYPES.get(context.category, context.category),
        unified_type=UNIFIED_TYPES.get(context.category),
        kind=source,
        account=UNIFIED_WALLET,
        direction=direction_of(realised),
        side=SIDES.get(plain(row, "side")),
        asset=market.settle,
        amount=unsigned(realised),
        instrument=market,
        price=position.exit_price or position.mark_price,
        quantity=quantity,
        quantity_unit=unit_of(context.category),
        position=position,
        ids=Ids(native=native_key),
        incomplete=("instrument",) if market.settle is None else (),
    )
