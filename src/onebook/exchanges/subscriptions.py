"""Asking for books where each subscription brings its own snapshot: what such connectors share.

A connector has one and answers with its methods. Exchanges whose book starts elsewhere (Binance by
REST, Coinbase with two channels a product) answer for themselves.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from onebook.exchanges.contract import NOTHING, Output
from onebook.exchanges.roster import Roster, Tracker
from onebook.model import Instrument

T = TypeVar("T", bound=Tracker)
Requested = Callable[[str, Sequence[Instrument]], tuple[Output, ...]]


class Subscriptions(Generic[T]):
    """Who of a roster is asked for.

    `requested` writes the frames of a method, `subscribe` or `unsubscribe`, for some instruments.
    """

    def __init__(self, roster: Roster[T], requested: Requested) -> None:
        self._roster = roster
        self._requested = requested

    def opened(self) -> tuple[Output, ...]:
        """Subscribe to everything."""
        return self._requested("subscribe", self._roster.all())

    def fetched(self, instrument: Instrument, body: bytes) -> tuple[Output, ...]:
        """Ignore a body: nothing is asked for by REST."""
        return NOTHING

    def resync(self, instrument: Instrument) -> tuple[Output, ...]:
        """Subscribe again: the only way to another snapshot."""
        again = self._roster.restarted(instrument)
        return self._requested("unsubscribe", again) + self._requested("subscribe", again)

    def add(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Subscribe to more."""
        return self._requested("subscribe", self._roster.add(instruments))

    def remove(self, instruments: Sequence[Instrument]) -> tuple[Output, ...]:
        """Unsubscribe."""
        return self._requested("unsubscribe", self._roster.remove(instruments))
