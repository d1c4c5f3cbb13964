"""Parses rows of Kraken's spot ledger: ids, times, assets and exact amounts; pure.

A row is the value of an object whose key is its ledger id. Amounts are text, in old recordings JSON
numbers; the time has up to seven decimals and is read exactly.
https://docs.kraken.com/api-reference/account-data/get-ledgers-info
"""

from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

from msgspec import Struct, UnsetType, json
from msgspec.structs import replace

from onebook.core import canonicals, difference, iso, record_id
from onebook.model import SECOND_MS
from onebook.transactions.kraken.assets import CREDITS, asset_of
from onebook.transactions.kraken.words import TITLES, UNIFIED, meaning_of
from onebook.transactions.mapping import (
    LINE,
    Meaning,
    Row,
    blank_record,
    event_patterns,
    moved_by,
)
from onebook.transactions.markets import Markets
from onebook.transactions.record import Description, Fee, Ids, Money, Record, Status, money

EXCHANGE: Final = "kraken"
TOKENIZED: Final = "tokenized_asset"
MS: Final = Decimal(SECOND_MS)

BLANK: Final = blank_record(EXCHANGE)
pattern_of: Final = event_patterns(BLANK, TITLES, "Kraken Event", UNIFIED)


class RowContext(Struct, frozen=True):
    """Facts that a row does not contain.

    Args:
        environment: A part of every id.
        markets: Kraken's pairs, by our symbols (`BTC/USD`).
    """

    environment: str
    markets: Markets


class LedgerRow(Struct, frozen=True, gc=False):
    """One row of the ledger.

    Args:
        id: Its ledger id.
        refid: Reference shared by the rows of one event; some products reuse it.
        native_type: Type and subtype in one text.
        meaning: What type, subtype and sign mean.
        native: The asset id, from which `currency` and `wallet` follow.
        amount: The signed change without the fee.
        incoming: Whether the amount is zero or above.
        moved: The amount as money; UNSET if it is zero.
        fee: Positive if charged, negative if refunded.
        fees: The fee, unless it is zero.
        charged: The same as an amount of money.
        change: The amount less the fee.
        balance: The balance of the asset id after the row; None where absent.
    """

    id: str
    refid: str
    at_ms: int
    type: str
    subtype: str
    native_type: str
    meaning: Meaning
    native: str
    currency: str
    wallet: str
    amount: str
    incoming: bool
    moved: Money | UnsetType
    fee: str
    fees: tuple[Fee, ...]
    charged: Money | None
    change: str
    balance: str | None


def entry_of(ledger_id: str, row: Row) -> LedgerRow:
    """Read a row of the ledger.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: It has no id, type, asset, time or
            amount.
    """
    get = row.get
    found, fee, balance = canonicals(row["amount"], get("fee"), get("balance"))
    amount, native, kind, subtype = found, row["asset"], row["type"], get("subtype") or ""
    if not (ledger_id and amount and native and kind):
        raise ValueError("The row has no id, amount, asset or type.")
    if get("aclass") == TOKENIZED and "." not in native:
        native += ".T"
    currency, wallet = asset_of(native)
    incoming, fee = amount[0] != "-", fee or "0"
    meaning, change = meaning_of(kind, subtype, incoming), amount
    fees: tuple[Fee, ...] = ()
    charged = None
    if fee != "0":
        change = difference(amount, fee)
        fees, charged = (Fee(currency, fee, None, meaning.fee, "fee"),), money(currency, fee)
    return LedgerRow(
        ledger_id,
        str(get("refid") or ""),
        time_ms(row["time"]),
        kind,
        subtype,
        f"{kind}:{subtype}" if subtype else kind,
        meaning,
        native,
        currency,
        wallet,
        amount,
        incoming,
        moved_by(currency, amount),
        fee,
        fees,
        charged,
        change,
        balance,
    )


def time_ms(value: Any) -> int:
    """A time in Unix seconds with decimals, in whole milliseconds.

    Raises:
        ValueError, ArithmeticError: It is not a time.
    """
    found = int((value if type(value) is Decimal else Decimal(value)) * MS)
    if found <= 0:
        raise ValueError("The row has no time.")
    return found


def unreadable_row(row_id: str, row: Any, context: RowContext, kind: str, at_ms: int) -> Record:
    """The record of an unreadable row, at its own time if readable, else its group's.

    Its id is a digest of the whole row, so equal rows are one record.
    """
    with suppress(LookupError, TypeError, ValueError, ArithmeticError):
        at_ms = time_ms(row["time"])
    text = json.encode((row_id, row), order="sorted").decode()
    return replace(
        BLANK,
        transactionId=make_id(context, "unreadable", text),
        timestamp=at_ms,
        description=Description("Kraken Record", "This record could not be read."),
        datetime=iso(at_ms),
        environment=context.environment,
        type=kind,
        status=Status.UNKNOWN,
        ids=Ids(native=row_id or None),
        incomplete=("timestamp", "amount"),
    )


def make_id(context: RowContext, source: str, native_key: str) -> str:
    """The id of a Kraken event."""
    return record_id(EXCHANGE, context.environment, source, native_key)


def event_ids(context: RowContext, entries: Iterable[LedgerRow]) -> tuple[str, tuple[str, ...]]:
    """The id of the event that consists of these rows, and those of its lines for `related`."""
    environment, ids = context.environment, [entry.id for entry in entries]
    lines = tuple([record_id(EXCHANGE, environment, LINE, each) for each in ids])
    return record_id(EXCHANGE, environment, "event", min(ids)), lines


def line_id(context: RowContext, entry: LedgerRow) -> str:
    """The id of the ledger line of a row."""
    return make_id(context, LINE, entry.id)


def line_ids(context: RowContext, entries: Iterable[LedgerRow]) -> tuple[str, ...]:
    """The ids of an event's ledger lines, for `related`."""
    environment = context.environment
    return tuple([record_id(EXCHANGE, environment, LINE, entry.id) for entry in entries])


def fees_of(
    entries: Iterable[LedgerRow], kind: str, *, credits_pay: bool = False
) -> tuple[Fee, ...]:
    """The fees of some rows.

    Args:
        credits_pay: Whether spent fee credits count as a fee, as in a trade.
    """
    fees: list[Fee] = []
    for entry in entries:
        if credits_pay and entry.currency == CREDITS and entry.amount != "0":
            charged = difference(entry.fee, entry.amount)
            if charged != "0":
                fees.append(Fee(CREDITS, charged, None, kind, "fee"))
        else:
            fees += [fee if fee.kind == kind else replace(fee, kind=kind) for fee in entry.fees]
    return tuple(fees)
