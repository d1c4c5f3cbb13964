"""Faults on demand: what a true change of a book becomes on its way to the clients.

Pure. `FAULTS` names every kind; a fault hits one frame, and all clients of that symbol. What
must follow from each is in the tests of the feeds: a stale book, then a fresh snapshot.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from onebook.simulator.kit.board import Dialect, Frame, Now, PublishedBook, TextChanges

HUGE_BYTES: Final = 4 * 1024 * 1024 + 1  # one byte over what a feed accepts


class Case(NamedTuple):
    """The frame that is about to be sent, and what it is made of."""

    dialect: Dialect
    channel: PublishedBook
    changes: TextChanges
    natives: Iterable[str]
    now: Now

    def frame(self, changes: TextChanges | None = None) -> Frame:
        """The true frame, or the one with other changes."""
        return self.dialect.delta(self.channel, changes or self.changes, self.now)


def gap(case: Case) -> list[Frame]:
    """The frame is lost: its numbers were used up."""
    return []


def duplicate(case: Case) -> list[Frame]:
    """The frame comes twice."""
    return [case.frame()] * 2


def garbage(case: Case) -> list[Frame]:
    """The frame ends in its middle."""
    frame = case.frame()
    return [frame[: len(frame) // 2]]


def checksum(case: Case) -> list[Frame]:
    """The checksum is another one."""
    frame = case.frame()
    assert isinstance(frame, str), "no binary frame has a checksum"
    field = f'"{case.dialect.rules.checksum_field}":'
    return [frame.replace(field, f"{field}1", 1)]


def nan(case: Case) -> list[Frame]:
    """A price is no number."""
    return [case.frame(_with_bid(case.changes, "NaN", "1"))]


def negative(case: Case) -> list[Frame]:
    """An amount is below zero."""
    price = case.channel.top(1).bids[0][0]
    return [case.frame(_with_bid(case.changes, price, "-1"))]


def huge(case: Case) -> list[Frame]:
    """The frame is longer than any real one: valid JSON with much white space, or zeros."""
    frame = case.frame()
    if isinstance(frame, bytes):
        return [frame.ljust(HUGE_BYTES, b"\0")]
    return [frame[:-1] + " " * (HUGE_BYTES - len(frame)) + frame[-1]]


def crossed(case: Case) -> list[Frame]:
    """A bid above the best ask appears, and stays until a snapshot is asked for."""
    true = case.frame()
    return [true, case.frame(case.channel.haunt())]


def wrong_symbol(case: Case) -> list[Frame]:
    """The changes are labelled with another pair."""
    native = case.channel.listing.native
    other = next(name for name in case.natives if name != native)
    return [case._replace(channel=case.channel.labelled(other)).frame()]


FAULTS: Final[dict[str, Callable[[Case], list[Frame]]]] = {
    "gap": gap,
    "duplicate": duplicate,
    "garbage": garbage,
    "checksum": checksum,
    "nan": nan,
    "negative": negative,
    "huge": huge,
    "crossed": crossed,
    "wrong_symbol": wrong_symbol,
}


def _with_bid(changes: TextChanges, price: str, amount: str) -> TextChanges:
    return TextChanges([*changes.bids, (price, amount)], changes.asks)
