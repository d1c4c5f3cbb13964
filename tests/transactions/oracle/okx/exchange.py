"""The exchange of one random OKX account: pages of any size, faults, and what OKX leaves open.

`begin` and `end` are inclusive or not, pages may be shorter than requested, and answers fail.
"""

from collections.abc import Callable
from random import Random
from urllib.parse import parse_qsl

import httpx
from msgspec import json

from transactions.oracle.okx.account import RandomOkx
from transactions.oracle.okx.exports import RandomOkxExports
from transactions.oracle.rows import DAY_MS, Row

Query = dict[str, str]
FAULTS = (
    (200, {"code": "0", "msg": ""}),
    (429, {"code": "50011", "data": [], "msg": "Too Many Requests"}),
    (503, {"code": "50001", "data": [], "msg": "Service temporarily unavailable"}),
    (200, {"code": "50026", "data": [], "msg": "System error"}),
    (520, "<html>520 cloudflare</html>"),
    (200, '{"code":"0","data":[{"bi'),
)


class RandomOkxExchange(httpx.AsyncBaseTransport):
    """Answers for an account; `violations` lists requests against OKX's rules."""

    def __init__(self, account: RandomOkx, seed: int, *, now_ms: Callable[[], int]) -> None:
        self.account = account
        self.random = Random(seed)
        self.violations: list[str] = []
        self._now_ms = now_ms
        self.exports: RandomOkxExports | None = None
        self._fault_rate = (0.0, 0.05, 0.12)[seed % 3]
        self._inclusive = seed % 2 == 0
        self._short = self.random.random() < 0.3  # pages that are shorter than requested
        self._bills = {name: account.balanced(name)[::-1] for name in ("trading", "funding")}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer one request."""
        if self.random.random() < self._fault_rate:
            if self.random.random() < 0.2:
                raise httpx.ReadError("reset", request=request)
            status, body = self.random.choice(FAULTS)
            text = body.encode() if isinstance(body, str) else json.encode(body)
            return httpx.Response(status, content=text)
        if self.exports is not None and request.url.path.endswith("bills-history-archive"):
            return self.exports.asked(request)
        query = dict(parse_qsl(request.url.query.decode()))
        rows = self._rows(request.url.path.removeprefix("/api/v5/"), query)
        return httpx.Response(200, content=json.encode({"code": "0", "msg": "", "data": rows}))

    def _rows(self, name: str, query: Query) -> list[Row]:
        now_ms = self._now_ms()
        if name in ("account/bills", "account/bills-archive"):
            kept = now_ms - (7 if name.endswith("bills") else 89) * DAY_MS
            rows = [row for row in self._bills["trading"] if int(row["ts"]) >= kept]
            return self._by_id(self._between(rows, query), query)
        if name in ("asset/bills", "asset/bills-history"):
            kept = now_ms - 30 * DAY_MS if name.endswith("bills") else 0
            rows = [row for row in self._bills["funding"] if int(row["ts"]) >= kept]
            by_time = query.get("pagingType", "1") == "1"
            return self._by_time(rows, query) if by_time else self._by_id(rows, query)
        if name == "trade/fills-history":
            rows = [
                row | {"billId": self._bill_of(row)} for row in self.account.rows["fills"]
                if row["instType"] == query["instType"]
            ]  # fmt: skip
            rows.sort(key=lambda row: -int(row["billId"]))
            return self._by_id(self._between(rows, query), query)
        lists = {"asset/deposit-history": "deposits", "asset/withdrawal-history": "withdrawals",
                 "asset/convert/history": "converts"}  # fmt: skip
        if name in lists:
            rows = sorted(self.account.rows[lists[name]], key=lambda row: -int(row["ts"]))
            return self._by_time(rows, query)
        if name == "account/balance":
            held = self.account.held("trading").items()
            return [{"details": [{"ccy": ccy, "cashBal": amount} for ccy, amount in held]}]
        if name == "asset/balances":
            held = self.account.held("funding").items()
            return [{"ccy": ccy, "bal": amount} for ccy, amount in held]
        if name == "account/config":
            return [{"uid": "12345", "perm": "read_only"}]
        if name in ("finance/savings/balance", "finance/staking-defi/orders-active",
                    "fiat/deposit-order-history", "fiat/withdrawal-order-history",
                    "public/instruments"):  # fmt: skip
            return []
        self.violations.append(name)
        return []

    def _bill_of(self, fill: Row) -> str:
        return next(
            row["billId"] for row in self._bills["trading"]
            if (row["ordId"], row["tradeId"]) == (fill["ordId"], fill["tradeId"])
        )  # fmt: skip

    def _between(self, rows: list[Row], query: Query) -> list[Row]:
        begin, end = int(query.get("begin", "0")), int(query.get("end", str(1 << 60)))
        if self._inclusive:
            return [row for row in rows if begin <= int(row["ts"]) <= end]
        return [row for row in rows if begin < int(row["ts"]) < end]

    def _by_id(self, rows: list[Row], query: Query) -> list[Row]:
        after = int(query.get("after", str(1 << 62)))
        return self._page([row for row in rows if int(row["billId"]) < after], query)

    def _by_time(self, rows: list[Row], query: Query) -> list[Row]:
        after, before = int(query.get("after", str(1 << 60))), int(query.get("before", "-1"))
        return self._page([row for row in rows if before < int(row["ts"]) < after], query)

    def _page(self, rows: list[Row], query: Query) -> list[Row]:
        limit = int(query.get("limit", "100"))
        if not 1 <= limit <= 100:
            self.violations.append(f"a limit of {limit}")
        if self._short:
            limit = max(1, limit - self.random.randrange(limit))
        return rows[:limit]
