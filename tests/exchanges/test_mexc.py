"""Conversations with MEXC: its messages and our answers."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.both import EACH
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Delta,
    Fetch,
    Gap,
    Ignored,
    ProtocolError,
    SeededEngine,
    Send,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.mexc import BOOKS, EXCHANGE, LEVELS
from onebook.feeds.recording import Recorder
from onebook.model import Instrument, InstrumentStatus
from onebook.simulator.kit import ChannelKey, Dropped, TextChanges
from onebook.simulator.kit.replay import scripts
from onebook.simulator.mexc import DEPTH, Push
from simulator.pure import Desk

BTC = Instrument("mexc", "BTC/USDT", "BTCUSDT")
PAID = Instrument("mexc", "PAID/USDT", "PAIDUSDT")
CHANNEL = "spot@public.aggre.depth.v3.api.pb@10ms@"
FETCH_BTC = Fetch(BTC, "/api/v3/depth?symbol=BTCUSDT&limit=1000")
ACK = b'{"id":1,"code":0,"msg":"spot@public.aggre.depth.v3.api.pb@10ms@BTCUSDT"}'

# What the exchange sent on 2026-10-09, byte for byte: eight bids, two of them gone, no asks. Its
# channel was that of every 100 ms, which has the same messages: its name alone is replaced.
RECORDED_LEVELS = (
    b"\x12\x0d\x0a\x080.004822\x12\x010\x12\x14\x0a\x080.004818\x12\x0813118.14"
    b"\x12\x13\x0a\x080.004814\x12\x072908.68\x12\x13\x0a\x080.004813\x12\x077957.14"
    b"\x12\x13\x0a\x080.004773\x12\x076274.29\x12\x14\x0a\x080.004772\x12\x0810282.96"
    b"\x12\x13\x0a\x080.004753\x12\x0747489.8\x12\x0c\x0a\x070.00473\x12\x010"
    b"\x1a\x27spot@public.aggre.depth.v3.api.pb@100ms"
    b"\x22\x09281293249\x2a\x09281293259\x30\xed\x88\xa1\x8f\x924"
)
RECORDED_AT_100MS = (
    b"\x0a\x30spot@public.aggre.depth.v3.api.pb@100ms@PAIDUSDT\x1a\x08PAIDUSDT"
    b"\x30\xcc\x89\xa1\x8f\x924\xca\x13\xe3\x01" + RECORDED_LEVELS
)


def at_10ms(frame: bytes) -> bytes:
    """The same push on the channel with an interval of 10 ms."""
    push = Push.FromString(frame)
    push.channel = push.channel.replace("@100ms@", "@10ms@")
    return push.SerializeToString(deterministic=True)  # type: ignore[no-any-return]


RECORDED = at_10ms(RECORDED_AT_100MS)

# Messages of other channels (a best bid and ask of 2026-09-25), and what changes no book.
UNKNOWN_FRAMES = (
    b"\x0a\x34spot@public.aggre.bookTicker.v3.api.pb@100ms@BTCUSDT\x1a\x07BTCUSDT"
    b"\x30\xba\xb6\xcf\xa8\x8d\x34\xda\x13\x3b\x0a\x0584270\x12\x080.006387\x1a\x0884270.01"
    b"\x22\x0a5.42169699\x2a\x0b82164154360\x30\x97\x9f\xcf\xa8\x8d\x34",
    b'{"id":0,"code":0,"msg":"PONG"}',
    b'{"id":0,"code":0,"msg":"spot@public.kline.v3.api.pb@BTCUSDT@Min15"}',
    b"{}",
    b"",
)


def damaged(frame: bytes) -> bytes:
    """A push with an invalid `toVersion` (a text of 7 digits)."""
    return frame.replace(b"\x2a\x07", b"\x2a\x07x", 1)[:-1]


def delimited(number: int, value: bytes) -> bytes:
    tag = number << 3 | 2
    size = len(value)
    return varint(tag) + varint(size) + value


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def push(first: int | bytes, final: int | bytes, native: str = "BTCUSDT") -> bytes:
    """A delta with one bid, whose amount equals the last version."""
    first, final = (
        each if isinstance(each, bytes) else str(each).encode() for each in (first, final)
    )
    level = delimited(1, b"1.5") + delimited(2, final[:8])
    depths = delimited(2, level) + delimited(4, first) + delimited(5, final)
    return (
        delimited(1, f"{CHANNEL}{native}".encode())
        + delimited(3, native.encode())
        + b"\x30\xcc\x89\xa1\x8f\x924"
        + delimited(313, depths)
    )


def body(sequence: int) -> bytes:
    return json.dumps({"lastUpdateId": sequence, "bids": [["1.50", "9"]], "asks": []}).encode()


def acknowledged(*instruments: Instrument) -> SeededEngine:
    connector = SeededEngine(BOOKS, instruments or (BTC,))
    connector.opened()
    for rank, each in enumerate(instruments or (BTC,), 1):
        answer = {"id": rank, "code": 0, "msg": CHANNEL + each.native}
        assert connector.received(json.dumps(answer).encode())[0] == Acknowledged(each)
    return connector


def joined(sequence: int = 100) -> SeededEngine:
    connector = acknowledged()
    connector.fetched(BTC, body(sequence))
    return connector


def test_each_pair_is_a_request_of_its_own() -> None:
    sends = SeededEngine(BOOKS, [BTC, PAID]).opened()
    assert [json.loads(out.frame) for out in sends if isinstance(out, Send)] == [
        {"method": "SUBSCRIPTION", "params": [f"{CHANNEL}{native}"], "id": number}
        for number, native in ((1, "BTCUSDT"), (2, "PAIDUSDT"))
    ]


def test_the_body_is_asked_for_when_the_stream_is_confirmed() -> None:
    connector = SeededEngine(BOOKS, [BTC])
    connector.opened()
    assert connector.received(ACK) == (Acknowledged(BTC), FETCH_BTC)
    assert connector.received(ACK) == EXPECTED, "an answer counts once"


def test_an_answer_without_a_number_counts_by_its_channels() -> None:
    connector = SeededEngine(BOOKS, [BTC, PAID])
    connector.opened()
    names = f"{CHANNEL}BTCUSDT,{CHANNEL}PAIDUSDT"
    outputs = connector.received(json.dumps({"id": 0, "code": 0, "msg": names}).encode())
    assert [out for out in outputs if isinstance(out, Acknowledged)] == [
        Acknowledged(BTC),
        Acknowledged(PAID),
    ]


def test_the_answer_to_an_unsubscription_confirms_nothing() -> None:
    connector = joined()
    (sent,) = connector.invalidate(BTC)
    assert isinstance(sent, Send)
    request = json.loads(sent.frame)
    assert request == {"method": "UNSUBSCRIPTION", "params": [CHANNEL + "BTCUSDT"], "id": 2}
    assert connector.received(ACK.replace(b'"id":1', b'"id":2')) == EXPECTED
    (again,) = connector.resync([BTC])
    assert isinstance(again, Send), "the stream itself is asked for again"


@pytest.mark.parametrize("core", EACH)
def test_a_recorded_delta_is_read_without_an_object_for_a_level(core: Any) -> None:
    assert len(RECORDED_AT_100MS) == 298
    connector = acknowledged(PAID)
    book = core.Book(1_000)
    seed = b'{"lastUpdateId":281293250,"bids":[["0.004822","5"],["0.00473","7.00"]],"asks":[]}'
    assert connector.received(RECORDED) == ()
    snapshot, delta = connector.fetched(PAID, seed)
    assert isinstance(snapshot, Snapshot)
    assert delta == Delta(
        PAID, RECORDED_LEVELS, shape=LEVELS, at=1_791_570_232_524, sequence=delta.sequence
    )
    book.replace(snapshot.bids, snapshot.asks, snapshot.shape, snapshot.levels_asked)
    assert book.top(9)[0] == [("0.004822", "5"), ("0.00473", "7")]
    book.apply(delta.bids, delta.asks, delta.shape)
    assert book.top(9) == (
        [
            ("0.004818", "13118.14"),
            ("0.004814", "2908.68"),
            ("0.004813", "7957.14"),
            ("0.004773", "6274.29"),
            ("0.004772", "10282.96"),
            ("0.004753", "47489.8"),
        ],
        [],
    )


def test_deltas_join_the_body_and_then_each_other() -> None:
    connector = acknowledged()
    for first, final in ((90, 95), (96, 100), (101, 105)):
        assert connector.received(push(first, final)) == ()
    assert [type(out) for out in connector.fetched(BTC, body(102))] == [Snapshot, Delta]
    (delta,) = connector.received(push(106, 106))
    assert isinstance(delta, Delta)
    (gap,) = connector.received(push(108, 109))
    assert gap == Gap(BTC, "the book is at 106, the delta starts at 108")
    assert connector.resync([BTC]) == (FETCH_BTC,)


def test_a_body_that_ends_where_a_delta_starts_joins() -> None:
    connector = acknowledged()
    connector.received(push(101, 105))
    assert [type(out) for out in connector.fetched(BTC, body(100))] == [Snapshot, Delta]
    stale = acknowledged()
    stale.received(push(101, 105))
    assert stale.fetched(BTC, body(99)) == (FETCH_BTC,), "an older body is asked for again"


@pytest.mark.parametrize(
    ("first", "final"),
    [(b"", b"5"), (b"x", b"5"), (9, 8), (0, 5), (-1, 5), (1, 2**63), (1, b"9" * 5_000)],
    ids=["absent", "text", "backwards", "zero", "negative", "large", "endless"],
)
def test_versions_that_are_no_range_are_damage_to_their_book(first: Any, final: Any) -> None:
    connector = joined()
    with pytest.raises(ProtocolError, match=r"a frame of 'spot@.*@BTCUSDT' is damaged") as caught:
        connector.received(push(first, final))
    assert caught.value.instrument is BTC
    assert [type(out) for out in connector.received(push(101, 102))] == [Delta]


@pytest.mark.parametrize("tail", [b"", b"\xca\x13\x00"], ids=["absent", "empty"])
def test_a_push_without_a_body_changes_nothing(tail: bytes) -> None:
    connector = joined()
    head = delimited(1, f"{CHANNEL}BTCUSDT".encode()) + delimited(3, b"BTCUSDT")
    assert connector.received(head + b"\x30\xcc\x89\xa1\x8f\x924" + tail) == EXPECTED
    assert [type(out) for out in connector.received(push(101, 102))] == [Delta]
    assert [type(out) for out in connector.received(push(104, 104))] == [Gap], "as without it"


def test_a_push_cut_between_its_fields_is_one_without_a_body() -> None:
    connector = acknowledged(PAID)
    assert connector.received(RECORDED[:59]) == EXPECTED


@pytest.mark.parametrize(
    "frame",
    [RECORDED[:-1], RECORDED[:54], b"\x0a\xff\xff\xff\xff\x0f", b"PONG", b'{"id":', b"{"],
    ids=["cut", "head", "length", "text", "json", "brace"],
)
def test_what_is_no_message_may_be_of_any_book(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="cannot be read") as caught:
        joined().received(frame)
    assert caught.value.instrument is None


def test_a_pair_is_refused_with_the_code_of_success() -> None:
    connector = SeededEngine(BOOKS, [BTC, PAID])
    connector.opened()
    words = f"Not Subscribed successfully! [{CHANNEL}PAIDUSDT].  Reason： Blocked! "
    answer = json.dumps({"id": 2, "code": 0, "msg": words}).encode()
    assert connector.received(answer) == (BookRefused(PAID, words),)


def test_errors_that_name_nothing_and_too_many_requests() -> None:
    connector = joined()
    words = "Not Subscribed successfully! [].  Reason： Blocked! "
    answer = {"id": 0, "code": 0, "msg": words}
    assert connector.received(json.dumps(answer).encode()) == (Unnamed(words),)
    answer = {"id": 0, "code": 429, "msg": "Too Many Requests"}
    assert connector.received(json.dumps(answer).encode()) == (SlowDown("Too Many Requests"),)


def test_a_message_of_another_channel_is_unknown() -> None:
    assert joined().received(UNKNOWN_FRAMES[0]) == (Ignored(known=False),)


# A row as it was served in 2025 (shortened), and rows that are no spot market of ours.
ROW = {
    "symbol": "BROCKUSDT",
    "status": "1",
    "baseAsset": "BROCK",
    "baseAssetPrecision": 2,
    "quoteAsset": "USDT",
    "quotePrecision": 5,
    "quoteAssetPrecision": 5,
    "isSpotTradingAllowed": True,
    "isMarginTradingAllowed": False,
    "permissions": ["SPOT"],
    "tradeSideType": 1,
}
OTHERS: tuple[dict[str, Any], ...] = (
    {"symbol": "TOMO3LUSDT", "baseAsset": "TOMO3L", "isSpotTradingAllowed": False},
    {"symbol": "XMARGINUSDT", "baseAsset": "XMARGIN", "permissions": ["MARGIN"]},
    {"symbol": "BTC_USDT", "contractSize": "0.0001", "isSpotTradingAllowed": None},
)


def listed(*rows: dict[str, Any]) -> list[Instrument]:
    return EXCHANGE.parse_instruments(json.dumps({"symbols": [ROW | row for row in rows]}).encode())


@pytest.mark.derivatives
def test_only_spot_markets_that_the_api_may_trade_are_listed() -> None:
    (one,) = listed({}, *OTHERS)
    assert (one.symbol, one.native) == ("BROCK/USDT", "BROCKUSDT")
    assert one.status is InstrumentStatus.TRADING
    assert (one.tick, one.lot) == ("0.00001", "0.01")


@pytest.mark.parametrize("row", [{"status": "2"}, {"status": "3"}, {"tradeSideType": "4"}], ids=str)
def test_a_market_at_rest_is_halted(row: dict[str, Any]) -> None:
    assert [one.status for one in listed(row)] == [InstrumentStatus.HALTED]


# The simulated exchange, whose messages are stated apart from the connector's.


def request(*natives: str, method: str = "SUBSCRIPTION") -> dict[str, Any]:
    return {"method": method, "params": [CHANNEL + each for each in natives], "id": 7}


def test_the_simulator_writes_what_the_exchange_sent_byte_for_byte() -> None:
    push = Push.FromString(RECORDED)
    depths = push.publicAggreDepths
    assert (push.symbol, push.sendTime, len(depths.bids)) == ("PAIDUSDT", 1_791_570_232_524, 8)
    assert (depths.fromVersion, depths.toVersion) == ("281293249", "281293259")
    assert push.SerializeToString(deterministic=True) == RECORDED
    desk = Desk("mexc")
    channel = desk.board.channel(ChannelKey("BTCUSDT", DEPTH))
    assert channel is not None
    parsed = Push.FromString(desk.dialect.delta(channel, TextChanges([("1.5", "0")], []), desk.now))
    assert (
        parsed.publicAggreDepths.bids[0]
        == Push.FromString(push_of("1.5")).publicAggreDepths.bids[0]
    )
    assert parsed.channel == CHANNEL + "BTCUSDT"


def push_of(price: str) -> bytes:
    level = delimited(1, price.encode()) + delimited(2, b"0")
    return delimited(313, delimited(2, level))


def test_the_simulator_answers_with_names_and_refuses_with_the_code_of_success() -> None:
    desk = Desk("mexc")
    names = f"{CHANNEL}BTCUSDT,{CHANNEL}ETHUSDT"
    assert desk.say(request("BTCUSDT", "ETHUSDT")) == [{"id": 7, "code": 0, "msg": names}]
    [mixed] = desk.say(request("SOLUSDT", "btcusdt"))
    assert mixed["code"] == 0
    assert mixed["msg"] == (
        f"Subscribed successful! [{CHANNEL}SOLUSDT]. "
        f"Not Subscribed successfully! [{CHANNEL}btcusdt].  Reason： Blocked! "
    )
    assert desk.say({"method": "PING"}) == [{"id": 0, "code": 0, "msg": "PONG"}]
    gone = request("BTCUSDT", "SOLUSDT", method="UNSUBSCRIPTION")
    assert desk.say(gone)[0]["msg"] == f"{CHANNEL}BTCUSDT,{CHANNEL}SOLUSDT"
    assert [*desk.session.topics] == [CHANNEL + "ETHUSDT"]


def test_the_simulator_follows_thirty_channels_and_ends_a_connection_without_any() -> None:
    desk = Desk("mexc")
    assert desk.dialect.heartbeat(desk.session, desk.now) == []
    late = desk.now._replace(s=desk.now.s + 31)
    with pytest.raises(Dropped, match="No subscription"):
        desk.dialect.heartbeat(desk.session, late)
    desk.session.topics = {str(rank): ChannelKey("X", 1) for rank in range(30)}
    assert desk.dialect.heartbeat(desk.session, late) == []
    assert "Not Subscribed" in desk.say(request("BTCUSDT"))[0]["msg"]


def test_the_simulator_sends_pushes_without_a_body_now_and_then() -> None:
    desk = Desk("mexc")
    desk.say(request("BTCUSDT"))
    assert desk.dialect.heartbeat(desk.session, desk.now) == []
    later = desk.now._replace(s=desk.now.s + 11)
    (frame,) = desk.dialect.heartbeat(desk.session, later)
    push = Push.FromString(frame)
    assert (push.channel, push.HasField("publicAggreDepths")) == (CHANNEL + "BTCUSDT", False)
    assert desk.dialect.heartbeat(desk.session, later) == []


def test_the_simulator_pads_the_numbers_of_a_body() -> None:
    desk = Desk("mexc")
    _, book = desk.get("/api/v3/depth", symbol="BTCUSDT", limit="5000")
    places = {len(number.partition(".")[2]) for level in book["bids"] for number in level}
    assert places == {2, 8}
    assert desk.get("/api/v3/depth", symbol="NONO")[0] == 400


def test_a_recording_of_binary_frames_is_played_as_binary_ones(tmp_path: Path) -> None:
    with Recorder(tmp_path / "mexc") as recorder:
        recorder.opened("wss://wbs-api.mexc.com/ws", 1.0)
        recorder.frame_in("wss://wbs-api.mexc.com/ws", 2.0, ACK)
        recorder.frame_in("wss://wbs-api.mexc.com/ws", 3.0, RECORDED)
    (line,) = scripts([tmp_path / "mexc"])["mexc"].lines
    assert (line.native, line.frame) == ("PAIDUSDT", RECORDED)
