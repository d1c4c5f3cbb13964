"""`onebook exchanges check --live`: progress display, result table and report file."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import IO, Final

from rich.live import Live
from rich.table import Table
from rich.text import Text

from onebook.cli.common import console, errors, fitting, print_table, run
from onebook.cli.options import json_text, print_json
from onebook.clock import iso_ms
from onebook.config import FeedSettings
from onebook.exchanges.kit.contract import Exchange
from onebook.feeds.connection import FrameRecorder
from onebook.library.recorders import Recorders
from onebook.ops.livecheck import ExchangeReport, Grade, LiveCheck, LiveReport
from onebook.ops.livecheck.findings import DEPTH, INTERVAL, counts
from onebook.ops.livecheck.run import quiet_logs

SECONDS: Final = 60.0
DRAW_S: Final = 0.25
BAR_CHARACTERS: Final = 20
NAME_CHARACTERS: Final = 18
EXIT_FOUND: Final = 1
EXIT_INTERRUPTED: Final = 130
STYLES: Final = {Grade.NOTE: "", Grade.WARNING: "yellow", Grade.FAULT: "bold red"}
# The most important come first, because a narrow terminal shows only those. Of two numbers, the
# first is the connector's and the second was measured.
COLUMNS: Final = (
    "exchange",
    "result",
    "live",
    "compared",
    "interval_ms",
    "depth",
    "fast prices",
    "first book",
    "frames",
    "pairs",
)


def check_live(
    exchanges: Mapping[str, Exchange],
    settings: FeedSettings,
    *,
    seconds: float,
    symbols: Sequence[str],
    record: Path | None,
    output: Path | None,
    as_json: bool,
) -> int:
    """Run the check, print and write its report, and return the exit status.

    Raises:
        RecordingError: A recording cannot be written.
        OSError: The report cannot be written.
    """
    path = output or (None if as_json else Path(file_name(time.time())))
    with ExitStack() as stack:
        stack.enter_context(quiet_logs())
        file = None if path is None else stack.enter_context(_new_file(path))
        recorders: Mapping[str, FrameRecorder] = {}
        if record is not None:
            epoch_s = time.time() - time.monotonic()
            kept = Recorders(record, exchanges, epoch_s=epoch_s)
            stack.callback(kept.close)
            recorders = kept.files
        report = run(
            _run(exchanges, settings, seconds=seconds, symbols=symbols, recorders=recorders)
        )
        if file is not None:
            file.write(json_text(report) + "\n")
    if as_json:
        print_json(report)
    else:
        print_report(report)
    if path is not None:
        where = console if not as_json else errors
        where.print(f"The report is in {path}.", markup=False, highlight=False, soft_wrap=True)
    if report.interrupted:
        return EXIT_INTERRUPTED
    return 0 if report.well else EXIT_FOUND


@contextmanager
def _new_file(path: Path) -> Iterator[IO[str]]:
    """Open the report before the check, to detect an unusable path early; remove it if empty."""
    with path.open("x", encoding="utf-8") as file:
        try:
            yield file
        finally:
            if not file.tell():
                path.unlink()


def file_name(at_s: float) -> str:
    """Return the default file name of a report: its UTC time to the second."""
    stamp = iso_ms(int(at_s) * 1_000)[:19].replace(":", "").replace("-", "")
    return f"onebook-check-{stamp}Z.json"


async def _run(
    exchanges: Mapping[str, Exchange],
    settings: FeedSettings,
    *,
    seconds: float,
    symbols: Sequence[str],
    recorders: Mapping[str, FrameRecorder],
) -> LiveReport:
    check = LiveCheck(
        exchanges, settings=settings, seconds=seconds, symbols=symbols, recorders=recorders
    )
    with _interrupts(check):
        running = asyncio.create_task(check.run())
        await _draw(check, running)
        return await running


@contextmanager
def _interrupts(check: LiveCheck) -> Iterator[None]:
    """End the check with a report on the first Ctrl-C, and the program on the second."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        check.stop()
        loop.remove_signal_handler(signal.SIGINT)

    with suppress(ValueError, RuntimeError, NotImplementedError):  # not the main thread
        loop.add_signal_handler(signal.SIGINT, stop)
    try:
        yield
    finally:
        with suppress(ValueError, RuntimeError, NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


async def _draw(check: LiveCheck, running: asyncio.Task[LiveReport]) -> None:
    """Show the running checks; without a terminal, print a line per finished check."""
    if not console.is_terminal:
        printed: set[str] = set()
        while not running.done():
            await asyncio.wait((running,), timeout=DRAW_S)
            for name in [each for each in check.done if each not in printed]:
                printed.add(name)
                errors.print(f"{name}: {result(check.done[name])}", soft_wrap=True)
        return
    with Live(progress(check), console=console, transient=True, auto_refresh=False) as live:
        while not running.done():
            await asyncio.wait((running,), timeout=DRAW_S)
            live.update(progress(check), refresh=True)


def progress(check: LiveCheck) -> Table:
    """Render the running checks, and the number of finished and waiting ones."""
    grid = Table.grid(padding=(0, 2))
    for _ in range(4):
        grid.add_column(no_wrap=True)
    for name, each in list(check.running.items()):
        share = min(1.0, each.passed_s / check.seconds)
        filled = round(share * BAR_CHARACTERS)
        bar = Text("━" * filled, "green") + Text("━" * (BAR_CHARACTERS - filled), "dim")
        found = sum(kind.grade is not Grade.NOTE for kind, _, _ in each.observer.noted)
        state = Text(f"{each.state}, {each.observer.frames:,} frames")
        grid.add_row(
            name[:NAME_CHARACTERS], bar, state, Text(f"{found} found", "yellow") if found else ""
        )
    waiting = len(check.exchanges) - len(check.done) - len(check.running)
    words = f"{len(check.done)} of {len(check.exchanges)} done, {waiting} waiting"
    words += "; ending" if check.stopped else "; Ctrl-C ends and reports"
    outer = Table.grid()
    outer.add_row(grid)
    outer.add_row(Text(words, "dim"))
    return outer


def print_report(report: LiveReport) -> None:
    """Print one row per exchange, then the findings."""
    rows = [_row(each) for each in report.exchanges]
    count = fitting(COLUMNS, rows)
    print_table(COLUMNS[:count], [each[:count] for each in rows])
    for each in report.exchanges:
        if each.findings:
            console.print()
            console.print(Text(each.exchange, "bold"))
            console.print(_findings(each), highlight=False)
    console.print()
    grades = sum((counts(each) for each in report.exchanges), start=Counter[Grade]())
    text = ", ".join(_number(grades[grade], grade) for grade in reversed(Grade))
    ended = " The check was ended early." if report.interrupted else ""
    console.print(f"{len(report.exchanges)} checked: {text}.{ended}", highlight=False)


def result(report: ExchangeReport) -> str:
    """Summarise the result of an exchange in a few words."""
    grades = counts(report)
    parts = [_number(grades[grade], grade) for grade in reversed(Grade) if grades[grade]]
    return ", ".join(parts) or "well"


def _number(count: int, grade: Grade) -> str:
    return f"{count} {grade}{'' if count == 1 else 's'}"


def _row(report: ExchangeReport) -> tuple[str, ...]:
    live = sum(each.state == "live" for each in report.books)
    waits = [each.live_after_s for each in report.books if each.live_after_s is not None]
    return (
        report.exchange,
        result(report),
        f"{live} of {len(report.books)}",
        _compared(report),
        _stated(report, INTERVAL),
        _stated(report, DEPTH),
        _fast_prices(report),
        f"{max(waits):.1f} s" if waits else "-",
        f"{report.traffic.frames:,}",
        f"{report.instruments.pairs:,}",
    )


def _stated(report: ExchangeReport, name: str) -> str:
    """Print stated and measured properties of the first followed book."""
    for each in report.measures:
        if each.name == name:
            stated = "-" if each.stated is None else f"{each.stated:,.0f}"
            measured = "-" if each.measured is None else f"{each.measured:,.0f}"
            return f"{stated} / {measured}"
    return "-"


def _fast_prices(report: ExchangeReport) -> str:
    """Summarise the checks of the fast best prices, and their lead over the depth."""
    fast = report.fast_prices
    if fast is None:
        return "-"
    lead = "" if fast.lead_ms is None else f", {fast.lead_ms:,.0f} ms ahead"
    return f"{fast.equal:,} equal, {fast.mismatches:,} not{lead}"


def _compared(report: ExchangeReport) -> str:
    """Return the strongest kind of comparison made with the books."""
    kinds = {each.by for each in report.comparisons}
    if "ids" in kinds:
        return "by number"
    return "in time" if "time" in kinds else "no"


def _findings(report: ExchangeReport) -> Table:
    """Render each kind of finding once, with its cases below."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for kind, cases in groupby(report.findings, key=lambda each: each.kind):
        text = Text(f"{kind}: {kind.sentence}")
        for each in cases:
            times = f"({each.count:,} times)" if each.count > 1 else ""
            about = " ".join(part for part in (each.symbol, each.detail, times) if part)
            if about:
                text.append(f"\n{about}")
            if each.example:
                text.append(f"\n{each.example}", "dim")
        grid.add_row(Text(kind.grade, STYLES[kind.grade]), text)
    return grid
