"""Mapping of fills: the bills of one fill to its record; pure.

- On a spot market: the amounts given and received, each fee in its own coin. The quote of a USD
  market can be any of several dollars; a third coin is the coin of the fee.
- Of a contract: the fill with its fee, and a separate record with the realised P&L. An option has a
  price, which is paid by the fill itself.

The id of a fill is derived from its instrument, order and trade; if the trade has no number, as in
a liquidation, from its bill. The list of fills adds the side and is compared; it moves nothing.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from onebook.core import canonicals, iso, show
from onebook.transactions.decimals import add, negated, subtract, unsigned
from onebook.transactions.mapping import (
    PATTERNS_MAX,
    Leg,
    Meaning,
    Row,
    first_fee,
    holder_of,
    moved_by,
    require,
    sides_lacking,
    text,
    text_or_empty,
)
from onebook.transactions.okx.instruments import CATEGORIES
from onebook.transactions.okx.rows import (
    BLANK,
    TRADING,
    Bill,
    BillContext,
    coin,
    fees_of,
    first_of,
    line_ids,
    make_id,
    pattern_of,
    time_ms,
)
from onebook.transactions.okx.words import (
    BUYS,
    CLOSES,
    CONTRACT,
    CONTRACT_KINDS,
    FUTURES,
    SELLS,
    TITLES,
    TRADE,
)
from onebook.transactions.record import (
    Description,
    Direction,
    Fee,
    Ids,
    Position,
    Record,
    RecordView,
    TradedMarket,
    money,
)

DIRECTIONS: Final = {"buy": Direction.IN, "sell": Direction.OUT}
NEARLY: Final = Decimal("1e-9")
LEAST: Final = Decimal("1e-12")
REALISING: Final = frozenset({"trade", "liquidation", "adl"})


class OkxEvent(Struct, frozen=True, gc=False):
    """Records of one event, and the bills they were built from."""

    records: list[Record]
    bills: Sequence[Bill]


class ListedFill(Struct, frozen=True, gc=False):
    """A row of the list of fills."""

    at_ms: int
    inst_type: str
    inst_id: str
    order_id: str
    trade_id: str
    fill_time: str
    row: Row

    @property
    def key(self) -> str:
        """See `group_key`."""
        return fill_key(self.inst_id, self.order_id, self.trade_id)

    @property
    def row_id(self) -> str:
        """The identity of the row."""
        side = text_or_empty(self.row, "side")
        return f"fill:{self.inst_id}:{self.order_id}:{self.trade_id}:{side}:{self.fill_time}"


def fill_of(row: Row) -> ListedFill:
    """Read a row of the list of fills.

    Raises:
        ValueError, LookupError, TypeError: The row has no instrument, order or time.
    """
    return ListedFill(
        time_ms(row["ts"]),
        require(str(row["instType"]), "instType"),
        require(str(row["instId"]), "instId"),
        require(str(row["ordId"]), "ordId"),
        str(row.get("tradeId") or ""),
        str(row.get("fillTime") or row["ts"]),
        row,
    )


def fill_key(inst_id: str, order_id: str, trade_id: str) -> str:
    """The key shared by the rows of one fill."""
    if not trade_id:  # bills of 2021
        return f"order:{inst_id}:{order_id}"
    return f"fill:{inst_id}:{order_id}:{trade_id}"


def numbered(trade_id: str) -> bool:
    """Whether a trade has its own number: liquidations and block trades have 0 or less."""
    return bool(trade_id) and trade_id != "0" and trade_id[0] != "-"


def fill_named(bill: Bill, fills: Sequence[ListedFill]) -> ListedFill | None:
    """The fill in the list that a bill names."""
    return next((fill for fill in fills if str(fill.row.get("billId")) == bill.id), None)


def legs_of(bills: Sequence[Bill]) -> tuple[list[Leg[Bill]], list[Leg[Bill]]]:
    """The legs given and received."""
    by_currency: dict[str, list[Bill]] = {}
    for bill in bills:
        currency = bill.currency
        if currency in by_currency:
            by_currency[currency].append(bill)
        else:
            by_currency[currency] = [bill]
    given: list[Leg[Bill]] = []
    received: list[Leg[Bill]] = []
    for currency, found in by_currency.items():
        amount, moved = found[0].gross, found[0].moved
        if len(found) > 1:
            amount = show(add(*(Decimal(bill.gross) for bill in found)))
            moved = moved_by(currency, amount)
        if moved:
            leg = Leg(found, currency, amount, moved)
            (given if amount[0] == "-" else received).append(leg)
    return given, received


def spot_fill(bills: Sequence[Bill], context: BillContext, fill: ListedFill | None) -> OkxEvent:
    """Map a fill on a spot market; a third coin is the one that its fee was paid in."""
    first = bills[0]
    market = context.markets.find(CATEGORIES.get(first.inst_type, "spot"), first.inst_id)
    traded, others = _traded(bills, market)
    given, received = legs_of(traded)
    sent, got = given[0] if given else None, received[0] if received else None
    meaning = first.meaning if first.meaning.kind in REALISING else TRADE
    pattern = _fill_pattern(
        context.environment,
        meaning,
        market,
        _side(first, market, sent, got, fill),
        sides_lacking(sent, got),
    )
    base, quote = sent, got
    if sent is None or sent.currency != market.base:
        base, quote = got, sent
        if got is None or got.currency != market.base:
            base, quote = None, sent or got
    fees = fees_of(traded, meaning.fee)
    if others:
        fees += tuple(
            Fee(bill.currency, negated(bill.change), None, meaning.fee, "fee") for bill in others
        )
    price = _price(bills, fill)
    main = base or got or sent
    amount, at_ms = main.unsigned if main else "0", bills[-1].at_ms
    record = replace(
        pattern,
        transactionId=_fill_id(bills, context),
        timestamp=at_ms,
        sentCurrency=sent.moved if sent else UNSET,
        receivedCurrency=got.moved if got else UNSET,
        fee=first_fee(fees) if fees else None,
        description=Description(pattern.description.title, _trade_words(pattern, amount, price)),
        datetime=iso(at_ms),
        amount=amount,
        price=price,
        quantity=base.unsigned if base else None,
        value=quote.unsigned if quote else None,
        fees=fees,
        ids=_fill_ids(first, fill),
        related=line_ids(context, bills),
    )
    asset = main.currency if main else pattern.asset
    if base is None or asset != pattern.asset:
        record = replace(record, asset=asset, quantity_unit="base" if base else None)
    return OkxEvent([record], bills)


def _traded(bills: Sequence[Bill], market: TradedMarket) -> tuple[Sequence[Bill], Sequence[Bill]]:
    """Divide bills into those of the traded coins, and those of a fee in another coin.

    The quote of a USD market can be any of several dollars.
    """
    coins, base, quote = [bill.currency for bill in bills], market.base, market.quote
    if coins in ([base, quote], [quote, base]) or base is None:
        return bills, ()
    pair = {base, quote}
    main = next((bill for bill in bills if bill.currency == base), None)
    if main is not None and quote not in coins:
        given = main.gross[0] == "-"
        others = (bill for bill in bills if bill.gross != "0" and (bill.gross[0] == "-") != given)
        pair |= {bill.currency for bill in others}
    traded = [bill for bill in bills if bill.currency in pair]
    return traded, [bill for bill in bills if bill.currency not in pair]


@lru_cache(maxsize=PATTERNS_MAX)
def _fill_pattern(
    environment: str,
    meaning: Meaning,
    market: TradedMarket,
    side: str | None,
    lacking: tuple[str, ...],
) -> Record:
    pattern = pattern_of(environment, meaning, "fill")
    return replace(
        pattern,
        label=side.capitalize() if side and meaning.kind == "trade" else meaning.label,
        account=holder_of(TRADING),
        direction=DIRECTIONS[side] if side else Direction.NONE,
        side=side,
        asset=market.base or market.symbol,
        instrument=market,
        quantity_unit="base",
        incomplete=lacking,
    )


def _side(
    bill: Bill,
    market: TradedMarket,
    sent: Leg[Bill] | None,
    received: Leg[Bill] | None,
    fill: ListedFill | None,
) -> str | None:
    """Buy or sell: on a spot market, whether the base coin was received or given."""
    if received is not None and received.currency == market.base:
        return "buy"
    if sent is not None and sent.currency == market.base:
        return "sell"
    if received is not None and received.currency == market.quote:
        return "sell"
    if sent is not None and sent.currency == market.quote:
        return "buy"
    return _contract_side(bill, fill)


def _contract_side(bill: Bill, fill: ListedFill | None) -> str | None:
    if fill is not None and fill.row.get("side") in DIRECTIONS:
        return str(fill.row["side"])
    if bill.subtype in BUYS:
        return "buy"
    return "sell" if bill.subtype in SELLS else None


def _price(bills: Sequence[Bill], fill: ListedFill | None) -> str | None:
    listed = canonicals(fill.row.get("fillPx"))[0] if fill is not None else None
    if listed:
        return listed
    for bill in bills:
        if bill.price:
            return bill.price
    return None


def _trade_words(pattern: Record, amount: str, price: str | None) -> str:
    market = pattern.instrument
    assert market is not None
    at = f" at {price}" if price else ""
    return f"{pattern.label} {amount} {market.base or market.symbol}{at}"


def _fill_id(bills: Sequence[Bill], context: BillContext) -> str:
    """The native id: from the trade, or from the bills if the trade has no number."""
    first = bills[0]
    if numbered(first.trade_id):
        return make_id(context, "fill", f"{first.inst_id}:{first.order_id}:{first.trade_id}")
    return make_id(context, "event", first_of(bills).native)


def _fill_ids(bill: Bill, fill: ListedFill | None) -> Ids:
    client = bill.client_order_id or (text(fill.row, "clOrdId") if fill is not None else None)
    return Ids(
        native=bill.native,
        order_id=bill.order_id or None,
        client_order_id=client or None,
        trade_id=bill.trade_id or None,
    )


def contract_fill(bills: Sequence[Bill], context: BillContext, fill: ListedFill | None) -> OkxEvent:
    """Map a fill of a contract with its fee, and its realised P&L.

    An option has a price, which is paid by the fill itself.
    """
    first = bills[0]
    if len(bills) > 1:
        first = max(bills, key=lambda bill: (bill.size is not None, bill.pnl != "0"))
    meaning = first.meaning
    market = context.markets.find(CATEGORIES[first.inst_type], first.inst_id)
    pattern = _contract_pattern(
        context.environment, meaning, market, _contract_side(first, fill), first.native_type
    )
    fees, price = fees_of(bills, meaning.fee), _price(bills, fill)
    if len(bills) == 1:  # as nearly every fill
        moved = {} if first.gross == "0" else {first.currency: first.gross}
    else:
        moved = {leg.currency: leg.amount for part in legs_of(bills) for leg in part}
    paid = first.inst_type == "OPTION" or meaning.kind not in REALISING
    gross = moved.pop(first.currency, "0") if paid else "0"
    size = unsigned(first.size or "0")
    at_ms = bills[-1].at_ms
    record = replace(
        pattern,
        transactionId=_fill_id(bills, context),
        timestamp=at_ms,
        fee=first_fee(fees) if fees else None,
        description=Description(
            pattern.description.title, f"{pattern.label} {size} {market.symbol}"
        ),
        datetime=iso(at_ms),
        amount=size,
        price=price,
        quantity=first.size and size,
        fees=fees,
        position=Position(
            realised_pnl=first.pnl if first.pnl != "0" else None,
            closed_size=size if first.subtype in CLOSES else None,
        ),
        ids=_fill_ids(first, fill),
        related=line_ids(context, bills),
    )
    if gross != "0":
        record = _with_amount(record, first.currency, gross)
    records = [record]
    for currency, amount in sorted(moved.items()):
        records.append(_realised(record, currency, amount, context, context_market=market))
    return OkxEvent(records, bills)


@lru_cache(maxsize=PATTERNS_MAX)
def _contract_pattern(
    environment: str, meaning: Meaning, market: TradedMarket, side: str | None, native_type: str
) -> Record:
    return replace(
        pattern_of(environment, meaning, native_type),
        label=side.capitalize() if side and meaning.kind == "trade" else meaning.label,
        account=holder_of(TRADING),
        direction=DIRECTIONS[side] if side else Direction.NONE,
        side=side,
        asset=market.base or market.symbol,
        instrument=market,
        quantity_unit="contracts",
    )


def _with_amount(record: Record, currency: str, gross: str) -> Record:
    """Add the amount of one currency to a record."""
    moved = money(currency, unsigned(gross))
    return replace(
        record,
        sentCurrency=moved if gross[0] == "-" else UNSET,
        receivedCurrency=UNSET if gross[0] == "-" else moved,
    )


def _realised(
    fill: Record, currency: str, gained: str, context: BillContext, *, context_market: TradedMarket
) -> Record:
    """The realised P&L of a contract fill; its lines are those of the fill."""
    given = gained[0] == "-"
    amount = gained[1:] if given else gained
    moved = money(currency, amount)
    return replace(
        _realised_pattern(context.environment, fill.native_type, currency, context_market, given),
        transactionId=make_id(context, "pnl", f"{fill.transactionId}:{currency}"),
        timestamp=fill.timestamp,
        sentCurrency=moved if given else UNSET,
        receivedCurrency=UNSET if given else moved,
        description=Description(TITLES[FUTURES], f"Realised {gained} {currency}"),
        datetime=fill.datetime,
        amount=amount,
        position=Position(realised_pnl=gained),
        ids=fill.ids,
        related=(fill.transactionId,),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _realised_pattern(
    environment: str, native_type: str | None, currency: str, market: TradedMarket, given: bool
) -> Record:
    return replace(
        BLANK,
        label="Realised PnL",
        environment=environment,
        type=FUTURES,
        unified_type=FUTURES,
        kind="closed_pnl",
        native_type=native_type,
        account=holder_of(TRADING),
        direction=Direction.OUT if given else Direction.IN,
        asset=currency,
        instrument=market,
        related_type=FUTURES,
    )


def unbooked(fill: ListedFill, context: BillContext) -> Record:
    """Map a fill without a bill, so that no movement of money is known."""
    row = fill.row
    market = context.markets.find(CATEGORIES[fill.inst_type], fill.inst_id)
    side = str(row["side"]) if row.get("side") in DIRECTIONS else None
    price, size = canonicals(row.get("fillPx"), row.get("fillSz"))
    if fill.inst_type in CONTRACT_KINDS:
        pattern = _contract_pattern(context.environment, CONTRACT, market, side, "fill")
    else:
        pattern = _fill_pattern(context.environment, TRADE, market, side, ())
        pattern = replace(pattern, quantity_unit=None)
    return replace(
        pattern,
        transactionId=make_id(context, "unbooked", fill.row_id),
        timestamp=fill.at_ms,
        description=Description(
            pattern.description.title, _trade_words(pattern, size or "0", price)
        ),
        datetime=iso(fill.at_ms),
        view=RecordView.SUMMARY,
        amount=size,
        price=price,
        quantity=size,
        ids=Ids(
            native=text(row, "billId"),
            order_id=fill.order_id,
            client_order_id=text(row, "clOrdId"),
            trade_id=fill.trade_id or None,
        ),
        related_type=None,
        incomplete=("ledger",),
    )


def fill_difference(record: Record, bill: Bill, fill: ListedFill) -> tuple[str, str, str] | None:
    """How the bills and the list of one fill differ: field, bills' figure, list's figure.

    Amounts of bills have more digits than the decimals of their coin.
    """
    price, size, fee = canonicals(
        fill.row.get("fillPx"), fill.row.get("fillSz"), fill.row.get("fee")
    )
    if price is not None and bill.price is not None and price != bill.price:
        return "its price differs", bill.price, price
    if size is not None and record.quantity is not None and not _close(record.quantity, size):
        return "its quantity differs", record.quantity, size
    named = str(fill.row.get("feeCcy") or "")
    if fee is None or not named:
        return None
    paid = [Decimal(each.amount) for each in record.fees if each.currency == coin(named)]
    charged = show(add(*paid))
    return None if _close(charged, negated(fee)) else ("its fee differs", charged, negated(fee))


def _close(left: str, right: str) -> bool:
    """Whether two amounts agree except for the last digits of a bill."""
    one, other = Decimal(left), Decimal(right)
    return abs(subtract(one, other)) <= max(abs(other) * NEARLY, LEAST)
