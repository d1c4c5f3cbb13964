"""Conversations with a session: in, out, in, out; time is a number."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from feeds.toy import BEATING, TOY, A, B, C, ToyConnector, delta, snap
from onebook.books import CHECKSUM, LEVELS, Books
from onebook.config import FeedSettings
from onebook.core.types import CROSSED
from onebook.exchanges.contract import Exchange, Send
from onebook.feeds.actions import PING, Action, End, Request, Transmit
from onebook.feeds.session import (
    BEYOND_REPAIR,
    BUG,
    CHECKSUMS,
    DISCONNECTED,
    FAULTS,
    FETCH_FAILED,
    GAP,
    NO_SNAPSHOT,
    PROTOCOL,
    QUEUE_FULL,
    QUIET,
    RENEWED,
    SILENT,
    Session,
)
from onebook.feeds.stats import ExchangeStats
from onebook.model import Health, Instrument


class Talk:
    """A session with a clock that is moved by hand."""

    def __init__(
        self,
        *instruments: Instrument,
        exchange: Exchange = TOY,
        settings: FeedSettings | None = None,
        jitter: float = 0.5,
    ) -> None:
        self.books = Books()
        self.now = 1_000.0
        for instrument in instruments:
            self.books.open(instrument)
        self.stats = ExchangeStats("toy")
        self.session = Session(
            exchange,
            instruments,
            books=self.books,
            settings=settings or FeedSettings(),
            stats=self.stats,
            jitter=lambda: jitter,
        )

    def open(self) -> list[Action]:
        self.session.opened(self.now)
        return self.out()

    def out(self) -> list[Action]:
        return self.session.take(self.now)

    def hear(self, *lines: bytes) -> list[Action]:
        self.session.received(b"\n".join(lines), self.now)
        return self.out()

    def wait(self, seconds: float, *, hearing: bytes | None = b"send") -> list[Action]:
        """Let time pass in ticks, hearing something on the socket each second."""
        actions: list[Action] = []
        for step in range(round(seconds * 10)):
            self.now += 0.1
            if hearing is not None and step % 10 == 9:
                self.session.heard(self.now)
            self.session.tick(self.now)
            actions += self.out()
            if actions and isinstance(actions[-1], End):
                break
        return actions

    def health(self, instrument: Instrument = A) -> tuple[Health, str]:
        book = self.books.get(instrument)
        assert book is not None
        return book.health, book.reason

    def invalidations(self) -> dict[str, int]:
        return dict(self.stats.invalidations)


def live(*instruments: Instrument, **options) -> Talk:
    instruments = instruments or (A,)
    talk = Talk(*instruments, **options)
    talk.open()
    assert talk.hear(*(snap(each.native) for each in instruments)) == []
    assert [talk.health(each) for each in instruments] == [(Health.LIVE, "")] * len(instruments)
    return talk


def again(native: str = "A") -> Transmit:
    return Transmit(b"again " + native.encode())


LIVE = (Health.LIVE, "")


def test_a_connection_subscribes_and_its_books_become_live():
    talk = Talk(A, B)
    assert talk.open() == [Transmit(b"subscribe A B")]
    assert talk.health() == (Health.SYNCING, "")
    assert talk.hear(b"ack A", b"ack B") == []
    assert talk.hear(snap("A")) == []
    assert (talk.health(A), talk.health(B)) == (LIVE, (Health.SYNCING, ""))
    assert talk.hear(snap("B"), delta("B")) == []
    assert talk.health(B) == LIVE
    assert talk.stats.frames == 3
    assert talk.session.instruments == [A, B]


def test_a_frame_that_only_changes_a_book_leaves_nothing_to_do():
    talk = live(A)
    talk.session.received(delta("A"), talk.now)
    assert not talk.session.pending
    talk.session.received(b"gap A", talk.now)
    assert talk.session.pending


def test_fault_sequence_gap_invalidates_at_once_and_resyncs_this_instrument_only():
    talk = live(A, B)
    assert talk.hear(b"gap A 5 follows 3") == [again()]
    assert talk.health(A) == (Health.STALE, "5 follows 3")
    assert talk.health(B) == LIVE
    assert talk.hear(delta("A")) == []
    assert talk.hear(snap("A")) == []
    assert talk.health(A) == LIVE
    assert talk.invalidations() == {GAP: 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"verify A 1", CHECKSUM),
        (b'delta A [["NaN","1"]] []', LEVELS),
        (b'delta A [["102","1"]] []', CROSSED),
        (b'snap A [["1e400","1"]] []', LEVELS),
    ],
)
def test_fault_checksum_bad_levels_and_crossing_invalidate_and_resync(line, reason):
    talk = live(A, B)
    assert talk.hear(line) == [again()]
    assert talk.health(A) == (Health.STALE, reason)
    assert talk.health(B) == LIVE
    assert talk.invalidations() == {reason: 1}


def test_what_else_a_broken_frame_says_is_read_before_the_book_is_asked_for_again():
    talk = live(A, B)
    assert talk.hear(b"gap A", delta("A"), b"send hello") == [Transmit(b"hello"), again()]


def test_a_book_that_heals_within_the_frame_that_broke_it_is_not_asked_for():
    talk = live(A)
    assert talk.hear(b"gap A", snap("A")) == []
    assert talk.health() == LIVE


def test_fault_gaps_again_and_again_are_asked_for_with_full_jitter_then_reconnect():
    talk = live(A, B)
    assert talk.hear(b"gap A") == [again()]
    for tries in range(1, 5):
        assert talk.hear(b"gap A", b"gap A") == []  # a second one changes nothing
        wait_s = 0.5 * min(30.0, 2.0**tries)
        assert talk.wait(wait_s - 0.3) == []
        assert talk.wait(0.6) == [again()]
    assert talk.health(B) == LIVE
    assert talk.hear(b"gap A") == [End(BEYOND_REPAIR, at_once=False)]
    assert talk.health(B) == (Health.STALE, BEYOND_REPAIR)


def test_a_book_that_was_well_for_a_while_starts_its_tries_again():
    talk = live(A, exchange=replace(TOY, quiet_max_s=1_000.0))
    for _ in range(8):
        assert talk.hear(b"gap A") == [again()]
        talk.hear(snap("A"))
        assert talk.wait(61) == []


def test_a_book_that_heals_while_its_resync_waits_is_not_asked_for():
    talk = live(A)
    talk.hear(b"gap A")
    assert talk.hear(b"gap A") == []
    talk.hear(snap("A"))
    assert talk.wait(10) == []
    assert talk.health() == LIVE


def test_fault_checksum_wrong_three_times_in_a_minute_reconnects():
    talk = live(A, B)
    for _ in range(2):
        talk.hear(b"verify A 1")
        talk.wait(10)
        talk.hear(snap("A"))
    assert talk.hear(b"verify A 1") == [End(CHECKSUMS, at_once=False)]
    assert talk.health(B) == (Health.STALE, CHECKSUMS)


def test_fault_checksum_wrong_now_and_then_does_not_reconnect():
    talk = live(A, exchange=replace(TOY, quiet_max_s=1_000.0))
    for _ in range(6):
        assert talk.hear(b"verify A 1") == [again()]
        talk.hear(snap("A"))
        assert talk.wait(65) == []


def test_fault_garbage_of_one_instrument_touches_only_that():
    talk = live(A, B)
    assert talk.hear(b"mumble A") == [again()]
    assert talk.health(A) == (Health.STALE, "an unknown word")
    assert talk.health(B) == LIVE
    assert talk.invalidations() == {PROTOCOL: 1}


def test_fault_garbage_makes_every_book_of_the_connection_stale_and_three_in_a_minute_reconnect():
    talk = live(A, B)
    assert talk.hear(b"garbage") == [again("A"), again("B")]
    assert [talk.health(each) for each in (A, B)] == [(Health.STALE, "nonsense")] * 2
    talk.hear(snap("A"), snap("B"))
    talk.hear(b"garbage")
    assert talk.hear(b"garbage") == [End(FAULTS, at_once=False)]
    assert talk.hear(snap("A")) == [End(FAULTS, at_once=False)]
    assert talk.health(A)[0] is Health.STALE


def test_fault_a_bug_in_a_connector_is_logged_once_and_harms_no_more_than_garbage(caplog):
    talk = live(A)
    with caplog.at_level(logging.ERROR):
        assert talk.hear(b"bug") == [again()]
        talk.hear(snap("A"), b"bug")
    assert talk.health() == (Health.STALE, BUG)
    assert [record.message for record in caplog.records] == ["Acting on what toy sent failed."]
    assert caplog.records[0].exc_info is not None


def test_fault_silent_socket_is_pinged_at_half_time_and_dead_at_the_whole():
    talk = live(A)
    assert talk.wait(4.8, hearing=None) == []
    assert talk.wait(0.4, hearing=None) == [PING]
    assert talk.wait(4.5, hearing=None) == []
    assert talk.health() == LIVE
    assert talk.wait(0.5, hearing=None) == [End(SILENT, at_once=False)]
    assert talk.health() == (Health.STALE, SILENT)
    assert talk.invalidations() == {DISCONNECTED: 1}


def test_a_pong_keeps_a_connection_and_the_next_silence_is_pinged_again():
    talk = live(A)
    assert talk.wait(5.2, hearing=None) == [PING]
    talk.session.heard(talk.now)
    assert talk.wait(4.8, hearing=None) == []
    assert talk.wait(0.4, hearing=None) == [PING]


def test_the_exchange_hears_its_heartbeat_whatever_else_is_said():
    talk = live(A, exchange=BEATING)
    assert talk.wait(9.5) == [Transmit(b"beat")] * 3


def test_heartbeats_and_pings_go_before_what_waits_for_the_pace():
    talk = Talk(A, exchange=replace(BEATING, frames_per_s=1.0))
    talk.open()
    talk.hear(b"send 1", b"send 2", b"send 3", b"send 4", b"send 5")
    sent = talk.wait(10, hearing=None)
    assert sent.index(Transmit(b"beat")) < sent.index(Transmit(b"4"))
    assert PING in sent


@given(st.lists(st.tuples(st.floats(0.0, 0.3), st.integers(0, 20)), max_size=60))
def test_frames_never_exceed_what_the_exchange_allows_in_any_second(steps):
    talk = Talk(A, exchange=replace(TOY, frames_per_s=5.0))
    talk.open()
    sent: list[float] = [talk.now]
    for wait_s, count in steps:
        talk.now += wait_s
        for action in talk.hear(*[b"send x"] * count):
            assert action == Transmit(b"x")
            sent.append(talk.now)
        sent += [talk.now] * len(talk.out())
    for index, at in enumerate(sent):
        assert sum(1 for other in sent[index:] if other - at < 1.0) <= 5


def test_frames_that_wait_all_arrive_in_order():
    talk = Talk(A, exchange=replace(TOY, frames_per_s=5.0))
    talk.open()
    sent = talk.hear(*[b"send %d" % n for n in range(10)])
    sent += talk.wait(4)
    assert sent == [Transmit(b"%d" % n) for n in range(10)]


def test_more_waiting_frames_than_the_bound_end_the_connection():
    talk = live(A, settings=FeedSettings(send_queue_max=2))
    talk.hear(b"send 1", b"send 2")
    assert talk.hear(b"send 1", b"send 2", b"send 3", b"send 4") == [End(QUEUE_FULL, at_once=False)]


def test_fault_an_ack_is_not_data_no_snapshot_in_time_resyncs():
    talk = Talk(A, B)
    talk.open()
    talk.hear(b"ack A", snap("B"))
    assert talk.wait(4.8) == []
    assert talk.wait(0.6) == [again()]
    assert talk.health() == (Health.STALE, NO_SNAPSHOT)
    assert talk.health(B) == LIVE


def test_an_ack_starts_the_wait_for_the_snapshot():
    talk = Talk(A)
    talk.open()
    talk.wait(4)
    talk.hear(b"ack A")
    assert talk.wait(4.8) == []
    assert talk.wait(0.6) == [again()]


def test_the_wait_for_a_snapshot_begins_when_its_request_can_have_left():
    talk = Talk(A, exchange=replace(TOY, frames_per_s=1.0))
    talk.session.received(b"\n".join([b"send x"] * 10), talk.now)
    assert talk.open() == [Transmit(b"x")]
    assert all(isinstance(each, Transmit) and each != again() for each in talk.wait(17))


def test_an_instrument_that_never_comes_goes_offline_and_its_neighbours_stay():
    talk = Talk(A, B, jitter=0.1)
    talk.open()
    talk.hear(snap("B"))
    for _ in range(100):
        talk.hear(delta("B"))
        assert End not in map(type, talk.wait(1))
        if talk.health(A)[0] is Health.OFFLINE:
            break
    assert talk.health(A) == (Health.OFFLINE, NO_SNAPSHOT)
    assert talk.health(B) == LIVE
    talk.hear(b"gap A")
    assert talk.health(A) == (Health.OFFLINE, NO_SNAPSHOT)
    sent: list[Action] = []
    for _ in range(302):
        talk.hear(delta("B"))
        sent += talk.wait(1)
    assert sent == [again()]
    assert talk.health(A)[0] is Health.SYNCING
    talk.hear(snap("A"))
    assert talk.health(A) == LIVE


def test_a_connection_that_never_brings_any_book_is_ended():
    talk = Talk(A, jitter=0.1)
    talk.open()
    assert talk.wait(100)[-1] == End(BEYOND_REPAIR, at_once=False)


def test_b2_heartbeats_are_not_data_a_quiet_book_goes_stale():
    talk = live(A, B, exchange=replace(TOY, quiet_max_s=5.0))
    for _ in range(5):
        talk.wait(1)
        talk.hear(delta("B"))
    assert talk.wait(0.5) == [again()]
    assert talk.health(A) == (Health.STALE, QUIET)
    assert talk.health(B) == LIVE


def test_a_sign_of_life_of_the_instrument_keeps_its_book_fresh():
    talk = live(A, exchange=replace(TOY, quiet_max_s=5.0))
    for _ in range(10):
        talk.hear(b"alive A")
        assert talk.wait(4) == []
    assert talk.health() == LIVE


def test_a_refusal_takes_the_book_offline_with_its_reason_and_is_tried_again_later():
    talk = live(A, B)
    assert talk.hear(b"refused A no such pair") == []
    assert talk.health() == (Health.OFFLINE, "no such pair")
    assert talk.hear(snap("A"), delta("A")) == []
    assert talk.health() == (Health.OFFLINE, "no such pair")
    for _ in range(299):
        talk.hear(delta("B"))
        assert talk.wait(1) == []
    assert talk.wait(2) == [again()]
    assert talk.health() == (Health.SYNCING, "")


def test_fault_closing_notice_opens_the_next_connection_at_once():
    talk = live(A)
    assert talk.hear(b"closing maintenance") == [End("maintenance", at_once=True)]
    assert talk.health() == (Health.STALE, "maintenance")


def test_what_a_frame_says_after_it_ended_the_connection_revives_nothing():
    talk = live(A)
    assert talk.hear(b"closing bye", snap("A"), b"gap A") == [End("bye", at_once=True)]
    assert talk.health() == (Health.STALE, "bye")


def test_a_connection_is_renewed_before_the_exchange_ends_it():
    talk = live(A, exchange=replace(TOY, lifetime_s=200.0, quiet_max_s=1_000.0))
    assert talk.wait(109) == []
    assert talk.wait(2) == [End(RENEWED, at_once=True)]
    assert talk.wait(1) == [End(RENEWED, at_once=True)]


def test_fault_reconnect_a_book_is_invalid_from_the_end_of_its_connection():
    talk = live(A, B)
    talk.session.closed(talk.now)
    assert [talk.health(each) for each in (A, B)] == [(Health.STALE, DISCONNECTED)] * 2
    assert talk.session.ended == End(DISCONNECTED, at_once=False)
    assert talk.invalidations() == {DISCONNECTED: 2}
    talk.hear(snap("A"), delta("A"))
    talk.session.add([], talk.now)
    assert talk.health()[0] is Health.STALE


def test_a_snapshot_by_rest_is_asked_for_and_joined():
    talk = Talk(A)
    talk.open()
    [request] = talk.hear(b"fetch A")
    assert isinstance(request, Request)
    assert request.fetch.path == "/book/A"
    talk.wait(30)  # it waits for the budget of the host: that is not the subscription's fault
    assert talk.health() == (Health.SYNCING, "")
    talk.session.fetched(A, snap("A"), talk.now)
    assert talk.health() == LIVE


def test_a_snapshot_by_rest_that_failed_is_asked_for_again():
    talk = Talk(A)
    talk.open()
    talk.hear(b"fetch A")
    talk.session.fetch_failed(A, talk.now)
    assert talk.out() == [again()]
    assert talk.health() == (Health.STALE, FETCH_FAILED)


def test_a_body_after_the_end_or_of_a_removed_instrument_is_ignored():
    talk = live(A, B)
    talk.hear(b"fetch A", b"fetch B")
    talk.session.remove([B], talk.now)
    talk.session.fetched(B, snap("A"), talk.now)
    talk.session.fetch_failed(B, talk.now)
    talk.hear(b"closing bye")
    talk.session.fetched(A, snap("A"), talk.now)
    talk.session.fetch_failed(A, talk.now)
    assert talk.health() == (Health.STALE, "bye")


def test_fault_snapshot_older_than_the_buffer_is_fetched_five_times_then_the_connection_ends():
    talk = Talk(A)
    talk.open()
    for _ in range(5):
        assert [type(each) for each in talk.hear(b"fetch A")] == [Request]
        talk.session.fetched(A, b"", talk.now)
    assert talk.hear(b"fetch A") == [End(BEYOND_REPAIR, at_once=False)]


def test_fault_symbol_mix_up_what_is_not_carried_is_ignored():
    talk = live(A, B)
    talk.session.remove([B], talk.now)
    assert talk.out() == [Transmit(b"unsubscribe B")]

    class Confused(ToyConnector):
        def received(self, frame):
            self.natives["B"] = B
            return super().received(frame)

    talk = live(A, exchange=replace(TOY, connector=Confused))
    words = (b"ack", b"alive", b"refused", b"fetch", b"gap", b"mumble")
    for word in words:
        assert talk.hear(word + b" B x") == []
    assert talk.hear(snap("B"), delta("B")) == []
    assert talk.health(A) == LIVE


def test_instruments_come_and_go_on_an_open_connection():
    talk = live(A)
    talk.books.open(B)
    talk.session.add([B], talk.now)
    assert talk.out() == [Transmit(b"subscribe B")]
    talk.hear(snap("B"))
    assert talk.health(B) == LIVE
    talk.hear(b"gap B")
    talk.hear(b"gap B")
    talk.session.remove([B], talk.now)
    assert talk.out() == [Transmit(b"unsubscribe B")]
    assert talk.wait(10) == []
    talk.session.closed(talk.now)
    talk.session.remove([A], talk.now)
    assert talk.session.instruments == []


def test_an_added_instrument_that_brings_no_snapshot_is_asked_for_again():
    talk = live(A)
    talk.books.open(B)
    talk.session.add([B], talk.now)
    assert talk.wait(5.5) == [Transmit(b"subscribe B"), again("B")]


def test_an_instrument_without_an_open_book_is_a_mistake_of_ours():
    with pytest.raises(AssertionError):
        live(A).session.add([C], 0.0)


def test_a_gap_answered_by_a_gap_waits_instead_of_turning_in_a_circle():
    class Stubborn(ToyConnector):
        def resync(self, instrument):
            yield from self.received(b"gap " + instrument.native.encode())
            yield Send(b"again A")

    talk = live(A, exchange=replace(TOY, connector=Stubborn))
    assert talk.hear(b"gap A") == [again()]
    assert talk.wait(0.5) == []
    assert talk.wait(1.0) == [again()]


words = st.sampled_from(
    [
        snap("A"),
        snap("B"),
        delta("A"),
        delta("B"),
        b"gap A",
        b"gap B",
        b"verify A 1",
        b"mumble B",
        b"garbage",
        b"ack A",
        b"alive B",
        b"fetch A",
        b"refused A no",
        b'delta A [["-1","1"]] []',
        b'delta B [["200","1"]] []',
        b"send x",
        b"closing now",
    ]
)
events = st.one_of(
    words,
    st.floats(0.1, 20.0),
    st.sampled_from(["fetched", "failed", "closed"]),
)


@given(st.lists(events, max_size=40))
def test_b1_whatever_comes_a_book_is_live_only_with_its_snapshot_and_nothing_escapes(
    steps: Sequence[bytes | float | str],
):
    talk = Talk(A, B)
    talk.open()
    moves: list[tuple[Health, Health]] = []
    talk.books.on_health = lambda book, previous: moves.append((previous, book.health))
    for step in steps:
        before = len(moves)
        if isinstance(step, bytes):
            talk.hear(step)
            if not step.startswith(b"snap"):
                assert (Health.STALE, Health.LIVE) not in moves[before:]
        elif isinstance(step, float):
            talk.wait(step)
        elif step == "fetched":
            talk.session.fetched(A, snap("A"), talk.now)
        elif step == "failed":
            talk.session.fetch_failed(A, talk.now)
        else:
            talk.session.closed(talk.now)
        if talk.session.ended is not None:
            assert list(talk.books.live()) == []
        for book in talk.books.live():
            assert not book.core.crossed
            assert None not in book.core.best()
