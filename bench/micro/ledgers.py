"""What it costs to turn rows of Kraken's and OKX's ledgers into records, beside ccxt's parser.

Both get the same rows as they come over the wire, page by page. Ours makes of each row a line and,
joined with the other rows of its event, the record of what happened; ccxt makes an entry of each.
"""

import json as stdlib_json
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import ccxt
from msgspec import json
from records import each

from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory
from onebook.simulator.accounts.kraken import rows as kraken_rows
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory
from onebook.simulator.accounts.okx import rows as okx_rows
from onebook.transactions.adapter import EventRow
from onebook.transactions.kraken import adapter as kraken
from onebook.transactions.kraken.instruments import listed as kraken_listed
from onebook.transactions.kraken.rows import RowContext
from onebook.transactions.markets import Markets, unknown_market
from onebook.transactions.merge import NOTHING_LEFT_MS, Joiner
from onebook.transactions.okx import adapter as okx
from onebook.transactions.okx import funds
from onebook.transactions.okx.events import JOIN_MS, records_of
from onebook.transactions.okx.instruments import guess, listed
from onebook.transactions.okx.rows import BillContext, funding_bill, trading_bill
from timing import interleaved, report

NOW_MS = 1_763_000_000_000
ROWS = 1_000
OKX_PAGE, KRAKEN_PAGE = 100, 50
OKX = BillContext("mainnet", Markets(listed, guess))
KRAKEN = RowContext("mainnet", Markets(kraken_listed, unknown_market))
Rows = list[dict[str, Any]]


def joined(parts: Iterable[EventRow], span_ms: int, make: Callable[[list[Any]], Any]) -> Any:
    """Records of the rows of each event."""
    joiner = Joiner(span_ms)
    for part in parts:
        joiner.add(part)
    return [make([part.row for part in group]) for group in joiner.complete(NOTHING_LEFT_MS)]


def okx_bodies(rows: Rows) -> list[bytes]:
    """Pages as OKX sends them."""
    pages = [rows[at : at + OKX_PAGE] for at in range(0, len(rows), OKX_PAGE)]
    return [json.encode({"code": "0", "msg": "", "data": page}) for page in pages]


def okx_ledger(bodies: list[bytes], read: Callable[[Any], Any]) -> Callable[[], object]:
    """Bills to lines and events."""
    part = okx.bill_part(read)

    def work() -> object:
        return [
            joined(
                [part(row) for row in okx.API.read(okx.Call(""), 200, {}, body).value],
                JOIN_MS,
                lambda rows: records_of(rows, OKX),
            )
            for body in bodies
        ]

    return work


def okx_list(bodies: list[bytes], read: Callable[[Any, Any], Any]) -> Callable[[], object]:
    """Rows of a list to records."""

    def work() -> object:
        return [
            [read(row, OKX) for row in okx.API.read(okx.Call(""), 200, {}, body).value]
            for body in bodies
        ]

    return work


def kraken_bodies(rows: dict[str, Any]) -> list[bytes]:
    """Pages as Kraken sends them."""
    names = list(rows)
    return [
        json.encode(
            {"error": [], "result": {"ledger": {name: rows[name] for name in names[at:][:50]}}}
        )
        for at in range(0, len(names), KRAKEN_PAGE)
    ]


def kraken_ledger(bodies: list[bytes]) -> Callable[[], object]:
    """Rows to lines and events."""

    def work() -> object:
        return [
            joined(
                [
                    kraken.ledger_part(name, row)
                    for name, row in kraken.API.read(kraken.Call(kraken.LEDGERS), 200, {}, body)
                    .value["ledger"]
                    .items()
                ],
                kraken.events.JOIN_MS,
                lambda rows: kraken.events.records_of(rows, KRAKEN),
            )
            for body in bodies
        ]

    return work


def theirs(bodies: list[bytes], parse: Callable[[Any], Any], *path: str) -> Callable[[], object]:
    """What ccxt does between a body and its list of entries."""

    def work() -> object:
        found = []
        for body in bodies:
            rows = stdlib_json.loads(body)
            for name in path:
                rows = rows[name]
            if isinstance(rows, dict):
                for name, row in rows.items():
                    row["id"] = name
                rows = list(rows.values())
            found.append(parse(rows))
        return found

    return work


def main() -> None:
    past = OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=6_000)
    account, exchange = OkxAccount(past), ccxt.okx()
    bills = [okx_rows.bill(row) for row in islice(account.bills(), ROWS)]
    funding = [okx_rows.funding_bill(row) for row in islice(account.funding(), ROWS)]
    deposits = [okx_rows.deposit(row, NOW_MS) for row in account.lists["deposits"]]
    withdrawals = [okx_rows.withdrawal(row, NOW_MS) for row in account.lists["withdrawals"]]
    ledger, funds_of = exchange.parse_ledger, exchange.parse_transactions
    for name, rows, make, read, parse in (
        ("trading bills", bills, okx_ledger, trading_bill, ledger),
        ("funding bills", funding, okx_ledger, funding_bill, ledger),
        ("deposits", deposits, okx_list, funds.deposit, funds_of),
        ("withdrawals", withdrawals, okx_list, funds.withdrawal, funds_of),
    ):
        bodies = okx_bodies(rows)
        work = make(bodies, read)
        compare(f"okx row to record, {name}", work, theirs(bodies, parse, "data"), len(rows))
    booked = KrakenAccount(KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=2_000)).ledger()
    named = {f"L{row.seq:016d}": kraken_rows.ledger(row, NOW_MS) for row in islice(booked, ROWS)}
    bodies = kraken_bodies(named)
    others = theirs(bodies, ccxt.kraken().parse_ledger, "result", "ledger")
    compare("kraken row to record, ledger", kraken_ledger(bodies), others, len(named))


def compare(
    name: str, ours: Callable[[], object], others: Callable[[], object], count: int
) -> None:
    """Nanoseconds a row, ours and ccxt's in turns."""
    report(name, interleaved({"onebook": each(ours, count), "ccxt": each(others, count)}), "ns")


if __name__ == "__main__":
    main()
