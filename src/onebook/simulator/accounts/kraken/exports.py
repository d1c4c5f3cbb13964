"""Exports of the simulated Kraken: jobs that take time, and the CSV files that they produce.

The columns differ from those of the REST rows: friendly asset names, whole seconds as UTC text, a
wallet instead of a suffix, and for each deposit and withdrawal a second row without txid and
balance. https://docs.kraken.com/api-reference/account-data/request-export-report
"""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from zipfile import ZIP_DEFLATED, ZipFile

from onebook.simulator.accounts.kraken import rows
from onebook.simulator.accounts.kraken.account import KrakenAccount
from onebook.simulator.accounts.kraken.names import ASSETS, TICKS, id_of

QUEUED_S, PROCESSING_S = 5, 40
KEPT_S: Final = 14 * 86_400
REPORTS_MAX: Final = 20
COLUMNS: Final = {
    "ledgers": ("txid", "refid", "time", "type", "subtype", "aclass", "subclass", "asset",
                "wallet", "amount", "fee", "balance"),
    "trades": ("txid", "ordertxid", "pair", "time", "type", "ordertype", "price", "cost", "fee",
               "vol", "margin", "misc", "ledgers"),
}  # fmt: skip


@dataclass
class ExportJob:
    """A requested report."""

    id: str
    report: str
    format: str
    description: str
    start_s: int
    end_s: int
    created_s: int
    cancelled: bool = False

    def status(self, now_s: int) -> str:
        """Its state at a time."""
        if self.cancelled:
            return "Cancelled"
        if now_s < self.created_s + QUEUED_S:
            return "Queued"
        return "Processing" if now_s < self.created_s + PROCESSING_S else "Processed"

    def row(self, now_s: int) -> dict[str, str]:
        """Its row in ExportStatus."""
        status = self.status(now_s)
        return {
            "id": self.id,
            "descr": self.description,
            "format": self.format,
            "report": self.report,
            "subtype": "all",
            "status": status,
            "aclass": "currency",
            "fields": "all",
            "asset": "all",
            "starttm": str(self.start_s),
            "endtm": str(self.end_s),
            "createdtm": str(self.created_s),
            "expiretm": str(self.created_s + KEPT_S),
            "completedtm": str(self.created_s + PROCESSING_S if status == "Processed" else 0),
            "datastarttm": str(self.start_s),
            "dataendtm": str(self.end_s),
            "flags": "0",
        }

    def zipped(self, account: KrakenAccount) -> bytes:
        """Its file: a zip archive of one table."""
        target = io.BytesIO()
        separator = "," if self.format == "CSV" else "\t"
        with ZipFile(target, "w", ZIP_DEFLATED) as archive:
            name = f"{self.report}.{self.format.lower()}"
            with archive.open(name, "w") as raw, io.TextIOWrapper(raw, "utf-8", newline="") as text:
                writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL)
                writer.writerow(COLUMNS[self.report])
                lines = _ledgers(self, account) if self.report == "ledgers" else _trades(
                    self, account
                )  # fmt: skip
                writer.writerows(lines)
        return target.getvalue()

    def covers(self, time: int) -> bool:
        """Whether a row of this time is in the report."""
        return self.start_s * TICKS <= time <= self.end_s * TICKS


def _ledgers(job: ExportJob, account: KrakenAccount) -> Iterator[tuple[Any, ...]]:
    for move in account.movements:
        if job.covers(move.asked):
            asset, kind = ASSETS[move.asset], "deposit" if move.incoming else "withdrawal"
            amount = rows.fixed(move.amount if move.incoming else -move.amount, asset.decimals)
            yield (
                "", move.refid, _utc(move.asked), kind, "", asset.aclass, asset.subclass,
                asset.name, asset.wallet, amount, rows.fixed(move.fee, asset.decimals), "",
            )  # fmt: skip
    for row in account.ledger():
        if job.covers(row.time):
            asset = ASSETS[row.asset]
            amounts = [rows.fixed(n, asset.decimals) for n in (row.amount, row.fee, row.balance)]
            yield (
                id_of("L", row.seq), row.reference, _utc(row.time), row.type, row.subtype,
                asset.aclass, asset.subclass, asset.name, asset.wallet, *amounts,
            )  # fmt: skip


def _trades(job: ExportJob, account: KrakenAccount) -> Iterator[tuple[Any, ...]]:
    for row in account.rows("trades"):
        if job.covers(row.time):
            facts = rows.trade(row, job.end_s * TICKS, None, ledgers=True)
            middle = [facts[name] for name in COLUMNS["trades"][4:-1]]
            yield (
                id_of("T", row.seq), facts["ordertxid"], row.pair.wsname, _utc(row.time), *middle,
                ",".join(facts["ledgers"]),
            )  # fmt: skip


def _utc(time: int) -> str:
    return f"{datetime.fromtimestamp(time // TICKS, UTC):%Y-%m-%d %H:%M:%S}"
