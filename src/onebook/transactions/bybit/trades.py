"""Mapping of trading rows: executions, orders, closed positions, deliveries, USDC sessions.

- Executions, authoritative for amounts and fees:
  https://bybit-exchange.github.io/docs/v5/order/execution
- Orders, authoritative for order states: https://bybit-exchange.github.io/docs/v5/order/order-list
- Closed P&L: https://bybit-exchange.github.io/docs/v5/position/close-pnl
- Deliveries: https://bybit-exchange.github.io/docs/v5/asset/delivery
- USDC sessions: https://bybit-exchange.github.io/docs/v5/asset/settlement

A fill of a future exchanges no asset: only its fee, funding and P&L move the wallet, so such
records have neither `sentCurrency` nor `receivedCurrency`. An order consists of fills, so its view
is `summary`.

Futures gain or lose through closed positions, deliveries and sessions. The gain of a closed
position is `cumExitValue - cumEntryValue`, signed by its side: `closedPnl` is net of fees that the
fills already include, and in old rows it may include funding
(https://www.bybit.com/en/help-center/article/Closed-P-L-Calculations). Deliveries and sessions have
their own lists, so a closed position of that kind is a `summary`.
"""

from functools import lru_cache
from typing import Any, Final

from msgspec import UNSET, MsgspecError, UnsetType, json
from msgspec.structs import replace

from onebook.core import canonical, canonicals, iso, show, texts
from onebook.transactions.bybit.rows import (
    BLANK,
    EXCHANGE,
    ORDER,
    Context,
    make_id,
    ms,
    order_id_of,
)
from onebook.transactions.decimals import EXACT, add, number, subtract, unsigned
from onebook.transactions.mapping import (
    PATTERNS_MAX,
    Row,
    as_money,
    digits,
    direction_of,
    first_fee,
    nonzero,
    opposite,
    require,
    text,
    text_or_empty,
)
from onebook.transactions.record import (
    Description,
    Direction,
    Fee,
    Holder,
    Ids,
    Money,
    Position,
    Record,
    RecordView,
    Status,
    TradedMarket,
)

UNIFIED_WALLET: Final = Holder("UNIFIED", None)
NOTHING: Final = (UNSET, UNSET)  # sent and received
EXECUTION: Final = "execution"  # a part of ids: never changes

TYPES: Final = {"spot": "spot_orders", "linear": "futures_linear", "inverse": "futures_inverse"}
UNIFIED_TYPES: Final = {"spot": "trades", "linear": "futures", "inverse": "futures"}

TRADE, FUNDING, OTHER = "trade", "funding", "other"
EXECUTION_KINDS: Final = {
    "": TRADE,
    "UNKNOWN": TRADE,  # rows of the classic account
    "Trade": TRADE,
    "BlockTrade": TRADE,
    "FutureSpread": TRADE,
    "MovePosition": TRADE,
    "Funding": FUNDING,
    "BustTrade": "liquidation",
    "AdlTrade": "adl",
    "Delivery": "delivery",
    "Settle": "delivery",
    "CorporateAction": "adjustment",
}
LABELS: Final = {
    "trade": "Trade",
    "funding": "Funding",
    "liquidation": "Liquidation",
    "adl": "Auto-Deleveraging",
    "delivery": "Delivery",
}
ORDER_STATUSES: Final = {
    "Filled": Status.COMPLETED,
    "PartiallyFilledCanceled": Status.COMPLETED,
    "Cancelled": Status.CANCELLED,
    "Deactivated": Status.CANCELLED,
    "Rejected": Status.FAILED,
    "New": Status.PENDING,
    "Created": Status.PENDING,
    "PartiallyFilled": Status.PENDING,
    "Untriggered": Status.PENDING,
    "Triggered": Status.PENDING,
    "Active": Status.PENDING,
}
ENDED_WITHOUT_REST: Final = (Status.CANCELLED, Status.FAILED)
# `execType` of closed positions that have their own record in another list.
LISTED_APART: Final = frozenset({"Delivery", "SessionSettlePnL", "Settle"})


def execution(row: Row, context: Context) -> Record:
    """Map an execution: a fill, a funding payment, or another of Bybit's kinds."""
    native = text_or_empty(row, "execType")
    market = context.markets.find(context.category, row["symbol"])
    if native == "Funding":
        return _funding(row, context, market)
    return _fill(row, context, _fill_pattern(context.environment, market, row["side"], native))


