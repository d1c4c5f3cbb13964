"""The instruments, ids and unanswered requests of one connection; protocol-independent."""

import re
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from onebook.exchanges.kit.codec import short
from onebook.exchanges.kit.contract import ProtocolError
from onebook.exchanges.kit.sync import Tracker, Trackers
from onebook.model import Instrument

# After this many frames of a removed book it is unsubscribed again: the request was lost or
# refused.
LATE_MAX: Final = 1_000
REQUESTS_MAX: Final = 1_000  # unanswered requests that one connection remembers
SENDINGS_MAX: Final = 6  # of one request for best prices, each after a longer pause

# Messages of exchanges about too many requests, with "_" for " " too: Kraken, OKX 60014,
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
# Messages about a temporary failure of the exchange, from their pages and ccxt's tables of
# exceptions, with " " for "_", "-" and ":".
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
    """Return the exchange's name of an instrument."""
    return instrument.native


class Roster(Generic[T]):
    """The instruments of one connection, by their names in its frames.

    Args:
        instruments: The initial instruments.
        make: Makes the tracker of an instrument.
        key: Returns the name in the frames, if it differs from the native one.
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
        self._ignored = 0  # number of ids ignored without an acknowledgement
        self._late: Counter[str] = Counter()  # frames of removed names
        self.add(instruments)

    def add(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Add instruments; returns the new ones."""
        new = [one for one in instruments if self._key(one) not in self.trackers]
        self.trackers.update((self._key(one), self._make(one)) for one in new)
        self.trackers.left.difference_update(self._key(one) for one in new)
        return new

    def remove(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Remove instruments; returns those that were present."""
        gone = [one for one in instruments if self.trackers.pop(self._key(one), None)]
        self.trackers.left.update(self._key(one) for one in gone)
        return gone

    def assign(self, name: str, channel: int) -> int | None:
        """Record the id that stands for a name in frames.

        Returns the id to unsubscribe: this one if the name has been removed, or the previous
        one of the name.
        """
        tracker = self.trackers.get(name)
        if tracker is None:
            self.channels.left.add(channel)
            return channel
        former = self._ids.get(name, channel)
        if former != channel:
            self._ignore_id(former)
        self._ids[name] = channel
        self.channels[channel] = tracker
        self.channels.left.discard(channel)
        return None if former == channel else former

    def release_conflicting(self, name: str, channel: int) -> list[Instrument]:
        """Release an id that is assigned to a second name; returns both instruments."""
        holder, claimant = self.channels.get(channel), self.trackers.get(name)
        if holder is None or holder is claimant:
            return []
        self.release_ids([holder.instrument])
        return [one.instrument for one in (holder, claimant) if one]

    def ignore_unassigned(self, channel: int, refused: Collection[str]) -> bool:
        """Ignore an id without an acknowledgement; False if no book waits for an id.

        At most one id per waiting book: any other id may come from a damaged frame of a live book.
        """
        waiting = [
            name for name, one in self.trackers.items() if not one.live and name not in refused
        ]
        if self._ignored >= len(waiting):
            return False
        self._ignored += 1
        self.channels.left.add(channel)
        return True

    def release_ids(self, instruments: Iterable[Instrument]) -> list[int]:
        """Release the ids of instruments and ignore their late frames; returns these ids."""
        keys = map(self._key, instruments)
        ids = [self._ids.pop(key) for key in keys if key in self._ids]
        for each in ids:
            self._ignore_id(each)
        return ids

    def _ignore_id(self, channel: int) -> None:
        self.channels.pop(channel, None)
        self.channels.left.add(channel)

    def name_of(self, channel: int) -> str:
        """Return the name that an id is assigned to, or the id as text."""
        tracker = self.channels.get(channel)
        return self._key(tracker.instrument) if tracker else str(channel)

    def find(self, instrument: Instrument) -> T | None:
        """Return the tracker of an instrument; None if it is not on this connection."""
        return self.trackers.get(self._key(instrument))

    def known(self, name: str) -> Instrument | None:
        """Return an instrument by the name in a frame."""
        tracker = self.trackers.get(name)
        return tracker.instrument if tracker else None

    def all(self) -> list[Instrument]:
        """List the instruments in the order in which they were added."""
        return [tracker.instrument for tracker in self.trackers.values()]

    def restarted(self, instruments: Iterable[Instrument]) -> list[Instrument]:
        """Restart the trackers of the instruments on this connection; returns these instruments."""
        found = [(one, tracker) for one in instruments if (tracker := self.find(one))]
        for _, tracker in found:
            tracker.restart()
        return [one for one, _ in found]

    def named_in(self, words: str) -> list[Instrument]:
        """List the instruments that a message of the exchange names, each once."""
        names = dict.fromkeys(word.rstrip(".") for word in _WORDS.findall(words))
        return [one for one in map(self.known, names) if one]

    def absent(self, name: str) -> bool:
        """Count a frame of a removed name; returns True at every `LATE_MAX`th frame.

        Raises:
            ProtocolError: The name was never subscribed.
        """
        if name in self.trackers.left:
            self._late[name] += 1
            return self._late[name] % LATE_MAX == 0
        raise ProtocolError(f"a frame of {short(name)!r}, which is not subscribed here")


def is_rate_limit(words: str) -> bool:
    """Return whether an error message is about too many requests."""
    return _has(words, RATE_LIMITS)


def is_unavailable(words: str) -> bool:
    """Return whether an error message says that the exchange is temporarily unavailable."""
    return _has(words, UNAVAILABLE)


def _has(words: str, phrases: Sequence[str]) -> bool:
    plain = " ".join(words.lower().translate(_BLANKS).split())
    return any(each in plain for each in phrases)


class TopsRequest(NamedTuple):
    """A request for best prices alone: how it is encoded, its names, and how often it was sent."""

    write: Callable[[Sequence[Any], int], object]
    names: tuple[str, ...]
    sendings: int = 1


class Requests:
    """Subscription requests by number, to find the instruments of an answer."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Instrument, ...]] = {}
        self._issued = 0
        self._of_tops: deque[str] = deque(maxlen=REQUESTS_MAX)
        self._tops: dict[str, TopsRequest] = {}  # unanswered

    def issue(self, instruments: Iterable[Instrument]) -> int:
        """Number a request; beyond `REQUESTS_MAX` the oldest unanswered one is dropped."""
        self._issued += 1
        self._waiting[str(self._issued)] = tuple(instruments)
        if len(self._waiting) > REQUESTS_MAX:
            del self._waiting[next(iter(self._waiting))]
        return self._issued

    def issue_tops(self, request: TopsRequest) -> int:
        """Number a request for best prices alone."""
        number = self.issue(())
        self._of_tops.append(str(number))
        self._tops[str(number)] = request
        if len(self._tops) > REQUESTS_MAX:
            del self._tops[next(iter(self._tops))]
        return number

    def is_of_tops(self, number: int | str | None) -> bool:
        """Return whether a request was for best prices alone."""
        return str(number) in self._of_tops

    def accept_tops(self, names: Collection[str]) -> None:
        """Complete the oldest request for these best prices, whose answer has no number."""
        for number, request in self._tops.items():
            if set(request.names) == set(names):
                self.complete(number)
                return

    def refused_tops(self, number: int | str | None) -> list[TopsRequest]:
        """Remove the refused requests for best prices; all of them if the error has no number."""
        refused = [str(number)] if number is not None else list(self._tops)
        return [request for each in refused if (request := self._tops.pop(each, None))]

    def pending_for(self, instrument: Instrument) -> bool:
        """Return whether a request for an instrument is unanswered."""
        return any(instrument in each for each in self._waiting.values())

    def pending(self, number: int | str | None) -> bool:
        """Return whether a request is unanswered."""
        return str(number) in self._waiting

    def complete(self, number: int | str | None) -> tuple[Instrument, ...]:
        """Complete a request; returns its instruments, none if it is unknown or answered."""
        self._tops.pop(str(number), None)
        return self._waiting.pop(str(number), ())
