"""Accounts that were classic, or UTA 1.0: what came before is read, or said to be missing."""

from collections.abc import Sequence
from functools import cache
from itertools import cycle, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onebook.errors import ExchangeFailed
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.bybit import Account, History
from onebook.simulator.accounts.bybit.endpoints import LISTINGS
from onebook.simulator.accounts.bybit.keys import AccountRefused
from transactions.bybit_support import NOW_MS, World, run, simulated

DAYS = 50
FROM_MS = NOW_MS - DAYS * DAY_MS
UNIFIED_MS, MERGED_MS = NOW_MS - 30 * DAY_MS, NOW_MS - 15 * DAY_MS
UPGRADED = Account(
    History(FROM_MS, NOW_MS, executions=600, unified_ms=UNIFIED_MS, merged_ms=MERGED_MS)
)
UTA_1 = Account(
    History(FROM_MS, NOW_MS, executions=600, unified_ms=UNIFIED_MS, merged_ms=NOW_MS + DAY_MS)
)
NEVER = Account(History(FROM_MS, NOW_MS, executions=600))
FORMER_PATHS = (
    "/v5/pre-upgrade/execution/list",
    "/v5/pre-upgrade/order/history",
    "/v5/pre-upgrade/position/closed-pnl",
    "/v5/pre-upgrade/account/transaction-log",
    "/v5/pre-upgrade/asset/settlement-record",
)
CONTRACT_LEDGER = "/v5/account/contract-transaction-log"
FILLS = ("trade", "funding", "liquidation", "fill of a delivery")
Answer = dict[str, Any]


def each_once(paths: Sequence[str], codes: Sequence[int]) -> list[tuple[str, int]]:
    """Each path with one code, and each code with some path, because they are independent."""
    return list(zip(paths, cycle(codes), strict=False))


def asked(account: Account, *types: str, prepare: Any = None, **fields: Any) -> Any:
    """One answer about an account's whole time, and the requests for it."""

    async def collected() -> Any:
        options = {name: fields.pop(name) for name in ("faults",) if name in fields}
        exchange = simulated(account, **options)
        if prepare is not None:
            prepare(exchange)
        async with World(exchange) as world:
            wanted = {"start_time": FROM_MS, "limit": 10_000} | fields
            return await world.fetch(*types, **wanted), exchange.requests

    return run(collected())


@cache
def asked_without_refusals() -> Answer:
    answer, _ = asked(NEVER, "spot_orders", "futures", "ledger")
    return answer


def coverage_of(answer: Answer) -> dict[str, Answer]:
    return {entry["transaction_type"]: entry for entry in answer["coverage"]}


def fills_of(account: Account, category: str) -> set[str]:
    tables = (account.executions, account.former_executions)
    return {e.facts.execution_id for table in tables for e in table[category].entries}


def closed_of(account: Account, category: str) -> set[str]:
    tables = (account.closed, account.former_closed)
    return {e.facts.order_id for table in tables for e in table[category].entries}


def kind_of(record: Answer) -> str:
    of_delivery = record["kind"] == "delivery" and record["ids"]["trade_id"]
    return "fill of a delivery" if of_delivery else str(record["kind"])


def natives(answer: Answer, kind: str, *kinds: str) -> set[str]:
    found = [
        r["ids"]["native"] for r in answer["transactions"] if r["type"] == kind
        and kind_of(r) in kinds
    ]  # fmt: skip
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("account", [UPGRADED, UTA_1])
@pytest.mark.parametrize("category", ["linear", "inverse"])
def test_futures_are_whole_across_the_upgrade(account: Account, category: str) -> None:
    kind = f"futures_{category}"
    answer, _ = asked(account, kind)
    assert account.former_executions[category].entries
    assert account.former_closed[category].entries
    fills = natives(answer, kind, *FILLS)
    assert fills == fills_of(account, category)
    assert natives(answer, kind, "closed_pnl") == closed_of(account, category)
    assert coverage_of(answer)[kind]["complete"]
    assert answer["errors"] == []


def test_sessions_before_the_upgrade_are_there() -> None:
    answer, _ = asked(UPGRADED, "futures_linear")
    entries = [*UPGRADED.sessions.entries, *UPGRADED.former_sessions.entries]
    found = [r["timestamp"] for r in answer["transactions"] if r["kind"] == "settlement"]
    assert UPGRADED.former_sessions.entries
    assert sorted(found) == sorted(entry.at_ms for entry in entries)


