"""The contract of every connector, found through the registry."""

import json
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.oracle import Sides
from contract.talk import Talk, opened, reopened, retold
from contract.venue import CHANNELS, START
from onebook.exchanges import resolve
from onebook.exchanges.kit import (
    Acknowledged,
    Alive,
    BookRefused,
    Closing,
    Delta,
    Fetch,
    Gap,
    Ignored,
    LossDetection,
    Output,
    ProtocolError,
    Renewed,
    Scope,
    Send,
    SlowDown,
    Snapshot,
    Trading,
    Unnamed,
)
from onebook.exchanges.kit.roster import LATE_MAX
from onebook.model import Instrument

# Where nothing shows a lost frame, or only a checksum of the best levels: a loss is seen at the
# next frame that leaves the ten best different, and a loss below them when its level rises.
UNSEEN = [name for name, each in CHANNELS.items() if each.guard is LossDetection.ORDER]
WHOLE = [name for name, each in CHANNELS.items() if each.guard is LossDetection.WHOLE]
BY_CHECKSUM = [name for name, each in CHANNELS.items() if each.guard is LossDetection.CHECKSUM]
# Where all frames of a connection are counted: a loss may be of any book.
BY_COUNT = [name for name, each in CHANNELS.items() if each.guard is LossDetection.COUNT]
LEVELS_FIELD = re.compile(rb'"(b|bids|a|asks|changes)":')

MESSAGES = Ignored | Alive | Trading  # what says nothing about one book

every_channel = pytest.mark.parametrize("name", CHANNELS)
whole_books = pytest.mark.parametrize("name", WHOLE)
in_step = pytest.mark.parametrize("name", [name for name in CHANNELS if name not in WHOLE])
numbered = pytest.mark.parametrize(
    "name", [name for name in CHANNELS if name not in (*UNSEEN, *WHOLE)]
)


# What the exchange's own tests know of it: other messages; and where its levels have another name,
# how a frame of a book is damaged (`damaged`).
OWN_TESTS = {name: import_module(f"exchanges.test_{each.name}") for name, each in CHANNELS.items()}
BOOK_CHANNELS = {name: each.connector.args[0] for name, each in CHANNELS.items()}
# Where frames have ids for names, and nothing is known of an id before it is assigned.
BY_ID = [name for name, channel in BOOK_CHANNELS.items() if channel.channel_ids]
# Where each request replaces those before it, so that it names all books of the connection.
REPLACING = [name for name, channel in BOOK_CHANNELS.items() if channel.unsubscribe is None]
# Where an unsubscription is of all books, or late frames are read with those that are counted.
AT_ONCE = [
    *REPLACING,
    *(name for name, channel in BOOK_CHANNELS.items() if channel.unsubscribes_all),
    *(name for name, each in CHANNELS.items() if each.guard is LossDetection.COUNT),
]
# Where a connection carries one book: a conversation is about one instrument then.
ALONE = [name for name, each in CHANNELS.items() if each.limits.topics == 1]
UNKNOWN_FRAMES = {name: tests.UNKNOWN_FRAMES for name, tests in OWN_TESTS.items()}


def without_levels(frame: bytes) -> bytes:
    """Damage both sides, because some exchanges omit the unchanged one."""
    return LEVELS_FIELD.sub(b'"gone":', frame)


def damaged(name: str) -> Callable[[bytes], bytes]:
    """Damage a frame of a book so that it still names its book."""
    damage: Callable[[bytes], bytes] = getattr(OWN_TESTS[name], "damaged", without_levels)
    return damage


@every_channel
def test_facts_are_whole(name: str) -> None:
    exchange = CHANNELS[name]
    assert exchange.name == name.partition(".")[0]
    assert exchange.ws_url.startswith("wss://")
    assert exchange.rest_url.startswith("https://")
    assert exchange.instruments_path.startswith("/")
    assert exchange.depth > 0 or not exchange.truncate
    limits = exchange.limits
    for kind in (limits.messages, limits.connects, limits.fetches):
        assert kind, "every kind that always matters has a limit"
    for each in (*limits.messages, *limits.requests, *limits.connects, *limits.fetches):
        assert each.count >= 1
        assert each.per_s > 0
    assert {each.scope for each in (*limits.connects, *limits.fetches)} == {Scope.ADDRESS}
    assert exchange.heartbeat is None or exchange.heartbeat.every_s < exchange.silence_max_s
    assert resolve(f" {exchange.name.upper()} ") == exchange.name
    assert all(resolve(former) == exchange.name for former in exchange.former_names)


