"""Third-party clients read the simulated OKX account, and get its true history.

ccxt is the most used library, python-okx is OKX's own. Both are unchanged but for the address and
the clock.
"""

import csv
import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import httpx
import pytest

from onebook.simulator.accounts.history import shown
from onebook.simulator.accounts.okx import SimulatedOkxFiles, SimulatedOkxKey
from onebook.simulator.accounts.okx.facts import FUNDING, TRADING
from onebook.simulator.accounts.okx.keys import stamp_of
from onebook.simulator.accounts.okx.names import DECIMALS, funding_bill_id, ms_of, trading_id
from simulator.accounts.okx_client import ACCOUNT, KEY, NOW_MS, SECRET, okx
from transactions.bybit_support import Served

ccxt = pytest.importorskip("ccxt", reason="ccxt is not installed")

BILLS, FUNDS = list(ACCOUNT.bills()), list(ACCOUNT.funding())
Rows = list[dict[str, Any]]


def exact(units: int) -> Decimal:
    return Decimal(shown(units, DECIMALS))


HELD = {place: exact(n) for place, n in ACCOUNT.balances().items()}


@pytest.fixture(scope="module")
def files() -> Iterator[SimulatedOkxFiles]:
    host = SimulatedOkxFiles(ACCOUNT, now_ms=lambda: NOW_MS, making_s=0.0)
    with Served(host) as host.url:
        yield host


@pytest.fixture(scope="module")
def url(files: SimulatedOkxFiles) -> Iterator[str]:
    # Limits and retention have tests of their own; here they would only take time and rows.
    with Served(okx(limited=False, archive_days=9_999, files=files, refresh_s=0.0)) as url:
        yield url


def connected(url: str, **more: str) -> Any:
    """A ccxt client, whose clock stands still."""
    options = {"apiKey": KEY.api_key, "secret": SECRET, "password": KEY.passphrase} | more
    exchange = ccxt.okx(options | {"enableRateLimit": False})
    exchange.urls["api"] = exchange.urls["api"] | {"rest": url}
    exchange.milliseconds = lambda: NOW_MS
    return exchange


@pytest.fixture(scope="module")
def other(url: str) -> Iterator[Any]:
    exchange = connected(url)
    exchange.load_markets()
    yield exchange
    exchange.session.close()


def walked(ask: Callable[..., Any], by: str, **fields: Any) -> Rows:
    """Every row of a list along one of its fields."""
    found: Rows = []
    while True:
        page = ask(**fields, **({"after": found[-1][by]} if found else {}))
        assert page["code"] == "0", page
        found += page["data"]
        if len(page["data"]) < 100:
            return found


