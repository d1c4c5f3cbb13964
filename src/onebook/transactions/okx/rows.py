"""Parses rows of OKX's bills and lists: ids, times, exact amounts; pure.

A bill is one change of one currency in one account. All values are text, in some old rows JSON
numbers; "" is absent. Only `balChg` has a sign, never `sz`.
https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-7-days
"""

from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, UnsetType, json
from msgspec.structs import replace

from onebook.core import canonicals, difference, iso, record_id, texts
from onebook.exchanges.kit.currencies import currency_of
from onebook.transactions.decimals import negated
from onebook.transactions.mapping import (
    LINE,
    PATTERNS_MAX,
    Meaning,
    Row,
    blank_record,
    event_patterns,
    moved_by,
    require,
    text,
)
from onebook.transactions.markets import Markets
from onebook.transactions.okx.words import (
    TITLES,
    UNIFIED,
    funding_meaning,
    trading_meaning,
)
from onebook.transactions.record import Description, Fee, Ids, Money, Record, Status, money

EXCHANGE: Final = "okx"
TRADING, FUNDING, EARN_WALLET = "TRADING", "FUNDING", "EARN"
WALLET_CODES: Final = {"6": FUNDING, "18": TRADING}  # parts of ids
INCOMPLETE: Final = "The row has no billId, type or balChg."

BLANK: Final = blank_record(EXCHANGE)
pattern_of: Final = event_patterns(BLANK, TITLES, "OKX Event", UNIFIED)


class BillContext(Struct, frozen=True):
    """Facts that a row does not contain.

    Args:
        environment: A part of every id.
        markets: OKX's instruments.
    """

    environment: str
    markets: Markets


class Bill(Struct, frozen=True, gc=False):
    """One bill of either account; the funding account has only the first fields.

    Args:
        native: Account and id in one text, because each account numbers its own bills.
        native_type: Account, type and subtype in one text.
        meaning: What its codes mean.
        incoming: Whether the balance grew, or stayed.
        change: The signed change of the balance.
        balance: The balance of the currency after it; None if absent.
        fees: The fee in the change, if any.
        charged: The same as an amount of money.
        gross: The change without the fee.
        moved: `gross` as an amount of money; UNSET if that is zero.
        pnl: The P&L of a position; "0" if there is none.
    """

    id: str
    native: str
    wallet: str
    at_ms: int
    type: str
    native_type: str
    meaning: Meaning
    currency: str
    change: str
    incoming: bool
    balance: str | None
    gross: str
    moved: Money | UnsetType
    fees: tuple[Fee, ...] = ()
    charged: Money | None = None
    pnl: str = "0"
    subtype: str = ""
    inst_type: str = ""
    inst_id: str = ""
    margin_mode: str = ""
    order_id: str = ""
    client_order_id: str = ""
    trade_id: str = ""
    price: str | None = None
    size: str | None = None
    source: str = ""
    target: str = ""


def trading_bill(row: Row) -> Bill:
    """Read a bill of the trading account.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no id, currency, type, time
            or change.
    """
    get = row.get
    change, balance, fee, pnl, price, size = canonicals(
        row["balChg"], get("bal"), get("fee"), get("pnl"), get("px"), get("sz")
    )
    (
        bill_id, kind, subtype, inst_type, inst_id, margin_mode, order_id, client_order_id,
        trade_id, source, target,
    ) = texts(
        row, "billId", "type", "subType", "instType", "instId", "mgnMode", "ordId", "clOrdId",
        "tradeId", "from", "to",
    )  # fmt: skip
    if not (bill_id and kind and change):
        raise ValueError(INCOMPLETE)
    currency, incoming, gross = coin(row["ccy"]), change[0] != "-", change
    meaning = trading_meaning(kind, subtype or "", inst_type or "", incoming)
    fees: tuple[Fee, ...] = ()
    charged = None
    if fee is not None and fee != "0":  # with OKX's sign: a negative fee was paid
        gross, paid = difference(change, fee), negated(fee)
        fees, charged = (Fee(currency, paid, None, meaning.fee, "fee"),), money(currency, paid)
    return Bill(  # by position: a call with so many names is slow
        bill_id,
        f"18:{bill_id}",
        TRADING,
        time_ms(row["ts"]),
        kind,
        f"18:{kind}:{subtype}" if subtype else f"18:{kind}",
        meaning,
        currency,
        change,
        incoming,
        balance,
        gross,
        moved_by(currency, gross),
        fees,
        charged,
        pnl or "0",
        subtype or "",
        inst_type or "",
        inst_id or "",
        margin_mode or "",
        order_id or "",
        client_order_id or "",
        trade_id or "",
        price,
        size,
        source or "",
        target or "",
    )


