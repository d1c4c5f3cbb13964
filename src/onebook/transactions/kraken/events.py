"""Mapping of the spot ledger: each row to a line, and the rows of one event to its record; pure.

Kraken books every movement in one ledger: a trade, a conversion or a move between wallets has two
rows. Rows of one event share their `refid` and are at most seconds apart, but a `refid` does not
identify an event: Kraken Earn reuses it months later, and one allocation covers several coins. So
the service groups rows by `group_key` and time (`Source.join_ms`), and each complete group becomes
records here:

- an exchange (trade, conversion): the amounts given and received, each fee in its own coin. Two
  rows of one coin that cancel out (tokenized shares are traded through dollars) are not a leg. If
  several coins are given for one, as when small balances are converted together, the first is in
  the record of the exchange, and every other coin has its own record;
- a move between own wallets: sent and received are equal;
- anything else: one record per row. Deposits and withdrawals: see `funding`.

The list of trades adds market, price and order. It never changes the amounts, which come from the
ledger alone. The ledger's fees are those actually charged; the list of trades has an estimate in
the quote currency, whatever the fee was paid in.

The id of an event is derived from the smallest ledger id of its rows.
"""

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from onebook.core import canonicals, difference, iso, show
from onebook.transactions.decimals import add, unsigned
from onebook.transactions.kraken.assets import CREDITS, MONEY
from onebook.transactions.kraken.funding import FUNDS, FundDetails, fund_id, funds
from onebook.transactions.kraken.rows import (
    BLANK,
    LedgerRow,
    RowContext,
    event_ids,
    fees_of,
    line_id,
    pattern_of,
)
from onebook.transactions.kraken.words import (
    AIRDROP,
    CONVERSION,
    OPENED,
    REALISED,
    ROUTES,
    TITLES,
    TRADE,
    TRANSFER,
    meaning_of,
)
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
    moved_by,
    sides_lacking,
    text,
)
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Ids,
    Position,
    Record,
    RecordView,
    TradedMarket,
    Transfer,
)

JOIN_MS: Final = 10_000  # rows of a trade are milliseconds apart, rows of an adjustment seconds
TRADED: Final = frozenset({"trade", "margin", "settled"})  # `refid` is the id of a trade
EXCHANGED: Final = frozenset({"nfttrade", "settled"})  # if they have two rows
DIRECTIONS: Final = {"buy": Direction.IN, "sell": Direction.OUT}

move_pattern: Final = move_patterns(pattern_of, TRANSFER)

Event = tuple[Record, tuple[LedgerRow, ...]]  # a record, and the rows it was built from


class GroupDetails(FundDetails, frozen=True):
    """Details about one group from other lists of Kraken.

    Args:
        trade: Its row in TradesHistory.
        futures: Whether the futures account has the other side of a transfer; None if its log is
            not read.
    """

    trade: Row | None = None
    futures: bool | None = None


NO_DETAILS: Final = GroupDetails()


def group_key(entry: LedgerRow) -> str:
    """The key shared by the rows of one event."""
    kind = entry.type
    if kind == "earn" and entry.subtype != "migration":
        return f"earn:{entry.refid}:{entry.currency}"
    if kind == "adjustment":  # each side of a migration has its own refid
        return kind
    if kind in TRADED:
        return f"trade:{entry.refid}"
    if entry.meaning is CONVERSION:
        return f"convert:{entry.refid}"
    return f"{kind}:{entry.refid}"


