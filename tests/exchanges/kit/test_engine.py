"""The engine of a connection, with an invented exchange."""

import json
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace

from onebook.exchanges.kit.channel import (
    Accepted,
    BookChannel,
    BookFrame,
    Counted,
    Event,
    ExchangeReady,
    RequestRejected,
    SeedRefused,
    SocketSeed,
    verbs,
)
from onebook.exchanges.kit.contract import (
    EXPECTED,
    NOTHING,
    Acknowledged,
    Alive,
    BookRefused,
    Delta,
    Fetch,
    Gap,
    Ignored,
    Outputs,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    SnapshotFailed,
    Unnamed,
    each_of,
)
from onebook.exchanges.kit.engine import CONTROL_BYTES_MAX, OMITTED, Engine, SeededEngine
from onebook.exchanges.kit.roster import LATE_MAX
from onebook.exchanges.kit.sync import Join, Trackers, Unnumbered, WholeBooks
from onebook.model import Instrument

A, B, C = (Instrument("made", f"{native}/USD", native) for native in "ABC")


def data(books: dict[str, Unnumbered], frame: bytes) -> Outputs | None:
    kind, name, level = json.loads(frame)
    book = books.get(name)
    if book is None:
        return None
    read = book.snapshot if kind == "whole" else book.delta
    return read(json.dumps([level]).encode(), b"[]")


def control(frame: bytes) -> Event:
    match frame.decode().split(" ", 1):
        case ["welcome"]:
            return ExchangeReady()
        case ["ok", names]:
            return Accepted(names.split())
        case ["only", answer]:
            number, *names = answer.split()
            return Accepted(names, int(number), lists_all=True)
        case ["done", number]:
            return Accepted(number=int(number))
        case ["no", words]:
            return RequestRejected(words)
        case ["never", words]:
            number, _, words = words.partition(" ")
            return RequestRejected(words, int(number), whole=True)
        case ["code", words]:
            code, _, words = words.partition(" ")
            return RequestRejected(words, code=code)
        case ["failed", words]:
            return RequestRejected(words, whole=True)
        case ["twice", words]:
            return RequestRejected(words, whole=True, repeated=True)
    return BookFrame(json.loads(frame)[1] if frame[-1:] == b"]" else "")


def subscribe(names: Sequence[str], number: int) -> object:
    return ["+", *names, number]


def unsubscribe(names: Sequence[str], number: int) -> object:
    return ["-", *names, number]


BOOKS = BookChannel(
    data=data,
    control=control,
    subscribe=subscribe,
    unsubscribe=unsubscribe,
    track=Unnumbered,
    names_per_request=2,
)


def sent(outputs: object) -> list[object]:
    return [json.loads(out.frame) for out in outputs if isinstance(out, Send)]  # type: ignore[attr-defined]


def asked(outputs: object) -> list[tuple[Instrument, ...]]:
    return [out.asks for out in outputs if isinstance(out, Send)]  # type: ignore[attr-defined]


def opened(*instruments: Instrument) -> Engine:
    engine = Engine(BOOKS, instruments or (A, B, C))
    engine.opened()
    return engine


def test_requests_are_batched_and_numbered() -> None:
    assert sent(Engine(BOOKS, [A, B, C]).opened()) == [["+", "A", "B", 1], ["+", "C", 2]]


def test_what_the_answer_to_a_request_omits_is_refused() -> None:
    engine = opened()
    outputs = engine.received(b"only 1 B C")
    assert outputs == (Acknowledged(B), BookRefused(A, OMITTED)), "C is of another request"
    assert engine.received(b"only 1 B") == EXPECTED, "it was answered before"
    assert BookRefused(C, OMITTED) in engine.received(b"only 2")


def test_what_was_accepted_before_may_be_omitted() -> None:
    engine = opened(A, B)
    assert sent(engine.resync([A])) == [["-", "A", 2], ["+", "A", 3]]
    assert engine.received(b"only 1 A B") == (Acknowledged(A), Acknowledged(B))
    assert engine.received(b"only 3") == EXPECTED, "the first request was late"


def test_what_an_unanswered_request_asked_for_may_be_omitted() -> None:
    engine = opened(A, B)
    assert sent(engine.resync([A])) == [["-", "A", 2], ["+", "A", 3]]
    assert engine.received(b"only 3") == (Acknowledged(A),), "the answer to the first was lost"


