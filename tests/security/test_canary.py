"""No secret is in anything that a node writes: log, files, responses, metrics.

A process with debug logs serves every endpoint rightly and wrongly, loses a table of its database,
is killed, starts again and stops; then every byte that it left is searched.
"""

import asyncio
import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from onebook.accounts import Admin
from onebook.accounts.pepper import load_pepper
from onebook.model import DAY_MS, Tier
from onebook.simulator import SimulatedExchanges
from onebook.simulator.accounts.bybit import Account, History, SimulatedBybit, SimulatedKey
from onebook.simulator.accounts.serving import serving
from onebook.store import AuditedChange, Store
from onebook.transactions.credentials import Credentials, MasterKeys, Vault
from security.canaries import Canaries
from security.rig import (
    AUTHENTICATE,
    EXCHANGE_KEY,
    MASTER_KEY,
    STATUS,
    TRANSACTIONS,
    USAGE,
    VALIDATE,
)

PATIENCE_S = 30.0
WRONG_KEY = SimulatedKey("CANARYwrongkey00001", "CANARYwrongsecret0000000000000000001")
HOMES = ("onebook.toml", "pepper")  # where secrets live; all else is searched


class Visitor:
    """A client that keeps every received byte, except the response that issues a session."""

    def __init__(self, port: int, key: str, canaries: Canaries) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.key = key
        self.token = "obs_" + "0" * 43
        self.received = bytearray()
        self.statuses: set[int] = set()
        self._canaries = canaries

    async def everything(self) -> None:
        async with httpx.AsyncClient(base_url=self.base, timeout=PATIENCE_S) as http:
            await self._authenticate(http)
            await self._endpoints(http)
            await self._mistakes(http)
        await self._sockets()

    async def ask(self, http: httpx.AsyncClient, method: str, path: str, **kwargs: object) -> None:
        answer = await http.request(method, path, **kwargs)  # type: ignore[arg-type]
        self.statuses.add(answer.status_code)
        self.received += repr(answer.headers.raw).encode() + answer.content

    async def _authenticate(self, http: httpx.AsyncClient) -> None:
        answer = await http.post(AUTHENTICATE, json={"api_key": self.key})
        self.statuses.add(answer.status_code)
        if answer.status_code == 200:
            self.token = answer.json()["session_token"]
            self._canaries.add("session token", self.token)
        else:
            self.received += answer.content

    async def _endpoints(self, http: httpx.AsyncClient) -> None:
        bearer = {"Authorization": f"Bearer {self.token}"}
        query = {"exchange": "bybit", "transaction_types": ["trades", "deposits"], "limit": 20}
        for path in ("/", "/docs", "/openapi.json", "/asyncapi.json", "/livez", "/readyz"):
            await self.ask(http, "GET", path)
        for path in (STATUS, "/api/v1/health", "/api/v1/", USAGE + self.key, "/api/v1/exchanges"):
            await self.ask(http, "GET", path, headers=bearer)
        for path in ("/api/v1/exchanges/credentials", "/api/v1/transactions/types"):
            await self.ask(http, "GET", path, headers=bearer)
        ndjson = bearer | {"Accept": "application/x-ndjson"}
        for headers in (bearer, ndjson):
            await self.ask(http, "POST", TRANSACTIONS, json=query, headers=headers)
        for testnet in (False, True):  # those of the testnet are wrong
            body = {"exchange": "bybit", "testnet": testnet}
            await self.ask(http, "POST", VALIDATE, json=body, headers=bearer)
            await self.ask(http, "POST", TRANSACTIONS, json=query | body, headers=bearer)
        await self.ask(http, "GET", "/metrics")

    async def _mistakes(self, http: httpx.AsyncClient) -> None:
        """Send secrets in wrong places."""
        key, token = self.key, self.token
        wrong = key[:-1] + ("a" if key[-1] != "a" else "b")
        self._canaries.add("mistyped key", wrong)
        bearer = {"Authorization": f"Bearer {token}"}
        for path in (f"/{key}", f"{USAGE}{wrong}", f"{USAGE}{key}/x", f"/api/v1/health?k={key}"):
            await self.ask(http, "GET", path)
        await self.ask(http, "POST", USAGE + key)
        await self.ask(http, "GET", f"{STATUS}?token={token}")
        for header in (f"Bearer {key}", f"Basic {token}", token, f"Bearer {token}{token}"):
            await self.ask(http, "GET", STATUS, headers={"Authorization": header})
        await self.ask(http, "GET", STATUS, headers={"X-Api-Key": key, "Cookie": f"t={token}"})
        for body in (f'{{"api_key": "{key}"', f'"{key}"', f'{{"{key}": 1}}'):
            await self.ask(http, "POST", AUTHENTICATE, content=body)
            await self.ask(http, "POST", TRANSACTIONS, content=body, headers=bearer)
        await self.ask(http, "POST", AUTHENTICATE, json={"api_key": wrong})
        for field in ("exchange", "cursor", "start_time", "limit", "transaction_types"):
            body = {"exchange": "bybit", field: [key] if field.endswith("types") else token}
            await self.ask(http, "POST", TRANSACTIONS, json=body, headers=bearer)

    async def _sockets(self) -> None:
        url = self.base.replace("http", "ws", 1) + "/api/v1/ws"
        for query in ("", f"?api_key={self.key}", f"?api_key={self.token}", f"?token={self.token}"):
            for first in (
                {"type": "authenticate", "api_key": self.key},
                {"type": "authenticate", "session_token": self.token},
                {"type": "authenticate", "api_key": self.token},
                {"type": self.key},
                f'{{"api_key": "{self.key}"',
            ):
                with suppress(WebSocketException, OSError):
                    async with connect(url + query, compression=None, close_timeout=1) as client:
                        await client.send(first if isinstance(first, str) else json.dumps(first))
                        for symbol in ("BTC/USDT", self.key):
                            message = {"type": "subscribe_aggregated", "symbol": symbol}
                            await client.send(json.dumps(message))
                        with suppress(TimeoutError):
                            async with asyncio.timeout(0.05):
                                while True:
                                    said = await client.recv(decode=False)
                                    self.received += bytes(said)


