"""Third-party clients read the simulated Kraken account, and get its true history.

python-kraken-sdk signs and pages as Kraken's documentation says, ccxt is the most used library.
Both are unchanged but for the address.
"""

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from onebook.simulator.accounts.history import shown
from onebook.simulator.accounts.kraken.facts import SPOT
from onebook.simulator.accounts.kraken.names import ASSETS, MS_TICKS, id_of
from onebook.simulator.accounts.kraken.server import consolidated
from simulator.accounts.kraken_client import (
    ACCOUNT,
    FUTURES_KEY,
    KEY,
    futures,
    spot,
)
from transactions.bybit_support import Served

ccxt = pytest.importorskip("ccxt", reason="ccxt is not installed")

LEDGER = list(ACCOUNT.ledger())
LOG = list(ACCOUNT.rows("log"))
HELD = {place: Decimal(shown(n)) for place, n in ACCOUNT.balances().items()}
# ccxt's codes of our asset ids, where they differ.
CODES = {"XXBT": "BTC", "XETH": "ETH", "XXRP": "XRP", "XXDG": "DOGE", "XXLM": "XLM",
         "ZEUR": "EUR", "ZUSD": "USD", "ZGBP": "GBP", "XREP": "REPV1", "XICN": "XICN"}  # fmt: skip
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def spot_url() -> Iterator[str]:
    # Limits have tests of their own; here they would only take time.
    with Served(spot(limited=False)) as url:
        yield url


@pytest.fixture(scope="module")
def futures_url() -> Iterator[str]:
    with Served(futures(limited=False)) as url:
        yield url


@pytest.fixture(scope="module")
def other() -> Iterator[Any]:
    # The SDK's nonces count 10^-8 s, so ccxt needs an exchange that never saw them.
    with Served(spot(limited=False)) as url:
        options = {"apiKey": KEY.api_key, "secret": KEY.secret, "enableRateLimit": False}
        exchange = ccxt.kraken(options)
        exchange.urls["api"] = dict.fromkeys(exchange.urls["api"], url)
        exchange.load_markets()
        yield exchange
        exchange.session.close()


@pytest.fixture(scope="module")
def other_futures(futures_url: str) -> Iterator[Any]:
    exchange = ccxt.krakenfutures(
        {"apiKey": FUTURES_KEY.api_key, "secret": FUTURES_KEY.secret, "enableRateLimit": False}
    )
    paths = {"public": "/derivatives/api/", "private": "/derivatives/api/",
             "history": "/api/history/"}  # fmt: skip
    exchange.urls["api"] |= {name: futures_url + path for name, path in paths.items()}
    exchange.load_markets()
    yield exchange
    exchange.session.close()


def walked(ask: Any, rows: str, **fields: Any) -> dict[str, Any]:
    """Every row along the offsets of a list."""
    found: dict[str, Any] = {}
    while True:
        page = ask(ofs=len(found), **fields)[rows]
        found |= page
        if len(page) < 50:
            return found