def test_a_resync_is_batched_and_touches_no_other() -> None:
    engine = opened()
    assert sent(engine.resync([A, C])) == [["-", "A", "C", 3], ["+", "A", "C", 4]]


def test_where_requests_replace_each_names_everything_that_stays() -> None:
    engine = Engine(replace(BOOKS, unsubscribe=None, names_per_request=9), [A, B])
    assert sent(engine.opened()) == [["+", "A", "B", 1]]
    assert sent(engine.add([C])) == [["+", "A", "B", "C", 2]]
    assert sent(engine.resync([B])) == [["+", "A", "B", "C", 3]]
    assert sent(engine.remove([A])) == [["+", "B", "C", 4]]
    assert sent(engine.remove([A])) == sent(engine.resync([A])) == sent(engine.add([B])) == []
    assert sent(engine.remove([B, C])) == [], "there is no request for nothing"


def test_where_leaving_one_leaves_all_the_others_are_asked_for_again() -> None:
    engine = Engine(replace(BOOKS, unsubscribes_all=True, renews=True), [A, B, C])
    engine.opened()
    assert sent(engine.resync([A])) == [["+", "A", 3]]
    assert sent(engine.remove([A, B])) == [["-", "A", 4], ["+", "C", 5]]
    assert sent(engine.remove([A])) == []
    assert sent(engine.remove([C])) == [["-", "C", 6]]


def test_where_a_repeated_subscription_brings_a_snapshot_a_resync_leaves_nothing() -> None:
    engine = Engine(replace(BOOKS, renews=True), [A, B])
    engine.opened()
    assert sent(engine.resync([A])) == [["+", "A", 2]]
    assert sent(engine.remove([A])) == [["-", "A", 3]]


@pytest.mark.parametrize("unanswered", [True, False])
def test_a_whole_book_acknowledges_a_subscription_that_nothing_else_answers(
    *, unanswered: bool
) -> None:
    book = WholeBooks(A, unanswered=unanswered)
    snapshot = Snapshot(A, b"[1]", b"[2]", at=7)
    first = (Acknowledged(A), snapshot) if unanswered else (snapshot,)
    for _ in range(2):
        assert book.snapshot(b"[1]", b"[2]", 7) == first
        assert book.snapshot(b"[1]", b"[2]", 7) == (snapshot,)
        book.restart()


def test_nothing_is_sent_before_the_welcome_and_then_everything_once() -> None:
    engine = Engine(replace(BOOKS, welcomes=True), [A])
    assert [*engine.opened(), *engine.add([B]), *engine.resync([A]), *engine.remove([A])] == []
    assert sent(engine.received(b"welcome")) == [["+", "B", 1]]
    assert engine.received(b"welcome") == EXPECTED


def test_an_answer_accepts_by_name_or_by_number_and_once() -> None:
    engine = opened()
    assert engine.received(b"ok A X") == (Acknowledged(A),)
    assert engine.received(b"done 1") == (Acknowledged(B),)
    assert engine.received(b"done 1") == EXPECTED
    assert engine.received(b"ok A B") == EXPECTED
    engine.resync([A])
    assert engine.received(b"ok A B") == (Acknowledged(A),)


def test_where_nothing_is_acknowledged_what_was_asked_for_counts_as_accepted() -> None:
    engine = Engine(replace(BOOKS, acknowledges=False), [A, B])
    asked, *accepted = engine.opened()
    assert sent([asked]) == [["+", "A", "B", 1]]
    assert accepted == [Acknowledged(A), Acknowledged(B)]
    assert [*engine.resync([A])][-1] == Acknowledged(A)
    assert [*engine.add([A])] == []
    waiting = Engine(replace(BOOKS, acknowledges=False, welcomes=True), [A])
    assert waiting.opened() == NOTHING, "what is not sent yet is not accepted"
    assert [type(out) for out in waiting.received(b"welcome")] == [Send, Acknowledged]


def test_the_number_of_an_unsubscription_accepts_nothing() -> None:
    engine = opened(A)
    engine.resync([A])
    assert engine.received(b"done 2") == EXPECTED
    assert engine.received(b"done 3") == (Acknowledged(A),)


def test_an_error_affects_the_instruments_it_names_and_without_a_name_none() -> None:
    engine = opened()
    assert engine.received(b"no market B") == (BookRefused(B, "market B"),)
    assert engine.received(b"no such thing") == (Unnamed("such thing"),)


def test_a_rate_limit_refuses_no_instrument_whatever_it_names() -> None:
    assert opened().received(b"no too many requests: A") == (SlowDown("too many requests: A"),)


