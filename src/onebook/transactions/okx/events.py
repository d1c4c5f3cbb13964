"""Mapping of bills: each to a line of the ledger, and those of one event to its record; pure.

OKX books each currency separately: a fill on a spot market, a conversion or a move between the two
accounts has two or more bills. A group of bills (see `group_key`) becomes records:

- a fill on a spot market: the amounts given and received, each fee in its own coin;
- a fill of a contract: the fill with its fee, and a separate record with the realised P&L;
- a conversion: by its order, by the list of conversions, else by the legs of one time;
- a move between the accounts: sent and received are equal;
- anything else: one record per bill.

Deposits and withdrawals have records in their own lists (`funds`): their bill is a line that names
that record (`matching`), or has its own record if the lists lack it.

The amount moved is always `balChg`, which is exact; `sz` is truncated to the decimals of the coin.
The id of a fill is derived from its instrument, order and trade; that of every other event from the
smallest id of its bills.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from onebook.core import canonicals, difference, iso
from onebook.transactions.decimals import negated, unsigned
from onebook.transactions.mapping import (
    LINE,
    PATTERNS_MAX,
    Leg,
    Meaning,
    Row,
    change_words,
    direction_of,
    exchange_direction,
    first_fee,
    holder_of,
    move_patterns,
    require,
    sides_lacking,
    text,
)
from onebook.transactions.okx.fills import (
    ListedFill,
    OkxEvent,
    contract_fill,
    fill_key,
    fill_named,
    legs_of,
    numbered,
    spot_fill,
    unbooked,
)
from onebook.transactions.okx.instruments import CATEGORIES
from onebook.transactions.okx.rows import (
    BLANK,
    FUNDING,
    TRADING,
    WALLET_CODES,
    Bill,
    BillContext,
    coin,
    fees_of,
    first_of,
    line_id,
    line_ids,
    make_id,
    pattern_of,
    time_ms,
)
from onebook.transactions.okx.words import (
    CONTRACT_KINDS,
    CONVERSION,
    EXCHANGED,
    FILLS,
    FROM_TRADING,
    FUNDING_CONVERTS,
    OUTSIDE,
    SPOT_KINDS,
    TITLES,
    TO_TRADING,
    TRANSFER,
)
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Ids,
    Position,
    Record,
    RecordView,
    Transfer,
    money,
)

JOIN_MS: Final = 3_000  # bills of a fill have the same time, those of a move are a second apart
NOTHING_LISTED: Final[Mapping[str, Record | None]] = {}
CONVERT_KEY: Final = "convert"
ALONE, FILL, MOVE, CONVERT = "alone", "fill", "move", CONVERT_KEY  # see `_form`
GAINING: Final = frozenset({"2", "8"})  # types by which a contract gains: fills and funding
LINEAR: Final = frozenset({"SWAP", "FUTURES"})
move_pattern: Final = move_patterns(pattern_of, TRANSFER)
REPAYING: Final = frozenset({"4", "29"})  # types by which a debt is repaid with another coin


class ListedConversion(Struct, frozen=True, gc=False):
    """A row of the list of conversions."""

    at_ms: int
    trade_id: str
    sent: tuple[str, str]  # currency and amount
    received: tuple[str, str]
    row: Row


def conversion_of(row: Row) -> ListedConversion:
    """Read a row of the list of conversions.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row lacks coins, amounts or a time.
    """
    size, value = canonicals(row["fillBaseSz"], row["fillQuoteSz"])
    base = coin(row["baseCcy"]), require(size, "fillBaseSz")
    quote = coin(row["quoteCcy"]), require(value, "fillQuoteSz")
    buys = row["side"] == "buy"
    return ListedConversion(
        time_ms(row["ts"]),
        require(str(row["tradeId"]), "tradeId"),
        quote if buys else base,
        base if buys else quote,
        row,
    )


def group_key(bill: Bill) -> str:
    """The key shared by the bills of one event."""
    form = _form(bill)
    if form == ALONE:
        return f"{bill.wallet}:{bill.id}"
    if form == FILL:
        return fill_key(bill.inst_id, bill.order_id, bill.trade_id)
    if form == MOVE:
        return f"move:{bill.currency}:{unsigned(bill.change)}"
    if bill.wallet == FUNDING or bill.type in ("27", "28"):
        return CONVERT_KEY
    return f"{CONVERT_KEY}:{bill.type}:{bill.order_id}"


def _form(bill: Bill) -> str:
    """How an event like that of this bill is booked: the same for all of its bills."""
    if bill.wallet == FUNDING:
        if bill.type in (FROM_TRADING, TO_TRADING):
            return MOVE
        return CONVERT if bill.type in FUNDING_CONVERTS else ALONE
    if bill.order_id and (bill.type in FILLS or bill.meaning.kind == "trade"):
        return FILL
    if bill.type == "1" and _between_accounts(bill):
        return MOVE
    return CONVERT if bill.meaning is CONVERSION or bill.type in EXCHANGED else ALONE


def _between_accounts(bill: Bill) -> bool:
    """Whether a transfer of the trading account is to or from the funding account."""
    ends = {WALLET_CODES.get(each, each) for each in (bill.source, bill.target) if each}
    return ends in (set(), {FUNDING}, {TRADING, FUNDING})


def records_of(
    rows: Sequence[Any],
    context: BillContext,
    listed: Mapping[str, Record | None] = NOTHING_LISTED,
) -> list[Record]:
    """The rows of one group as records: its events, and a line for each bill.

    Args:
        listed: By bill, the record of a list that it belongs to; None if that moved nothing.
    """
    bills = [row for row in rows if type(row) is Bill]
    if len(bills) > 1:  # rows of one time come in any order, and the records may not depend on it
        bills.sort(key=_place)
    fills: Sequence[ListedFill] = ()
    conversions: Sequence[ListedConversion] = ()
    if len(bills) < len(rows):
        fills = [row for row in rows if isinstance(row, ListedFill)]
        fills.sort(key=lambda each: each.row_id)
        conversions = [row for row in rows if isinstance(row, ListedConversion)]
        if not bills:
            return [unbooked(fill, context) for fill in fills]
    records: list[Record] = []
    own = bills
    if listed:
        own = [bill for bill in bills if bill.native not in listed]
        records += [
            _line(bill, context, listed[bill.native], line_id(context, bill))
            for bill in bills
            if bill.native in listed
        ]
    for event in events_of(own, context, fills, conversions) if own else ():
        first = event.records[0]
        records += event.records
        records += map(_line, event.bills, repeat(context), repeat(first), first.related)
    return records


def _place(bill: Bill) -> tuple[int, int, str, str]:
    """The place of a bill in its event: by its time, then by its number."""
    return bill.at_ms, len(bill.id), bill.id, bill.wallet


def events_of(
    bills: Sequence[Bill],
    context: BillContext,
    fills: Sequence[ListedFill] = (),
    conversions: Sequence[ListedConversion] = (),
) -> list[OkxEvent]:
    """The events of one group of bills."""
    first = bills[0]
    form = _form(first)
    if form == FILL:
        fill = fills[0] if fills else None
        if first.inst_type in CONTRACT_KINDS:
            if numbered(first.trade_id):
                return [contract_fill(bills, context, fill)]
            # One bill is one fill of a contract, and the list names it.
            return [contract_fill([bill], context, fill_named(bill, fills)) for bill in bills]
        if first.inst_type in SPOT_KINDS or len({bill.currency for bill in bills}) > 1:
            return [spot_fill(bills, context, fill)]
    elif form == MOVE:
        return _moves(bills, context)
    elif form == CONVERT:
        return _conversions(bills, context, conversions)
    return [_single(bill, context) for bill in bills]


# Lines ------------------------------------------------------------------------------------------


def _line(bill: Bill, context: BillContext, event: Record | None, line: str) -> Record:
    """Map a bill to a line of its account's ledger: the change, and the balances around it."""
    meaning, currency = bill.meaning, bill.currency
    moved, change, after = bill.moved, bill.change, bill.balance
    pattern = _line_pattern(
        context.environment,
        meaning,
        bill.native_type,
        currency,
        bill.wallet,
        direction_of(change),
        None if event is None else event.type,
    )
    words, given = pattern.description, bill.gross[0] == "-"
    return replace(
        pattern,
        transactionId=line,
        timestamp=bill.at_ms,
        sentCurrency=moved if given else UNSET,
        receivedCurrency=UNSET if given else moved,
        fee=bill.charged,
        description=Description(words.title, f"{words.desc} {change} {currency}"),
        datetime=iso(bill.at_ms),
        amount=unsigned(change),
        balance=Balance(
            before=None if after is None else difference(after, change),
            after=after,
            change=change,
            cash_flow=_cash_flow(bill),
        ),
        fees=bill.fees,
        ids=Ids(native=bill.native, order_id=bill.order_id or None, sequence=bill.id),
        related=() if event is None else (event.transactionId,),
        incomplete=() if after is not None else ("balance",),
    )


