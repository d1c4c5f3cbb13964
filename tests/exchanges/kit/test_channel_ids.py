"""Frames that name books by ids and count all frames of the connection: an invented exchange."""

import json
from collections.abc import Sequence

import pytest

from onebook.exchanges.kit.channel import Accepted, BookChannel, BookFrame, Event, RequestRejected
from onebook.exchanges.kit.contract import (
    EXPECTED,
    NOTHING,
    Acknowledged,
    BookRefused,
    Delta,
    Gap,
    Ignored,
    Output,
    Outputs,
    ProtocolError,
    Send,
    Snapshot,
    each_of,
)
from onebook.exchanges.kit.engine import Engine
from onebook.exchanges.kit.sync import Trackers, Unnumbered
from onebook.model import Instrument

A, B, C = (Instrument("made", f"{native}/USD", f"{native}:USD") for native in "ABC")


def data(books: Trackers[int, Unnumbered], frame: bytes) -> Outputs | None:
    channel, kind, number = json.loads(frame)
    book = books.get(channel)
    if book is None and channel not in books.left:
        return None
    lost = books.missed(number)
    if book is None:
        return lost
    follow = book.snapshot if kind == "whole" else book.delta
    return (*lost, *each_of(follow(b'[["1","2"]]', b"[]")))


def control(frame: bytes) -> Event:
    match json.loads(frame):
        case {"name": str(name), "id": int(channel)}:
            return Accepted([name], channel=channel)
        case {"mangled": str()}:
            return Ignored(known=True)
        case {"name": str(name)}:
            return RequestRejected("unknown", names=[name])
        case [int(channel), *_]:
            return BookFrame(channel=channel)
    return BookFrame()


def subscribe(names: Sequence[str], number: int) -> object:
    return ["+", *names]


def unsubscribe(ids: Sequence[int], number: int) -> object:
    return ["-", *ids]


BOOKS = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=unsubscribe,
    track=Unnumbered,
    names_per_request=2,
    configure=(["count"],),
    channel_ids=True,
)


class Line:
    """A connection, and the outputs of its frames."""

    def __init__(self, *instruments: Instrument) -> None:
        self.engine = Engine(BOOKS, instruments)
        self.engine.opened()
        self.number = 0

    def hear(self, message: object) -> list[Output]:
        return list(self.engine.received(json.dumps(message).encode()))

    def send(self, channel: int, kind: str = "change") -> list[Output]:
        self.number += 1
        return self.hear([channel, kind, self.number])

    def live(self, **ids: int) -> "Line":
        for name, channel in ids.items():
            self.hear({"name": f"{name}:USD", "id": channel})
            self.send(channel, "whole")
        return self


def kinds(outputs: list[Output]) -> list[object]:
    return [(type(out), out.instrument) for out in outputs]  # type: ignore[union-attr]


def sent(outputs: object) -> list[object]:
    return [json.loads(out.frame) for out in outputs if isinstance(out, Send)]  # type: ignore[attr-defined]


def test_the_connection_is_configured_before_the_first_request() -> None:
    opened = Engine(BOOKS, [A, B, C]).opened()
    assert sent(opened) == [["count"], ["+", "A:USD", "B:USD"], ["+", "C:USD"]]


def test_frames_are_of_the_book_that_their_id_was_assigned_to() -> None:
    line = Line(A, B)
    assert line.hear({"name": "B:USD", "id": 7}) == [Acknowledged(B)]
    assert line.hear({"name": "A:USD", "id": 9}) == [Acknowledged(A)]
    assert kinds(line.send(7, "whole")) == [(Snapshot, B)]
    assert kinds(line.send(9, "whole")) == [(Snapshot, A)]
    assert kinds(line.send(7)) == [(Delta, B)]


def test_unsubscribing_is_by_id_and_late_frames_are_counted() -> None:
    line = Line(A, B).live(A=1, B=2)
    assert sent(line.engine.resync([A])) == [["-", 1], ["+", "A:USD"]]
    assert line.send(1) == []
    assert kinds(line.send(2)) == [(Delta, B)]
    line.hear({"name": "A:USD", "id": 1})
    assert kinds(line.send(1, "whole")) == [(Snapshot, A)], "the same id, assigned again"
    assert sent(line.engine.remove([A, B])) == [["-", 1, 2]]
    assert line.send(2, "whole") == []


def test_a_subscription_that_is_acknowledged_after_its_removal_is_ended() -> None:
    line = Line(A, B)
    assert sent(line.engine.remove([A])) == []
    told = line.hear({"name": "A:USD", "id": 1})
    assert (sent(told), told[1:]) == ([["-", 1]], list(EXPECTED))
    assert line.send(1, "whole") == []


def test_of_two_ids_of_a_name_the_newer_counts() -> None:
    line = Line(A).live(A=1)
    assert sent(line.hear({"name": "A:USD", "id": 2})) == [["-", 1]]
    assert line.send(1, "whole") == []
    assert kinds(line.send(2, "whole")) == [(Snapshot, A)]


def test_a_refusal_can_state_its_name_apart() -> None:
    assert Line(A, B).hear({"name": "B:USD"}) == [BookRefused(B, "unknown")]


def test_a_missing_frame_is_a_gap_of_every_live_book() -> None:
    line = Line(A, B, C).live(A=1, B=2)
    line.number += 1
    assert kinds(line.send(1)) == [(Gap, A), (Gap, B)]
    assert line.send(2) == [], "reported once"
    assert kinds(line.send(2, "whole")) == [(Snapshot, B)]


def test_a_frame_of_an_id_that_was_never_assigned_is_refused_and_not_counted() -> None:
    line = Line(A).live(A=1)
    with pytest.raises(ProtocolError, match="'5', which is not subscribed") as caught:
        line.send(5)
    assert caught.value.instrument is None
    line.number -= 1
    assert kinds(line.send(1)) == [(Delta, A)]


def test_an_id_whose_acknowledgement_was_damaged_is_left_and_counted() -> None:
    line = Line(A, B).live(A=1)
    line.hear({"mangled": "B:USD"})
    assert sent(line.send(2, "whole")) == [["-", 2]]
    assert line.send(2) == []
    assert kinds(line.send(1)) == [(Delta, A)], "no frame is missing"
    assert sent(line.engine.resync([B])) == [["+", "B:USD"]]
    line.hear({"name": "B:USD", "id": 3})
    assert kinds(line.send(3, "whole")) == [(Snapshot, B)]


def test_as_many_ids_are_left_as_books_wait_for_a_snapshot() -> None:
    line = Line(A, B, C).live(A=1)
    line.hear({"name": "C:USD"})
    line.send(2)
    with pytest.raises(ProtocolError, match="'3', which is not subscribed"):
        line.send(3)


def test_an_id_that_two_names_are_given_is_left_and_both_are_invalid() -> None:
    line = Line(A, B).live(A=1)
    told = line.hear({"name": "B:USD", "id": 1})
    assert sent(told) == [["-", 1]]
    assert kinds([out for out in told if isinstance(out, Gap)]) == [(Gap, A), (Gap, B)]
    assert line.send(1, "whole") == []
    assert sent(line.engine.resync([A, B])) == [["+", "A:USD", "B:USD"]]


def test_a_damaged_frame_names_the_book_of_its_id() -> None:
    line = Line(A, B).live(A=1, B=2)
    with pytest.raises(ProtocolError, match="'B:USD' is damaged") as caught:
        line.hear([2])
    assert caught.value.instrument is B
    assert line.engine.reader()(b'[2,"change",3]') != NOTHING
