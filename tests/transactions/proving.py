"""Lines, fills and orders for proofs, and the report of a verifier that received them."""

from decimal import Decimal
from typing import Any

from onebook.core import show
from onebook.transactions.bybit import ENTRY
from onebook.transactions.record import Balance, Holder, Ids, Record, RecordView
from onebook.transactions.verify import Verifier
from transactions.test_record import record

WALLET = Holder("UNIFIED", None)


def line(at_ms: int, change: str, after: str, coin: str = "BTC", name: str = "") -> Record:
    before = show(Decimal(after) - Decimal(change))
    return record(
        transactionId=name or f"0x{at_ms}{coin}{change}",
        timestamp=at_ms,
        type="ledger",
        kind="trade",
        view=RecordView.LEDGER,
        account=WALLET,
        asset=coin,
        balance=Balance(before=before, after=after, change=change),
    )


def fill(at_ms: int, order_id: str | None, quantity: str, value: str) -> Record:
    return record(
        transactionId=f"0xfill{at_ms}{order_id}",
        timestamp=at_ms,
        type="spot_orders",
        kind="trade",
        quantity=quantity,
        value=value,
        ids=Ids(order_id=order_id),
    )


def order(at_ms: int, order_id: str, quantity: str, value: str, *, updated: int = 0) -> Record:
    return record(
        transactionId=f"0xorder{order_id}",
        timestamp=at_ms,
        type="spot_orders",
        kind="order",
        view=RecordView.SUMMARY,
        quantity=quantity,
        value=value,
        updated_at=updated or at_ms,
        ids=Ids(order_id=order_id),
    )


def report(*records: Record, below_ms: int = 10**9, cut: bool = False) -> Any:
    verifier = Verifier(ENTRY, below_ms=below_ms)
    for one in records:
        verifier.add(one)
    return verifier.report(cut=cut)


CHAIN = (
    line(50, "1", "11.5"),
    line(40, "-2.5", "10.5"),
    line(40, "7", "100", coin="ETH"),
    line(30, "3", "13"),
)
