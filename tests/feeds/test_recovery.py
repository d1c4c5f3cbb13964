"""Recovery of instruments that are not live: the table, and one connection by hand."""

from feeds.toy import TOY, A, B
from onebook.books import Books
from onebook.exchanges.kit.contract import Snapshot
from onebook.exchanges.kit.limits import Quotas
from onebook.feeds.limits import LIMITS
from onebook.feeds.outbox import Outbox
from onebook.feeds.recovery import Recovery
from onebook.feeds.stats import ExchangeStats
from onebook.feeds.subscriptions import (
    Cadences,
    Phase,
)
from onebook.model import Health, Instrument, Reason

LEVELS = Snapshot(A, b'[["100","1"]]', b'[["101","1"]]')


class Connection:
    def __init__(self, *instruments: Instrument) -> None:
        self.books = Books()
        self.asked: list[list[Instrument]] = []
        self.ends: list[Reason] = []
        self.recovery = Recovery(
            books=self.books,
            outbox=Outbox(Quotas(TOY.limits), frames_max=10, wake=lambda: None),
            limits=LIMITS,
            stats=ExchangeStats("toy"),
            snapshot_s=5.0,
            jitter=lambda: 0.5,
            resync=lambda natives, now: self.asked.append([*natives]),
            end=lambda reason, now, detail: self.ends.append(reason),
        )
        for each in instruments:
            self.books.open(each)
            self.recovery.adopt([each], Cadences(), 0.0)
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


def test_a_subscription_without_a_book_is_asked_for_again() -> None:
    talk = Connection(A)
    talk.recovery.acknowledged(A, 2.0)
    talk.look(6.9)
    assert talk.phases() == [Phase.ACCEPTED]
    talk.look(7.0)
    assert talk.phases() == [Phase.REQUESTED]
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
    talk.look(1.0 + LIMITS.retry_offline_s)
    assert talk.asked[1:2] == [[A]] or A in talk.asked[-1]


def test_an_acknowledgement_before_its_turn_is_waited_for() -> None:
    talk = Connection(A, B)
    talk.recovery.unnamed("something is wrong", 0.0)
    talk.recovery.resolve_unnamed(1.0)
    assert talk.phases() == [Phase.REQUESTED, Phase.ISOLATED]
    talk.recovery.acknowledged(B, 1.5)
    talk.recovery.acknowledged(A, 1.6)
    assert (talk.phases(), talk.asked) == ([Phase.ACCEPTED, Phase.ACCEPTED], [[A]])
    talk.look(7.0)
    assert talk.asked == [[A], [A, B]]


def test_when_the_connection_is_over_nothing_is_asked_for() -> None:
    talk = Connection(A)
    talk.fill(A, 1.0)
    talk.recovery.over = True
    talk.recovery.invalidate(A, Reason.GAP, 2.0)
    talk.look(99.0)
    assert talk.asked == []