def test_an_unknown_name_resolves_to_nothing() -> None:
    assert resolve("mtgox") is None
    assert resolve("okex") == "okx"
    assert resolve("coinbasepro") == "coinbase"


@every_channel
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (1, 2))]
)
def test_the_replayed_book_equals_the_exchanges_book(name: str, seed: int) -> None:
    talk = Talk(name, seed=seed).open()
    talk.check()
    for _ in range(60):
        native = talk.venue.random.choice(talk.instruments).native
        talk.change(native)
        talk.check()
    assert talk.reader.invalidated == []


@every_channel
def test_opening_acknowledges_each_instrument_once(name: str) -> None:
    talk = Talk(name).open()
    accepted = [out.instrument for out in talk.outputs if isinstance(out, Acknowledged)]
    assert accepted == talk.instruments
    snapshots = [out for out in talk.outputs if isinstance(out, Snapshot)]
    assert [out.instrument for out in snapshots] == talk.instruments


@every_channel
def test_data_has_the_time_at_which_the_exchange_sent_it(name: str) -> None:
    talk = Talk(name)
    exchange, venue = talk.exchange, talk.venue
    begun = venue.now.ms
    talk.open()
    ended = venue.now.ms
    for _ in range(10):
        ended += 137
        venue.now = venue.now._replace(s=venue.now.s + 0.137, ms=ended)
        outputs = talk.change(talk.instruments[0].native)
        times = {out.at_ms for out in outputs if isinstance(out, Delta | Snapshot)}
        assert times == {ended if exchange.timed else 0}
    seeds = {out.at_ms for out in talk.outputs if isinstance(out, Snapshot)}
    assert all(begun <= at <= ended for at in seeds - {0}), "a snapshot may be without a time"


@numbered
def test_dropping_any_single_frame_is_seen(name: str) -> None:
    talk = Talk(name).open()
    for _ in range(20):
        for instrument in talk.instruments:
            talk.change(instrument.native)
    deltas = [index for index, step in enumerate(talk.script) if step.kind == "delta"]
    whole = [
        {one.native: reader.sides(one) for one in talk.instruments}
        for _, reader in retold(talk, talk.script)
    ]
    for dropped in deltas[:-4]:
        _assert_seen(talk, whole, dropped, by_checksum=name in BY_CHECKSUM)


def _assert_seen(
    talk: Talk, whole: list[dict[str, Sides | None]], dropped: int, *, by_checksum: bool
) -> None:
    lost = talk.script[dropped].native
    rest = [*talk.script[:dropped], *talk.script[dropped + 1 :]]
    for index, (step, reader) in enumerate(retold(talk, rest)):
        if index < dropped or step.native != lost:
            continue
        invalid = [one.native for one, _ in reader.invalidated]
        if invalid:
            all_invalid = {one.native for one in talk.instruments}
            assert set(invalid) == (all_invalid if talk.name in BY_COUNT else {lost})
            return
        assert by_checksum, "the frame after a lost one must show the gap"
        (instrument,) = (one for one in talk.instruments if one.native == lost)
        bids, asks = reader.sides(instrument) or ({}, {})
        true_bids, true_asks = whole[index + 1][lost] or ({}, {})
        assert list(bids.items())[:10] == list(true_bids.items())[:10]
        assert list(asks.items())[:10] == list(true_asks.items())[:10]


@pytest.mark.parametrize("name", UNSEEN)
def test_an_exemption_is_still_needed(name: str) -> None:
    talk = Talk(name).open()
    for _ in range(3):
        talk.venue.changed(talk.instruments[0].native)
        talk.change(talk.instruments[0].native)
    assert talk.reader.invalidated == []


@whole_books
def test_the_frame_after_a_lost_one_has_the_whole_book(name: str) -> None:
    talk = Talk(name).open()
    for _ in range(3):
        talk.venue.changed(talk.instruments[0].native)
        talk.change(talk.instruments[0].native)
        talk.check()
    assert talk.reader.invalidated == []


