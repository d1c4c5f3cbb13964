"""The simulated Fennec: one account behind its invented protocol, made of `simulator.accounts`."""

import hashlib
import hmac
from collections.abc import Callable
from random import Random
from typing import Any, Final

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults, RisingStamps, RollingCount
from onebook.simulator.accounts.history import (
    UNIT,
    BadCursor,
    CursorCodec,
    Entry,
    HistoryTable,
    Pager,
    WalletBalances,
    product,
    shown,
)

API_KEY, SECRET, PASSPHRASE = "fennec-key-0000000", "fennec-secret-000000", "desert fox 42"
WEEK_MS: Final = 7 * DAY_MS
SIZE_MAX: Final = {"fills": 20, "orders": 20, "ledger": 50, "withdrawals": 20, "deposits": 10}
CODEC: Final = CursorCodec(
    write=lambda first, last: f"after-{last.seq}",
    read=lambda text: (-1, int(text.removeprefix("after-"))),
)


class FennecAccount:
    """A history of so many days: what is in the lists is in the ledger, and adds up to `held`."""

    def __init__(self, now_ms: int, *, days: int = 40, orders_a_day: int = 12) -> None:
        self.tables = {name: HistoryTable() for name in SIZE_MAX}
        self.wallet = WalletBalances()
        self._random = Random(3)
        self._seq = 0
        start_ms = now_ms - days * DAY_MS
        self._deposit(start_ms, "USDT", 50_000_000 * UNIT)
        self._deposit(start_ms, "BTC", 1_000 * UNIT)
        for day in range(days):
            day_ms = start_ms + day * DAY_MS + 60_000
            busy = 6 if day == days - 3 else 1
            for index in range(orders_a_day * busy):
                self._order(day_ms + index * (DAY_MS - 120_000) // (orders_a_day * busy))
            self._deposit(day_ms + DAY_MS - 100_000, "USDT", (day + 1) * UNIT)
            if day % 2:
                self._withdraw(day_ms + DAY_MS - 90_000, "USDT", (day + 5) * UNIT)

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _book(
        self, at_ms: int, coin: str, flow: int, *, kind: str, fee: int = 0, fill: str = ""
    ) -> None:
        balance, seq = self.wallet.book(coin, flow - fee), self._next()
        line = {
            "id": f"L{seq}", "at": at_ms, "coin": coin, "flow": shown(flow), "fee": shown(fee),
            "change": shown(flow - fee), "balance": shown(balance), "kind": kind, "fill": fill,
        }  # fmt: skip
        self.tables["ledger"].append(at_ms, seq, line)

    def _deposit(self, at_ms: int, coin: str, amount: int) -> None:
        seq = self._next()
        row = {"id": f"D{seq}", "at": at_ms, "coin": coin, "amount": shown(amount)}
        self.tables["deposits"].append(at_ms, seq, row)
        self._book(at_ms + 2_000, coin, amount, kind="deposit")

    def _withdraw(self, at_ms: int, coin: str, amount: int) -> None:
        seq, fee = self._next(), UNIT
        row = {
            "id": f"W{seq}", "at": at_ms, "coin": coin, "amount": shown(amount), "fee": shown(fee)
        }  # fmt: skip
        self.tables["withdrawals"].append(at_ms, seq, row)
        self._book(at_ms, coin, -amount, kind="withdrawal", fee=fee)

    def _order(self, at_ms: int) -> None:
        order, buy, parts = f"O{self._next()}", self._random.random() < 0.5, (1, 1, 2, 3)
        fills = [
            self._fill(at_ms + 1_000 * n, order, buy=buy) for n in range(self._random.choice(parts))
        ]
        row = {
            "id": order, "at": at_ms, "pair": "BTC-USDT", "side": "buy" if buy else "sell",
            "size": shown(sum(size for size, _ in fills)),
            "value": shown(sum(value for _, value in fills)),
        }  # fmt: skip
        self.tables["orders"].append(at_ms, self._next(), row)

    def _fill(self, at_ms: int, order: str, *, buy: bool) -> tuple[int, int]:
        size = self._random.randrange(1, 500) * UNIT // 1_000
        price = self._random.randrange(5_000_000, 6_000_000) * UNIT // 100
        value, seq = product(size, price), self._next()
        fee, sign = product(value, UNIT // 1_000), 1 if buy else -1
        row = {
            "id": f"F{seq}", "at": at_ms, "order": order, "pair": "BTC-USDT",
            "side": "buy" if buy else "sell", "size": shown(size), "price": shown(price),
            "value": shown(value), "fee": shown(fee),
        }  # fmt: skip
        self.tables["fills"].append(at_ms, seq, row)
        self._book(at_ms, "BTC", sign * size, kind="trade", fill=f"F{seq}")
        self._book(at_ms, "USDT", -sign * value, kind="trade", fee=fee, fill=f"F{seq}")
        return size, value


class FennecRefused(Exception):
    """An answer that is an error."""


class SimulatedFennec:
    """The exchange as an ASGI application: counts what it is asked, refuses what is wrong."""

    def __init__(
        self,
        account: FennecAccount,
        *,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        faults: AccountFaults | None = None,
        per_second: int = 500,
    ) -> None:
        self.account = account
        self.faults = faults or AccountFaults()
        self.requests: list[str] = []
        self.at_once_max = 0
        self.lost: set[str] = set()  # rows that the lists do not show
        self.cursors: set[str] = set()  # that it gave and still knows
        self._at_once = 0
        self._now_ms = now_ms
        self._nonces = RisingStamps()
        self._limit = RollingCount(per_second, 1.0)
        self._pagers = {name: Pager(oldest_first=name != "deposits") for name in account.tables}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self._at_once += 1
        self.at_once_max = max(self.at_once_max, self._at_once)
        try:
            response = await self._respond(request)
            await response(scope, receive, send)
        finally:
            self._at_once -= 1

    async def _respond(self, request: Request) -> Response:
        path, raw = request.url.path, await request.body()
        self.requests.append(path)
        if (fault := self.faults.next(path)) == "503":
            return Response("busy", 503)
        try:
            if fault:
                raise FennecRefused(fault)
            body = {"ok": True, "time": self._now_ms(), "data": self._data(request, path, raw)}
        except FennecRefused as refused:
            body = {"ok": False, "time": self._now_ms(), "error": str(refused)}
        return Response(json.encode(body), media_type="application/json")

    def _data(self, request: Request, path: str, raw: bytes) -> Any:
        if path == "/public/pairs":
            return [{"pair": "BTC-USDT", "base": "BTC", "quote": "USDT"}]
        asked = self._authenticated(request, path, raw)
        name = path.removeprefix("/private/")
        if name == "me":
            return {"id": "fox", "can": ["read"]}
        if name == "balances":
            return [{"coin": c, "total": shown(n)} for c, n in self.account.wallet.held.items()]
        return self._listing(name, asked)

    def _authenticated(self, request: Request, path: str, raw: bytes) -> dict[str, Any]:
        get, asked = request.headers.get, json.decode(raw)
        if request.method != "POST" or get("fennec-key") != API_KEY:
            raise FennecRefused("key")
        sign = hmac.new(SECRET.encode(), path.encode() + raw, hashlib.sha512).hexdigest()
        if not hmac.compare_digest(sign, get("fennec-sign") or ""):
            raise FennecRefused("sign")
        if get("fennec-pass") != PASSPHRASE:
            raise FennecRefused("passphrase")
        if not self._nonces.accept(API_KEY, asked.pop("nonce")):
            raise FennecRefused("nonce")
        if not self._limit.count_request(self._now_ms())[0]:
            raise FennecRefused("limit")
        return asked

    def _listing(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        table, size = self.account.tables[name], asked["size"]
        bounds = (0, len(table))
        if name != "deposits":  # that list takes no times
            if asked["to"] - asked["from"] > WEEK_MS:
                raise FennecRefused("range")
            bounds = table.between(asked["from"], asked["to"], 1)
        if size > SIZE_MAX[name]:
            raise FennecRefused("size")
        if (cursor := asked.get("cursor", "")) and cursor not in self.cursors:
            raise FennecRefused("cursor")
        try:
            entries, cursor = self._pagers[name].page(
                table, bounds, query=name, cursor=cursor, limit=size,
                codec=CODEC, wanted=self._shown,
            )  # fmt: skip
        except BadCursor:
            raise FennecRefused("cursor") from None
        more = cursor if len(entries) == size else ""
        self.cursors.add(more)
        return {"rows": [entry.facts for entry in entries], "cursor": more}

    def _shown(self, entry: Entry) -> bool:
        return entry.facts["id"] not in self.lost
