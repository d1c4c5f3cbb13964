"""Effects of a replica on its book, and `apply`, which executes them."""

from collections.abc import Sequence
from typing import NamedTuple

from onebook.books import Books
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Health, Instrument, Reason


class ReplaceLevels(NamedTuple):
    """Replace the levels of the book, which makes it live."""

    snapshot: Snapshot
    age_ms: int


class Turn(NamedTuple):
    """Move the book to a health that is not live."""

    health: Health
    reason: Reason
    detail: str = ""


Effect = ReplaceLevels | Delta | Turn


def apply(effects: Sequence[Effect], books: Books, instrument: Instrument, now: float) -> bool:
    """Execute effects in order; False where the book refused levels: it needs a snapshot."""
    for effect in effects:
        if isinstance(effect, Delta):  # the hot path
            if books.change(effect, now) is not None:
                return False
            continue
        book = books.get(instrument)
        offline = book is not None and book.health is Health.OFFLINE
        if isinstance(effect, ReplaceLevels):
            if offline:  # an offline book takes nothing before it is started again
                books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
            if books.fill(effect.snapshot, now - effect.age_ms / 1_000) is not None:
                return False
        else:
            if offline and effect.health is Health.STALE:
                books.set_health(instrument, Health.SYNCING, Reason.SUBSCRIBING, now)
            books.set_health(instrument, effect.health, effect.reason, now, detail=effect.detail)
    return True