class TestCcxt:
    """ccxt."""

    def ledger(self, other: Any) -> Rows:
        """The whole ledger: fetch_ledger requests one type of instruments, and hides the rest."""
        rows = walked(lambda **fields: other.private_get_account_bills_archive(fields), "billId")
        entries: Rows = other.parse_ledger(rows)
        return sorted(entries, key=lambda row: -int(row["id"]))

    def test_ledger(self, other: Any) -> None:
        found = self.ledger(other)
        assert [row["id"] for row in found] == [
            str(trading_id(row.time, row.seq)) for row in reversed(BILLS)
        ]
        gained: Counter[str] = Counter()
        for entry, row in zip(found, reversed(BILLS), strict=True):
            gained[row.ccy] += Decimal(entry["info"]["balChg"])
            assert entry["amount"] == pytest.approx(float(exact(row.change)))
            assert entry["after"] == pytest.approx(float(exact(row.balance)))
            assert entry["currency"] == row.ccy
            assert entry["timestamp"] == row.ts
        assert {ccy: n for ccy, n in gained.items() if n} == {
            ccy: n for (wallet, ccy), n in HELD.items() if wallet == TRADING and n
        }

    def test_ledger_of_each_type_of_instruments(self, other: Any) -> None:
        names = {"spot": "SPOT", "margin": "MARGIN", "swap": "SWAP", "future": "FUTURES",
                 "option": "OPTION"}  # fmt: skip
        found: set[str] = set()
        for kind, name in names.items():
            more: dict[str, str] = {}
            while True:
                query = {"method": "privateGetAccountBillsArchive", "type": kind} | more
                page = other.fetch_ledger(params=query)
                assert {row["info"]["instType"] for row in page} <= {name}
                found |= {row["id"] for row in page}
                if len(page) < 100:
                    break
                more = {"after": min((row["id"] for row in page), key=int)}
        expected = [row for row in BILLS if row.instrument]
        assert found == {str(trading_id(row.time, row.seq)) for row in expected}

    def test_funding_ledger(self, other: Any) -> None:
        found: Rows = []
        while True:
            more = {"after": found[-1]["billId"]} if found else {}
            page = other.private_get_asset_bills_history({"pagingType": "2"} | more)["data"]
            found += page
            if len(page) < 100:
                break
        assert [row["billId"] for row in found] == [
            str(funding_bill_id(row.seq)) for row in reversed(FUNDS)
        ]
        month = other.fetch_ledger(params={"method": "privateGetAssetBills", "instType": ""})
        assert {row["id"] for row in month} < {row["billId"] for row in found}

    def test_trades(self, other: Any) -> None:
        found: Rows = []
        fills = list(ACCOUNT.rows("fills"))
        for kind in ("spot", "margin", "swap", "future", "option"):
            after: dict[str, str] = {}
            while True:
                page = other.fetch_my_trades(params={"type": kind} | after)
                found += page
                if len(page) < 100:
                    break
                after = {"after": min((row["info"]["billId"] for row in page), key=int)}
        assert Counter(row["info"]["billId"] for row in found) == Counter(
            str(trading_id(row.time, row.seq)) for row in fills
        )
        by_id = {row["info"]["billId"]: row for row in found}
        for fill in fills:
            row = by_id[str(trading_id(fill.time, fill.seq))]
            assert (row["side"], row["fee"]["currency"]) == (fill.side, fill.fee_ccy)
            assert row["fee"]["cost"] == pytest.approx(-float(exact(fill.fee)))
            assert row["takerOrMaker"] == {"T": "taker", "M": "maker"}.get(fill.liquidity)

    def test_deposits_and_withdrawals(self, other: Any) -> None:
        deposits = other.fetch_deposits()
        made = {str(4_700_000 + each.seq): each for each in ACCOUNT.lists["deposits"]}
        assert {row["id"] for row in deposits} == made.keys()
        for row in deposits:
            assert row["amount"] == pytest.approx(float(exact(made[row["id"]].amount)))
        assert {row["status"] for row in deposits} >= {"ok"}
        withdrawals = other.fetch_withdrawals()
        asked = {str(15_400_000 + each.seq): each for each in ACCOUNT.lists["withdrawals"]}
        assert {row["id"] for row in withdrawals} == asked.keys()
        for row in withdrawals:
            assert row["amount"] == pytest.approx(float(exact(asked[row["id"]].amount)))
            assert row["currency"] == asked[row["id"]].chain.ccy
        assert {row["status"] for row in withdrawals} == {"ok", "failed", "canceled"}
        since = sorted(each.time for each in made.values())[-10]
        recent = other.fetch_deposits(since=since)
        assert {row["id"] for row in recent} == {
            id_ for id_, each in made.items() if each.time >= since
        }

    def test_transfers(self, other: Any) -> None:
        found = other.fetch_transfers()
        moved = [row for row in BILLS if row.type == "1"][-100:]
        assert {row["id"] for row in found} == {str(trading_id(r.time, r.seq)) for r in moved}
        ways = {(row["fromAccount"], row["toAccount"]) for row in found}
        assert ways == {("funding", "trading"), ("trading", "funding")}

    def test_balances(self, other: Any) -> None:
        trading = other.fetch_balance()
        funding = other.fetch_balance({"type": "funding"})
        for (wallet, ccy), held in HELD.items():
            if held and wallet in (TRADING, FUNDING):
                total = (trading if wallet == TRADING else funding)["total"]
                apart = HELD.get(("isolated", ccy), Decimal()) if wallet == TRADING else 0
                assert total[ccy] == pytest.approx(float(held + apart))

    def test_conversions_orders_and_positions(self, other: Any) -> None:
        found = other.fetch_convert_trade_history()
        assert len(found) == len(ACCOUNT.lists["conversions"])
        orders = other.fetch_closed_orders(params={"method": "privateGetTradeOrdersHistoryArchive"})
        assert {row["status"] for row in orders} == {"closed"}
        closed = other.fetch_positions_history()
        assert {row["info"]["type"] for row in closed} >= {"1", "2"}
        funding = other.fetch_funding_history()
        paid = [row for row in BILLS if row.type == "8"][-100:]
        assert sum(row["amount"] for row in funding) == pytest.approx(
            float(exact(sum(row.change for row in paid)))
        )

    def test_errors_are_what_it_expects(self, url: str) -> None:
        wrong = {
            "secret": ("nothing", ccxt.AuthenticationError),
            "password": ("nothing", ccxt.AuthenticationError),
            "apiKey": ("nothing", ccxt.AuthenticationError),
        }
        for name, (text, error) in wrong.items():
            exchange = connected(url, **{name: text})
            with pytest.raises(error):
                exchange.fetch_accounts()
            exchange.session.close()

    def test_limits_and_sites_are_what_it_expects(self) -> None:
        with Served(okx()) as url:
            exchange = connected(url)
            exchange.private_get_asset_bills_history()
            with pytest.raises(ccxt.RateLimitExceeded):
                exchange.private_get_asset_bills_history()
            exchange.session.close()
        key = SimulatedOkxKey(KEY.api_key, SECRET, KEY.passphrase, region="eea")
        with Served(okx(key=key)) as url:
            exchange = connected(url)
            with pytest.raises(ccxt.ExchangeError, match="50119"):
                exchange.fetch_accounts()
            exchange.session.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
