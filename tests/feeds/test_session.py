"""Conversations with a session: frames in, outputs out; time is a number."""

import logging
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from prometheus_client import REGISTRY

from feeds.toy import BEATING, TOY, A, B, C, ToyConnector, delta, limited, snap
from onebook.books import SAME_BOOK, Books
from onebook.exchanges.kit.contract import Exchange, Send
from onebook.exchanges.kit.limits import Limit, Quotas, Scope
from onebook.feeds.limits import LIMITS, FeedLimits
from onebook.feeds.liveness import DEAD, NO_DATA, NO_HEARTBEAT
from onebook.feeds.outbox import PING, Effect, End, Request, Transmit
from onebook.feeds.recovery import BEYOND_REPAIR, CHECKSUMS, UNAVAILABLE_MAX, UNNAMED_WAIT_S
from onebook.feeds.session import FAULTS, FROZEN_MAX_S, NOISE, QUEUE_FULL, RENEWED, FeedSession
from onebook.feeds.stats import ExchangeStats
from onebook.feeds.subscriptions import Cadences
from onebook.model import Health, Instrument, Reason


class Talk:
    """A session with a clock advanced by hand."""

    def __init__(
        self,
        *instruments: Instrument,
        exchange: Exchange = TOY,
        limits: FeedLimits = LIMITS,
        jitter: float = 0.5,
        cadences: Cadences | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.books = Books()
        self.now = 1_000.0
        for instrument in instruments:
            self.books.open(instrument)
        self.stats = ExchangeStats("toy")
        self.session = FeedSession(
            exchange,
            instruments,
            books=self.books,
            limits=limits,
            stats=self.stats,
            jitter=lambda: jitter,
            cadences=cadences,
            quotas=quotas,
        )

    def open(self) -> list[Effect]:
        self.session.opened(self.now)
        return self.out()

    def out(self) -> list[Effect]:
        return self.session.drain(self.now)

    def hear(self, *lines: bytes) -> list[Effect]:
        self.session.received(b"\n".join(lines), self.now)
        return self.out()

    def wait(self, seconds: float, *, hearing: bytes | None = b"send") -> list[Effect]:
        """Advance time in ticks, with a message on the socket each second."""
        actions: list[Effect] = []
        for step in range(round(seconds * 10)):
            self.now += 0.1
            if hearing is not None and step % 10 == 9:
                self.session.received_control(self.now)
            self.session.tick(self.now)
            actions += self.out()
            if actions and isinstance(actions[-1], End):
                break
        return actions

    def health(self, instrument: Instrument = A) -> tuple[Health, Reason | None]:
        book = self.books.get(instrument)
        assert book is not None
        return book.health, book.reason

    def detail(self, instrument: Instrument = A) -> str:
        book = self.books.get(instrument)
        assert book is not None
        return book.detail

    def invalidations(self) -> dict[str, int]:
        return dict(self.stats.invalidations)


def live(*instruments: Instrument, **options) -> Talk:
    instruments = instruments or (A,)
    talk = Talk(*instruments, **options)
    talk.open()
    assert talk.hear(*(snap(each.native) for each in instruments)) == []
    assert [talk.health(each) for each in instruments] == [LIVE] * len(instruments)
    return talk


def again(native: str = "A") -> Transmit:
    return Transmit(b"again " + native.encode())


LIVE = (Health.LIVE, None)
SYNCING = (Health.SYNCING, Reason.SUBSCRIBING)


def test_a_connection_subscribes_and_its_books_become_live():
    talk = Talk(A, B)
    assert talk.open() == [Transmit(b"subscribe A B")]
    assert talk.health() == SYNCING
    assert talk.hear(b"ack A", b"ack B") == []
    assert talk.hear(snap("A")) == []
    assert (talk.health(A), talk.health(B)) == (LIVE, SYNCING)
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


def latencies(talk: Talk) -> tuple[float, float | None]:
    """The number of samples so far, and the newest."""
    talk.stats.latency.publish(wall_offset_s=0.0, old_s=1e6)
    count = REGISTRY.get_sample_value("onebook_exchange_latency_seconds_count", {"exchange": "toy"})
    return count or 0.0, talk.stats.latency.newest_s


def test_one_message_in_a_quarter_of_a_second_is_a_sample_of_the_latency():
    talk = Talk(A, B)
    talk.open()
    before, _ = latencies(talk)
    talk.hear(snap("A") + b" 1000", snap("B") + b" 2000")
    assert latencies(talk) == (before + 2, talk.now - 2), "each that makes a book live"
    for count, kind in enumerate((delta, snap), start=3):
        talk.wait(0.3)
        talk.hear(*(kind("A") + b" %d000" % at_s for at_s in (3, 4, 5)))
        assert latencies(talk) == (before + count, talk.now - 3), "of live books the next one"


def test_an_answer_that_is_urgent_leaves_before_what_is_queued():
    talk = live(A)
    actions = talk.hear(b"send subscription", b"urgent pong 7")
    assert actions == [Transmit(b"pong 7"), Transmit(b"subscription")]


def test_fault_sequence_gap_invalidates_at_once_and_resyncs_this_instrument_only():
    talk = live(A, B)
    assert talk.hear(b"gap A 5 follows 3") == [again()]
    assert talk.health(A) == (Health.STALE, Reason.GAP)
    assert talk.detail() == "5 follows 3"
    assert talk.health(B) == LIVE
    assert talk.hear(delta("A")) == []
    assert talk.hear(snap("A")) == []
    assert talk.health(A) == LIVE
    assert talk.invalidations() == {Reason.GAP: 1}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"verify A 1", Reason.CHECKSUM),
        (b'delta A [["NaN","1"]] []', Reason.LEVELS),
        (b'delta A [["102","1"]] []', Reason.CROSSED),
        (b'snap A [["1e400","1"]] []', Reason.LEVELS),
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
    assert talk.hear(b"gap A") == [End(Reason.NO_SNAPSHOT, BEYOND_REPAIR)]
    assert talk.health(B) == (Health.STALE, Reason.NO_SNAPSHOT)


