"""The simulated OKX v5 REST API as an ASGI application: the site of one region.

It checks signatures, limits, permissions, the environment and the mode of the account, and answers
in OKX's envelope. https://www.okx.com/docs-v5/en/#overview-rest-authentication
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

from msgspec import MsgspecError, json
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from onebook.clock import SYSTEM_CLOCK
from onebook.simulator.accounts.admission import AccountFaults, RollingCount
from onebook.simulator.accounts.okx.account import OkxAccount
from onebook.simulator.accounts.okx.endpoints import QUARTER_DAYS, OkxEndpoints, OkxQuery
from onebook.simulator.accounts.okx.exports import SimulatedOkxFiles
from onebook.simulator.accounts.okx.keys import REFUSALS, OkxGate, OkxRefused, SimulatedOkxKey
from onebook.simulator.accounts.okx.stream import OkxStreams
from onebook.simulator.accounts.serving import SimulatedHost, cloudflare, path_of

JSON: Final = "application/json"
ROOT: Final = "/api/v5/"
EXPORT: Final = "account/bills-history-archive"
DAY_S: Final = 86_400.0
# Requests per number of seconds: by user and endpoint, or by address for public ones.
LIMITS: Final = {
    "public/time": (10, 2.0),
    "public/instruments": (20, 2.0),
    "account/config": (5, 2.0),
    "account/balance": (10, 2.0),
    "account/bills": (5, 1.0),
    "account/bills-archive": (5, 2.0),
    EXPORT: (10, 2.0),
    "account/subtypes": (20, 2.0),
    "account/positions": (10, 2.0),
    "account/positions-history": (10, 2.0),
    "account/interest-accrued": (5, 2.0),
    "account/spot-borrow-repay-history": (5, 2.0),
    "account/instruments": (20, 2.0),
    "trade/fills": (60, 2.0),
    "trade/fills-history": (10, 2.0),
    "trade/orders-history": (40, 2.0),
    "trade/orders-history-archive": (20, 2.0),
    "trade/easy-convert-history": (1, 2.0),
    "trade/one-click-repay-history": (1, 2.0),
    "trade/one-click-repay-history-v2": (1, 2.0),
    "asset/bills-history": (1, 1.0),
    "asset/asset-valuation": (1, 1.0),
    "asset/transfer-state": (10, 1.0),
    "fiat/deposit-order-history": (3, 1.0),
    "fiat/withdrawal-order-history": (3, 1.0),
    "finance/staking-defi/orders-active": (3, 1.0),
    "finance/staking-defi/orders-history": (3, 1.0),
    "finance/flexible-loan/loan-history": (5, 2.0),
    "users/subaccount/list": (2, 2.0),
}
OTHERS: Final = (6, 1.0)
MARGIN_PATHS: Final = frozenset((
    "account/positions", "account/positions-history", "account/interest-accrued",
    "account/spot-borrow-repay-history", "trade/one-click-repay-history",
    "trade/one-click-repay-history-v2",
))  # fmt: skip
DEMO_ASSETS: Final = frozenset(("asset/balances", "asset/currencies"))
# What a site lacks. OKX documents that sites differ, but of its lists only this difference.
MISSING: Final = {
    "global": frozenset[str](),
    "eea": frozenset(("finance/flexible-loan/loan-history", "trade/easy-convert-history")),
    "us": frozenset(("fiat/deposit-order-history", "fiat/withdrawal-order-history",
                     "finance/flexible-loan/loan-history")),
}  # fmt: skip
# Faults from which `AccountFaults` draws; any other number of five digits is that error.
OKX_FAULTS: Final = (
    "50001",
    "50004",
    "50011",
    "50013",
    "50026",
    "50102",
    "58007",
    "502",  # the edge, with an HTML body
    "520",
    "truncated",  # half of the body
    "reset",  # the connection is closed
    "slow",  # a delayed answer
    "no_data",  # success without data
    "numbers",  # some amounts as JSON numbers
    "unknown_type",  # bills of an undocumented type
)


class SimulatedOkx(SimulatedHost):
    """The simulated exchange with one account.

    Args:
        account: Its history.
        keys: The keys that it accepts, including those of other regions and of demo trading.
        demo_account: The account of demo trading; without one, demo trading is not offered.
        region: The region of the site: global, eea or us.
        now_ms: The exchange's clock: rows with later times are not visible yet.
        faults: The faults to inject.
        files: Exports and their host; by default a file takes half an hour.
        limited: Whether rate limits are enforced.
        archive_days: Retention of the archives of the trading account.
        exports_a_day: Maximum exports per day.
        refresh_s: Refresh interval of the history of funding bills, in seconds.
    """

    edge_errors = {"502": cloudflare(502), "520": cloudflare(520)}  # noqa: RUF012

    def __init__(
        self,
        account: OkxAccount,
        keys: Iterable[SimulatedOkxKey],
        *,
        demo_account: OkxAccount | None = None,
        region: str = "global",
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        faults: AccountFaults | None = None,
        files: SimulatedOkxFiles | None = None,
        limited: bool = True,
        archive_days: int = QUARTER_DAYS,
        exports_a_day: int = 12,
        refresh_s: float = 30.0,
    ) -> None:
        super().__init__(now_ms, sleep, faults)
        keys = tuple(keys)
        self.account = account
        self.files = files or SimulatedOkxFiles(account, now_ms=now_ms)
        self._limited = limited
        self._missing = MISSING[region]
        self._gate = OkxGate({key.api_key: key for key in keys}, region)
        self._windows: dict[str, RollingCount] = {}
        self._exports = RollingCount(exports_a_day, DAY_S)
        self._live = OkxEndpoints(
            account, self.files, archive_days=archive_days, refresh_s=refresh_s
        )
        self._demo: OkxEndpoints | None = None
        if demo_account is not None:
            self._demo = OkxEndpoints(demo_account, self.files, archive_days=archive_days)
        live = {key.api_key: key for key in keys if key.region == region and not key.demo}
        self.streams = OkxStreams(live, now_ms, self._held)

    async def _stream(self, socket: WebSocket) -> None:
        await self.streams.serve(socket)

    def _held(self) -> dict[str, Any]:
        """The current trading account, in the form of its channel."""
        return self._live.answers["account/balance"](OkxQuery({}, None, self._now_ms()))[0]

    def act(self, kind: str) -> None:
        """Let something happen now, and tell the private streams; see `OkxAccount.happen`."""
        self.account.happen(kind, self._now_ms())
        self.streams.announce(self.account)

    def _answer(self, request: Request, body: bytes, fault: str) -> Response:
        try:
            if fault in REFUSALS:
                raise OkxRefused(fault)
            data = self._data(request, path_of(request).removeprefix(ROOT), body, fault)
        except OkxRefused as refused:
            return _refusal(refused)
        if fault == "no_data":
            return _encoded({"code": "0", "msg": ""})
        if fault == "unknown_type":
            data = [row | ({"type": "999"} if "type" in row else {}) for row in data]
        if fault == "numbers":
            data = [_numbered(row) for row in data]
        return _encoded({"code": "0", "msg": "", "data": data})

    def _data(self, request: Request, name: str, body: bytes, fault: str) -> list[dict[str, Any]]:
        address = request.client.host if request.client else ""
        now, posted = self._now_ms(), request.method == "POST"
        if name.startswith("public/"):
            self._count(f"{address} {name}", name)
            return self._public(name, dict(request.query_params), now)
        known = name in self._live.answers or name == EXPORT
        if not known or name in self._missing or (posted and name != EXPORT):
            raise OkxRefused("404")
        path = path_of(request)
        query_text = request.scope["query_string"].decode("ascii")
        target = f"{path}?{query_text}" if query_text else path
        key = self._gate.admit(
            request.headers, request.method, target, body, now_ms=now, address=address
        )
        self._count(f"user {key.demo} {name} {request.method}", name)
        if "read_only" not in key.permissions:
            raise OkxRefused("50120")
        fields = _fields(body) if posted else dict(request.query_params)
        endpoints = self._endpoints(key, name)
        if self.before_page is not None:
            self.before_page(name)
        query = OkxQuery(fields, key, self._now_ms())
        if name != EXPORT:
            return endpoints.answers[name](query)
        if not posted:
            return endpoints.export_status(query)
        if self._limited and not self._exports.count_request(now)[0]:
            raise OkxRefused("50011")
        return endpoints.apply_export(query, failed=fault == "failed")

    def _endpoints(self, key: SimulatedOkxKey, name: str) -> OkxEndpoints:
        """Return the answers of the account of a key."""
        endpoints = self._live
        if key.demo:
            kept = name in DEMO_ASSETS or not name.startswith(("asset/", "finance/", "fiat/"))
            if self._demo is None or not kept or name == EXPORT:
                raise OkxRefused("50038")
            endpoints = self._demo
        if name in MARGIN_PATHS and not endpoints.account.history.derivatives:
            raise OkxRefused("51010")
        return endpoints

    def _count(self, window: str, name: str) -> None:
        counter = self._windows.setdefault(window, RollingCount(*LIMITS.get(name, OTHERS)))
        if self._limited and not counter.count_request(self._now_ms())[0]:
            raise OkxRefused("50011")

    def _public(self, name: str, fields: dict[str, str], now: int) -> list[dict[str, Any]]:
        if name == "public/time":
            return [{"ts": str(now)}]
        if name == "public/instruments":
            return self._live.instruments(OkxQuery(fields, None, now))
        raise OkxRefused("404")


def _encoded(body: dict[str, Any], status: int = 200) -> Response:
    return Response(json.encode(body), status, media_type=JSON)


def _refusal(refused: OkxRefused) -> Response:
    if refused.bare:
        return _encoded({"msg": str(refused), "code": refused.code}, refused.status)
    return _encoded({"code": refused.code, "data": [], "msg": str(refused)}, refused.status)


def _fields(body: bytes) -> dict[str, str]:
    try:
        found = json.decode(body, type=dict[str, Any])
    except MsgspecError:
        raise OkxRefused("51000", "body") from None
    return {name: str(value) for name, value in found.items()}


def _numbered(row: dict[str, Any]) -> dict[str, Any]:
    """Write the balance of a row as a JSON number, as in old rows."""
    return row | ({"bal": float(row["bal"])} if "bal" in row else {})
