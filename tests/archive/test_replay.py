"""A history that is played equals what was live: every state, in order, with its times."""

import asyncio
import random
import zlib
from bisect import bisect_right
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import onebook
from archive.world import EPOCH_US, NAMES, SYMBOL, World, run
from onebook.archive import player as player_module
from onebook.archive.folder import HistoryFolder
from onebook.archive.format import HOUR_US
from onebook.archive.player import HistoryPlayer
from onebook.archive.recorder import HistoryRecorder
from onebook.books import Books
from onebook.clock import ManualClock, iso_us
from onebook.exchanges.kit import Delta, Snapshot
from onebook.library import BookUpdate, HistoryMissing, UnknownSymbol
from onebook.library import player as library_player
from onebook.model import Health, Instrument, Reason


def checksum(update: BookUpdate) -> int:
    """Return the checksum of an update as docs/reference/messages.md defines it."""

    def text(number: Decimal) -> str:
        plain = f"{number:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain

    levels = [*[*update.bids][:25], *[*update.asks][:25]]
    return zlib.crc32(":".join(f"{text(p)}:{text(a)}" for p, a, *_ in levels).encode())


def held(moments: list[int], at_us: int) -> int:
    """Return the position of the last of these moments until a time."""
    return bisect_right(moments, at_us) - 1


def verify(world: World, updates: list[BookUpdate]) -> None:
    """Check that updates show the live states at their times, and that none is missing."""
    moments = [at for at, _ in world.live]
    for update in updates:
        at = held(moments, update.time_us)
        assert checksum(update) == world.live[at][1], (update.number, update.time_us - EPOCH_US)
        states = {name: (each.state, each.reason) for name, each in update.exchanges.items()}
        assert states == world.states[at]
    assert [each.number for each in updates] == [*range(1, len(updates) + 1)]
    times = [each.time_us for each in updates]
    assert times == sorted(times)
    for at_us, expected in world.live[held(moments, times[0]) :]:
        assert checksum(updates[held(times, at_us)]) == expected, at_us - EPOCH_US