@pytest.mark.parametrize("instruments", [(A,), (A, B)], ids=["alone", "beside another"])
def test_fault_levels_that_cannot_be_held_take_only_their_book_offline(instruments):
    talk = live(*instruments, jitter=0.1)
    unfit = b'snap A [["1.5","1e400"]] []'
    talk.hear(unfit)
    for _ in range(60):
        if talk.health(A)[0] is Health.OFFLINE:
            break
        talk.hear(*(delta(each.native) for each in instruments if each is not A))
        actions = talk.wait(1)
        assert End not in map(type, actions)
        if again() in actions:
            assert End not in map(type, talk.hear(unfit))
    assert talk.health(A) == (Health.OFFLINE, Reason.LEVELS)
    assert [talk.health(each) for each in instruments if each is not A] == [LIVE] * (
        len(instruments) - 1
    )


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
    assert talk.hear(b"verify A 1") == [End(Reason.CHECKSUM, CHECKSUMS)]
    assert talk.health(B) == (Health.STALE, Reason.CHECKSUM)


def test_fault_checksum_wrong_now_and_then_does_not_reconnect():
    talk = live(A, exchange=replace(TOY, quiet_max_s=1_000.0))
    for _ in range(6):
        assert talk.hear(b"verify A 1") == [again()]
        talk.hear(snap("A"))
        assert talk.wait(65) == []


def test_fault_garbage_of_one_instrument_touches_only_that():
    talk = live(A, B)
    assert talk.hear(b"mumble A") == [again()]
    assert talk.health(A) == (Health.STALE, Reason.PROTOCOL_ERROR)
    assert talk.detail() == "an unknown word"
    assert talk.health(B) == LIVE
    assert talk.invalidations() == {Reason.PROTOCOL_ERROR: 1}


def test_fault_garbage_makes_every_book_of_the_connection_stale_and_three_in_a_minute_reconnect():
    talk = live(A, B)
    assert talk.hear(b"garbage") == [again("A B")]
    assert [talk.health(each) for each in (A, B)] == [(Health.STALE, Reason.PROTOCOL_ERROR)] * 2
    talk.hear(snap("A"), snap("B"))
    talk.hear(b"garbage")
    assert talk.hear(b"garbage") == [End(Reason.PROTOCOL_ERROR, FAULTS, abrupt=True)]
    assert talk.hear(snap("A")) == [End(Reason.PROTOCOL_ERROR, FAULTS, abrupt=True)]
    assert talk.health(A)[0] is Health.STALE


def test_fault_a_bug_in_a_connector_is_logged_once_and_harms_no_more_than_garbage(caplog):
    talk = live(A)
    with caplog.at_level(logging.ERROR):
        assert talk.hear(b"bug") == [again()]
        talk.hear(snap("A"), b"bug")
    assert talk.health() == (Health.STALE, Reason.INTERNAL_ERROR)
    assert [record.message for record in caplog.records] == ["Processing a frame of toy failed."]
    assert caplog.records[0].exc_info is not None


def test_fault_silent_socket_is_pinged_at_half_time_and_dead_at_the_whole():
    talk = live(A)
    assert talk.wait(4.8, hearing=None) == []
    assert talk.wait(0.4, hearing=None) == [PING]
    assert talk.wait(4.5, hearing=None) == []
    assert talk.health() == LIVE
    assert talk.wait(0.5, hearing=None) == [End(Reason.SILENT, DEAD)]
    assert talk.health() == (Health.STALE, Reason.SILENT)
    assert talk.invalidations() == {Reason.SILENT: 1}


def test_a_pong_keeps_a_connection_and_the_next_silence_is_pinged_again():
    talk = live(A)
    assert talk.wait(5.2, hearing=None) == [PING]
    talk.session.received_control(talk.now)
    assert talk.wait(4.8, hearing=None) == []
    assert talk.wait(0.4, hearing=None) == [PING]


def test_the_exchange_hears_its_heartbeat_whatever_else_is_said():
    talk = live(A, exchange=BEATING)
    assert talk.wait(9.5) == [Transmit(b"beat")] * 3


def test_heartbeats_and_pings_go_before_what_waits_for_the_pace():
    talk = Talk(A, exchange=limited(BEATING, messages=(Limit(1, 1.0),)))
    talk.open()
    talk.hear(b"send 1", b"send 2", b"send 3", b"send 4", b"send 5")
    sent = talk.wait(10, hearing=None)
    assert sent.index(Transmit(b"beat")) < sent.index(Transmit(b"4"))
    assert PING in sent


