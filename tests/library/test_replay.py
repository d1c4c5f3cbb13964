"""Recordings of the library, replayed: the same books, at the recorded times."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest

import onebook
from core.conversions import World, decimals_of, expected
from library.place import PATIENCE_S, SYMBOL, feeds, shown, sides, truth
from onebook.archive.recorder import HistoryRecorder
from onebook.exchanges import EXCHANGES
from onebook.feeds.recording import (
    ConnectionOpened,
    Fetched,
    Received,
    RecordingError,
    Sent,
    read,
)
from onebook.library import (
    BookUpdate,
    ExchangeSettings,
    FeedSettings,
    Health,
    UnknownExchange,
    UnknownSymbol,
)
from onebook.simulator import SimulatedExchanges

# A snapshot on the socket with a checksum, one by REST, one that is asked for and compressed.
NAMES = ["kraken", "binance", "htx"]
DEPTH = 40
STEPS = 6


async def recorded(folder: Path) -> list[BookUpdate]:
    """Record some steps of two symbols; return the books at the end."""
    async with (
        SimulatedExchanges(NAMES, seed=17, rate_hz=0) as sim,
        onebook.order_books(
            [SYMBOL, "ETH/USDT"], exchanges=NAMES, depth=DEPTH, feeds=feeds(sim), record=folder
        ) as books,
        asyncio.timeout(PATIENCE_S),
    ):
        for _ in range(STEPS):
            sim.step()
            while any(
                shown(each) != truth(sim, NAMES, DEPTH, each.symbol) for each in books.snapshots()
            ):
                await asyncio.sleep(0.01)
        return books.snapshots()


def best(side: Iterable[Any]) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(each.price), Fraction(each.amount)) for each in islice(side, 10)]


def pooled(sim: SimulatedExchanges, names: list[str], side: int) -> list[tuple[Fraction, Fraction]]:
    """The best of BTC/USDT and of BTC/USDC, each converted on its own exchange."""
    total = Counter[Fraction]()
    for name in names:
        books = [sim[name].book(each) for each in (SYMBOL, "BTC/USDC", "USDC/USDT")]
        for price, amount in books[0][side].items():
            total[Fraction(price)] += Fraction(amount)  # type: ignore[assignment]
        world = World([books[1]], ["0"], [books[2]], ["0"], inverse=False, scales=[8])
        (levels,) = expected(world, side, decimals_of(world))
        for at, held in levels:
            total[at] += held  # type: ignore[assignment]
    found = sorted(total.items(), reverse=side == 0)[:10]
    return found  # type: ignore[return-value]


async def test_an_exchange_that_names_the_address_of_its_socket_is_recorded(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "recording"
    async with SimulatedExchanges(["kucoin"], seed=17, rate_hz=0) as sim:
        classic = ExchangeSettings(
            ws_url="ws://127.0.0.1:1", rest_url=sim.urls["kucoin"].rest, channel="classic"
        )
        async with (
            asyncio.timeout(PATIENCE_S),
            onebook.order_book(
                SYMBOL,
                exchanges=["kucoin"],
                feeds=feeds(sim, overrides={"kucoin": classic}),
                record=folder,
            ) as book,
        ):
            assert book.snapshot().live
    kinds = [type(each) for each in read(folder / "kucoin.rec")]
    assert {ConnectionOpened, Sent, Received, Fetched} <= set(kinds)


async def test_a_replay_ends_with_the_books_that_were_live(tmp_path: Path) -> None:
    live = await recorded(tmp_path / "recording")
    assert sorted(each.name for each in (tmp_path / "recording").iterdir()) == [
        "binance.rec",
        "htx.rec",
        "kraken.rec",
    ]
    played = [*onebook.replay(tmp_path / "recording", depth=DEPTH)]
    again = [*onebook.replay(tmp_path / "recording", depth=DEPTH)]
    assert [each.to_ccxt() for each in played] == [each.to_ccxt() for each in again]
    last = {each.symbol: each for each in played}
    assert {symbol: shown(each) for symbol, each in last.items()} == {
        each.symbol: shown(each) for each in live
    }
    times = [each.time_us for each in played]
    assert times == sorted(times)
    assert live[0].time_us - 3_600_000_000 < times[0] <= times[-1] <= live[0].time_us
    assert all(each.stale == () for each in last.values())
    for symbol in last:
        numbers = [each.number for each in played if each.symbol == symbol]
        assert numbers == [*range(1, len(numbers) + 1)]
        assert len(numbers) >= STEPS

    one = [*onebook.replay(tmp_path / "recording" / "kraken.rec", SYMBOL, depth=DEPTH)]
    assert {(each.symbol, each.exchange) for each in one} == {(SYMBOL, "kraken")}
    apart = [
        *onebook.replay([tmp_path / "recording"], SYMBOL, exchanges=["kraken", "htx"], merged=False)
    ]
    assert {each.exchange for each in apart} == {"kraken", "htx"}

    middle = times[len(times) // 2]
    part = [*onebook.replay(tmp_path / "recording", depth=DEPTH, start=middle, end=times[-2])]
    assert min(each.time_us for each in part) == middle
    assert max(each.time_us for each in part) <= times[-2]
    # Several entries may have one time; the last update of a time shows them all.
    kept, again = ({(each.symbol, each.time_us): each for each in some} for some in (played, part))
    inner = [at for at in kept if middle < at[1] <= times[-2]]
    # A book's first update may have fallen on the start.
    first = {symbol: min(at[1] for at in inner if at[0] == symbol) for symbol in last}
    assert len(inner) > len(last)
    for at in inner:
        assert at[1] == first[at[0]] or shown(again[at]) == shown(kept[at])

    with pytest.raises(UnknownSymbol, match="DOGE/USDT is not recorded; recorded: BTC/USDT, ETH"):
        onebook.replay(tmp_path / "recording", "DOGE/USDT")
    with pytest.raises(RecordingError, match="The recordings have no data of okx"):
        onebook.replay(tmp_path / "recording", exchanges="okx")
    with pytest.raises(UnknownExchange):
        onebook.replay(tmp_path / "recording", exchanges="okay")


async def test_a_basket_is_replayed_with_the_books_that_convert(tmp_path: Path) -> None:
    names, symbols = ["kraken", "okx"], [SYMBOL, "BTC/USDC", "USDC/USDT"]
    async with (
        SimulatedExchanges(names, seed=17, rate_hz=0) as sim,
        onebook.order_books(
            [SYMBOL], exchanges=names, quotes=["USDC"], feeds=feeds(sim), record=tmp_path
        ) as books,
        asyncio.timeout(PATIENCE_S),
    ):
        while not all(step.exchanges for step in books.snapshots()[0].conversions):
            await asyncio.sleep(0.01)
        for _ in range(STEPS):
            sim.step()
        whole = [pooled(sim, names, side) for side in (0, 1)]
        while [best(side) for side in sides(books.snapshots()[0])] != whole:
            await asyncio.sleep(0.01)
    played = [*onebook.replay(tmp_path, SYMBOL, quotes=["USDC"])]
    assert [best(side) for side in sides(played[-1])] == whole
    assert played[-1].stale == ()
    assert {each.members: each.exchanges for each in played[-1].conversions} == {
        ("kraken:USDC",): ("kraken",),
        ("okx:USDC",): ("okx",),
    }
    apart = [*onebook.replay(tmp_path, SYMBOL, quotes=["USDC"], merged=False)]
    assert {tuple(each.exchanges) for each in apart} == {
        ("kraken", "kraken:USDC"),
        ("okx", "okx:USDC"),
    }
    # A bridge is not recorded itself.
    *_, bridge = onebook.replay(tmp_path, "USDC/BTC", quotes=["USDT"])
    assert bridge.best_ask is not None
    assert {*bridge.exchanges} == {"kraken:USDT", "okx:USDT"}
    every = {each.symbol for each in onebook.replay(tmp_path, quotes=["USDC"])}
    assert every == set(symbols)
    with pytest.raises(UnknownSymbol, match="ETH/USDT is not recorded"):
        onebook.replay(tmp_path, "ETH/USDT", quotes=["USDC"])


async def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "kraken.rec").write_text("precious")
    async with SimulatedExchanges(["kraken"], rate_hz=0) as sim:
        with pytest.raises(RecordingError, match="File exists"):
            async with onebook.order_book(
                SYMBOL, exchanges="kraken", feeds=feeds(sim), record=tmp_path
            ):
                pass
    assert (tmp_path / "kraken.rec").read_text() == "precious"


async def test_a_recording_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    book = onebook.order_book("BTC/USDT", exchanges="okx", record=tmp_path / "file" / "folder")
    with pytest.raises(RecordingError, match="folder cannot be created: Not a directory"):
        await book.__aenter__()


def test_a_folder_without_recordings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"There are no \.rec files"):
        onebook.replay(tmp_path)


def test_recordings_of_others_replay_too(samples: Path) -> None:
    """A raw data file of cryptofeed: every frame of the pair is an update, none is refused."""
    path = samples / "exchange_frames" / "OKX.ws.1.0"
    played = [*onebook.replay(path, SYMBOL, depth=400)]
    # Frames that change nothing give no update.
    assert 90 < len(played) <= 98
    assert all(shown(left) != shown(right) for left, right in pairwise(played))
    assert all(each.live for each in played)
    assert played[-1].exchanges["okx"].state is Health.LIVE


def test_a_recording_without_its_acknowledgements_says_who_may_play_it(samples: Path) -> None:
    path = samples / "exchange_frames" / "BINANCE.ws.1.0"
    with pytest.raises(RecordingError, match="No book of the recording became live"):
        list(onebook.replay(path))


def test_more_books_than_a_connection_has_are_not_recorded_into_one_folder(tmp_path: Path) -> None:
    """A replay cannot tell the connections of one exchange apart."""
    symbols = ["BTC/USDT", "ETH/USDT"]
    with pytest.raises(RecordingError, match=r"p2b allows 1 book per .*, or without p2b"):
        onebook.order_books(symbols, exchanges=["okx", "p2b"], record=tmp_path)
    onebook.order_books(symbols, exchanges=["okx", "p2b"])
    onebook.order_books(symbols, exchanges=["okx"], record=tmp_path)


def test_the_channel_that_is_set_says_how_many_books_can_be_recorded(tmp_path: Path) -> None:
    symbols = [f"C{number}/USD" for number in range(31)]
    advanced = FeedSettings(overrides={"coinbase": ExchangeSettings(channel="advanced")})
    onebook.order_books(symbols, exchanges="coinbase", record=tmp_path)
    with pytest.raises(RecordingError, match="coinbase allows 30 books per connection"):
        onebook.order_books(symbols, exchanges="coinbase", record=tmp_path, feeds=advanced)


TEN_YEARS_S = 315_360_000.0


async def test_a_pause_of_years_between_two_recordings_is_not_waited_for(tmp_path: Path) -> None:
    await recorded(tmp_path / "recording")
    lines = (tmp_path / "recording" / "kraken.rec").read_text().splitlines()
    later = [
        re.sub(r"\d{10}\.\d+", lambda at: str(float(at[0]) + TEN_YEARS_S), each, count=1)
        for each in lines
    ]
    (tmp_path / "both.rec").write_text("\n".join([*lines, *later]))
    times = [each.time_us for each in onebook.replay(tmp_path / "both.rec", exchanges=["kraken"])]
    assert times[-1] - times[0] > TEN_YEARS_S * 1e6
    again = [each.time_us for each in onebook.replay(tmp_path / "both.rec", exchanges=["kraken"])]
    assert times == again


async def test_a_recording_with_times_in_milliseconds_is_refused(tmp_path: Path) -> None:
    await recorded(tmp_path / "recording")
    text = (tmp_path / "recording" / "kraken.rec").read_text()
    (tmp_path / "ms.rec").write_text(
        re.sub(r"\d{10}\.\d+", lambda at: str(float(at[0]) * 1_000), text)
    )
    with pytest.raises(RecordingError, match="line 1: a time that is not in Unix seconds"):
        onebook.replay(tmp_path / "ms.rec")


def test_frames_of_no_known_shape_are_no_books(tmp_path: Path) -> None:
    url = EXCHANGES["kraken"].ws_url
    frames = ["[" * 20_000, '{"channel":"book","data":7}', '{"channel":"book","data":[7]}', "7"]
    lines = [f"{url} <-> 1.0", *(f"{at}.5: {frame}" for at, frame in enumerate(frames, 1))]
    (tmp_path / "odd.rec").write_text("\n".join(lines))
    with pytest.raises(RecordingError, match="No book of the recording became live"):
        list(onebook.replay(tmp_path / "odd.rec"))


async def test_a_history_of_real_feeds_plays_every_update_that_was_read(tmp_path: Path) -> None:
    live: list[BookUpdate] = []
    async with (
        SimulatedExchanges(NAMES, seed=17, rate_hz=0) as sim,
        onebook.order_book(SYMBOL, exchanges=NAMES, depth=DEPTH, feeds=feeds(sim)) as book,
        asyncio.timeout(PATIENCE_S),
    ):
        assert book._engine is not None
        books = book._engine.books
        async with HistoryRecorder(books, tmp_path, keep_days=9, keep_bytes=1 << 40):
            reading = asyncio.create_task(book.run(live.append))
            for _ in range(STEPS):
                sim.step()
                while shown(book.snapshot()) != truth(sim, NAMES, DEPTH, SYMBOL):
                    await asyncio.sleep(0.01)
            reading.cancel()
    played = [*onebook.replay(tmp_path, SYMBOL, exchanges=NAMES, depth=DEPTH)]
    assert len(live) > STEPS
    states = [(shown(each), each.stale) for each in played]
    place = 0
    for update in live:  # in their order
        place = states.index((shown(update), update.stale), place)
    assert place == len(states) - 1
