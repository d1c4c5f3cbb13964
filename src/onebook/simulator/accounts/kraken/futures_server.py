"""The simulated Kraken Futures API as an ASGI application, with its own host, keys and errors.

`/derivatives/api/v3` answers errors with HTTP 200 and `result: error`, `/api/history` by status,
429 as plain text with `rate-limit-reset`. https://docs.kraken.com/exchange/guides/futures/rest
"""

import asyncio
import csv
import io
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl

from msgspec import Raw, json
from starlette.requests import Request
from starlette.responses import Response

from onebook.clock import SYSTEM_CLOCK
from onebook.simulator.accounts.admission import AccountFaults, DecayingCounter
from onebook.simulator.accounts.blocks import FIRST, LAST
from onebook.simulator.accounts.kraken import rows
from onebook.simulator.accounts.kraken.account import KrakenAccount
from onebook.simulator.accounts.kraken.keys import FuturesGate, KrakenRefused, SimulatedFuturesKey
from onebook.simulator.accounts.kraken.names import CONTRACTS, MS_TICKS
from onebook.simulator.accounts.kraken.server import JSON
from onebook.simulator.accounts.serving import SimulatedHost, cloudflare, path_of

DERIVATIVES: Final = "/derivatives/api/v3/"
HISTORY: Final = ("/api/history/v3/", "/api/history/v2/")
KEY_CHECK: Final = "/api/auth/v1/api-keys/v3/check"
DERIVATIVES_POOL: Final = (500, 50.0)  # units, and their renewal per second
HISTORY_POOL: Final = (100, 100 / 600)
COSTS: Final = {"accounts": 2, "openpositions": 2, "fills": 2}
FILLS_BEFORE_COST: Final = 25
LOG_COSTS: Final = ((25, 1), (50, 2), (1_000, 3), (5_000, 6), (100_000, 10))
CSV_COST, CSV_ROWS = 6, 500_000
LOG_ROWS, LOG_ROWS_MAX, FILLS_ROWS, EVENTS_ROWS_MAX = 500, 100_000, 100, 1_000
# Faults from which `AccountFaults` draws.
FUTURES_FAULTS: Final = (
    "apiLimitExceeded", "Server Error", "unavailable", "429", "502", "truncated", "reset", "slow",
)  # fmt: skip


