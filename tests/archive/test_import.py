"""Imported hours are those of the files, or nothing is imported."""

import asyncio
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import onebook
from archive.world import World
from library.test_replay import NAMES as RECORDED
from library.test_replay import recorded as record_books
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.proof import load_signing_key, public_hex, public_key, verify
from onebook.archive.stores import FileStore
from onebook.cli.history import history_app
from onebook.library import importing
from onebook.library.importing import Event, ImportRefused, TardisFile, import_history, source_of
from onebook.orderbook import HistoryMissing

START_US = 495_000 * HOUR_US + 3_590_000_000  # ten seconds before an hour ends
HEADER = "exchange,symbol,timestamp,local_timestamp,is_snapshot,side,price,amount"
SYMBOLS = {"BTCUSDT": "BTC/USDT", "BTC-USDT": "BTC/USDT"}


def line(at_s: float, whole: bool, side: str, price: str, amount: str, name: str) -> str:
    exchange, symbol = name.split()
    at_us = START_US + round(at_s * 1e6)
    return (
        f"{exchange},{symbol},{at_us - 5_000},{at_us},{str(whole).lower()},{side},{price},{amount}"
    )


def binance() -> list[str]:
    """A delta before the snapshot, a snapshot in two messages, changes, a gap of two minutes."""
    rows = [
        (0, False, "bid", "99", "7"),
        (1, True, "bid", "100", "1.5"),
        (1, True, "ask", "101", "2"),
        (1.001, True, "ask", "102", "3"),
        (5, False, "bid", "100", "0"),
        (5, False, "bid", "99.5", "4"),
        (20, False, "ask", "100.5", "0.25"),
        (140, False, "ask", "100.4", "1"),
        (150, True, "bid", "90", "1"),
        (150, True, "ask", "91", "1"),
        (160, False, "bid", "90", "2"),
    ]
    return [HEADER, *(line(*row, "binance BTCUSDT") for row in rows)]


def okex() -> list[str]:
    rows = [(2.0, True, "bid", "99", "5"), (2.0, True, "ask", "103", "6"),
            (30.0, False, "bid", "99.2", "1")]  # fmt: skip
    return [HEADER, *(line(*row, "okex BTC-USDT") for row in rows)]


def written(folder: Path) -> list[Path]:
    plain, packed = folder / "binance.csv", folder / "okex.csv.gz"
    plain.write_text("".join(f"{each}\n" for each in binance()))
    packed.write_bytes(gzip.compress("".join(f"{each}\n" for each in okex()).encode()))
    return [plain, packed]


def imported(root: Path, paths: list[Path]) -> importing.ImportedHistory:
    return asyncio.run(import_history(root, [source_of(each, SYMBOLS) for each in paths]))


def shown(root: Path, at_s: float) -> tuple[list[tuple[float, float]], ...]:
    update = onebook.history(root, "BTC/USDT", at=START_US + round(at_s * 1e6))
    return tuple(
        [(float(each.price), float(each.amount)) for each in side]
        for side in (update.bids, update.asks)
    )


