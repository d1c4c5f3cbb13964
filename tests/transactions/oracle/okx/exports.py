"""Exports of one random OKX account: late, in any time zone, sometimes empty or failed.

A file has the trading bills of a quarter, newest or oldest first, with the columns of OKX's page.
"""

import csv
import io
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from urllib.parse import parse_qsl
from zipfile import ZIP_DEFLATED, ZipFile

import httpx
from msgspec import json

from transactions.oracle.okx.account import RandomOkx
from transactions.oracle.rows import DAY_MS, Row

HOUR_MS = 3_600_000
PLACE = "https://exports.example/"
A_DAY = 12
COLUMNS = (
    "instType", "billId", "subType", "ts", "balChg", "posBalChg", "bal", "posBal", "sz", "px",
    "ccy", "pnl", "fee", "mgnMode", "instId", "ordId", "execType", "interest", "tag", "fillTime",
    "tradeId", "clOrdId", "fillIdxPx", "fillMarkPx", "fillPxVol", "fillPxUsd", "fillMarkVol",
    "fillFwdPx",
)  # fmt: skip


class RandomOkxExports(httpx.AsyncBaseTransport):
    """Requests for exports and, as a transport, the host of the files.

    `violations` is what was asked against OKX's pages.
    """

    def __init__(self, account: RandomOkx, seed: int, *, now_ms: Callable[[], int]) -> None:
        self.random = Random(seed)
        self.violations: list[str] = []
        self.made = 0
        self._account = account
        self._now_ms = now_ms
        self._zone_ms = (0, 8, -5, 14)[seed % 4] * HOUR_MS
        self._rising = seed % 5 == 0
        self._posted: deque[int] = deque()
        self._jobs: dict[str, tuple[int, bool]] = {}  # when a file is ready, and whether it failed
        self._links: dict[str, tuple[str, int]] = {}

    def asked(self, request: httpx.Request) -> httpx.Response:
        """Answer a request of the API."""
        if request.method == "POST":
            fields = json.decode(request.content, type=dict[str, str])
            return self._apply(fields["year"] + fields["quarter"])
        fields = dict(parse_qsl(request.url.query.decode()))
        return self._status(fields["year"] + fields["quarter"])

    def _apply(self, name: str) -> httpx.Response:
        now = self._now_ms()
        while self._posted and self._posted[0] <= now - DAY_MS:
            self._posted.popleft()
        self._posted.append(now)
        if len(self._posted) > A_DAY:
            self.violations.append("more than 12 exports a day")
        begin, end = self._bounds(name)
        if end > now:
            return _refused("51606")
        job = self._jobs.get(name)
        if job is not None and not job[1]:
            self.violations.append(f"{name} was requested twice")
            return _refused("51607") if now < job[0] else _answer({"result": "true", "ts": "1"})
        if not self._rows(begin, end):
            return _refused("51608")
        ready = now + self.random.choice((0, 60_000, 2 * HOUR_MS))
        self._jobs[name] = ready, job is None and self.random.random() < 0.1
        return _answer({"result": "true" if ready == now else "false", "ts": str(now)})

    def _status(self, name: str) -> httpx.Response:
        job, now = self._jobs.get(name), self._now_ms()
        if job is None:
            return _refused("51604")
        ready, failed = job
        state = "ongoing" if now < ready else "failed" if failed else "finished"
        href = ""
        if state == "finished":
            href = f"{PLACE}{len(self._links)}"
            self._links[href] = name, now + 5 * HOUR_MS
        return _answer({"fileHref": href, "state": state, "ts": "1"})

    def _bounds(self, name: str) -> tuple[int, int]:
        year, number = int(name[:4]), int(name[5]) - 1
        first = datetime(year, number * 3 + 1, 1, tzinfo=UTC)
        last = datetime(year + (number == 3), (number * 3 + 3) % 12 + 1, 1, tzinfo=UTC)
        return tuple(round(at.timestamp() * 1_000) - self._zone_ms for at in (first, last))

    def _rows(self, begin: int, end: int) -> list[Row]:
        rows = [row for row in self._account.balanced("trading") if begin <= int(row["ts"]) < end]
        return rows if self._rising else rows[::-1]

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Download a file."""
        if any(name.lower().startswith("ok-") for name in request.headers):
            self.violations.append("credentials for the host of files")
        name, until = self._links.get(str(request.url), ("", 0))
        if self._now_ms() >= until or self.random.random() < 0.05:
            return httpx.Response(403, stream=httpx.ByteStream(b""))
        self.made += 1
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS, restval="", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(self._rows(*self._bounds(name)))
        target = io.BytesIO()
        with ZipFile(target, "w", ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}.csv", text.getvalue())
        return httpx.Response(200, stream=httpx.ByteStream(target.getvalue()))


def _answer(row: Row) -> httpx.Response:
    return httpx.Response(200, content=json.encode({"code": "0", "msg": "", "data": [row]}))


def _refused(code: str) -> httpx.Response:
    return httpx.Response(200, content=json.encode({"code": code, "msg": "no", "data": []}))