def _cash_flow(bill: Bill) -> str | None:
    """The P&L of a contract fill, which together with its fee is its change.

    Not for isolated positions, whose margin moves with the fill, nor for options, which have a
    price.
    """
    if bill.inst_type not in LINEAR or bill.type not in GAINING or bill.margin_mode == "isolated":
        return None
    return bill.pnl


@lru_cache(maxsize=PATTERNS_MAX)
def _line_pattern(
    environment: str,
    meaning: Meaning,
    native_type: str,
    currency: str,
    wallet: str,
    direction: Direction,
    event_type: str | None,
) -> Record:
    return replace(
        BLANK,
        label=meaning.label,
        description=Description(TITLES[LINE], f"{wallet.capitalize()} {meaning.label.lower()}"),
        environment=environment,
        type=LINE,
        kind=meaning.kind,
        native_type=native_type,
        view=RecordView.LEDGER,
        account=holder_of(wallet),
        direction=direction,
        asset=currency,
        related_type=event_type,
    )


# Conversions -------------------------------------------------------------------------------------


def _conversions(
    bills: Sequence[Bill], context: BillContext, listed: Sequence[ListedConversion]
) -> list[OkxEvent]:
    """Map conversions: by the list, by their orders, by their times, the rest as they come."""
    left, found = list(bills), list[OkxEvent]()
    for conversion in sorted(listed, key=lambda each: (each.at_ms, each.trade_id)):
        legs = _legs_of(conversion, left)
        if legs is not None:
            left = [bill for bill in left if bill not in legs]
            found += _exchanged(legs, context, conversion)
    for label in ("order_id", "at_ms"):
        for value in dict.fromkeys(getattr(bill, label) for bill in left):
            part = [bill for bill in left if value and getattr(bill, label) == value]
            if len({bill.incoming for bill in part}) > 1:
                left = [bill for bill in left if bill not in part]
                found += _exchanged(part, context, None)
    forced = [bill for bill in left if bill.type in REPAYING]  # one coin is no exchange
    found += [_single(bill, context) for bill in forced]
    left = [bill for bill in left if bill not in forced]
    return found + (_exchanged(left, context, None) if left else [])