def test_what_a_refused_request_asked_for_beside_the_bad_name_is_asked_for_again() -> None:
    engine = opened()
    refused, again = engine.received(b"never 1 A")
    assert refused == BookRefused(A, "A")
    assert sent([again]) == [["+", "B", 3]], "C was asked for by another request"
    assert engine.received(b"done 3") == (Acknowledged(B),)


def test_without_numbers_all_that_is_not_answered_is_asked_for_again() -> None:
    engine = opened()
    engine.received(b"ok C")
    refused, again = engine.received(b"failed A")
    assert refused == BookRefused(A, "A")
    assert sent([again]) == [["+", "B", 3]]


def test_a_request_that_is_refused_as_a_whole_is_repeated_in_halves_until_one_is_alone() -> None:
    made = [Instrument("made", f"{native}/USD", native) for native in "ABCDE"]
    engine = Engine(replace(BOOKS, names_per_request=5), made)
    engine.opened()
    assert sent(engine.received(b"never 1 no")) == [["+", "A", "B", "C", 2], ["+", "D", "E", 3]]
    assert engine.received(b"done 2") == tuple(map(Acknowledged, made[:3]))
    assert sent(engine.received(b"never 3 no")) == [["+", "D", 4], ["+", "E", 5]]
    assert engine.received(b"never 4 no") == (BookRefused(made[3], "no"),)
    assert engine.received(b"done 5") == (Acknowledged(made[4]),)


def test_halves_leave_out_what_was_accepted_or_removed_meanwhile() -> None:
    made = [Instrument("made", f"{native}/USD", native) for native in "ABCDE"]
    engine = Engine(replace(BOOKS, names_per_request=5), made)
    engine.opened()
    engine.received(b"ok B E")
    engine.remove([C])
    assert sent(engine.received(b"never 1 no")) == [["+", "A", 3], ["+", "D", 4]]


def test_where_requests_replace_each_other_one_that_is_refused_has_no_halves() -> None:
    engine = Engine(replace(BOOKS, unsubscribe=None, names_per_request=9), [A, B])
    engine.opened()
    assert engine.received(b"never 1 no") == (BookRefused(A, "no"), BookRefused(B, "no"))


def test_a_repeated_subscription_is_no_refusal() -> None:
    assert opened(A).received(b"twice A") == (Acknowledged(A),)


def test_a_refused_instrument_is_accepted_when_it_is_asked_for_again() -> None:
    engine = opened(A)
    engine.received(b"no A")
    assert engine.received(b"ok A") == EXPECTED
    engine.resync([A])
    assert engine.received(b"ok A") == (Acknowledged(A),)


def test_frames_of_books_need_one_call() -> None:
    read = opened(A).reader()
    (snapshot,) = read(b'["whole", "A", ["1", "2"]]') or ()
    assert isinstance(snapshot, Snapshot)
    delta = read(b'["change", "A", ["1", "3"]]')  # without a tuple
    assert isinstance(delta, Delta)
    assert read(b'["change", "X", ["1", "3"]]') is None


def test_a_frame_of_a_removed_book_is_late_and_one_of_a_stranger_is_an_error() -> None:
    engine = opened()
    engine.remove([A])
    assert engine.received(b'["change", "A", ["1", "3"]]') == ()
    with pytest.raises(ProtocolError, match="'X', which is not subscribed") as caught:
        engine.received(b'["change", "X", ["1", "3"]]')
    assert caught.value.instrument is None


def test_a_damaged_frame_names_its_book() -> None:
    with pytest.raises(ProtocolError, match="'B' is damaged") as caught:
        opened().received(b'["change", "B"]')
    assert caught.value.instrument is B


def test_a_damaged_frame_of_a_removed_book_is_late_and_costs_no_other() -> None:
    engine = opened()
    engine.remove([B])
    assert engine.received(b'["change", "B"]') == ()


def test_a_damaged_frame_without_a_name_says_so() -> None:
    with pytest.raises(ProtocolError, match="a frame of an unnamed book") as caught:
        opened().received(b'["change", ""]')
    assert caught.value.instrument is None


# Books that start at a body which is asked for on the same socket


def join_data(books: dict[str, Join], frame: bytes) -> Outputs | None:
    kind, name, first, final, *levels = json.loads(frame)
    book = books.get(name)
    if book is None or kind != "change":
        return None
    return book.delta(first, final, json.dumps(levels).encode(), b"[]")


