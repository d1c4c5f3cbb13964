"""Findings derived from observations, with a clock set by the test."""

import json

import pytest
from msgspec.structs import replace

from onebook.books import Books
from onebook.clock import ManualClock
from onebook.exchanges import EXCHANGES
from onebook.exchanges.kit import Delta, Snapshot, TopOfBook
from onebook.fusing import TopCounts
from onebook.model import Health, Instrument, Reason
from onebook.ops.livecheck import ExchangeReport, FindingKind
from onebook.ops.livecheck.findings import FRAMES_MIN, exchange_report
from onebook.ops.livecheck.forms import Redactor
from onebook.ops.livecheck.observer import SETTLED_S, Observer
from onebook.ops.livecheck.report import ListReport

BTC = Instrument("okx", "BTC/USDT", "BTC-USDT")


class Rig:
    """An observer of one OKX book, without a socket: frames are read and applied by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock(100.0, epoch_us=1_790_000_000_000_000)
        self.age_s = 0.02
        self.books = Books()
        self.observer = Observer(
            EXCHANGES["okx"],
            self.books,
            redactor=Redactor(),
            clock=self.clock,
        )
        self.tops = TopCounts()
        self.books.open(BTC, tops=self.tops)
        self.observer.follow(BTC)
        self.connector = self.observer.observed().connector([BTC])
        self.observer.opened("wss://example", self.clock.now_s)
        self.number = 1

    def say(self, action: str = "update", **members: object) -> None:
        """Receive a frame of the book, and apply it as a session does."""
        at_ms = round(self.clock.wall_ms() - self.age_s * 1_000)
        row = {"bids": [["100", "1", "0", "1"]], "asks": [["101", "2", "0", "1"]], "checksum": 0}
        numbers = {"prevSeqId": self.number, "seqId": self.number + 1, "ts": str(at_ms)}
        if action == "snapshot":
            numbers |= {"prevSeqId": -1}
        self.number += 1
        arg = {"channel": "books", "instId": "BTC-USDT"}
        frame = {"arg": arg, "action": action, "data": [row | numbers | members]}
        for output in self.connector.received(json.dumps(frame).encode()):
            if isinstance(output, Snapshot):
                self.books.fill(output, self.clock.now_s)
            elif isinstance(output, Delta):
                self.books.change(output, self.clock.now_s)

    def best(self, number: int, *, amount: str) -> None:
        """Receive a frame of best prices at a number of the levels, and apply it."""
        row = {"asks": [["101", "2", "0", "1"]], "bids": [["100", amount, "0", "1"]]}
        arg = {"channel": "bbo-tbt", "instId": "BTC-USDT"}
        frame = {"arg": arg, "data": [row | {"ts": "1790000000000", "seqId": number + 1}]}
        (top,) = self.connector.received(json.dumps(frame).encode())
        assert isinstance(top, TopOfBook)
        self.books.top(top, self.clock.now_s)

    def lively(self, every_s: float, frames: int = FRAMES_MIN + 1) -> None:
        self.say("snapshot")
        for _ in range(frames):
            self.clock.now_s += every_s
            self.say()

    def report(self) -> ExchangeReport:
        return exchange_report(
            self.observer,
            listed=ListReport(pairs=1),
            missing=(),
            own_addresses=False,
            seconds=60.0,
            interrupted=False,
            old_s=5.0,
            now=self.clock.now_s,
        )

    def found(self) -> dict[FindingKind, str]:
        return {each.kind: each.detail for each in self.report().findings}


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_lively_book_is_well(rig: Rig) -> None:
    rig.lively(0.1)
    assert rig.found() == {}
    measured = {each.name: (each.stated, each.measured) for each in rig.report().measures}
    assert measured["data interval, median"] == (100, pytest.approx(100))
    assert measured["book without data, longest"] == (130.0, pytest.approx(0.1))
    assert measured["age of data, least"] == (None, pytest.approx(0.02, abs=0.001))


@pytest.mark.parametrize(("every_s", "slow"), [(0.1, False), (0.34, False), (0.36, True)])
def test_slower_is_a_median_of_more_than_three_stated_intervals(
    rig: Rig, every_s: float, slow: bool
) -> None:
    rig.lively(every_s)
    assert (FindingKind.SLOWER in rig.found()) is slow
    assert rig.report().well, "a note alone"


def test_the_lead_of_best_prices_is_the_time_until_the_levels_include_them(rig: Rig) -> None:
    rig.observer.tops = rig.tops
    rig.say("snapshot")
    for lead_s in (0.01, 0.02, 0.03, 0.06, 0.07):
        rig.clock.now_s += 0.1 - lead_s
        rig.best(rig.number, amount=f"{lead_s}")
        rig.clock.now_s += lead_s / 2
        rig.best(rig.number, amount=f"{lead_s}")  # the same again is not new
        rig.clock.now_s += lead_s / 2
        rig.say()
    fast = rig.report().fast_prices
    assert fast is not None
    assert fast.lead_ms == pytest.approx(30, abs=0.1)
    assert (fast.shown, fast.equal, fast.mismatches, fast.books_off) == (2, 0, 2, 1)
    assert rig.found()[FindingKind.TOPS_DISAGREE] == "of equal numbers that differed"


def test_an_exchange_without_fast_best_prices_reports_none(rig: Rig) -> None:
    rig.lively(0.1)
    assert rig.report().fast_prices is None


def test_a_book_that_ends_in_the_middle_is_silent(rig: Rig) -> None:
    rig.lively(0.1)
    rig.clock.now_s += 4.9
    assert rig.found() == {}
    rig.clock.now_s += 0.2
    assert rig.found() == {
        FindingKind.SILENT: "nothing in the last 5.1 s, before that every 0.10 s"
    }


def test_a_book_without_any_change_is_silent(rig: Rig) -> None:
    rig.say("snapshot")
    rig.clock.now_s += 60
    assert "nothing after the snapshot" in rig.found()[FindingKind.SILENT]


@pytest.mark.parametrize(
    ("age_s", "words"),
    [
        (-0.9, None),
        (-1.1, "its times are 1.1 s ahead"),
        (4.9, None),
        (5.1, "its newest data was 5.1 s old"),
    ],
)
def test_times_are_compared_with_this_clock(rig: Rig, age_s: float, words: str | None) -> None:
    rig.age_s = age_s
    rig.lively(0.1)
    assert rig.found().get(FindingKind.CLOCK_SKEW) == words


def test_a_frame_of_no_consequence_counts_once_the_books_have_settled(rig: Rig) -> None:
    rig.say("snapshot")
    rig.number -= 1
    rig.say()  # sent before
    assert FindingKind.NO_CONSEQUENCE not in rig.found()
    rig.clock.now_s += SETTLED_S
    rig.number -= 1
    rig.say()
    assert FindingKind.NO_CONSEQUENCE in rig.found()


def test_heartbeats_and_messages_are_measured_beside_what_is_stated(rig: Rig) -> None:
    facts = EXCHANGES["okx"]
    assert facts.heartbeat is not None
    for _ in range(4):
        rig.observer.frame_out("wss://example", rig.clock.now_s, facts.heartbeat.frame)
        rig.clock.now_s += 20
    measured = {each.name: (each.stated, each.measured) for each in rig.report().measures}
    assert measured["heartbeat of ours, median"] == (facts.heartbeat.every_s, 20)
    limit = facts.limits.messages[0]
    assert measured[f"messages sent in {limit.per_s:g} s, most"] == (
        limit.count,
        4 if limit.per_s >= 60 else 1,
    )
    kraken = replace(EXCHANGES["kraken"])
    observer = Observer(kraken, Books(), redactor=Redactor(), clock=rig.clock)
    connector = observer.observed().connector([])
    for _ in range(3):
        connector.received(b'{"channel":"heartbeat"}')
        rig.clock.now_s += 1
    rig.observer = observer
    measured = {each.name: (each.stated, each.measured) for each in rig.report().measures}
    assert measured["heartbeat of the exchange, median"] == (None, 1)
    longest = "connection without data or heartbeat, longest"
    assert measured[longest] == (kraken.heartbeat_max_s, 1)


def test_a_live_book_without_a_side_is_empty(rig: Rig) -> None:
    rig.say("snapshot", bids=[])
    rig.observer.look()
    assert rig.found()[FindingKind.EMPTY_BOOK] == "0 bids, 1 asks"


def test_the_state_that_was_reached_is_named(rig: Rig) -> None:
    rig.clock.now_s += 12
    assert rig.found() == {FindingKind.NEVER_LIVE: "syncing: subscribing after 12.0 s"}
    rig.books.set_health(BTC, Health.STALE, Reason.NO_SNAPSHOT, rig.clock.now_s)
    found = rig.found()
    assert found[FindingKind.NEVER_LIVE] == "stale: no_snapshot after 12.0 s"
    assert found[FindingKind.STALE] == "no_snapshot"


def test_nothing_counts_after_the_end(rig: Rig) -> None:
    rig.lively(0.1)
    rig.observer.stop()
    rig.books.set_health(BTC, Health.STALE, Reason.DISCONNECTED, rig.clock.now_s)
    rig.connector.received(b'{"event":"what is this"}')
    assert rig.found() == {}
