"""A client of the simulated OKX that signs as the documentation says, independent of it."""

import hashlib
import hmac
from base64 import b64encode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import httpx
from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.okx import OkxAccount, OkxHistory, SimulatedOkx, SimulatedOkxKey
from onebook.simulator.accounts.serving import SimulatedTransport

NOW_MS = 1_792_000_000_000  # October 2026
SECRET = "mysecret0000000000000000000000000000"
KEY = SimulatedOkxKey("00000000-1111-4222-8333-444444444444", SECRET, "Pass-Phrase1")
HISTORY = OkxHistory(NOW_MS - 1_800 * DAY_MS, NOW_MS, rows=2_400)
ACCOUNT = OkxAccount(HISTORY)
Row = dict[str, Any]


class Clock:
    """A clock that tests move."""

    def __init__(self, ms: int = NOW_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


def okx(account: OkxAccount = ACCOUNT, **options: Any) -> SimulatedOkx:
    """An exchange whose clock stands still."""
    key = options.pop("key", KEY)
    options.setdefault("now_ms", lambda: NOW_MS)
    return SimulatedOkx(account, [key], **options)


class OkxClient:
    """Requests of the private API; its clock is that of the tests."""

    def __init__(
        self, exchange: SimulatedOkx | str, key: SimulatedOkxKey = KEY, clock: Any = lambda: NOW_MS
    ) -> None:
        self.key = key
        self.clock = clock
        served = isinstance(exchange, str)
        self.http = httpx.AsyncClient(
            transport=None if served else SimulatedTransport(exchange),
            base_url=exchange if served else "http://simulated",
        )

    async def send(
        self,
        name: str,
        method: str = "GET",
        body: Row | None = None,
        *,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> httpx.Response:
        path = f"/api/v5/{name}"
        target = f"{path}?{urlencode(fields)}" if fields else path
        content = json.encode(body) if body is not None else b""
        ms = self.clock()
        at = datetime.fromtimestamp(ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        stamp = f"{at}.{ms % 1_000:03}Z"
        message = (stamp + method + target).encode() + content
        made = hmac.new(self.key.secret.encode(), message, hashlib.sha256).digest()
        sent = {
            "OK-ACCESS-KEY": self.key.api_key, "OK-ACCESS-SIGN": b64encode(made).decode(),
            "OK-ACCESS-TIMESTAMP": stamp, "OK-ACCESS-PASSPHRASE": self.key.passphrase,
            "Content-Type": "application/json",
        } | ({"x-simulated-trading": "1"} if self.key.demo else {})  # fmt: skip
        sent = {name: text for name, text in (sent | (headers or {})).items() if text}
        return await self.http.request(method, target, content=content, headers=sent)

    async def ask(self, name: str, **fields: Any) -> list[Row]:
        """The data of a request that must succeed."""
        response = await self.send(name, **fields)
        body = json.decode(response.content)
        assert (response.status_code, body["code"]) == (200, "0"), body
        found: list[Row] = body["data"]
        return found

    async def error(self, name: str, method: str = "GET", body: Row | None = None, **fields: Any):
        """The HTTP status and code of a request that must fail."""
        response = await self.send(name, method, body, **fields)
        found = json.decode(response.content)
        assert found["code"] != "0", found
        assert found["msg"]
        return response.status_code, found["code"]

    async def apply(self, year: str, quarter: str, **more: str) -> Row:
        body = {"year": year, "quarter": quarter} | more
        response = await self.send("account/bills-history-archive", "POST", body)
        found = json.decode(response.content)
        assert found["code"] == "0", found
        row: Row = found["data"][0]
        return row

    async def walk(self, name: str, by: str, **fields: Any) -> list[Row]:
        """Every row of a list, newest first, paged by one of its fields."""
        found: list[Row] = []
        while True:
            page = await self.ask(name, **fields, **({"after": found[-1][by]} if found else {}))
            found += page
            if len(page) < int(fields.get("limit", 100)):
                return found