def test_a_record_says_which_wallet_it_was_in() -> None:
    answer, _ = asked(UPGRADED, "futures", "spot_orders")
    wallets: dict[tuple[str, bool], set[str]] = {}
    for record in answer["transactions"]:
        settle, at_ms = record["instrument"]["settle"], record["timestamp"]
        began_ms = MERGED_MS if record["instrument"]["category"] == "inverse" else UNIFIED_MS
        if record["kind"] in {"trade", "funding", "order"}:
            key = (settle or "spot", at_ms < began_ms)
            wallets.setdefault(key, set()).add(record["account"]["wallet"])
    assert wallets == {
        ("USDT", True): {"CONTRACT"},
        ("USDC", True): {"OPTION"},
        ("BTC", True): {"CONTRACT"},
        ("spot", True): {"SPOT"},
        ("USDT", False): {"UNIFIED"},
        ("USDC", False): {"UNIFIED"},
        ("BTC", False): {"UNIFIED"},
        ("spot", False): {"UNIFIED"},
    }


def test_spot_is_whole_across_the_upgrade() -> None:
    """Bybit shows a classic account's spot fills under the former path, as its page says."""
    answer, _ = asked(UPGRADED, "spot_orders", verify=True)
    assert UPGRADED.former_executions["spot"].entries
    assert natives(answer, "spot_orders", "trade") == fills_of(UPGRADED, "spot")
    tables = (UPGRADED.orders, UPGRADED.former_orders)
    done = {e.facts.order_id for t in tables for e in t["spot"].entries if e.facts.done}
    found = natives(answer, "spot_orders", "order")
    assert done <= found  # orders without fills are shown for a day
    assert coverage_of(answer)["spot_orders"]["complete"]
    orders = next(c for c in answer["verification"]["checks"] if c["name"] == "orders")
    assert (orders["state"], orders["checked"]) == ("holds", len(found))
    trades, _ = asked(UPGRADED, "trades")
    assert coverage_of(trades)["spot_orders"]["complete"]
    assert natives(trades, "spot_orders", "trade") == fills_of(UPGRADED, "spot")
    assert not [r for r in trades["transactions"] if r["kind"] == "order"]


def test_a_ledger_ends_where_a_book_is_no_longer_shown() -> None:
    """In UTA 2.0 the book of inverse contracts is gone; their fills show that it was there."""
    answer, requests = asked(UPGRADED, "ledger", verify=True)
    covered = coverage_of(answer)["ledger"]
    newest_ms = UPGRADED.former_executions["inverse"].entries[-1].at_ms
    assert (covered["complete"], covered["reason"]) == (False, "older_not_kept")
    assert covered["from"] == newest_ms + 1
    assert CONTRACT_LEDGER not in requests
    assert answer["errors"] == []
    assert answer["verification"]["holds"] is True


def test_the_inverse_book_of_uta_1_is_a_wallet_of_its_own() -> None:
    answer, requests = asked(UTA_1, "ledger", verify=True)
    lines: dict[str, set[str]] = {}
    for record in answer["transactions"]:
        lines.setdefault(record["account"]["wallet"], set()).add(record["ids"]["native"])
    assert lines["CONTRACT"] == {e.facts.line_id for e in UTA_1.contract_ledger.entries}
    assert lines["UNIFIED"] == {e.facts.line_id for e in UTA_1.ledger.entries}
    usdc = [r for r in answer["transactions"] if r["account"]["wallet"] == "OPTION"]
    assert len(usdc) == len(UTA_1.usdc_ledger) > 0
    assert requests[CONTRACT_LEDGER] > 0
    proof = answer["verification"]
    assert proof["holds"] is True
    assert {chain["wallet"] for chain in proof["ledger"]} == {
        "CONTRACT",
        "FUND",
        "OPTION",
        "UNIFIED",
    }
    # The book of the classic spot wallet is not in the API.
    covered = coverage_of(answer)["ledger"]
    assert FROM_MS < covered["from"] <= UNIFIED_MS + DAY_MS


