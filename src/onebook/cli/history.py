"""`onebook history`: books of the past, from the files that `onebook serve` records."""

import asyncio
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from onebook.cli.common import console, fail, reported
from onebook.cli.dates import now_ms, past_end_ms, past_ms
from onebook.clock import iso_us
from onebook.library.bars import bars
from onebook.library.history import NEEDS_PYARROW, history
from onebook.orderbook import MissingPackage

history_app = typer.Typer(
    no_args_is_help=True, help="Recorded order books: show, bars, verify, import."
)

EXIT_PROBLEMS: Final = 1
HOUR_US: Final = 3_600_000_000


@history_app.callback()
def history_group() -> None:
    """Recorded order books: show, bars, verify, import."""


@history_app.command("show")
@reported
def show(
    folder: Annotated[
        str, typer.Argument(help="Folder of the history (`history.dir`), or s3://bucket/prefix.")
    ],
    symbol: Annotated[str, typer.Argument(help="Pair, such as BTC/USDT.")],
    at: Annotated[str, typer.Option("--at", help="Time in ISO 8601; UTC if without a zone.")],
    exchange: Annotated[
        list[str] | None,
        typer.Option("--exchange", "-e", help="Exchange to merge; repeatable. Default: all."),
    ] = None,
    depth: Annotated[int, typer.Option(min=1, max=500, help="Levels per side.")] = 10,
    proof: Annotated[
        Path | None,
        typer.Option("--proof", help="Write the proof of this moment's files into this file."),
    ] = None,
) -> None:
    """Show the merged book of a pair at a past moment, and the state of each exchange then.

    Example: onebook history show /var/lib/onebook/history BTC/USDT --at 2026-11-27T14:03:00
    """
    try:
        update = history(
            folder,
            symbol.upper(),
            at=at,
            exchanges=exchange or None,
            depth=depth,
            proof=proof is not None,
        )
        if proof is not None:
            proof.write_text(json.dumps(update.proof, indent=1) + "\n")
    except (LookupError, ValueError, OSError, MissingPackage) as error:
        fail(str(error))
    for side, levels in (("ask", [*update.asks][::-1]), ("bid", [*update.bids])):
        table = Table("price", "amount", "exchanges", title=f"{update.symbol} {side}s")
        for level in levels:
            table.add_row(f"{level.price:f}", f"{level.amount:f}", ", ".join(level.exchanges))
        console.print(table)
    states = Table("exchange", "state", "age", "reason")
    for name, health in update.exchanges.items():
        age = "" if health.age_s is None else f"{health.age_s:.3f} s"
        why = ": ".join(filter(None, (health.reason, health.detail)))
        states.add_row(name, health.state, age, why)
    console.print(states)


class BarsFormat(StrEnum):
    """Output format of bars."""

    CSV = "csv"
    PARQUET = "parquet"


@history_app.command("bars")
@reported
def bars_command(
    folder: Annotated[
        str, typer.Argument(help="Folder of the history (`history.dir`), or s3://bucket/prefix.")
    ],
    symbol: Annotated[str, typer.Argument(help="Pair, such as BTC/USDT.")],
    every: Annotated[
        str, typer.Option("--every", help="Interval: 100ms, 1s, 5m or 1h, for example.")
    ] = "1s",
    since: Annotated[
        str | None,
        typer.Option("--from", help="Start: a day, a time, or a duration before now."),
    ] = None,
    until: Annotated[
        str, typer.Option("--to", help="End: a day, inclusive, a time, or now.")
    ] = "now",
    exchange: Annotated[
        list[str] | None,
        typer.Option("--exchange", "-e", help="Exchange to merge; repeatable. Default: all."),
    ] = None,
    within: Annotated[
        list[str] | None,
        typer.Option("--within", help="Distance in basis points; repeatable. Default: 10."),
    ] = None,
    amount: Annotated[
        list[str] | None,
        typer.Option("--amount", help="Size to buy and sell, in the base currency; repeatable."),
    ] = None,
    form: Annotated[BarsFormat, typer.Option("--format", help="csv or parquet.")] = BarsFormat.CSV,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file; required for parquet.")
    ] = None,
) -> None:
    """Write price, spread, depth and cost of the merged book at the end of each interval.

    docs/guides/history.md explains the columns.

    Example: onebook history bars /var/lib/onebook/history BTC/USDT --every 1m --from 1d -o bars.csv
    """
    if output is None and form is BarsFormat.PARQUET:
        fail("--format parquet needs --output.")
    now = now_ms()
    try:
        table = bars(
            folder,
            symbol.upper(),
            every=every,
            start=None if since is None else past_ms(since, now) * 1_000,
            end=past_end_ms(until, now) * 1_000,
            exchanges=exchange or None,
            within=within or ["10"],
            amounts=amount or (),
        )
        write_bars(table, form, output)
    except (LookupError, ValueError, OSError, MissingPackage) as error:
        fail(str(error))


