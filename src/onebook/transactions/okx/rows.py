"""Parses rows of OKX's bills and lists: ids, times, exact amounts; pure.

A bill is one change of one currency in one account. All values are text, in some old rows JSON
numbers; "" is absent. Only `balChg` has a sign, never `sz`.
https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-last-7-days
"""

from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import replace

from onebook.core import canonicals, iso, record_id, show
from onebook.exchanges.kit.currencies import currency_of
from onebook.transactions.decimals import negated, subtract
from onebook.transactions.mapping import (
    LINE,
    PATTERNS_MAX,
    Meaning,
    Row,
    blank_record,
    event_patterns,
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
from onebook.transactions.record import Description, Fee, Ids, Record, Status

EXCHANGE: Final = "okx"
TRADING, FUNDING, EARN_WALLET = "TRADING", "FUNDING", "EARN"
WALLET_CODES: Final = {"6": FUNDING, "18": TRADING}
NATIVE_WALLETS: Final = {name: code for code, name in WALLET_CODES.items()}  # parts of ids

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


class Bill(Struct, frozen=True, gc=False, kw_only=True):
    """One bill of either account; the funding account has only the first fields.

    Args:
        change: The signed change of the balance.
        balance: The balance of the currency after it; None if absent.
        fee: The part of the change that is a fee, with OKX's sign: a negative fee was paid.
        gross: The change without the fee.
        pnl: The P&L of a position; "0" if there is none.
    """

    id: str
    wallet: str
    at_ms: int
    type: str
    subtype: str = ""
    currency: str
    change: str
    balance: str | None
    fee: str = "0"
    gross: str
    pnl: str = "0"
    notes: str = ""
    inst_type: str = ""
    inst_id: str = ""
    margin_mode: str = ""
    order_id: str = ""
    client_order_id: str = ""
    trade_id: str = ""
    fill_time: str = ""
    liquidity: str = ""
    price: str | None = None
    size: str | None = None
    source: str = ""
    target: str = ""

    @property
    def incoming(self) -> bool:
        """Whether the balance rose or stayed the same."""
        return self.change[0] != "-"

    @property
    def meaning(self) -> Meaning:
        """The meaning of its type."""
        if self.wallet == FUNDING:
            return funding_meaning(self.type, incoming=self.incoming)
        return trading_meaning(self.type, self.subtype, self.inst_type, incoming=self.incoming)

    @property
    def native_type(self) -> str:
        """Account, type and subtype in one text."""
        subtype = f":{self.subtype}" if self.subtype else ""
        return f"{NATIVE_WALLETS[self.wallet]}:{self.type}{subtype}"

    @property
    def native(self) -> str:
        """Account and id in one text, because ids are unique only within an account."""
        return f"{NATIVE_WALLETS[self.wallet]}:{self.id}"


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
    change, fee = require(change, "balChg"), fee or "0"
    return Bill(
        id=require(str(row["billId"]), "billId"),
        wallet=TRADING,
        at_ms=time_ms(row["ts"]),
        type=require(str(row["type"]), "type"),
        subtype=str(get("subType") or ""),
        currency=coin(row["ccy"]),
        change=change,
        balance=balance,
        fee=fee,
        gross=change if fee == "0" else difference(change, fee),
        pnl=pnl or "0",
        notes=str(get("notes") or ""),
        inst_type=str(get("instType") or ""),
        inst_id=str(get("instId") or ""),
        margin_mode=str(get("mgnMode") or ""),
        order_id=str(get("ordId") or ""),
        client_order_id=str(get("clOrdId") or ""),
        trade_id=str(get("tradeId") or ""),
        fill_time=str(get("fillTime") or ""),
        liquidity=str(get("execType") or ""),
        price=price,
        size=size,
        source=str(get("from") or ""),
        target=str(get("to") or ""),
    )


def funding_bill(row: Row) -> Bill:
    """Read a bill of the funding account.

    Raises:
        ValueError, LookupError, TypeError, ArithmeticError: The row has no id, currency, type, time
            or change.
    """
    change, balance = canonicals(row["balChg"], row.get("bal"))
    change = require(change, "balChg")
    return Bill(
        id=require(str(row["billId"]), "billId"),
        wallet=FUNDING,
        at_ms=time_ms(row["ts"]),
        type=require(str(row["type"]), "type"),
        currency=coin(row["ccy"]),
        change=change,
        balance=balance,
        gross=change,
        notes=str(row.get("notes") or ""),
    )


def difference(left: str, right: str) -> str:
    """The exact difference of two canonical numbers."""
    return show(subtract(Decimal(left), Decimal(right)))


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
    """The record of an unreadable row, at its own time or at that of its group.

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
    return _line_id(context.environment, bill.native)


@lru_cache(maxsize=PATTERNS_MAX)
def _line_id(environment: str, native: str) -> str:
    """Cached, because both the event of a bill and the line itself need it."""
    return record_id(EXCHANGE, environment, LINE, native)


def line_ids(context: BillContext, bills: Iterable[Bill]) -> tuple[str, ...]:
    """The ids of an event's ledger lines, for `related`."""
    return tuple(line_id(context, bill) for bill in bills)


def first_of(bills: Iterable[Bill]) -> Bill:
    """The bill with the smallest id, from which the id of an event is derived."""
    return min(bills, key=lambda bill: (bill.wallet, len(bill.id), bill.id))


def fees_of(bills: Iterable[Bill], kind: str) -> tuple[Fee, ...]:
    """The fees of some bills; positive fees were paid."""
    return tuple(
        Fee(bill.currency, negated(bill.fee), None, kind, "fee")
        for bill in bills
        if bill.fee != "0"
    )