@given(st.lists(st.tuples(st.floats(0.0, 0.3), st.integers(0, 20)), max_size=60))
def test_frames_never_exceed_what_the_exchange_allows_in_any_second(steps):
    talk = Talk(A, exchange=limited(TOY, messages=(Limit(5, 1.0),)))
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
    talk = Talk(A, exchange=limited(TOY, messages=(Limit(5, 1.0),)))
    talk.open()
    sent = talk.hear(*[b"send %d" % n for n in range(10)])
    sent += talk.wait(4)
    assert sent == [Transmit(b"%d" % n) for n in range(10)]


def test_more_waiting_frames_than_the_bound_end_the_connection():
    talk = live(A, limits=FeedLimits(send_queue_max=2))
    talk.hear(b"send 1", b"send 2")
    assert talk.hear(b"send 1", b"send 2", b"send 3", b"send 4") == [
        End(Reason.RATE_LIMITED, QUEUE_FULL)
    ]


def test_fault_an_ack_is_not_data_no_snapshot_in_time_resyncs():
    talk = Talk(A, B)
    talk.open()
    talk.hear(b"ack A", snap("B"))
    assert talk.wait(4.8) == []
    assert talk.wait(0.6) == [again()]
    assert talk.health() == (Health.STALE, Reason.NO_SNAPSHOT)
    assert talk.health(B) == LIVE


def test_an_ack_starts_the_wait_for_the_snapshot():
    talk = Talk(A)
    talk.open()
    talk.wait(4)
    talk.hear(b"ack A")
    assert talk.wait(4.8) == []
    assert talk.wait(0.6) == [again()]


def test_the_wait_for_a_snapshot_begins_when_its_request_can_have_left():
    talk = Talk(A, exchange=limited(TOY, messages=(Limit(1, 1.0),)))
    talk.session.received(b"\n".join([b"send x"] * 10), talk.now)
    assert talk.open() == [Transmit(b"x")]
    assert all(isinstance(each, Transmit) and each != again() for each in talk.wait(14))


def test_a_request_that_waits_for_other_connections_of_the_address_is_not_overdue():
    exchange = limited(TOY, messages=(Limit(1, 1.0, Scope.ADDRESS),))
    quotas = Quotas(exchange.limits)
    busy, late = (Talk(each, exchange=exchange, quotas=quotas) for each in (A, B))
    busy.hear(*[b"send x"] * 20)
    assert late.open() == []
    sent: list[Effect] = []
    for _ in range(28 * 10):
        for talk in (busy, late):
            talk.session.received_control(talk.now)
            out = talk.wait(0.1, hearing=None)
            sent += out if talk is late else []
    assert sent == [Transmit(b"subscribe B")]
    assert late.health(B) == SYNCING


def test_an_instrument_that_never_comes_goes_offline_and_its_neighbours_stay():
    talk = Talk(A, B, jitter=0.1)
    talk.open()
    talk.hear(snap("B"))
    for _ in range(100):
        talk.hear(delta("B"))
        assert End not in map(type, talk.wait(1))
        if talk.health(A)[0] is Health.OFFLINE:
            break
    assert talk.health(A) == (Health.OFFLINE, Reason.NO_SNAPSHOT)
    assert talk.health(B) == LIVE
    talk.hear(b"gap A")
    assert talk.health(A) == (Health.OFFLINE, Reason.NO_SNAPSHOT)
    sent: list[Effect] = []
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
    assert talk.wait(100)[-1] == End(Reason.NO_SNAPSHOT, BEYOND_REPAIR)


def test_b2_heartbeats_are_not_data_a_quiet_book_goes_stale():
    talk = live(A, B, exchange=replace(TOY, quiet_max_s=5.0))
    for _ in range(5):
        talk.wait(1)
        talk.hear(delta("B"))
    assert talk.wait(0.5) == [again()]
    assert talk.health(A) == (Health.STALE, Reason.QUIET)
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
    assert talk.health() == (Health.OFFLINE, Reason.REFUSED)
    assert talk.hear(snap("A"), delta("A")) == []
    assert talk.health() == (Health.OFFLINE, Reason.REFUSED)
    for _ in range(299):
        talk.hear(delta("B"))
        assert talk.wait(1) == []
    assert talk.wait(2) == [again()]
    assert talk.health() == SYNCING


def test_fault_closing_notice_opens_the_next_connection_at_once():
    talk = live(A)
    assert talk.hear(b"closing maintenance") == [End(Reason.CLOSING, "maintenance", at_once=True)]
    assert talk.health() == (Health.STALE, Reason.CLOSING)


def test_what_a_frame_says_after_it_ended_the_connection_revives_nothing():
    talk = live(A)
    assert talk.hear(b"closing bye", snap("A"), b"gap A") == [
        End(Reason.CLOSING, "bye", at_once=True)
    ]
    assert talk.health() == (Health.STALE, Reason.CLOSING)


def test_a_connection_is_renewed_before_the_exchange_ends_it():
    talk = live(A, exchange=replace(TOY, lifetime_s=200.0, quiet_max_s=1_000.0))
    assert talk.wait(109) == []
    assert talk.wait(2) == [End(Reason.RENEWING, RENEWED, at_once=True)]
    assert talk.wait(1) == [End(Reason.RENEWING, RENEWED, at_once=True)]


def test_fault_reconnect_a_book_is_invalid_from_the_end_of_its_connection():
    talk = live(A, B)
    talk.session.closed(talk.now)
    assert [talk.health(each) for each in (A, B)] == [(Health.STALE, Reason.DISCONNECTED)] * 2
    assert talk.session.ended == End(Reason.DISCONNECTED)
    assert talk.invalidations() == {Reason.DISCONNECTED: 2}
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
    assert talk.health() == SYNCING
    talk.session.fetched(A, snap("A"), talk.now)
    assert talk.health() == LIVE