def _legs_of(conversion: ListedConversion, bills: Sequence[Bill]) -> list[Bill] | None:
    """The two bills of a conversion in the list."""
    wanted = {
        (conversion.sent[0], negated(conversion.sent[1])),
        (conversion.received[0], conversion.received[1]),
    }
    legs: dict[tuple[str, str], Bill] = {}
    for bill in bills:
        each = (bill.currency, bill.gross)
        if each in wanted and each not in legs:
            legs[each] = bill
    return list(legs.values()) if len(legs) == 2 else None


def _exchanged(
    bills: Sequence[Bill], context: BillContext, listed: ListedConversion | None
) -> list[OkxEvent]:
    """Map an exchange: if there are several coins, the first one is in the record of the
    exchange."""
    given, received = legs_of(bills)
    events: list[OkxEvent] = []
    for number in range(max(len(given), len(received), 1)):
        sent = given[number] if number < len(given) else None
        got = received[number] if number < len(received) else None
        own = tuple(bill for leg in (sent, got) if leg for bill in leg.rows)
        if number == 0:
            used = {bill.native for leg in (*given, *received) for bill in leg.rows}
            own += tuple(bill for bill in bills if bill.native not in used)
        events.append(OkxEvent([_exchange(own, sent, got, context, listed)], own))
    return events


def _exchange(
    bills: tuple[Bill, ...],
    sent: Leg[Bill] | None,
    received: Leg[Bill] | None,
    context: BillContext,
    listed: ListedConversion | None,
) -> Record:
    first = first_of(bills)
    meaning = first.meaning if first.type in REPAYING else CONVERSION
    fees = fees_of(bills, meaning.fee)
    main, at_ms = received or sent, max(bill.at_ms for bill in bills)
    pattern = pattern_of(context.environment, meaning, first.native_type)
    words = meaning.label
    if sent is not None and received is not None:
        words = f"{sent.unsigned} {sent.currency} to {received.unsigned} {received.currency}"
    record = replace(
        pattern,
        transactionId=make_id(context, "event", first.native),
        timestamp=at_ms,
        sentCurrency=sent.moved if sent else UNSET,
        receivedCurrency=received.moved if received else UNSET,
        fee=first_fee(fees),
        description=Description(pattern.description.title, words),
        datetime=iso(at_ms),
        account=holder_of(first.wallet),
        direction=exchange_direction(sent, received),
        asset=main.currency if main else first.currency,
        amount=main.unsigned if main else "0",
        fees=fees,
        incomplete=sides_lacking(sent, received),
    )
    return replace(
        record,
        price=canonicals(listed.row.get("fillPx"))[0] if listed else None,
        ids=Ids(
            native=first.native,
            trade_id=listed.trade_id if listed else None,
            order_id=first.order_id or None,
            client_order_id=text(listed.row, "clTReqId") if listed else None,
        ),
        related=line_ids(context, bills),
    )


