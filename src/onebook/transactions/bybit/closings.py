"""Rows made of trades that stand elsewhere: closed positions, deliveries, USDC sessions.

- Closed P&L: https://bybit-exchange.github.io/docs/v5/position/close-pnl
- Deliveries: https://bybit-exchange.github.io/docs/v5/asset/delivery
- USDC sessions: https://bybit-exchange.github.io/docs/v5/asset/settlement

Their view is `summary`: the fills and wallet changes that they are made of are the ones to sum.
"""

from msgspec import UNSET

from onebook.core import iso
from onebook.transactions.bybit.rows import (
    EXCHANGE,
    Context,
    Row,
    as_money,
    digits,
    direction_of,
    first_fee,
    make_id,
    ms,
    nonzero,
    order_id_of,
    plain,
    text,
)
from onebook.transactions.bybit.trades import (
    SIDES,
    TYPES,
    UNIFIED_TYPES,
    UNIFIED_WALLET,
    unit_of,
)
from onebook.transactions.decimals import unsigned
from onebook.transactions.record import (
    Description,
    Fee,
    Ids,
    Position,
    Record,
    View,
)


def closed_pnl(row: Row, context: Context) -> Record:
    """What an order that closed a position realised; it and its fills share the order's id."""
    market = context.markets.find(context.category, row["symbol"])
    at_ms = ms(row, "updatedTime") or ms(row, "createdTime") or context.asked_at_ms
    realised = digits(row, "closedPnl") or "0"
    fees = tuple(
        Fee(market.settle, charged, None, "trading", name)
        for name in ("openFee", "closeFee")
        if (charged := digits(row, name)) is not None
    )
    order_id = plain(row, "orderId")
    native_key = f"{context.category}:{row['symbol']}:{order_id}:{at_ms}"
    return Record(
        transactionId=make_id(context, "closed_pnl", native_key),
        timestamp=at_ms,
        label="Realised PnL",
        fee=first_fee(fees),
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
        native_type=text(row, "execType"),
        view=View.SUMMARY,
        account=UNIFIED_WALLET,
        direction=direction_of(realised),
        side=SIDES.get(plain(row, "side")),
        asset=market.settle,
        amount=unsigned(realised),
        instrument=market,
        price=digits(row, "avgExitPrice"),
        quantity=digits(row, "closedSize"),
        quantity_unit=unit_of(context.category),
        value=digits(row, "cumExitValue"),
        fees=fees,
        position=Position(
            closed_size=digits(row, "closedSize"),
            entry_price=digits(row, "avgEntryPrice"),
            exit_price=digits(row, "avgExitPrice"),
            leverage=digits(row, "leverage"),
            realised_pnl=realised,
        ),
        ids=Ids(native=order_id, order_id=order_id),
        related=order_id_of(context.environment, context.category, order_id),
        incomplete=("instrument",) if market.settle is None else (),
    )


def delivery(row: Row, context: Context) -> Record:
    """A contract that expired, and what it brought."""
    realised, at_ms = digits(row, "deliveryRpl") or "0", int(row["deliveryTime"])
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
        ),
    )


def settlement(row: Row, context: Context) -> Record:
    """A session of a USDC contract that was settled (every eight hours)."""
    realised, at_ms = digits(row, "realisedPnl") or "0", int(row["createdTime"])
    return _expired(
        row,
        context,
        source="settlement",
        native_key=f"{row['symbol']}:{at_ms}:{plain(row, 'side')}",
        at_ms=at_ms,
        realised=realised,
        quantity=digits(row, "size"),
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
    moved = as_money(market.settle, realised) if realised != "0" else None
    charged = nonzero(row, "fee")
    fees = (Fee(market.settle, charged, None, "trading", "fee"),) if charged else ()
    loss = realised[0] == "-"
    word = source.capitalize()
    return Record(
        transactionId=make_id(context, source, native_key),
        timestamp=at_ms,
        label=word,
        sentCurrency=moved if moved and loss else UNSET,
        receivedCurrency=moved if moved and not loss else UNSET,
        fee=first_fee(fees),
        description=Description(
            f"Bybit {word}", f"Realised {realised} {market.settle or ''} on {row['symbol']}"
        ),
        datetime=iso(at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=TYPES.get(context.category, context.category),
        unified_type=UNIFIED_TYPES.get(context.category),
        kind=source,
        view=View.SUMMARY,
        account=UNIFIED_WALLET,
        direction=direction_of(realised),
        side=SIDES.get(plain(row, "side")),
        asset=market.settle,
        amount=unsigned(realised),
        instrument=market,
        price=position.exit_price or position.mark_price,
        quantity=quantity,
        quantity_unit=unit_of(context.category),
        fees=fees,
        position=position,
        ids=Ids(native=native_key),
        incomplete=("instrument",) if market.settle is None else (),
    )