def test_funding_in_the_inverse_book_has_the_accounts_sign() -> None:
    """Its column says what was paid; the fill that it books says the same from our side."""
    answer, _ = asked(UTA_1, "ledger", "futures_inverse")
    fundings = {
        r["transactionId"]: r for r in answer["transactions"]
        if r["type"] == "futures_inverse" and r["kind"] == "funding"
    }  # fmt: skip
    booked = [
        r for r in answer["transactions"]
        if r["type"] == "ledger" and r["account"]["wallet"] == "CONTRACT"
        and r["native_type"] == "SETTLEMENT" and r["instrument"]["category"] == "inverse"
    ]  # fmt: skip
    assert booked
    for line in booked:
        fill = fundings[line["related"][0]]
        assert line["position"]["funding"] == fill["position"]["funding"]
        assert line["balance"]["change"] == fill["position"]["funding"]


def test_an_account_that_was_always_unified_answers_empty_and_is_whole() -> None:
    answer, requests = asked(NEVER, "trades", "spot_orders", "futures", "ledger", verify=True)
    assert all(entry["complete"] for entry in answer["coverage"])
    assert answer["partial"] is False
    assert answer["verification"]["holds"] is True
    assert requests["/v5/account/info"] == 1
    assert requests["/v5/pre-upgrade/execution/list"] > 0
    # Closed positions are asked for by the symbols that were traded: there were none.
    assert "/v5/pre-upgrade/position/closed-pnl" not in requests