def test_a_snapshot_by_rest_that_failed_is_asked_for_again():
    talk = Talk(A)
    talk.open()
    talk.hear(b"fetch A")
    talk.session.fetch_failed(A, "answered 404", talk.now)
    assert talk.out() == [again()]
    assert talk.health() == (Health.STALE, Reason.SNAPSHOT_FAILED)


def failing(talk: Talk, words: str = "toy answered 404.") -> list[Effect]:
    """The outputs when the snapshot of A is requested and refused."""
    talk.hear(b"fetch A")
    talk.session.fetch_failed(A, words, talk.now)
    return talk.out()


def test_fault_a_snapshot_that_always_fails_takes_its_one_book_and_is_asked_for_ever_more_seldom():
    talk = live(A, B, exchange=replace(TOY, quiet_max_s=1e9))
    assert talk.hear(b"gap A") == [again()]
    assert talk.health() == (Health.STALE, Reason.GAP)
    assert failing(talk) == [again()]
    assert talk.health() == (Health.STALE, Reason.SNAPSHOT_FAILED)
    assert talk.detail() == "toy answered 404."
    for tries in range(1, 14):
        assert failing(talk) == []
        wait_s = 0.5 * min(LIMITS.retry_offline_s, 2.0**tries)
        assert talk.wait(wait_s - 0.3) == []
        assert talk.wait(0.6) == [again()]
    assert talk.health() == (Health.STALE, Reason.SNAPSHOT_FAILED)
    assert talk.health(B) == LIVE
    talk.hear(b"fetch A")
    talk.session.fetched(A, snap("A"), talk.now)
    assert talk.health() == LIVE
    assert talk.hear(b"gap A") == []
    assert talk.wait(1.5) == [again()]
    assert failing(talk) == [again()], "the waits begin again"


@pytest.mark.parametrize("body", [None, b"mumble A"])
def test_a_snapshot_that_fails_when_the_book_is_live_already_changes_nothing(body):
    talk = Talk(A)
    talk.open()
    talk.hear(b"fetch A")
    talk.hear(snap("A"))
    if body is None:
        talk.session.fetch_failed(A, "toy answered 404.", talk.now)
    else:
        talk.session.fetched(A, body, talk.now)
    assert talk.out() == []
    assert talk.health() == LIVE
    assert talk.invalidations() == {}


def test_a_body_that_cannot_be_read_is_a_snapshot_that_failed():
    talk = Talk(A)
    talk.open()
    talk.hear(b"fetch A")
    talk.session.fetched(A, b"mumble A", talk.now)
    assert talk.out() == [again()]
    assert talk.health() == (Health.STALE, Reason.SNAPSHOT_FAILED)
    assert talk.detail() == "an unknown word"


def test_a_stale_book_has_the_reason_of_what_was_tried_last():
    talk = live(A)
    talk.hear(b"gap A lost")
    assert talk.wait(5.5) == []
    assert (talk.health(), talk.detail()) == ((Health.STALE, Reason.NO_SNAPSHOT), "")


def test_a_body_after_the_end_or_of_a_removed_instrument_is_ignored():
    talk = live(A, B)
    talk.hear(b"fetch A", b"fetch B")
    talk.session.remove([B], talk.now)
    talk.session.fetched(B, snap("A"), talk.now)
    talk.session.fetch_failed(B, "answered 404", talk.now)
    talk.hear(b"closing bye")
    talk.session.fetched(A, snap("A"), talk.now)
    talk.session.fetch_failed(A, "answered 404", talk.now)
    assert talk.health() == (Health.STALE, Reason.CLOSING)


def test_fault_snapshot_older_than_the_buffer_is_fetched_five_times_then_the_connection_ends():
    talk = Talk(A)
    talk.open()
    for _ in range(5):
        assert [type(each) for each in talk.hear(b"fetch A")] == [Request]
        talk.session.fetched(A, b"", talk.now)
    assert talk.hear(b"fetch A") == [End(Reason.NO_SNAPSHOT, BEYOND_REPAIR)]


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


def test_a_renewed_subscription_that_is_not_acknowledged_is_no_subscription():
    """Where requests replace each other, a delisted book is dropped without a message."""
    talk = live(A, B)
    talk.hear(b"renewed A", b"renewed B")
    talk.wait(1)
    talk.hear(b"ack B", snap("A"), delta("A"))  # the snapshot may have been on its way before
    assert talk.wait(3.5) == []
    assert (talk.health(A), talk.health(B)) == (LIVE, LIVE)
    assert talk.wait(1) == [again("A")]
    assert talk.health(A) == (Health.STALE, Reason.NO_SNAPSHOT)
    assert talk.health(B) == LIVE
    talk.hear(snap("A"))
    assert talk.wait(10) == []
    assert (talk.health(A), talk.health(B)) == (LIVE, LIVE)


def test_a_renewed_subscription_of_a_book_that_is_not_live_is_waited_for_as_before():
    talk = Talk(A)
    talk.open()
    talk.wait(3)
    talk.hear(b"renewed A")
    assert talk.wait(2.5) == [again("A")]