@lru_cache(maxsize=PATTERNS_MAX)
def _fill_pattern(environment: str, market: TradedMarket, side: str, native: str) -> Record:
    kind, category = EXECUTION_KINDS.get(native, OTHER), market.category
    spot = category == "spot"
    return replace(
        _pattern(environment, market, side),
        label=side if spot and side in SIDES else LABELS.get(kind, "Other"),
        description=Description(_TITLES.get(kind) or _TRADE_TITLES[spot], ""),
        kind=kind,
        native_type=native or None,
        direction=_DIRECTIONS.get(side, Direction.NONE) if spot else Direction.NONE,
        asset=market.base,
        incomplete=_unstated(market, side),
    )


def _unstated(market: TradedMarket, side: str) -> tuple[str, ...]:
    """Missing fields of a row that determine what was exchanged."""
    sided = side in SIDES or market.category != "spot"
    return ("instrument",) * (market.base is None) + ("side",) * (not sided)


def _pattern(environment: str, market: TradedMarket, side: str) -> Record:
    """The pattern of executions."""
    category = market.category
    return replace(
        BLANK,
        environment=environment,
        type=TYPES.get(category, category),
        unified_type=UNIFIED_TYPES.get(category),
        account=UNIFIED_WALLET,
        side=SIDES.get(side),
        instrument=market,
        quantity_unit=unit_of(category),
    )


def _fill(row: Row, context: Context, pattern: Record) -> Record:
    market, get = pattern.instrument, row.get
    assert market is not None
    side, at_ms, category = row["side"], int(row["execTime"]), market.category
    price, quantity, value, charged, rate, closed, mark = canonicals(
        row["execPrice"], row["execQty"], get("execValue"), charged_of(row, category),
        get("feeRate"),
        get("closedSize"), get("markPrice"),
    )  # fmt: skip
    quantity = require(quantity, "execQty")
    value = value or _product(price, quantity)
    fees = execution_fees(row, market, charged, rate)
    order_id = get("orderId")
    fill = replace(
        pattern,
        transactionId=make_id(context, EXECUTION, execution_key(row, category)),
        timestamp=at_ms,
        fee=first_fee(fees),
        description=Description(
            pattern.description.title,
            f"{side} {quantity} {_unit_name(market)} at {price} {market.quote or ''}".rstrip(),
        ),
        datetime=iso(at_ms),
        amount=value if category == "inverse" else quantity,
        price=price,
        quantity=quantity,
        value=value,
        fees=fees,
        ids=_execution_ids(row),
    )
    if category == "spot":  # orders of futures are not read
        sent, received = _exchanged(market, side, quantity, value)
        related = order_id_of(context.environment, category, order_id) if order_id else ()
        return replace(
            fill,
            sentCurrency=sent,
            receivedCurrency=received,
            related=related,
            related_type=TYPES[category] if related else None,
        )
    return replace(fill, position=_touched(closed, mark))


