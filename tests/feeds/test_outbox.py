"""Rate limits of the frames that a connection sends."""

import pytest

from feeds.toy import TOY, A, B, C, limited
from onebook.exchanges.kit.codec import Dated, send
from onebook.exchanges.kit.contract import Fetch, Send
from onebook.exchanges.kit.limits import Limit, Quotas
from onebook.feeds.outbox import PING, Outbox, Request, Transmit


def outbox(*, per_s: int = 10, per_hour: int | None = None, frames_max: int = 100) -> Outbox:
    requests = () if per_hour is None else (Limit(per_hour, 3_600.0),)
    exchange = limited(TOY, messages=(Limit(per_s, 1.0),), requests=requests)
    return Outbox(Quotas(exchange.limits), frames_max=frames_max, wake=lambda: None)


def test_frames_leave_in_order_and_no_more_in_a_second_than_the_exchange_takes() -> None:
    box = outbox(per_s=10)
    frames = [b"%d" % rank for rank in range(30)]
    assert all(box.send(Send(frame)) for frame in frames)
    sent = [box.drain(tenth / 10) for tenth in range(50)]
    assert [action.frame for some in sent for action in some] == frames  # type: ignore[union-attr]
    for second in range(4):
        assert sum(map(len, sent[second * 10 : second * 10 + 10])) <= 10


def test_what_is_urgent_goes_first_and_is_paid_for_by_what_waits() -> None:
    box = outbox(per_s=10)  # a burst of two
    for frame in (b"a", b"b"):
        box.send(Send(frame))
    box.urge(Transmit(b"pong"))
    box.urge(PING)
    assert box.drain(0.0) == [Transmit(b"pong"), PING]
    assert box.drain(0.2) == [Transmit(b"a")]


def test_a_full_queue_takes_no_frame_more() -> None:
    box = outbox(frames_max=2)
    assert [box.send(Send(b"x")) for _ in range(3)] == [True, True, False]


def test_the_limit_of_an_hour_holds_whatever_the_seconds_allow() -> None:
    box = outbox(per_s=1_000, per_hour=20)
    for _ in range(60):
        box.send(Send(b"x"))
    assert len(box.drain(0.0)) == 10
    assert sum(len(box.drain(minute * 60.01)) for minute in range(1, 61)) == 10
    assert box.wait_s(3_600.6) == pytest.approx(40 / 10 * 3_600, abs=2)


def test_a_held_outbox_keeps_its_queue_and_sends_nothing_for_a_while() -> None:
    box = outbox()
    box.send(Send(b"old"))
    box.hold(5.0)
    box.hold(3.0)
    box.send(Send(b"new"))
    assert box.drain(4.9) == []
    assert box.wait_s(4.0) == 1.0
    assert box.drain(5.0) == [Transmit(b"old"), Transmit(b"new")]


def test_only_frames_that_ask_for_nothing_else_are_withdrawn() -> None:
    box = outbox()
    for frame, asks in {b"a": (A,), b"a b": (A, B), b"not a": (), b"b": (B,)}.items():
        box.send(Send(frame, asks=asks))
    box.withdraw({A, C})
    kept = [Transmit(b"a b"), Transmit(b"not a"), Transmit(b"b")]
    assert [*box.drain(0.0), *box.drain(1.0)] == kept


def test_bodies_are_asked_for_at_once_and_only_once() -> None:
    box, fetch = outbox(), Fetch(A, "/book")
    box.hold(9.0)
    box.request(fetch)
    assert box.drain(0.0) == [Request(fetch)]
    assert box.drain(0.0) == []


def test_a_frame_that_names_its_time_is_written_when_it_leaves() -> None:
    exchange = limited(TOY, messages=(Limit(1, 1.0),))
    wall = iter([1_700_000_000_000, 1_700_000_001_500])
    box = Outbox(Quotas(exchange.limits), frames_max=9, wake=lambda: None, wall_ms=wall.__next__)
    for word in ("a", "b"):
        assert box.send(send(Dated(lambda now_ms, word=word: {word: now_ms})))
    assert box.drain(0.0) == [Transmit(b'{"a":1700000000000}')]
    assert box.drain(0.5) == []
    assert box.drain(1.5) == [Transmit(b'{"b":1700000001500}')]
