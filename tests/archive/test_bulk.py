"""A play in bulk shows what a play of one change after the other shows: moments, numbers, ages."""

from pathlib import Path
from typing import Any

import pytest

import onebook
from archive.test_plays import Messages
from archive.world import NAMES, SYMBOL, World, run
from onebook.archive.folder import HistoryFolder
from onebook.archive.player import HistoryPlayer
from onebook.books import IdentityMark
from onebook.fees import fee_table
from onebook.library.update import BookUpdate
from onebook.model import Reason
from onebook.streams.options import ViewOptions
from onebook.streams.plays import Play
from onebook.streams.stream import StreamKey

FEES = {"binance": "0.1", "kraken": "0.26", "okx": "0.08"}


async def recorded(root: Path, seed: int) -> World:
    """Record changes, tops, snapshots with horizons, lost books, marks and times without recording.

    Some moments have changes of several books, and keyframes are taken of live and other books.
    """
    world = World(root, seed)
    world.steps_s = (0.0, 0.000_001, 0.05, 0.3, 0.6, 3.0)
    await world.recorder.begin()
    world.open()
    for _ in range(3):
        await run(world, 150)
        book, other = map(world.books.get, world.random.sample(world.instruments[1:], 2))
        twin = world.books.get(world.instruments[0])
        assert book is not None
        assert other is not None
        assert twin is not None
        book.mark, book.twins = IdentityMark(Reason.SHARED_BOOK, "a test"), {twin: 0.0}
        other.mark, other.twins = None, {}
        for each in (book, other):
            world.books.marked(each)
        await run(world, 150)
        world.recorder.pause()
        world.clock.move_to(world.clock.now_s + world.random.choice((2, 20, 200)))
        for _ in range(5):
            world.step()
        await world.recorder.begin()
    await run(world, 150)
    return world


def step_by_step(patched: pytest.MonkeyPatch) -> None:
    """Play each change on its own."""
    patched.setattr(HistoryPlayer, "stop_us", lambda player, _: player.due_us)


def played(root: Path, options: ViewOptions, start_us: int) -> tuple[list[Any], list[Any], int]:
    """Return the updates and statuses of a play, and the times that it was advanced."""
    found, advanced = Messages(), 0
    key = StreamKey(SYMBOL, NAMES, options)
    play = Play(HistoryFolder(root), key, start_us, found)
    while play.load():
        while play.due_us is not None:
            play.advance()
            advanced += 1
    play.close()
    return found.updates, found.statuses, advanced


@pytest.mark.parametrize("seed", range(4))
async def test_a_view_is_the_same_in_bulk(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await recorded(tmp_path, seed)
    start_us = world.live[world.random.randrange(20, 200)][0]
    times = {"ages": True, "coverage": True, "times": True, "mode": "delta", "depth": 50}
    for named in (
        {"interval_ms": 0},
        {"interval_ms": 10},
        {"interval_ms": 400},
        {"interval_ms": 1_000, "on": "best"},
        {"interval_ms": 7_000, "fees": fee_table(FEES), "crossings": "0"},
        {"interval_ms": 60_000},
    ):
        options = ViewOptions(**{**times, **named})  # type: ignore[arg-type]
        with monkeypatch.context() as patched:
            patched.setattr("onebook.archive.player.WINDOW_US", (4_000_000, 60_000_000)[seed % 2])
            *shown, advanced = played(tmp_path, options, start_us)
            step_by_step(patched)
            *steps, stepped = played(tmp_path, options, start_us)
        assert shown == steps
        assert len(shown[0]) > 3
        assert options.interval_ms < 1_000 or options.on or advanced < stepped / 2


def described(update: BookUpdate) -> tuple[Any, ...]:
    return (update.number, update.time_us, update.skipped, update.bids.ints(), update.asks.ints(),
            dict(update.exchanges), update.horizon, update.times, update.crossings)  # fmt: skip


@pytest.mark.parametrize("seed", range(4, 8))
async def test_updates_of_the_library_are_the_same_in_bulk(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = await recorded(tmp_path, seed)
    start_us = world.live[world.random.randrange(20, 200)][0]
    for options in (
        {"interval_ms": 0},
        {"interval_ms": 300, "merged": False},
        {"interval_ms": 900, "on": "best"},
        {"interval_ms": 5_000, "fees": FEES, "net": True, "crossings": "0"},
        {"interval_ms": 60_000},
    ):

        def updates(options: dict[str, Any] = options) -> list[tuple[Any, ...]]:
            found = onebook.replay(tmp_path, SYMBOL, start=start_us, times=True, **options)
            return [described(each) for each in found]

        with monkeypatch.context() as patched:
            patched.setattr("onebook.archive.player.WINDOW_US", 9_000_000)
            shown = updates()
            step_by_step(patched)
            assert shown == updates()
        skipped = max(each[2] for each in shown)
        assert skipped > 0 or options["interval_ms"] not in (900, 5_000)
