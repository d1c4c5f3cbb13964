"""Rows as Kraken sends them, recorded bodies, and grouped rows of a ledger."""

from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeVar

from msgspec.structs import replace

from onebook.core import show
from onebook.transactions.kraken import events, futures
from onebook.transactions.kraken.funding import takes_back
from onebook.transactions.kraken.instruments import listed
from onebook.transactions.kraken.rows import LedgerRow, RowContext, entry_of
from onebook.transactions.markets import Markets, unknown_market
from onebook.transactions.record import Record, RecordView, Status
from transactions.recorded import Samples

SAMPLES = Samples("kraken")
CONTEXT = RowContext("mainnet", Markets(listed, unknown_market))
AT = Decimal("1700000000.1234")
T = TypeVar("T")


def row(**fields: Any) -> dict[str, Any]:
    base = {
        "refid": "R1", "time": AT, "type": "trade", "subtype": "", "aclass": "currency",
        "asset": "XETH", "amount": "1.0000000000", "fee": "0.0000000000", "balance": "1.0000000000",
    }  # fmt: skip
    return base | fields


def entry(id_: str = "L1", **fields: Any) -> LedgerRow:
    return entry_of(id_, row(**fields))


def trade(**fields: Any) -> dict[str, Any]:
    """A row of TradesHistory."""
    base = {
        "ordertxid": "O1", "postxid": "P1", "pair": "XETHZEUR", "time": AT, "type": "buy",
        "ordertype": "limit", "price": "200.00000", "cost": "200.00000", "fee": "0.32000",
        "vol": "1.00000000", "margin": "0.00000", "misc": "", "trade_id": 17, "maker": True,
    }  # fmt: skip
    return base | fields


def log_row(**fields: Any) -> dict[str, Any]:
    """A row of the account log of futures."""
    base = {
        "asset": "usd", "booking_uid": "b-1", "contract": None, "date": "2026-08-11T19:55:24.251Z",
        "execution": None, "fee": None, "funding_rate": None, "id": 1, "info": "futures trade",
        "margin_account": "flex", "mark_price": None, "new_balance": 0, "old_balance": 0,
        "realized_funding": None, "realized_pnl": None, "trade_price": None,
    }  # fmt: skip
    return base | fields


def grouped(
    rows: Iterable[T], key: Callable[[T], str], at_ms: Callable[[T], int], join_ms: int
) -> list[list[T]]:
    """Rows of one key that lie within `join_ms`, newest first."""
    groups: list[list[T]] = []
    last: dict[str, list[T]] = {}
    for each in sorted(rows, key=at_ms, reverse=True):
        group = last.get(key(each))
        if group is None or at_ms(group[0]) - at_ms(each) > join_ms:
            group = last[key(each)] = []
            groups.append(group)
        group.append(each)
    return groups


def ledger_records(
    entries: Iterable[LedgerRow], details: events.GroupDetails = events.NO_DETAILS
) -> list[Record]:
    found: list[Record] = []
    entries = list(entries)
    for group in grouped(entries, events.group_key, lambda e: e.at_ms, events.JOIN_MS):
        own = replace(
            details,
            returned=next((e for e in entries if takes_back(e, group[0])), None),
            returns=next((e for e in entries if takes_back(group[0], e)), None),
        )
        found += events.records_of(group, CONTEXT, own)
    return found


def log_records(rows: Iterable[dict[str, Any]]) -> list[Record]:
    read = [futures.log_row(each) for each in rows]
    found: list[Record] = []
    for group in grouped(read, futures.group_key, lambda r: r.at_ms, futures.JOIN_MS):
        found += futures.records_of(group, CONTEXT)
    return found


def events_of(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.type != "ledger"]


def lines_of(records: Iterable[Record]) -> list[Record]:
    return [record for record in records if record.type == "ledger"]


def moved(records: Iterable[Record]) -> dict[str, str]:
    """Net change by currency of completed primary records: received less sent less fees."""
    sums: dict[str, Decimal] = {}

    def add(currency: str | None, amount: Decimal) -> None:
        sums[currency or ""] = sums.get(currency or "", Decimal(0)) + amount

    for record in records:
        if record.view is not RecordView.PRIMARY or record.status is not Status.COMPLETED:
            continue
        if record.receivedCurrency:
            add(record.receivedCurrency.currency, Decimal(record.receivedCurrency.amount_str))
        if record.sentCurrency:
            add(record.sentCurrency.currency, -Decimal(record.sentCurrency.amount_str))
        for fee in record.fees:
            add(fee.currency, -Decimal(fee.amount))
    return {currency: show(amount) for currency, amount in sums.items() if amount}


def changed(records: Iterable[Record]) -> dict[str, str]:
    """Net change by currency of the ledger's lines."""
    sums: dict[str, Decimal] = {}
    for line in lines_of(records):
        assert line.asset is not None
        assert line.balance is not None
        change = Decimal(line.balance.change or 0)
        sums[line.asset] = sums.get(line.asset, Decimal(0)) + change
    return {currency: show(amount) for currency, amount in sums.items() if amount}
