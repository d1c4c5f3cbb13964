"""Exports of a quarter's bills, and the host that serves their files.

A request starts a job; its file, a zip archive of one CSV table, is available some time later, at
links that expire.
https://www.okx.com/docs-v5/en/#trading-account-rest-api-get-bills-details-since-2021
"""

import asyncio
import csv
import io
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

from starlette.requests import Request
from starlette.responses import Response

from onebook.clock import SYSTEM_CLOCK
from onebook.model import DAY_MS
from onebook.simulator.accounts.admission import AccountFaults
from onebook.simulator.accounts.okx import rows
from onebook.simulator.accounts.okx.account import OkxAccount
from onebook.simulator.accounts.okx.facts import TradingBill
from onebook.simulator.accounts.okx.keys import OkxRefused
from onebook.simulator.accounts.okx.names import HOUR_MS, digest_of, ms_of
from onebook.simulator.accounts.serving import EdgeError, SimulatedHost, path_of

SINCE: Final = ms_of("2021-02-01")
LINK_MS: Final = 5 * HOUR_MS + HOUR_MS // 2
KEPT_MS: Final = 30 * DAY_MS
MAKING_S: Final = 1_800.0
SLACK_MS: Final = 5  # deviation of the time that a bill shows
QUARTERS: Final = ("Q1", "Q2", "Q3", "Q4")
DENIED: Final = "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{0}</Code></Error>"
# Faults of the host; `failed` is a fault of an export, queued under the path of the request.
FILE_FAULTS: Final = ("502", "truncated", "reset", "slow")


@dataclass
class BillsExport:
    """A requested file."""

    name: str
    start_ms: int
    end_ms: int
    types: frozenset[str]
    created_ms: int
    ready_ms: int
    failed: bool

    def state(self, now_ms: int) -> str:
        """Its state at a time."""
        if now_ms < self.ready_ms:
            return "ongoing"
        return "failed" if self.failed else "finished"


class SimulatedOkxFiles(SimulatedHost):
    """The exports of an account and, as an ASGI application, the host of their files.

    Args:
        account: Its history.
        now_ms: The exchange's clock.
        making_s: Seconds until a file is ready.
        zone_hours: The time zone in which quarters begin and end.
    """

    edge_errors = {"502": EdgeError(502, "<html>502 Bad Gateway</html>")}  # noqa: RUF012

    def __init__(
        self,
        account: OkxAccount,
        *,
        now_ms: Callable[[], int] = SYSTEM_CLOCK.wall_ms,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        faults: AccountFaults | None = None,
        making_s: float = MAKING_S,
        zone_hours: int = 0,
    ) -> None:
        super().__init__(now_ms, sleep, faults)
        self.url = "http://files.simulated"  # set to the served address, with which links begin
        self.downloads = 0
        self._account = account
        self._making_ms = round(making_s * 1_000)
        self._zone_ms = zone_hours * HOUR_MS
        self._jobs: dict[tuple[str, str, str], BillsExport] = {}
        self._links: dict[str, tuple[BillsExport, int]] = {}

    def apply(self, year: str, quarter: str, types: str, *, failed: bool = False) -> dict[str, str]:
        """Request a file; returns whether it already exists.

        Raises:
            OkxRefused: The quarter does not exist, has no bills, or is being exported.
        """
        start, end = self._bounds(year, quarter)
        now = self._now_ms()
        if end <= SINCE:
            raise OkxRefused("51605")
        if end > now:
            raise OkxRefused("51606")
        job = self._job(year, quarter, types)
        if job is not None and job.state(now) == "ongoing":
            raise OkxRefused("51607")
        if job is not None and job.state(now) == "finished":
            return {"result": "true", "ts": str(job.created_ms)}
        wanted = frozenset(each for each in types.split(",") if each)
        name = f"{year}{quarter}{types.replace(',', '_')}"
        job = BillsExport(name, start, end, wanted, now, now + self._making_ms, failed)
        if next(self._rows(job), None) is None:
            raise OkxRefused("51608")
        self._jobs[year, quarter, types] = job
        return {"result": "false", "ts": str(now)}

    def status(self, year: str, quarter: str, types: str) -> dict[str, str]:
        """Return the state of a requested file, with a link to it if it is finished.

        Raises:
            OkxRefused: It was not requested, or has expired.
        """
        self._bounds(year, quarter)
        job, now = self._job(year, quarter, types), self._now_ms()
        if job is None:
            raise OkxRefused("51604")
        state, href = job.state(now), ""
        if state == "finished":
            token = digest_of(job.name, len(self._links))
            self._links[token] = (job, now + LINK_MS)
            href = f"{self.url}/exports/{token}.zip?Expires={(now + LINK_MS) // 1_000}"
        return {"fileHref": href, "state": state, "ts": str(job.created_ms)}

    def _bounds(self, year: str, quarter: str) -> tuple[int, int]:
        if quarter not in QUARTERS:
            raise OkxRefused("51000", "quarter")
        if not (year.isdecimal() and len(year) == 4):
            raise OkxRefused("51000", "year")
        first = QUARTERS.index(quarter) * 3
        return self._midnight(int(year), first), self._midnight(int(year), first + 3)

    def _midnight(self, year: int, months: int) -> int:
        at = datetime(year + months // 12, months % 12 + 1, 1, tzinfo=UTC)
        return round(at.timestamp() * 1_000) - self._zone_ms

    def _job(self, year: str, quarter: str, types: str) -> BillsExport | None:
        job = self._jobs.get((year, quarter, types))
        return None if job is None or self._now_ms() >= job.created_ms + KEPT_MS else job

    def _rows(self, job: BillsExport) -> Iterator[TradingBill]:
        found: Iterator[TradingBill] = self._account.newest(
            "bills",
            after=(max(job.start_ms, SINCE) - SLACK_MS, float("inf")),
            until=(job.end_ms + SLACK_MS, float("inf")),
            wanted=(lambda label: label[1] in job.types) if job.types else None,
        )
        return (row for row in found if max(job.start_ms, SINCE) <= row.ts < job.end_ms)

    def _zipped(self, job: BillsExport) -> bytes:
        """The file: a zip archive of one table, newest first."""
        target = io.BytesIO()
        with (
            ZipFile(target, "w", ZIP_DEFLATED) as archive,
            archive.open(f"{job.name}.csv", "w") as raw,
            io.TextIOWrapper(raw, "utf-8", newline="") as text,
        ):
            writer = csv.DictWriter(text, rows.EXPORTED)
            writer.writeheader()
            writer.writerows(map(rows.exported_bill, self._rows(job)))
        return target.getvalue()

    def _path(self, request: Request) -> str:
        return "/exports"

    def _answer(self, request: Request, body: bytes, fault: str) -> Response:
        token = path_of(request).removeprefix("/exports/").removesuffix(".zip")
        job, until = self._links.get(token, (None, 0))
        if job is None:
            return Response(DENIED.format("NoSuchKey"), 404, media_type="application/xml")
        if self._now_ms() >= until:
            return Response(DENIED.format("AccessDenied"), 403, media_type="application/xml")
        self.downloads += 1
        return Response(self._zipped(job), media_type="application/zip")