@pytest.mark.parametrize("cause", ["closed", b"slower down", b"trading halted"])
def test_a_book_that_is_not_wanted_once_it_is_stale_may_be_dropped_meanwhile(cause):
    talk = live(A, B)

    def on_health(book, _):
        if book.health is not Health.LIVE:
            talk.session.remove([book.instrument], talk.now)

    talk.books.subscribe(on_health=on_health)
    if cause == "closed":
        talk.session.closed(talk.now)
    else:
        talk.books.open(C)
        talk.session.add([C], talk.now)
        talk.hear(cause)
    assert talk.stats.bugs == set()
    if cause != b"slower down":  # which touches only what was not acknowledged
        assert talk.session.instruments == []


def test_an_instrument_without_an_open_book_is_a_mistake_of_ours():
    with pytest.raises(AssertionError):
        live(A).session.add([C], 0.0)


def test_a_gap_answered_by_a_gap_waits_instead_of_turning_in_a_circle():
    class Stubborn(ToyConnector):
        def resync(self, instruments):
            yield from self.received(b"gap A")
            yield Send(b"again A")

    talk = live(A, exchange=replace(TOY, connector=Stubborn))
    assert talk.hear(b"gap A") == [again()]
    assert talk.wait(0.5) == []
    assert talk.wait(1.0) == [again()]


# Liveness: a socket that answers is not an exchange that delivers.

BUSY = 0.5  # seconds between two changes of a busy book


def busy(talk: Talk, seconds: float, *natives: str, every_s: float = BUSY) -> None:
    """Change books for a while, with the pongs of a healthy socket."""
    for _ in range(round(seconds / every_s)):
        assert talk.wait(every_s, hearing=None) == []
        talk.session.received_control(talk.now)
        talk.hear(*(delta(native) for native in natives))


def pongs(talk: Talk, seconds: float) -> list[Effect]:
    """Advance time on a socket that answers each second but sends no data."""
    return [action for action in talk.wait(seconds) if action != PING]


def test_b2_pongs_are_not_data_a_busy_connection_that_falls_silent_is_ended():
    talk = live(A, B)
    busy(talk, 60, "A", "B")
    assert pongs(talk, 4.5) == []
    assert pongs(talk, 1.5) == [End(Reason.SILENT, NO_DATA)]
    assert [talk.health(each) for each in (A, B)] == [(Health.STALE, Reason.SILENT)] * 2


def test_b2_a_connection_without_evidence_is_not_checked():
    talk = live(A, exchange=replace(TOY, quiet_max_s=600.0))
    busy(talk, 10, "A")
    assert pongs(talk, 300) == []
    assert talk.health() == LIVE


def test_b2_heartbeats_that_an_exchange_promises_are_missed_though_pongs_come():
    talk = live(A, exchange=replace(TOY, heartbeat_max_s=5.0))
    for _ in range(10):
        assert talk.hear(b"beat") == []
        assert pongs(talk, 1) == []
    assert pongs(talk, 3.5) == []
    assert pongs(talk, 1.5) == [End(Reason.SILENT, NO_HEARTBEAT)]


def test_b2_heartbeats_do_not_keep_frozen_books_of_a_busy_connection_alive():
    talk = live(A, exchange=replace(TOY, heartbeat_max_s=5.0))
    busy(talk, 60, "A")
    ends: list[Effect] = []
    for _ in range(8):
        talk.hear(b"beat")
        ends += pongs(talk, 1)
    assert ends[:1] == [End(Reason.SILENT, NO_DATA)]


def test_b2_one_instrument_that_falls_silent_is_asked_for_again_alone():
    talk = live(A, B)
    busy(talk, 60, "A", "B")
    for _ in range(19):
        assert talk.hear(delta("B")) == []
        assert talk.wait(BUSY) == []
    assert talk.health() == LIVE
    talk.hear(delta("B"))
    assert talk.wait(1.0) == [again("A")]
    assert talk.health() == (Health.STALE, Reason.QUIET)
    assert talk.health(B) == LIVE
    talk.hear(snap("A"))
    for _ in range(40):  # a wrong verdict is not repeated
        talk.hear(delta("B"))
        assert talk.wait(BUSY) == []
    assert talk.health() == LIVE


def test_b2_a_healthy_quiet_instrument_stays_live_beside_a_busy_one():
    talk = live(A, B, exchange=replace(TOY, heartbeat_max_s=5.0, quiet_max_s=600.0))
    for silent_s in (3, 7, 1, 12, 25.8, 2, 25.8):
        busy(talk, silent_s, "A")
        talk.hear(delta("B"))
        assert talk.health(B) == LIVE


def reconnected(talk: Talk, cadences: Cadences) -> Talk:
    """Another connection of the same feed, over the same books."""
    later = Talk.__new__(Talk)
    later.books, later.now, later.stats = talk.books, talk.now + 1.0, talk.stats
    later.session = FeedSession(
        TOY,
        [A],
        books=talk.books,
        stats=talk.stats,
        jitter=lambda: 0.5,
        cadences=cadences,
    )
    later.open()
    return later


def frozen() -> Talk:
    """A feed that reconnected to an exchange that went silent."""
    cadences = Cadences()
    talk = live(A, cadences=cadences)
    busy(talk, 60, "A")
    assert pongs(talk, 6) == [End(Reason.SILENT, NO_DATA)]
    return reconnected(talk, cadences)


BEFORE = b'snap A [["100","1"],["99","1"]] [["101","1"]]'


