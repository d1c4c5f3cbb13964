"""Mapping of the account log of Kraken Futures, the ledger of the derivatives account; pure.

https://docs.kraken.com/api-reference/account-history/get-account-log

An execution has two rows: one for the position, whose `asset` is the contract and whose balances
are sizes, and one for the cash, with fee, P&L and funding. Between them the log may have the
conversion of the collateral that paid for it. The cash row of an execution becomes up to three
records: the fill with its fee, the realised P&L, and the realised funding.

A row has no field for the amount of a transfer or a conversion: its change is always the new
balance minus the old one. The part of a change that P&L, funding and fees do not explain becomes a
separate record (`unexplained`), so that nothing is lost.

Numbers are JSON numbers with exponents, read as decimals and never as binary floats.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from onebook.clock import ms_of_iso
from onebook.core import canonicals, iso, show
from onebook.exchanges.kit.currencies import currency_of
from onebook.transactions.decimals import ZERO, add, multiply, subtract, unsigned
from onebook.transactions.kraken.assets import futures_asset
from onebook.transactions.kraken.rows import BLANK, EXCHANGE, RowContext, make_id, pattern_of
from onebook.transactions.kraken.words import (
    ADJUSTMENT,
    CONVERSION,
    FEES,
    FUTURES,
    TITLES,
    TRANSFER,
    UNKNOWN,
)
from onebook.transactions.mapping import (
    LINE,
    PATTERNS_MAX,
    Meaning,
    Row,
    direction_of,
    first_fee,
    holder_of,
    require,
    text,
)
from onebook.transactions.record import (
    Balance,
    Description,
    Direction,
    Fee,
    Ids,
    Money,
    Position,
    Record,
    RecordView,
    TradedMarket,
    Transfer,
    money,
)

JOIN_MS: Final = 1_000  # rows of one event have the same time

FUNDING: Final = Meaning(FUTURES, "funding", "Funding")
REALISED: Final = Meaning(FUTURES, "closed_pnl", "Realised PnL")
FILLS: Final = {
    "futures trade": Meaning(FUTURES, "trade", "Trade"),
    "futures liquidation": Meaning(FUTURES, "liquidation", "Liquidation"),
    "covered liquidation": Meaning(FUTURES, "liquidation", "Liquidation"),
    "futures assignor": Meaning(FUTURES, "adl", "Auto-Deleveraging"),
    "futures assignee": Meaning(FUTURES, "adl", "Auto-Deleveraging"),
    "futures unwind counterparty": Meaning(FUTURES, "adl", "Auto-Deleveraging"),
    "futures unwind bankrupt": Meaning(FUTURES, "adl", "Auto-Deleveraging"),
    "settlement": Meaning(FUTURES, "delivery", "Delivery"),
}
MEANINGS: Final = FILLS | {
    "funding rate change": FUNDING,
    "conversion": CONVERSION,
    "interest payment": Meaning(FUTURES, "interest", "Interest"),
    "transfer": TRANSFER,
    "cross-exchange transfer": TRANSFER,
    "subaccount transfer": TRANSFER,
    "admin transfer": ADJUSTMENT,
    "kfee applied": Meaning(FEES, "fee", "Fee"),
    "tax withheld": Meaning(FEES, "tax", "Tax"),
    "tax refund": Meaning(FEES, "tax", "Tax"),
}
ACROSS: Final = "cross-exchange transfer"  # its other side is a row of the spot ledger
MARKET: Final = re.compile(
    r"(?P<kind>p[if]|f[ifv])_(?P<base>[a-z0-9]+?)(?P<quote>usd|eur|gbp)(?:_(?P<day>\d{6}))?"
)


class LogRow(Struct, frozen=True, gc=False):
    """One row of the account log.

    Args:
        id: Its number in the log, which only rises; `uid` is unique across accounts.
        asset: The currency, or the contract in a row of a position.
        change: The new balance less the old one.
        pnl, funding, fee, liquidation_fee: Parts of the change; None if not applicable.
    """

    id: int
    uid: str
    at_ms: int
    info: str
    asset: str
    wallet: str
    contract: str | None
    execution: str | None
    margin_account: str | None
    before: str
    after: str
    change: str
    pnl: str | None
    funding: str | None
    fee: str | None
    liquidation_fee: str | None
    price: str | None
    mark_price: str | None
    funding_rate: str | None
    entry_before: str | None
    entry_after: str | None

    @property
    def of_position(self) -> bool:
        """Whether it is a row of a position, whose balances are sizes."""
        return self.contract is not None and self.asset == self.contract

    @property
    def meaning(self) -> Meaning:
        """The meaning of the row's type."""
        return MEANINGS.get(self.info, UNKNOWN)


