"""Rows that are kept for the next moment: the same books, fewer reads, and a limit."""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from archive.world import EPOCH_US, NAMES, SYMBOL, World, closed_hours, run
from onebook.archive import kept as kept_module
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.kept import KeptRows
from onebook.archive.reader import books_at, kept_books_at
from onebook.books import Books
from onebook.orderbook import HistoryMissing


def described(books: Books) -> list[tuple[Any, ...]]:
    return [
        (each.instrument.exchange, each.health, each.reason, each.detail, each.mark,
         each.updated_at, each.at, each.top_at, each.top_received_at, each.levels_max, each.window,
         each.horizon(), [twin.instrument.exchange for twin in each.twins])
        for each in books
    ]  # fmt: skip


class CountedFolder(HistoryFolder):
    """A history that counts the books that were read."""

    read = 0

    def rows(self, *args: Any, **named: Any) -> Any:
        found = super().rows(*args, **named)
        self.read += len(found)
        return found


async def test_a_moment_from_kept_rows_is_that_of_the_files(tmp_path: Path) -> None:
    world = await closed_hours(tmp_path, 3)
    folder, kept = CountedFolder(tmp_path), KeptRows()
    moments = [at for at, _ in world.live[20:]]
    live = dict(world.live)
    asked = world.random.sample(moments, 60) + [each + 3 for each in reversed(moments[-60:])]
    for at_us in asked:
        found = kept_books_at(folder, SYMBOL, at_us, NAMES, kept)
        expected = books_at(folder, SYMBOL, at_us, NAMES).books
        assert described(found) == described(expected)
        assert world.checksum(found) == world.checksum(expected)
        assert world.checksum(found) == live.get(at_us, world.checksum(found))
    assert 0 < folder.read < len(asked) * len(NAMES) / 3


async def test_kept_rows_of_an_open_hour_have_nothing_newer(tmp_path: Path) -> None:
    world = World(tmp_path, 4)
    folder, kept = CountedFolder(tmp_path), KeptRows()
    async with AsyncExitStack() as stack:
        stack.push_async_exit(world.recorder)
        await world.recorder.begin()
        world.open()
        for _ in range(20):
            await run(world, 20)
            for at_us, checksum in world.live[-1:-30:-7]:
                found = kept_books_at(folder, SYMBOL, at_us, NAMES, kept)
                assert world.checksum(found) == checksum
        world.recorder.pause()
        stopped = world.clock.wall_us()
        world.clock.move_to(world.clock.now_s + 20)
        await world.recorder.begin()
        await run(world, 20)
        with pytest.raises(HistoryMissing):
            kept_books_at(folder, SYMBOL, stopped + 9_000_000, NAMES, kept)


async def test_kept_rows_do_not_hold_a_file_of_the_open_hour(tmp_path: Path) -> None:
    world = World(tmp_path, 4)
    async with AsyncExitStack() as stack:
        stack.push_async_exit(world.recorder)
        await world.recorder.begin()
        world.open()
        await run(world, 200)
        world.recorder.folder.merge_segments(EPOCH_US // HOUR_US * HOUR_US)
        kept = KeptRows()
        kept_books_at(HistoryFolder(tmp_path), SYMBOL, world.live[-100][0], NAMES, kept)
        for name in NAMES:
            rows = kept.get(SYMBOL, name)
            assert rows is not None
            assert rows.get_total_buffer_size() < 1.1 * rows.nbytes


async def test_the_rows_read_longest_ago_are_dropped_beyond_the_limit(tmp_path: Path) -> None:
    world = await closed_hours(tmp_path, 3)
    folder, at_us = CountedFolder(tmp_path), world.live[300][0]
    rows = folder.rows(folder.hours(), SYMBOL, None, at_us)
    sizes = {name: rows[name].nbytes for name in NAMES}
    kept = KeptRows(sizes["binance"] + max(sizes["kraken"], sizes["okx"]))
    for name in ("binance", "kraken"):
        kept.put(SYMBOL, name, rows[name])
    assert kept.get(SYMBOL, "binance") is rows["binance"]
    kept.put(SYMBOL, "okx", rows["okx"])
    assert [kept.get(SYMBOL, name) is not None for name in NAMES] == [True, False, True]
    kept.put(SYMBOL, "okx", rows["okx"])  # in place of itself
    assert kept.get(SYMBOL, "binance") is not None
    small = KeptRows(1)
    small.put(SYMBOL, "okx", rows["okx"])
    assert small.get(SYMBOL, "okx") is None
    assert kept_module.KEPT_BYTES == 64 << 20