def contents(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_csv_files_are_merged_by_time(tmp_path: Path) -> None:
    found = imported(tmp_path / "history", written(tmp_path))
    hour_us = 495_000 * HOUR_US
    assert found == ((hour_us, hour_us + HOUR_US), 10)
    root = tmp_path / "history"
    assert shown(root, 1.0005) == ([(100, 1.5)], [(101, 2)])
    assert shown(root, 4) == ([(100, 1.5), (99, 5)], [(101, 2), (102, 3), (103, 6)])
    bids, asks = shown(root, 30)
    assert bids == [(99.5, 4), (99.2, 1), (99, 5)]
    assert asks[:2] == [(100.5, 0.25), (101, 2)]
    with pytest.raises(HistoryMissing, match="has a gap"):
        shown(root, 100)
    # A book is not live again before its snapshot.
    assert shown(root, 145) == ([], [])
    assert shown(root, 160) == ([(90, 2)], [(91, 1)])
    assert verify(FileStore(root)).problems == ()
    rows = HistoryFolder(root).quality(0, 1 << 62).to_pylist()
    ages = [each["age_p50_ms"] for each in rows if each["exchange"] == "okx"]
    assert ages == [None, 5.0]  # a keyframe, and a delta
    assert not (root / importing.STAGING).exists()


def test_an_hour_that_is_recorded_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    root, paths = tmp_path / "history", written(tmp_path)
    imported(root, paths[1:])
    before = contents(root)
    with pytest.raises(ImportRefused, match="The hour 2026-06-21T00 is recorded already"):
        imported(root, paths[:1])
    assert contents(root) == before


@pytest.mark.parametrize(
    ("number", "text", "words"),
    [
        (1, "exchange,symbol", "line 1: the columns must be exchange,symbol,timestamp"),
        (3, "binance,BTCUSDT,1", "line 3: 3 columns of 8"),
        (4, "ftx", "line 4: unknown exchange 'ftx'"),
        (
            4,
            "ETHUSDT",
            "line 4: the pair of ETHUSDT is unknown; give it, such as --symbol ETHUSDT=",
        ),
        (5, "maybe", "line 5: is_snapshot or side is invalid: maybe, ask"),
        (6, "1e5", "line 6: price or amount is invalid: 1e5, 0"),
        (7, "1", "line 7: local_timestamp is before"),
        (7, "noon", "line 7: 'noon' is not a time in microseconds"),
        (7, "x" * 1_001, "line 7: it is longer than 1,000 characters"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(
    tmp_path: Path, number: int, text: str, words: str
) -> None:
    lines, columns = binance(), {"ftx": 0, "ETHUSDT": 1, "maybe": 4, "1e5": 6, "1": 3, "noon": 3}
    parts = lines[number - 1].split(",")
    if text in columns:
        parts[columns[text]] = text
    lines[number - 1] = ",".join(parts) if text in columns else text
    path = tmp_path / "book.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(ImportRefused, match=str(path)) as refused:
        imported(tmp_path / "history", [path])
    assert words in str(refused.value)
    assert HistoryFolder(tmp_path / "history").hours() == []


def test_a_file_that_is_cut_is_named(tmp_path: Path) -> None:
    path = tmp_path / "book.csv.gz"
    path.write_bytes(gzip.compress("\n".join(okex()).encode())[:-10])
    with pytest.raises(ImportRefused, match=r"book\.csv\.gz: cannot be decompressed"):
        imported(tmp_path / "history", [path])
    recording = tmp_path / "wrong.rec"
    recording.write_text("1618678132.35: {}\nnonsense\n")
    with pytest.raises(ValueError, match=r"wrong\.rec, line 2"):
        imported(tmp_path / "history", [recording])


def test_an_import_that_ended_early_is_repeated(tmp_path: Path) -> None:
    class Cut(TardisFile):
        def events(self) -> Iterator[Event]:
            for number, event in enumerate(super().events()):
                if number == 7:
                    raise KeyboardInterrupt
                yield event

    root, (path, _) = tmp_path / "history", written(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(import_history(root, [Cut(path, SYMBOLS)]))
    assert HistoryFolder(root).hours() == []
    (root / importing.STAGING / "open").mkdir(parents=True)  # as after a crash
    assert len(imported(root, [path]).hours) == 2


async def test_a_folder_that_is_being_recorded_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path / "history", 3)
    await world.recorder.begin()
    sources = [source_of(each, SYMBOLS) for each in written(tmp_path)]
    with pytest.raises(ImportRefused, match="Another process records into"):
        await import_history(tmp_path / "history", sources)


async def test_a_recording_becomes_the_books_that_were_recorded(tmp_path: Path) -> None:
    last = await record_books(tmp_path / "frames")
    paths = sorted((tmp_path / "frames").iterdir())
    key = load_signing_key(tmp_path / "key.pem")
    root = tmp_path / "history"
    await import_history(root, [source_of(each, {}) for each in paths], signing_key=key)
    found = verify(FileStore(root), public_key(public_hex(key)))
    assert found.problems == ()
    for update in last:
        folder = HistoryFolder(root)
        end_us = max(each.end_us for each in folder.coverage(folder.hours()))
        past = onebook.history(root, update.symbol, at=end_us, depth=40, exchanges=RECORDED)
        assert past.bids == update.bids
        assert past.asks == update.asks


def test_the_command_imports(tmp_path: Path) -> None:
    paths = [*map(str, written(tmp_path))]
    command = ["import", str(tmp_path / "history"), *paths, "-s", "btcusdt=btc/usdt"]
    done = CliRunner().invoke(history_app, [*command, "-s", "BTC-USDT=BTC/USDT"])
    assert done.exit_code == 0, done.output
    assert (
        "Imported 10 messages as 2 hours, from 2026-06-21T00:00 to 2026-06-21T02:00" in done.output
    )
    wrong = CliRunner().invoke(history_app, [*command, "-s", "BTC-USDT"])
    assert (wrong.exit_code, "must be like BTCUSDT=BTC/USDT" in wrong.output) == (2, True)