def records_of(
    group: Sequence[LedgerRow], context: RowContext, details: GroupDetails = NO_DETAILS
) -> list[Record]:
    """The rows of one group as records: its events, and a line for each row."""
    if len(group) > 1:  # rows of one time come in any order, and the records may not depend on it
        group = sorted(group, key=_place)
    records: list[Record] = []
    lines: dict[str, Record] = {}  # by row
    for record, entries in events_of(group, context, details):
        related, kind = (record.transactionId,), record.type
        records.append(record)
        for entry, line in zip(entries, record.related, strict=False):
            lines[entry.id] = _line(entry, context, line, related, kind)
    for entry in group:
        found = lines.get(entry.id)
        if found is None:
            # It reverses a deposit or withdrawal; that record is where the original was booked.
            meaning = meaning_of(entry.type, "", True)
            taken_back = fund_id(context, entry.type, entry.refid or entry.id)
            line = line_id(context, entry)
            found = _line(entry, context, line, (taken_back,), meaning.type)
        records.append(found)
    return records


def _place(entry: LedgerRow) -> tuple[int, str]:
    """The place of a row in its event, the newest first."""
    return -entry.at_ms, entry.id


def events_of(
    group: Sequence[LedgerRow], context: RowContext, details: GroupDetails
) -> list[Event]:
    """The events of one group of rows."""
    first = group[0]
    kind = first.type
    if kind in TRADED and len({entry.type for entry in group}) > 1:
        parts = [[e for e in group if e.type == kind] for kind in sorted(TRADED)]
        return [event for part in parts if part for event in events_of(part, context, details)]
    if kind in FUNDS:
        return funds(group, context, details)
    meaning = first.meaning
    if meaning is TRADE or meaning is CONVERSION or (kind in EXCHANGED and len(group) > 1):
        return _exchange(group, meaning, context, details)
    if len(group) > 1:
        if meaning is TRANSFER and (move := _move(group, context)) is not None:
            return [move]
        if kind == "adjustment" and _migrates(group):
            return _exchange(group, CONVERSION, context, details)
    return [_single(entry, context, details) for entry in group]


# Lines ------------------------------------------------------------------------------------------