def test_several_types_ask_for_the_same_empty_time_once() -> None:
    _, alone = asked(NEVER, "futures_linear")
    _, together = asked(NEVER, "futures_linear", "ledger")
    path = "/v5/pre-upgrade/execution/list"
    windows = -(-DAYS // 7)
    assert together[path] <= alone[path] + 2 * windows  # two more witnesses; the linear is shared


def test_a_classic_account_has_no_time_before() -> None:
    def classic(exchange: Any) -> None:
        exchange._answers["/v5/account/info"] = lambda q, k: {"unifiedMarginStatus": 1}

    answer, requests = asked(UTA_1, "futures", "ledger", prepare=classic)
    assert not set(FORMER_PATHS) & set(requests)
    assert requests[CONTRACT_LEDGER] > 0
    assert answer["errors"] == []


def test_half_a_year_of_usdc_contracts_is_not_two() -> None:
    """Bybit keeps six months of them: where they appear, no more is promised."""
    began_ms = NOW_MS - 220 * DAY_MS
    account = Account(History(began_ms, NOW_MS, executions=2_000, unified_ms=NOW_MS - 90 * DAY_MS))
    answer, _ = asked(account, "futures_linear", "ledger", start_time=began_ms)
    covered = coverage_of(answer)
    for kind in ("futures_linear", "ledger"):
        assert covered[kind]["reason"] == "older_not_kept"
        assert covered[kind]["from"] >= NOW_MS - 180 * DAY_MS
    assert natives(answer, "futures_linear", *FILLS) == fills_of(account, "linear")


@pytest.mark.parametrize(
    ("path", "code"), each_once([*FORMER_PATHS, CONTRACT_LEDGER], [404, 10017, 100028])
)
def test_a_path_of_another_kind_of_account_is_not_a_failure(path: str, code: int) -> None:
    """Bybit refuses paths of modes that an account was never in; that must not be `partial`
    for ever.
    """

    def refuse(query: Any, key: Any) -> Any:
        if code == 404:
            raise LookupError(path)
        raise AccountRefused(code, "no")

    def refusing(exchange: Any) -> None:
        exchange._answers[path] = refuse

    answer, requests = asked(NEVER, "spot_orders", "futures", "ledger", prepare=refusing)
    whole = asked_without_refusals()
    assert (answer["partial"], answer["errors"]) == (False, [])
    assert answer["coverage"] == whole["coverage"]
    assert answer["transactions"] == whole["transactions"]
    assert requests.get(path, 0) <= 12  # once for each source, not once for each window


@pytest.mark.parametrize(("path", "code"), each_once(FORMER_PATHS, [10005, 10020, 182200]))
def test_a_refusal_is_never_taken_for_completeness(path: str, code: int) -> None:
    def refuse(query: Any, key: Any) -> Any:
        raise AccountRefused(code, "no")

    def refusing(exchange: Any) -> None:
        exchange._answers[path] = refuse

    answer, _ = asked(
        UPGRADED, "spot_orders", "futures_linear", "ledger", prepare=refusing, limit=9_999
    )
    assert answer["partial"] is True
    errors = {error["transaction_type"]: error for error in answer["errors"]}
    assert errors
    for kind, error in errors.items():
        covered = coverage_of(answer)[kind]
        assert (covered["complete"], covered["reason"]) == (False, error["error"])
        assert error["exchange_code"] == code
        assert error["error"] == ("permission_denied" if code == 10005 else "exchange_error")


@pytest.mark.parametrize("kind", ["ledger", "trades", "futures", "spot_orders"])
def test_what_is_not_asked_does_not_make_failure_a_success(kind: str) -> None:
    def refuse(query: Any, key: Any) -> Any:
        raise AccountRefused(10005, "no")

    def refusing(exchange: Any) -> None:
        exchange._answers |= dict.fromkeys(LISTINGS, refuse)

    with pytest.raises(ExchangeFailed):
        asked(UPGRADED, kind, prepare=refusing)


def test_a_mode_that_cannot_be_read_fails_what_depends_on_it() -> None:
    def strange(exchange: Any) -> None:
        exchange._answers["/v5/account/info"] = lambda q, k: {}

    answer, _ = asked(UPGRADED, "futures_linear", "deposits", prepare=strange)
    covered = coverage_of(answer)
    assert covered["futures_linear"]["reason"] == "unreadable_answer"
    assert covered["deposits"]["complete"]
    assert [r for r in answer["transactions"] if r["type"] == "futures_linear"]


@pytest.mark.parametrize("limit", [150, pytest.param(1_000, marks=pytest.mark.soak)])
def test_pages_along_the_cursor_are_the_whole_and_keep_their_marks(limit: int) -> None:
    types = ("trades", "futures", "ledger")
    whole, _ = asked(UPGRADED, *types)

    async def work() -> list[Answer]:
        async with World(simulated(UPGRADED)) as world:
            return await world.pages(*types, start_time=FROM_MS, end_time=NOW_MS, limit=limit)

    pages = run(work())
    assert [r for page in pages for r in page["transactions"]] == whole["transactions"]
    last = coverage_of(pages[-1])
    assert (last["ledger"]["complete"], last["ledger"]["reason"]) == (False, "older_not_kept")
    assert last["ledger"]["from"] == coverage_of(whole)["ledger"]["from"]
    assert last["futures_linear"]["complete"]
    assert last["spot_orders"]["complete"]


def test_nothing_is_lost_while_everything_goes_wrong() -> None:
    kinds = ("10000", "10016", "10006", "429", "502", "truncated", "reset", "string_ext")
    types = ("spot_orders", "futures", "ledger")
    calm, _ = asked(UTA_1, *types)
    stormy, _ = asked(UTA_1, *types, faults=AccountFaults(rate=0.03, kinds=kinds, seed=8))
    assert stormy["transactions"] == calm["transactions"]
    assert stormy["coverage"] == calm["coverage"]


@settings(max_examples=settings.default.max_examples // 8)
@given(st.lists(st.integers(1, 45), min_size=2, max_size=2).map(sorted))
def test_whenever_it_changed_every_event_is_read_once(days: list[int]) -> None:
    """The days of both upgrades, in both kinds of account; the last is after today."""
    began_ms = NOW_MS - 40 * DAY_MS
    unified_ms, merged_ms = (began_ms + day * DAY_MS + 12_345 for day in days)
    account = Account(
        History(
            began_ms, NOW_MS, executions=560, deposits=4, withdrawals=0, transfers=4,
            unified_ms=min(unified_ms, NOW_MS), merged_ms=merged_ms,
        )
    )  # fmt: skip
    answer, _ = asked(account, "futures", "spot_orders", start_time=began_ms)
    ids = [record["transactionId"] for record in answer["transactions"]]
    assert len(ids) == len(set(ids))
    times = [record["timestamp"] for record in answer["transactions"]]
    assert all(newer >= older for newer, older in pairwise(times))
    for category in ("linear", "inverse"):
        kind = f"futures_{category}"
        found = natives(answer, kind, *FILLS)
        assert found == fills_of(account, category)
        assert natives(answer, kind, "closed_pnl") == closed_of(account, category)
    assert answer["errors"] == []