@pytest.mark.parametrize("seed", range(3))
async def test_a_played_history_is_every_live_state_over_the_end_of_an_hour(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed:  # many windows; otherwise two
        monkeypatch.setattr(player_module, "WINDOW_US", 700_000)
        monkeypatch.setattr(player_module, "WINDOW_ROWS", 100 * seed)
    world = World(tmp_path, seed)
    await world.recorder.begin()
    world.open()
    await run(world, 700)
    assert [*tmp_path.glob("2026/*/*/*/kraken/BTC-USDT.parquet")]  # the closed hour
    assert [*tmp_path.glob("open/*/*.arrow")]
    start, end = world.live[20][0], world.live[-1][0]
    played = [*onebook.replay(tmp_path, SYMBOL, depth=500, start=start)]
    verify(world, played)
    assert played[0].time_us == start
    again = [*onebook.replay(tmp_path, depth=500, start=start, end=iso_us(end))]
    assert [each.to_ccxt() for each in again] == [each.to_ccxt() for each in played]


async def test_the_past_is_what_was_live_over_a_recorded_hour(tmp_path: Path) -> None:
    world = World(tmp_path, 11)
    world.steps_s = (0.001, 0.3, 2.0)
    await world.recorder.begin()
    world.open()
    while world.clock.now_s < 3_600:
        await run(world, 400)
    start = world.live[10][0]
    played = [*onebook.replay(str(tmp_path), SYMBOL, exchanges=NAMES, depth=500, start=start)]
    assert len(played) > 3_000
    verify(world, played)


async def test_updates_keep_their_interval_and_show_the_book_at_their_time(tmp_path: Path) -> None:
    world = World(tmp_path, 5)
    await world.recorder.begin()
    world.open()
    await run(world, 400)
    start, end = world.live[30][0], world.live[-1][0]
    played = [*onebook.replay(tmp_path, SYMBOL, depth=500, interval_ms=400, start=start, end=end)]
    moments = [at for at, _ in world.live]
    for before, update in zip([None, *played], played, strict=False):
        at = held(moments, update.time_us)
        assert checksum(update) == world.live[at][1]
        states = world.states[at]
        left = (
            before is not None
            and before.exchanges.keys()
            and any(
                before.exchanges[name].state is not state for name, (state, _) in states.items()
            )
        )
        assert before is None or left or update.time_us - before.time_us >= 400_000
    assert {each.time_us for each in played} - {*moments}  # at the ends of intervals
    assert max(each.skipped for each in played) > 0


class Pairs:
    """The levels of some books as dicts, which know nothing of Onebook's books."""

    def __init__(self, names: list[str]) -> None:
        self.books: dict[str, tuple[dict[str, str], dict[str, str]]] = {
            name: ({}, {}) for name in names
        }

    def merged(self) -> tuple[list[tuple[Fraction, Fraction]], ...]:
        found = []
        for side in range(2):
            total: Counter[Fraction] = Counter()
            for sides in self.books.values():
                for price, amount in sides[side].items():
                    total[Fraction(price)] += Fraction(amount)  # type: ignore[assignment]
            found.append(sorted(total.items(), reverse=side == 0))
        return tuple(found)  # type: ignore[return-value]


@pytest.mark.parametrize("seed", range(6))
async def test_a_played_book_is_all_changes_until_its_time_in_a_dict(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(player_module, "WINDOW_US", 3_000_000)
    rng, names = random.Random(seed), ["a", "b", "c"]
    clock, books, oracle = ManualClock(epoch_us=EPOCH_US), Books(), Pairs(names)
    recorder = HistoryRecorder(books, tmp_path, keep_days=9, keep_bytes=1 << 40, clock=clock)
    await recorder.begin()
    instruments = {name: Instrument(name, SYMBOL, name) for name in names}
    for each in instruments.values():
        books.open(each)
    known: list[tuple[int, Any]] = []
    for at in range(300):
        clock.move_to(clock.now_s + rng.choice((0.0, 0.000001, 0.4)))
        name = rng.choice(names)
        instrument, sides = instruments[name], oracle.books[name]
        book = books.get(instrument)
        assert book is not None
        rows: tuple[list[list[str]], ...] = ([], [])
        chance = rng.random()
        if book.health is Health.LIVE and chance < 0.04:
            books.set_health(instrument, Health.STALE, Reason.GAP, clock.now_s)
            sides[0].clear(), sides[1].clear()
        else:
            whole = book.health is not Health.LIVE or chance < 0.1
            for side in range(2):
                for number in rng.sample(range(30), 12 if whole else 3):
                    price = f"{(100 - number / 4 if side == 0 else 101 + number / 4):.2f}"
                    amount = "0" if not whole and rng.random() < 0.5 else f"{rng.random() + 1:.3f}"
                    rows[side].append([price, amount])
            texts = [str(each).replace("'", '"').encode() for each in rows]
            if whole:
                sides[0].clear(), sides[1].clear()
                books.fill(Snapshot(instrument, *texts, sequence=at), clock.now_s)
            else:
                books.change(Delta(instrument, *texts, sequence=at), clock.now_s)
            for side, changed in zip(sides, rows, strict=True):
                side.update(dict(changed))  # type: ignore[arg-type]
                for price in [price for price, amount in side.items() if amount == "0"]:
                    del side[price]
        known.append((clock.wall_us(), oracle.merged()))
        if at % 20 == 0:
            recorder.take_keyframes()
            await recorder.flush()
    await recorder.flush()
    moments = [at for at, _ in known]
    start = rng.choice(moments[:200])
    updates = [*onebook.replay(tmp_path, SYMBOL, depth=500, start=start)]
    for update in updates:
        levels = tuple(
            [(Fraction(p), Fraction(a)) for p, a, *_ in side] for side in (update.bids, update.asks)
        )
        assert levels == known[held(moments, update.time_us)][1]
    assert updates[0].time_us == start
    assert len(updates) > 50


async def test_what_was_not_recorded_is_stale_with_the_reason(tmp_path: Path) -> None:
    world = World(tmp_path, 9)
    await world.recorder.begin()
    world.open()
    await run(world, 150)
    stopped = world.clock.wall_us()
    for _ in range(20):  # never written: the process ends here
        world.step()
    world.recorder.recording = False
    world.recorder.folder.unlock()
    world.clock.move_to(world.clock.now_s + 30)
    world.recorder = world.new_recorder()
    await world.recorder.begin()
    begun = world.clock.wall_us()
    await run(world, 150)
    played = [*onebook.replay(tmp_path, SYMBOL, depth=500, start=world.live[40][0])]
    (gap,) = [each for each in played if stopped <= each.time_us < begun and not each.live]
    assert gap.time_us == stopped
    assert (gap.live, len(gap.bids), gap.stale) == (False, 0, NAMES)
    assert {(each.state, each.reason, each.detail) for each in gap.exchanges.values()} == {
        (
            Health.STALE,
            Reason.NOT_RECORDED,
            f"nothing was recorded from {iso_us(stopped)} to {iso_us(begun)}",
        )
    }
    moments = [at for at, _ in world.live]
    for update in played:
        if update is not gap and update.time_us > begun + 1_000:
            assert checksum(update) == world.live[held(moments, update.time_us)][1]
    assert any(each.live for each in played if each.time_us > begun)
    with pytest.raises(HistoryMissing, match="has a gap at"):
        onebook.replay(tmp_path, SYMBOL, start=stopped + 1_000_000)
    before = [*onebook.replay(tmp_path, SYMBOL, depth=500, start=stopped - 9, end=stopped)]
    assert not [each for each in before if each.time_us > stopped or not each.live]


async def test_a_deleted_hour_is_a_gap_and_ends_no_replay(tmp_path: Path) -> None:
    world = World(tmp_path, 3)
    world.steps_s = (1.0, 30.0)
    await world.recorder.begin()
    world.open()
    while world.clock.now_s < 3 * 3_600:
        await run(world, 100)
    first = EPOCH_US // HOUR_US * HOUR_US
    player = HistoryPlayer(HistoryFolder(tmp_path), [SYMBOL], world.live[5][0])
    shown = []
    while player.load():
        while player.due_us is not None:
            player.play(player.due_us)
            shown.append((player.at_us, {each.reason for each in player.books}))
        if not player.at_us // HOUR_US * HOUR_US - first and HistoryFolder(tmp_path).hours():
            HistoryFolder(tmp_path).keep(1 << 40, first + 2 * HOUR_US + 1)
    lost = [at for at, reasons in shown if reasons == {Reason.NOT_RECORDED}]
    assert len(lost) == 1
    after = min(at for at, _ in shown if at > lost[0])
    assert after >= first + 2 * HOUR_US
    assert shown[-1][0] > after


async def test_the_speed_is_that_of_the_recorded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, 6)
    await world.recorder.begin()
    world.open()
    await run(world, 200)

    class Machine:
        now = 1_000.0

        @classmethod
        def monotonic(cls) -> float:
            return cls.now

        @classmethod
        def sleep(cls, seconds: float) -> None:
            cls.now += seconds

    monkeypatch.setattr(library_player, "time", Machine)
    start, end = world.live[20][0], world.live[-1][0]
    for speed in (1, 10, 0.5):
        began, shown = Machine.now, []
        for update in onebook.replay(tmp_path, SYMBOL, start=start, end=end, speed=speed):
            shown.append((update.time_us - start, Machine.now - began))
            Machine.now += 0.02 / speed  # a loop that is slower than some of the changes
        assert all(now + 1e-6 >= at / 1e6 / speed for at, now in shown)
        assert shown[-1][1] < (end - start) / 1e6 / speed + 2 / speed
    began = Machine.now
    assert [*onebook.replay(tmp_path, SYMBOL, start=start)]
    assert Machine.now == began
    for speed in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="speed must be 0 or more"):
            onebook.replay(tmp_path, SYMBOL, speed=speed)
    with pytest.raises(ValueError, match="end must not be before start"):
        onebook.replay(tmp_path, SYMBOL, start=end, end=start)