def join_control(frame: bytes) -> Event:
    if frame.startswith(b'["whole"'):
        _, name, sequence, *levels = json.loads(frame)
        return SocketSeed(name, json.dumps(levels).encode(), b"[]", sequence)
    if frame.startswith(b"busy "):
        return SeedRefused(frame[5:].decode(), "request timeout")
    if frame.startswith(b"ping "):
        return Send(b"pong " + frame[5:], urgent=True)
    return control(frame)


REQUESTED = replace(
    BOOKS,
    data=join_data,
    control=join_control,
    track=lambda instrument: Join(Fetch(instrument, "")),
    request=lambda names, number: ["?", *names, number],
)


def test_a_book_is_asked_for_on_the_socket_once_its_stream_is_confirmed() -> None:
    engine = SeededEngine(REQUESTED, [A])
    assert sent(engine.opened()) == [["+", "A", 1]]
    acknowledged, asked = engine.received(b"ok A")
    assert (acknowledged, sent([asked])) == (Acknowledged(A), [["?", "A", 2]])
    assert engine.received(b'["change","A",11,12,["1","2"]]') == ()
    snapshot, delta = engine.received(b'["whole","A",11,["1","1"]]')
    assert isinstance(snapshot, Snapshot)
    assert isinstance(delta, Delta)
    assert [*map(type, engine.received(b'["change","A",13,13,["1","2"]]'))] == [Delta]


def test_a_book_that_is_older_than_its_stream_is_asked_for_again_on_the_socket() -> None:
    engine = SeededEngine(REQUESTED, [A])
    engine.opened()
    engine.received(b"ok A")
    engine.received(b'["change","A",11,12,["1","2"]]')
    assert sent(engine.received(b'["whole","A",9,["1","1"]]')) == [["?", "A", 3]]
    assert sent(engine.resync([A])) == [["?", "A", 4]]


def test_the_deltas_of_a_window_follow_a_body_only_where_one_starts_at_it() -> None:
    exact = replace(REQUESTED, track=lambda one: Join(Fetch(one, ""), exact=True))
    engine = SeededEngine(exact, [A])
    engine.opened()
    engine.received(b"ok A")
    engine.received(b'["change","A",11,14,["1","2"]]')
    engine.received(b'["change","A",15,18,["1","3"]]')
    assert sent(engine.received(b'["whole","A",12,["1","1"]]')) == [["?", "A", 3]], "amid a delta"
    outputs = engine.received(b'["whole","A",14,["1","1"]]')
    assert [*map(type, outputs)] == [Snapshot, Delta]
    engine.resync([A])
    assert [*map(type, engine.received(b'["whole","A",19,["1","1"]]'))] == [Snapshot]
    (gap,) = engine.received(b'["change","A",19,22,["1","4"]]')
    assert isinstance(gap, Gap), "the first delta after the body starts before it"


def test_numbers_that_fall_are_a_gap_and_their_own_body_fills_the_book_again() -> None:
    restarts = replace(REQUESTED, track=lambda one: Join(Fetch(one, ""), restarts=True))
    engine = SeededEngine(restarts, [A])
    engine.opened()
    engine.received(b"ok A")
    engine.received(b'["whole","A",900,["1","1"]]')
    assert engine.received(b'["change","A",899,899,["1","1"]]') == (), "the body has it already"
    engine.received(b'["change","A",901,901,["1","2"]]')
    (gap,) = engine.received(b'["change","A",3,3,["1","3"]]')
    assert gap == Gap(A, "the numbers fell from 901 to 3")
    assert sent(engine.resync([A])) == [["?", "A", 3]]
    assert engine.received(b'["change","A",4,4,["1","4"]]') == ()
    outputs = engine.received(b'["whole","A",3,["1","3"]]')
    assert [*map(type, outputs)] == [Snapshot, Delta]
    assert [*map(type, engine.received(b'["change","A",5,5,["1","5"]]'))] == [Delta]


def test_a_live_book_is_seeded_again_on_the_socket() -> None:
    engine = SeededEngine(REQUESTED, [A])
    engine.opened()
    engine.received(b"ok A")
    engine.received(b'["whole","A",10,["1","1"]]')
    assert sent(engine.reseed(A)) == [["?", "A", 3]]
    assert [*map(type, engine.received(b'["whole","A",10,["1","1"]]'))] == [Snapshot]
    assert engine.received(b'["whole","A",10,["1","1"]]') == EXPECTED, "unrequested"


