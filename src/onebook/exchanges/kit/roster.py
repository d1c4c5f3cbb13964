"""Instruments of a connection and its unanswered requests; knows no protocol."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, Generic, TypeVar

from onebook.exchanges.kit.contract import ProtocolError
from onebook.exchanges.kit.frames import short
from onebook.exchanges.kit.sync import Tracker, Trackers
from onebook.model import Instrument

# Frames of a removed book after which it is unsubscribed again: the request was lost or refused.
LATE_MAX: Final = 1_000
REQUESTS_MAX: Final = 1_000  # unanswered requests that one connection remembers

# Messages of exchanges about requests that come too fast, with "_" for " " too: Kraken, OKX 60014,
# Bybit 10006, HTX ("429 too many request"), Crypto.com and Upbit (TOO_MANY_REQUESTS), others.
RATE_LIMITS: Final = (
    "exceeded msg rate",
    "too frequent",
    "rate limit",
    "too many request",
    "too many visits",
    "frequency limit",
    "access frequency",
    "frequency protection",
    "throttled",
)
# Messages about a server that cannot serve a request now and may serve the same one later, as the
# pages and ccxt's tables of exceptions have them, with " " for "_", "-" and ":".
UNAVAILABLE: Final = (
    "internal error",
    "internal server",
    "internal system",
    "server error",
    "system error",
    "service unavailable",
    "service not available",
    "temporarily unavailable",
    "is busy",
    "are busy",
    "server busy",
    "service busy",
    "system busy",
    "too busy",
    "overloaded",
    "offline or unavailable",
    "being upgraded",
    "engine upgrading",
    "buffer is full",
    "restarting",
    "maintenance",
    "request timeout",
    "service timeout",
    "timeout waiting",
    "timed out",
    "deadline elapsed",
    "try again later",
    "try again in",
)

_BLANKS: Final = str.maketrans("_-:", "   ")
_WORDS: Final = re.compile(r"[^\s,:;\[\]{}()\"'`]+")


T = TypeVar("T", bound=Tracker)


def native(instrument: Instrument) -> str:
    """Name an instrument as its exchange does."""
    return instrument.native


class Roster(Generic[T]):
    """The instruments of one connection, by the name that its frames carry.

    Args:
        instruments: Those on it from the start.
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
        self.trackers: Trackers[str, T] = Trackers()
        self.channels: Trackers[int, T] = Trackers()  # by the ids that the exchange assigned
        self._make = make
        self._key = key
        self._ids: dict[str, int] = {}
        self._disowned = 0  # ids that were left without an acknowledgement
        self._late: Counter[str] = Counter()  # frames of removed names
        self.add(instruments)

    def add(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Take instruments in; returns those that were not there yet."""
        new = [one for one in instruments if self._key(one) not in self.trackers]
        self.trackers.update((self._key(one), self._make(one)) for one in new)
        self.trackers.left.difference_update(self._key(one) for one in new)
        return new

    def remove(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Let instruments go; returns those that were there."""
        gone = [one for one in instruments if self.trackers.pop(self._key(one), None)]
        self.trackers.left.update(self._key(one) for one in gone)
        return gone

    def assign(self, name: str, channel: int) -> int | None:
        """Note the id that frames of a name carry from now on.

        Returns the id that is to be left: this one where the name was removed meanwhile, the one
        that the name had before where it had another.
        """
        tracker = self.trackers.get(name)
        if tracker is None:
            self.channels.left.add(channel)
            return channel
        former = self._ids.get(name, channel)
        if former != channel:
            self._leave(former)
        self._ids[name] = channel
        self.channels[channel] = tracker
        self.channels.left.discard(channel)
        return None if former == channel else former

    def contest(self, name: str, channel: int) -> list[Instrument]:
        """Take an id from the book that has it, where another name gets it too; returns both."""
        holder, claimant = self.channels.get(channel), self.trackers.get(name)
        if holder is None or holder is claimant:
            return []
        self.leave([holder.instrument])
        return [one.instrument for one in (holder, claimant) if one]

    def disown(self, channel: int, refused: Collection[str]) -> bool:
        """Ignore an id that no acknowledgement assigned; False where no book waits for one.

        It is taken for the id of one that waits, so at most one for each: otherwise it may be a
        damaged frame of a live book.
        """
        waiting = [
            name for name, one in self.trackers.items() if not one.live and name not in refused
        ]
        if self._disowned >= len(waiting):
            return False
        self._disowned += 1
        self.channels.left.add(channel)
        return True

    def leave(self, instruments: Iterable[Instrument]) -> list[int]:
        """Ignore what still comes under the ids of instruments; returns these ids."""
        keys = map(self._key, instruments)
        ids = [self._ids.pop(key) for key in keys if key in self._ids]
        for each in ids:
            self._leave(each)
        return ids

    def _leave(self, channel: int) -> None:
        self.channels.pop(channel, None)
        self.channels.left.add(channel)

    def name_of(self, channel: int) -> str:
        """Name a channel id: by the name it is assigned to, else by itself."""
        tracker = self.channels.get(channel)
        return self._key(tracker.instrument) if tracker else str(channel)

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

    def restarted(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Make those that are on this connection wait for a new snapshot; returns them."""
        found = [(one, tracker) for one in instruments if (tracker := self.find(one))]
        for _, tracker in found:
            tracker.restart()
        return [one for one, _ in found]

    def named_in(self, words: str) -> list[Instrument]:
        """List the instruments that an exchange's sentence names, each once."""
        names = dict.fromkeys(word.rstrip(".") for word in _WORDS.findall(words))
        return [one for one in map(self.known, names) if one]

    def absent(self, name: str) -> bool:
        """Count a frame of a removed name; True at every `LATE_MAX`th, which is no late one.

        Raises:
            ProtocolError: It was never requested.
        """
        if name in self.trackers.left:
            self._late[name] += 1
            return self._late[name] % LATE_MAX == 0
        raise ProtocolError(f"a frame of {short(name)!r}, which is not subscribed here")


def is_rate_limit(words: str) -> bool:
    """Return whether an exchange's sentence asks for fewer requests."""
    return _has(words, RATE_LIMITS)


def is_unavailable(words: str) -> bool:
    """Return whether an exchange's sentence is about itself, and the same request may succeed."""
    return _has(words, UNAVAILABLE)


def _has(words: str, phrases: Sequence[str]) -> bool:
    plain = " ".join(words.lower().translate(_BLANKS).split())
    return any(each in plain for each in phrases)


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

    def awaits(self, instrument: Instrument) -> bool:
        """Whether a request for an instrument has had no answer yet."""
        return any(instrument in each for each in self._waiting.values())

    def waits(self, number: int | str | None) -> bool:
        """Return whether a request has had no answer yet."""
        return str(number) in self._waiting

    def answered(self, number: int | str | None) -> tuple[Instrument, ...]:
        """Take the instruments of a request; none where it is unknown or answered before."""
        return self._waiting.pop(str(number), ())
