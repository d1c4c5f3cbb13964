"""pybit, Bybit's SDK, knows every path that we use, with the same parameters."""

import inspect
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from onebook.transactions.adapter import Window
from onebook.transactions.bybit.api import signed
from onebook.transactions.bybit.endpoints import (
    ACCOUNT,
    API_KEY,
    ENDPOINTS,
    INSTRUMENTS,
    PATH_LIMITS,
)
from onebook.transactions.bybit.pages import query_of
from onebook.transactions.credentials import Credentials

unified_trading = pytest.importorskip("pybit.unified_trading", reason="pybit is not installed")

WINDOW = Window(1_700_000_000_000, 1_700_086_400_000, 1_700_086_399_999)
CURSOR = "132766%3A2%2C132766%3A2"
KEY = Credentials("mykey00000000000000", "mysecret0000000000000000000000000000")
METHODS = {
    "/v5/account/contract-transaction-log": "get_contract_transaction_log",
    "/v5/account/info": "get_account_info",
    "/v5/account/transaction-log": "get_transaction_log",
    "/v5/account/wallet-balance": "get_wallet_balance",
    "/v5/asset/delivery-record": "get_option_delivery_record",
    "/v5/asset/deposit/query-internal-record": "get_internal_deposit_records",
    "/v5/asset/deposit/query-record": "get_deposit_records",
    "/v5/asset/fundinghistory": "get_funding_acc_history",
    "/v5/asset/settlement-record": "get_usdc_contract_settlement",
    "/v5/asset/transfer/query-account-coins-balance": "get_coins_balance",
    "/v5/asset/transfer/query-inter-transfer-list": "get_internal_transfer_records",
    "/v5/asset/transfer/query-universal-transfer-list": "get_universal_transfer_records",
    "/v5/asset/withdraw/query-record": "get_withdrawal_records",
    "/v5/execution/list": "get_executions",
    "/v5/market/instruments-info": "get_instruments_info",
    "/v5/order/history": "get_order_history",
    "/v5/position/closed-pnl": "get_closed_pnl",
    "/v5/pre-upgrade/account/transaction-log": "get_pre_upgrade_transaction_log",
    "/v5/pre-upgrade/asset/settlement-record": "get_pre_upgrade_usdc_session_settlement",
    "/v5/pre-upgrade/execution/list": "get_pre_upgrade_trade_history",
    "/v5/pre-upgrade/order/history": "get_pre_upgrade_order_history",
    "/v5/pre-upgrade/position/closed-pnl": "get_pre_upgrade_closed_pnl",
    "/v5/spot-lever-token/order-record": "get_purchase_redemption_records",
    "/v5/user/query-api": "get_api_key_information",
}
# The path and the query of every request that we make; pages without a window have no cursor.
ASKED = {
    name: (
        endpoint.path,
        query_of(
            endpoint,
            WINDOW,
            CURSOR if endpoint.source.window_ms else "",
            symbol="BTCUSDT" if endpoint.by_symbol else "",
        ),
    )
    for name, endpoint in ENDPOINTS.items()
} | {
    "key": (API_KEY, ""),
    "account": (ACCOUNT, ""),
    "markets": (INSTRUMENTS, "category=linear&limit=1000"),
}
Seen = list[tuple[str, str, dict[str, str]]]


@pytest.fixture
def site() -> Iterator[tuple[Any, Seen]]:
    """pybit's session with a server that never answers, and its requests."""
    seen: Seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen.append((path, query, headers))
            body = b'{"retCode":0,"retMsg":"OK","result":{},"time":1}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        session = unified_trading.HTTP(api_key=KEY.api_key, api_secret=KEY.secret)
        session.endpoint = f"http://127.0.0.1:{server.server_port}"
        yield session, seen
        session.client.close()
        server.shutdown()
        thread.join()


def required_of(method: Any) -> set[str]:
    """The parameters that pybit documents as required for a method."""
    text = inspect.getdoc(method) or ""
    found = re.search(r"Required args:\n(.*?)\n\n", text, re.DOTALL)
    required = set(re.findall(r"^\s+(\w+) \(", found[1], re.MULTILINE)) if found else set()
    return required - {"memberId"}  # of a sub-account, says Bybit's page, asked for by its master


@pytest.mark.parametrize("name", ASKED)
def test_a_request_of_ours_is_one_of_pybits(name: str, site: tuple[Any, Seen]) -> None:
    session, seen = site
    path, query = ASKED[name]
    parameters = dict(part.split("=", 1) for part in query.split("&") if part)
    method = getattr(session, METHODS[path])
    method(**parameters)
    ((asked, theirs, headers),) = seen
    assert asked == path
    assert sorted(theirs.split("&")) == sorted(query.split("&"))
    assert required_of(method) <= parameters.keys()
    if "x-bapi-sign" in headers:  # of the same query it is ours
        ours = signed(KEY, theirs, at_ms=int(headers["x-bapi-timestamp"]))
        window = headers["x-bapi-recv-window"]
        if ours["X-BAPI-RECV-WINDOW"] == window:
            assert ours["X-BAPI-SIGN"] == headers["x-bapi-sign"]


def test_every_path_that_has_a_limit_is_judged() -> None:
    assert METHODS.keys() == PATH_LIMITS.keys()
    assert {path for path, _ in ASKED.values()} == PATH_LIMITS.keys()