def test_a_body_of_a_book_that_was_removed_changes_nothing() -> None:
    engine = SeededEngine(REQUESTED, [A])
    engine.opened()
    engine.received(b"ok A")
    engine.remove([A])
    assert engine.received(b'["whole","A",10,["1","1"]]') == EXPECTED


def test_the_answer_to_a_ping_of_the_exchange_is_urgent_and_the_ping_its_heartbeat() -> None:
    outputs = SeededEngine(REQUESTED, [A]).received(b"ping 7")
    assert outputs == (Send(b"pong 7", urgent=True), Alive())


def test_a_rest_body_changes_nothing_where_books_are_requested_on_the_socket() -> None:
    assert SeededEngine(REQUESTED, [A]).fetched(A, b'["whole","A",10]') == NOTHING


def test_a_book_that_is_not_live_breaks_when_its_request_is_refused() -> None:
    engine = SeededEngine(REQUESTED, [A])
    engine.opened()
    engine.received(b"ok A")
    assert engine.received(b"busy A") == (SnapshotFailed(A, "request timeout"),)
    assert sent(engine.resync([A])) == [["?", "A", 3]], "its subscription was accepted"
    assert engine.received(b"busy B") == EXPECTED, "it is not on this connection"


def test_a_live_book_stays_when_another_request_is_refused() -> None:
    engine = SeededEngine(REQUESTED, [A])
    engine.opened()
    engine.received(b"ok A")
    engine.received(b'["whole","A",10,["1","1"]]')
    engine.reseed(A)
    assert engine.received(b"busy A") == EXPECTED
    assert engine.received(b'["whole","A",10,["1","1"]]') == EXPECTED, "none is awaited"
    assert [*map(type, engine.received(b'["change","A",11,11,["1","2"]]'))] == [Delta]


def test_an_error_whose_code_asks_for_fewer_requests_refuses_nothing() -> None:
    engine = Engine(replace(BOOKS, too_many=("7",)), [A, B])
    engine.opened()
    assert engine.received(b"code 7 A is too much") == (SlowDown("A is too much"),)
    assert engine.received(b"code 8 A is no market") == (BookRefused(A, "A is no market"),)


@pytest.mark.parametrize(
    "words", ["429 too many request", "TOO_MANY_REQUESTS", "Rate limit exceeded", "Too frequent"]
)
def test_a_sentence_that_asks_for_fewer_requests_refuses_nothing(words: str) -> None:
    assert opened().received(b"no " + words.encode()) == (SlowDown(words),)


@pytest.mark.parametrize(
    "words",
    ["EService:Unavailable", "internal_server_error", "Systems are busy", "Request timed out"],
)
def test_an_exchange_that_is_unavailable_refuses_nothing(words: str) -> None:
    assert opened().received(b"no " + words.encode()) == (SlowDown(words, unavailable=True),)


@pytest.mark.parametrize("words", ["Invalid symbol: A", "A is no market", "not available: A"])
def test_a_sentence_about_what_was_asked_for_is_a_refusal(words: str) -> None:
    assert [*map(type, opened().received(b"no " + words.encode()))] == [BookRefused]


def test_an_error_whose_code_says_that_it_is_unavailable_refuses_nothing() -> None:
    engine = Engine(replace(BOOKS, unavailable=("7",)), [A, B])
    engine.opened()
    assert engine.received(b"code 7 A") == (SlowDown("A", unavailable=True, instruments=(A,)),)
    assert engine.received(b"code 7 x") == (SlowDown("x", unavailable=True),)


def coded(frame: bytes) -> Event:
    """An error that consists of a code."""
    return RequestRejected("no", code=msgspec.json.decode(frame))


CODED = replace(BOOKS, data=lambda books, frame: None, control=coded)


@pytest.mark.parametrize("code", [7, "7"])
def test_a_code_is_known_as_a_number_and_as_a_text(code: int | str) -> None:
    for member in ("too_many", "unavailable"):
        engine = Engine(replace(CODED, **{member: (code,)}), [A])
        engine.opened()
        for frame in (b"7", b'"7"'):
            assert [*map(type, engine.received(frame))] == [SlowDown], member


def test_an_error_that_passes_is_about_the_books_of_its_request_or_those_it_names() -> None:
    engine = opened()
    busy = partial(SlowDown, unavailable=True)
    assert engine.received(b"never 1 Internal error") == (
        busy("Internal error", instruments=(A, B)),
    )
    assert engine.received(b"never 2 C: server busy") == (busy("C: server busy", instruments=(C,)),)
    assert engine.received(b"never 9 Internal error") == (busy("Internal error"),)
    assert engine.received(b"no Internal error of B") == (
        busy("Internal error of B", instruments=(B,)),
    )


