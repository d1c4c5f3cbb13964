"""Streams of whole books that send nothing until the next change, started and checked by REST.

Their subscriptions bring no snapshot, so that a book which does not change would never be shown,
and a dead stream looks like a quiet one. A body from REST starts such a book when nothing came for
`Exchange.snapshot_s` after the acknowledgement, and is compared with it from time to time. REST may
lag behind the stream by seconds: a body is used only where no frame came since it was asked for.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol

from msgspec.structs import replace

from onebook.core import Book
from onebook.core.types import PAIRS, LevelError, LevelShape
from onebook.exchanges.kit.contract import (
    NOTHING,
    Acknowledged,
    Fetch,
    Output,
    ProtocolError,
    Snapshot,
    StreamPosition,
)
from onebook.exchanges.kit.engine import Engine
from onebook.exchanges.kit.frames import UNREADABLE, short
from onebook.exchanges.kit.moments import UNTIMED, Moment
from onebook.exchanges.kit.sync import WholeBooks
from onebook.model import Instrument

COMPARED: Final = 25  # best levels a side of a body that must equal those of the stream


class QuietSeed(Protocol):
    """What `BookChannel.seed` reads of a body; `at` is the exchange's time of it."""

    bids: bytes
    asks: bytes
    at: Moment


class QuietBook(WholeBooks):
    """Takes each frame as a snapshot, and a body from REST where no frame comes.

    Args:
        fetch: The request for a body.
        body_shape: Of the levels of a body; those of frames are pairs.
    """

    __slots__ = (
        "_asked",
        "_at",
        "_behind",
        "_body_shape",
        "_fetch",
        "_known",
        "_proven",
        "no_frame_yet",
    )

    def __init__(self, fetch: Fetch, *, body_shape: LevelShape = PAIRS) -> None:
        super().__init__(fetch.instrument)
        self.no_frame_yet = False  # it was acknowledged, and no frame has come since
        self._fetch = fetch
        self._body_shape = body_shape
        self._asked = False
        self._known: tuple[bytes, bytes, LevelShape] | None = None  # of the newest frame or body
        self._at: Moment = UNTIMED
        self._proven = False  # the stream has delivered since it was acknowledged
        self._behind = False  # a body had another book than the last frame

    @property
    def asked(self) -> bool:
        """Whether a body is expected."""
        return self._asked

    @property
    def position(self) -> StreamPosition:
        """How far the stream has delivered, compared with the last body."""
        if self._behind:
            return StreamPosition.BEHIND
        proven = self._proven or self._known is None
        return StreamPosition.CURRENT if proven else StreamPosition.UNPROVEN

    def acknowledged(self) -> None:
        """Expect frames of a new subscription."""
        self.no_frame_yet = True
        self._proven = self._behind = False

    def restart(self) -> None:
        """Wait for the next frame."""
        super().restart()
        self._asked = self.no_frame_yet = False
        self._known = None

    def ask(self, *, spare: bool) -> tuple[Output, ...]:
        """Ask for a body."""
        self._asked = True
        return (replace(self._fetch, spare=spare),)

    def abandon(self) -> None:
        """Expect no body any more."""
        self._asked = False

    def snapshot(
        self, bids: bytes, asks: bytes, at: Moment = UNTIMED, *, answers: bool = False
    ) -> tuple[Output, ...]:
        """Replace the book by a frame."""
        self._asked = self.no_frame_yet = self._behind = False
        self._proven = True
        self._known, self._at = (bids, asks, self.shape), at
        return super().snapshot(bids, asks, at, answers=answers)

    def seeded(self, bids: bytes, asks: bytes, at: Moment) -> tuple[Output, ...]:
        """Replace the book by a body, unless the body is older than the last frame."""
        self._asked = False
        if number(at) < number(self._at):
            return NOTHING
        body = (bids, asks, self._body_shape)
        self._behind = self._known is not None and top(*self._known) != top(*body)
        self._known, self._at = body, at
        return (Snapshot(self.instrument, *body, at=at),)


class QuietEngine(Engine):
    """The protocol state of one connection whose books may stay without a frame.

    Its channel has a `QuietBook` for each instrument, and `seed` reads a `QuietSeed`.
    """

    def fetched(self, instrument: Instrument, body: bytes) -> Iterable[Output]:
        """Start a book at its body, or compare it."""
        book = self._book(instrument)
        if book is None or not book.asked:
            return NOTHING
        read: Any = self._channel.seed
        try:
            seed: QuietSeed = read(body)
        except UNREADABLE as error:
            reason = f"the book of {instrument.native} cannot be read: {short(error)}"
            raise ProtocolError(reason, instrument) from None
        return book.seeded(seed.bids, seed.asks, seed.at)

    def resync(self, instruments: Sequence[Instrument]) -> Iterable[Output]:
        """Fetch the books whose streams have brought nothing; subscribe again to the others."""
        quiet = [book for one in instruments if (book := self._book(one)) and book.no_frame_yet]
        fetches = tuple(out for book in quiet for out in book.ask(spare=False))
        named = [book.instrument for book in quiet]
        again = self._books.restarted(one for one in instruments if one not in named)
        accepted = [one for one in again if self._channel.key(one) in self._accepted]
        return (*fetches, *self._left(self._unsubscribe, accepted), *self._subscribe(again))

    def reseed(self, instrument: Instrument) -> Iterable[Output]:
        """Ask for a body to compare a live book with."""
        book = self._book(instrument)
        return NOTHING if book is None else book.ask(spare=True)

    def abandon(self, instrument: Instrument) -> None:
        """Expect no body for a live book."""
        book = self._book(instrument)
        if book is not None:
            book.abandon()

    def position(self, instrument: Instrument) -> StreamPosition:
        """Compare the stream of an instrument with its last body."""
        book = self._book(instrument)
        return StreamPosition.CURRENT if book is None else book.position

    def invalidate(self, instrument: Instrument) -> Iterable[Output]:
        """Unsubscribe from a stream that delivers nothing; a resync subscribes again."""
        book = self._book(instrument)
        if book is None or self._channel.key(instrument) not in self._accepted:
            return NOTHING
        book.restart()
        self._forget([instrument])
        return self._left(self._unsubscribe, [instrument])

    def _started(self, instrument: Instrument) -> tuple[Output, ...]:
        book = self._book(instrument)
        if book is not None:
            book.acknowledged()
        return (Acknowledged(instrument),)

    def _book(self, instrument: Instrument) -> QuietBook | None:
        return self._books.find(instrument)


def number(at: Moment) -> int:
    """Read a time of an exchange that counts from 1970; 0 where it is none."""
    if isinstance(at, int):
        return at
    return int(at) if at.isdecimal() and len(at) < 20 else UNTIMED


def top(bids: bytes, asks: bytes, shape: LevelShape) -> object:
    """Read the best levels of a book; None where they are no levels."""
    book = Book(COMPARED)
    try:
        book.replace(bids, asks, shape)
    except LevelError:
        return None
    return book.top(COMPARED)