def log_row(row: Row) -> LogRow:
    """Read a row of the account log.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: It has no id, date, asset, word or
            balances.
    """
    get = row.get
    before, after, pnl, funding, fee, liquidation_fee, price, mark, rate, old, new = canonicals(
        row["old_balance"], row["new_balance"], get("realized_pnl"), get("realized_funding"),
        get("fee"), get("liquidation_fee"), get("trade_price"), get("mark_price"),
        get("funding_rate"), get("old_average_entry_price"), get("new_average_entry_price"),
    )  # fmt: skip
    before, after = require(before, "old_balance"), require(after, "new_balance")
    asset, contract = require(row["asset"], "asset").lower(), text(row, "contract")
    margin_account, number = text(row, "margin_account"), row["id"]
    if not isinstance(number, int):
        raise TypeError("The id is not a number.")
    currency, wallet = futures_asset(asset, margin_account)
    contract = contract.upper() if contract else None
    if MARKET.fullmatch(asset):  # also where `contract` is absent
        contract = asset.upper()
    return LogRow(
        number,
        text(row, "booking_uid") or str(number),
        ms_of_iso(row["date"]),
        require(row["info"], "info"),
        asset.upper() if contract == asset.upper() else currency,
        wallet,
        contract,
        text(row, "execution"),
        margin_account,
        before,
        after,
        show(subtract(Decimal(after), Decimal(before))),
        _nonzero(pnl),
        _nonzero(funding),
        _nonzero(fee),
        _nonzero(liquidation_fee),
        price,
        mark,
        rate,
        old,
        new,
    )


def _nonzero(value: str | None) -> str | None:
    return None if value == "0" else value


def group_key(row: LogRow) -> str:
    """The key that the rows of one event share."""
    if row.info in FILLS:
        return f"{row.info}:{row.execution or row.contract}"
    if row.meaning is CONVERSION:
        return f"conversion:{row.margin_account}:{row.at_ms}"
    if row.info == "transfer":
        return f"transfer:{row.asset}:{row.at_ms}"
    return f"row:{row.id}"


def records_of(group: Sequence[LogRow], context: RowContext) -> list[Record]:
    """The records of one group of rows: its events, and a line for each row of cash."""
    rows = sorted(group, key=lambda row: row.id)
    records: list[Record] = []
    for event in _events(rows):
        found = event.records(context)
        records += found
        for row in event.rows:
            if not row.of_position:
                records.append(_line(row, context, found[0]))
    return records


class _Event(NamedTuple):
    """The rows of one event, and their mapping to records."""

    rows: tuple[LogRow, ...]

    def records(self, context: RowContext) -> list[Record]:
        first = self.rows[0]
        if first.info in FILLS:
            return _fill(self.rows, context)
        if len(self.rows) == 2:
            source, target = sorted(self.rows, key=lambda row: row.change[0] != "-")
            if first.meaning is CONVERSION:
                return [_converted(source, target, context)]
            return [_moved(source, target, context)]
        return [_single(first, context)]


def _events(rows: Sequence[LogRow]) -> list[_Event]:
    if rows[0].info in FILLS:
        return [_Event(tuple(rows))]
    events: list[_Event] = []
    waiting: LogRow | None = None
    for row in rows:  # the sides of a conversion or a move are neighbours
        if waiting is not None and _opposite(waiting, row):
            events.append(_Event((waiting, row)))
            waiting = None
            continue
        if waiting is not None:
            events.append(_Event((waiting,)))
        waiting = row
    return events if waiting is None else [*events, _Event((waiting,))]