def _line(
    entry: LedgerRow, context: RowContext, line: str, related: tuple[str], event_type: str
) -> Record:
    """Map a row to a line of its asset's ledger: the change, and the balances before and after."""
    meaning, currency = entry.meaning, entry.currency
    moved, change, after = entry.moved, entry.change, entry.balance
    pattern = _line_pattern(
        context.environment,
        meaning,
        entry.native_type,
        currency,
        entry.wallet,
        direction_of(change),
        event_type,
    )
    words, incoming = pattern.description, entry.incoming
    return replace(
        pattern,
        transactionId=line,
        timestamp=entry.at_ms,
        sentCurrency=UNSET if incoming else moved,
        receivedCurrency=moved if incoming else UNSET,
        fee=entry.charged,
        description=Description(words.title, f"{words.desc} {change} {currency}"),
        datetime=iso(entry.at_ms),
        amount=unsigned(change),
        balance=Balance(
            before=None if after is None else difference(after, change),
            after=after,
            change=change,
        ),
        fees=entry.fees,
        ids=Ids(native=entry.id, transfer_id=entry.refid or None),
        related=related,
        incomplete=() if after is not None else ("balance",),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _line_pattern(
    environment: str,
    meaning: Meaning,
    native_type: str,
    currency: str,
    wallet: str,
    direction: Direction,
    event_type: str,
) -> Record:
    return replace(
        BLANK,
        label=meaning.label,
        description=Description(TITLES[LINE], native_type.replace(":", " ").capitalize()),
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


# Exchanges --------------------------------------------------------------------------------------


def _legs(
    group: Sequence[LedgerRow],
) -> tuple[list[Leg[LedgerRow]], list[Leg[LedgerRow]], list[LedgerRow]]:
    """The legs given and received, and the other rows: fees, and rows that cancel out."""
    by_asset: dict[str, list[LedgerRow]] = {}
    for entry in group:
        native = entry.native
        if native in by_asset:
            by_asset[native].append(entry)
        else:
            by_asset[native] = [entry]
    given: list[Leg[LedgerRow]] = []
    received: list[Leg[LedgerRow]] = []
    rest: list[LedgerRow] = []
    for entries in by_asset.values():
        first = entries[0]
        amount, currency, moved = first.amount, first.currency, first.moved
        if len(entries) > 1:
            amount = show(add(*(Decimal(entry.amount) for entry in entries)))
            moved = moved_by(currency, amount)
        if not moved or currency == CREDITS:
            rest += entries
        else:
            leg = Leg(entries, currency, amount, moved)
            (given if amount[0] == "-" else received).append(leg)
    return given, received, rest


def _exchange(
    group: Sequence[LedgerRow], meaning: Meaning, context: RowContext, details: GroupDetails
) -> list[Event]:
    given, received, rest = _legs(group)
    at_ms = group[0].at_ms
    if len(given) == len(received) == 1:
        (sent,), (got,) = given, received
        entries = (*sent.rows, *got.rows, *rest)
        record = _exchanged(entries, sent, got, meaning, context, details.trade, at_ms=at_ms)
        return [(record, entries)]
    events: list[Event] = []
    for number in range(max(len(given), len(received), 1)):
        leg = given[number] if number < len(given) else None
        other = received[number] if number < len(received) else None
        legs = [each for each in (leg, other) if each is not None]
        entries = tuple(entry for each in legs for entry in each.rows)
        if number == 0:
            entries += tuple(rest)
        trade = details.trade if number == 0 else None
        events.append(
            (_exchanged(entries, leg, other, meaning, context, trade, at_ms=at_ms), entries)
        )
    return events


def _exchanged(
    entries: tuple[LedgerRow, ...],
    sent: Leg[LedgerRow] | None,
    received: Leg[LedgerRow] | None,
    meaning: Meaning,
    context: RowContext,
    trade: Row | None,
    *,
    at_ms: int,
) -> Record:
    first, traded = entries[0], meaning is TRADE
    side = _side(sent, received, trade, context) if traded else None
    given, bought = sent.currency if sent else None, received.currency if received else None
    pattern = _exchange_pattern(
        context.environment,
        meaning,
        first.native_type,
        first.wallet,
        given,
        bought,
        side,
        _pair(given, bought, side, trade, context) if side else None,
        traded and trade is None,
    )
    event, lines = event_ids(context, entries)
    fees = fees_of(entries, meaning.fee, credits_pay=True)
    price, quantity, value = _priced(trade, sent, received, side)
    main = sent if side == "sell" or received is None else received
    return replace(
        pattern,
        transactionId=event,
        timestamp=at_ms,
        sentCurrency=sent.moved if sent else UNSET,
        receivedCurrency=received.moved if received else UNSET,
        fee=first_fee(fees) if fees else None,
        description=Description(
            pattern.description.title, _words(pattern, main, price, sent, received)
        ),
        datetime=iso(at_ms),
        amount=main.unsigned if main else "0",
        price=price,
        quantity=quantity,
        value=value,
        fees=fees,
        ids=_trade_ids(first, trade) if traded else Ids(native=first.refid or first.id),
        related=lines,
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _exchange_pattern(
    environment: str,
    meaning: Meaning,
    native_type: str,
    wallet: str,
    sent: str | None,
    received: str | None,
    side: str | None,
    pair: tuple[str, str] | None,
    unlisted: bool,
) -> Record:
    market = spot_market(*pair) if pair else None
    return replace(
        pattern_of(environment, meaning, native_type),
        label=side.capitalize() if side else meaning.label,
        account=holder_of(wallet),
        direction=DIRECTIONS[side] if side else exchange_direction(sent, received),
        side=side,
        asset=market.base if market else received or sent,
        instrument=market,
        quantity_unit="base" if market else None,
        incomplete=("price",) * unlisted + sides_lacking(sent, received),
    )


def _pair(
    sent: str | None, received: str | None, side: str, trade: Row | None, context: RowContext
) -> tuple[str, str] | None:
    """The market's coins: from both legs, or from its name if one leg was too small to book."""
    base, quote = (received, sent) if side == "buy" else (sent, received)
    if trade is not None and (base is None or quote is None):
        pair = context.markets.find("spot", text(trade, "pair") or "")
        base, quote = base or pair.base, quote or pair.quote
    return None if base is None or quote is None else (base, quote)


@lru_cache(maxsize=PATTERNS_MAX)
def spot_market(base: str, quote: str) -> TradedMarket:
    """A market of the spot exchange."""
    return TradedMarket(f"{base}/{quote}", "spot", None, base, quote, None, None)


def _side(
    sent: Leg[LedgerRow] | None,
    received: Leg[LedgerRow] | None,
    trade: Row | None,
    context: RowContext,
) -> str | None:
    """Buy or sell: from the list of trades, else from Kraken's pair of the two coins."""
    if trade is not None and trade.get("type") in DIRECTIONS:
        return str(trade["type"])
    if sent is None or received is None:
        return None
    if (sent.currency in MONEY) != (received.currency in MONEY):
        return "buy" if sent.currency in MONEY else "sell"
    for base, quote, side in ((received, sent, "buy"), (sent, received, "sell")):
        if context.markets.find("spot", f"{base.currency}/{quote.currency}").base is not None:
            return side
    return None


def _priced(
    trade: Row | None,
    sent: Leg[LedgerRow] | None,
    received: Leg[LedgerRow] | None,
    side: str | None,
) -> tuple[str | None, str | None, str | None]:
    """Price, quantity and value: from the list of trades, or else from the legs.

    The quotient of the legs is not exactly the price.
    """
    quantity, value = None, None
    if side is not None and sent is not None and received is not None:
        base, quote = (received, sent) if side == "buy" else (sent, received)
        quantity, value = base.unsigned, quote.unsigned
    if trade is None:
        return None, quantity, value
    price, listed, cost = canonicals(trade.get("price"), trade.get("vol"), trade.get("cost"))
    return price, listed or quantity, cost or value


def _words(
    pattern: Record,
    main: Leg[LedgerRow] | None,
    price: str | None,
    sent: Leg[LedgerRow] | None,
    received: Leg[LedgerRow] | None,
) -> str:
    market = pattern.instrument
    if market is not None and main is not None:
        at = f"at {price}" if price else "for"
        return f"{pattern.label} {main.unsigned} {market.base} {at} {market.quote}"
    if sent is not None and received is not None:
        return f"{sent.unsigned} {sent.currency} to {received.unsigned} {received.currency}"
    leg = sent or received
    return f"{pattern.label} {leg.amount} {leg.currency}" if leg else pattern.label


def _trade_ids(entry: LedgerRow, trade: Row | None) -> Ids:
    native = entry.refid or entry.id
    if trade is None:
        return Ids(native=native, trade_id=native)
    return Ids(
        native=native,
        trade_id=native,
        order_id=text(trade, "ordertxid"),
        sequence=text(trade, "trade_id"),
    )


def _migrates(group: Sequence[LedgerRow]) -> bool:
    """Whether the rows exchange one coin for its successor."""
    if len(group) != 2 or group[0].currency == group[1].currency:
        return False
    return group[0].incoming != group[1].incoming


# Moves between own wallets ----------------------------------------------------------------------


def _move(group: Sequence[LedgerRow], context: RowContext) -> Event | None:
    """A move between two wallets; None if the rows are not the two sides of a move."""
    given, received, rest = _legs(group)
    if rest or len(given) != 1 or len(received) != 1:
        return None
    (source,), (target,) = given, received
    entries, at_ms = (*source.rows, *target.rows), group[0].at_ms
    if source.currency != target.currency:  # the product was moved to another coin
        return (
            _exchanged(entries, source, target, CONVERSION, context, None, at_ms=at_ms),
            entries,
        )
    if source.unsigned != target.unsigned:
        return None
    first = source.rows[0]
    event, lines = event_ids(context, entries)
    fees, wallets = fees_of(entries, TRANSFER.fee), (first.wallet, target.rows[0].wallet)
    pattern = move_pattern(context.environment, first.native_type, source.currency, *wallets)
    moved = source.moved
    record = replace(
        pattern,
        transactionId=event,
        timestamp=at_ms,
        sentCurrency=moved,
        receivedCurrency=moved,
        fee=first_fee(fees),
        description=Description(
            pattern.description.title,
            change_words(pattern, source.currency, source.amount, source.unsigned),
        ),
        datetime=iso(at_ms),
        amount=source.unsigned,
        fees=fees,
        ids=Ids(native=first.refid or first.id, transfer_id=first.refid or None),
        related=lines,
    )
    return record, entries


# Rows that are separate events -------------------------------------------------------------------


def _single(entry: LedgerRow, context: RowContext, details: GroupDetails) -> Event:
    meaning, unsure = entry.meaning, False
    if entry.subtype == "spotfromfutures" and entry.incoming and not details.futures:
        # Kraken also uses this subtype for airdrops; the futures account then has no other side.
        meaning, unsure = AIRDROP, details.futures is None
    if meaning is REALISED and entry.amount == "0":
        meaning = OPENED
    pattern = _single_pattern(
        context.environment,
        meaning,
        entry.native_type,
        entry.currency,
        entry.wallet,
        direction_of(entry.amount),
        unsure,
    )
    event, lines = event_ids(context, (entry,))
    moved = entry.moved
    amount = moved.amount_str if moved else "0"
    record = replace(
        pattern,
        transactionId=event,
        timestamp=entry.at_ms,
        sentCurrency=UNSET if entry.incoming else moved,
        receivedCurrency=moved if entry.incoming else UNSET,
        fee=entry.charged,
        description=Description(
            pattern.description.title, change_words(pattern, entry.currency, entry.change, amount)
        ),
        datetime=iso(entry.at_ms),
        amount=amount,
        fees=fees_of((entry,), meaning.fee),
        ids=Ids(native=entry.refid or entry.id),
        related=lines,
    )
    if meaning.type == "margin":
        record = _of_position(record, entry, details.trade)
    return record, (entry,)


@lru_cache(maxsize=PATTERNS_MAX)
def _single_pattern(
    environment: str,
    meaning: Meaning,
    native_type: str,
    currency: str,
    wallet: str,
    direction: Direction,
    unsure: bool,
) -> Record:
    pattern = pattern_of(environment, meaning, native_type)
    words = native_type.partition(":")[2] or native_type
    transfer = None
    if meaning is TRANSFER:
        source, target = ROUTES.get(words, (None, None))
        outgoing = direction is Direction.OUT
        transfer = Transfer(wallet, target) if outgoing else Transfer(source, wallet)
    return replace(
        pattern,
        description=Description(pattern.description.title, words.capitalize()),
        account=holder_of(wallet),
        direction=direction,
        asset=currency,
        transfer=transfer,
        incomplete=("kind",) if unsure else (),
    )


def _of_position(record: Record, entry: LedgerRow, trade: Row | None) -> Record:
    """Add the position from the list of trades to a margin record."""
    gained = None if entry.amount == "0" else entry.amount
    if trade is None:
        return replace(record, position=Position(realised_pnl=gained))
    price, quantity, value, leverage = canonicals(
        trade.get("price"), trade.get("vol"), trade.get("cost"), trade.get("leverage")
    )
    closes = "closing" in (text(trade, "misc") or "").split(",")
    return replace(
        record,
        side=str(trade["type"]) if trade.get("type") in DIRECTIONS else None,
        price=price,
        quantity=quantity,
        quantity_unit="base",
        value=value,
        position=Position(
            realised_pnl=gained, leverage=leverage, closed_size=quantity if closes else None
        ),
        ids=_trade_ids(entry, trade),
    )
