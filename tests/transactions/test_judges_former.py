"""pybit and ccxt read the history before an upgrade; their ids and ours agree."""

from collections.abc import Iterator
from typing import Any

import pytest

from transactions.test_judges import DAYS, Record, Site, all_rows, fetched, once

UPGRADES = {"UTA 1.0": {"unified_ms": 7, "merged_ms": DAYS + 1},
            "UTA 2.0": {"unified_ms": 5, "merged_ms": 11}}  # fmt: skip
SYMBOLS = {"linear": ("BTCUSDT", "ETHUSDT", "BTCPERP"), "inverse": ("BTCUSD",)}


@pytest.fixture(scope="module", params=UPGRADES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with Site(**UPGRADES[request.param]) as site:
        yield site


@pytest.fixture(scope="module")
def ours(site: Site) -> list[Record]:
    return fetched(site)


@pytest.fixture
def pybit(site: Site) -> Iterator[Any]:
    session = site.pybit()
    yield session
    session.client.close()


def whole(ask: Any, **fields: Any) -> list[Record]:
    """Every row of a list without time parameters."""
    rows: list[Record] = []
    cursor = ""
    while True:
        result = ask(**fields, cursor=cursor)["result"]
        rows += result["list"]
        cursor = result["nextPageCursor"]
        if not cursor:
            return rows


@pytest.mark.parametrize("category", ["linear", "inverse"])
def test_fills(site: Site, pybit: Any, ours: list[Record], category: str) -> None:
    before = all_rows(site, pybit.get_pre_upgrade_trade_history, category=category, limit=100)
    after = all_rows(site, pybit.get_executions, category=category, limit=100)
    kind = f"futures_{category}"
    mine = [r["raw"]["execId"] for r in ours if r["type"] == kind and "execId" in r["raw"]]
    assert before
    assert once(before + after, "execId") == set(mine)
    assert len(mine) == len(set(mine))


@pytest.mark.parametrize("category", ["linear", "inverse"])
def test_closed_positions(site: Site, pybit: Any, ours: list[Record], category: str) -> None:
    ask = pybit.get_pre_upgrade_closed_pnl
    rows = [
        row
        for symbol in SYMBOLS[category]
        for row in all_rows(site, ask, category=category, symbol=symbol, limit=100)
    ]
    rows += all_rows(site, pybit.get_closed_pnl, category=category, limit=100)
    mine = {
        (r["raw"]["orderId"], r["raw"]["closedPnl"])
        for r in ours
        if r["kind"] == "closed_pnl" and r["type"] == f"futures_{category}"
    }
    # Ours are by the time they closed at; the one or other is newer than what we asked for.
    assert {(row["orderId"], row["closedPnl"]) for row in rows} == mine


def test_spot_fills(site: Site, pybit: Any, ours: list[Record]) -> None:
    before = all_rows(site, pybit.get_pre_upgrade_trade_history, category="spot", limit=100)
    after = all_rows(site, pybit.get_executions, category="spot", limit=100)
    assert before
    found = {
        r["raw"]["execId"] for r in ours if r["type"] == "spot_orders" and r["kind"] == "trade"
    }
    assert once(before + after, "execId") == found


def test_spot_orders(site: Site, pybit: Any, ours: list[Record]) -> None:
    before = all_rows(site, pybit.get_pre_upgrade_order_history, category="spot", limit=50)
    after = all_rows(site, pybit.get_order_history, category="spot", limit=50)
    assert before
    assert once(before + after, "orderId") == {
        r["raw"]["orderId"] for r in ours if r["kind"] == "order"
    }


def test_sessions(site: Site, pybit: Any, ours: list[Record]) -> None:
    before = whole(pybit.get_pre_upgrade_usdc_session_settlement, category="linear")
    after = all_rows(site, pybit.get_usdc_contract_settlement, category="linear", limit=50)
    assert before
    mine = [r["raw"]["createdTime"] for r in ours if "sessionAvgPrice" in r["raw"]]
    assert sorted(mine) == sorted(row["createdTime"] for row in before + after)


def test_the_books(site: Site, pybit: Any, ours: list[Record]) -> None:
    ask = pybit.get_pre_upgrade_transaction_log
    usdc = [
        row
        for category in ("linear", "option")
        for row in all_rows(site, ask, category=category, limit=50)
    ]
    mine = [r["raw"] for r in ours if r["account"] and r["account"]["wallet"] == "OPTION"
            and r["type"] == "ledger"]  # fmt: skip
    assert {str(row) for row in usdc} == {str(row) for row in mine} != set()
    if site.account.status == 3:
        contracts = all_rows(site, pybit.get_contract_transaction_log, limit=50)
        assert once(contracts, "id") == {
            r["raw"]["id"] for r in ours
            if r["type"] == "ledger" and r["account"]["wallet"] == "CONTRACT"
        } != set()  # fmt: skip


def test_options_have_no_deliveries_here(pybit: Any) -> None:
    assert whole(pybit.get_pre_upgrade_option_delivery_record, category="option") == []


def test_ccxt_reads_the_inverse_book_of_uta_1(site: Site, ours: list[Record]) -> None:
    if site.account.status != 3:
        pytest.skip("in UTA 2.0 there is none")
    other = site.ccxt()
    other.load_markets()
    found: set[str] = set()
    for start_ms, end_ms in site.windows(86_400_000 // 4):
        params = {"subType": "inverse", "endTime": end_ms}
        found |= {entry["id"] for entry in other.fetch_ledger(None, start_ms, 50, params)}
    other.session.close()
    assert found == {
        r["ids"]["native"] for r in ours
        if r["type"] == "ledger" and r["account"]["wallet"] == "CONTRACT"
    } != set()  # fmt: skip