# Moves between the accounts ---------------------------------------------------------------------


def _moves(bills: Sequence[Bill], context: BillContext) -> list[OkxEvent]:
    """Map moves between the accounts: each bill of one with its counterpart in the other."""
    mirrors = [bill for bill in bills if bill.wallet == TRADING]
    found: list[OkxEvent] = []
    for bill in (each for each in bills if each.wallet == FUNDING):
        mirror = next((each for each in mirrors if each.incoming != bill.incoming), None)
        if mirror is not None:
            mirrors.remove(mirror)
        parts = (bill,) if mirror is None else (bill, mirror)
        found.append(OkxEvent([_move(bill, parts, context)], parts))
    return found + [_single(bill, context) for bill in mirrors]


def _move(bill: Bill, parts: tuple[Bill, ...], context: BillContext) -> Record:
    """Map a move booked only in the funding account: its code shows the other side."""
    ways = (TRADING, FUNDING) if bill.incoming else (FUNDING, TRADING)
    amount = unsigned(bill.change)
    moved, at_ms = money(bill.currency, amount), max(each.at_ms for each in parts)
    pattern = move_pattern(context.environment, bill.native_type, bill.currency, *ways)
    return replace(
        pattern,
        transactionId=make_id(context, "event", bill.native),
        timestamp=at_ms,
        sentCurrency=moved,
        receivedCurrency=moved,
        description=Description(
            pattern.description.title, change_words(pattern, bill.currency, bill.change, amount)
        ),
        datetime=iso(at_ms),
        amount=amount,
        ids=Ids(native=bill.native, transfer_id=bill.id),
        related=line_ids(context, parts),
    )


# Bills that are separate events -----------------------------------------------------------------


def _single(bill: Bill, context: BillContext) -> OkxEvent:
    meaning = bill.meaning
    pattern = _single_pattern(
        context.environment,
        meaning,
        bill.native_type,
        bill.currency,
        bill.wallet,
        direction_of(bill.gross),
        bill.type,
    )
    moved, given = bill.moved, bill.gross[0] == "-"
    amount = moved.amount_str if moved else "0"
    record = replace(
        pattern,
        transactionId=make_id(context, "event", bill.native),
        timestamp=bill.at_ms,
        sentCurrency=moved if given else UNSET,
        receivedCurrency=UNSET if given else moved,
        fee=bill.charged,
        description=Description(
            pattern.description.title, change_words(pattern, bill.currency, bill.change, amount)
        ),
        datetime=iso(bill.at_ms),
        amount=amount,
        fees=bill.fees,
        ids=Ids(native=bill.native, order_id=bill.order_id or None),
        related=(line_id(context, bill),),
    )
    if bill.inst_id and bill.inst_type in CATEGORIES:
        record = _of_instrument(record, bill, context)
    return OkxEvent([record], (bill,))


def _of_instrument(record: Record, bill: Bill, context: BillContext) -> Record:
    """Add the effect on a position, such as a funding payment or a delivery."""
    contract = bill.inst_type in CONTRACT_KINDS
    gained = None if bill.gross == "0" else bill.gross
    position = Position(
        realised_pnl=gained if record.kind != "funding" else None,
        funding=gained if record.kind == "funding" else None,
    )
    return replace(
        record,
        instrument=context.markets.find(CATEGORIES[bill.inst_type], bill.inst_id),
        price=bill.price if bill.price != "0" else None,
        quantity=unsigned(bill.size) if contract and bill.size else None,
        quantity_unit="contracts" if contract and bill.size else None,
        position=position if contract else None,
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _single_pattern(
    environment: str,
    meaning: Meaning,
    native_type: str,
    currency: str,
    wallet: str,
    direction: Direction,
    code: str,
) -> Record:
    pattern = pattern_of(environment, meaning, native_type)
    transfer = None
    if meaning.kind in ("transfer", "custody"):
        other = OUTSIDE.get(code) if wallet == FUNDING else FUNDING if code == "1" else None
        transfer = (
            Transfer(wallet, other) if direction is Direction.OUT else Transfer(other, wallet)
        )
    return replace(
        pattern,
        description=Description(pattern.description.title, meaning.label),
        account=holder_of(wallet),
        direction=direction,
        asset=currency,
        transfer=transfer,
    )
