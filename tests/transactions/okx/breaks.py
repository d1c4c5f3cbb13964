"""Damage to OKX's answers, and the check that finds each."""

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory
from transactions.breaking import Around, Break, Breakable, Breaker, Row, Undecided, listed, more
from transactions.bybit_support import NOW_MS
from transactions.okx.test_accounts import EVERYTHING
from transactions.okx_support import OkxWorld

ACCOUNT: Final = OkxAccount(OkxHistory(NOW_MS - 60 * DAY_MS, NOW_MS, rows=250, seed=8))
TRADING: Final = ("/api/v5/account/bills", "/api/v5/account/bills-archive")
FUNDING: Final = ("/api/v5/asset/bills", "/api/v5/asset/bills-history")
FILLS: Final = ("/api/v5/trade/fills-history",)
DEPOSITS: Final = ("/api/v5/asset/deposit-history",)
WITHDRAWALS: Final = ("/api/v5/asset/withdrawal-history",)
CASH: Final = ("/api/v5/account/balance",)
HELD: Final = ("/api/v5/asset/balances",)


def within(row: Row) -> bool:
    """A time well inside the range, with bills before and after."""
    return NOW_MS - 50 * DAY_MS < int(row["ts"]) < NOW_MS - 5 * DAY_MS


def is_type(*codes: str, **fields: str) -> Callable[[Row], bool]:
    def hits(row: Row) -> bool:
        same = all(row[name] == value for name, value in fields.items())
        return row["type"] in codes and same and within(row)

    return hits


def charged(row: Row) -> bool:
    return Decimal(row["fee"] or 0) != 0 and is_type("2", instType="SPOT")(row)


def swap(row: Row) -> bool:
    return is_type("2", instType="SWAP", mgnMode="cross")(row)


def closing(row: Row) -> bool:
    return swap(row) and Decimal(row["pnl"] or 0) != 0


def completed(row: Row) -> bool:
    return row["state"] == "2" and within(row)


def newest(row: Row) -> bool:
    return row["ccy"] == "USDT"


CHAIN: Final = "ledger_chain"
BREAKS: Final = {
    "a leg of a fill lost": (Break(TRADING, is_type("2", instType="SPOT")), {CHAIN}),
    "a fill of a contract lost": (Break(TRADING, swap), {CHAIN}),
    "a funding payment lost": (Break(TRADING, is_type("8")), {CHAIN}),
    "a settlement lost": (Break(TRADING, is_type("34")), {CHAIN}),
    "a side of a move lost in trading": (Break(TRADING, is_type("1")), {"events"}),
    "a side of a move lost in funding": (Break(FUNDING, is_type("130", "131")), {CHAIN}),
    "a yield lost": (Break(FUNDING, is_type("83", "89", "126", "76", "75")), {CHAIN}),
    "the bill of a deposit lost": (Break(FUNDING, is_type("1")), {CHAIN}),
    "the bill of a withdrawal lost": (Break(FUNDING, is_type("2")), {CHAIN}),
    "the bill of a withdrawal's fee lost": (Break(FUNDING, is_type("221")), {CHAIN}),
    "the bill of a return lost": (Break(FUNDING, is_type("13")), {CHAIN}),
    "the newest bill of a coin lost": (Break(TRADING, newest), {"holdings"}),
    "the newest bill of a coin in funding lost": (Break(FUNDING, newest), {"holdings"}),
    "the change of a bill falsified": (
        Break(TRADING, is_type("2", instType="SPOT"), more("balChg")), {CHAIN},
    ),
    "the balance of a bill falsified": (
        Break(TRADING, is_type("2", instType="SPOT"), more("bal")), {CHAIN},
    ),
    "the change of a bill in funding falsified": (
        Break(FUNDING, is_type("130", "131"), more("balChg")), {CHAIN},
    ),
    "the fee of a fill falsified": (Break(TRADING, charged, more("fee")), {"spot_fills"}),
    "the fee of a contract's fill falsified": (
        Break(TRADING, swap, more("fee")), {"ledger_arithmetic", "futures_fills"},
    ),
    "the gain of a contract's fill falsified": (
        Break(TRADING, closing, more("pnl")), {"ledger_arithmetic"},
    ),
    "the price of a fill falsified": (
        Break(TRADING, is_type("2", instType="SPOT"), more("px")), {"spot_fills"},
    ),
    "the quantity of a contract's fill falsified": (
        Break(TRADING, swap, more("sz")), {"futures_fills"},
    ),
    "the price of a listed fill falsified": (Break(FILLS, within, more("fillPx")), {"spot_fills"}),
    "the size of a listed fill falsified": (Break(FILLS, within, more("fillSz")), {"spot_fills"}),
    "what trading holds falsified": (Break(CASH, newest, more("cashBal")), {"holdings"}),
    "what trading holds lost": (Break(CASH, newest), {"holdings"}),
    "what funding holds falsified": (Break(HELD, newest, more("bal")), {"holdings"}),
}  # fmt: skip
# What OKX's data leaves undecided: not proven, and the check that says so.
UNDECIDED: Final = {
    "a fill lost from the list": Undecided(
        ACCOUNT, Break(FILLS, lambda row: within(row) and row["tradeId"] != "0"), "spot_fills",
    ),
    "the amount of a listed deposit falsified": Undecided(
        ACCOUNT, Break(DEPOSITS, completed, more("amt")), "events",
    ),
    "the amount of a listed withdrawal falsified": Undecided(
        ACCOUNT, Break(WITHDRAWALS, completed, more("amt")), "events",
    ),
}  # fmt: skip


def tamper(path: str, body: Row, broken: Breaker) -> bool:
    """Damage the rows of a body."""
    if body["code"] != "0":
        return False
    rows = body["data"]
    if rows and "details" in rows[0]:
        rows[0]["details"] = listed(rows[0]["details"], broken, "ccy")
    else:
        name = next((key for key in ("billId", "depId", "wdId") if rows and key in rows[0]), "ccy")
        body["data"] = listed(rows, broken, name)
    return True


def world(account: OkxAccount, around: Around) -> OkxWorld:
    """A service over the account."""
    return OkxWorld(account, around=around, site={"limited": False})


OKX_BREAKS: Final = Breakable(
    world=world,
    tamper=tamper,
    types=EVERYTHING,
    since_ms=lambda _: 0,
    healthy={"two months": ACCOUNT},
    parts={"two months": (ACCOUNT, (True,))},
    breaks=BREAKS,
    undecided=UNDECIDED,
    first=True,
)