@asynccontextmanager
async def process(folder: Path, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """A node with all its output in a file."""
    with log.open("ab") as out:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "onebook", "serve"),
            *("--config", str(folder / "onebook.toml"), "--log-level", "debug"),
            stdout=out,
            stderr=out,
            env={**os.environ, "XDG_DATA_HOME": str(folder)},
        )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def listening(log: Path, count: int) -> int:
    """The port of the `count`-th start, from the log."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            lines = log.read_text().splitlines() if log.exists() else []
            starts = [line for line in lines if "listens on http" in line]
            if len(starts) >= count:
                return int(starts[count - 1].split("http://127.0.0.1:")[1].split(".")[0])
            await asyncio.sleep(0.05)


async def furnished(folder: Path, bybit_url: str, urls: tuple[str, str]) -> str:
    """Make settings, a database, a key and credentials; return the key."""
    url = f"sqlite+aiosqlite:///{folder / 'onebook.db'}"
    (folder / "onebook.toml").write_text(
        f'[server]\nport = 0\n[store]\nurl = "{url}"\npepper_file = "{folder / "pepper"}"\n'
        f'[transactions]\nmaster_key = "{MASTER_KEY}"\n'
        f"[transactions.overrides.bybit]\n"
        f'mainnet_url = "{bybit_url}"\ntestnet_url = "{bybit_url}"\n'
        '[feeds]\nexchanges = ["kraken"]\n'
        f'[feeds.overrides.kraken]\nws_url = "{urls[0]}"\nrest_url = "{urls[1]}"\n'
    )
    (folder / "onebook.toml").chmod(0o600)
    now_ms = time.time_ns() // 1_000_000
    async with Store(url) as store:
        await store.database.upgrade()
        admin = Admin(store, load_pepper(folder / "pepper"))
        change = AuditedChange(now_ms, "operator", "canary")
        await admin.create_account("alice", change)
        made = await admin.create_key("alice", Tier.PREMIUM, change)
        vault = Vault(store.credentials, MasterKeys(None, value=MASTER_KEY))
        for environment, key in (("mainnet", EXCHANGE_KEY), ("testnet", WRONG_KEY)):
            credentials = Credentials(key.api_key, key.secret)
            assert key.secret not in repr(credentials)
            await vault.put("bybit", environment, credentials, now_ms=now_ms)
        assert made.text not in repr(made)
    return made.text


async def test_no_secret_is_in_anything_that_a_node_writes(tmp_path: Path) -> None:
    folder, log = tmp_path / "node", tmp_path / "log"
    folder.mkdir()
    now_ms = time.time_ns() // 1_000_000
    bybit = SimulatedBybit(
        Account(History(now_ms - 5 * DAY_MS, now_ms, executions=60)), [EXCHANGE_KEY]
    )
    canaries = Canaries()
    async with (
        SimulatedExchanges(["kraken"], seed=3, rate_hz=20) as simulated,
        serving(bybit) as bybit_url,
    ):
        key = await furnished(folder, bybit_url, simulated.urls["kraken"])
        canaries.add("key", key)
        canaries.add("master key", MASTER_KEY)
        canaries.add("pepper", load_pepper(folder / "pepper").current)
        for each in (EXCHANGE_KEY, WRONG_KEY):
            canaries.add("exchange key", each.api_key)
            canaries.add("exchange secret", each.secret)
        async with process(folder, log) as running:
            visitor = Visitor(await listening(log, 1), key, canaries)
            await visitor.everything()
            assert {200, 400, 401, 404, 405} <= visitor.statuses
            with sqlite3.connect(folder / "onebook.db", timeout=10) as database:
                database.execute("ALTER TABLE sessions RENAME TO gone")
            database.close()
            await visitor.everything()
            assert visitor.statuses & {500, 503}, "a defect was provoked"
            running.kill()
            await running.wait()
        left = canaries.found_in_files(files(folder))
        with sqlite3.connect(folder / "onebook.db") as database:
            database.execute("ALTER TABLE gone RENAME TO sessions")
        database.close()
        async with process(folder, log) as running:
            again = Visitor(await listening(log, 2), key, canaries)
            await again.everything()
            running.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE_S):
                assert await running.wait() == 0
    assert canaries.found_in_files(folder / name for name in HOMES).keys() == set(HOMES)
    assert left == {}, "of the node that was killed"
    assert canaries.found_in_files(files(folder)) == {}
    assert canaries.found_in(log.read_bytes()) == set()
    assert canaries.found_in(bytes(visitor.received + again.received)) == set()
    assert b'"debug"' in log.read_bytes()
    assert len(visitor.received) > 100_000


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in HOMES]