@in_step
def test_nothing_is_shown_before_a_snapshot(name: str) -> None:
    talk = Talk(name, heal=False)
    talk.begun()
    for _ in range(3):
        outputs = talk.change(talk.instruments[0].native)
        assert outputs == [] or name in BY_ID
        assert all(isinstance(out, Gap) for out in outputs)
    assert not talk.reader.live


@every_channel
def test_a_frame_sent_twice_changes_nothing(name: str) -> None:
    talk = Talk(name).open()
    for _ in range(30):
        for instrument in talk.instruments:
            frame = talk.venue.changed(instrument.native)
            talk.deliver(frame, instrument.native)
            talk.deliver(frame, instrument.native)
            talk.check()
    assert talk.reader.invalidated == []


@every_channel
def test_unknown_messages_change_nothing(name: str) -> None:
    talk = Talk(name).open()
    for frame in UNKNOWN_FRAMES[name]:
        assert all(isinstance(out, MESSAGES) for out in talk.deliver(frame)), frame
        talk.change(talk.instruments[0].native)
        talk.check()
    assert talk.reader.invalidated == []


@every_channel
def test_resync_touches_one_instrument(name: str) -> None:
    talk = Talk(name).open()
    one, *others = talk.instruments
    outputs = list(talk.connector.resync([one]))
    renewed = [out.instrument for out in outputs if isinstance(out, Renewed)]
    assert renewed == (others if name in REPLACING else [])
    outputs = outputs[: len(outputs) - len(renewed)]
    text = ""
    for output in outputs:
        assert isinstance(output, Send | Fetch)
        text += output.at(START.ms).decode() if isinstance(output, Send) else output.path
        assert one.native.lower() in text.lower() or name in BY_ID
        for other in others:
            assert other.native.lower() not in text.lower() or name in REPLACING
    assert one.native.lower() in text.lower()
    kinds = {type(out) for out in talk.change(one.native)}
    assert kinds - {Acknowledged} == ({Snapshot} if name in WHOLE else set()), "no delta before it"
    for other in others:
        assert isinstance(talk.change(other.native)[0], Snapshot if name in WHOLE else Delta)
    talk.act(outputs)
    talk.check()


@every_channel
def test_after_a_gap_the_book_comes_back_equal(name: str) -> None:
    talk = Talk(name, heal=False).open()
    one, *others = talk.instruments
    talk.venue.changed(one.native)
    for _ in range(4):
        for instrument in talk.instruments:
            talk.change(instrument.native)
    assert (one in talk.reader.live) == (name in (*UNSEEN, *WHOLE))
    for other in others:
        assert (other in talk.reader.live) == (name not in BY_COUNT)
    for each in talk.instruments if name in BY_COUNT else [one]:
        talk.resync(each)
    talk.check()
    talk.change(one.native)
    talk.check()


@every_channel
def test_resync_of_a_strange_instrument_asks_for_nothing(name: str) -> None:
    talk = Talk(name).open()
    stranger = Instrument(name, "NO/ONE", "NOONE")
    assert list(talk.connector.resync([stranger])) == []
    assert list(talk.connector.remove([stranger])) == []


@pytest.mark.parametrize("name", [name for name in CHANNELS if name not in ALONE])
def test_an_added_instrument_gets_its_book(name: str) -> None:
    talk = Talk(name).open()
    third = talk.venue.instruments[2]
    talk.instruments = talk.venue.instruments
    talk.act(talk.connector.add([third]))
    talk.settle()
    talk.check()
    assert list(talk.connector.add([third])) == [], "it is there already"
    talk.change(third.native)
    talk.check()


@every_channel
def test_frames_of_a_removed_instrument_are_ignored(name: str) -> None:
    talk = Talk(name).open()
    one, *others = talk.instruments
    talk.act(talk.connector.remove([one]))
    if others or name not in REPLACING:  # a request that replaces others cannot name nothing
        assert talk.venue.subscribed == {other.native for other in others}
    assert talk.change(one.native) == []
    assert list(talk.connector.resync([one])) == []
    talk.reader.live.pop(one)
    talk.act(talk.connector.add([one]))
    talk.settle()
    talk.check()