def write_bars(table: Any, form: BarsFormat, output: Path | None) -> None:
    """Write bars to a file, or to standard output.

    Raises:
        OSError: The file cannot be written.
    """
    from pyarrow import csv, parquet

    if form is BarsFormat.PARQUET:
        parquet.write_table(table, output, compression="zstd")
    else:
        csv.write_csv(table, typer.get_binary_stream("stdout") if output is None else output)


@history_app.command("verify")
@reported
def verify_command(
    folder: Annotated[
        str, typer.Argument(help="Folder of the history (`history.dir`), or s3://bucket/prefix.")
    ],
    key: Annotated[
        str | None,
        typer.Option("--key", help="Public key of the operator: 64 hex digits, or a PEM file."),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option("--head", help="SHA-256 of an entry that the chain must contain."),
    ] = None,
) -> None:
    """Check every file of a history against its manifests, chain and signatures.

    Exits with 1 and a line for each problem if a file, hour or entry is missing, changed or added.
    Without --head, the newest hours may be missing unnoticed: keep the head that each run prints.

    Example: onebook history verify /var/lib/onebook/history --key history.pub
    """
    try:
        from onebook.archive.proof import public_key, verify
        from onebook.archive.stores import FileStore
    except ModuleNotFoundError:
        fail(NEEDS_PYARROW)
    columns = (TextColumn("hours"), BarColumn(), MofNCompleteColumn())
    try:
        known = None if key is None else public_key(key)
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("hours", total=None)
            found = verify(
                FileStore(folder),
                known,
                head,
                lambda done, total: progress.update(task, completed=done, total=total),
            )
    except (OSError, ValueError) as error:
        fail(str(error))
    for problem in found.problems:
        console.print(problem, markup=False, highlight=False, soft_wrap=True)
    signed = f"signed by {', '.join(found.keys)}" if found.keys else "not signed"
    if not found.entries:
        raise typer.Exit(EXIT_PROBLEMS)
    console.print(
        f"{len(found.problems):,} problems in {found.hours:,} hours with {found.files:,} files; "
        f"{found.deleted:,} hours deleted as announced; {found.entries:,} entries, {signed}"
        + ("" if known else " (give the known key with --key)")
        + f".\nhead {found.head}",
        highlight=False,
        soft_wrap=True,
    )
    if found.problems:
        raise typer.Exit(EXIT_PROBLEMS)


@history_app.command("import")
@reported
def import_command(
    folder: Annotated[Path, typer.Argument(help="Folder of the history; created if absent.")],
    files: Annotated[
        list[Path],
        typer.Argument(help="Recordings, or incremental_book_L2 files of tardis (.csv, .csv.gz)."),
    ],
    symbol: Annotated[
        list[str] | None,
        typer.Option(
            "--symbol",
            "-s",
            help="Pair of a symbol in CSV files, such as BTCUSDT=BTC/USDT; repeatable.",
        ),
    ] = None,
    signing_key: Annotated[
        Path | None,
        typer.Option("--signing-key", help="File of the key that signs the hours."),
    ] = None,
) -> None:
    """Import recordings of `onebook record`, of cryptofeed or of tardis as hours of a history.

    Hours that are recorded already are refused, and if one file is invalid, nothing is imported.
    Files are merged by time; a minute without a message is a gap of the history. Recordings are
    read into memory, CSV files are not.

    Example: onebook history import past/ binance_book.csv.gz --symbol BTCUSDT=BTC/USDT
    """
    try:
        from onebook.archive.proof import load_signing_key
        from onebook.library.importing import import_history, source_of
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pyarrow"):
            raise
        fail(NEEDS_PYARROW)
    pairs = dict(each.upper().partition("=")[::2] for each in symbol or ())
    if invalid := [f"{native}={pair}" for native, pair in pairs.items() if "/" not in pair]:
        fail(f"--symbol must be like BTCUSDT=BTC/USDT, not {invalid[0]}.")
    sources = [source_of(each, pairs) for each in files]
    key = None if signing_key is None else load_signing_key(signing_key)
    with Progress(TextColumn("bytes read"), BarColumn(), console=console, transient=True) as bar:
        task = bar.add_task("import", total=sum(each.size for each in sources))
        try:
            found = asyncio.run(
                import_history(
                    folder,
                    sources,
                    signing_key=key,
                    progress=lambda position: bar.update(task, completed=position),
                )
            )
        except ValueError as error:
            fail(str(error))
    console.print(
        f"Imported {found.events:,} messages as {len(found.hours):,} hours, from "
        f"{iso_us(found.hours[0])[:16]} to {iso_us(found.hours[-1] + HOUR_US)[:16]} UTC.",
        highlight=False,
        soft_wrap=True,
    )
