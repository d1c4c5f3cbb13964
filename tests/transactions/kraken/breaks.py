"""Damage to Kraken's answers, and the check that finds each."""

from collections.abc import Callable
from typing import Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import KrakenAccount, KrakenHistory
from transactions.breaking import (
    KEY,
    Around,
    Break,
    Breakable,
    Breaker,
    Row,
    Undecided,
    listed,
    more,
)
from transactions.bybit_support import NOW_MS
from transactions.kraken.test_accounts import EVERYTHING
from transactions.kraken_support import KrakenWorld

ACCOUNT: Final = KrakenAccount(KrakenHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=300, seed=4))
LEDGERS, TRADES = "/0/private/Ledgers", "/0/private/TradesHistory"
DEPOSITS, WITHDRAWALS = "/0/private/DepositStatus", "/0/private/WithdrawStatus"
BALANCES, WALLETS = "/0/private/BalanceEx", "/derivatives/api/v3/accounts"
LOG = "/api/history/v3/account-log"


def by(*keys: str) -> Callable[[Row], bool]:
    return lambda row: row[KEY] in keys


LEDGER_ROWS: Final = list(ACCOUNT.ledger())
EVENTS: Final = list(ACCOUNT.events())


def rows_of(kind: str, share: float = 0.5) -> tuple[str, ...]:
    """The ids of the rows of the ledger of one event of a kind."""
    found = [event for event in EVENTS if event.kind == kind and event.ledger]
    return found[int(len(found) * share)].ledger


