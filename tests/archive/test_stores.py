"""Closed hours in an object store: moto's server, a process of its own, speaks S3."""

import asyncio
import queue
import random
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import onebook
from archive.world import EPOCH_US, SYMBOL, World
from onebook.archive.folder import HistoryFolder, _read_book
from onebook.archive.format import HOUR_US, hour_folder
from onebook.archive.proof import verify
from onebook.archive.reader import books_at, recorded_times
from onebook.archive.recorder import UPLOAD_RETRY_S, HistoryRecorder
from onebook.archive.stores import FileStore
from onebook.archive.uploads import Uploader
from onebook.orderbook import HistoryMissing
from steady import PATIENCE_S

pytest.importorskip("moto.server", reason="moto, the S3 server of these tests, is not installed")

REQUEST = re.compile(r'"(?:\x1b\[\d+m)*([A-Z]+) (\S+) HTTP')
SERVED: queue.Queue[str] = queue.Queue()  # methods and paths of the module's server


@contextmanager
def s3_server(port: int = 0) -> Iterator[int]:
    """Run moto's server; yields its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    killer = threading.Timer(PATIENCE_S, process.kill)
    killer.start()
    try:
        assert process.stderr is not None
        found = None
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                break
        killer.cancel()
        assert found, "the server did not start"
        reading = threading.Thread(target=note_requests, args=(process.stderr,))
        reading.start()
        yield int(found[1])
        process.kill()
        reading.join()
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


def note_requests(log: Iterable[str]) -> None:
    for line in log:
        if found := REQUEST.search(line):
            SERVED.put(f"{found[1]} {found[2]}")


def requests_of(url: str, function: Callable[[], object]) -> list[str]:
    """Call a function; return the requests that the server received."""
    list(marked(url, "before"))
    function()
    return list(marked(url, "after"))


def marked(url: str, name: str) -> Iterator[str]:
    """Make a request; yield all earlier ones, which the server wrote before it answered them."""
    with pytest.raises(FileNotFoundError):
        FileStore(url).read(name)
    while not (request := SERVED.get(timeout=PATIENCE_S)).endswith(f"/{name}"):
        yield request


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with s3_server() as found:
        yield found


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def url_of(port: int, bucket: str, *, made: bool = True) -> str:
    options = f"scheme=http&region=us-east-1&endpoint_override=127.0.0.1:{port}"
    url = f"s3://{bucket}/a/prefix?{options}"
    if made:
        store = FileStore(f"s3://{bucket}?{options}&allow_bucket_creation=true")
        store._files.create_dir(bucket)
    return url


async def recorded(root: Path, store: FileStore, hours: int = 2) -> World:
    world = World(root, 5)
    world.recorder = HistoryRecorder(
        world.books, root, keep_days=10, keep_bytes=1 << 40, store=store, clock=world.clock
    )
    await world.recorder.begin()
    world.open()
    for hour in range(1, hours + 1):
        for _ in range(80):
            world.step()
        world.recorder.take_keyframes()
        await world.recorder.flush()
        world.clock.move_to(90 + (hour - 1) * 3_600 + 1)
        await world.recorder.flush()
        await closed(world)
    return world


async def closed(world: World) -> None:
    assert world.recorder.closing is not None
    await asyncio.wrap_future(world.recorder.closing)


async def test_the_past_is_the_same_from_the_store(tmp_path: Path, port: int) -> None:
    url = url_of(port, "same")
    world = await recorded(tmp_path / "history", FileStore(url))
    for at_us, expected in world.live[::11]:
        past = books_at(HistoryFolder(url), SYMBOL, at_us)
        assert world.checksum(past.books) == expected
    at_us = world.live[100][0]
    near, far = (
        onebook.history(place, SYMBOL, at=at_us, exchanges=("kraken", "okx"), proof=True)
        for place in (world.root, url)
    )
    assert [*near.bids] == [*far.bids]
    assert near.proof == far.proof
    assert verify(FileStore(url)).problems == ()
    assert verify(FileStore(url)).head == verify(FileStore(world.root)).head
    with pytest.raises(HistoryMissing, match=r"The history has a gap at .*: recorded until"):
        onebook.history(url, SYMBOL, at=world.live[-1][0] + 100 * HOUR_US)


async def test_a_moment_needs_two_requests_a_book(tmp_path: Path, port: int) -> None:
    url = url_of(port, "counted")
    world = await recorded(tmp_path / "history", FileStore(url))
    for at_us, hours, books in (
        (world.live[40][0], 1, 3),
        (world.live[100][0], 2, 6),  # before the first keyframe of the second hour
        (EPOCH_US + 150_000_000, 2, 3),  # after it: the hour before is only looked up
    ):
        found = requests_of(url, partial(books_at, HistoryFolder(url), SYMBOL, at_us))
        assert len(found) == 2 * (2 * hours + books), (at_us, found)
        files = [each.rpartition("/")[2] for each in found]
        assert files.count("manifest.txt") == files.count("coverage.parquet") == 2 * hours
        assert not any(each.startswith("HEAD") for each in found if each.endswith("USDT.parquet"))


async def test_columns_that_are_not_read_divide_no_request(tmp_path: Path, port: int) -> None:
    url = url_of(port, "holes")
    store = FileStore(url)
    world = await recorded(tmp_path / "history", store)
    path = next(each for each in store.files("") if each.endswith("kraken/BTC-USDT.parquet"))
    rows = pa.concat_tables([pq.read_table(world.root / path)] * 200)
    chance, place = random.Random(1), rows.schema.get_field_index("sequence")
    numbers = pa.array([chance.getrandbits(40) for _ in range(len(rows))], pa.int64())
    assert numbers.nbytes > 32_768
    rows = rows.set_column(place, rows.schema.field("sequence"), numbers)
    pq.write_table(rows, world.root / path)
    store.copy_from(world.root, path)
    read = partial(_read_book, store, "kraken", store.files(path.rpartition("/")[0]), 0, 1 << 62)
    found = requests_of(url, read)
    assert [each.split(" ")[0] for each in found] == ["GET", "GET"]  # the end, the rows


async def test_other_answers_need_few_requests(tmp_path: Path, port: int) -> None:
    url = url_of(port, "others")
    world = await recorded(tmp_path / "history", FileStore(url))
    at_us, _ = world.live[40]
    folder, tree = HistoryFolder(url), 4  # folders of years, months, days and hours
    times = partial(recorded_times, folder, SYMBOL, at_us, at_us + HOUR_US)
    assert len(requests_of(url, times)) == tree + 1 + 2 * (2 + 2)  # of two days
    quality = partial(folder.quality, at_us - HOUR_US, at_us)
    assert len(requests_of(url, quality)) == tree + 2
    rows = partial(folder.rows, [EPOCH_US // HOUR_US * HOUR_US], SYMBOL, at_us, at_us + 1)
    assert len(requests_of(url, rows)) == 2 + 2 * 3  # a manifest, three books
    plain, proven = (
        requests_of(url, partial(onebook.history, url, SYMBOL, at=at_us, proof=proof))
        for proof in (False, True)
    )
    assert len(proven) - len(plain) == 2 + 2  # the manifest, the entry
    lost = requests_of(url, partial(lost_moment, url, at_us + 100 * 24 * HOUR_US))
    assert len(lost) <= 2 + tree + 1 + 2 * 2  # no manifest, the last hour


def lost_moment(url: str, at_us: int) -> None:
    with pytest.raises(HistoryMissing, match="recorded until"):
        books_at(HistoryFolder(url), SYMBOL, at_us)


async def test_files_of_an_hour_that_changed_after_the_manifest_are_read(
    tmp_path: Path, port: int
) -> None:
    url = url_of(port, "changed")
    store = FileStore(url)
    world = await recorded(tmp_path / "history", store)
    at_us, expected = world.live[50]
    for path in (each for each in store.files("") if each.endswith("-USDT.parquet")):
        rows = pq.read_table(world.root / path)
        pq.write_table(rows, world.root / path, compression="none")
        assert (world.root / path).stat().st_size != store.files(path.rpartition("/")[0])[path]
        store.copy_from(world.root, path)
    assert world.checksum(books_at(HistoryFolder(url), SYMBOL, at_us).books) == expected
    for path in (each for each in store.files("") if each.endswith("manifest.txt")):
        store._files.delete_file(f"changed/a/prefix/{path}")
    assert world.checksum(books_at(HistoryFolder(url), SYMBOL, at_us).books) == expected
    coverage = next(each for each in store.files("") if each.endswith("coverage.parquet"))
    store._files.delete_file(f"changed/a/prefix/{coverage}")  # as if its upload had begun
    with pytest.raises(HistoryMissing):
        books_at(HistoryFolder(url), SYMBOL, at_us)


async def test_an_hour_is_missing_until_it_is_uploaded(
    tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    unused = FileStore(url_of(port, "unused", made=False))
    world = await recorded(tmp_path / "history", unused, hours=1)
    at_us, expected = world.live[50]
    count = len(FileStore(world.root).files(hour_folder(EPOCH_US)))
    found = []
    for limit in range(count + 1):
        url = url_of(port, f"part{limit}")
        left = iter([False] * limit)
        Uploader(world.root, FileStore(url)).upload(lambda left=left: next(left, True))
        try:
            found.append(world.checksum(books_at(HistoryFolder(url), SYMBOL, at_us).books))
        except HistoryMissing:
            found.append(None)
    assert found[0] is None
    assert set(found[1:]) <= {None, expected}
    assert found[-1] == expected
    # The files were listed before the upload ended, and the coverage is read after it.
    monkeypatch.setattr(HistoryFolder, "closed_files", lambda *_: {})
    with pytest.raises(HistoryMissing):
        books_at(HistoryFolder(url), SYMBOL, at_us)


async def test_a_store_that_refuses_loses_nothing(
    tmp_path: Path, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "onebook.archive")
    url = url_of(port, "later", made=False)
    world = await recorded(tmp_path / "history", FileStore(url), hours=3)
    recorder = world.recorder
    hours = [each for each in recorder.folder.hours() if each not in recorder.folder.open_hours()]
    assert len(hours) == 3
    recorder._keep_days = 0  # everything is old, but nothing is in the store
    recorder._close_hours(hours[-1] + 10 * HOUR_US)
    assert recorder.folder.hours()[:3] == hours
    for _ in range(10):  # ten minutes
        world.clock.move_to(world.clock.now_s + UPLOAD_RETRY_S)
        recorder.retry_upload()
        await closed(world)
    assert caplog.text.count("cannot be copied to s3://later/a/prefix") == 1
    assert recorder.recording
    url_of(port, "later")
    world.clock.move_to(world.clock.now_s + UPLOAD_RETRY_S)
    recorder.retry_upload()
    await closed(world)
    assert caplog.text.count("are copied to s3://later/a/prefix again") == 1
    assert verify(FileStore(url)).problems == ()
    for at_us, expected in world.live[::23]:
        assert world.checksum(books_at(HistoryFolder(url), SYMBOL, at_us).books) == expected
    recorder._close_hours(hours[-1] + 10 * HOUR_US)
    assert recorder.folder.hours() == []  # because the store has them
    assert FileStore(url).files("")
    assert verify(FileStore(world.root)).problems == ()


async def test_an_interrupted_upload_continues_and_copies_no_other_history(
    tmp_path: Path, port: int
) -> None:
    url = url_of(port, "cut", made=True)
    unused = FileStore(url_of(port, "unused", made=False))
    world = await recorded(tmp_path / "history", unused, hours=3)
    store = FileStore(url)
    asked = []

    def third() -> bool:
        asked.append(1)
        return len(asked) > 8

    assert Uploader(world.root, store).upload(third) == 1
    assert Uploader(world.root, store).pending(world.recorder.folder.hours())
    again = Uploader(world.root, store)
    assert again.upload(lambda: False) == 2
    assert again.pending(world.recorder.folder.hours()) == set()
    assert again.upload(lambda: False) == 0
    assert verify(store).problems == ()
    other = await recorded(tmp_path / "other", unused, hours=3)
    (other.root / "proof" / "00000002.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match="it has the hours of another history"):
        Uploader(other.root, store).upload(lambda: False)


def test_urls(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must not have credentials"):
        FileStore("s3://key:secret@bucket/prefix")
    with pytest.raises(ValueError, match=r"nothing://bucket/prefix is not a store"):
        FileStore("nothing://bucket/prefix?secret=1")
    store = FileStore(f"file://{tmp_path}/store")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_bytes(b"content")
    store.copy_from(tmp_path, "a/b.txt")
    assert store.read("a/b.txt") == b"content"
