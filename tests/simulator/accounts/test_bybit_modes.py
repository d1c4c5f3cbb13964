"""The simulated account in its modes: what is shown where, and that nothing is in two places."""

from collections import defaultdict
from collections.abc import AsyncIterator
from urllib.parse import unquote

import pytest

from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import Account, History
from onebook.simulator.accounts.bybit.facts import MARKETS
from onebook.simulator.accounts.bybit.generator import CONTRACT, SPOT, UNIFIED, USDC
from simulator.accounts.test_bybit_account import NOW_MS, Asker, exchange, window

UNIFIED_MS, MERGED_MS = NOW_MS - 25 * DAY_MS, NOW_MS - 12 * DAY_MS
PAST = History(
    NOW_MS - 40 * DAY_MS, NOW_MS, executions=900, unified_ms=UNIFIED_MS, merged_ms=MERGED_MS
)
UTA_2 = Account(PAST)
UTA_1 = Account(
    History(PAST.from_ms, NOW_MS, executions=900, unified_ms=UNIFIED_MS, merged_ms=NOW_MS + 1)
)


@pytest.fixture(params=[UTA_1, UTA_2], ids=["UTA 1.0", "UTA 2.0"])
async def asker(request: pytest.FixtureRequest) -> AsyncIterator[Asker]:
    asker = Asker(exchange(request.param, limited=False))
    asker.account = request.param
    yield asker
    await asker.http.aclose()


@pytest.mark.parametrize("account", [UTA_1, UTA_2])
def test_the_balances_of_every_wallet_chain(account: Account) -> None:
    for wallet, table in account.books.tables.items():
        balances: dict[str, int] = defaultdict(int)
        assert len(table) > 5
        for entry in table.entries:
            line = entry.facts
            assert line.change == line.cash + (line.funding or 0) - line.fee - line.tax
            balances[line.coin] += line.change
            assert line.balance == balances[line.coin]
        assert balances == account.books.held(wallet)


def test_wallets_that_are_gone_hold_nothing() -> None:
    for wallet in (CONTRACT, SPOT, USDC):
        assert not any(UTA_2.books.held(wallet).values())
    assert UTA_1.books.held(CONTRACT)["BTC"]
    assert not UTA_1.books.held(CONTRACT)["USDT"]


def test_a_mode_has_its_wallets() -> None:
    of = {market.symbol: market for market in MARKETS if market.category != "spot"}
    names = ("BTCUSDT", "BTCPERP", "BTCUSD")
    found = {
        at_ms: [UTA_2.modes.wallet(at_ms, market) for market in (None, *(of[n] for n in names))]
        for at_ms in (UNIFIED_MS - 1, UNIFIED_MS, MERGED_MS - 1, MERGED_MS)
    }
    apart = [UNIFIED, UNIFIED, UNIFIED, CONTRACT]
    assert found == {
        UNIFIED_MS - 1: [SPOT, CONTRACT, USDC, CONTRACT],
        UNIFIED_MS: apart,
        MERGED_MS - 1: apart,
        MERGED_MS: [UNIFIED] * 4,
    }
    assert UTA_2.modes.keeps(CONTRACT, "BTC", MERGED_MS - 1)
    assert not UTA_2.modes.keeps(CONTRACT, "USDT", UNIFIED_MS)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("execution/list", "category=linear"),
        ("execution/list", "category=inverse"),
        ("execution/list", "category=spot"),
        ("order/history", "category=spot"),
        ("order/history", "category=linear"),
        ("position/closed-pnl", "category=linear&symbol=BTCUSDT"),
    ],
)
async def test_what_came_before_is_on_the_former_path_alone(
    asker: Asker, path: str, query: str
) -> None:
    """And later rows only on the usual path."""
    name = {"execution/list": "execTime", "order/history": "createdTime"}.get(path, "updatedTime")
    apart = "inverse" in query and asker.account is UTA_2
    upgraded_ms = MERGED_MS if apart else UNIFIED_MS
    for prefix, former in (("/v5/pre-upgrade/", True), ("/v5/", False)):
        found = []
        for days_ago in range(42, 0, -7):
            found += await asker.all_rows(prefix + path, f"{query}&{window(days_ago)}&limit=50")
        assert found
        assert all((int(row[name]) < upgraded_ms) is former for row in found)