def _opposite(one: LogRow, other: LogRow) -> bool:
    if "0" in (one.change, other.change) or one.info != other.info:
        return False
    if (one.change[0] == "-") == (other.change[0] == "-"):
        return False
    if one.meaning is CONVERSION:
        return one.asset != other.asset
    return one.info == "transfer" and unsigned(one.change) == unsigned(other.change)


# Executions -------------------------------------------------------------------------------------


def _fill(rows: Sequence[LogRow], context: RowContext) -> list[Record]:
    """Map an execution: the fill with its fee, and the realised P&L and funding."""
    money_rows = [row for row in rows if not row.of_position]
    position = next((row for row in rows if row.of_position), None)
    main = money_rows[0] if money_rows else rows[0]
    meaning = main.meaning
    market = market_of(main.contract or "")
    fees = tuple(fee for row in money_rows for fee in _fees(row))
    size = None if position is None else position.change
    side = None if size is None or size == "0" else ("sell" if size[0] == "-" else "buy")
    quantity = None if size is None else unsigned(size)
    unit = "USD" if market.category == "inverse" else market.base or market.symbol
    value = None
    if market.category == "linear" and quantity is not None and main.price is not None:
        value = show(multiply(Decimal(main.price), Decimal(quantity)))
    words = f"{side.capitalize()} {quantity} {unit}" if side else f"{meaning.label} of"
    fill = Record(
        transactionId=make_id(context, "futures", main.uid),
        timestamp=main.at_ms,
        label=meaning.label,
        fee=first_fee(fees),
        description=Description(
            TITLES[FUTURES],
            f"{words} {market.symbol} at {main.price}"
            if main.price
            else f"{words} {market.symbol}",
        ),
        datetime=iso(main.at_ms),
        exchange=EXCHANGE,
        environment=context.environment,
        type=FUTURES,
        unified_type="futures",
        kind=meaning.kind,
        native_type=main.info,
        account=holder_of(main.wallet),
        side=side,
        asset=market.base,
        amount=quantity,
        instrument=market,
        price=main.price,
        quantity=quantity,
        quantity_unit="contracts" if market.category == "inverse" else "base",
        value=value,
        fees=fees,
        position=Position(
            size_after=position.after if position else None,
            entry_price=(position or main).entry_after or (position or main).entry_before,
            realised_pnl=main.pnl,
            funding=main.funding,
            funding_rate=main.funding_rate,
            mark_price=main.mark_price,
        ),
        ids=Ids(native=main.uid, trade_id=main.execution, sequence=str(main.id)),
        related=tuple(_line_id(row, context) for row in money_rows),
        related_type=LINE if money_rows else None,
        incomplete=("quantity",) if position is None else (),
    )
    gains = [gain for row in money_rows for gain in _gains(row, fill, context)]
    return [fill, *gains]


def _gains(row: LogRow, fill: Record, context: RowContext) -> list[Record]:
    """The realised P&L and funding of a row of cash, and the unexplained rest."""
    found: list[Record] = []
    for meaning, part, amount in (
        (REALISED, "pnl", row.pnl),
        (FUNDING, "funding", row.funding),
        (UNKNOWN, "unexplained", _unexplained(row)),
    ):
        if amount is None:
            continue
        gain = _amount_record(row, meaning, amount, context, part=part, fees=())
        found.append(
            replace(
                gain,
                instrument=fill.instrument,
                related=(fill.transactionId,),
                related_type=FUTURES,
                position=Position(
                    realised_pnl=amount if meaning is REALISED else None,
                    funding=amount if meaning is FUNDING else None,
                    funding_rate=row.funding_rate if meaning is FUNDING else None,
                    exit_price=row.price if meaning is REALISED else None,
                    entry_price=row.entry_before if meaning is REALISED else None,
                ),
            )
        )
    return found


def _explained(row: LogRow) -> Decimal:
    """P&L and funding less the fee; excludes the liquidation fee."""
    parts = [Decimal(part) for part in (row.pnl, row.funding) if part is not None]
    return subtract(add(*parts), Decimal(row.fee or 0))


def _takes_liquidation_fee(row: LogRow) -> bool:
    """Whether the liquidation fee is charged besides the P&L, as the change shows."""
    return row.liquidation_fee is not None and _explained(row) != Decimal(row.change)


