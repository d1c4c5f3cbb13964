"""The history equals the live book: every recorded update is rebuilt with its checksum."""

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

import onebook
from archive.world import EPOCH_US, NAMES, SYMBOL, World, run
from disks import filled, small_disk
from onebook.archive import segments
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.reader import books_at
from onebook.archive.recorder import KEYFRAME_S, KEYFRAMES_TURN_S
from onebook.archive.segments import Segment
from onebook.books import LiveBook
from onebook.orderbook import HistoryMissing


def missing_in(world: World, moments: slice) -> set[int]:
    """Return which of these moments the history lacks; all others must be as they were shown."""
    folder = HistoryFolder(world.root)
    lacking = set()
    for at_us, expected in world.live[moments]:
        try:
            past = books_at(folder, SYMBOL, at_us)
        except HistoryMissing:
            lacking.add(at_us)
            continue
        assert world.checksum(past.books) == expected, at_us - EPOCH_US
    return lacking


@pytest.mark.parametrize("seed", range(3))
async def test_every_moment_is_rebuilt_over_the_end_of_an_hour(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    await world.recorder.begin()
    world.open()
    await run(world, 700)
    assert world.clock.now_s > 90 + KEYFRAME_S
    assert missing_in(world, slice(seed, None, 17)) == set()
    assert [*tmp_path.glob("2026/*/*/*/kraken/BTC-USDT.parquet")]  # the closed hour
    assert [*tmp_path.glob("open/*/*.arrow")]
    before, _ = world.live[50]
    update = onebook.history(tmp_path, SYMBOL, exchanges=NAMES, at=before)
    assert update.time_us == before
    assert set(update.exchanges) == set(NAMES)


async def test_merged_segments_are_read_and_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "MERGED_SIZE", 100)
    world = World(tmp_path, 5)
    await world.recorder.begin()
    world.open()
    await run(world, 200)
    folder, hour_us = world.recorder.folder, EPOCH_US // HOUR_US * HOUR_US
    expected = folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    folder.merge_segments(hour_us)
    (segment,) = folder.segments(hour_us)
    batches = ipc.open_file(pa.memory_map(str(segment.path))).num_record_batches
    assert 1 < batches <= len(NAMES)
    assert folder.books([hour_us]) == {(name, SYMBOL) for name in NAMES}
    assert folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US) == expected
    assert missing_in(world, slice(None, None, 9)) == set()
    folder.close_hour(hour_us)
    closed = folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    assert {name: rows.to_pylist() for name, rows in closed.items()} == {
        name: rows.to_pylist() for name, rows in expected.items()
    }


def rewrite_as_earlier(segment: Segment) -> None:
    """Write a segment with a column for everything and its numbers twice in the name."""
    header, batch = segments.read(segment.path)
    books = batch["book"].to_pylist()
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    del columns["book"]
    columns["run"] = pa.array([segment.run] * len(batch), pa.int64())
    for at, name in enumerate(("exchange", "symbol")):
        texts = pa.array([header.books[book][at] for book in books], pa.string())
        columns[name] = texts.dictionary_encode()
    columns |= segments._state_columns(batch["message"], header.states)
    messages = pa.table(columns).replace_schema_metadata({"onebook.history": '{"version": 2}'})
    segment.path.unlink()
    numbers = (segment.run, segment.first, segment.last, segment.start_us, segment.end_us)
    path = segment.folder / f"{'-'.join(map(str, numbers))}.arrow"
    with ipc.new_file(path, messages.schema) as writer:
        writer.write_table(messages)