class TestKrakenSdk:
    """python-kraken-sdk."""

    @pytest.fixture
    def user(self, spot_url: str) -> Iterator[Any]:
        client = pytest.importorskip("kraken.spot", reason="python-kraken-sdk is not installed")
        with client.User(key=KEY.api_key, secret=KEY.secret, url=spot_url) as user:
            yield user
            user.session.close() if hasattr(user, "session") else None

    def test_ledger(self, user: Any) -> None:
        found = walked(user.get_ledgers_info, "ledger")
        assert found.keys() == {id_of("L", row.seq) for row in LEDGER}
        gained: Counter[str] = Counter()
        for row in found.values():
            gained[row["asset"]] += Decimal(row["amount"]) - Decimal(row["fee"])
        balances = user.get_account_balance()
        assert {name: n for name, n in gained.items() if n} == {
            name: Decimal(text) for name, text in balances.items()
        }

    def test_ledger_by_id_and_range(self, user: Any) -> None:
        names = [id_of("L", row.seq) for row in LEDGER[50:60]]
        assert user.get_ledgers(id_=names).keys() == set(names)
        start, end = LEDGER[100], LEDGER[200]
        found = user.get_ledgers_info(start=start.time // 10**7, end=end.time // 10**7)
        expected = sum(start.time // 10**7 * 10**7 < row.time <= end.time // 10**7 * 10**7
                       for row in LEDGER)  # fmt: skip
        assert found["count"] == expected

    def test_trades(self, user: Any) -> None:
        found = walked(user.get_trades_history, "trades", consolidate_taker=False)
        assert found.keys() == {id_of("T", row.seq) for row in ACCOUNT.rows("trades")}

    @pytest.mark.filterwarnings("ignore:.*deprecated Kraken endpoint:DeprecationWarning")
    def test_funding(self, user: Any, spot_url: str) -> None:
        client = pytest.importorskip("kraken.spot")
        funding = client.Funding(key=KEY.api_key, secret=KEY.secret, url=spot_url)
        deposits = funding.get_recent_deposits_status()
        assert len(deposits) == 25
        found: Rows = []
        cursor: Any = True
        while cursor:
            page = funding.get_recent_deposits_status(cursor=cursor)
            found += page["deposit"]
            cursor = page["next_cursor"]
        assert {row["refid"] for row in found} == {
            each.refid for each in ACCOUNT.movements if each.incoming
        }
        withdrawals = funding.get_recent_withdraw_status()
        assert {row["refid"] for row in withdrawals} == {
            each.refid for each in ACCOUNT.movements if not each.incoming
        }

    def test_futures(self, futures_url: str) -> None:
        client = pytest.importorskip("kraken.futures", reason="python-kraken-sdk is not installed")
        user = client.User(key=FUTURES_KEY.api_key, secret=FUTURES_KEY.secret, url=futures_url)
        rows: Rows = []
        while True:
            page = user.get_account_log(from_=len(rows) + 1, sort="asc", count=300)["logs"]
            rows += page
            if len(page) < 300:
                break
        assert [row["id"] for row in rows] == [row.seq for row in LOG]
        wallets = user.get_wallets()["accounts"]
        assert (
            Decimal(str(wallets["flex"]["currencies"]["USDT"]["quantity"])) == HELD["flex", "usdt"]
        )
        assert user.get_execution_events(sort="asc")["elements"]

    def test_errors_are_what_it_expects(self, spot_url: str) -> None:
        client = pytest.importorskip("kraken.spot")
        exceptions = pytest.importorskip("kraken.exceptions")
        user = client.User(key=KEY.api_key, secret="bm8=", url=spot_url)
        with pytest.raises(exceptions.KrakenInvalidSignatureError):
            user.get_account_balance()


class TestCcxt:
    """ccxt, with nonces from its clock, in milliseconds."""

    def test_ledger(self, other: Any) -> None:
        found: dict[str, Any] = {}
        offset = 0
        while True:
            page = other.fetch_ledger(None, None, None, {"ofs": offset})
            found |= {entry["id"]: entry for entry in page}
            offset += len(page)
            if len(page) < 50:
                break
        assert len(found) == len(LEDGER)
        for row in LEDGER:
            entry = found[id_of("L", row.seq)]
            sign = 1 if entry["direction"] == "in" else -1
            assert sign * entry["amount"] == pytest.approx(float(shown(row.amount)))
            assert entry["after"] == pytest.approx(float(shown(row.balance)))
            assert entry["fee"]["cost"] == pytest.approx(float(shown(row.fee)))
            assert abs(entry["timestamp"] - row.time // MS_TICKS) <= 1
            if row.asset in CODES:
                assert entry["currency"] == CODES[row.asset]

    def test_ledger_by_ids(self, other: Any) -> None:
        names = [id_of("L", row.seq) for row in LEDGER[:20]]
        assert {row["id"] for row in other.fetch_ledger_entries_by_ids(names)} == set(names)

    def test_trades(self, other: Any) -> None:
        found: dict[str, Any] = {}
        for offset in range(0, len(list(ACCOUNT.rows("trades"))), 50):
            page = other.fetch_my_trades(None, None, None, {"ofs": offset})
            found |= {trade["id"]: trade for trade in page}
        trades = list(ACCOUNT.rows("trades"))
        # By default the takers of a page are consolidated.
        assert sum(trade["amount"] for trade in found.values()) == pytest.approx(
            sum(row.volume for row in trades) / 10**12
        )
        assert {id_of("T", row.seq) for row in consolidated(trades)} <= found.keys()
        side = Counter(trade["side"] for trade in found.values())
        assert side["buy"] > 100 < side["sell"]

    def test_deposits_and_withdrawals(self, other: Any) -> None:
        deposits = other.fetch_deposits()
        assert len(deposits) == 25
        withdrawals = other.fetch_withdrawals()
        moves = [each for each in ACCOUNT.movements if not each.incoming]
        by_id = {row["id"]: row for row in withdrawals}
        assert by_id.keys() == {each.refid for each in moves}
        for each in moves:
            row = by_id[each.refid]
            assert row["amount"] == pytest.approx(float(shown(each.amount)))
            assert row["fee"]["cost"] == pytest.approx(float(shown(each.fee)))
            assert row["currency"] == CODES.get(each.asset, each.asset)
        assert {row["status"] for row in withdrawals} == {"ok", "failed"}

    def test_balance(self, other: Any) -> None:
        total = other.fetch_balance()["total"]
        for (wallet, asset), held in HELD.items():
            if wallet == SPOT and asset in CODES and held:
                assert total[CODES[asset]] == pytest.approx(float(held))

    def test_errors_are_what_it_expects(self, other: Any) -> None:
        other.apiKey, right = "nobody", other.apiKey
        try:
            with pytest.raises(ccxt.AuthenticationError):
                other.fetch_balance()
        finally:
            other.apiKey = right


class TestCcxtFutures:
    """ccxt's krakenfutures."""

    def test_ledger(self, other_futures: Any) -> None:
        found = {row["id"]: row for row in other_futures.fetch_ledger(None, None, len(LOG) + 10)}
        cash = [row for row in LOG if row.asset != row.contract]
        assert found.keys() == {str(row.seq) for row in cash}
        for row in cash:
            entry = found[str(row.seq)]
            assert entry["before"] == pytest.approx(float(shown(row.old)))
            assert entry["after"] == pytest.approx(float(shown(row.new)))
            gross = row.new - row.old + (row.fee or 0)
            sign = 1 if entry["direction"] == "in" else -1
            assert sign * entry["amount"] == pytest.approx(float(shown(gross)))

    def test_funding(self, other_futures: Any) -> None:
        found = other_futures.fetch_funding_history(None, None, 1_000)
        paid = [row for row in LOG if row.info == "funding rate change"]
        assert len(found) == len(paid)
        assert sum(row["amount"] for row in found) == pytest.approx(
            sum(row.funding or 0 for row in paid) / 10**12
        )

    def test_trades_and_positions(self, other_futures: Any) -> None:
        fills = list(ACCOUNT.rows("fills"))
        assert len(other_futures.fetch_my_trades()) == min(100, len(fills))
        sizes = {row.asset: row.new for row in LOG if row.asset == row.contract}
        open_ids = {asset.upper() for asset, size in sizes.items() if size}
        known = {row["info"]["symbol"] for row in other_futures.fetch_positions()}
        assert known == open_ids

    def test_balance(self, other_futures: Any) -> None:
        flex = other_futures.fetch_balance()["total"]
        for asset, code in (("usd", "USD"), ("usdt", "USDT"), ("xbt", "BTC")):
            assert flex[code] == pytest.approx(float(HELD["flex", asset]))
        cash = other_futures.fetch_balance({"type": "cash"})["total"]
        assert cash["ETH"] == pytest.approx(float(HELD["cash", "eth"]))


def test_every_asset_is_priced_or_a_product() -> None:
    assert {row.asset for row in LEDGER} <= ASSETS.keys()