def _unexplained(row: LogRow) -> str | None:
    explained = _explained(row)
    if _takes_liquidation_fee(row):
        explained = subtract(explained, Decimal(row.liquidation_fee or 0))
    left = subtract(Decimal(row.change), explained)
    return show(left) if left != ZERO else None


def _fees(row: LogRow) -> tuple[Fee, ...]:
    fees: tuple[Fee, ...] = ()
    if row.fee is not None:
        fees = (Fee(row.asset, row.fee, None, "trading", "fee"),)
    if _takes_liquidation_fee(row):
        fees += (
            Fee(row.asset, row.liquidation_fee or "0", None, "liquidation", "liquidation_fee"),
        )
    return fees


@lru_cache(maxsize=PATTERNS_MAX)
def market_of(contract: str) -> TradedMarket:
    """The market of a contract, from its name: PF_XBTUSD, FI_XBTUSD_201225."""
    found = MARKET.fullmatch(contract.lower())
    if found is None:
        return TradedMarket(contract, "linear", None, None, None, None, None)
    kind, day = found["kind"], found["day"]
    base = currency_of(EXCHANGE, found["base"].upper())
    quote = found["quote"].upper()
    category = "inverse" if kind[1] == "i" else "linear"
    expiry = None
    if day:
        # Contracts end at 15:00 UTC in winter and 16:00 in summer of London: the day is known.
        expiry = ms_of_iso(f"20{day[:2]}-{day[2:4]}-{day[4:]}T00:00:00+00:00")
    form = "Futures" if day else "Perpetual"
    return TradedMarket(
        contract.upper(),
        category,
        f"{category.capitalize()}{form}",
        base,
        quote,
        base if category == "inverse" else quote,
        expiry,
    )


# Everything else --------------------------------------------------------------------------------


def _single(row: LogRow, context: RowContext) -> Record:
    """Map a row that is an event by itself: the amount is the change of the balance."""
    meaning, fees = row.meaning, _fees(row)
    gross = row.change
    if fees:
        gross = show(add(Decimal(row.change), *(Decimal(fee.amount) for fee in fees)))
    record = _amount_record(row, meaning, gross, context, part="", fees=fees)
    if meaning is FUNDING:
        return replace(
            record,
            instrument=market_of(row.contract) if row.contract else None,
            position=Position(
                funding=row.funding, funding_rate=row.funding_rate, mark_price=row.mark_price
            ),
            ids=replace(record.ids, trade_id=row.uid),
        )
    if meaning is TRANSFER:
        other = "SPOT" if row.info == ACROSS else None
        outgoing = gross[0] == "-"
        return replace(
            record,
            transfer=Transfer(row.wallet, other) if outgoing else Transfer(other, row.wallet),
            ids=replace(record.ids, transfer_id=row.execution),
        )
    return record