async def test_segments_of_an_earlier_build_are_converted(tmp_path: Path) -> None:
    world = World(tmp_path, 5)
    await world.recorder.begin()
    world.open()
    await run(world, 200)
    await world.recorder.flush()  # without messages
    world.recorder.pause()
    folder, hour_us = world.recorder.folder, EPOCH_US // HOUR_US * HOUR_US
    expected = folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    coverage = folder.coverage([hour_us])
    for each in folder.segments(hour_us):
        rewrite_as_earlier(each)
    with pytest.raises(ValueError, match="was written by an earlier build"):
        folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    folder.unlock()
    await world.recorder.begin()
    await run(world, 20)  # the same hour goes on
    found = folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    for name, rows in expected.items():
        assert found[name].slice(0, len(rows)).to_pylist() == rows.to_pylist()
    assert folder.coverage([hour_us])[0] == coverage[0]
    assert folder.close_hour(hour_us)
    closed = folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    assert {name: rows.to_pylist() for name, rows in closed.items()} == {
        name: rows.to_pylist() for name, rows in found.items()
    }


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        (None, "was written by an earlier build"),
        ({segments.HEADER: b"[1, [[1]]]"}, "is damaged: Expected `str`"),
    ],
)
async def test_a_segment_of_another_form_is_named(
    tmp_path: Path, merged: bool, metadata: dict[bytes, bytes] | None, words: str
) -> None:
    world = World(tmp_path, 5)
    await world.recorder.begin()
    world.open()
    await run(world, 20)
    folder, hour_us = world.recorder.folder, EPOCH_US // HOUR_US * HOUR_US
    if merged:
        folder.merge_segments(hour_us)
    path = folder.segments(hour_us)[0].path
    messages = ipc.open_file(pa.memory_map(str(path))).read_all().replace_schema_metadata(metadata)
    with ipc.new_file(path.with_suffix(".new"), messages.schema) as writer:
        writer.write_table(messages)
    path.with_suffix(".new").rename(path)
    with pytest.raises(ValueError, match=f"^{path.name} {words}"):
        folder.rows([hour_us], SYMBOL, hour_us, hour_us + HOUR_US)
    with pytest.raises(ValueError, match=words):
        folder.close_hour(hour_us)
    assert path.exists()


class Crash(Exception):
    """Simulate the end of the process here."""


@pytest.mark.parametrize("write", range(9))
async def test_a_close_that_was_interrupted_is_completed_without_duplicates(
    tmp_path: Path, write: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process ends before one of the merge, books and the hour's four files, or at the end."""
    world = World(tmp_path, 4)
    monkeypatch.setattr(world.recorder._closer, "submit", lambda *_: None)
    await world.recorder.begin()
    world.open()
    for at in range(500):
        world.step()
        if at % 12 == 0:
            world.recorder.take_keyframes()
            await world.recorder.flush()
    await world.recorder.flush()
    hour_us, _ = world.recorder.folder.open_hours()
    written = []

    def rename(path: Path, target: Path) -> Path:
        if len(written) == write:
            raise Crash
        written.append(target)
        os.rename(path, target)
        return target

    def rmtree(path: Path) -> None:
        for each in sorted(path.iterdir())[:1]:
            each.unlink()
        raise Crash

    crashing = HistoryFolder(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        patch.setattr(shutil, "rmtree", rmtree)
        with pytest.raises(Crash):
            crashing.close_hour(hour_us)
    assert missing_in(world, slice(write, None, 29)) == set()
    assert HistoryFolder(tmp_path).close_hour(hour_us)
    assert missing_in(world, slice(write, None, 29)) == set()
    for path in tmp_path.glob("[0-9]*/*/*/*/*/*.parquet"):
        rows = pq.read_table(path, columns=["run", "message", "kind"]).to_pylist()
        assert rows == sorted(rows, key=lambda row: (row["run"], row["message"]))
        states = [(row["run"], row["message"]) for row in rows if row["kind"] == "health"]
        assert len(states) == len(set(states))


async def test_an_hour_that_is_closed_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, 4)
    monkeypatch.setattr(world.recorder._closer, "submit", lambda *_: None)
    await world.recorder.begin()
    world.open()
    await run(world, 500)
    hours, files = world.recorder.folder.open_hours(), HistoryFolder.book_files

    def closing(folder: HistoryFolder, hour_us: int, *args: object) -> dict[str, int]:
        found = files(folder, hour_us, *args)  # type: ignore[arg-type]
        if len(hours) == 2:
            world.recorder.folder.close_hour(hours.pop(0))
        return found

    monkeypatch.setattr(HistoryFolder, "book_files", closing)
    at_us, expected = world.live[100]
    assert at_us < EPOCH_US + 90_000_000
    past = books_at(HistoryFolder(tmp_path), SYMBOL, at_us)
    assert world.checksum(past.books) == expected
    assert len(hours) == 1
    assert past.files


async def test_a_crash_is_missing_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path, 9)
    await world.recorder.begin()
    world.open()
    await run(world, 150)
    kept = len(world.live)
    for _ in range(20):  # never written: the process ends here
        world.step()
    world.recorder.recording = False
    world.recorder.folder.unlock()
    for _ in range(20):
        world.step()
    lost = {at for at, _ in world.live[kept:]}
    world.recorder = world.new_recorder()
    await world.recorder.begin()
    await run(world, 150)
    found = missing_in(world, slice(kept - 15, kept + 55))
    assert found == lost - {world.live[kept + 39][0]}  # its end is the new keyframe


