"""Damage to Bybit's answers, and the check that finds each."""

from collections.abc import Callable
from typing import Any, Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History
from transactions.breaking import Around, Break, Breakable, Breaker, Row, Undecided, listed, more
from transactions.bybit.test_former_accounts import UPGRADED, UTA_1
from transactions.bybit_support import NOW_MS, World, simulated

ACCOUNT = Account(History(NOW_MS - 30 * DAY_MS, NOW_MS, executions=400))
TWO_MONTHS = Account(History(NOW_MS - 60 * DAY_MS, NOW_MS, executions=700))
HUNDRED_DAYS = Account(History(NOW_MS - 100 * DAY_MS, NOW_MS, executions=1_200))
EVERYTHING = (
    "deposits", "withdrawals", "spot_orders", "futures", "transfers", "leverage_token_trades",
    "ledger", "holdings",
)  # fmt: skip
EXECUTIONS, ORDERS = "/v5/execution/list", "/v5/order/history"
LEDGER, FUND_LEDGER = "/v5/account/transaction-log", "/v5/asset/fundinghistory"
WALLET = "/v5/account/wallet-balance"
FUND = "/v5/asset/transfer/query-account-coins-balance"
CLOSED_PNL, SESSIONS = "/v5/position/closed-pnl", "/v5/asset/settlement-record"
DELIVERIES = "/v5/asset/delivery-record"
DEPOSITS, WITHDRAWALS = "/v5/asset/deposit/query-record", "/v5/asset/withdraw/query-record"
TRANSFERS = "/v5/asset/transfer/query-inter-transfer-list"
UNIVERSAL = "/v5/asset/transfer/query-universal-transfer-list"


def by(name: str, value: str) -> Callable[[Row], bool]:
    return lambda row: row.get(name) == value


def nth(table: Any, which: Callable[[Any], bool], share: float = 0.5) -> Any:
    """One of the entries that fit, from about there in the table."""
    found = [entry for entry in table.entries if which(entry.facts)]
    return found[int(len(found) * share)]


def fill_id(category: str, kind: str = "Trade") -> str:
    return str(nth(ACCOUNT.executions[category], lambda f: f.kind == kind).facts.execution_id)


def line_id(which: Callable[[Any], bool]) -> str:
    return str(nth(ACCOUNT.ledger, which).facts.line_id)


def times_of(table: Any, share: slice) -> set[str]:
    return {str(entry.at_ms) for entry in table.entries[share]}