def test_b2_the_very_same_book_of_a_frozen_exchange_is_not_shown_again():
    talk = frozen()
    assert talk.hear(BEFORE) == []
    assert talk.health() == (Health.STALE, Reason.SILENT)
    assert talk.detail() == SAME_BOOK
    assert again() in pongs(talk, 40)
    assert talk.hear(BEFORE) == []
    assert talk.health() == (Health.STALE, Reason.SILENT)


def test_a_book_that_came_back_changed_is_live():
    talk = frozen()
    talk.hear(snap("A"))
    assert talk.health() == LIVE


def test_a_frozen_book_that_moves_again_is_asked_for_at_once():
    talk = frozen()
    talk.hear(BEFORE)
    assert talk.hear(delta("A")) == [again()]
    talk.hear(BEFORE)
    assert talk.health() == LIVE


def test_a_frozen_book_is_taken_as_quiet_after_a_while():
    talk = frozen()
    end_at = talk.now + FROZEN_MAX_S
    while talk.now < end_at:
        talk.hear(BEFORE)
        assert talk.health() == (Health.STALE, Reason.SILENT)
        while again() not in pongs(talk, 1):
            pass
    talk.hear(BEFORE)
    assert talk.health() == LIVE


# Errors that name no instrument.

SETTLED_S = UNNAMED_WAIT_S + 0.3  # checked four times a second


def test_an_unnamed_error_on_a_live_connection_changes_nothing():
    talk = live(A, B)
    for _ in range(20):
        assert talk.hear(b"unnamed no valid symbols") == []
    assert [talk.health(each) for each in (A, B)] == [LIVE, LIVE]
    assert talk.session.ended is None
    assert talk.stats.unnamed_errors == 20


def test_an_unnamed_error_is_traced_to_its_instrument_by_asking_one_by_one():
    talk = Talk(A, B, C)
    talk.open()
    talk.hear(snap("A"))
    assert talk.hear(b"unnamed no valid symbols") == []
    assert talk.wait(SETTLED_S) == [again("B")]
    assert talk.hear(b"ack B") == [again("C")]
    assert talk.hear(b"unnamed no valid symbols") == []
    assert talk.wait(SETTLED_S) == []
    assert talk.health(A) == LIVE
    assert talk.health(B) == SYNCING
    assert talk.health(C) == (Health.OFFLINE, Reason.REFUSED)
    assert talk.detail(C) == "no valid symbols"


def test_an_unnamed_error_waits_for_other_answers():
    talk = Talk(A, B, C)
    talk.open()
    assert talk.hear(b"unnamed bad") == []
    assert talk.wait(UNNAMED_WAIT_S - 0.3) == []
    assert talk.hear(b"ack A", snap("C")) == []
    assert talk.wait(0.6) == [again("B")], "the others were answered"
    assert talk.hear(b"unnamed bad", b"unnamed late") == []
    assert talk.wait(UNNAMED_WAIT_S - 0.3) == []
    assert talk.health(B) == SYNCING
    assert talk.wait(0.6) == []
    assert talk.health(B) == (Health.OFFLINE, Reason.REFUSED)
    assert talk.detail(B) == "bad"


def test_an_unnamed_error_is_not_about_what_was_removed_meanwhile():
    talk = Talk(A, B)
    talk.open()
    talk.hear(b"unnamed bad")
    assert talk.wait(SETTLED_S) == [again("A")]
    talk.hear(b"unnamed bad")
    talk.session.remove([A], talk.now)
    assert again("B") in talk.out()
    assert talk.wait(SETTLED_S) == []
    assert talk.health(A) == talk.health(B) == SYNCING


def test_an_unnamed_error_is_not_about_what_is_asked_for_after_it():
    talk = Talk(A, B)
    talk.open()
    talk.hear(snap("A"))
    assert talk.hear(b"unnamed bad") == []
    assert talk.hear(snap("B"), b"gap A", b"gap B") == [again("A B")]
    assert talk.wait(SETTLED_S) == []
    assert talk.health(A)[0] is Health.STALE
    assert talk.hear(snap("A"), snap("B")) == []


def test_an_unnamed_error_before_the_turn_of_one_is_not_about_it():
    talk = Talk(A, B)
    talk.open()
    talk.hear(b"unnamed bad")
    assert talk.wait(SETTLED_S) == [again("A")]
    assert talk.hear(b"unnamed bad", b"ack A") == [again("B")]
    assert talk.wait(SETTLED_S) == []
    assert talk.health(B) == SYNCING


def test_one_that_nothing_answers_does_not_hold_up_the_others():
    talk = Talk(A, B)
    talk.open()
    talk.hear(b"unnamed bad")
    assert talk.wait(SETTLED_S) == [again("A")]
    assert talk.wait(5.5) == [again("B"), again("A")]
    assert talk.health(A) == (Health.STALE, Reason.NO_SNAPSHOT)


def test_a_removed_one_is_not_waited_for():
    talk = Talk(A, B)
    talk.open()
    talk.hear(b"unnamed bad")
    assert talk.wait(SETTLED_S) == [again("A")]
    talk.session.remove([A], talk.now)
    assert again("B") in talk.out()


# Requests: batched, within every budget, and fewer where the exchange asks for it.


