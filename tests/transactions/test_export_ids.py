"""Exports identified by the exchange's own id, as Binance does, not by their period."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx

from databases import migrated
from onebook.store import Store
from onebook.transactions.adapter import FailureReason
from onebook.transactions.credentials import MasterKeys, Vault
from onebook.transactions.export_files import ExportFiles, Row
from onebook.transactions.export_jobs import (
    AccountExports,
    ExportAnswer,
    ExportJobs,
    ExportPage,
    ExportPiece,
    ExportRule,
    ExportState,
)
from onebook.transactions.pools import Budget
from transactions.bybit_support import MASTER_KEY, NOW_MS
from transactions.collecting import Passing

HOUR_S = 3_600.0
YEARS = (2024, 2023)


def year_ms(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1_000)


class ByNumber:
    """An exchange that numbers its exports and knows them by their number only."""

    def __init__(self, time: Passing) -> None:
        self.applied: list[str] = []
        self._time = time

    def apply(self, year: str) -> str:
        self.applied.append(year)
        return str(70_000 + len(self.applied))

    def link(self, number: str) -> str:
        assert 0 < int(number) - 70_000 <= len(self.applied), "an unknown number"
        return f"https://files.example/{number}" if self._time.passed_s >= HOUR_S else ""

    def file(self, request: httpx.Request) -> httpx.Response:
        year = self.applied[int(request.url.path.removeprefix("/")) - 70_001]
        rows = [f"{year_ms(int(year)) + day * 86_400_000}" for day in range(5)]
        return httpx.Response(200, stream=httpx.ByteStream("\n".join(rows).encode()))


def years(from_ms: int, to_ms: int, now_ms: int) -> list[ExportPiece]:
    return [ExportPiece(f"{y}", f"{y}", year_ms(y), year_ms(y + 1)) for y in YEARS]


async def owner(session: ByNumber) -> str:
    return "0f" * 8


async def apply(session: ByNumber, piece: ExportPiece) -> ExportAnswer:
    return ExportAnswer(ExportState.MAKING, reference=session.apply(piece.name))


async def status(session: ByNumber, piece: ExportPiece, reference: str) -> ExportAnswer:
    link = session.link(reference)
    return ExportAnswer(ExportState.READY if link else ExportState.MAKING, link)


def rows(path: Path) -> Iterator[Row]:
    return ({"at": line} for line in path.read_text().splitlines())


RULE = ExportRule(
    pieces=years, owner=owner, apply=apply, status=status, rows=rows,
    at_ms=lambda row: int(row["at"]), budget=Budget(5, 31, "exports"),
)  # fmt: skip


async def asked(store: Store, folder: Path, exchange: ByNumber, time: Passing) -> list[ExportPage]:
    """The pages of an answer, each by a new process."""
    jobs = ExportJobs(
        store.exports,
        store.leases,
        ExportFiles(folder, bytes_max=1 << 20, days=30),
        Vault(store.credentials, MasterKeys(None, value=MASTER_KEY)),
        clock=time.clock,
        transport=httpx.MockTransport(exchange.file),
    )
    exports = AccountExports(
        jobs, RULE, exchange, exchange="numbered", display="Numbered", environment="mainnet",
        from_ms=year_ms(YEARS[-1]), to_ms=NOW_MS,
    )  # fmt: skip
    pages = [await exports.page(year_ms(YEARS[-1]), NOW_MS, "")]
    while pages[-1].cursor:
        pages.append(await exports.page(year_ms(YEARS[-1]), NOW_MS, pages[-1].cursor))
    while jobs.working:
        await asyncio.wait(jobs.working)
    await exports.close()
    await jobs.close()
    return pages


async def test_the_id_of_an_export_survives_a_restart(tmp_path: Path) -> None:
    time = Passing()
    exchange = ByNumber(time)
    async with Store(await migrated(tmp_path)) as store:
        (page,) = await asked(store, tmp_path / "exports", exchange, time)
        assert page.lack is not None
        assert page.lack.reason is FailureReason.EXPORT_PENDING
        assert sorted(exchange.applied) == ["2023", "2024"]
        time.passed_s += HOUR_S
        pages = await asked(store, tmp_path / "exports", exchange, time)
        assert all(each.lack is None for each in pages)
        times = [int(row["at"]) for each in pages for row in each.rows]
        assert times == sorted(times, reverse=True)
        assert len(times) == 5 * len(YEARS)
        assert sorted(exchange.applied) == ["2023", "2024"]  # requested once each
