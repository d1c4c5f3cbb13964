"""The contract that every connector keeps, found through the registry."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contract.makers import MAKERS
from contract.talk import Talk, retold
from onebook.exchanges import EXCHANGES, resolve
from onebook.exchanges.contract import (
    Acknowledged,
    Closing,
    Delta,
    Fetch,
    Gap,
    Output,
    ProtocolError,
    Refused,
    Send,
    Snapshot,
)
from onebook.model import Instrument

# Exchanges where a lost frame cannot be seen, with the reason. Nothing else may be missing.
UNSEEN = {
    "coinbase": "level2_batch carries neither a number nor a checksum; TCP alone keeps its order",
}
# Exchanges whose proof is a checksum of the best levels: a loss is seen at the next frame that
# leaves the ten best different, and a loss below them when its level rises.
BY_CHECKSUM = {"kraken"}

every_exchange = pytest.mark.parametrize("name", EXCHANGES)
numbered = pytest.mark.parametrize("name", [name for name in EXCHANGES if name not in UNSEEN])


def test_every_exchange_of_the_registry_has_a_maker() -> None:
    assert set(MAKERS) == set(EXCHANGES)
    assert set(UNSEEN) | BY_CHECKSUM <= set(EXCHANGES)


@every_exchange
def test_facts_are_whole(name: str) -> None:
    exchange = EXCHANGES[name]
    assert exchange.name == name
    assert exchange.ws_url.startswith("wss://")
    assert exchange.rest_url.startswith("https://")
    assert exchange.instruments_path.startswith("/")
    assert exchange.depth > 0 or not exchange.truncate
    assert min(exchange.frames_per_s, exchange.connects_per_minute) > 0
    assert exchange.heartbeat is None or exchange.heartbeat.every_s < exchange.silence_max_s
    assert resolve(f" {name.upper()} ") == name
    assert all(resolve(former) == name for former in exchange.former_names)


def test_a_name_that_nobody_goes_by_resolves_to_nothing() -> None:
    assert resolve("mtgox") is None
    assert resolve("okex") == "okx"
    assert resolve("coinbasepro") == "coinbase"


@every_exchange
@pytest.mark.parametrize("seed", range(3))
def test_the_replayed_book_equals_the_exchanges_book(name: str, seed: int) -> None:
    talk = Talk(name, seed=seed).open()
    talk.check()
    for _ in range(150):
        native = talk.maker.random.choice(talk.instruments).native
        talk.change(native)
        talk.check()
    assert talk.reader.doubts == []


@every_exchange
def test_opening_acknowledges_each_instrument_once(name: str) -> None:
    talk = Talk(name).open()
    accepted = [out.instrument for out in talk.outputs if isinstance(out, Acknowledged)]
    assert accepted == talk.instruments
    snapshots = [out for out in talk.outputs if isinstance(out, Snapshot)]
    assert [out.instrument for out in snapshots] == talk.instruments


@numbered
def test_dropping_any_single_frame_is_seen(name: str) -> None:
    talk = Talk(name).open()
    for _ in range(20):
        for instrument in talk.instruments:
            talk.change(instrument.native)
    told = [index for index, step in enumerate(talk.script) if step.kind == "delta"]
    for dropped in told[:-4]:
        _assert_seen(talk, dropped, by_checksum=name in BY_CHECKSUM)


def _assert_seen(talk: Talk, dropped: int, *, by_checksum: bool) -> None:
    lost = talk.script[dropped].native
    whole = [
        {one.native: reader.sides(one) for one in talk.instruments}
        for _, reader in retold(talk, talk.script)
    ]
    rest = [*talk.script[:dropped], *talk.script[dropped + 1 :]]
    for index, (step, reader) in enumerate(retold(talk, rest)):
        if index < dropped or step.native != lost:
            continue
        doubted = [one.native for one, _ in reader.doubts]
        if doubted:
            assert set(doubted) == {lost}, "a loss touches its own instrument only"
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
        talk.maker.changed(talk.instruments[0].native)
        talk.change(talk.instruments[0].native)
    assert talk.reader.doubts == []


@every_exchange
def test_nothing_is_shown_before_a_snapshot(name: str) -> None:
    talk = Talk(name)
    talk.connector.opened()
    for _ in range(3):
        outputs = talk.change(talk.instruments[0].native)
        assert outputs == []
    assert not talk.reader.live


@every_exchange
def test_a_frame_told_twice_changes_nothing(name: str) -> None:
    talk = Talk(name).open()
    for _ in range(30):
        for instrument in talk.instruments:
            frame = talk.maker.changed(instrument.native)
            talk.deliver(frame, instrument.native)
            talk.deliver(frame, instrument.native)
            talk.check()
    assert talk.reader.doubts == []


@every_exchange
def test_unknown_messages_change_nothing(name: str) -> None:
    talk = Talk(name).open()
    for frame in talk.maker.unknown:
        assert talk.deliver(frame) == [], frame
        talk.change(talk.instruments[0].native)
        talk.check()
    assert talk.reader.doubts == []


@every_exchange
def test_resync_touches_one_instrument(name: str) -> None:
    talk = Talk(name).open()
    one, other = talk.instruments
    outputs = list(talk.connector.resync(one))
    assert outputs
    for output in outputs:
        assert isinstance(output, Send | Fetch)
        text = output.frame.decode() if isinstance(output, Send) else output.path
        assert one.native.lower() in text.lower()
        assert other.native.lower() not in text.lower()
    assert talk.change(one.native) == [], "no delta is believed until the new snapshot"
    assert isinstance(talk.change(other.native)[0], Delta)
    talk.act(outputs)
    talk.check()


@every_exchange
def test_after_a_gap_the_book_comes_back_equal(name: str) -> None:
    talk = Talk(name, heal=False).open()
    one, other = talk.instruments
    talk.maker.changed(one.native)
    for _ in range(4):
        talk.change(one.native)
        talk.change(other.native)
    assert (one in talk.reader.live) == (name in UNSEEN)
    talk.resync(one)
    talk.check()
    talk.change(one.native)
    talk.check()


@every_exchange
def test_resync_of_a_strange_instrument_asks_for_nothing(name: str) -> None:
    talk = Talk(name).open()
    stranger = Instrument(name, "NO/ONE", "NOONE")
    assert list(talk.connector.resync(stranger)) == []
    assert list(talk.connector.remove([stranger])) == []


@every_exchange
def test_an_added_instrument_gets_its_book(name: str) -> None:
    talk = Talk(name).open()
    third = talk.maker.instruments[2]
    talk.instruments = talk.maker.instruments
    talk.act(talk.connector.add([third]))
    talk.check()
    assert list(talk.connector.add([third])) == [], "it is there already"
    talk.change(third.native)
    talk.check()


@every_exchange
def test_frames_of_a_removed_instrument_are_ignored(name: str) -> None:
    talk = Talk(name).open()
    one, other = talk.instruments
    talk.act(talk.connector.remove([one]))
    assert talk.maker.subscribed == {other.native}
    assert talk.change(one.native) == []
    assert list(talk.connector.resync(one)) == []
    talk.reader.live.pop(one)
    talk.act(talk.connector.add([one]))
    talk.check()


@every_exchange
def test_an_answer_that_comes_after_the_removal_is_ignored(name: str) -> None:
    talk = Talk(name)
    sends = [out.frame for out in talk.connector.opened() if isinstance(out, Send)]
    answers = [answer for frame in sends for answer in talk.maker.answers(frame)]
    talk.connector.remove(talk.instruments)
    assert [out for answer in answers for out in talk.deliver(answer)] == []


@every_exchange
def test_a_frame_of_a_stranger_is_refused_by_name(name: str) -> None:
    talk = Talk(name).open()
    stranger = talk.maker.natives[2]
    with pytest.raises(ProtocolError, match=stranger.replace("/", ".")) as caught:
        talk.connector.received(talk.maker.changed(stranger))
    assert caught.value.instrument is None
    talk.check()


@every_exchange
def test_a_body_nobody_asked_for_changes_nothing(name: str) -> None:
    talk = Talk(name).open()
    stranger = Instrument(name, "NO/ONE", "NOONE")
    body = b'{"lastUpdateId":5,"bids":[],"asks":[]}'
    for instrument in (talk.instruments[0], stranger):
        assert list(talk.connector.fetched(instrument, body)) == []
    talk.check()


@every_exchange
def test_a_damaged_frame_of_a_book_names_its_instrument(name: str) -> None:
    talk = Talk(name).open()
    instrument = talk.instruments[0]
    frame = talk.maker.changed(instrument.native)
    without_levels = frame.replace(LEVELS_FIELD[name], b'"gone":')
    assert without_levels != frame
    with pytest.raises(ProtocolError, match=r"damaged|cannot be read") as caught:
        talk.connector.received(without_levels)
    assert caught.value.instrument is instrument


LEVELS_FIELD = {
    "binance": b'"b":',
    "okx": b'"bids":',
    "bybit": b'"b":',
    "coinbase": b'"changes":',
    "kraken": b'"bids":',
    "poloniex": b'"bids":',
}


# What can happen to a frame on its way, for a connector that must end up right or doubtful.
EVENTS = ("change", "drop", "twice", "swap", "garbage", "resync", "unknown")


@every_exchange
@given(
    events=st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 1)), max_size=40),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=25)
def test_a_book_is_equal_or_in_doubt_whatever_happens(
    name: str, events: list[tuple[str, int]], seed: int
) -> None:
    talk = Talk(name, seed=seed, heal=False).open()
    for event, which in events:
        if name in UNSEEN and event in ("drop", "swap"):
            continue
        instrument = talk.instruments[which]
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
            talk.maker.changed(native)
            talk.maker.changed(native)
            talk.change(native)
        case "twice":
            frame = talk.maker.changed(native)
            talk.deliver(frame, native)
            talk.deliver(frame, native)
        case "swap":
            first, second = talk.maker.changed(native), talk.maker.changed(native)
            talk.deliver(second, native)
            talk.deliver(first, native)
        case "garbage":
            talk.deliver(talk.maker.changed(native)[:-5])
        case "resync":
            talk.resync(instrument)
        case "unknown":
            talk.deliver(talk.maker.random.choice(talk.maker.unknown))


def _assert_equal_or_in_doubt(talk: Talk, instrument: Instrument, *, tops: bool) -> None:
    sides = talk.reader.sides(instrument)
    if sides is None:
        return
    for side, true in zip(sides, talk.maker.sides(instrument.native), strict=True):
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
)


@st.composite
def bad_frames(draw: st.DrawFn, name: str) -> bytes:
    if draw(st.booleans()):
        return draw(st.binary(max_size=200))
    talk = Talk(name).open()
    steps = [*talk.script]
    talk.change(talk.instruments[0].native)
    frame = draw(st.sampled_from([step.payload for step in (*steps, talk.script[-1])]))
    return _mutated(draw, frame)


@every_exchange
@given(data=st.data())
@settings(max_examples=150)
def test_garbage_raises_the_one_declared_error(name: str, data: st.DataObject) -> None:
    talk = Talk(name).open()
    frame = data.draw(bad_frames(name))
    instrument = talk.instruments[0]
    known = (None, *talk.instruments)
    assert all(one in known for one in _touched(talk.connector.received, frame))
    assert all(one in known for one in _touched(partial(talk.connector.fetched, instrument), frame))
    assert all(one is None for one in _touched(_parsed(name), frame))


def _touched(read: Callable[[bytes], Iterable[Output]], frame: bytes) -> list[Instrument | None]:
    """Whom outputs or the one declared error are about; any other error fails the test."""
    try:
        return [getattr(output, "instrument", None) for output in read(frame)]
    except ProtocolError as error:
        return [error.instrument]


def _parsed(name: str) -> Callable[[bytes], list[Output]]:
    """Reading the instruments, for the sake of its errors alone."""

    def read(body: bytes) -> list[Output]:
        EXCHANGES[name].parse_instruments(body)
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


@every_exchange
@given(
    message=st.dictionaries(st.sampled_from(WORDS), json_values | st.sampled_from(WORDS)),
)
@settings(max_examples=150)
def test_any_json_gives_values_or_the_one_declared_error(name: str, message: Any) -> None:
    talk = Talk(name).open()
    frame = json.dumps(message).encode()
    try:
        outputs = list(talk.connector.received(frame))
    except ProtocolError:
        return
    allowed = Acknowledged | Refused | Closing | Send | Gap
    assert all(isinstance(out, allowed) for out in outputs), outputs


@every_exchange
@pytest.mark.parametrize("body", [b"", b"[1,", b"5", b'{"x":1}', b"null", b"\xff", b'"list"'])
def test_a_body_that_is_no_list_of_instruments_is_refused(name: str, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        EXCHANGES[name].parse_instruments(body)