def funding_bill(row: Row) -> Bill:
    """Read a bill of the funding account.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no id, currency, type, time
            or change.
    """
    change, balance = canonicals(row["balChg"], row.get("bal"))
    bill_id, kind = texts(row, "billId", "type")
    if not (bill_id and kind and change):
        raise ValueError(INCOMPLETE)
    currency, incoming = coin(row["ccy"]), change[0] != "-"
    return Bill(
        bill_id,
        f"6:{bill_id}",
        FUNDING,
        time_ms(row["ts"]),
        kind,
        f"6:{kind}",
        funding_meaning(kind, incoming),
        currency,
        change,
        incoming,
        balance,
        change,
        moved_by(currency, change),
    )


@lru_cache(maxsize=PATTERNS_MAX, typed=True)
def coin(value: Any) -> str:
    """Our name of a currency.

    Raises:
        ValueError: The currency is absent.
    """
    return currency_of(EXCHANGE, require(str(value or ""), "ccy"))


def time_ms(value: Any) -> int:
    """A time in Unix ms.

    Raises:
        ValueError, TypeError: It is not a time.
    """
    found = int(value)
    if found <= 0:
        raise ValueError("The row has no time.")
    return found


def unreadable_row(row: Any, context: BillContext, kind: str, at_ms: int) -> Record:
    """The record of an unreadable row, at its own time if readable, else its group's.

    Its id is a digest of the whole row, so equal rows are one record.
    """
    native = None
    with suppress(LookupError, TypeError, ValueError, AttributeError):
        native = text(row, "billId")
        at_ms = time_ms(row["ts"])
    said = json.encode(row, order="sorted").decode()
    return replace(
        BLANK,
        transactionId=make_id(context, "unreadable", said),
        timestamp=at_ms,
        description=Description("OKX Record", "This record could not be read."),
        datetime=iso(at_ms),
        environment=context.environment,
        type=kind,
        status=Status.UNKNOWN,
        ids=Ids(native=native),
        incomplete=("timestamp", "amount"),
    )


def make_id(context: BillContext, source: str, native_key: str) -> str:
    """The id of an OKX event."""
    return record_id(EXCHANGE, context.environment, source, native_key)


def line_id(context: BillContext, bill: Bill) -> str:
    """The id of the ledger line of a bill."""
    return record_id(EXCHANGE, context.environment, LINE, bill.native)


def line_ids(context: BillContext, bills: Iterable[Bill]) -> tuple[str, ...]:
    """The ids of an event's ledger lines, for `related`."""
    environment = context.environment
    return tuple([record_id(EXCHANGE, environment, LINE, bill.native) for bill in bills])


def first_of(bills: Iterable[Bill]) -> Bill:
    """The bill with the smallest id, from which the id of an event is derived."""
    return min(bills, key=lambda bill: (bill.wallet, len(bill.id), bill.id))


def fees_of(bills: Iterable[Bill], kind: str) -> tuple[Fee, ...]:
    """The fees of some bills, as those of one event; positive fees were paid."""
    return tuple(
        [
            fee if fee.kind == kind else replace(fee, kind=kind)
            for bill in bills
            for fee in bill.fees
        ]
    )
