"""A client of the simulated Kraken that signs as the documentation says, independent of it."""

import hashlib
import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
from msgspec import json

from onebook.model import DAY_MS
from onebook.simulator.accounts.kraken import (
    KrakenAccount,
    KrakenHistory,
    SimulatedFuturesKey,
    SimulatedKraken,
    SimulatedKrakenFutures,
    SimulatedKrakenKey,
)
from onebook.simulator.accounts.serving import SimulatedTransport

NOW_MS = 1_792_000_000_000  # October 2026
SECRET = "kQH5HW/8p1uGOVjbgWA7FunAmGO8lsSUXNsu3eow76sz84Q18fWxnyRzBHCd3pd5nE9qa99HAZtuZuj6F1huXg=="
KEY = SimulatedKrakenKey("spot-key-000000000000000000000000000000000000000000000000", SECRET)
FUTURES_KEY = SimulatedFuturesKey("futures-key-0000000000000000000000000000000000000000000", SECRET)
HISTORY = KrakenHistory(NOW_MS - 1_800 * DAY_MS, NOW_MS, rows=2_400)
ACCOUNT = KrakenAccount(HISTORY)


def spot(account: KrakenAccount = ACCOUNT, **options: Any) -> SimulatedKraken:
    """An exchange whose clock stands still."""
    key = options.pop("key", KEY)
    options.setdefault("now_ms", lambda: NOW_MS)
    return SimulatedKraken(account, [key], **options)


def futures(account: KrakenAccount = ACCOUNT, **options: Any) -> SimulatedKrakenFutures:
    key = options.pop("key", FUTURES_KEY)
    options.setdefault("now_ms", lambda: NOW_MS)
    return SimulatedKrakenFutures(account, [key], **options)


class SpotClient:
    """Requests of the spot API."""

    def __init__(self, exchange: SimulatedKraken, key: SimulatedKrakenKey = KEY) -> None:
        self.key = key
        self.nonce = NOW_MS
        self.http = httpx.AsyncClient(
            transport=SimulatedTransport(exchange), base_url="http://simulated"
        )

    async def send(
        self, name: str, *, nonce: int | None = None, sign: str = "", **fields: Any
    ) -> httpx.Response:
        self.nonce += 1
        stamp = str(self.nonce if nonce is None else nonce)
        path, body = f"/0/private/{name}", urlencode({"nonce": stamp, **fields})
        inner = hashlib.sha256((stamp + body).encode()).digest()
        made = hmac.new(b64decode(self.key.secret), path.encode() + inner, hashlib.sha512)
        headers = {
            "API-Key": self.key.api_key, "API-Sign": sign or b64encode(made.digest()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
        }  # fmt: skip
        return await self.http.post(path, content=body, headers=headers)

    async def ask(self, name: str, **fields: Any) -> Any:
        """The result of a request that must succeed."""
        response = await self.send(name, **fields)
        assert response.status_code == 200
        body = json.decode(response.content)
        assert body["error"] == [], body
        return body["result"]

    async def error(self, name: str, **fields: Any) -> str:
        """The only error of a request that must fail, with HTTP 200."""
        response = await self.send(name, **fields)
        assert response.status_code == 200
        body = json.decode(response.content)
        assert "result" not in body
        (error,) = body["error"]
        return error

    async def public(self, name: str, **fields: Any) -> Any:
        response = await self.http.get(f"/0/public/{name}", params=fields)
        body = json.decode(response.content)
        assert body["error"] == []
        return body["result"]

    async def walk(self, name: str, rows: str, **fields: Any) -> dict[str, Any]:
        """Every row of a list along its offsets."""
        found: dict[str, Any] = {}
        while True:
            page = (await self.ask(name, ofs=len(found), **fields))[rows]
            assert not found.keys() & page.keys()
            found |= page
            if len(page) < 50:
                return found


class FuturesClient:
    """Requests of the futures API."""

    def __init__(self, exchange: SimulatedKrakenFutures, key: SimulatedFuturesKey = FUTURES_KEY):
        self.key = key
        self.http = httpx.AsyncClient(
            transport=SimulatedTransport(exchange), base_url="http://simulated"
        )

    async def send(self, path: str, query: str = "", *, nonce: str = "") -> httpx.Response:
        signed = query + nonce + path.removeprefix("/derivatives")
        inner = hashlib.sha256(signed.encode()).digest()
        made = hmac.new(b64decode(self.key.secret), inner, hashlib.sha512).digest()
        headers = {"APIKey": self.key.api_key, "Authent": b64encode(made).decode()}
        headers |= {"Nonce": nonce} if nonce else {}
        return await self.http.get(f"{path}?{query}" if query else path, headers=headers)

    async def ask(self, path: str, query: str = "") -> Any:
        response = await self.send(path, query)
        assert response.status_code == 200, response.text
        body = json.decode(response.content)
        assert body.get("result", "success") == "success", body
        return body

    async def walk_log(self, count: int = 1_000) -> Iterator[dict[str, Any]]:
        """Every row of the account log by rising ids."""
        rows: list[dict[str, Any]] = []
        while True:
            first = rows[-1]["id"] + 1 if rows else 1
            query = f"from={first}&sort=asc&count={count}"
            page = (await self.ask("/api/history/v3/account-log", query))["logs"]
            rows += page
            if len(page) < count:
                return iter(rows)