@pytest.mark.parametrize("name", [name for name in CHANNELS if name not in AT_ONCE])
def test_a_removal_that_the_exchange_does_not_hear_is_repeated(name: str) -> None:
    talk = Talk(name).open()
    one = talk.instruments[0]
    talk.connector.remove([one])
    frame = talk.venue.changed(one.native)
    for _ in range(LATE_MAX - 1):
        assert list(talk.connector.received(frame)) == []
    talk.deliver(frame)
    assert one.native not in talk.venue.subscribed


@every_channel
def test_an_answer_that_comes_after_the_removal_is_ignored(name: str) -> None:
    talk = Talk(name)
    sends = [out.at(START.ms) for out in talk.begun() if isinstance(out, Send)]
    answers = [answer for frame in sends for answer in talk.venue.answers(frame)]
    talk.connector.remove(talk.instruments)
    outputs = [out for answer in answers for out in talk.deliver(answer)]
    allowed = Ignored | Send if name in BY_ID else Ignored
    assert all(isinstance(out, allowed) for out in outputs), outputs


@every_channel
def test_a_frame_of_a_stranger_is_refused_by_name(name: str) -> None:
    talk = Talk(name).open()
    stranger = talk.venue.natives[2]
    named = "subscribed" if name in BY_ID else stranger.replace("/", ".")
    with pytest.raises(ProtocolError, match=named) as caught:
        talk.connector.received(talk.venue.changed(stranger))
    assert caught.value.instrument is None
    talk.check()


@every_channel
def test_an_unrequested_body_changes_nothing(name: str) -> None:
    talk = Talk(name).open()
    stranger = Instrument(name, "NO/ONE", "NOONE")
    body = next((step.payload for step in talk.script if step.kind == "body"), b"{}")
    for instrument in (talk.instruments[0], stranger):
        assert list(talk.connector.fetched(instrument, body)) == []
    talk.check()


@every_channel
def test_a_damaged_frame_of_a_book_names_its_instrument(name: str) -> None:
    talk = Talk(name).open()
    instrument = talk.instruments[0]
    frame = talk.venue.changed(instrument.native)
    damage = damaged(name)
    assert damage(frame) != frame
    with pytest.raises(ProtocolError, match=r"damaged|cannot be read") as caught:
        talk.connector.received(damage(frame))
    assert caught.value.instrument is instrument


# What can happen to a frame on its way, for a connector that must end up right or doubtful.
EVENTS = ("change", "drop", "twice", "swap", "garbage", "resync", "unknown")


@every_channel
@given(
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1)), max_size=40),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=10)  # the soak of tests/swarm and tests/proofs tells more stories
def test_a_book_is_equal_or_in_doubt_whatever_happens(
    name: str, events: list[tuple[str, int]], seed: int
) -> None:
    talk = Talk(name, seed=seed, heal=False).open()
    for event, which in events:
        if (name in UNSEEN and event in ("drop", "swap")) or (name in WHOLE and event == "swap"):
            continue
        instrument = talk.instruments[which % len(talk.instruments)]
        _happen(talk, event, instrument)
        if event != "drop":
            _assert_equal_or_in_doubt(talk, instrument, tops=name in BY_CHECKSUM)
    for instrument in talk.instruments:
        talk.resync(instrument)
    talk.check()


def _happen(talk: Talk, event: str, instrument: Instrument) -> None:
    native = instrument.native
    match event:
        case "change":
            talk.change(native)
        case "drop":
            talk.venue.changed(native)
            talk.venue.changed(native)
            talk.change(native)
        case "twice":
            frame = talk.venue.changed(native)
            talk.deliver(frame, native)
            talk.deliver(frame, native)
        case "swap":
            first, second = talk.venue.changed(native), talk.venue.changed(native)
            talk.deliver(second, native)
            talk.deliver(first, native)
        case "garbage":
            talk.deliver(talk.venue.changed(native)[:-5])
        case "resync":
            talk.resync(instrument)
        case "unknown":
            talk.deliver(talk.venue.random.choice(UNKNOWN_FRAMES[talk.exchange.name]))


