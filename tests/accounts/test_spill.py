"""Usage files: whole after any cut, taken in exactly once, never from a node that lives."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from onebook.accounts import Meter, spill
from onebook.accounts.keys import Key, key_of
from onebook.accounts.spill import Batch, UsageFile, take_in
from onebook.accounts.usage_report import stored_usage
from onebook.errors import DatabaseUnavailable
from onebook.store import Store, UsageCell
from together import in_processes, taken_in

from .conftest import START_MS, Rig

NAME = "onebook.db"


@pytest.fixture
async def key(rig: Rig) -> Key:
    row = await rig.store.accounts.key(rig.key_id)
    assert row is not None
    return key_of(row)


def batch(seq: int, key: Key, count: int) -> Batch:
    return Batch(seq, {UsageCell(key.key_id, START_MS): count})


async def total(rig: Rig, key: Key) -> int:
    return await rig.store.usage.total(UsageCell(key.key_id, START_MS))


async def test_what_a_node_left_is_taken_in_once_also_from_a_copy(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10), batch(2, key, 5)])
    await rig.store.usage.apply(("epoch", 1), {UsageCell(key.key_id, START_MS): 10}, 0)
    file.release()
    assert file.path.stat().st_mode & 0o777 == 0o600
    copy = shutil.copy(file.path, tmp_path / "copy")
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 5, "batch 1 was counted"
    assert not file.path.exists()
    os.rename(copy, file.path)
    await rig.store.prune(sessions_before_ms=0, batches_before_ms=START_MS + 10**12)
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 0
    assert await total(rig, key) == 15


async def test_the_file_of_a_living_node_is_left_alone(rig: Rig, key: Key, tmp_path: Path) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10)])
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 0
    assert file.path.exists()
    file.put([])
    file.release()
    assert not file.path.exists(), "it held nothing"


@pytest.mark.parametrize("cut", [0, 1, 8, 20, 30])
async def test_a_write_that_was_cut_off_leaves_the_one_before(
    rig: Rig, key: Key, tmp_path: Path, cut: int
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10)])
    file.put([batch(1, key, 10), batch(2, key, 7)])
    offset = 2 % spill.SLOTS * spill.SLOT_BYTES
    with file.path.open("r+b") as raw:
        raw.seek(offset + cut)
        raw.write(b"\xff" * 16)
    file.release()
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 10


async def test_a_file_without_a_whole_slot_stays_and_is_named(
    rig: Rig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / f"{NAME}.usage-x").write_bytes(b"damaged" * 100)
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 0
    assert "is damaged" in caplog.text
    assert (tmp_path / f"{NAME}.usage-x").exists()


async def test_usage_of_keys_that_another_database_has_stays(
    rig: Rig, key: Key, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([Batch(1, {UsageCell("key_of_another", START_MS): 10})])
    file.release()
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 0
    assert "holds 10 bytes of keys that this database lacks" in caplog.text
    assert file.path.exists()


async def test_too_many_keys_are_an_error_and_what_was_kept_stays(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([batch(1, key, 10)])
    many = {UsageCell(f"key_{number:012}", START_MS): number for number in range(60_000)}
    with pytest.raises(OSError, match="so many keys"):
        file.put([Batch(1, many)])
    file.release()
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 10


async def test_ten_thousand_keys_fit(tmp_path: Path) -> None:
    cells = {UsageCell(f"key_{number:012}", START_MS): 10**12 for number in range(10_000)}
    file = UsageFile.create(tmp_path, NAME, "epoch")
    file.put([Batch(1, cells), Batch(2, cells)])
    file.release()


async def test_of_processes_that_start_at_once_one_takes_it_in(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    for number in range(20):
        file = UsageFile.create(folder, NAME, f"epoch{number}")
        file.put([batch(1, key, 10)])
        file.release()
    url = str(rig.store.database._engine.url)
    taken = await asyncio.to_thread(in_processes, 3, taken_in, folder, NAME, url, START_MS)
    assert sum(taken) == 200
    assert await total(rig, key) == 200
    assert list(folder.iterdir()) == []


class Away:
    """A store whose writes never answer, or fail."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.usage = self
        self.totals = store.usage.totals
        self.facts = store.facts
        self.hangs = False
        self.fails = False

    async def apply(self, *details: object) -> object:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise DatabaseUnavailable("it is away")
        return await self._store.usage.apply(*details)  # type: ignore[arg-type]


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_each_round_without_the_store_reaches_the_file(
    rig: Rig, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 0.01)
    away = Away(rig.store)
    setattr(away, how, True)
    file = UsageFile.create(tmp_path, NAME, "epoch")
    meter = Meter(away, rig.clock, file=file)  # type: ignore[arg-type]
    await meter.open(key)
    unsettled = [3, 4, 5]
    meter.collect.subscribe(lambda: meter.add(key.key_id, unsettled.pop()) if unsettled else None)
    for _ in range(3):
        if how == "fails":
            with pytest.raises(DatabaseUnavailable):
                await meter.round()
        else:
            await meter.round()
    if meter._writing is not None:
        meter._writing.cancel()
    file.release()  # as the kernel does when the node is killed
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 12
    assert await stored_usage(rig.store, key, rig.clock()) == 12


