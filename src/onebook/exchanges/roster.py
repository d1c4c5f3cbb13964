"""Who is on a connection, and which requests wait for an answer; knows no protocol."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, Protocol, TypeVar

from onebook.exchanges.contract import NOTHING, Output, ProtocolError, Refused
from onebook.exchanges.frames import short
from onebook.model import Instrument

REQUESTS_MAX: Final = 1_000  # unanswered requests that one connection remembers

_WORDS: Final = re.compile(r"[^\s,:;\[\]{}()\"'`]+")


class Tracker(Protocol):
    """Keeps one instrument's book in step (`onebook.exchanges.sync`)."""

    instrument: Instrument

    def restart(self) -> object:
        """Wait for the next snapshot."""


T = TypeVar("T", bound=Tracker)


def native(instrument: Instrument) -> str:
    """Name an instrument as its exchange does."""
    return instrument.native


class Roster(Generic[T]):
    """The instruments of one connection, by the name that its frames carry.

    Args:
        instruments: Who is on it from the start.
        make: Makes the tracker of an instrument.
        key: The name in the frames, where it is not the native one.
    """

    def __init__(
        self,
        instruments: Sequence[Instrument],
        make: Callable[[Instrument], T],
        *,
        key: Callable[[Instrument], str] = native,
    ) -> None:
        self.trackers: dict[str, T] = {}
        self._make = make
        self._key = key
        self._removed: set[str] = set()  # at most as many names as the exchange lists
        self.add(instruments)

    def add(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Take instruments in; returns those that were not there yet."""
        new = [one for one in instruments if self._key(one) not in self.trackers]
        self.trackers.update((self._key(one), self._make(one)) for one in new)
        self._removed.difference_update(self._key(one) for one in new)
        return new

    def remove(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Let instruments go; returns those that were there."""
        gone = [one for one in instruments if self.trackers.pop(self._key(one), None)]
        self._removed.update(self._key(one) for one in gone)
        return gone

    def find(self, instrument: Instrument) -> T | None:
        """Find the tracker of an instrument; None where it is not on this connection."""
        return self.trackers.get(self._key(instrument))

    def known(self, name: str) -> Instrument | None:
        """Find an instrument by the name in a frame."""
        tracker = self.trackers.get(name)
        return tracker.instrument if tracker else None

    def all(self) -> list[Instrument]:
        """List the instruments, in the order they came."""
        return [tracker.instrument for tracker in self.trackers.values()]

    def restarted(self, instrument: Instrument) -> list[Instrument]:
        """Make an instrument wait for a new snapshot; none where it is not on this connection."""
        tracker = self.find(instrument)
        if tracker is None:
            return []
        tracker.restart()
        return [instrument]

    def named_in(self, words: str) -> list[Instrument]:
        """List the instruments that an exchange's sentence names, each once."""
        names = dict.fromkeys(word.rstrip(".") for word in _WORDS.findall(words))
        return [one for one in map(self.known, names) if one]

    def refused(self, words: str) -> tuple[Refused, ...]:
        """Give up the instruments that an exchange's error names.

        Raises:
            ProtocolError: It names none of them, so that it may be about any.
        """
        named = self.named_in(words)
        if not named:
            raise ProtocolError(f"the exchange reports an error: {short(words)}")
        return tuple(Refused(instrument, short(words)) for instrument in named)

    def absent(self, name: str) -> tuple[Output, ...]:
        """Judge a frame of a name that is not on the roster.

        Raises:
            ProtocolError: Nobody asked for it; the late frames of a removed one are no error.
        """
        if name in self._removed:
            return NOTHING
        raise ProtocolError(f"a frame of {short(name)!r}, which is not subscribed here")


class Requests:
    """Subscription requests by number, so that an answer finds its instruments."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Instrument, ...]] = {}
        self._issued = 0

    def issue(self, instruments: Iterable[Instrument]) -> int:
        """Number a request; the oldest unanswered one is forgotten beyond `REQUESTS_MAX`."""
        self._issued += 1
        self._waiting[str(self._issued)] = tuple(instruments)
        if len(self._waiting) > REQUESTS_MAX:
            del self._waiting[next(iter(self._waiting))]
        return self._issued

    def answered(self, number: int | str | None) -> tuple[Instrument, ...]:
        """Take the instruments of a request; none where it is unknown or answered before."""
        return self._waiting.pop(str(number), ())
