"""A history played as order books: every recorded change is an update, at its recorded time."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onebook.clock import ManualClock, iso_us
from onebook.library.history import requiring_pyarrow
from onebook.library.player import Pace, Player
from onebook.library.recorders import SUFFIX
from onebook.library.source import BookOptions
from onebook.library.update import BookUpdate
from onebook.orderbook import HistoryMissing
from onebook.streams.basket import conversion_pairs

if TYPE_CHECKING:
    from onebook.archive.player import HistoryPlayer


def is_history(place: str | os.PathLike[str]) -> bool:
    """Return whether a place is the folder of a history, or the URL of one."""
    if "://" in os.fspath(place):
        return True
    folder = Path(place)
    has_hours = (folder / "open").is_dir() or any(folder.glob("[0-9][0-9][0-9][0-9]/*/*/*"))
    return has_hours and not any(folder.glob(f"*{SUFFIX}"))


def opened(
    place: str | os.PathLike[str],
    symbols: Sequence[str] | None,
    quotes: Sequence[str],
    pace: Pace,
    exchanges: Sequence[str] | None,
) -> "HistoryPlayer":
    """Return the player of some pairs, and of the pairs that convert their further quotes.

    Raises:
        HistoryMissing: The first moment, or everything, was not recorded.
        MissingPackage: `pip install "onebook[history]"` is required.
    """
    with requiring_pyarrow():
        from onebook.archive.folder import HistoryFolder
        from onebook.archive.player import HistoryPlayer
    needed = None if symbols is None else [*symbols]
    for symbol in symbols or () if quotes else ():
        base, _, own = symbol.partition("/")
        assert needed is not None
        needed += [f"{base}/{quote}" for quote in quotes]
        needed += [pair for quote in quotes for pair, _ in conversion_pairs(quote, own)]
    player = HistoryPlayer(HistoryFolder(place), needed, pace.start_us, pace.end_us, exchanges)
    if not player.instruments:
        where = f" on {', '.join(exchanges)}" if exchanges else ""
        what = "Nothing" if symbols is None else f"No book of {', '.join(symbols)}"
        raise HistoryMissing(f"{what}{where} was recorded from {iso_us(player.start_us)} on.")
    return player


class PastPlayer(Player):
    """Plays a history.

    Args:
        player: The recorded books.
        symbols: The pairs; None for all.
        options: The options of the views.
        merged: Whether the exchanges of a pair are merged.
        pace: The speed.
    """

    def __init__(
        self,
        player: "HistoryPlayer",
        symbols: Sequence[str] | None,
        options: BookOptions,
        *,
        merged: bool,
        pace: Pace,
    ) -> None:
        self._player = player
        self._pace = pace
        super().__init__(
            player.books,
            player.instruments,
            [*dict.fromkeys(exchange for exchange, _ in player.instruments)],
            symbols,
            options,
            merged=merged,
            clock=ManualClock(player.start_us / 1_000_000),
            streams=None,
        )

    def updates(self) -> Iterator[BookUpdate]:
        """Yield the books at the start, and then each update.

        Raises:
            OSError: A file cannot be read.
        """
        player = self._player
        while player.load():
            while (stop_us := player.stop_us(self._wiring.awaits)) is not None:
                if self._unread and stop_us > player.start_us:
                    yield from self._begun()
                    continue  # now the views await changes
                timer_s = self._clock.due_at
                if timer_s is not None and timer_s < stop_us / 1_000_000:
                    player.play(_last_until(timer_s))
                    yield from self._read_at(timer_s)
                    continue
                player.play(stop_us - 1)
                self._pace.wait(stop_us / 1_000_000)
                self._clock.move_to(stop_us / 1_000_000)
                player.play(stop_us)
                yield from self._taken()
        yield from self._begun()
        while (timer_s := self._clock.due_at) is not None and timer_s <= player.at_us / 1_000_000:
            yield from self._read_at(timer_s)

    def _begun(self) -> Iterator[BookUpdate]:
        """Read all views for the first time, once the state at the start was played."""
        while self._unread:
            self._queue.add(self._unread.pop(0))
        yield from self._taken()

    def _read_at(self, timer_s: float) -> Iterator[BookUpdate]:
        """Read the views whose interval ends."""
        self._pace.wait(timer_s)
        self._clock.move_to(timer_s)
        yield from self._taken()


def _last_until(time_s: float) -> int:
    """Return the last microsecond that is not after a time."""
    at_us = round(time_s * 1_000_000)
    return at_us if at_us / 1_000_000 <= time_s else at_us - 1
