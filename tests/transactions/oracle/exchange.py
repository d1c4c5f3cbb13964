"""An exchange of one random account, over HTTP: pages, faults, rows booked between two pages."""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from msgspec import json

from transactions.oracle.account import MARKETS, RandomAccount
from transactions.oracle.loopback import listening_on_loopback
from transactions.oracle.rows import DAY_MS, UID, Served

Query = dict[str, str]
Answer = tuple[int, bytes]


class Listing(NamedTuple):
    """The documented rules of a list of Bybit."""

    name: str
    days: int
    limit_max: int
    rows: str = "list"
    unit_ms: int = 1  # of the times in the query
    grain_ms: int = 1  # at which the filter compares
    start: str = "startTime"
    end: str = "endTime"
    cursors: bool = True


LISTINGS = {
    "/v5/asset/deposit/query-record": Listing("deposits", 30, 50, "rows", grain_ms=1_000),
    "/v5/asset/deposit/query-internal-record": Listing(
        "internal_deposits", 30, 50, "rows", grain_ms=1_000
    ),
    "/v5/asset/withdraw/query-record": Listing("withdrawals", 30, 50, "rows", grain_ms=1_000),
    "/v5/execution/list": Listing("{category}_fills", 7, 100),
    "/v5/order/history": Listing("{category}_orders", 7, 50),
    "/v5/position/closed-pnl": Listing("{category}_closed", 7, 100),
    "/v5/asset/delivery-record": Listing("{category}_deliveries", 30, 50),
    "/v5/asset/settlement-record": Listing("sessions", 30, 50),
    "/v5/account/transaction-log": Listing("ledger", 7, 50),
    "/v5/asset/fundinghistory": Listing(
        "fund_ledger", 7, 100, unit_ms=1_000, grain_ms=1_000, start="createTimeFrom",
        end="createTimeTo",
    ),
    "/v5/spot-lever-token/order-record": Listing("token_orders", 30, 500, cursors=False),
    "/v5/asset/transfer/query-inter-transfer-list": Listing(
        "internal_transfers", 7, 50, grain_ms=1_000
    ),
    "/v5/asset/transfer/query-universal-transfer-list": Listing(
        "universal_transfers", 7, 50, grain_ms=1_000
    ),
}  # fmt: skip
FILTERS = {"settleCoin": "settleCoin", "type": "type"}  # parameter: the field that it compares
FAULTS = ("10016", "10006", "502", "429", "cut", "reset")