class TestPythonOkx:
    """python-okx."""

    @pytest.fixture
    def made(self, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
        utils = pytest.importorskip("okx.utils", reason="python-okx is not installed")
        monkeypatch.setattr(utils, "get_timestamp", lambda: stamp_of(NOW_MS))
        clients = []

        def make(module: str, kind: str) -> Any:
            found = getattr(pytest.importorskip(f"okx.{module}"), kind)
            client = found(KEY.api_key, SECRET, KEY.passphrase, flag="0", domain=url)
            clients.append(client)
            return client

        yield make
        for client in clients:
            client.close()

    def test_bills(self, made: Any) -> None:
        account = made("Account", "AccountAPI")
        found = walked(account.get_account_bills_archive, "billId")
        assert [row["billId"] for row in found] == [
            str(trading_id(row.time, row.seq)) for row in reversed(BILLS)
        ]
        held = {ccy: Decimal(0) for ccy in {row["ccy"] for row in found}}
        for row in reversed(found):
            held[row["ccy"]] += Decimal(row["balChg"])
            assert Decimal(row["bal"]) == held[row["ccy"]]
        (balance,) = account.get_account_balance()["data"]
        assert {row["ccy"]: Decimal(row["cashBal"]) for row in balance["details"]} == {
            ccy: n for ccy, n in held.items() if n
        }

    def test_funds(self, made: Any) -> None:
        funding = made("Funding", "FundingAPI")
        deposits = walked(funding.get_deposit_history, "ts")
        assert len(deposits) == len(ACCOUNT.lists["deposits"])
        withdrawals = walked(funding.get_withdrawal_history, "ts")
        assert len(withdrawals) == len(ACCOUNT.lists["withdrawals"])
        balances = {row["ccy"]: Decimal(row["bal"]) for row in funding.get_balances()["data"]}
        assert balances == {ccy: n for (wallet, ccy), n in HELD.items() if wallet == FUNDING and n}
        assert walked(funding.get_bills, "ts")

    def test_trades_and_conversions(self, made: Any) -> None:
        trade = made("Trade", "TradeAPI")
        fills = walked(trade.get_fills_history, "billId", instType="SPOT")
        spot = [row for row in ACCOUNT.rows("fills") if row.kind == "SPOT"]
        assert len(fills) == len(spot)
        orders = walked(trade.get_orders_history_archive, "ordId", instType="SWAP")
        assert orders
        converted = made("Convert", "ConvertAPI").get_convert_history()["data"]
        assert len(converted) == len(ACCOUNT.lists["conversions"])

    def test_an_export(self, made: Any) -> None:
        account = made("Account", "AccountAPI")
        assert account.apply_bills("2024", "Q3")["data"][0]["result"] == "false"
        name = "/api/v5/account/bills-history-archive"
        answer = account._request_with_params("GET", name, {"year": "2024", "quarter": "Q3"})
        body = httpx.get(answer["data"][0]["fileHref"]).content
        with zipfile.ZipFile(io.BytesIO(body)) as archive:
            text = archive.read(archive.namelist()[0]).decode()
        rows = list(csv.DictReader(io.StringIO(text)))
        inside = [row for row in BILLS if ms_of("2024-07-01") <= row.ts < ms_of("2024-10-01")]
        assert len(rows) == len(inside)

    def test_errors_are_answered(self, made: Any) -> None:
        account = made("Account", "AccountAPI")
        account.PASSPHRASE = "wrong"
        assert account.get_account_config()["code"] == "50105"