def test_a_rate_limit_makes_requests_wait_and_no_book_offline():
    talk = Talk(A, B, C, exchange=replace(TOY, heartbeat_max_s=None))
    talk.open()
    talk.hear(snap("A"))
    assert talk.hear(b"slower Exceeded msg rate", b"gap A") == []
    assert talk.health(B) == talk.health(C) == (Health.STALE, Reason.RATE_LIMITED)
    assert talk.detail(B) == "Exceeded msg rate"
    assert talk.wait(14.8) == []
    assert sorted(talk.wait(0.6)) == [again("A"), again("B C")]


ONE_A_SECOND = limited(replace(TOY, quiet_max_s=1e6), messages=(Limit(1, 1.0),))


def test_a_rate_limit_drops_only_requests_that_are_repeated_after_the_pause():
    talk = Talk(A, B, C, exchange=ONE_A_SECOND)
    talk.open()
    talk.hear(snap("A"), b"ack B")
    talk.session.remove([A], talk.now)
    assert talk.hear(b"send the book of B", b"gap C", b"slower wait") == []
    assert talk.wait(14.5) == []
    unsubscribe, book = Transmit(b"unsubscribe A"), Transmit(b"the book of B")
    assert talk.wait(3.5) == [unsubscribe, book, again("C")]
    assert talk.health(B) == SYNCING, "its request has just left"


def test_a_renewed_subscription_is_not_overdue_while_its_request_is_held():
    talk = live(A, B, exchange=replace(TOY, quiet_max_s=1e6))
    talk.session.remove([B], talk.now)
    talk.out()
    talk.hear(b"slower wait")
    talk.hear(b"send everything but B", b"renewed A")
    talk.hear(b"slower wait longer")
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [Transmit(b"everything but B")]
    assert talk.wait(TOY.snapshot_s - 1.0) == []
    assert talk.health(A) == LIVE
    assert again("A") in talk.wait(2.0)


def test_a_renewed_subscription_that_may_be_refused_by_a_rate_limit_is_no_subscription():
    talk = live(A, B, C, exchange=replace(TOY, quiet_max_s=1e6))
    talk.hear(b"renewed A", b"renewed B", b"ack A")
    assert talk.hear(b"slower wait") == []
    assert [talk.health(each) for each in (A, C)] == [LIVE, LIVE]
    assert talk.health(B) == (Health.STALE, Reason.RATE_LIMITED)
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [again("B")]
    talk.hear(b"ack B", snap("B"))
    assert talk.health(B) == LIVE


def test_a_rate_limit_that_is_repeated_makes_the_pause_longer_up_to_its_bound():
    talk = Talk(A, B, limits=FeedLimits(slow_down_s=10.0, slow_down_max_s=30.0))
    talk.open()
    for pause_s in (15, 30, 45, 45):
        assert talk.hear(b"slower wait") == []
        assert talk.wait(pause_s - 0.5) == []
        assert talk.wait(1.0) == [again("A B")]
    talk.hear(snap("A"), b"slower wait")
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [again("B")]


def test_a_request_that_is_repeated_because_of_a_rate_limit_is_sent_after_the_pause():
    """Such as tasks for fast best prices, whose books are live and send no requests."""
    limits = FeedLimits(slow_down_s=10.0, slow_down_max_s=30.0)
    talk = live(A, exchange=replace(TOY, quiet_max_s=1e6), limits=limits)
    for pause_s in (15, 30, 45):
        assert talk.hear(b"slower wait\nsend tops") == []
        assert talk.health(A) == LIVE
        assert talk.wait(pause_s - 0.5) == []
        assert talk.wait(1.0) == [Transmit(b"tops")]


def test_a_burst_of_errors_is_one_pause():
    talk = Talk(A, B, limits=FeedLimits(slow_down_s=10.0, slow_down_max_s=300.0))
    talk.open()
    for words in (b"slower wait", b"unavailable out of order"):
        assert talk.hear(*[words] * 100) == []
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [again("A B")]


def test_an_exchange_that_is_unavailable_is_asked_again_and_no_book_goes_offline():
    talk = Talk(A, B)
    talk.open()
    assert talk.hear(b"unavailable Internal error") == []
    assert talk.health(A) == talk.health(B) == (Health.STALE, Reason.UNAVAILABLE)
    assert talk.detail(A) == "Internal error"
    assert talk.hear(b"unavailable Internal error") == []
    assert talk.invalidations() == {Reason.UNAVAILABLE: 2}
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [again("A B")]
    talk.hear(snap("A"), snap("B"))
    assert talk.health(A)[0] is talk.health(B)[0] is Health.LIVE


def test_a_lasting_internal_error_is_about_one_of_what_was_asked_for():
    talk = Talk(A, B, C)
    talk.open()
    for tries in range(UNAVAILABLE_MAX):
        assert talk.hear(b"unavailable Internal error") == []
        talk.wait(15.0 * 2**tries - 0.5)
        assert talk.wait(1.0) == [again("A B C")]
    assert talk.hear(b"unavailable Internal error") == []
    assert talk.wait(SETTLED_S) == [again("A")]
    assert talk.hear(snap("A")) == [again("B")]
    assert talk.hear(b"unavailable Internal error") == []
    assert talk.wait(SETTLED_S) == [again("C")]
    assert talk.health(B) == (Health.OFFLINE, Reason.REFUSED)
    talk.hear(snap("C"))
    assert talk.health(A)[0] is talk.health(C)[0] is Health.LIVE


