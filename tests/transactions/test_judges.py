"""Third-party clients read the simulated Bybit; their records and ours agree id by id.

pybit is Bybit's own SDK, ccxt the most used library. Both are unchanged but for the address. Where
ccxt is known to lose or change something, the difference is named here, and must be exactly that.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pytest
from msgspec import json

from onebook.config import AccountUrls, TransactionSettings
from onebook.model import DAY_MS
from onebook.simulator.accounts.bybit import (
    Account,
    History,
    SimulatedBybit,
    SimulatedKey,
)
from onebook.transactions.bybit import BYBIT
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from onebook.transactions.exchange import ExchangeAdapter
from onebook.transactions.request import TransactionsRequest
from onebook.transactions.service import Transactions
from transactions.bybit_support import KEY, MASTER_KEY, MemoryStore, Served

unified_trading = pytest.importorskip("pybit.unified_trading", reason="pybit is not installed")
exceptions = pytest.importorskip("pybit.exceptions")
ccxt = pytest.importorskip("ccxt", reason="ccxt is not installed")

DAYS = 18
WINDOW_MS = 6 * DAY_MS
TYPES = (
    "holdings", "deposits", "withdrawals", "spot_orders", "futures", "ledger", "transfers",
)  # fmt: skip
SYMBOLS = {
    "spot": ("BTC/USDT", "ETH/USDT", "ETH/BTC", "XRP/USDT"),
    "linear": ("BTC/USDT:USDT", "ETH/USDT:USDT", "BTC/USDC:USDC"),
    "inverse": ("BTC/USD:BTC",),
}
Record = dict[str, Any]


class Site:
    """The simulated exchange on a loopback port, and its account."""

    def __init__(self, **changes: int) -> None:
        """`changes`: days after the account's start at which its mode changed."""
        self.now_ms = time.time_ns() // 1_000_000_000 * 1_000  # some rows know seconds only
        self.from_ms = self.now_ms - DAYS * DAY_MS
        modes = {name: self.from_ms + days * DAY_MS for name, days in changes.items()}
        history = History(self.from_ms, self.now_ms - 60_000, executions=450, seed=4, **modes)
        self.account = Account(history)
        # Limits have tests of their own; here they would only take time.
        self.exchange = SimulatedBybit(self.account, [KEY], limited=False)
        self._served = Served(self.exchange)
        self.url = ""

    def __enter__(self) -> "Site":
        self.url = self._served.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._served.__exit__(*error)

    def windows(self, length_ms: int = WINDOW_MS) -> Iterator[tuple[int, int]]:
        for start in range(self.from_ms, self.now_ms, length_ms):
            yield start, min(self.now_ms, start + length_ms) - 1

    def pybit(self, key: SimulatedKey = KEY) -> Any:
        session = unified_trading.HTTP(api_key=key.api_key, api_secret=key.secret)
        session.endpoint = self.url
        return session

    def ccxt(self, key: SimulatedKey = KEY) -> Any:
        # Its own throttle is far below Bybit's limits, and would only make this slow.
        options = {"apiKey": key.api_key, "secret": key.secret, "enableRateLimit": False}
        exchange = ccxt.bybit(options)
        exchange.urls["api"] = dict.fromkeys(exchange.urls["api"], self.url)
        return exchange


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture(scope="module")
def pybit(site: Site) -> Iterator[Any]:
    session = site.pybit()
    yield session
    session.client.close()


@pytest.fixture(scope="module")
def other(site: Site) -> Iterator[Any]:
    exchange = site.ccxt()
    exchange.load_markets()
    yield exchange
    exchange.session.close()


@pytest.fixture(scope="module")
def ours(site: Site) -> list[Record]:
    """The service's records of the same account, over the same wire."""
    return fetched(site)


def fetched(site: Site) -> list[Record]:
    """Every record of the service, with its source row."""

    async def fetch() -> list[Record]:
        vault = Vault(MemoryStore(), MasterKeys(None, value=MASTER_KEY))
        credentials = Credentials(KEY.api_key, KEY.secret)
        await vault.put("bybit", "mainnet", credentials, now_ms=site.now_ms)
        service = Transactions(
            [
                ExchangeAdapter(
                    BYBIT,
                    TransactionSettings(
                        overrides={"bybit": AccountUrls(mainnet_url=site.url, testnet_url=site.url)}
                    ),
                )
            ],
            vault,
            cursor_secret=b"secret",
        )
        ask = TransactionsRequest(
            exchange="bybit",
            transaction_types=TYPES,
            start_time=site.from_ms,
            end_time=site.now_ms - 1,
            include_raw=True,
        )
        query = service.plan(ask, key_id="judge", streamed=True)
        lines = [line async for line in service.stream(query, key_id="judge")]
        await service.close()
        *records, summary = b"".join(lines).splitlines()
        assert json.decode(summary)["partial"] is False
        return [json.decode(record) for record in records]

    return asyncio.run(fetch())


