"""What is done about an instrument that is not live: the table, and one connection by hand."""

import pytest

from feeds.toy import TOY, A, B
from onebook.books import Books
from onebook.config import FeedSettings
from onebook.exchanges.kit import Quotas, Snapshot
from onebook.feeds.liveness import Cadence, Cadences
from onebook.feeds.outbox import Outbox
from onebook.feeds.phases import TRANSITIONS, Cause, NoTransition, Phase, Watch
from onebook.feeds.recovery import Recovery
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health, Instrument, Reason

LEVELS = Snapshot(A, b'[["100","1"]]', b'[["101","1"]]')


class Connection:
    def __init__(self, *instruments: Instrument) -> None:
        settings = FeedSettings()
        self.books = Books()
        self.asked: list[list[Instrument]] = []
        self.ends: list[Reason] = []
        self.recovery = Recovery(
            books=self.books,
            outbox=Outbox(Quotas(TOY.limits), frames_max=10, wake=lambda: None),
            settings=settings,
            stats=ExchangeStats("toy"),
            snapshot_s=5.0,
            jitter=lambda: 0.5,
            resync=lambda natives, now: self.asked.append([*natives]),
            end=lambda reason, now, detail: self.ends.append(reason),
        )
        for each in instruments:
            self.books.open(each)
            self.recovery.adopt([each], Cadences(settings), 0.0)
            self.books.set_health(each, Health.SYNCING, Reason.SUBSCRIBING, 0.0)

    def fill(self, instrument: Instrument, now: float) -> None:
        self.books.fill(Snapshot(instrument, LEVELS.bids, LEVELS.asks), now)
        self.recovery.filled(instrument, now)

    def look(self, now: float) -> None:
        for watch in self.recovery.watches.values():
            self.recovery.check(watch, now)
        self.recovery.repair(now)

    def phases(self) -> list[Phase]:
        return [watch.phase for watch in self.recovery.watches.values()]


def test_the_table_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    for phase in Phase:
        rows = {
            cause: TRANSITIONS[phase, cause] for cause in Cause if (phase, cause) in TRANSITIONS
        }
        print(f"{phase.name:10}", *(f"{cause.name} -> {to.name}" for cause, to in rows.items()))
        assert rows
    assert set(TRANSITIONS.values()) == set(Phase), "each is reached"
    assert capsys.readouterr().out.count("\n") == len(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_every_phase_is_left_again_and_ends_live(phase: Phase) -> None:
    reached = {phase}
    while True:
        further = reached | {to for (at, _), to in TRANSITIONS.items() if at in reached}
        if further == reached:
            break
        reached = further
    assert Phase.LIVE in reached


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("cause", Cause)
def test_what_the_table_does_not_know_is_an_error(phase: Phase, cause: Cause) -> None:
    book = Books().open(A)
    watch = Watch(book, 3, 0.0, Cadence(60.0))
    watch.phase = phase
    if (phase, cause) in TRANSITIONS:
        watch.move(cause)
        assert watch.phase is TRANSITIONS[phase, cause]
    else:
        with pytest.raises(NoTransition, match=f"{phase.name} has no {cause.name}"):
            watch.move(cause)
        assert watch.phase is phase


def test_nothing_the_exchange_can_say_is_missing_in_the_table() -> None:
    """Whatever it says in whatever order; the causes that are ours follow from the phase."""
    said = (Cause.ACKNOWLEDGE, Cause.REFUSE, Cause.POSTPONE, Cause.HALT)
    missing = [(at, cause) for at in Phase for cause in said if (at, cause) not in TRANSITIONS]
    assert missing == []


def test_a_subscription_without_a_book_is_asked_for_again() -> None:
    talk = Connection(A)
    talk.recovery.acknowledged(A, 2.0)
    talk.look(6.9)
    assert talk.phases() == [Phase.AWAITED]
    talk.look(7.0)
    assert talk.phases() == [Phase.ASKED]
    assert talk.asked == [[A]]


def test_a_broken_book_is_asked_for_alone_and_after_the_frame() -> None:
    talk = Connection(A, B)
    talk.fill(A, 1.0)
    talk.fill(B, 1.0)
    talk.recovery.invalidate(A, Reason.GAP, 2.0)
    assert (talk.phases(), talk.asked) == ([Phase.BROKEN, Phase.LIVE], [])
    talk.recovery.repair(2.0)
    assert talk.asked == [[A]]


def test_a_refused_instrument_outlives_maintenance_and_is_tried_again() -> None:
    talk = Connection(A, B)
    talk.fill(B, 1.0)
    talk.recovery.refused(A, "no such market", 1.0)
    talk.recovery.trading("maintenance", 2.0, is_open=False)
    assert talk.phases() == [Phase.OFFLINE, Phase.HALTED]
    talk.recovery.trading("online", 3.0, is_open=True)
    talk.recovery.repair(3.0)
    assert talk.asked == [[B]]
    talk.look(1.0 + FeedSettings().retry_offline_s)
    assert talk.asked[1:2] == [[A]] or A in talk.asked[-1]


def test_an_acknowledgement_before_its_turn_is_waited_for() -> None:
    talk = Connection(A, B)
    talk.recovery.unnamed("something is wrong", 0.0)
    talk.recovery.settle(1.0)
    assert talk.phases() == [Phase.ASKED, Phase.ALONE]
    talk.recovery.acknowledged(B, 1.5)
    talk.recovery.acknowledged(A, 1.6)
    assert (talk.phases(), talk.asked) == ([Phase.AWAITED, Phase.AWAITED], [[A]])
    talk.look(7.0)
    assert talk.asked == [[A], [A, B]]


def test_when_the_connection_is_over_nothing_is_asked_for() -> None:
    talk = Connection(A)
    talk.fill(A, 1.0)
    talk.recovery.over = True
    talk.recovery.invalidate(A, Reason.GAP, 2.0)
    talk.look(99.0)
    assert talk.asked == []