class RandomExchange:
    """Answers for an account; `violations` lists requests against Bybit's rules."""

    def __init__(self, account: RandomAccount, seed: int, *, now_ms: Callable[[], int]) -> None:
        self.account = account
        self.random = Random(seed)
        self.violations: list[str] = []
        self.repeated = 0
        self._now_ms = now_ms
        # By the seed, so that any twelve in a row have them all, and most of their pairs.
        self._by_offset = seed % 4 == 1
        self._fault_rate = (0.0, 0.05, 0.15, 0.0)[seed % 4]
        self._repeat_rate = 0.3 if seed % 3 == 0 else 0.0
        self._late_rate = 0.1 if seed % 5 == 2 else 0.0
        self._empty_last = self.random.random() < 0.5  # the last page has a cursor nevertheless

    def answer(self, path: str, query: Query) -> Answer | None:
        """Status and body; None to close the connection."""
        fault = self.random.choice(FAULTS) if self.random.random() < self._fault_rate else ""
        if fault == "reset":
            return None
        if fault in ("502", "429"):
            return int(fault), b"<html>no</html>"
        if fault in ("10016", "10006"):
            return 200, self._body({}, int(fault))
        result = self._result(path, query)
        body = self._body(result) if isinstance(result, dict) else self._body({}, result)
        return 200, body[: len(body) // 2] if fault == "cut" else body

    def _body(self, result: Any, code: int = 0) -> bytes:
        return json.encode(
            {"retCode": code, "retMsg": "", "result": result, "retExtInfo": {},
             "time": self._now_ms()}
        )  # fmt: skip

    def _result(self, path: str, query: Query) -> dict[str, Any] | int:
        fixed = {
            "/v5/user/query-api": {"userID": int(UID), "readOnly": 1, "permissions": {}},
            "/v5/account/info": {"unifiedMarginStatus": 5},
            "/v5/account/wallet-balance": {"list": [{"coin": self._held("wallet")}]},
            "/v5/asset/transfer/query-account-coins-balance": {"balance": self._held("fund")},
        }
        if path in fixed:
            return fixed[path]
        if path == "/v5/market/instruments-info":
            return {"list": _markets(query["category"]), "nextPageCursor": ""}
        if path.startswith("/v5/pre-upgrade/"):  # it never had another mode
            return {"list": [], "nextPageCursor": ""}
        listing = LISTINGS.get(path)
        return 10017 if listing is None else self._page(path, listing, query)

    def _held(self, name: str) -> list[Any]:
        return [served.row for served in self.account.lists[name]]

    def _page(self, path: str, listing: Listing, query: Query) -> dict[str, Any] | int:
        if self.random.random() < self._late_rate:
            self._book()
        try:
            start_ms = int(query[listing.start]) * listing.unit_ms
            end_ms = int(query[listing.end]) * listing.unit_ms
            limit = int(query["limit"])
        except (LookupError, ValueError):
            return self._violation(f"{path}: no bounds or limit in {query}")
        if start_ms > end_ms or end_ms - start_ms > listing.days * DAY_MS:
            return self._violation(f"{path}: a window of {end_ms - start_ms} ms")
        if not 1 <= limit <= listing.limit_max:
            return self._violation(f"{path}: a limit of {limit}")
        if path == "/v5/asset/withdraw/query-record" and query.get("withdrawType") != "2":
            return self._violation("withdrawals to users are left out")
        found = self._found(listing, query, start_ms, end_ms)
        following = found[self._start(found, query.get("cursor", "")) :]
        page = following[:limit]
        more = len(following) > limit or (self._empty_last and page)
        cursor = self._cursor(found, page[-1]) if more and listing.cursors else ""
        if cursor and query.get("cursor") and self.random.random() < self._repeat_rate:
            self.repeated += 1
            cursor = query["cursor"]
        return {listing.rows: [served.row for served in page], "nextPageCursor": cursor}

    def _violation(self, text: str) -> int:
        self.violations.append(text)
        return 10001

    def _book(self) -> None:
        """Add an event while the account is read."""
        self.account.late = True
        for make in (self.account.deposit, self.account.spot_order, self.account.booked):
            make()
        self.account.late = False

    def _found(self, listing: Listing, query: Query, start_ms: int, end_ms: int) -> list[Served]:
        """The rows that match a query, newest first."""
        grain = listing.grain_ms
        name = listing.name.format(category=query.get("category", ""))
        return sorted(
            (
                served
                for served in self.account.lists.get(name, [])
                if start_ms // grain <= served.filter_ms // grain <= end_ms // grain
                and all(
                    served.row.get(field) == query[name]
                    for name, field in FILTERS.items()
                    if name in query
                )
            ),
            key=lambda served: (-served.filter_ms, -served.seq),
        )

    def _cursor(self, found: list[Served], last: Served) -> str:
        place = str(found.index(last) + 1) if self._by_offset else f"{last.filter_ms}:{last.seq}"
        return b64encode(place.encode()).decode().replace("=", "%3D")

    def _start(self, found: list[Served], cursor: str) -> int:
        """The index at which a page begins."""
        if not cursor:
            return 0
        place = b64decode(unquote(cursor)).decode()
        if self._by_offset:
            return int(place)
        at_ms, seq = map(int, place.split(":"))
        return sum((-each.filter_ms, -each.seq) <= (-at_ms, -seq) for each in found)


def _markets(category: str) -> list[Any]:
    return [
        {"symbol": symbol, "baseCoin": base, "quoteCoin": quote, "settleCoin": settle,
         "contractType": "LinearPerpetual", "deliveryTime": "0"}
        for symbol, (base, quote, settle) in MARKETS[category].items()
    ]  # fmt: skip


@asynccontextmanager
async def listening(exchange: RandomExchange) -> AsyncIterator[str]:
    """Serve on a free loopback port; yields the URL."""

    async def answer(reader: asyncio.StreamReader) -> bytes | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path, _, text = head.split(" ", 2)[1].partition("?")
        answered = exchange.answer(path, dict(parse_qsl(text, keep_blank_values=True)))
        if answered is None:
            return None
        status, body = answered
        return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)

    async with listening_on_loopback(answer) as url:
        yield url