async def test_options_of_a_view_and_what_was_never_recorded(tmp_path: Path) -> None:
    world = World(tmp_path, 8)
    await world.recorder.begin()
    world.open()
    await run(world, 200)
    start = world.live[40][0]
    apart = [*onebook.replay(tmp_path, SYMBOL, merged=False, start=start)]
    assert {each.exchange for each in apart} == set(NAMES)
    split = [*onebook.replay(tmp_path, SYMBOL, exchanges=["okx", "binance"], split=True,
                             fees={"okx": "0.1", "binance": "0.1"}, net=True, times=True,
                             on="best", group="0.5", start=start)]  # fmt: skip
    assert {*split[0].exchanges} == {"okx", "binance"}
    assert split[-1].times is not None
    asked = [*onebook.replay(tmp_path, SYMBOL, exchanges=["okx", "gate"], start=start)]
    gate = asked[0].exchanges["gate"]
    assert (gate.state, gate.reason) == (Health.OFFLINE, Reason.NOT_RECORDED)
    with pytest.raises(UnknownSymbol, match="ETH/USDT is not recorded"):
        onebook.replay(tmp_path, [SYMBOL, "ETH/USDT"])
    with pytest.raises(HistoryMissing, match="No book of DOGE/USDT was recorded from"):
        onebook.replay(tmp_path, "DOGE/USDT")
    with pytest.raises(HistoryMissing, match="recorded until"):
        onebook.replay(tmp_path, SYMBOL, start="2031-01-01T00:00:00")


