"""The exchange of one random Kraken account, over HTTP: both hosts, faults, rows between pages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from random import Random
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from msgspec import Raw, json

from transactions.oracle.kraken.account import (
    ALTNAMES,
    COINS,
    CONTRACT,
    DELISTED,
    PAIRS,
    PRODUCTS,
    RandomKraken,
)
from transactions.oracle.loopback import listening_on_loopback
from transactions.oracle.rows import Row

Query = dict[str, str]
PAGE_ROWS = 50
FILTERS = (
    "trade", "deposit", "withdrawal", "transfer", "margin", "adjustment", "rollover", "credit",
    "settled", "staking", "dividend", "sale", "nft_rebate",
)  # fmt: skip
# How an error of each kind looks: HTTP status and body.
FAULTS = {
    "EService:Unavailable": (200, b'{"error":["EService:Unavailable"]}'),
    "EAPI:Rate limit exceeded": (200, b'{"error":["EAPI:Rate limit exceeded"]}'),
    "bare": (200, b'{"error":"EGeneral:Internal error"}'),
    "520": (520, b"<html>520 cloudflare</html>"),
    "cut": (200, b'{"error":[],"result":{"led'),
}
FUTURES_FAULTS = {
    "429": (429, b"Too many requests"),
    "502": (502, b"<html>502</html>"),
    "cut": (200, b'{"accountUid":"f92f'),
}


class Answer(NamedTuple):
    """An answer; a body of None closes the connection."""

    status: int
    body: bytes | None
    headers: tuple[str, ...] = ()


class RandomKrakenExchange:
    """Answers for an account; `violations` lists requests against Kraken's rules."""

    def __init__(self, account: RandomKraken, seed: int, *, now_ms: Callable[[], int]) -> None:
        self.account = account
        self.random = Random(seed)
        self.violations: list[str] = []
        self._now_ms = now_ms
        self._nonce = -1
        self._fault_rate = (0.0, 0.05, 0.12, 0.0)[seed % 4]
        self._late_rate = 0.1 if seed % 5 == 2 else 0.0
        self._counts_all = seed % 3 == 1  # `count` disregards type and start, as of old

    def answer(self, method: str, path: str, query: Query, body: Query) -> Answer:
        """The answer to a request."""
        faults = FUTURES_FAULTS if not path.startswith("/0/") else FAULTS
        if self.random.random() < self._fault_rate:
            fault = self.random.choice([*faults, "reset"])
            if fault == "reset":
                return Answer(200, None)
            status, text = faults[fault]
            return Answer(status, text, ("rate-limit-reset: 1",) if fault == "429" else ())
        if path.startswith("/0/private/"):
            return self._private(method, path.removeprefix("/0/private/"), body)
        if path.startswith("/0/public/"):
            return self._sent({"error": [], "result": self._public(path.rpartition("/")[2])})
        return self._futures(path, query)

    def _sent(self, body: Any) -> Answer:
        return Answer(200, json.encode(body))

    def _violation(self, text: str) -> Answer:
        self.violations.append(text)
        return self._sent({"error": ["EGeneral:Invalid arguments"]})

    # Spot -----------------------------------------------------------------------------------

    def _public(self, name: str) -> Any:
        if name == "Time":
            return {"unixtime": self._now_ms() // 1_000, "rfc1123": ""}
        if name == "Assets":
            names = [*COINS, *PRODUCTS, "KFEE"]
            return {
                each: {"aclass": "currency", "altname": ALTNAMES.get(each, each), "decimals": 10,
                       "display_decimals": 5}
                for each in names
            }  # fmt: skip
        if name == "AssetPairs":
            return {
                pair: {"altname": pair, "wsname": f"{COINS[base]}/{COINS[quote]}", "base": base,
                       "quote": quote, "pair_decimals": 5, "lot_decimals": 8}
                for pair, (base, quote) in PAIRS.items() if pair != DELISTED
            }  # fmt: skip
        return {"status": "online"}

    def _private(self, method: str, name: str, body: Query) -> Answer:
        nonce = body.get("nonce", "")
        if method != "POST" or not nonce.isdecimal() or int(nonce) <= self._nonce:
            return self._violation(f"{name}: {method}, nonce {nonce} after {self._nonce}")
        self._nonce = int(nonce)
        if name in ("Ledgers", "TradesHistory"):
            return self._listed(name, body)
        if name in ("DepositStatus", "WithdrawStatus"):
            return self._funding("deposit" if name == "DepositStatus" else "withdrawals", body)
        results = {
            "Balance": self._held, "BalanceEx": lambda: {
                asset: {"balance": held, "hold_trade": "0"} for asset, held in self._held().items()
            },
            "GetApiKeyInfo": lambda: {
                "api_key": "k", "nonce": nonce, "nonce_window": "0", "query_from": "0",
                "query_to": "0", "valid_until": "0",
                "permissions": ["query-funds", "query-ledger", "query-closed-trades"],
            },
            "Earn/Allocations": lambda: {"items": [], "next_cursor": None},
        }  # fmt: skip
        if name not in results:
            return self._sent({"error": ["EGeneral:Unknown method"]})
        return self._sent({"error": [], "result": results[name]()})

    def _held(self) -> dict[str, str]:
        last = {row["asset"]: row["balance"] for row in self.account.balanced()}
        return {asset: held for asset, held in last.items() if Decimal(held)}

    def _listed(self, name: str, body: Query) -> Answer:
        if self.random.random() < self._late_rate:
            self._book()
        if name == "Ledgers":
            rows = [(row["id"], row) for row in self.account.balanced()]
        else:
            trades = sorted(self.account.trades.items(), key=lambda each: each[1]["time"])
            rows = list(trades)
        try:
            start_ms = Decimal(body.get("start") or -1) * 1_000
            end_ms = Decimal(body.get("end") or "Infinity") * 1_000
            offset = int(body.get("ofs") or "0")
        except ArithmeticError:
            return self._violation(f"{name}: bounds in {body}")
        kind = body.get("type", "all")
        if body.get("asset", "all") != "all" or offset < 0:
            return self._violation(f"{name}: a filter or a negative offset in {body}")
        if kind != "all" and (kind not in FILTERS or name != "Ledgers"):
            return self._violation(f"{name}: no filter of {kind}")
        found = [
            (id_, row)
            for id_, row in reversed(rows)
            if start_ms < row["time"] <= end_ms and kind in ("all", row["type"])
        ]
        page = [(id_, self._written(row)) for id_, row in found[offset : offset + PAGE_ROWS]]
        self.random.shuffle(page)
        result: Row = {"ledger" if name == "Ledgers" else "trades": dict(page)}
        if body.get("without_count", "").lower() != "true":
            unfiltered = sum(row["time"] <= end_ms for _, row in rows)
            result["count"] = unfiltered if self._counts_all else len(found)
        return self._sent({"error": [], "result": result})

    def _written(self, row: Row) -> Row:
        at_ms = row["time"]
        time = Raw(f"{at_ms // 1_000}.{at_ms % 1_000:03}".encode())
        return {name: value for name, value in row.items() if name != "id"} | {"time": time}

    def _funding(self, name: str, body: Query) -> Answer:
        rows = sorted(self.account.movements[name], key=lambda row: -row["time"])
        start, end = body.get("start") or "0", body.get("end") or "Infinity"
        rows = [row for row in rows if Decimal(start) <= row["time"] <= Decimal(end)]
        cursor = body.get("cursor", "false").lower()
        limit = int(body.get("limit") or (25 if name == "deposit" else 500))
        if cursor == "false":
            return self._sent({"error": [], "result": rows[:limit]})
        skip = 0 if cursor == "true" else int(cursor.removeprefix("c"))
        following = f"c{skip + limit}" if skip + limit < len(rows) else None
        page = {name: rows[skip : skip + limit], "next_cursor": following}
        return self._sent({"error": [], "result": page})

    def _book(self) -> None:
        """Add an event while the account is read."""
        self.account.late = True
        for make in (self.account.deposit, self.account.trade, self.account.reward):
            make()
        self.account.late = False

    # Futures --------------------------------------------------------------------------------

    def _futures(self, path: str, query: Query) -> Answer:
        if path == "/api/history/v3/account-log":
            return self._log(query)
        if path.endswith("/accounts"):
            held = {
                asset.upper(): {"quantity": _float(n), "value": _float(n), "available": _float(n)}
                for (_, asset), n in self.account.wallets.items() if asset != CONTRACT
            }  # fmt: skip
            flex = {"type": "multiCollateralMarginAccount", "currencies": held}
            return self._sent({"result": "success", "accounts": {"flex": flex},
                               "serverTime": _iso(self._now_ms())})  # fmt: skip
        if path.endswith("/instruments"):
            one = {"symbol": CONTRACT.upper(), "type": "flexible_futures", "contractSize": 1,
                   "base": "BTC", "quote": "USD", "tradeable": True}  # fmt: skip
            return self._sent({"result": "success", "instruments": [one],
                               "serverTime": _iso(self._now_ms())})  # fmt: skip
        if path.endswith("/check"):
            return self._sent({"apiKey": "k", "permissions": {}})
        return self._sent({"result": "error", "error": "notFound"})

    def _log(self, query: Query) -> Answer:
        count = int(query.get("count", "500"))
        if not 1 <= count <= 100_000:
            return self._violation(f"account-log: a count of {count}")
        low, high = int(query.get("from", "1")), int(query.get("to", str(2**60)))
        since, before = int(query.get("since", "0")), int(query.get("before", str(2**60)))
        rows = [
            served.row for served in self.account.lists["log"]
            if low <= served.row["id"] <= high and since <= served.filter_ms <= before
        ]  # fmt: skip
        if query.get("sort") != "asc":
            rows.reverse()
        logs = [
            {name: _float(value) if isinstance(value, Decimal) else value
             for name, value in row.items()} | {"date": _iso(row["date"])}
            for row in rows[:count]
        ]  # fmt: skip
        return self._sent({"accountUid": "f92fc7de-2fce-4265-b806-4f3c1efb37ee", "logs": logs})


def _float(value: Decimal) -> Raw:
    """A JSON number in any of its forms."""
    text = f"{value:f}"
    if value and abs(value) < Decimal("0.0001"):
        text = f"{value.normalize():e}"
    return Raw(text.encode())


def _iso(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms // 1_000, UTC)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1_000:03}Z"


@asynccontextmanager
async def listening(exchange: RandomKrakenExchange) -> AsyncIterator[str]:
    """Serve both hosts on one free loopback port; yields the URL."""

    async def answer(reader: asyncio.StreamReader) -> bytes | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split(" ", 2)
        length = [line.partition(":")[2] for line in head.splitlines()
                  if line.lower().startswith("content-length:")]  # fmt: skip
        sent = (await reader.readexactly(int(length[0]))).decode() if length else ""
        path, _, text = target.partition("?")
        query, body = (dict(parse_qsl(each, keep_blank_values=True)) for each in (text, sent))
        answered = exchange.answer(method, path, query, body)
        if answered.body is None:
            return None
        lines = [f"HTTP/1.1 {answered.status} X", f"Content-Length: {len(answered.body)}",
                 *answered.headers, "", ""]  # fmt: skip
        return "\r\n".join(lines).encode() + answered.body

    async with listening_on_loopback(answer) as url:
        yield url