def log_of(kind: str) -> Callable[[Row], bool]:
    """Rows of the log of futures of one event of a kind that are no positions."""
    found = [event for event in EVENTS if event.kind == kind and event.log]
    numbers = found[len(found) // 2].log
    return lambda row: row["id"] in numbers and row["asset"] != row["contract"]


def reference_of(kind: str, share: float = 0.5) -> str:
    found = [event for event in EVENTS if event.kind == kind and event.ledger]
    return found[int(len(found) * share)].reference


def newest_rows(count: int) -> tuple[str, ...]:
    newest = sorted((event for event in EVENTS if event.ledger), key=lambda each: each.time)
    return tuple(row for event in newest[-count:] for row in event.ledger)


def cash(row: Row) -> Row:
    """Increase the currency of a wallet of a margin account."""
    name, held = next(iter(row["balances"].items()))
    return row | {"balances": row["balances"] | {name: held + 1}}


TRADE = rows_of("trade")
BREAKS: Final = {
    "a row of a trade lost": (Break((LEDGERS,), by(TRADE[0])), {"ledger_chain"}),
    "a row of the other side of a trade lost": (Break((LEDGERS,), by(TRADE[1])), {"ledger_chain"}),
    "both rows of a trade lost": (Break((LEDGERS,), by(*TRADE)), {"ledger_chain"}),
    "the newest rows lost": (Break((LEDGERS,), by(*newest_rows(3))), {"holdings"}),
    "a reward lost": (Break((LEDGERS,), by(*rows_of("earn reward"))), {"ledger_chain"}),
    "a conversion lost": (Break((LEDGERS,), by(*rows_of("conversion"))), {"ledger_chain"}),
    "a rollover lost": (Break((LEDGERS,), by(*rows_of("rollover"))), {"ledger_chain"}),
    "a deposit lost": (Break((LEDGERS,), by(*rows_of("deposit", 0.7))), {"ledger_chain"}),
    "a withdrawal lost": (Break((LEDGERS,), by(*rows_of("withdrawal"))), {"ledger_chain"}),
    "what took a withdrawal back lost": (
        Break((LEDGERS,), by(*rows_of("withdrawal reversal", 0.0))), {"ledger_chain"},
    ),
    "amount of a row falsified": (
        Break((LEDGERS,), by(TRADE[0]), more("amount")), {"ledger_chain", "spot_fills"},
    ),
    "fee of a row falsified": (
        Break((LEDGERS,), by(*rows_of("trade")), more("fee")), {"ledger_chain"},
    ),
    "balance of a row falsified": (
        Break((LEDGERS,), by(TRADE[0]), more("balance")), {"ledger_chain"},
    ),
    "amount of a conversion falsified": (
        Break((LEDGERS,), by(*rows_of("conversion")[:1]), more("amount")), {"ledger_chain"},
    ),
    "a holding falsified": (Break((BALANCES,), by("XXBT"), more("balance")), {"holdings"}),
    "a holding lost": (Break((BALANCES,), by("SOL.F")), {"holdings"}),
    "a wallet of futures falsified": (Break((WALLETS,), by("fi_xbtusd"), cash), {"holdings"}),
    "a wallet of futures lost": (Break((WALLETS,), by("cash")), {"holdings"}),
    "volume of a trade falsified": (
        Break((TRADES,), by(reference_of("trade")), more("vol")), {"spot_fills"},
    ),
    "price of a trade falsified": (
        Break((TRADES,), by(reference_of("trade")), more("price")), {"spot_fills"},
    ),
    "cost of a trade falsified": (
        Break((TRADES,), by(reference_of("trade")), more("cost")), {"spot_fills"},
    ),
    "a funding payment lost": (Break((LOG,), log_of("funding")), {"ledger_chain"}),
    "a funding payment falsified": (
        Break((LOG,), log_of("funding"), more("realized_funding")), {"ledger_arithmetic"},
    ),
    "an execution of futures lost": (Break((LOG,), log_of("futures trade")), {"ledger_chain"}),
    "balance of an execution of futures falsified": (
        Break((LOG,), log_of("futures trade"), more("new_balance")), {"ledger_chain"},
    ),
    "fee of an execution of futures falsified": (
        Break((LOG,), log_of("futures trade"), more("fee")), {"ledger_arithmetic"},
    ),
    "gain of a closed position falsified": (
        Break((LOG,), lambda row: bool(row["realized_pnl"]), more("realized_pnl")),
        {"ledger_arithmetic"},
    ),
}  # fmt: skip
WHY: Final = "only its ledger shows"
# What Kraken's data leaves undecided: not proven, and the check that says so.
UNDECIDED: Final = {
    "a trade lost from the list": Undecided(
        ACCOUNT, Break((TRADES,), by(reference_of("trade"))), "spot_fills", WHY,
    ),
    "amount of a listed deposit falsified": Undecided(
        ACCOUNT, Break((DEPOSITS,), by(reference_of("deposit")), more("amount")), "deposits", WHY,
    ),
    "amount of a listed withdrawal falsified": Undecided(
        ACCOUNT, Break((WITHDRAWALS,), by(reference_of("withdrawal")), more("amount")),
        "withdrawals", WHY,
    ),
}  # fmt: skip


def tamper(path: str, body: Row, broken: Breaker) -> bool:
    """Damage the rows of a body."""
    if body.get("error"):
        return False
    if path == LOG:
        body["logs"] = listed(body["logs"], broken, "booking_uid")
    elif path == WALLETS:
        body["accounts"] = _keyed(body["accounts"], broken)
    elif path in (LEDGERS, TRADES):
        name = "ledger" if path == LEDGERS else "trades"
        body["result"][name] = _keyed(body["result"][name], broken)
    elif path == BALANCES:
        body["result"] = _keyed(body["result"], broken)
    else:
        name = "deposit" if path == DEPOSITS else "withdrawals"
        body["result"][name] = listed(body["result"][name], broken, "refid")
    return True


def _keyed(rows: dict[str, Row], broken: Breaker) -> dict[str, Row]:
    found = {key: broken(row, key) for key, row in rows.items()}
    return {key: row for key, row in found.items() if row is not None}


def world(account: KrakenAccount, around: Around) -> KrakenWorld:
    """A service over the account."""
    return KrakenWorld(account, around=around)


KRAKEN_BREAKS: Final = Breakable(
    world=world,
    tamper=tamper,
    types=EVERYTHING,
    since_ms=lambda _: 0,
    healthy={"two months": ACCOUNT},
    parts={"two months": (ACCOUNT, (True,))},
    breaks=BREAKS,
    undecided=UNDECIDED,
)