def test_a_request_that_failed_is_answered_and_the_next_answer_may_omit_its_names() -> None:
    engine = opened(A, B)
    assert engine.received(b"never 1 too many requests") == (SlowDown("too many requests"),)
    engine.resync([A, B])
    outputs = engine.received(b"only 3 A")
    assert outputs == (Acknowledged(A), BookRefused(B, OMITTED))


def test_a_seed_that_came_too_soon_is_asked_for_later() -> None:
    channel = replace(REQUESTED, control=lambda frame: SeedRefused("A", frame.decode(), 7))
    engine = SeededEngine(replace(channel, too_many=(7,)), [A])
    engine.opened()
    assert engine.received(b"soon") == (SlowDown("soon"), SnapshotFailed(A, "soon"))


def test_a_book_that_comes_on_and_on_after_its_removal_is_unsubscribed_again() -> None:
    engine = opened(A, B)
    engine.remove([B])
    sends = [sent(engine.received(b'["change", "B", ["1", "2"]]')) for _ in range(2 * LATE_MAX)]
    assert [rank for rank, each in enumerate(sends, 1) if each] == [LATE_MAX, 2 * LATE_MAX]
    assert sends[LATE_MAX - 1] == [["-", "B", 3]]
    assert sent(engine.add([B])) == [["+", "B", 5]]


def test_a_frame_knows_the_books_that_it_asks_for() -> None:
    engine = Engine(BOOKS, [A, B, C])
    assert asked(engine.opened()) == [(A, B), (C,)]
    assert asked(engine.resync([A, C])) == [(), (A, C)], "the first unsubscribes"
    assert asked(engine.remove([A])) == [()]
    seeded = SeededEngine(REQUESTED, [A])
    assert asked(seeded.opened()) == [(A,)]
    assert asked(seeded.received(b"ok A")) == [(A,)]


def test_the_plain_answer_to_a_ping_is_expected() -> None:
    assert opened().received(b"pong") == EXPECTED
    assert Engine(replace(BOOKS, expected=(b"ok then",)), [A]).received(b"ok then") == EXPECTED


def test_two_requests_that_differ_in_a_verb_are_one_function() -> None:
    subscribe, unsubscribe = verbs(lambda names, number, verb: [verb, *names, number], off="-")
    assert (subscribe(["A"], 1), unsubscribe(["A"], 2)) == (["subscribe", "A", 1], ["-", "A", 2])


def test_a_long_frame_that_is_of_no_book_is_not_decoded() -> None:
    frame = b"ok A".ljust(CONTROL_BYTES_MAX)
    with pytest.raises(ProtocolError, match="1,048,577 bytes") as caught:
        opened().received(frame + b" ")
    assert caught.value.instrument is None
    assert opened().received(frame) == (Acknowledged(A),)


def counted_data(books: Trackers[str, Unnumbered], frame: bytes) -> Outputs | None:
    """A book or a change of it: `[number,name,kind]`."""
    number, name, kind = msgspec.json.decode(frame, type=tuple[int, str, str])
    lost = books.missed(number)
    book = books[name]
    return (*lost, *each_of((book.snapshot if kind == "whole" else book.delta)(b"[]", b"[]")))


def counted_control(frame: bytes) -> Event:
    """Any other frame: only a number."""
    return Counted(int(frame), Ignored(known=True))


def test_frames_that_are_of_no_book_are_counted_where_the_exchange_counts_them() -> None:
    counted = replace(BOOKS, data=counted_data, control=counted_control, track=Unnumbered)
    engine = Engine(counted, [A, B])
    engine.opened()
    assert engine.received(b"7") == EXPECTED, "the first may have any number"
    assert [*map(type, engine.received(b'[8,"A","whole"]'))] == [Snapshot]
    assert engine.received(b"9") == EXPECTED
    assert engine.received(b"9") == EXPECTED, "sent twice"
    assert [*map(type, engine.received(b'[10,"A","change"]'))] == [Delta]
    reason = "the connection is at frame 10, the next is 12"
    assert engine.received(b"12") == (Gap(A, reason), *EXPECTED), "B was not live"
    assert engine.received(b'[13,"A","change"]') == (), "until the next whole book"
