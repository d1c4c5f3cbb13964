"""The contract of every connector with fast best prices, found through the registry.

The oracle is the simulated market: every state that a book ever had, by its number.
"""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.oracle import Sides
from contract.talk import Talk, opened, reopened
from contract.venue import CHANNELS
from onebook.books import Books, LiveBook
from onebook.core.types import SCALE_MAX
from onebook.exchanges.kit import Delta, Gap, Ignored, Output, Send, Snapshot, TopOfBook
from onebook.exchanges.kit.contract import each_of
from onebook.exchanges.kit.roster import SENDINGS_MAX
from onebook.fusing import TopCounts
from onebook.model import Health, Reason

FUSED = [name for name, each in CHANNELS.items() if each.tops]

every_fused = pytest.mark.parametrize("name", FUSED)


TICK_S = 0.001  # of the clocks that order states where an exchange has no common number


class Best(NamedTuple):
    """The best levels of both sides, as (price, amount)."""

    bid: tuple[Any, Any] | None
    ask: tuple[Any, Any] | None


def best_of(sides: Sides) -> Best:
    bids, asks = sides
    return Best(next(iter(bids.items()), None), next(iter(asks.items()), None))


class Fused:
    """A talk whose outputs also change real books; records every state of the market."""

    def __init__(self, name: str, seed: int = 1) -> None:
        self.counts = TopCounts()
        self.books = Books()
        self.talk = Talk(name, seed=seed, heal=False)
        self.native = self.talk.instruments[0].native
        self.book: LiveBook = self.books.open(
            self.talk.instruments[0],
            levels_max=self.talk.reader.levels_max,
            window=self.talk.exchange.depth,
            tops=self.counts,
        )
        self.states: set[Best] = set()
        self.talk.open()
        self.execute(self.talk.outputs)
        self.remember()

    def remember(self) -> None:
        self.states.add(best_of(self.talk.venue.newest(self.native)))

    def deliver(self, frame: bytes) -> list[Output]:
        outputs = self.talk.deliver(frame)
        self.execute(outputs)
        return outputs

    def resync(self) -> None:
        self.books.set_health(self.talk.instruments[0], Health.STALE, Reason.GAP, 0.0)
        before = len(self.talk.outputs)
        self.talk.resync(self.talk.instruments[0])
        self.execute(self.talk.outputs[before:])
        self.remember()

    def execute(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if getattr(output, "instrument", None) != self.talk.instruments[0]:
                continue
            match output:
                case Snapshot():
                    assert self.books.fill(output, 0.0) is None
                case Delta():
                    assert self.books.change(output, 0.0) is None
                case TopOfBook():
                    self.books.top(output)
                case Gap(instrument):
                    self.books.set_health(instrument, Health.STALE, Reason.GAP, 0.0)

    @property
    def shown(self) -> Best:
        """The best levels as a merged view shows them."""
        one = [self.book.core.bins(side, 0, 1) for side in (0, 1)]
        scale = self.book.core.amount_scale
        levels = [(self._units(each[0], scale) if each else None) for each in one]
        return Best(*levels)

    @staticmethod
    def _units(level: tuple[int, int], scale: int) -> tuple[Any, Any]:
        price, amount = level
        return Decimal(price).scaleb(-SCALE_MAX), Decimal(amount).scaleb(-scale)


@pytest.mark.parametrize("name", CHANNELS)
def test_a_connector_that_subscribes_to_best_prices_says_so(name: str) -> None:
    """Without this fact, books would ignore them and this suite would not notice."""
    talk = opened(name)
    assert bool(talk.venue.subscribed_tops) == talk.exchange.tops


@every_fused
def test_both_channels_are_subscribed_and_left(name: str) -> None:
    talk = Talk(name).open()
    natives = {each.native for each in talk.instruments}
    assert talk.venue.subscribed_tops == natives
    one, other = talk.instruments
    talk.resync(one)
    assert talk.venue.subscribed_tops == natives
    talk.act(talk.connector.remove([one]))
    assert talk.venue.subscribed_tops == {other.native}
    talk.act(talk.connector.add([one]))
    assert talk.venue.subscribed_tops == natives


@every_fused
def test_best_prices_lead_the_depth_and_agree_with_it_at_its_number(name: str) -> None:
    fused = Fused(name)
    venue = fused.talk.venue
    for _ in range(6):
        for _ in range(2):
            venue.wait(TICK_S)
            (top,) = fused.deliver(venue.top(fused.native))
            assert isinstance(top, TopOfBook)
            assert fused.book.fusing is not None
            assert top.sequence > fused.book.fusing.depth
            if fused.counts.shown:
                assert fused.shown == best_of(venue.newest(fused.native))
        (change,) = fused.deliver(venue.pending(fused.native))
        assert isinstance(change, Delta | Snapshot)
        ordered_by_time = change.sequence == top.sequence + 1  # ties of a tick go to the levels
        assert ordered_by_time or change.sequence == top.sequence
        assert not fused.book.core.overlaid
        assert fused.shown == best_of(venue.newest(fused.native))
    counts = fused.counts
    assert (counts.unproven, counts.shown) == (2, 10)
    assert counts.agreed == (0 if ordered_by_time else 5)
    assert counts.late <= 1, "only the standing best prices that a subscription repeats"
    assert counts.disagreed == counts.refused == counts.off == 0


@every_fused
def test_damaged_and_late_best_prices_cost_no_book(name: str) -> None:
    talk = Talk(name).open()
    one, _ = talk.instruments
    frame = talk.venue.top(one.native)
    talk.venue.pending(one.native)
    before = talk.reader.sides(one)
    (top,) = each_of(reopened(talk).reader()(frame) or ())
    assert isinstance(top, TopOfBook)
    number = next((text for text in numbers_of(top) if text in frame), None)
    # Of a binary frame an exponent is made one that cannot be.
    hurt = frame.replace(number, b"[]") if number else frame[:24] + b"\x01" + frame[25:]
    outputs = talk.deliver(hurt)
    assert outputs
    assert all(isinstance(each, Ignored) for each in outputs)
    assert talk.reader.sides(one) == before
    talk.act(talk.connector.remove([one]))
    assert talk.deliver(frame) == []


@every_fused
def test_a_request_that_is_refused_for_its_rate_is_repeated(name: str) -> None:
    """Whichever request it is; best prices have no timeout of their own."""
    for refused in range(Talk(name).open().venue.asked):
        talk = Talk(name)
        natives = {each.native for each in talk.instruments}
        talk.venue.limit(1, after=refused)
        talk.open()
        for instrument in talk.instruments:  # the feed repeats requests for levels itself
            subscribed = instrument.native in talk.venue.subscribed_levels
            if not subscribed or instrument not in talk.reader.live:
                talk.resync(instrument)
        assert talk.venue.subscribed_levels == talk.venue.subscribed_tops == natives


@every_fused
def test_a_request_that_is_always_refused_is_repeated_a_few_times(name: str) -> None:
    count = Talk(name).open().venue.asked
    requests_max = count * SENDINGS_MAX  # an error without a number may be about any
    for refused in range(count):
        talk = Talk(name)
        talk.venue.limit(2 * requests_max, after=refused)
        talk.act(talk.begun())
        assert sum(isinstance(each, Send) for each in talk.outputs) <= requests_max


def numbers_of(top: TopOfBook) -> list[bytes]:
    """The possible encodings of a frame's sequence number or ordering time."""
    return [str(number).encode() for number in (top.sequence, top.sequence // 2)]


EVENTS = (
    "tick",
    "tick",
    "top",
    "top",
    "depth",
    "depth",
    "lost top",
    "lost depth",
    "late top",
    "resync",
)


@every_fused
@given(events=st.lists(st.sampled_from(EVENTS), max_size=40), seed=st.integers(0, 1_000))
@settings(max_examples=10)
def test_what_is_live_was_a_state_of_the_exchange_whatever_happens(
    name: str, events: list[str], seed: int
) -> None:
    fused = Fused(name, seed)
    venue, held = fused.talk.venue, []
    for event in events:
        if event == "tick":
            venue.wait(TICK_S)
        match event:
            case "top" | "lost top" | "late top":
                frame = venue.top(fused.native)
                fused.remember()
                if event == "top":
                    fused.deliver(frame)
                elif event == "late top":
                    held.append(frame)
            case "depth" | "lost depth":
                frame = venue.changed(fused.native)
                fused.remember()
                if event == "depth":
                    fused.deliver(frame)
                    while held:
                        fused.deliver(held.pop())
            case "resync":
                fused.resync()
        if fused.book.health is Health.LIVE:
            assert fused.shown in fused.states
    assert fused.counts.disagreed == fused.counts.off == fused.counts.refused == 0