async def test_when_the_store_is_back_the_file_is_emptied_and_nothing_counts_twice(
    rig: Rig, key: Key, tmp_path: Path
) -> None:
    away = Away(rig.store)
    away.fails = True
    file = UsageFile.create(tmp_path, NAME, "epoch")
    meter = Meter(away, rig.clock, file=file)  # type: ignore[arg-type]
    await meter.open(key)
    for _ in range(2):
        meter.add(key.key_id, 10)
        with pytest.raises(DatabaseUnavailable):
            await meter.round()
    kept = file.path.read_bytes()
    away.fails = False
    await meter.round()
    assert not file.holds_usage
    file.release()
    file.path.write_bytes(kept)  # a crash before it was emptied
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 0
    assert await stored_usage(rig.store, key, rig.clock()) == 20


class Slow(Away):
    """A store whose first write takes until it is let go."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.go_on = asyncio.Event()

    async def apply(self, *details: object) -> object:
        await self.go_on.wait()
        return await self._store.usage.apply(*details)  # type: ignore[arg-type]


async def writing_slowly(rig: Rig, key: Key, folder: Path) -> tuple[Meter, Slow, UsageFile]:
    """A meter whose write of 10 bytes takes longer than it waits."""
    slow = Slow(rig.store)
    file = UsageFile.create(folder, NAME, "epoch")
    meter = Meter(slow, rig.clock, file=file)  # type: ignore[arg-type]
    await meter.open(key)
    meter.add(key.key_id, 10)
    await meter.round()
    return meter, slow, file


async def test_usage_that_was_collected_during_a_slow_write_stays_in_the_file_after_it(
    rig: Rig, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 0.01)
    meter, slow, file = await writing_slowly(rig, key, tmp_path)
    meter.add(key.key_id, 7)
    await meter.round()
    slow.go_on.set()
    assert meter._writing is not None
    await meter._writing
    assert await stored_usage(rig.store, key, rig.clock()) == 10
    file.release()  # as the kernel does when the node is killed
    assert await take_in(tmp_path, NAME, rig.store, START_MS) == 7
    assert await stored_usage(rig.store, key, rig.clock()) == 17


async def test_the_file_is_empty_again_after_a_fast_write_though_usage_goes_on(
    rig: Rig, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 0.01)
    meter, slow, file = await writing_slowly(rig, key, tmp_path)
    assert file.holds_usage
    slow.go_on.set()
    assert meter._writing is not None
    await meter._writing
    monkeypatch.setattr("onebook.accounts.usage.SLOW_WRITE_S", 60.0)
    apply = slow.apply

    async def counted_meanwhile(*details: object) -> object:
        meter.add(key.key_id, 7)
        return await apply(*details)

    slow.apply = counted_meanwhile  # type: ignore[method-assign]
    for _ in range(2):  # the first takes over what the slow write left
        meter.add(key.key_id, 1)
        await meter.round()
    assert not file.holds_usage