def _assert_equal_or_in_doubt(talk: Talk, instrument: Instrument, *, tops: bool) -> None:
    sides = talk.reader.sides(instrument)
    if sides is None:
        return
    for side, true in zip(sides, talk.venue.sides(instrument.native), strict=True):
        count = 10 if tops else None
        assert list(side.items())[:count] == list(true.items())[:count]


def _mutated(draw: st.DrawFn, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.sampled_from(("flip", "cut", "insert", "end"))):
            case "flip" if data:
                data[at] = draw(st.integers(0, 255))
            case "cut":
                del data[at : at + draw(st.integers(1, 20))]
            case "insert":
                data[at:at] = draw(st.sampled_from(SPLINTERS))
            case _:
                del data[at:]
    return bytes(data)


SPLINTERS = (
    b"NaN",
    b"-1",
    b"1e400",
    b"9" * 30,
    b"9" * 5_000,
    b"null",
    b"true",
    b'"',
    b"\\ud800",
    b"\xff",
    b"[" * 3_000,
    b'{"a":' * 3_000,
    b"{}",
    b"[]",
    b",",
    b" x",
    b"\xff" * 10,  # a protobuf number without an end
    b"\x0a\xff\xff\xff\x7f",  # a protobuf length of 256 MiB
    b"\x0b" * 3_000,  # protobuf groups inside each other
)


@cache
def good_frames(name: str) -> list[bytes]:
    talk = Talk(name).open()
    talk.change(talk.instruments[0].native)
    return [step.payload for step in talk.script]


@st.composite
def bad_frames(draw: st.DrawFn, name: str) -> bytes:
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    return _mutated(draw, draw(st.sampled_from(good_frames(name))))


@every_channel
@given(data=st.data())
@settings(max_examples=20)  # `test_fuzz.py` has more of each channel
def test_garbage_raises_the_one_declared_error(name: str, data: st.DataObject) -> None:
    talk = opened(name)
    connector = reopened(talk)
    frame = data.draw(bad_frames(name))
    instrument = talk.instruments[0]
    known = (None, *talk.instruments)
    assert all(one in known for one in _touched(connector.received, frame))
    assert all(one in known for one in _touched(partial(connector.fetched, instrument), frame))
    assert all(one is None for one in _touched(_parsed(name), frame))


def _touched(read: Callable[[bytes], Iterable[Output]], frame: bytes) -> list[Instrument | None]:
    """The instruments in the outputs or in the one declared error; other errors fail the test."""
    try:
        return [getattr(output, "instrument", None) for output in read(frame)]
    except ProtocolError as error:
        return [error.instrument]


def _parsed(name: str) -> Callable[[bytes], list[Output]]:
    """Read the instrument list, only for its errors."""

    def read(body: bytes) -> list[Output]:
        CHANNELS[name].parse_instruments(body)
        return []

    return read


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
WORDS = (
    "type",
    "channel",
    "event",
    "op",
    "data",
    "arg",
    "args",
    "symbol",
    "symbols",
    "product_id",
    "channels",
    "action",
    "result",
    "id",
    "e",
    "s",
    "U",
    "u",
    "b",
    "a",
    "bids",
    "asks",
    "topic",
    "success",
    "error",
    "msg",
    "code",
    "method",
    "stream",
)


@cache
def messages() -> list[bytes]:
    """Frames of arbitrary JSON, shared by all channels, because generating them is slow."""
    made: list[bytes] = []

    @given(st.dictionaries(st.sampled_from(WORDS), json_values | st.sampled_from(WORDS)))
    def make(message: Any) -> None:
        made.append(json.dumps(message).encode())

    make()
    return made


@every_channel
def test_any_json_gives_values_or_the_one_declared_error(name: str) -> None:
    allowed = Acknowledged | BookRefused | Closing | Send | Gap | Unnamed | SlowDown | MESSAGES
    for frame in messages():
        try:
            outputs = list(reopened(opened(name)).received(frame))
        except ProtocolError:
            continue
        assert all(isinstance(out, allowed) for out in outputs), (frame, outputs)


@every_channel
@pytest.mark.parametrize("body", [b"", b"[1,", b"5", b'{"x":1}', b"null", b"\xff", b'"list"'])
def test_a_body_that_is_no_list_of_instruments_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        CHANNELS[name].parse_instruments(body)
