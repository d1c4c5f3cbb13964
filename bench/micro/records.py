"""What it costs to turn a row of Bybit's into a record, ours beside ccxt's parser.

Both get the same 1,000 rows as they come over the wire, page by page, and do what stands between
a body and a list of records. The floor of deposits and withdrawals: decoding, canonical numbers
and ids alone.
"""

import gc
import json as stdlib_json
import time
from collections.abc import Callable

import ccxt
from msgspec import json

from onebook.core import canonicals
from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History, rows
from onebook.simulator.accounts.bybit.facts import MARKETS
from onebook.transactions.bybit import funds, ledger, trades
from onebook.transactions.bybit.api import Envelope
from onebook.transactions.bybit.instruments import guess, listed
from onebook.transactions.bybit.rows import Context, Mapper, make_id
from onebook.transactions.mapping import Row
from onebook.transactions.markets import Markets
from timing import interleaved, report

NOW_MS = 1_763_000_000_000
HISTORY = History(
    NOW_MS - 60 * DAY_MS, NOW_MS, executions=5_000, deposits=1_200, withdrawals=1_000,
    transfers=1_000,
)  # fmt: skip
RECORDS = 1_000
PAGE_ROWS = 50
PASSES = 10
_decoder = json.Decoder(Envelope)


def bodies_of(found: list[dict[str, object]]) -> list[bytes]:
    """Pages as Bybit sends them."""
    pages = [found[at : at + PAGE_ROWS] for at in range(0, len(found), PAGE_ROWS)]
    return [json.encode({"retCode": 0, "result": {"list": page}, "time": 1}) for page in pages]


def ours(
    bodies: list[bytes], mapper: Callable[[Row, Context], object], context: Context
) -> Callable[[], object]:
    def work() -> object:
        return [mapper(row, context) for b in bodies for row in _decoder.decode(b).result["list"]]

    return work


def floor(kind: str, native: str, *numbers: str) -> Callable[[Row, Context], object]:
    """What no record can do without: its id and its numbers."""

    def read(row: Row, context: Context) -> object:
        return make_id(context, kind, row[native]), canonicals(*map(row.get, numbers))

    return read


FLOORS = {
    "deposits": floor("deposit", "id", "amount", "depositFee"),
    "withdrawals": floor("withdrawal", "withdrawId", "amount", "withdrawFee", "tax"),
}


class Offline(ccxt.bybit):
    """ccxt with the simulation's markets, and no network."""

    def fetch(self, url: str, *args: object, **kwargs: object) -> object:
        query = dict(part.partition("=")[::2] for part in url.partition("?")[2].split("&"))
        markets = [rows.market(m) for m in MARKETS if m.category == query.get("category")]
        found = markets if "instruments-info" in url and "status" not in query else []
        return {"retCode": 0, "result": {"list": found, "rows": []}, "time": 1}


def theirs(bodies: list[bytes], parse: Callable[[object], object]) -> Callable[[], object]:
    def work() -> object:
        return [parse(stdlib_json.loads(body)["result"]["list"]) for body in bodies]

    return work


def main() -> None:
    account = Account(HISTORY)
    markets = Markets(listed, guess)
    for category in ("spot", "linear", "inverse"):
        markets.load(category, [rows.market(m) for m in MARKETS if m.category == category])
    exchange = Offline()
    exchange.load_markets()
    spot = [rows.execution(e) for e in account.executions["spot"].entries[:RECORDS]]
    linear = [rows.execution(e) for e in account.executions["linear"].entries[:RECORDS]]
    lines = [rows.ledger(e) for e in account.ledger.entries[:RECORDS]]
    orders = [rows.order(e) for e in account.orders["spot"].entries[:RECORDS]]
    deposits = [rows.deposit(e) for e in account.deposits.entries[:RECORDS]]
    withdrawals = [rows.withdrawal(e) for e in account.withdrawals.entries[:RECORDS]]
    transfers = [rows.transfer(e) for e in account.transfers.entries[:RECORDS]]
    cases: list[tuple[str, list[dict[str, object]], Mapper, str, Callable[[object], object]]] = [
        ("spot fills", spot, trades.execution, "spot", exchange.parse_trades),
        ("futures fills", linear, trades.execution, "linear", exchange.parse_trades),
        ("ledger lines", lines, ledger.ledger, "", exchange.parse_ledger),
        ("orders", orders, trades.order, "spot", exchange.parse_orders),
        ("deposits", deposits, funds.deposit, "", exchange.parse_transactions),
        ("withdrawals", withdrawals, funds.withdrawal, "", exchange.parse_transactions),
        ("transfers", transfers, funds.transfer, "", exchange.parse_transfers),
    ]
    for name, found, mapper, category, parse in cases:
        bodies, context = bodies_of(found), Context("mainnet", markets, category)
        contenders = {
            "onebook": each(ours(bodies, mapper, context), len(found)),
            "ccxt": each(theirs(bodies, parse), len(found)),
        }
        if name in FLOORS:
            contenders["floor"] = each(ours(bodies, FLOORS[name], context), len(found))
        report(f"bybit row to record, {name}", interleaved(contenders), "ns")


def each(work: Callable[[], object], count: int) -> Callable[[], float]:
    """Nanoseconds of each of the records that `work` makes.

    The collector runs: what a parser leaves behind is a part of what it costs.
    """

    def cost() -> float:
        gc.collect()
        began = time.perf_counter_ns()
        for _ in range(PASSES):
            work()
        return (time.perf_counter_ns() - began) / PASSES / count

    return cost


if __name__ == "__main__":
    main()
