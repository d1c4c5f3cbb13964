"""Deliberate breaks, each put into the answers of the exchange on their way: which are found.

The healthy account comes first: in every mode it must give no alarm.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest
from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History
from transactions.bybit.test_former_accounts import NEVER, UPGRADED, UTA_1
from transactions.bybit_support import NOW_MS, World, run, simulated

DAYS = 60
FROM_MS = NOW_MS - DAYS * DAY_MS
ACCOUNT = Account(History(FROM_MS, NOW_MS, executions=700))
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
Row = dict[str, Any]


class Break(NamedTuple):
    """Rows of a path, and what becomes of them: None, they are lost."""

    path: str
    hits: Callable[[Row], bool]
    change: Callable[[Row], Row] | None = None


class Tampering(httpx.AsyncBaseTransport):
    """Breaks answers on their way."""

    def __init__(self, inner: httpx.AsyncBaseTransport, broken: Break) -> None:
        self._inner = inner
        self._break = broken
        self.hits = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path != self._break.path:
            return response
        body = json.decode(await response.aread())
        if body["retCode"]:  # such as "too many visits": there are no rows to break
            return response
        result = body["result"]
        holder = result["list"][0] if request.url.path == WALLET else result
        name = next(name for name in ("list", "rows", "balance", "coin") if name in holder)
        holder[name] = [self._broken(row) for row in holder[name] if not self._lost(row)]
        headers = {k: v for k, v in response.headers.items() if k.startswith("x-bapi")}
        return httpx.Response(response.status_code, headers=headers, content=json.encode(body))

    def _lost(self, row: Row) -> bool:
        lost = self._break.change is None and self._break.hits(row)
        self.hits += lost
        return lost

    def _broken(self, row: Row) -> Row:
        if self._break.change is None or not self._break.hits(row):
            return row
        self.hits += 1
        return self._break.change(row)


def proof_of(
    account: Account, broken: Break | None = None, *types: str, **fields: Any
) -> dict[str, Any]:
    """The verification of one answer, healthy or broken."""
    tampering: list[Tampering] = []

    def around(inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        if broken is None:
            return inner
        tampering.append(Tampering(inner, broken))
        return tampering[0]

    async def collected() -> Any:
        async with World(simulated(account), around=around) as world:
            wanted = {"start_time": account.history.from_ms - DAY_MS, "limit": 10_000}
            answer = await world.fetch(*types or EVERYTHING, verify=True, **(wanted | fields))
            assert answer["next_cursor"] is None
            return answer["verification"]

    proof: dict[str, Any] = run(collected())
    assert not tampering or tampering[0].hits, "nothing was broken"
    return proof


def states(proof: dict[str, Any]) -> dict[str, str]:
    return {check["name"]: check["state"] for check in proof["checks"]}


def by(name: str, value: str) -> Callable[[Row], bool]:
    return lambda row: row.get(name) == value


def more(name: str, by_amount: str = "1") -> Callable[[Row], Row]:
    """The same row with a figure that begins with another digit."""
    return lambda row: row | {name: f"{by_amount}{row[name].removeprefix('-')}"}


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
        Break(LEDGER, lambda row: row["transactionTime"] in times_of(ACCOUNT.ledger, NEWEST)),
        {"holdings"},
    ),
    "oldest ledger lines lost": (
        Break(LEDGER, lambda row: row["transactionTime"] in times_of(ACCOUNT.ledger, OLDEST)),
        {"transfers"},
    ),
    "a ledger line lost": (Break(LEDGER, by("id", LINE)), {"ledger_chain", "futures_fills"}),
    "newest funding wallet lines lost": (
        Break(FUND_LEDGER, lambda row: int(row["createTime"]) > (NOW_MS - 9 * DAY_MS) // 1000),
        {"holdings"},
    ),
    "cash flow of a line falsified": (
        Break(LEDGER, by("id", LINE), more("cashFlow", "5")), {"ledger_arithmetic"},
    ),
    "fee of a line falsified": (
        Break(LEDGER, by("id", LINE), more("fee")), {"ledger_arithmetic", "futures_fills"},
    ),
    "funding of a line falsified": (
        Break(LEDGER, lambda row: row["type"] == "SETTLEMENT", more("funding")),
        {"ledger_arithmetic", "futures_fills"},
    ),
    "change of a line falsified": (
        Break(LEDGER, by("id", LINE), more("change")), {"ledger_arithmetic", "ledger_chain"},
    ),
    "a holding falsified": (Break(WALLET, by("coin", "BTC"), more("walletBalance")), {"holdings"}),
    "a holding lost": (Break(WALLET, by("coin", "BTC")), {"holdings"}),
    "a funding wallet holding falsified": (
        Break(FUND, by("coin", "ETH"), more("walletBalance")), {"holdings"},
    ),
    "a linear fill lost": (Break(EXECUTIONS, by("execId", fill_id("linear"))), {"futures_fills"}),
    "an inverse fill lost": (
        Break(EXECUTIONS, by("execId", fill_id("inverse"))), {"futures_fills"},
    ),
    "quantity of a fill falsified": (
        Break(EXECUTIONS, by("execId", fill_id("linear")), more("execQty")), {"futures_fills"},
    ),
    "price of a fill falsified": (
        Break(EXECUTIONS, by("execId", fill_id("linear")), more("execPrice")), {"futures_fills"},
    ),
    "fee of a futures fill falsified": (
        Break(EXECUTIONS, by("execId", fill_id("linear")), more("execFee")), {"futures_fills"},
    ),
    "a funding payment lost": (
        Break(EXECUTIONS, by("execId", fill_id("linear", "Funding"))), {"futures_fills"},
    ),
    "a funding payment falsified": (
        Break(EXECUTIONS, by("execId", fill_id("inverse", "Funding")), more("execFee")),
        {"futures_fills"},
    ),
    "a spot fill lost": (
        Break(EXECUTIONS, by("execId", fill_id("spot"))), {"spot_fills", "orders"},
    ),
    "fee of a spot fill falsified": (
        Break(EXECUTIONS, by("execId", fill_id("spot")), more("execFee")), {"spot_fills"},
    ),
    "fee of a spread's spot leg falsified": (
        Break(EXECUTIONS, by("execId", fill_id("spot", "FutureSpread")), more("execFeeV2")),
        {"spot_fills"},
    ),
    "value of a spot fill falsified": (
        Break(EXECUTIONS, by("execId", fill_id("spot")), more("execValue")),
        {"spot_fills", "orders"},
    ),
    "an order falsified": (Break(ORDERS, by("orderId", ORDER), more("cumExecQty")), {"orders"}),
    "a closed position lost": (Break(CLOSED_PNL, by("orderId", CLOSED.order_id)), {"closed_pnl"}),
    "P&L of a closed position falsified": (
        Break(CLOSED_PNL, by("orderId", CLOSED.order_id), more("closedPnl")), {"closed_pnl"},
    ),
    "exit of a closed position falsified": (
        Break(CLOSED_PNL, by("orderId", CLOSED.order_id), more("cumExitValue")), {"closed_pnl"},
    ),
    "exit and P&L falsified together, without fees": (
        Break(
            CLOSED_PNL, by("orderId", CLOSED.order_id),
            lambda row: more("cumExitValue")(row) | {"openFee": "", "closeFee": ""},
        ),
        {"closed_pnl"},
    ),
    "a session lost": (Break(SESSIONS, by("createdTime", str(SESSION.at_ms))), {"settlements"}),
    "a session falsified": (
        Break(SESSIONS, by("createdTime", str(SESSION.at_ms)), more("realisedPnl")),
        {"settlements"},
    ),
    "a deposit lost": (Break(DEPOSITS, by("id", str(DEPOSIT.seq))), {"deposits"}),
    "a deposit falsified": (
        Break(DEPOSITS, by("id", str(DEPOSIT.seq)), more("amount")), {"deposits"},
    ),
    "a deposit of a user lost": (
        Break("/v5/asset/deposit/query-internal-record", by("id", str(INTERNAL.seq))),
        {"deposits"},
    ),
    "a withdrawal lost": (
        Break(WITHDRAWALS, by("withdrawId", str(WITHDRAWAL.seq))), {"withdrawals"},
    ),
    "a withdrawal falsified": (
        Break(WITHDRAWALS, by("withdrawId", str(WITHDRAWAL.seq)), more("amount")),
        {"withdrawals"},
    ),
    "fee of a withdrawal falsified": (
        Break(WITHDRAWALS, by("withdrawId", str(WITHDRAWAL.seq)), more("withdrawFee")),
        {"withdrawals"},
    ),
    "a transfer lost": (Break(TRANSFERS, by("transferId", TRANSFER)), {"transfers"}),
    "a transfer falsified": (
        Break(TRANSFERS, by("transferId", TRANSFER), more("amount")), {"transfers"},
    ),
    "a transfer to a user falsified": (
        Break(UNIVERSAL, by("transferId", GIFT), more("amount")), {"transfers"},
    ),
}  # fmt: skip
# What Bybit's data leaves undecided: not proven, and the check that says so.
UNDECIDED = {
    "an order lost": (ACCOUNT, Break(ORDERS, by("orderId", ORDER)), "orders"),
    "a transfer to a user lost": (
        ACCOUNT,
        Break(UNIVERSAL, by("transferId", GIFT)),
        "transfers",
    ),
    "a delivery lost": (NEVER, Break(DELIVERIES, lambda row: True), "settlements"),
}


@pytest.mark.parametrize("account", [ACCOUNT, NEVER], ids=["two months", "hundred days"])
def test_a_healthy_account_is_proven(account: Account) -> None:
    proof = proof_of(account)
    assert proof["holds"] is True
    assert set(states(proof).values()) == {"holds"}
    assert all(check["checked"] > 4 and not check["breaks"] for check in proof["checks"])
    assert len(proof["unproven"]) >= 5


@pytest.mark.parametrize("account", [UPGRADED, UTA_1], ids=["UTA 2.0", "UTA 1.0"])
def test_an_upgraded_account_gives_no_alarm(account: Account) -> None:
    """The moves of the upgrade are in no list: that stays open, and is said."""
    proof = proof_of(account)
    found = states(proof)
    assert proof["holds"] is None
    assert {name for name, state in found.items() if state != "holds"} == {"transfers"}
    (transfers,) = (check for check in proof["checks"] if check["name"] == "transfers")
    assert (transfers["state"], transfers["broken"]) == ("open", 0)
    assert "upgrade" in transfers["reason"]


@pytest.mark.parametrize("days", [3, 17, 31, 48])
@pytest.mark.parametrize("account", [ACCOUNT, UPGRADED, UTA_1], ids=["new", "UTA 2.0", "UTA 1.0"])
def test_a_part_of_an_account_gives_no_alarm(account: Account, days: int) -> None:
    fields = {"start_time": NOW_MS - (days + 9) * DAY_MS, "end_time": NOW_MS - 9 * DAY_MS}
    proof = proof_of(account, None, **fields)
    assert proof["holds"] is not False, [c for c in proof["checks"] if c["state"] == "broken"]
    assert states(proof)["holdings"] == "not_checked"  # the range ends before now


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_found(name: str) -> None:
    broken, expected = BREAKS[name]
    proof = proof_of(ACCOUNT, broken)
    assert proof["holds"] is False
    found = {name for name, state in states(proof).items() if state == "broken"}
    assert expected <= found
    for check in proof["checks"]:
        assert (check["state"] == "broken") == bool(check["broken"])
        assert len(check["breaks"]) >= bool(check["broken"])


@pytest.mark.parametrize("name", UNDECIDED)
def test_what_cannot_be_decided_is_not_called_proven(name: str) -> None:
    account, broken, check = UNDECIDED[name]
    proof = proof_of(account, broken)
    assert proof["holds"] is None
    assert states(proof)[check] == "open"
    (found,) = (one for one in proof["checks"] if one["name"] == check)
    assert found["open"] >= 1
    assert found["reason"]


def test_oldest_lines_that_only_the_ledger_knows_are_named_as_unprovable() -> None:
    first = nth(ACCOUNT.ledger, lambda line: line.kind == "INTEREST", 0.0)
    proof = proof_of(
        ACCOUNT, Break(LEDGER, by("id", first.facts.line_id)), start_time=first.at_ms - 1
    )
    assert proof["holds"] is not False
    assert any("only in the ledger" in one["what"] for one in proof["unproven"])


def test_a_check_says_which_types_it_needs() -> None:
    proof = proof_of(ACCOUNT, None, "deposits", "ledger")
    assert proof["holds"] is True
    missing = [check for check in proof["checks"] if check["state"] == "not_checked"]
    assert {check["name"] for check in missing} >= {"holdings", "orders", "closed_pnl"}
    assert all("in one request" in check["reason"] for check in missing)


@pytest.mark.parametrize("types", [("deposits",), ("trades",), ("holdings",)])
def test_nothing_compared_is_nothing_proven(types: tuple[str, ...]) -> None:
    proof = proof_of(ACCOUNT, None, *types)
    assert proof["holds"] is None
    assert set(states(proof).values()) == {"not_checked"}