def raw(ours: list[Record], kind: str, name: str) -> set[str]:
    """The native ids of our records of a kind, from their source rows."""
    found = [r["raw"][name] for r in ours if r["type"] == kind and name in r["raw"]]
    assert len(found) == len(set(found))
    return set(found)


def all_rows(site: Site, ask: Callable[..., Any], key: str = "list", **fields: Any) -> list[Record]:
    """Every row that pybit reads along windows and cursors."""
    rows: list[Record] = []
    start_name, end_name = fields.pop("times", ("startTime", "endTime"))
    unit_ms = fields.pop("unit_ms", 1)
    for start_ms, end_ms in site.windows():
        cursor = ""
        while True:
            times = {start_name: start_ms // unit_ms, end_name: end_ms // unit_ms}
            result = ask(**fields, **times, cursor=cursor)["result"]
            rows += result[key]
            cursor = result["nextPageCursor"]
            if not cursor:
                break
    return rows


def once(rows: list[Record], name: str) -> set[str]:
    found = [row[name] for row in rows]
    assert len(found) == len(set(found))
    return set(found)


class TestPybit:
    """Bybit's own SDK and the service see the same records."""

    @pytest.mark.parametrize(
        ("category", "kind"),
        [("spot", "spot_orders"), ("linear", "futures_linear"), ("inverse", "futures_inverse")],
    )
    def test_executions(
        self, site: Site, pybit: Any, ours: list[Record], category: str, kind: str
    ) -> None:
        rows = all_rows(site, pybit.get_executions, category=category, limit=100)
        assert once(rows, "execId") == raw(ours, kind, "execId") != set()

    def test_orders(self, site: Site, pybit: Any, ours: list[Record]) -> None:
        rows = all_rows(site, pybit.get_order_history, category="spot", limit=50)
        found = [r["raw"]["orderId"] for r in ours if r["kind"] == "order"]
        assert once(rows, "orderId") == set(found)

    @pytest.mark.parametrize("category", ["linear", "inverse"])
    def test_closed_positions(
        self, site: Site, pybit: Any, ours: list[Record], category: str
    ) -> None:
        rows = all_rows(site, pybit.get_closed_pnl, category=category, limit=100)
        found = [r["raw"]["closedPnl"] for r in ours if "closedPnl" in r["raw"]]
        mine = {r["raw"]["orderId"] for r in ours if r["kind"] == "closed_pnl"}
        assert {row["orderId"] for row in rows} <= mine
        assert {row["closedPnl"] for row in rows} <= set(found)

    def test_deposits(self, site: Site, pybit: Any, ours: list[Record]) -> None:
        rows = all_rows(site, pybit.get_deposit_records, "rows", limit=50)
        internal = all_rows(site, pybit.get_internal_deposit_records, "rows", limit=50)
        # One credited after the range is in the list by creation, and newer than what we asked.
        due = [r for r in rows if not r["successAt"] or int(r["successAt"]) < site.now_ms]
        assert once(due + internal, "id") == raw(ours, "deposits", "id") != set()

    def test_withdrawals(self, site: Site, pybit: Any, ours: list[Record]) -> None:
        rows = all_rows(site, pybit.get_withdrawal_records, "rows", withdrawType=2, limit=50)
        assert once(rows, "withdrawId") == raw(ours, "withdrawals", "withdrawId") != set()

    def test_ledger(self, site: Site, pybit: Any, ours: list[Record]) -> None:
        rows = all_rows(site, pybit.get_transaction_log, accountType="UNIFIED", limit=50)
        assert once(rows, "id") == raw(ours, "ledger", "id") != set()

    def test_funding_wallet(self, site: Site, pybit: Any, ours: list[Record]) -> None:
        rows = all_rows(
            site,
            pybit.get_funding_acc_history,
            limit=100,
            times=("createTimeFrom", "createTimeTo"),
            unit_ms=1_000,
        )
        mine = [r for r in ours if r["type"] == "ledger" and "afterAmt" in r["raw"]]
        # Windows of whole seconds share their border here; ours do not.
        assert {str(row) for row in rows} == {str(record["raw"]) for record in mine}

    def test_transfers(self, site: Site, pybit: Any, ours: list[Record]) -> None:
        rows = all_rows(site, pybit.get_internal_transfer_records, limit=50)
        rows += all_rows(site, pybit.get_universal_transfer_records, limit=50)
        assert once(rows, "transferId") == raw(ours, "transfers", "transferId") != set()

    def test_holdings(self, pybit: Any, ours: list[Record]) -> None:
        (wallet,) = pybit.get_wallet_balance(accountType="UNIFIED")["result"]["list"]
        fund = pybit.get_coins_balance(accountType="FUND")["result"]["balance"]
        expected = {("UNIFIED", coin["coin"], coin["walletBalance"]) for coin in wallet["coin"]}
        expected |= {("FUND", c["coin"], c["walletBalance"]) for c in fund if c["coin"] != "EUR"}
        mine = [r for r in ours if r["type"] == "holdings"]
        assert {(r["account"]["wallet"], r["asset"], r["balance"]["total"]) for r in mine} == (
            expected
        )

    def test_limits_are_waited_for(self, site: Site, pybit: Any) -> None:
        """10006 twice, then the answer: three requests."""
        path = "/v5/execution/list"
        site.exchange.faults.queue(path, "10006", "10006")
        before = site.exchange.requests[path]
        assert pybit.get_executions(category="spot")["retCode"] == 0
        assert site.exchange.requests[path] - before == 3

    def test_a_clock_behind_grows_the_window_and_one_ahead_never_passes(self, site: Site) -> None:
        account = Account(History(site.from_ms, site.now_ms, executions=10))
        for ahead_ms, passes, requests in ((6_000, True, 2), (-1_500, False, 3)):
            exchange = SimulatedBybit(
                account, [KEY], now_ms=lambda ahead=ahead_ms: time.time_ns() // 1_000_000 + ahead
            )
            with Served(exchange) as url:
                session = unified_trading.HTTP(api_key=KEY.api_key, api_secret=KEY.secret)
                session.endpoint = url
                session.retry_delay = 0
                try:
                    session.get_account_info()
                    found = True
                except exceptions.FailedRequestError:
                    found = False
                session.client.close()
            assert found is passes
            assert exchange.requests["/v5/account/info"] == requests

    def test_a_wrong_key(self, site: Site) -> None:
        session = site.pybit(SimulatedKey("nobody00000000000000", "x"))
        with pytest.raises(exceptions.InvalidRequestError) as caught:
            session.get_account_info()
        assert caught.value.status_code == 10003
        session.client.close()


class TestCcxt:
    """The most popular library, with its known omissions."""

    @pytest.mark.parametrize(
        ("category", "kind"),
        [("spot", "spot_orders"), ("linear", "futures_linear"), ("inverse", "futures_inverse")],
    )
    def test_trades(
        self, site: Site, other: Any, ours: list[Record], category: str, kind: str
    ) -> None:
        found: set[str] = set()
        for symbol in SYMBOLS[category]:
            for start_ms, end_ms in site.windows():
                params = {"until": end_ms, "paginate": False}
                trades = other.fetch_my_trades(symbol, start_ms, 100, params)
                found |= {trade["id"] for trade in trades}
        mine = [r for r in ours if r["type"] == kind and "execId" in r["raw"]]
        # ccxt asks for execType Trade alone: liquidations and funding are not in its list.
        trades_only = {r["ids"]["trade_id"] for r in mine if r["native_type"] == "Trade"}
        assert found == trades_only != set()

    def test_closed_orders(self, site: Site, other: Any, ours: list[Record]) -> None:
        found: set[str] = set()
        for symbol in SYMBOLS["spot"]:
            for start_ms, end_ms in site.windows():
                orders = other.fetch_closed_orders(symbol, start_ms, 50, {"until": end_ms})
                found |= {order["id"] for order in orders}
        mine = {r["ids"]["order_id"] for r in ours if r["native_status"] == "Filled"}
        # ccxt's closed orders are the filled ones: what was cancelled after fills is not there.
        assert found == mine != set()

    def test_deposits(self, site: Site, other: Any, ours: list[Record]) -> None:
        found: set[str] = set()
        for start_ms, end_ms in site.windows():
            deposits = other.fetch_deposits(None, start_ms, 50, {"until": end_ms})
            found |= {deposit["id"] for deposit in deposits}
        mine = [r for r in ours if r["type"] == "deposits" and r["chain"]]
        # ccxt does not know deposits from other users. It asks by creation and then cuts by the
        # time of crediting: a deposit whose two times are in different windows is lost.
        assert found <= {r["ids"]["native"] for r in mine} != set()
        created = {str(entry.seq): entry.at_ms for entry in site.account.deposits.entries}
        for record in mine:
            name, credited_ms = record["ids"]["native"], record["timestamp"]
            if name not in found:
                windows = {(at - site.from_ms) // WINDOW_MS for at in (created[name], credited_ms)}
                assert len(windows) == 2 or record["status"] == "pending"

    def test_withdrawals(self, site: Site, other: Any, ours: list[Record]) -> None:
        found: dict[str, Any] = {}
        for start_ms, end_ms in site.windows():
            withdrawals = other.fetch_withdrawals(None, start_ms, 50, {"until": end_ms})
            found |= {one["id"]: one for one in withdrawals}
        mine = {r["ids"]["native"]: r for r in ours if r["type"] == "withdrawals"}
        # ccxt does not ask for withdrawals to other users (withdrawType 2): they are lost.
        assert set(found) == {key for key, r in mine.items() if r["native_type"] == "0"} != set()
        for key, one in found.items():
            assert Decimal(str(one["amount"])) == Decimal(mine[key]["amount"])

    def test_ledger(self, site: Site, other: Any, ours: list[Record]) -> None:
        found: dict[str, Any] = {}
        for start_ms, end_ms in site.windows(DAY_MS // 2):
            entries = other.fetch_ledger(None, start_ms, 50, {"until": end_ms, "endTime": end_ms})
            found |= {entry["id"]: entry for entry in entries}
        mine = {r["ids"]["native"]: r for r in ours if "cashBalance" in r["raw"]}
        assert set(found) == set(mine) != set()
        for key, entry in found.items():
            record = mine[key]
            assert entry["amount"] == pytest.approx(float(record["amount"]))
            assert entry["after"] == pytest.approx(float(record["balance"]["after"]))
            # ccxt's `before` is wrong for outflows: it takes the change off once more.
            before = float(record["balance"]["before"])
            wrong = 2 * float(record["balance"]["after"]) - before
            expected = wrong if record["direction"] == "out" else before
            assert entry["before"] == pytest.approx(expected)

    def test_transfers(self, site: Site, other: Any, ours: list[Record]) -> None:
        found: set[str] = set()
        for start_ms, end_ms in site.windows():
            transfers = other.fetch_transfers(None, start_ms, 50, {"until": end_ms})
            found |= {transfer["id"] for transfer in transfers}
        mine = [r for r in ours if r["type"] == "transfers"]
        # ccxt asks for transfers between own wallets only.
        assert found == {r["ids"]["native"] for r in mine if r["native_type"] == "internal"}

    def test_funding(self, site: Site, other: Any, ours: list[Record]) -> None:
        found: dict[str, Any] = {}
        for symbol in (*SYMBOLS["linear"], *SYMBOLS["inverse"]):
            for start_ms, end_ms in site.windows(DAY_MS):
                params = {"until": end_ms, "endTime": end_ms}
                paid = other.fetch_funding_history(symbol, start_ms, 100, params)
                found |= {payment["id"]: payment for payment in paid}
        mine = {
            r["ids"]["native"]: r for r in ours if r["kind"] == "funding" and r["raw"].get("execId")
        }
        assert set(found) == set(mine) != set()
        for key, payment in found.items():
            # ccxt hands execFee on as it is: positive was paid. Ours is from the account's side.
            assert payment["amount"] == pytest.approx(-float(mine[key]["position"]["funding"]))

    def test_holdings(self, other: Any, ours: list[Record]) -> None:
        for wallet, params in (("UNIFIED", {}), ("FUND", {"type": "funding"})):
            total = other.fetch_balance(params)["total"]
            mine = [r for r in ours if r["type"] == "holdings"]
            held = {r["asset"]: r for r in mine if r["account"]["wallet"] == wallet}
            assert {coin for coin, amount in total.items() if amount} == set(held)
            for coin, record in held.items():
                assert total[coin] == pytest.approx(float(record["balance"]["total"]))

    def test_errors_are_what_it_expects(self, site: Site, other: Any) -> None:
        site.exchange.faults.queue("/v5/asset/deposit/query-record", "10006")
        with pytest.raises(ccxt.RateLimitExceeded):
            other.fetch_deposits()
        stranger = site.ccxt(SimulatedKey("nobody00000000000000", "x"))
        stranger.options["enableUnifiedAccount"] = True
        with pytest.raises(ccxt.AuthenticationError):
            stranger.fetch_deposits()
        stranger.session.close()

    def test_its_own_pagination_reads_the_cursors(
        self, site: Site, other: Any, ours: list[Record]
    ) -> None:
        params = {"paginate": True, "until": site.now_ms - 1}
        since_ms = site.now_ms - WINDOW_MS
        mine = {
            r["ids"]["trade_id"]
            for r in ours
            if r["type"] == "spot_orders" and r["ids"]["trade_id"] and r["timestamp"] >= since_ms
            and r["instrument"]["symbol"] == "BTCUSDT" and r["native_type"] == "Trade"
        }  # fmt: skip
        trades = other.fetch_my_trades("BTC/USDT", since_ms, 100, params)
        assert {trade["id"] for trade in trades} == mine != set()
        # Its `limit` ends the whole pagination: with a small one the rest is lost in silence.
        few = other.fetch_my_trades("BTC/USDT", since_ms, 5, params)
        assert len(few) == 5
        assert {trade["id"] for trade in few} < mine