def _touched(closed: str | None, mark: str | None) -> Position:
    """The effect of a fill on its position; Bybit writes 0 for absent."""
    return Position(
        closed_size=None if closed == "0" else closed, mark_price=None if mark == "0" else mark
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _funding_pattern(
    environment: str, market: TradedMarket, side: str, direction: Direction
) -> Record:
    return replace(
        _pattern(environment, market, side),
        label="Funding",
        kind=FUNDING,
        native_type="Funding",
        direction=direction,
        asset=market.settle,
        incomplete=("instrument",) if market.settle is None else (),
    )


def _funding(row: Row, context: Context, market: TradedMarket) -> Record:
    """A funding payment: a positive `execFee` was paid, a negative one was received."""
    at_ms, paid = int(row["execTime"]), require(digits(row, "execFee"), "execFee")
    moved = as_money(market.settle, paid) or UNSET
    received = paid[0] == "-"
    word = "Received" if received else "Paid"
    direction = Direction.IN if received else Direction.OUT
    return replace(
        _funding_pattern(context.environment, market, row["side"], direction),
        transactionId=make_id(context, EXECUTION, execution_key(row, market.category)),
        timestamp=at_ms,
        sentCurrency=UNSET if received else moved,
        receivedCurrency=moved if received else UNSET,
        description=Description(
            "Bybit Funding", f"{word} {unsigned(paid)} {market.settle or ''} on {row['symbol']}"
        ),
        datetime=iso(at_ms),
        amount=unsigned(paid),
        price=digits(row, "execPrice"),
        quantity=digits(row, "execQty"),
        value=digits(row, "execValue"),
        position=Position(
            funding=opposite(paid),
            funding_rate=digits(row, "feeRate"),
            mark_price=nonzero(row, "markPrice"),
        ),
        ids=_execution_ids(row),
    )


def execution_key(row: Row, category: str) -> str:
    """The native key of an execution; both sides of a self-match may have the same execId."""
    return f"{category}:{require(row['execId'], 'execId')}:{row.get('orderId', '')}:{row['side']}"


def _execution_ids(row: Row) -> Ids:
    execution_id = row["execId"]
    order_id, client_order_id, sequence, block_trade_id = texts(
        row, "orderId", "orderLinkId", "seq", "blockTradeId"
    )
    return Ids(
        native=execution_id,
        trade_id=execution_id,
        order_id=order_id,
        client_order_id=client_order_id,
        sequence=sequence,
        block_trade_id=block_trade_id,
    )


def charged_of(row: Row, category: str) -> Any:
    """The name of the fee's field: `execFeeV2` for the spot leg of a futures spread."""
    spread = category == "spot" and row.get("execType") == "FutureSpread"
    return row.get("execFeeV2") or row.get("execFee") if spread else row.get("execFee")


def execution_fees(
    row: Row, market: TradedMarket, charged: str | None, rate: str | None
) -> tuple[Fee, ...]:
    """The trading fee, then taxes and other charges."""
    fees: tuple[Fee, ...] = ()
    if charged is not None:
        currency = row.get("feeCurrency") or _fee_currency(row, market, charged)
        fees = (Fee(currency, charged, rate, "trading", "execFee"),)
    extra = row.get("extraFees")
    return (*fees, *extra_fees(extra)) if extra else fees


def _fee_currency(row: Row, market: TradedMarket, charged: str) -> str | None:
    if market.category != "spot":
        return market.settle
    return spot_fee_currency(market, row["side"], charged, maker=bool(row.get("isMaker")))


def spot_fee_currency(market: TradedMarket, side: str, charged: str, *, maker: bool) -> str | None:
    """Currency of a fee without `feeCurrency`: the coin bought, or for a rebate the other coin.

    https://bybit-exchange.github.io/docs/v5/enum#spot-fee-currency-instruction
    """
    if side not in SIDES:
        return None
    rebate = maker and charged[0] == "-"
    return market.base if (side == "Buy") != rebate else market.quote


def extra_fees(extra: Any) -> tuple[Fee, ...]:
    """Regional taxes: a list, or its text form."""
    if isinstance(extra, str):
        try:
            extra = json.decode(extra)
        except (MsgspecError, RecursionError):
            return ()
    if not isinstance(extra, list):
        return ()
    return tuple(
        Fee(
            text(one, "feeCoin"),
            digits(one, "fee") or "0",
            digits(one, "feeRate"),
            "tax",
            text_or_empty(one, "subFeeType") or text_or_empty(one, "feeType"),
        )
        for one in extra
        if isinstance(one, dict)
    )


def _exchanged(
    market: TradedMarket, side: str, quantity: str | None, value: str | None
) -> tuple[Money | UnsetType, Money | UnsetType]:
    """The amounts sent and received in a spot trade, before fees; none if the side is unknown."""
    if side not in SIDES:
        return NOTHING
    base = as_money(market.base, quantity) or UNSET
    quote = as_money(market.quote, value) or UNSET
    return (quote, base) if side == "Buy" else (base, quote)


def order(row: Row, context: Context) -> Record:
    """Map the last state of an order: executed figures, not ordered ones.

    The time is that of its creation, which Bybit filters by, so that an order is always in the same
    window. `updated_at` is its last change.
    """
    market = context.markets.find(context.category, row["symbol"])
    category, side, at_ms = market.category, row["side"], int(row["createdTime"])
    quantity, value = digits(row, "cumExecQty") or "0", digits(row, "cumExecValue") or "0"
    filled, average = quantity != "0", nonzero(row, "avgPrice")
    native_type, native_status, client_order_id, block_trade_id = texts(
        row, "orderType", "orderStatus", "orderLinkId", "blockTradeId"
    )
    spot, order_id = category == "spot", require(row["orderId"], "orderId")
    fees = _order_fees(row, market, spot=spot)
    sent, received = _exchanged(market, side, quantity, value) if spot and filled else NOTHING
    what = f"{side} {quantity} {_unit_name(market)}"
    return Record(
        transactionId=make_id(context, ORDER, f"{category}:{order_id}"),
        timestamp=at_ms,
        label=side if spot and side in SIDES else "Trade",
        sentCurrency=sent,
        receivedCurrency=received,
        fee=first_fee(fees),
        description=Description(
            "Bybit Spot Order" if spot else "Bybit Futures Order",
            f"{what} at {average} {market.quote or ''}".rstrip() if average else what,
        ),
        datetime=iso(at_ms),
        updated_at=ms(row, "updatedTime"),
        exchange=EXCHANGE,
        environment=context.environment,
        type=TYPES.get(category, category),
        unified_type=UNIFIED_TYPES.get(category),
        kind="order",
        native_type=native_type,
        status=order_status(native_status or "", filled=filled),
        native_status=native_status,
        view=RecordView.SUMMARY,
        account=UNIFIED_WALLET,
        direction=_DIRECTIONS.get(side, Direction.NONE) if spot and filled else Direction.NONE,
        side=SIDES.get(side),
        asset=market.base,
        amount=value if category == "inverse" else quantity,
        instrument=market,
        price=average,
        quantity=quantity,
        quantity_unit=unit_of(category),
        value=value,
        fees=fees,
        ids=Ids(
            native=order_id,
            order_id=order_id,
            client_order_id=client_order_id,
            block_trade_id=block_trade_id,
        ),
        incomplete=_unstated(market, side),
    )


def order_status(native: str, *, filled: bool) -> Status:
    """The status of an order; an order cancelled or rejected after fills is completed."""
    status = ORDER_STATUSES.get(native, Status.UNKNOWN)
    return Status.COMPLETED if filled and status in ENDED_WITHOUT_REST else status


def _order_fees(row: Row, market: TradedMarket, *, spot: bool) -> tuple[Fee, ...]:
    detail = row.get("cumFeeDetail")
    if isinstance(detail, dict) and detail:
        return tuple(
            Fee(coin, canonical(charged) or "0", None, "trading", "cumFeeDetail")
            for coin, charged in detail.items()
        )
    charged = nonzero(row, "cumExecFee")  # deprecated, and the only one before 2025-09
    if charged is None:
        return ()
    coin = spot_fee_currency(market, row["side"], charged, maker=False) if spot else market.settle
    return (Fee(coin, charged, None, "trading", "cumExecFee"),)


SIDES: Final = {"Buy": "buy", "Sell": "sell"}
_DIRECTIONS: Final = {"Buy": Direction.IN, "Sell": Direction.OUT}
_TRADE_TITLES: Final = {True: "Bybit Spot Trade", False: "Bybit Futures Trade"}
_TITLES: Final = {
    "liquidation": "Bybit Liquidation",
    "adl": "Bybit Auto-Deleveraging",
    "delivery": "Bybit Delivery",
    "adjustment": "Bybit Adjustment",
    "other": "Bybit Execution",
}


def unit_of(category: str) -> str:
    """The unit of a quantity; an inverse contract is worth one US dollar."""
    return "contracts" if category == "inverse" else "base"


def _unit_name(market: TradedMarket) -> str:
    """The name of a quantity's unit: the base coin, or US dollars for inverse contracts."""
    return "USD" if market.category == "inverse" else market.base or market.symbol


def _product(price: str | None, quantity: str | None) -> str | None:
    """Price times quantity, for old spot rows without a value."""
    if price is None or quantity is None:
        return None
    return show(EXACT.multiply(EXACT.create_decimal(price), EXACT.create_decimal(quantity)))


def closed_pnl(row: Row, context: Context) -> Record:
    """Map the realised P&L of an order that closed a position; its fills have the same order id."""
    market = context.markets.find(context.category, row["symbol"])
    at_ms = ms(row, "updatedTime") or ms(row, "createdTime") or context.fallback_time_ms
    realised = require(digits(row, "closedPnl"), "closedPnl")
    open_fee, close_fee = canonicals(row.get("openFee"), row.get("closeFee"))
    gross = gross_pnl(row, context.category)
    sent, received = _gained(market.settle, gross)
    native_type, order_id = text(row, "execType"), require(text(row, "orderId"), "orderId")
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
        side=SIDES.get(text_or_empty(row, "side")),
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
    """Gross profit of a closed position; None if the row lacks the fields to compute it.

    A long position is closed by selling. The value of an inverse contract is in its coin, and falls
    as the price rises.
    """
    left, entered = number(row.get("cumExitValue")), number(row.get("cumEntryValue"))
    if left is not None and entered is not None:
        rising = (text_or_empty(row, "side") == "Sell") != (category == "inverse")
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
    realised, at_ms = require(digits(row, "deliveryRpl"), "deliveryRpl"), int(row["deliveryTime"])
    native_key = (
        f"{row['symbol']}:{at_ms}:{text_or_empty(row, 'side')}:{text_or_empty(row, 'position')}"
    )
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
            close_fee=nonzero(row, "fee"),  # paid by the fill of the delivery
        ),
    )


def settlement(row: Row, context: Context) -> Record:
    """Map the settlement of a USDC contract's session (every eight hours)."""
    realised, at_ms = require(digits(row, "realisedPnl"), "realisedPnl"), int(row["createdTime"])
    return _expired(
        row,
        context,
        source="settlement",
        native_key=f"{row['symbol']}:{at_ms}:{text_or_empty(row, 'side')}",
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
        side=SIDES.get(text_or_empty(row, "side")),
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