async def test_a_second_recorder_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = World(tmp_path, 1), World(tmp_path, 2)
    await first.recorder.begin()
    await second.recorder.begin()
    await second.recorder.begin()
    assert (first.recorder.recording, second.recorder.recording) == (True, False)
    assert caplog.text.count("another recorder uses it") == 1
    first.recorder.folder.unlock()
    await second.recorder.begin()
    assert second.recorder.recording


async def test_what_was_never_recorded_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryMissing, match="has no history"):
        onebook.history(tmp_path, SYMBOL, at="2026-01-01T00:00:00")
    world = World(tmp_path, 8)
    await world.recorder.begin()
    world.open()
    await run(world, 20)
    at_us, _ = world.live[15]
    with pytest.raises(HistoryMissing, match="No book of ETH/USDT was recorded at 2026"):
        onebook.history(tmp_path, "ETH/USDT", at=at_us)
    with pytest.raises(HistoryMissing, match="No book of BTC/USDT on gate was recorded"):
        onebook.history(tmp_path, SYMBOL, exchanges="gate", at=at_us)
    with pytest.raises(ValueError, match="like 2026-11-27T14:03:00, not 'yesterday'"):
        onebook.history(tmp_path, SYMBOL, at="yesterday")


async def test_a_full_disk_is_a_gap_and_one_line_of_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onebook.archive")
    with small_disk(tmp_path / "disk", size_bytes=4 << 20) as disk:
        world = World(disk / "history", 5)
        await world.recorder.begin()
        world.open()
        await run(world, 100)
        kept = len(world.live)
        with filled(disk):
            for _ in range(3):  # each try begins a run that cannot be written
                world.step()
                await world.recorder.flush()
                assert not world.recorder.recording
                await world.recorder.begin()
        world.recorder._stop()
        full = len(world.live)
        world.step()
        await world.recorder.begin()
        await run(world, 100)
        lacking = {at for at, _ in world.live[kept : full + 1]}
        assert missing_in(world, slice(kept - 20, full + 20)) == lacking - {world.live[full][0]}
    assert caplog.text.count("are not recorded") == 1
    assert caplog.text.count("No space left on device") == 1
    assert caplog.text.count("again") == 1


async def test_an_unreadable_segment_costs_its_hour_and_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, 6)
    folder = tmp_path / "open" / "2020-01-01T00"
    folder.mkdir(parents=True)
    (folder / "1-0-0-1-2.arrow").write_bytes(b"broken")
    await world.recorder.begin()
    world.open()
    await run(world, 50)
    assert world.recorder.recording
    assert caplog.text.count("Cannot close the hour 2020-01-01T00:00:00") == 1
    assert missing_in(world, slice(0, None, 7)) == set()


async def test_keyframes_of_many_books_take_turns(tmp_path: Path) -> None:
    world = World(tmp_path, 7)
    await world.recorder.begin()
    world.open()
    await run(world, 40)
    recorder, taken = world.recorder, []

    def slow(book: LiveBook) -> None:
        taken.append(book)
        recorder._known[book] = world.clock.now_s
        world.clock.move_to(world.clock.now_s + 2 * KEYFRAMES_TURN_S)

    recorder._take_keyframe = slow  # type: ignore[method-assign]
    world.clock.move_to(world.clock.now_s + KEYFRAME_S)
    for turn in range(1, len(NAMES) + 1):
        recorder.take_keyframes()
        assert len(set(taken)) == turn