def _amount_record(
    row: LogRow,
    meaning: Meaning,
    amount: str,
    context: RowContext,
    *,
    part: str,
    fees: tuple[Fee, ...],
) -> Record:
    moved: Money | UnsetType = UNSET
    if amount != "0":
        moved = money(row.asset, unsigned(amount))
    outgoing = amount[0] == "-"
    key = f"{row.uid}:{part}" if part else row.uid
    return replace(
        _row_pattern(
            context.environment, meaning, row.info, row.asset, row.wallet, direction_of(amount)
        ),
        transactionId=make_id(context, "futures", key),
        timestamp=row.at_ms,
        sentCurrency=moved if outgoing else UNSET,
        receivedCurrency=UNSET if outgoing else moved,
        fee=first_fee(fees),
        description=Description(
            TITLES.get(meaning.type, "Kraken Event"),
            f"{meaning.label} {amount} {row.asset}"
            + (f" on {row.contract}" if row.contract else ""),
        ),
        datetime=iso(row.at_ms),
        amount=unsigned(amount),
        fees=fees,
        ids=Ids(native=row.uid, sequence=str(row.id)),
        related=(_line_id(row, context),),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _row_pattern(
    environment: str,
    meaning: Meaning,
    info: str,
    asset: str,
    wallet: str,
    direction: Direction,
) -> Record:
    return replace(
        pattern_of(environment, meaning, info),
        account=holder_of(wallet),
        direction=direction,
        asset=asset,
    )


def _converted(source: LogRow, target: LogRow, context: RowContext) -> Record:
    """Map a conversion of collateral to another currency."""
    given, got = unsigned(source.change), target.change
    return replace(
        pattern_of(context.environment, CONVERSION, source.info),
        transactionId=make_id(context, "futures", min(source, target, key=_number).uid),
        timestamp=source.at_ms,
        sentCurrency=money(source.asset, given),
        receivedCurrency=money(target.asset, got),
        description=Description(
            TITLES[CONVERSION.type], f"{given} {source.asset} to {got} {target.asset}"
        ),
        datetime=iso(source.at_ms),
        account=holder_of(source.wallet),
        direction=Direction.BOTH,
        asset=target.asset,
        amount=got,
        ids=Ids(native=source.uid, sequence=str(source.id)),
        related=(_line_id(source, context), _line_id(target, context)),
    )


def _moved(source: LogRow, target: LogRow, context: RowContext) -> Record:
    """Map a move between two wallets of the futures account."""
    amount = money(source.asset, unsigned(source.change))
    return replace(
        pattern_of(context.environment, TRANSFER, source.info),
        transactionId=make_id(context, "futures", min(source, target, key=_number).uid),
        timestamp=source.at_ms,
        sentCurrency=amount,
        receivedCurrency=amount,
        description=Description(
            TITLES[TRANSFER.type],
            f"{amount.amount_str} {source.asset} from {source.wallet} to {target.wallet}",
        ),
        datetime=iso(source.at_ms),
        direction=Direction.BOTH,
        asset=source.asset,
        amount=amount.amount_str,
        transfer=Transfer(source.wallet, target.wallet),
        ids=Ids(native=source.uid, sequence=str(source.id)),
        related=(_line_id(source, context), _line_id(target, context)),
    )


def _number(row: LogRow) -> int:
    return row.id


# Lines ------------------------------------------------------------------------------------------


def _line_id(row: LogRow, context: RowContext) -> str:
    return make_id(context, LINE, f"futures:{row.uid}")


def _line(row: LogRow, context: RowContext, event: Record) -> Record:
    """Map a row of cash to a line of its wallet's ledger."""
    fees = _fees(row)
    change = row.change
    explained = row.pnl is not None or row.funding is not None or row.info in FILLS
    gross = change
    if fees:
        gross = show(add(Decimal(change), *(Decimal(fee.amount) for fee in fees)))
    moved: Money | UnsetType = UNSET if gross == "0" else money(row.asset, unsigned(gross))
    outgoing = gross[0] == "-"
    return replace(
        _line_pattern(
            context.environment,
            row.meaning,
            row.info,
            row.asset,
            row.wallet,
            direction_of(change),
            event.type,
        ),
        transactionId=_line_id(row, context),
        timestamp=row.at_ms,
        sentCurrency=moved if outgoing else UNSET,
        receivedCurrency=UNSET if outgoing else moved,
        fee=first_fee(fees),
        description=Description(TITLES[LINE], f"{row.info.capitalize()} {change} {row.asset}"),
        datetime=iso(row.at_ms),
        amount=unsigned(change),
        balance=Balance(
            before=row.before,
            after=row.after,
            change=change,
            cash_flow=row.pnl or "0" if explained else None,
        ),
        fees=fees,
        position=Position(realised_pnl=row.pnl, funding=row.funding) if explained else None,
        ids=Ids(native=row.uid, trade_id=row.execution, sequence=str(row.id)),
        related=(event.transactionId,),
    )


@lru_cache(maxsize=PATTERNS_MAX)
def _line_pattern(
    environment: str,
    meaning: Meaning,
    info: str,
    asset: str,
    wallet: str,
    direction: Direction,
    event_type: str,
) -> Record:
    return replace(
        BLANK,
        label=meaning.label,
        environment=environment,
        type=LINE,
        kind=meaning.kind,
        native_type=info,
        view=RecordView.LEDGER,
        account=holder_of(wallet),
        direction=direction,
        asset=asset,
        related_type=event_type,
    )