class SimulatedKrakenFutures(SimulatedHost):
    """The futures side of a simulated account.

    Args:
        account: Its history, the same as that of the spot side.
        keys: The keys that it accepts.
        now_ms: The exchange's clock.
        faults: The faults to inject.
        active: Whether the futures account was ever activated.
        limited: Whether rate limits are enforced.
    """

    edge_errors = {"502": cloudflare(502)}  # noqa: RUF012

    def __init__(
        self,
        account: KrakenAccount,
        keys: Iterable[SimulatedFuturesKey],
        *,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        faults: AccountFaults | None = None,
        active: bool = True,
        limited: bool = True,
    ) -> None:
        super().__init__(now_ms, sleep, faults)
        self.account = account
        self._active = active
        self._limited = limited
        self._gate = FuturesGate({key.api_key: key for key in keys})
        self._pools: dict[tuple[str, str], DecayingCounter] = {}

    def _answer(self, request: Request, body: bytes, fault: str) -> Response:
        path = path_of(request)
        if fault == "429":
            return _too_many(30.0)
        try:
            if fault and fault not in ("slow", "truncated"):
                raise KrakenRefused(fault)
            return self._result(request, path)
        except KrakenRefused as refused:
            return self._refusal(path, str(refused))

    def _refusal(self, path: str, word: str) -> Response:
        """An error in the form of each part of the API."""
        if path.startswith(DERIVATIVES):
            body: dict[str, Any] = {
                "result": "error",
                "error": word,
                "serverTime": self._server_time(),
            }
            return Response(json.encode(body), media_type=JSON)
        unknown = word in ("authenticationError", "nonceBelowThreshold", "nonceDuplicate")
        status = 401 if unknown else 403 if word == "insufficientPrivileges" else 500
        if word in ("invalidArgument", "notFound"):
            status = 400 if word == "invalidArgument" else 404
        return Response(json.encode({"errors": [{"code": status, "message": word}]}), status,
                        media_type=JSON)  # fmt: skip

    def _result(self, request: Request, path: str) -> Response:
        if path == f"{DERIVATIVES}instruments":
            return self._derivatives(instruments=[rows.instrument(c) for c in CONTRACTS.values()])
        raw = request.scope["query_string"].decode("ascii")
        key = self._gate.admit(request.headers, path, raw)
        query = dict(parse_qsl(raw, keep_blank_values=True))
        infos = frozenset(value for name, value in parse_qsl(raw) if name == "info")
        if path == KEY_CHECK:
            return self._checked(key)
        name = path.rpartition("/")[2]
        if self.before_page is not None:
            self.before_page(name)
        if path.startswith(DERIVATIVES):
            cost = FILLS_BEFORE_COST if "lastFillTime" in query else COSTS.get(name, 1)
            if self._wait_s(key, "derivatives", cost):
                raise KrakenRefused("apiLimitExceeded")
            if not self._active:
                raise KrakenRefused("accountInactive")
            return self._derivative(name, query)
        if not path.startswith(HISTORY):
            raise KrakenRefused("notFound")
        wait_s = self._wait_s(key, "history", _history_cost(name, query))
        return _too_many(wait_s) if wait_s else self._historical(name, query, infos)

    def _wait_s(self, key: SimulatedFuturesKey, pool: str, cost: int) -> float:
        """Charge a request to a pool; returns the wait if there is too little."""
        size = DERIVATIVES_POOL if pool == "derivatives" else HISTORY_POOL
        counter = self._pools.setdefault((key.api_key, pool), DecayingCounter(*size))
        now_ms = self._now_ms()
        if not self._limited or counter.count_request(cost, now_ms):
            return 0.0
        return max(0.001, counter.wait_s(cost, now_ms))

    def _server_time(self) -> str:
        return rows.iso(self._now_ms() * MS_TICKS)

    def _derivatives(self, **content: Any) -> Response:
        body = {"result": "success", **content, "serverTime": self._server_time()}
        return Response(json.encode(body), media_type=JSON)

    def _checked(self, key: SimulatedFuturesKey) -> Response:
        body: dict[str, Any] = {
            "apiKey": key.api_key, "accountUid": rows.ACCOUNT_UID, "iiban": rows.IIBAN,
            "createdAt": "2022-03-20T14:15:22Z",
            "permissions": {"general": key.access, "withdrawal": "none"},
            "allowedCidrBlock": None, "allowedCidrBlocks": [],
        }  # fmt: skip
        return Response(json.encode(body), media_type=JSON)

    # Derivatives ----------------------------------------------------------------------------

    def _derivative(self, name: str, query: dict[str, str]) -> Response:
        if name == "accounts":
            return self._derivatives(accounts=self._accounts())
        if name == "openpositions":
            return self._derivatives(openPositions=self._positions())
        if name == "fills":
            until = LAST
            if before := query.get("lastFillTime"):
                until = (_moment(before) - 1, float("inf"))
            found = self.account.select("fills", until=until, limit=FILLS_ROWS, counted=False).rows
            return self._derivatives(fills=[rows.fill(row) for row in found])
        raise KrakenRefused("notFound")

    def _accounts(self) -> dict[str, Any]:
        held: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for (account, asset), balance in self.account.state.wallets.items():
            held[account][asset] = balance
        accounts: dict[str, Any] = {}
        for account, assets in sorted(held.items()):
            if account == "flex":
                accounts[account] = _flex(assets)
            elif account == "cash":
                balances = {asset: rows.number(n) for asset, n in assets.items()}
                accounts[account] = {"type": "cashAccount", "balances": balances}
            else:
                accounts[account] = _margin_account(account, assets)
        return accounts

    def _positions(self) -> list[dict[str, Any]]:
        state, positions = self.account.state, []
        for (account, asset), size in sorted(state.wallets.items()):
            symbol = asset.upper()
            if "_" not in asset or not size or symbol not in state.positions:
                continue
            time, _ = state.positions[symbol]
            value = state.entries[symbol]
            inverse = symbol in CONTRACTS and CONTRACTS[symbol].inverse
            price = abs(size) * 10**12 // value if inverse else value * 10**12 // abs(size)
            positions.append(
                {
                    "side": "long" if size > 0 else "short",
                    "symbol": symbol,
                    "price": rows.number(price),
                    "fillTime": rows.iso(time),
                    "size": rows.number(abs(size)),
                    "unrealizedFunding": rows.number(value // 1_000_000),
                }
                | ({"pnlCurrency": "USD", "maxFixedLeverage": 5} if account == "flex" else {})
            )
        return positions

    # History --------------------------------------------------------------------------------

    def _historical(self, name: str, query: dict[str, str], infos: frozenset[str]) -> Response:
        if name == "account-log":
            return self._log(query, infos)
        if name == "accountlogcsv":
            return self._log_file(query)
        if name in ("executions", "positions"):
            return self._events(name, query)
        raise KrakenRefused("notFound")

    def _log(self, query: dict[str, str], infos: frozenset[str]) -> Response:
        count = _whole(query, "count", LOG_ROWS)
        if not 1 <= count <= LOG_ROWS_MAX:
            raise KrakenRefused("invalidArgument")
        first, last = _whole(query, "from", 0), _whole(query, "to", 2**62)
        after, until = _time_bounds(query)
        # Ids rise with time, so the index of an id is the index of its row.
        if first > 1:
            after = max(after, self.account.log_place(first - 1))
        if last < 2**62:
            until = min(until, self.account.log_place(last))
        found = self.account.select(
            "log", after=after, until=until, wanted=infos.__contains__ if infos else None,
            limit=count, oldest_first=query.get("sort") == "asc", counted=False,
        ).rows  # fmt: skip
        found = found if self._active else []
        details = query.get("conversion_details") == "true"
        body = {
            "accountUid": rows.ACCOUNT_UID,
            "logs": [rows.log(row, conversions=details) for row in found],
        }
        return Response(json.encode(body), media_type=JSON)

    def _log_file(self, query: dict[str, str]) -> Response:
        found = self.account.select("log", limit=CSV_ROWS, counted=False).rows
        text = io.StringIO()
        names = list(rows.log(found[0], conversions=False)) if found else ["id"]
        writer = csv.writer(text)
        writer.writerow(names)
        for row in found:
            facts = rows.log(row, conversions=False)
            writer.writerow(
                bytes(value).decode() if isinstance(value, Raw) else value
                for value in facts.values()
            )
        return Response(text.getvalue(), media_type="text/csv")

    def _events(self, name: str, query: dict[str, str]) -> Response:
        after, until = _time_bounds(query)
        count, ascending = _whole(query, "count", EVENTS_ROWS_MAX), query.get("sort") == "asc"
        token = query.get("continuation_token") or query.get("continuationToken", "")
        skip, symbol = _token(token), query.get("tradeable", "").upper()
        found = self.account.select(
            "fills", after=after, until=until, skip=skip, limit=min(count, EVENTS_ROWS_MAX),
            wanted=(lambda label: label == symbol) if symbol else None, oldest_first=ascending,
        )  # fmt: skip
        write = rows.execution if name == "executions" else rows.position_update
        body: dict[str, Any] = {
            "accountUid": rows.ACCOUNT_UID,
            "len": len(found.rows),
            "elements": [write(row) for row in found.rows],
            "serverTime": self._server_time(),
        }
        headers = {}
        if skip + len(found.rows) < found.total:
            following = b64encode(b"after %d" % (skip + len(found.rows))).decode()
            body["continuationToken"] = headers["Next-Continuation-Token"] = following
        return Response(json.encode(body), headers=headers, media_type=JSON)


def _too_many(wait_s: float) -> Response:
    headers = {"rate-limit-reset": str(max(1, -int(-wait_s // 1)))}
    return Response("Too many requests", 429, headers=headers, media_type="text/plain")


def _history_cost(name: str, query: dict[str, str]) -> int:
    if name == "accountlogcsv":
        return CSV_COST
    if name != "account-log":
        return 1
    count = _whole(query, "count", LOG_ROWS)
    return next((cost for rows_max, cost in LOG_COSTS if count <= rows_max), LOG_COSTS[-1][1])


def _whole(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name, "")
    if text and not text.isdecimal():
        raise KrakenRefused("invalidArgument")
    return int(text) if text else default


def _time_bounds(query: dict[str, str]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the places of `since` and `before`, both inclusive; by milliseconds or ISO 8601."""
    after, until = FIRST, LAST
    if since := query.get("since"):
        after = (_moment(since) - 1, float("inf"))
    if before := query.get("before"):
        until = (_moment(before) + MS_TICKS - 1, float("inf"))
    return after, until


def _moment(text: str) -> int:
    if text.isdecimal():
        return int(text) * MS_TICKS
    try:
        at = datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise KrakenRefused("invalidArgument") from None
    return round(at.timestamp() * 1_000) * MS_TICKS


def _token(text: str) -> int:
    try:
        return int(b64decode(text).removeprefix(b"after ")) if text else 0
    except (ValueError, Base64Error):
        raise KrakenRefused("invalidArgument") from None


def _flex(assets: dict[str, int]) -> dict[str, Any]:
    currencies = {}
    for asset, held in assets.items():
        if "_" not in asset:
            name = "BTC" if asset == "xbt" else asset.upper()
            currencies[name] = dict.fromkeys(
                ("quantity", "value", "collateral", "available"), rows.number(held)
            )
    totals = (
        "balanceValue", "portfolioValue", "collateralValue", "initialMargin",
        "initialMarginWithOrders", "maintenanceMargin", "pnl", "unrealizedFunding",
        "totalUnrealized", "totalUnrealizedAsMargin", "marginEquity", "availableMargin",
    )  # fmt: skip
    return {
        "type": "multiCollateralMarginAccount",
        "currencies": currencies,
        **dict.fromkeys(totals, rows.number(0)),
    }


def _margin_account(account: str, assets: dict[str, int]) -> dict[str, Any]:
    currency = account[3:-3]
    held, zero = rows.number(assets.get(currency, 0)), rows.number(0)
    return {
        "type": "marginAccount",
        "currency": currency,
        "balances": {asset: rows.number(n) for asset, n in assets.items()},
        "auxiliary": {"af": held, "pnl": zero, "pv": held, "funding": zero, "usd": zero},
        "marginRequirements": dict.fromkeys(("im", "mm", "lt", "tt"), zero),
        "triggerEstimates": dict.fromkeys(("im", "mm", "lt", "tt"), zero),
    }
