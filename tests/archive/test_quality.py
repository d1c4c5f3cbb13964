"""The quality of each hour is what happened in it: live time, reasons, ages and crossings."""

import asyncio
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from archive.world import SYMBOL, World
from onebook.archive import quality
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.proof import verify
from onebook.archive.quality import selected, summary
from onebook.archive.recorder import HistoryRecorder
from onebook.archive.stores import FileStore
from onebook.books import Books, IdentityMark
from onebook.cli.exchanges import exchanges_app
from onebook.clock import ManualClock
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Health, Instrument, Reason

START_US = 495_000 * HOUR_US  # 2026-06-21T00:00:00
OKX, KRAKEN, GATE = (Instrument(name, SYMBOL, name) for name in ("okx", "kraken", "gate"))
STALE, SYNCING, OFFLINE = Health.STALE, Health.SYNCING, Health.OFFLINE


class Day:
    """Three books that change as told, recorded for two hours; times are seconds of the first."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(epoch_us=START_US)
        self.books = Books()
        self.recorder = HistoryRecorder(
            self.books, root, keep_days=10, keep_bytes=1 << 40, clock=self.clock
        )

    async def until(self, at_s: float) -> None:
        """Go on, with a keyframe a minute."""
        while self.clock.now_s < at_s:
            next_s = min(at_s, (self.clock.now_s // 60 + 1) * 60)
            self.clock.move_to(next_s)
            self.recorder.take_keyframes()
            await self.recorder.flush()

    def fill(self, of: Instrument, bid: str, ask: str) -> None:
        sides = (f'[["{price}","1"]]'.encode() for price in (bid, ask))
        self.books.fill(Snapshot(of, *sides), self.clock.now_s)

    def health(self, of: Instrument, health: Health, reason: Reason) -> None:
        self.books.set_health(of, health, reason, self.clock.now_s)

    def delta(self, of: Instrument, bids: bytes, age_ms: int) -> None:
        at = self.clock.wall_us() // 1_000 - age_ms
        assert self.books.change(Delta(of, bids, b"[]", at=at), self.clock.now_s) is None


async def recorded(root: Path) -> Day:
    """OKX fails in known ways; kraken is live; gate opens late, crosses okx, and is closed."""
    day = Day(root)
    for each in (OKX, KRAKEN):
        day.books.open(each)
    await day.recorder.begin()
    await day.until(10)
    day.fill(OKX, "100", "101")
    day.fill(KRAKEN, "100", "102")
    for at in range(1, 101):
        day.delta(KRAKEN, b'[["100","%d"]]' % (at + 1), at)
    kraken = day.books.get(KRAKEN)
    assert kraken is not None
    kraken.audits = 3
    await day.until(600)
    for reason in (Reason.GAP, Reason.CHECKSUM, Reason.QUIET, Reason.RATE_LIMITED):
        day.health(OKX, STALE, reason)
        await day.until(day.clock.now_s + 20)
    day.health(OKX, SYNCING, Reason.SUBSCRIBING)
    await day.until(690)
    day.fill(OKX, "100", "101")
    await day.until(1_000)
    day.books.open(GATE)
    day.fill(GATE, "101.5", "103")  # above okx's ask
    await day.until(1_030)
    day.fill(GATE, "100.5", "103")
    await day.until(1_100)
    day.fill(GATE, "99", "99.5")  # below the bids of both
    await day.until(1_110)
    day.books.close(GATE)
    await day.until(2_000)
    kraken.audits = 5
    day.health(OKX, STALE, Reason.GAP)  # through the end of the hour
    await day.until(3_630)
    day.fill(OKX, "100", "101")
    await day.until(7_201)
    closing = day.recorder.closing
    assert closing is not None
    await asyncio.wrap_future(closing)
    return day


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("quality") / "history"
    asyncio.run(recorded(root))
    return root


def rows(root: Path) -> dict[tuple[str, int], dict]:
    table = HistoryFolder(root).quality(START_US, START_US + 3 * HOUR_US)
    found = {}
    for row in table.to_pylist():
        row["outages"] = {e["reason"]: (e["count"], e["seconds"]) for e in row["outages"]}
        found[row["exchange"], row["hour"].hour] = row
    return found


def test_live_time_and_reasons_are_those_of_the_books(root: Path) -> None:
    okx, later = rows(root)["okx", 0], rows(root)["okx", 1]
    assert (okx["observed_s"], okx["live_s"]) == (3_600, 590 + 1_310)
    assert okx["outages"] == {
        "subscribing": (1, 10 + 10),
        "gap": (2, 20 + 1_600),
        "checksum": (1, 20),
        "quiet": (1, 20),
        "rate_limited": (1, 20),
    }
    counted = [okx[name] for name in ("gaps", "checksum_misses", "silences", "refusals")]
    assert counted == [2, 1, 1, 1]
    # The state at the start of an hour is that of the end of the hour before, and no new failure.
    assert (later["observed_s"], later["live_s"], later["gaps"]) == (3_600, 3_570, 0)
    assert later["outages"] == {"gap": (0, 30)}


def test_audits_are_counted_between_keyframes(root: Path) -> None:
    found = rows(root)
    assert [found["kraken", hour]["audits"] for hour in (0, 1)] == [5, 0]
    assert found["okx", 0]["audits"] == found["kraken", 0]["audit_mismatches"] == 0


def test_a_closed_book_is_not_observed(root: Path) -> None:
    found = rows(root)
    assert (found["gate", 0]["observed_s"], found["gate", 0]["live_s"]) == (110, 110)
    assert ("gate", 1) not in found


def test_ages_are_those_of_the_messages(root: Path) -> None:
    kraken = rows(root)["kraken", 0]
    assert (kraken["messages"], kraken["timed_messages"]) == (101, 100)
    ages = [kraken[name] for name in ("age_p50_ms", "age_p90_ms", "age_p99_ms", "age_max_ms")]
    assert ages == pytest.approx([50.5, 90.1, 99.01, 100])
    assert rows(root)["okx", 0]["age_p50_ms"] is None


def test_crossings_are_counted_on_both_sides(root: Path) -> None:
    found = rows(root)
    crossed = {
        name: (found[name, 0]["crossings"], found[name, 0]["crossed_s"])
        for name in ("okx", "kraken", "gate")
    }
    # Sampled at the end of each second, after what was received in it.
    assert crossed == {"gate": (2, 40), "okx": (2, 40), "kraken": (1, 10)}
    assert found["gate", 0]["compared_s"] == 110
    assert found["okx", 0]["compared_s"] == 590 + 1_310


async def test_a_book_that_is_probably_another_coin_crosses_nothing(tmp_path: Path) -> None:
    day = Day(tmp_path)
    await day.recorder.begin()
    for each, bid, ask in ((OKX, "100", "101"), (GATE, "200", "201")):
        day.books.open(each)
        day.fill(each, bid, ask)
    gate = day.books.get(GATE)
    assert gate is not None
    gate.mark = IdentityMark(Reason.IDENTITY_CONFLICT, "twice the price")
    day.books.marked(gate)
    await day.until(3_601)
    assert day.recorder.closing is not None
    await asyncio.wrap_future(day.recorder.closing)
    found = rows(tmp_path)
    assert [each["crossings"] for each in found.values()] == [0, 0]
    assert found["gate", 0]["outages"] == {"identity_conflict": (1, 3_600)}


async def test_a_book_of_one_of_two_runs_is_measured(tmp_path: Path) -> None:
    """A run that begins within the hour does not have a book that was closed before."""
    day = Day(tmp_path)
    await day.recorder.begin()
    for each in (OKX, GATE):
        day.books.open(each)
        day.fill(each, "100", "101")
    await day.until(600)
    day.books.close(GATE)
    day.recorder.pause()
    await day.recorder.begin()
    await day.until(3_601)
    assert day.recorder.closing is not None
    await asyncio.wrap_future(day.recorder.closing)
    found = rows(tmp_path)
    assert (found["okx", 0]["live_s"], found["gate", 0]["live_s"]) == (3_600, 600)
    assert found["okx", 0]["compared_s"] == found["gate", 0]["compared_s"] == 600


@pytest.mark.parametrize("seed", range(4))
async def test_live_time_of_random_books(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    live: dict[tuple[str, int], int] = {}
    since: dict[str, int] = {}
    hour_us = 495_000 * HOUR_US

    def changed(name: str, is_live: bool) -> None:
        """Add up live time by hour, from the books themselves."""
        now_us, start_us = world.clock.wall_us(), since.pop(name, None)
        if start_us is not None:
            for hour, (first, last) in enumerate([(0, hour_us), (hour_us, 1 << 62)]):
                spent = min(now_us, last) - max(start_us, first)
                live[name, hour] = live.get((name, hour), 0) + max(spent, 0)
        if is_live:
            since[name] = now_us

    world.books.subscribe(
        on_health=lambda book, _: changed(book.instrument.exchange, book.health is Health.LIVE)
    )
    await world.recorder.begin()
    world.open()
    for at in range(700):
        world.step()
        if at % 12 == 0:
            world.recorder.take_keyframes()
            await world.recorder.flush()
    world.clock.move_to(90 + 3_601)
    await world.recorder.flush()
    assert world.recorder.closing is not None
    await asyncio.wrap_future(world.recorder.closing)
    for name in [*since]:
        changed(name, False)
    table = HistoryFolder(tmp_path).quality(0, 1 << 62).to_pylist()
    assert len(table) == 6
    for row in table:
        expected = live[row["exchange"], int(row["hour"].timestamp()) * 1_000_000 >= hour_us]
        beyond_us = 1_000_000 if row["hour"].hour == 0 else 0  # the second after the hour
        assert row["live_s"] * 1e6 == pytest.approx(expected, abs=beyond_us + 2)


def test_the_manifest_covers_the_quality(root: Path) -> None:
    path = next(iter(root.glob("2026/*/*/*/quality.parquet")))
    content = path.read_bytes()
    metadata = pq.read_schema(path).metadata
    assert json.loads(metadata[b"onebook.quality"]) == {"version": 2}
    path.write_bytes(content[:-1] + b"x")
    problems = verify(FileStore(root)).problems
    path.write_bytes(content)
    assert len(problems) == 1
    assert str(path.relative_to(root)) in problems[0]


def test_a_cancelled_measurement_is_repeated(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, folder = FileStore(root), HistoryFolder(root)
    coverage, answers = folder.coverage([START_US]), iter((False, True))
    books = [*folder._written(START_US)]
    assert quality.measured(files, START_US, coverage, books, lambda: next(answers)) is None
    again = quality.measured(files, START_US, coverage, books, lambda: False)
    assert again == folder.quality(START_US, START_US + 1)


def test_a_summary_adds_hours_and_books(root: Path) -> None:
    table = HistoryFolder(root).quality(START_US, START_US + 3 * HOUR_US)
    okx = summary(selected(table, ["okx"], []), "exchange")
    assert len(okx) == 1
    assert okx[0]["uptime"] == round((1_900 + 3_570) / 7_200, 6)
    assert okx[0]["outages"][0] == {"reason": "gap", "count": 2, "seconds": 1_650.0}
    hours = [each["hour"] for each in summary(selected(table, ["okx"], [SYMBOL]), "hour")]
    assert hours == [f"2026-06-21T0{hour}:00:00.000Z" for hour in (0, 1)]
    assert summary(selected(table, [], ["ETH/USDT"]), "book") == []


SPAN = ("--from", "2026-06-21", "--to", "2026-06-21")


def report(root: Path, *options: str):
    return CliRunner().invoke(exchanges_app, ["quality", str(root), *SPAN, *options])


def test_the_command_prints_and_exports(root: Path, tmp_path: Path) -> None:
    done = report(root)
    assert done.exit_code == 0, done.output
    assert "okx       75.9722%" in done.output
    found = json.loads(report(root, "--format", "json", "--by", "hour", "-e", "okx").output)
    assert [each["gaps"] for each in found] == [2, 0]
    lines = report(root, "--format", "csv", "-s", "btc/usdt").output.splitlines()
    assert lines[0].startswith("exchange,uptime,observed_s,live_s,messages,gaps")
    assert len(lines) == 4
    out = tmp_path / "rows.parquet"
    assert report(root, "--format", "parquet", "-o", str(out)).exit_code == 0
    assert len(pq.read_table(out)) == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "parquet"), "--format parquet needs --output"),
        (("-o", "x"), "--output needs --format csv, json or parquet"),
        (("-e", "bybit"), "has no closed hour with such books"),
    ],
)
def test_the_command_refuses(root: Path, options: tuple[str, ...], words: str) -> None:
    done = report(root, *options)
    assert done.exit_code == 2
    assert words in done.output
