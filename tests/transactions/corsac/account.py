"""The simulated Corsac: wallets with their rows, grants, a vault; weights, regions, demo."""

import hashlib
import hmac
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, Final

from msgspec import json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.history import UNIT, WalletBalances, shown

KEYS: Final = {"corsac-key-000000": "corsac-secret-000", "vault-key-0000000": "vault-secret-0000"}
COINS: Final = ("BTC", "ETH", "SOL", "USDC", "EUR", "DOT", "ADA", "XRP")
GRANTS_SHOWN: Final = 5
WEIGHT_MAX, WEIGHT_MS = 200, 2_000


class CorsacAccount:
    """A history in which every row is once in `truth`, as (type, native id, amounts)."""

    def __init__(self, now_ms: int, *, days: int = 60, seed: int = 5) -> None:
        self.rows: dict[str, list[dict[str, Any]]] = {coin: [] for coin in (*COINS, "DUST")}
        self.grants: list[dict[str, Any]] = []
        self.vault: list[dict[str, Any]] = []
        self.snapshots: list[dict[str, Any]] = []
        self.wallet = WalletBalances()
        self.conversions = 0
        self._random = Random(seed)
        self._seq = 0
        start_ms = now_ms - days * DAY_MS
        for coin in COINS:
            self._book(coin, start_ms, "deposit", 1_000 * UNIT)
        for day in range(days):
            day_ms = start_ms + day * DAY_MS + 3_600_000
            for hour in range(6):
                self._convert(day_ms + hour * 3_000_000)
            self._book(self._random.choice(COINS), day_ms + 20_000_000, "reward", UNIT // 50)
            if day % 3 == 0:
                self._book(self._random.choice(COINS), day_ms + 21_000_000, "withdrawal", -UNIT)
            for _ in range(self._random.choice((0, 0, 1, 12))):
                at_ms = day_ms + self._random.randrange(3_600_000)
                grant = {"id": f"G{self._next()}", "at": at_ms, "coin": "ADA", "amount": "1"}
                self.grants.append(grant)
                self.wallet.book("ADA", UNIT)
            self.vault.append({"id": f"V{day}", "at": day_ms, "coin": "EUR", "amount": "2"})
            held = {coin: shown(amount) for coin, amount in self.wallet.held.items()}
            self.snapshots.append({"at": day_ms + 80_000_000, "held": held})

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def _book(self, coin: str, at_ms: int, kind: str, amount: int, trade: str = "") -> None:
        self.wallet.book(coin, amount)
        row = {"id": f"R{self._next()}", "at": at_ms, "type": kind, "amount": shown(amount)}
        self.rows[coin].append(row | ({"trade": trade} if trade else {}))

    def _convert(self, at_ms: int) -> None:
        """Two rows in two wallets, in either order, up to a second apart."""
        gives, takes = self._random.sample(COINS, 2)
        trade, amount = f"T{self._next()}", self._random.randrange(1, 90) * UNIT // 100
        late = self._random.randrange(900)
        times = (at_ms, at_ms + late) if self._random.random() < 0.5 else (at_ms + late, at_ms)
        self._book(gives, times[0], "convert", -amount, trade)
        self._book(takes, times[1], "convert", 2 * amount, trade)
        self.conversions += 1


class CorsacRefused(Exception):
    """An error answer."""


class SimulatedCorsac:
    """The exchange as an ASGI application; it tells its hosts apart by the Host header.

    Args:
        region: The host that knows the account.
        visible_from_ms: The key sees nothing older.
        others: Weight of each answer that another program of the user uses meanwhile.
    """

    def __init__(
        self,
        account: CorsacAccount,
        *,
        region: str = "localhost",
        visible_from_ms: int = 0,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        others: int = 0,
        demo: bool = False,
        withdraw: bool = False,
    ) -> None:
        self.account = account
        self.faults = AccountFaults()
        self.requests: list[str] = []
        self.refusals: list[str] = []
        self.lost: set[str] = set()  # rows that it does not show
        self._region = region
        self._visible_from_ms = visible_from_ms
        self._now_ms = now_ms
        self._others = others
        self._demo = demo
        self._withdraw = withdraw
        self._weights: deque[tuple[int, int]] = deque()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        self.requests.append(request.url.path)
        status, headers = 200, {}
        try:
            used = self._weighed(self._weight_of(request))
            headers["corsac-weight-used"] = str(used)
            body = {"data": self._data(request)}
        except CorsacRefused as refused:
            self.refusals.append(str(refused))
            status, body = 400, {"error": {"code": str(refused)}}
        content = json.encode(body)
        await Response(content, status, headers, media_type="application/json")(
            scope, receive, send
        )

    @staticmethod
    def _weight_of(request: Request) -> int:
        return 1 + int(request.query_params.get("limit", "0")) // 10

    def _weighed(self, weight: int) -> int:
        now_ms = self._now_ms()
        while self._weights and self._weights[0][0] <= now_ms - WEIGHT_MS:
            self._weights.popleft()
        used = sum(each for _, each in self._weights)
        if used + weight > WEIGHT_MAX:
            raise CorsacRefused("weight")
        self._weights.append((now_ms, weight + self._others))
        return used + weight + self._others

    def _data(self, request: Request) -> Any:
        self._authenticate(request)
        path, query = request.url.path, request.query_params
        if path == "/me":
            return {"withdraw": self._withdraw, "visible_from": self._visible_from_ms}
        if path == "/wallets":
            held = self.account.wallet.held
            return [
                {"id": f"w-{c}", "coin": c, "balance": shown(held[c])} for c in self.account.rows
            ]
        if path == "/staking":
            raise CorsacRefused("not_opened")
        if path == "/grants":
            return self._grants(int(query["from"]), int(query["to"]))
        if path == "/snapshots":
            return [one for one in self.account.snapshots if one["at"] <= int(query["to"])]
        if path == "/vault/rows":
            return {"rows": self.account.vault[::-1]}
        coin = path.removeprefix("/wallets/w-").removesuffix("/rows")
        return self._page(self.account.rows[coin], int(query["limit"]), query.get("after", ""))

    def _authenticate(self, request: Request) -> None:
        get, path = request.headers.get, request.url.path
        host = (request.url.hostname or "").lower()
        key = get("corsac-key") or ""
        if bool(get("corsac-demo")) != self._demo:
            raise CorsacRefused("demo")
        if path.startswith("/vault") != key.startswith("vault"):
            raise CorsacRefused("bad_key")
        if host != self._region and not path.startswith("/vault"):
            raise CorsacRefused("region")
        text = path + "?" + request.url.query
        sign = hmac.new(KEYS[key].encode(), text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(sign, get("corsac-sign") or ""):
            raise CorsacRefused("bad_sign")

    def _grants(self, from_ms: int, to_ms: int) -> dict[str, Any]:
        rows = [row for row in self.account.grants if from_ms <= row["at"] <= to_ms]
        rows.sort(key=lambda row: -row["at"])
        return {"rows": rows[:GRANTS_SHOWN], "total": len(rows)}

    def _page(self, rows: list[dict[str, Any]], limit: int, after: str) -> dict[str, Any]:
        newest = sorted(rows, key=lambda row: (row["at"], int(row["id"][1:])), reverse=True)
        newest = [row for row in newest if row["at"] >= self._visible_from_ms]
        newest = [row for row in newest if row["id"] not in self.lost]
        ids = [row["id"] for row in newest]
        start = ids.index(after) + 1 if after else 0
        shown_now = newest[start : start + max(1, limit - 1)]  # a page may be shorter than asked
        more = start + len(shown_now) < len(newest)
        return {"rows": shown_now, "more": shown_now[-1]["id"] if more else ""}
