"""`onebook exchanges quality`: the measured quality of each exchange, from a history."""

import csv
import json
from collections.abc import Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from onebook import config
from onebook.cli.common import fail, print_table, reported
from onebook.cli.dates import now_ms, past_end_ms, past_ms
from onebook.cli.options import ConfigFile, json_text
from onebook.library.history import NEEDS_PYARROW

COLUMNS: Final = (
    "uptime", "gaps", "checksum_misses", "silences", "refusals", "audit_mismatches", "age_p50_ms",
    "age_p99_ms", "crossings", "crossed_s", "outages",
)  # fmt: skip
KEYS: Final = ("exchange", "symbol", "hour")
OUTAGES_SHOWN: Final = 3


class Grouping(StrEnum):
    """The rows of the report."""

    EXCHANGE = "exchange"
    SYMBOL = "symbol"
    HOUR = "hour"
    BOOK = "book"


class QualityFormat(StrEnum):
    """Output format of the report."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


@reported
def quality_command(
    folder: Annotated[
        str | None,
        typer.Argument(
            help="Folder of the history, or s3://bucket/prefix; default: history.dir.",
            show_default=False,
        ),
    ] = None,
    since: Annotated[
        str, typer.Option("--from", help="First hour: a day, a time, or a duration before now.")
    ] = "24h",
    until: Annotated[
        str, typer.Option("--to", help="End: a day, inclusive, a time, or now.")
    ] = "now",
    exchange: Annotated[
        list[str] | None,
        typer.Option("--exchange", "-e", help="Exchange to report; repeatable. Default: all."),
    ] = None,
    symbol: Annotated[
        list[str] | None,
        typer.Option("--symbol", "-s", help="Pair, such as BTC/USDT; repeatable. Default: all."),
    ] = None,
    by: Annotated[
        Grouping, typer.Option("--by", help="A row for each exchange, or with its symbol or hour.")
    ] = Grouping.EXCHANGE,
    form: Annotated[
        QualityFormat,
        typer.Option("--format", help="table, csv, json, or parquet (the rows of the files)."),
    ] = QualityFormat.TABLE,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; required for parquet.")
    ] = None,
    settings: ConfigFile = None,
) -> None:
    """Report uptime, gaps, checksum misses, ages and crossings of each recorded exchange.

    Only closed hours are reported. docs/reference/history.md explains the columns.

    Example: onebook exchanges quality /var/lib/onebook/history --from 7d --format csv -o week.csv
    """
    try:
        from onebook.archive.folder import HistoryFolder
        from onebook.archive.quality import selected, summary, write_rows
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyarrow"):
            raise
        fail(NEEDS_PYARROW)
    if output is None and form is QualityFormat.PARQUET:
        fail("--format parquet needs --output.")
    if output is not None and form is QualityFormat.TABLE:
        fail("--output needs --format csv, json or parquet.")
    place = folder or config.load(settings).history.dir
    if place is None:
        fail("Name the folder of a history, or set history.dir.")
    now = now_ms()
    start_us, end_us = past_ms(since, now) * 1_000, past_end_ms(until, now) * 1_000 + 1
    symbols = [each.upper() for each in symbol or ()]
    try:
        rows = selected(HistoryFolder(place).quality(start_us, end_us), exchange or (), symbols)
    except ValueError as error:
        fail(f"The quality in {place} cannot be read: {error}.")
    if not len(rows):
        fail(f"{place} has no closed hour with such books in this time.")
    if output is not None and form is QualityFormat.PARQUET:
        write_rows(rows, output)
        return
    groups = summary(rows, by)
    if form is QualityFormat.TABLE:
        keys = [each for each in KEYS if each in groups[0]]
        print_table((*keys, *COLUMNS), [_cells(each, keys) for each in groups])
        return
    text = json_text(groups) + "\n" if form is QualityFormat.JSON else _csv(groups)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text)


def _csv(groups: list[dict[str, Any]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(groups[0])
    for each in groups:
        writer.writerow((each | {"outages": json.dumps(each["outages"])}).values())
    return text.getvalue()


def _cells(group: dict[str, Any], keys: Sequence[str]) -> list[str]:
    cells = [str(group[key]) for key in keys]
    for name in COLUMNS:
        value = group[name]
        if value is None:
            cells.append("")
        elif name == "uptime":
            cells.append(f"{value:.4%}")
        elif name == "outages":
            longest = value[:OUTAGES_SHOWN]
            cells.append(", ".join(_outage(each) for each in longest))
        else:
            cells.append(f"{value:,.1f}" if isinstance(value, float) else f"{value:,}")
    return cells


def _outage(outage: dict[str, Any]) -> str:
    return f"{outage['reason']} {outage['seconds']:,.1f} s"
