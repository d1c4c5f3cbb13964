"""The simulated Bybit as an ASGI application: signatures, clock, limits, envelopes, faults.

In-process through `SimulatedTransport`, or on a loopback port for other clients and `make demo`.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_plus

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults, AddressBans, RollingCount
from onebook.simulator.accounts.bybit import rows
from onebook.simulator.accounts.bybit.account import Account
from onebook.simulator.accounts.bybit.endpoints import (
    IP_BAN_S,
    IP_LIMIT,
    LIMITS,
    LISTINGS,
    ListEndpoint,
    bounds,
    page_rows,
)
from onebook.simulator.accounts.bybit.facts import MARKETS
from onebook.simulator.accounts.bybit.funds import COINS
from onebook.simulator.accounts.bybit.generator import History
from onebook.simulator.accounts.bybit.keys import AccountRefused, SimulatedKey, authenticate
from onebook.simulator.accounts.bybit.stream import BybitStreams
from onebook.simulator.accounts.history import BadCursor, Pager
from onebook.simulator.accounts.serving import EdgeError, SimulatedHost, path_of, serving
from onebook.simulator.accounts.streams import living

RETIRED: Final = "/v5/spot-lever-token/order-record"
JSON: Final = "application/json; charset=utf-8"
NO_PERMISSION: Final = "Permission denied, please check your API key permissions."
TOO_MANY: Final = "Too many visits! You've exceeded the API rate limit."
BUSY: Final = {"10000": "Server Timeout", "10016": "Server Timeout", "-1": "request expired: o@0"}
COUNTRY_PAGE: Final = (
    "<html><head><title>ERROR: The request could not be satisfied</title></head><body>"
    "<h1>403 ERROR</h1>The Amazon CloudFront distribution is configured to block access from your "
    "country.</body></html>"
)
# The faults that `AccountFaults` chooses from.
FAULTS: Final = (
    "10000",  # server timeout, HTTP 200
    "10016",  # server error, HTTP 200
    "-1",  # "request expired", HTTP 200
    "10006",  # rate limit of the path, HTTP 200
    "429",  # system-level protection
    "403",  # the country of the address is refused, an HTML page of the CDN
    "404",  # the path does not exist in the account's mode
    "502",  # CDN error with an HTML body
    "truncated",  # half of the body
    "reset",  # the connection is closed
    "slow",  # a delayed answer
    "string_ext",  # retExtInfo as a string
    "unknown_enum",  # an unknown status and an unknown type
)
NOT_FOUND: Final = EdgeError(404, "404 page not found", "text/plain")


class SimulatedBybit(SimulatedHost):
    """One simulated exchange with one account.

    Args:
        account: Its history.
        keys: The keys that it accepts.
        now_ms: The exchange's clock.
        faults: The faults to inject.
        retired: How the discontinued leverage-token path answers: rows, empty or missing.
        by_offset: See `tables.Pager`.
        clamps_limits: Whether a page size above the maximum is cut, rather than refused.
        limited: Whether rate limits are enforced.
    """

    edge_errors = {  # noqa: RUF012
        "403": EdgeError(403, COUNTRY_PAGE),
        "404": NOT_FOUND,
        "429": EdgeError(429, "too many requests", "text/plain"),
        "502": EdgeError(502, "<html><body><h1>502 Bad Gateway</h1></body></html>"),
    }

    def __init__(
        self,
        account: Account,
        keys: Iterable[SimulatedKey],
        *,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        faults: AccountFaults | None = None,
        retired: str = "missing",
        by_offset: bool = False,
        clamps_limits: bool = True,
        limited: bool = True,
        ip_ban_s: float = IP_BAN_S,
    ) -> None:
        super().__init__(now_ms, sleep, faults)
        self.account = account
        self.page_rows_max: dict[str, int] = {}
        self._keys = {key.api_key: key for key in keys}
        self.streams = BybitStreams(self._keys, now_ms)
        self._retired = retired
        self._pager = Pager(by_offset=by_offset)
        self._clamps_limits = clamps_limits
        self._limited = limited
        self._limits: dict[tuple[str, str], RollingCount] = {}
        self.bans = AddressBans(*IP_LIMIT, ban_s=ip_ban_s)
        self._answers: dict[str, Callable[[dict[str, str], SimulatedKey], Any]] = {
            "/v5/account/wallet-balance": self._wallet,
            "/v5/account/info": self._account_info,
            "/v5/asset/transfer/query-account-coins-balance": self._fund_wallet,
            "/v5/asset/coin/query-info": self._coins,
            "/v5/asset/exchange/query-convert-history": lambda query, key: {"list": []},
            "/v5/user/query-api": self._key_info,
        }

    async def _stream(self, socket: WebSocket) -> None:
        await self.streams.serve(socket)

    def act(self, kind: str) -> None:
        """Run an event now: `spot`, `linear`, `inverse`, `deposit`, `withdrawal`..."""
        now_ms = self._now_ms()
        if kind in self.account.executions:
            self.account.trade(now_ms, kind)
        else:
            self.account.move(now_ms, kind)
        self.advance()

    def advance(self) -> None:
        """Run what is due now, and notify the private streams."""
        fills, orders, wallet = self.account.advance(self._now_ms())
        self.streams.announce(
            "execution", [rows.streamed_execution(entry, name) for name, entry in fills]
        )
        self.streams.announce("order", [rows.order(e) | {"category": name} for name, e in orders])
        if wallet:
            self.streams.announce("wallet", self._wallet({"accountType": "UNIFIED"}, None)["list"])

    def _answer(self, request: Request, body: bytes, fault: str) -> Response:
        address = request.client.host if request.client else ""
        if self._limited and self.bans.refuses(address, self._now_ms()):
            return Response("access too frequent", 403, media_type="text/plain")
        headers: dict[str, str] = {}
        try:
            if fault in BUSY:
                raise AccountRefused(int(fault), BUSY[fault])
            result = self._result(request, address, headers, fault)
        except AccountRefused as refused:
            return self._envelope(refused.code, refused.message, {}, headers)
        except LookupError:
            return Response(NOT_FOUND.body, NOT_FOUND.status, media_type=NOT_FOUND.media_type)
        if fault == "unknown_enum":
            _estrange(result)
        return self._envelope(0, "OK", result, headers, strange=fault == "string_ext")

    def _envelope(
        self,
        code: int,
        message: str,
        result: Any,
        headers: Mapping[str, str],
        *,
        strange: bool = False,
    ) -> Response:
        body = {
            "retCode": code,
            "retMsg": message,
            "result": result,
            "retExtInfo": "" if strange else {},
            "time": self._now_ms(),
        }
        return Response(json.encode(body), headers=dict(headers), media_type=JSON)

    def _result(
        self,
        request: Request,
        address: str,
        headers: dict[str, str],
        fault: str,
    ) -> Any:
        path = path_of(request)
        raw = request.scope["query_string"].decode("ascii")
        query = parsed(raw)
        if path == "/v5/market/time":
            return _time_of(self._now_ms())
        if path == "/v5/market/instruments-info":
            return _instruments(query)
        key = authenticate(self._keys, request.headers, raw, now_ms=self._now_ms(), address=address)
        self._count(path, key.api_key, headers, forced=fault == "10006")
        if path in self._answers:
            return self._answers[path](query, key)
        if path == RETIRED and self._retired == "missing":
            raise LookupError(path)
        return self._listing(path, LISTINGS[path], query, key)

    def _listing(
        self, path: str, listing: ListEndpoint, query: dict[str, str], key: SimulatedKey
    ) -> dict[str, Any]:
        if not key.grants(listing.permission or _permission(query)):
            raise AccountRefused(10005, NO_PERMISSION)
        if self.before_page is not None:
            self.before_page(path)
        now_ms = self._now_ms()
        table = listing.table(self.account, query)
        start_ms, end_ms = bounds(listing, query, now_ms)
        limit = page_rows(listing, query, clamps=self._clamps_limits)
        wanted = listing.wanted
        try:
            entries, cursor = self._pager.page(
                table,
                table.between(start_ms, end_ms, listing.grain_ms),
                query=path + str(sorted((n, v) for n, v in query.items() if n != "cursor")),
                cursor=query.get("cursor", ""),
                limit=limit,
                codec=listing.codec,
                wanted=None if wanted is None else lambda entry: wanted(entry, query, now_ms),
            )
        except BadCursor:
            raise AccountRefused(10001, "params error: cursor") from None
        found = {listing.rows: [listing.row(entry, self.account) for entry in entries]}
        if path == RETIRED:  # it has no pages
            return found if self._retired == "rows" else {"list": []}
        if "category" in query:
            found["category"] = query["category"]  # type: ignore[assignment]
        return found | {"nextPageCursor": cursor}

    # Limits ---------------------------------------------------------------------------

    def _count(self, path: str, api_key: str, headers: dict[str, str], *, forced: bool) -> None:
        if path not in LIMITS:
            return
        now_ms = self._now_ms()
        window = self._limits.setdefault((path, api_key), RollingCount(*LIMITS[path]))
        passed, left, reset_ms = window.count_request(now_ms)
        if forced:
            passed, left, reset_ms = False, 0, now_ms + 1_000
        headers["X-Bapi-Limit"] = str(window.count)
        headers["X-Bapi-Limit-Status"] = str(left)
        headers["X-Bapi-Limit-Reset-Timestamp"] = str(reset_ms)
        if not passed and (self._limited or forced):
            raise AccountRefused(10006, TOO_MANY)

    # Snapshots ------------------------------------------------------------------------

    def _wallet(self, query: dict[str, str], key: SimulatedKey | None) -> Any:
        if query.get("accountType") != "UNIFIED":
            raise AccountRefused(10001, "accountType only support UNIFIED.")
        coins = [
            rows.unified_coin(*item) for item in sorted(self.account.unified.items()) if item[1]
        ]
        return {"list": [{"accountType": "UNIFIED", "totalEquity": "", "coin": coins}]}

    def _fund_wallet(self, query: dict[str, str], key: SimulatedKey) -> Any:
        if not key.grants(("AccountTransfer",)):
            raise AccountRefused(10005, NO_PERMISSION)
        if query.get("accountType") != "FUND":
            raise AccountRefused(131002, "coin is required")
        coins = [rows.funding_coin(coin, self.account.fund[coin]) for coin in (*COINS, "EUR")]
        return {"memberId": self.account.uid, "accountType": "FUND", "balance": coins}

    def _account_info(self, query: dict[str, str], key: SimulatedKey) -> Any:
        return {
            "marginMode": "REGULAR_MARGIN",
            "unifiedMarginStatus": self.account.status,
            "updatedTime": "1",
        }

    def _key_info(self, query: dict[str, str], key: SimulatedKey) -> Any:
        return {
            "id": "1",
            "note": "simulated",
            "apiKey": key.api_key,
            "readOnly": int(key.read_only),
            "secret": "",
            "permissions": {name: list(group) for name, group in key.permissions.items()},
            "ips": list(key.ips) or ["*"],
            "type": 1,
            "deadlineDay": key.days_left,
            "uta": 1,
            "unified": 0,
            "userID": int(self.account.uid),
            "isMaster": True,
            "parentUid": "0",
        }

    def _coins(self, query: dict[str, str], key: SimulatedKey) -> Any:
        chain = {
            "chain": "ETH", "chainType": "Ethereum", "confirmation": "6", "withdrawFee": "1",
            "depositMin": "0", "withdrawMin": "1", "chainDeposit": "1", "chainWithdraw": "1",
            "minAccuracy": "8", "withdrawPercentageFee": "0",
        }  # fmt: skip
        names = (*COINS, "XRP", "BTC3L", "USD")
        return {
            "rows": [
                {"name": coin, "coin": coin, "remainAmount": "1000000", "chains": [chain]}
                for coin in names
            ]
        }


def parsed(raw: str) -> dict[str, str]:
    """Decode a query string leniently: a cursor may be encoded once or twice."""
    pairs = (part.partition("=") for part in raw.split("&") if part)
    return {name: unquote_plus(value) if name != "cursor" else value for name, _, value in pairs}


def _permission(query: dict[str, str]) -> tuple[str, ...]:
    category = query.get("category")
    if category == "spot":
        return ("SpotTrade",)
    return ("Order", "Position", "DerivativesTrade") if category else ()


def _time_of(now_ms: int) -> dict[str, str]:
    return {"timeSecond": str(now_ms // 1_000), "timeNano": str(now_ms * 1_000_000)}


def _instruments(query: dict[str, str]) -> dict[str, Any]:
    category = query.get("category", "")
    markets = [one for one in MARKETS if one.category == category]
    if query.get("status") == "PreLaunch" or category == "option":
        markets = []
    return {
        "category": category,
        "list": [rows.market(one) for one in markets],
        "nextPageCursor": "",
    }


def _estrange(result: Any) -> None:
    """Insert undocumented values."""
    for row in result.get("list") or result.get("rows") or []:
        for name in ("execType", "type", "status", "orderStatus"):
            if isinstance(row, dict) and isinstance(row.get(name), str):
                row[name] = "SomethingFromTheFuture"


DEMO_ACTS: Final = {"spot": 5, "linear": 5, "inverse": 1, "deposit": 1, "transfer": 1}
DEMO_DAYS: Final = 400  # one fiscal year and some time before it
DEMO_EXECUTIONS: Final = 4_600  # including 3,600 funding payments


class DemoAccount(NamedTuple):
    """A served account: its address and a valid key."""

    url: str
    key: SimulatedKey
    exchange: SimulatedBybit

    @property
    def hosts(self) -> Mapping[str, str]:
        """Addresses of its other hosts: none."""
        return {}

    @property
    def fields(self) -> Mapping[str, str]:
        """Valid credentials."""
        return {"api_key": self.key.api_key, "secret": self.key.secret}


@asynccontextmanager
async def demo() -> AsyncIterator[DemoAccount]:
    """Serve an account with more than a year of spot and futures trading, and a new key."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    key = SimulatedKey(f"demo{secrets.token_hex(8)}", secrets.token_hex(18))
    account = Account(History(now_ms - DEMO_DAYS * DAY_MS, now_ms, executions=DEMO_EXECUTIONS))
    exchange = SimulatedBybit(account, [key])
    async with serving(exchange) as url, living(exchange.act, DEMO_ACTS):
        yield DemoAccount(url, key, exchange)