def test_a_passing_error_about_some_books_leaves_the_others_of_the_connection_alone():
    talk = Talk(A, B, C)
    talk.open()
    assert talk.hear(snap("C"), b"failed A Internal error", b"gap C") == [again("C")]
    assert talk.health(A) == (Health.STALE, Reason.UNAVAILABLE)
    assert talk.detail(A) == "Internal error"
    assert talk.health(B) == SYNCING
    assert talk.hear(snap("B"), snap("C"), b"failed B late") == []
    assert talk.health(B) == talk.health(C) == LIVE
    assert talk.hear(b"failed A Internal error") == [], "it answers what was sent before"
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [again("A")]
    assert talk.invalidations()[Reason.UNAVAILABLE] == 1
    talk.hear(snap("A"))
    assert talk.health(A) == LIVE


def test_a_book_whose_errors_never_pass_is_refused_alone():
    talk = Talk(A, B, exchange=replace(TOY, quiet_max_s=1e6))
    talk.open()
    talk.hear(snap("B"))
    for tries in range(UNAVAILABLE_MAX):
        assert talk.hear(b"failed A Internal error") == []
        talk.wait(15.0 * 2**tries - 0.5)
        assert talk.wait(1.0) == [again("A")]
    assert talk.hear(b"failed A Internal error") == []
    assert talk.health(A) == (Health.OFFLINE, Reason.REFUSED)
    assert talk.health(B) == LIVE


def test_an_error_that_passed_does_not_lengthen_the_pause_of_the_next():
    talk = Talk(A)
    talk.open()
    assert talk.hear(b"failed A Internal error") == []
    assert talk.wait(15.5) == [again("A")]
    assert talk.hear(snap("A"), b"gap A") == [again("A")]
    assert talk.hear(b"failed A Internal error") == []
    assert talk.wait(14.5) == []
    assert talk.wait(1.0) == [again("A")]


def test_a_resync_of_many_instruments_is_one_request():
    talk = live(A, B, C)
    assert talk.hear(b"gap A", b"gap C") == [again("A C")]


def test_requests_never_exceed_what_the_exchange_allows_in_any_hour():
    talk = live(A, exchange=limited(replace(TOY, quiet_max_s=1e9), requests=(Limit(10, 3_600.0),)))
    sent = [1_000.0]
    for _ in range(7_200 * 2):
        talk.now += 0.5
        talk.session.tick(talk.now)
        if talk.books.get(A).health is Health.LIVE:
            talk.session.received(b"gap A", talk.now)
        for action in talk.out():
            if action == PING:
                talk.session.received_control(talk.now)
                continue
            assert action == again()
            sent.append(talk.now)
            talk.session.received(snap("A"), talk.now)
            talk.session._recovery.watches[A].tries = 0
    assert len(sent) > 10
    for index, at in enumerate(sent):
        assert sum(1 for other in sent[index:] if other - at < 3_600) <= 10


# Trading halts.


def test_maintenance_makes_every_book_stale_until_trading_begins_again():
    talk = live(A, B)
    assert talk.hear(b"trading maintenance") == []
    assert [talk.health(each) for each in (A, B)] == [(Health.STALE, Reason.MAINTENANCE)] * 2
    assert talk.detail() == "maintenance"
    talk.hear(snap("A"), delta("A"), b"gap A")
    assert talk.health() == (Health.STALE, Reason.MAINTENANCE)
    talk.books.open(C)
    talk.session.add([C], talk.now)
    assert talk.health(C) == (Health.STALE, Reason.MAINTENANCE)
    assert pongs(talk, 300) == [Transmit(b"subscribe C")]
    assert talk.hear(b"trading online") == [again("A B C")]
    talk.hear(snap("A"))
    assert talk.health() == LIVE
    assert talk.hear(b"trading online") == []


# Floods.


def test_a_flood_of_messages_without_data_ends_the_connection_at_once():
    talk = live(A, limits=FeedLimits(noise_per_s=10.0, noise_burst=100))
    assert talk.hear(*[b"unknown"] * 50, *[b"known"] * 50) == []
    assert talk.stats.unknown == 50
    assert talk.hear(b"known") == [End(Reason.FLOOD, NOISE, abrupt=True)]
    assert talk.health() == (Health.STALE, Reason.FLOOD)


def test_a_flood_of_pongs_ends_the_connection_at_once():
    talk = live(A, limits=FeedLimits(noise_per_s=10.0, noise_burst=100))
    for _ in range(101):
        talk.session.received_control(talk.now)
    assert talk.out() == [End(Reason.FLOOD, NOISE, abrupt=True)]


def test_messages_without_data_at_a_moderate_rate_are_no_flood():
    talk = live(A, limits=FeedLimits(noise_per_s=10.0, noise_burst=100))
    for _ in range(100):
        assert talk.hear(*[b"unknown"] * 9) == []
        assert talk.wait(1, hearing=None) == []
        talk.hear(delta("A"))


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
        b"beat",
        b"unnamed bad",
        b"slower wait",
        b"trading maintenance",
        b"trading online",
        b"unknown",
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
    talk.books.subscribe(on_health=lambda book, previous: moves.append((previous, book.health)))
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
            talk.session.fetch_failed(A, "answered 404", talk.now)
        else:
            talk.session.closed(talk.now)
        if talk.session.ended is not None:
            assert list(talk.books.live()) == []
        for book in talk.books.live():
            assert not book.core.crossed
            assert None not in book.core.best()
