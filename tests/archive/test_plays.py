"""A played view is the live view again: the same messages, numbers and times."""

import json
from pathlib import Path
from typing import Any

import pytest

from archive.world import NAMES, SYMBOL, World, run
from onebook.archive.folder import HistoryFolder
from onebook.model import Instrument
from onebook.signals import Signal
from onebook.streams.options import ViewOptions
from onebook.streams.plays import Play
from onebook.streams.stream import StreamKey
from onebook.streams.streams import Streams


class Messages:
    """A publisher that keeps everything."""

    def __init__(self) -> None:
        self.updates: list[dict[str, Any]] = []
        self.statuses: list[dict[str, Any]] = []

    def publish(self, stream: Any, payload: bytes, full: Any) -> None:
        self.updates.append(json.loads(payload))

    def status(self, stream: Any, payload: bytes) -> None:
        self.statuses.append(json.loads(payload))

    def flush(self, ends_at: float) -> None:
        pass


class Feeds:
    """The list and the subscriptions of a node whose books the test changes."""

    def __init__(self, instruments: list[Instrument]) -> None:
        self.on_read: Signal[[str]] = Signal()
        self._instruments = {each.exchange: each for each in instruments}

    def instrument(self, exchange: str, symbol: str) -> Instrument | None:
        return self._instruments.get(exchange)

    def acquire(self, instrument: Instrument) -> None:
        pass

    def release(self, instrument: Instrument) -> None:
        pass


def shown(update: dict[str, Any]) -> tuple[Any, ...]:
    data = update["data"]
    return (update["timestamp"], data["bids"], data["asks"], data["stale_exchanges"],
            update.get("checksum"))  # fmt: skip


@pytest.mark.parametrize("interval_ms", [0, 300])
async def test_a_play_sends_what_was_sent_live(tmp_path: Path, interval_ms: int) -> None:
    world, live = World(tmp_path, 31), Messages()
    feeds = Feeds(world.instruments)
    await world.recorder.begin()
    world.open()
    streams = Streams(
        books=world.books,
        supervisor=feeds,
        catalogue=feeds,
        publisher=live,
        clock=world.clock,
        guarded=False,
    )
    await run(world, 150)
    key = StreamKey(SYMBOL, NAMES, ViewOptions(depth=40, interval_ms=interval_ms, mode="delta"))
    world.clock.move_to(world.clock.now_s + 1)
    world.step()
    streams.open(key)
    world.clock.move_to(world.clock.now_s)
    start = world.clock.wall_us()
    for at in range(300):
        world.step()
        world.clock.move_to(world.clock.now_s)
        if at % 12 == 0:
            world.recorder.take_keyframes()
            await world.recorder.flush()
    await world.recorder.flush()
    played = Messages()
    play = Play(HistoryFolder(tmp_path), key, start, played)
    while play.load():
        while play.due_us is not None:
            play.advance()
    assert len(live.updates) > 50
    assert [shown(each) for each in played.updates] == [shown(each) for each in live.updates]
    assert [each["update_number"] for each in played.updates] == [
        each["update_number"] for each in live.updates
    ]
    assert played.statuses == live.statuses
    play.close()