CLOSED = nth(ACCOUNT.closed["linear"], lambda one: one.entry_value != one.exit_value).facts
SESSION = nth(ACCOUNT.sessions, lambda one: one.realised != 0)
DEPOSIT = nth(ACCOUNT.deposits, lambda one: one.status == 3 and not one.blocked)
INTERNAL = nth(ACCOUNT.internal_deposits, lambda one: True)
WITHDRAWAL = nth(ACCOUNT.withdrawals, lambda one: one.status == "success" and one.fee)
TRANSFER = nth(ACCOUNT.transfers, lambda one: True).facts.transfer_id
GIFT = nth(ACCOUNT.universal, lambda one: one.from_uid == ACCOUNT.uid).facts.transfer_id
ORDER = nth(ACCOUNT.orders["spot"], lambda one: one.done and one.status == "Filled").facts.order_id
NEWEST, OLDEST = slice(-3, None), slice(0, 3)
LINE = line_id(lambda line: line.kind == "TRADE" and line.fee and line.category == "linear")
BREAKS = {
    "newest ledger lines lost": (
        Break((LEDGER,), lambda row: row["transactionTime"] in times_of(ACCOUNT.ledger, NEWEST)),
        {"holdings"},
    ),
    "oldest ledger lines lost": (
        Break((LEDGER,), lambda row: row["transactionTime"] in times_of(ACCOUNT.ledger, OLDEST)),
        {"transfers"},
    ),
    "a ledger line lost": (Break((LEDGER,), by("id", LINE)), {"ledger_chain", "futures_fills"}),
    "newest funding wallet lines lost": (
        Break((FUND_LEDGER,), lambda row: int(row["createTime"]) > (NOW_MS - 9 * DAY_MS) // 1000),
        {"holdings"},
    ),
    "cash flow of a line falsified": (
        Break((LEDGER,), by("id", LINE), more("cashFlow", "5")), {"ledger_arithmetic"},
    ),
    "fee of a line falsified": (
        Break((LEDGER,), by("id", LINE), more("fee")), {"ledger_arithmetic", "futures_fills"},
    ),
    "funding of a line falsified": (
        Break((LEDGER,), lambda row: row["type"] == "SETTLEMENT", more("funding")),
        {"ledger_arithmetic", "futures_fills"},
    ),
    "change of a line falsified": (
        Break((LEDGER,), by("id", LINE), more("change")), {"ledger_arithmetic", "ledger_chain"},
    ),
    "a holding falsified": (
        Break((WALLET,), by("coin", "BTC"), more("walletBalance")), {"holdings"},
    ),
    "a holding lost": (Break((WALLET,), by("coin", "BTC")), {"holdings"}),
    "a funding wallet holding falsified": (
        Break((FUND,), by("coin", "ETH"), more("walletBalance")), {"holdings"},
    ),
    "a linear fill lost": (
        Break((EXECUTIONS,), by("execId", fill_id("linear"))), {"futures_fills"},
    ),
    "an inverse fill lost": (
        Break((EXECUTIONS,), by("execId", fill_id("inverse"))), {"futures_fills"},
    ),
    "quantity of a fill falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("linear")), more("execQty")), {"futures_fills"},
    ),
    "price of a fill falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("linear")), more("execPrice")), {"futures_fills"},
    ),
    "fee of a futures fill falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("linear")), more("execFee")), {"futures_fills"},
    ),
    "a funding payment lost": (
        Break((EXECUTIONS,), by("execId", fill_id("linear", "Funding"))), {"futures_fills"},
    ),
    "a funding payment falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("inverse", "Funding")), more("execFee")),
        {"futures_fills"},
    ),
    "a spot fill lost": (
        Break((EXECUTIONS,), by("execId", fill_id("spot"))), {"spot_fills", "orders"},
    ),
    "fee of a spot fill falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("spot")), more("execFee")), {"spot_fills"},
    ),
    "fee of a spread's spot leg falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("spot", "FutureSpread")), more("execFeeV2")),
        {"spot_fills"},
    ),
    "value of a spot fill falsified": (
        Break((EXECUTIONS,), by("execId", fill_id("spot")), more("execValue")),
        {"spot_fills", "orders"},
    ),
    "an order falsified": (Break((ORDERS,), by("orderId", ORDER), more("cumExecQty")), {"orders"}),
    "a closed position lost": (
        Break((CLOSED_PNL,), by("orderId", CLOSED.order_id)), {"closed_pnl"},
    ),
    "P&L of a closed position falsified": (
        Break((CLOSED_PNL,), by("orderId", CLOSED.order_id), more("closedPnl")), {"closed_pnl"},
    ),
    "exit of a closed position falsified": (
        Break((CLOSED_PNL,), by("orderId", CLOSED.order_id), more("cumExitValue")), {"closed_pnl"},
    ),
    "exit and P&L falsified together, without fees": (
        Break(
            (CLOSED_PNL,), by("orderId", CLOSED.order_id),
            lambda row: more("cumExitValue")(row) | {"openFee": "", "closeFee": ""},
        ),
        {"closed_pnl"},
    ),
    "a session lost": (Break((SESSIONS,), by("createdTime", str(SESSION.at_ms))), {"settlements"}),
    "a session falsified": (
        Break((SESSIONS,), by("createdTime", str(SESSION.at_ms)), more("realisedPnl")),
        {"settlements"},
    ),
    "a deposit lost": (Break((DEPOSITS,), by("id", str(DEPOSIT.seq))), {"deposits"}),
    "a deposit falsified": (
        Break((DEPOSITS,), by("id", str(DEPOSIT.seq)), more("amount")), {"deposits"},
    ),
    "a deposit of a user lost": (
        Break(("/v5/asset/deposit/query-internal-record",), by("id", str(INTERNAL.seq))),
        {"deposits"},
    ),
    "a withdrawal lost": (
        Break((WITHDRAWALS,), by("withdrawId", str(WITHDRAWAL.seq))), {"withdrawals"},
    ),
    "a withdrawal falsified": (
        Break((WITHDRAWALS,), by("withdrawId", str(WITHDRAWAL.seq)), more("amount")),
        {"withdrawals"},
    ),
    "fee of a withdrawal falsified": (
        Break((WITHDRAWALS,), by("withdrawId", str(WITHDRAWAL.seq)), more("withdrawFee")),
        {"withdrawals"},
    ),
    "a transfer lost": (Break((TRANSFERS,), by("transferId", TRANSFER)), {"transfers"}),
    "a transfer falsified": (
        Break((TRANSFERS,), by("transferId", TRANSFER), more("amount")), {"transfers"},
    ),
    "a transfer to a user falsified": (
        Break((UNIVERSAL,), by("transferId", GIFT), more("amount")), {"transfers"},
    ),
}  # fmt: skip
# What Bybit's data leaves undecided: not proven, and the check that says so.
UNDECIDED = {
    "an order lost": Undecided(ACCOUNT, Break((ORDERS,), by("orderId", ORDER)), "orders"),
    "a transfer to a user lost": Undecided(
        ACCOUNT,
        Break((UNIVERSAL,), by("transferId", GIFT)),
        "transfers",
    ),
    "a delivery lost": Undecided(
        HUNDRED_DAYS, Break((DELIVERIES,), lambda row: True), "settlements"
    ),
}


def tamper(path: str, body: Row, broken: Breaker) -> bool:
    """Damage the rows of a body."""
    if body["retCode"]:  # such as "too many visits": there are no rows to break
        return False
    result = body["result"]
    holder = result["list"][0] if path == WALLET else result
    name = next(name for name in ("list", "rows", "balance", "coin") if name in holder)
    holder[name] = listed(holder[name], broken)
    return True


def world(account: Account, around: Around) -> World:
    """A service over the account."""
    return World(simulated(account), around=around)


BYBIT_BREAKS: Final = Breakable(
    world=world,
    tamper=tamper,
    types=EVERYTHING,
    since_ms=lambda account: account.history.from_ms - DAY_MS,
    healthy={"a month": ACCOUNT, "two months": TWO_MONTHS, "hundred days": HUNDRED_DAYS},
    parts={
        "new": (TWO_MONTHS, (True, None)),
        "UTA 2.0": (UPGRADED, (True, None)),
        "UTA 1.0": (UTA_1, (True, None)),
    },
    breaks=BREAKS,
    undecided=UNDECIDED,
)