async def test_a_basket_is_played_with_the_books_that_convert(tmp_path: Path) -> None:
    clock, books = ManualClock(epoch_us=EPOCH_US), Books()
    recorder = HistoryRecorder(books, tmp_path, keep_days=9, keep_bytes=1 << 40, clock=clock)
    await recorder.begin()
    for symbol, bid, ask in (
        ("BTC/USDT", "100", "101"),
        ("BTC/USDC", "200", "201"),
        ("USDC/USDT", "0.5", "0.51"),
    ):
        instrument = Instrument("okx", symbol, symbol)
        books.open(instrument)
        clock.move_to(clock.now_s + 1)
        texts = (f'[["{price}","1000"]]'.encode() for price in (bid, ask))
        books.fill(Snapshot(instrument, *texts, sequence=1), clock.now_s)
    await recorder.flush()
    recorder.folder.unlock()
    await asyncio.sleep(0)
    *_, last = onebook.replay(tmp_path, SYMBOL, quotes=["USDC"])
    assert [each.exchanges for each in last.bids] == [("okx", "okx:USDC")]
    assert [each.symbol for each in last.conversions] == ["USDC/USDT"]


async def test_a_history_is_played_while_it_is_recorded(tmp_path: Path) -> None:
    """Over merged segments and the close of an hour; nothing is missed or played twice."""
    world = World(tmp_path, 21)
    await world.recorder.begin()
    world.open()
    await run(world, 12)
    player = HistoryPlayer(HistoryFolder(tmp_path), [SYMBOL], world.live[3][0], None, NAMES)
    shown = 0
    for _ in range(60):
        while player.load():
            while player.due_us is not None:
                player.play(player.due_us)
                at = held([each for each, _ in world.live], player.at_us)
                assert world.checksum(player.books) == world.live[at][1]
                shown += 1
        assert player.at_us == world.recorder._last_us
        await run(world, 12)
    assert shown > 500
    assert not [*tmp_path.glob("open/2026-06-20*")]


async def test_closed_hours_are_played_from_a_store(tmp_path: Path) -> None:
    world = World(tmp_path, 22)
    await world.recorder.begin()
    world.open()
    await run(world, 700)
    start, end = world.live[20][0], (EPOCH_US // HOUR_US + 1) * HOUR_US
    played = [*onebook.replay(tmp_path.as_uri(), SYMBOL, depth=500, start=start)]
    local = [*onebook.replay(tmp_path, SYMBOL, depth=500, start=start, end=end)]
    assert [each.to_ccxt() for each in played] == [each.to_ccxt() for each in local]
    assert played[-1].time_us > end - 2_000_000
    bars = onebook.bars(tmp_path.as_uri(), SYMBOL, start=start)
    assert bars.equals(onebook.bars(tmp_path, SYMBOL, start=start, end=end))


async def test_updates_have_the_times_of_the_exchanges_and_of_receipt(tmp_path: Path) -> None:
    world = World(tmp_path, 23)
    await world.recorder.begin()
    world.open()
    await run(world, 500)
    moments = [at for at, _ in world.live]
    tops = unknown = 0
    for update in onebook.replay(tmp_path, SYMBOL, times=True, start=world.live[100][0]):
        live = world.times[held(moments, update.time_us)]
        assert update.times is not None
        assert update.times.exchanges.keys() == live.keys()
        for name, each in update.times.exchanges.items():
            depth_sent, depth_received, top_sent, top_received = live[name]
            assert each.depth.exchange_us == (depth_sent or None)
            assert abs(each.depth.received_us - depth_received) <= 1
            if abs(each.top.received_us - top_received) <= 1:
                assert each.top.exchange_us == (top_sent or None)
                tops += each.top != each.depth
            else:  # the start is after the top: its keyframe is the oldest that is known of it
                assert top_received < each.top.received_us <= update.time_us
                assert each.top.exchange_us is None
                unknown += 1
    assert tops > 20
    assert unknown < tops