async def test_parameters_that_must_be_there(asker: Asker) -> None:
    closed = await asker.ask("/v5/pre-upgrade/position/closed-pnl", f"category=linear&{window()}")
    assert (closed["retCode"], "symbol" in closed["retMsg"]) == (10001, True)
    strange = await asker.ask("/v5/pre-upgrade/execution/list", f"category=nfts&{window()}")
    assert strange["retCode"] == 181001
    long = await asker.ask("/v5/pre-upgrade/account/transaction-log", window(8, 8))
    assert long["retCode"] == 10001
    old = await asker.ask("/v5/pre-upgrade/execution/list", f"category=linear&{window(740)}")
    assert "2 years" in old["retMsg"]


async def test_cursors_have_bybits_forms(asker: Asker) -> None:
    query = f"category=linear&{window(35)}&limit=5"
    fills = await asker.ask("/v5/pre-upgrade/execution/list", query)
    assert unquote(fills["result"]["nextPageCursor"]).startswith("page_token=")
    again = fills["result"]["nextPageCursor"]
    second = await asker.ask("/v5/pre-upgrade/execution/list", f"{query}&cursor={again}")
    times = [int(row["execTime"]) for part in (fills, second) for row in part["result"]["list"]]
    assert times == sorted(times, reverse=True)
    assert len(times) == 10
    bad = await asker.ask("/v5/pre-upgrade/execution/list", f"{query}&cursor=page_token")
    assert bad["retCode"] == 10001


async def test_the_book_apart_is_there_until_it_is_merged(asker: Asker) -> None:
    answer = await asker.ask("/v5/account/contract-transaction-log", f"{window(21)}&limit=50")
    if asker.account is UTA_2:
        assert answer["retCode"] == 100028
        return
    rows = answer["result"]["list"]
    assert unquote(answer["result"]["nextPageCursor"]).startswith("cursor_id=")
    fundings = [row for row in rows if row["type"] == "SETTLEMENT"]
    assert fundings
    for row in fundings:  # what was paid has a plus
        assert float(row["change"]) == -float(row["funding"])


async def test_the_mode_is_reported(asker: Asker) -> None:
    info = await asker.ask("/v5/account/info")
    expected = 3 if asker.account is UTA_1 else 5
    assert info["result"]["unifiedMarginStatus"] == expected


async def test_rows_from_before_lack_what_they_lacked(asker: Asker) -> None:
    fills = await asker.ask("/v5/pre-upgrade/execution/list", f"category=linear&{window(35)}")
    book = "/v5/pre-upgrade/account/transaction-log"
    lines = await asker.ask(book, f"category=linear&{window(35)}")
    assert (await asker.ask(book, window(35)))["retCode"] == 10001
    orders = await asker.ask("/v5/pre-upgrade/order/history", f"category=spot&{window(35)}")
    assert "feeCurrency" not in fills["result"]["list"][0]
    assert "id" not in lines["result"]["list"][0]
    assert "cumFeeDetail" not in orders["result"]["list"][0]


async def test_sessions_take_no_times_and_end_half_a_year_ago() -> None:
    past = History(
        NOW_MS - 250 * DAY_MS, NOW_MS, executions=2_600, unified_ms=NOW_MS - 100 * DAY_MS
    )
    asker = Asker(exchange(Account(past), limited=False))
    rows = await asker.all_rows("/v5/pre-upgrade/asset/settlement-record", "category=linear")
    times = [int(row["createdTime"]) for row in rows]
    assert max(times) < past.unified_ms
    assert NOW_MS - 180 * DAY_MS <= min(times) < NOW_MS - 170 * DAY_MS
    await asker.http.aclose()
