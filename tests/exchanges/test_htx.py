"""Conversations with HTX: its messages and our answers; a recording of 2021."""

import ast
import json
import re
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import Any

import pytest

from contract.oracle import Dicts, Reader
from exchanges.sent import Sent
from onebook.exchanges.htx import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Alive,
    BookRefused,
    Connector,
    Delta,
    FrameForm,
    Gap,
    Ignored,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    SnapshotFailed,
    TopOfBook,
    Unnamed,
)
from onebook.exchanges.kit.sync import FETCHES_MAX, SHALLOW_STARTS_MAX, SHALLOW_WAIT
from onebook.inflate import inflated
from onebook.model import Instrument, InstrumentStatus
from onebook.simulator.htx import Htx
from onebook.simulator.kit import ChannelKey, TextChanges
from simulator.pure import Desk

BTC = Instrument("htx", "BTC/USDT", "btcusdt")
ETH = Instrument("htx", "ETH/USDT", "ethusdt")
TOPIC = "market.btcusdt.mbp.150"
SUB = Sent(b'{"sub":"market.btcusdt.mbp.150","id":"1"}')
REQ = Sent(b'{"req":"market.btcusdt.mbp.150","id":"market.btcusdt.mbp.150"}')
SHALLOW_TOPIC = "market.btcusdt.mbp.20"
SHALLOW_REQ = Sent(b'{"req":"market.btcusdt.mbp.20","id":"market.btcusdt.mbp.20"}')
ACK = b'{"id":"1","status":"ok","subbed":"market.btcusdt.mbp.150","ts":1489474081631}'

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"id":"9","status":"ok","unsubbed":"market.btcusdt.mbp.150","ts":1494326028889}',
    b'{"ch":"market.btcusdt.mbp.refresh.20","ts":1,"tick":{"seqNum":1,"bids":[],"asks":[]}}',
    b'{"ch":"market.btcusdt.mbp.5","ts":1,"tick":{"seqNum":2,"prevSeqNum":1,"asks":[[1,2]]}}',
    b'{"ch":"market.btcusdt.depth.step0","ts":1,"tick":{"bids":[],"asks":[],"version":1}}',
    b'{"id":"1","status":"error","err-code":"bad-request","err-msg":"unsub with not subbed topic"}',
    b"{}",
)


def damaged(frame: bytes) -> bytes:
    """A frame without its number; one without sides is an empty change."""
    return frame.replace(b'"seqNum":', b'"number":')


def without_consequence(words: str) -> tuple[Ignored]:
    return (Ignored(known=True, refused=words),)


def update(previous: int, sequence: int, **sides: object) -> bytes:
    tick = {"seqNum": sequence, "prevSeqNum": previous}
    tick |= sides or {"bids": [[1.5, sequence]], "asks": []}
    return json.dumps({"ch": TOPIC, "ts": 1573199608679, "tick": tick}).encode()


def shallow(verb: str, number: int, native: str = "btcusdt") -> Sent:
    return Sent(f'{{"{verb}":"market.{native}.mbp.20","id":"{number}"}}'.encode())


def tick(previous: int, sequence: int, **sides: object) -> bytes:
    return update(previous, sequence, **sides).replace(b"mbp.150", b"mbp.20")


def whole(sequence: int, topic: str = TOPIC, **changed: object) -> bytes:
    book = {"seqNum": sequence, "bids": [[1.5, 2]], "asks": [[2.5, 3]]} | changed
    return json.dumps({"id": topic, "rep": topic, "status": "ok", "data": book}).encode()


def error(words: str, number: str | None = None) -> bytes:
    message = {"status": "error", "ts": 1, "err-code": "bad-request", "err-msg": words}
    return json.dumps(message | ({"id": number} if number else {})).encode()


def acknowledged() -> Connector:
    connector = EXCHANGE.connector([BTC])
    connector.opened()
    connector.received(ACK)
    return connector


def live(*, at: int = 10) -> Connector:
    connector = acknowledged()
    connector.received(whole(at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_a_topic_is_subscribed_alone_and_its_book_requested_once_it_is_accepted() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (SUB, Sent(b'{"sub":"market.ethusdt.mbp.150","id":"2"}'))
    assert connector.received(ACK) == (Acknowledged(BTC), REQ)
    assert connector.received(ACK) == EXPECTED
    assert EXCHANGE.frames is FrameForm.COMPRESSED


def test_the_first_delta_after_the_whole_book_starts_at_it() -> None:
    connector = acknowledged()
    for previous, sequence in ((8078, 8130), (8130, 8160), (8160, 8204), (8204, 8226)):
        assert connector.received(update(previous, sequence)) == ()
    snapshot, *deltas, subscribed, requested = connector.received(whole(8160))
    assert (subscribed, requested) == (shallow("sub", 3), SHALLOW_REQ)
    assert bytes(snapshot.bids) == b"[[1.5, 2]]"  # type: ignore[union-attr]
    assert [bytes(one.bids) for one in deltas] == [b"[[1.5, 8204]]", b"[[1.5, 8226]]"]  # type: ignore[union-attr]
    assert kinds(connector.received(update(8226, 8300))) == [Delta]
    assert kinds(connector.received(update(8301, 8302))) == [Gap]


def best(outputs: Any) -> tuple[int, bytes, bytes]:
    (top,) = outputs
    assert isinstance(top, TopOfBook)
    return top.sequence, bytes(top.bids), bytes(top.asks)


def fast(*, at: int = 12) -> Connector:
    """A connector that also knows the 20 levels."""
    connector = live()
    connector.received(whole(at, SHALLOW_TOPIC))
    return connector


def test_best_prices_are_those_of_the_20_levels_after_each_change() -> None:
    connector = live()
    assert connector.received(tick(11, 12, asks=[[2.4, 1]])) == ()
    assert connector.received(tick(12, 13, bids=[[1.5, 0], [1.4, 5]])) == ()
    shown = best(connector.received(whole(11, SHALLOW_TOPIC)))
    assert shown == (13, b'[["1.4","5"]]', b'[["2.4","1"]]')
    shown = best(connector.received(tick(13, 14, asks=[[2.4, 0], [2.5, 0]])))
    assert shown == (14, b'[["1.4","5"]]', b"[]"), "nothing is left on that side"
    amounts = tick(14, 15, bids=[[1.6, 0.123456789123]])
    assert best(connector.received(amounts))[1] == b'[["1.6","0.12345678"]]', "cut like the levels"


def test_a_loss_of_best_prices_requests_the_20_levels_again_and_costs_no_book() -> None:
    connector = fast(at=12)
    assert connector.received(tick(13, 14)) == (SHALLOW_REQ,)
    assert connector.received(tick(14, 15)) == (), "unknown until the answer"
    assert connector.received(whole(11, SHALLOW_TOPIC)) == (SHALLOW_REQ,), "it is older"
    assert best(connector.received(whole(14, SHALLOW_TOPIC)))[0] == 15
    crossed = tick(15, 16, bids=[[9.5, 1]], asks=[[2.5, 1]])
    assert connector.received(crossed) == (SHALLOW_REQ,)
    assert kinds(connector.received(update(10, 17))) == [Delta]
    assert kinds(connector.received(tick(1, 2).replace(b'"seqNum"', b'"x"'))) == [Ignored]


def test_20_levels_that_do_not_arrive_are_requested_again_a_few_times() -> None:
    connector, asked = live(), 0
    for number in range(SHALLOW_WAIT * (SHALLOW_STARTS_MAX + 5)):
        asked += len([*connector.received(tick(number, number + 1))])
    assert asked == SHALLOW_STARTS_MAX - 1, "one was sent at first"
    asked = 0
    connector = fast(at=1)
    for number in range(2, 5 * SHALLOW_STARTS_MAX, 2):
        asked += len([*connector.received(tick(number, number + 1))])
        connector.received(whole(number + 1, SHALLOW_TOPIC))
    assert asked == SHALLOW_STARTS_MAX - 1


def test_a_pair_without_20_levels_is_shown_without_them() -> None:
    connector = live()
    refused = "invalid mbp.20.symbol btcusdt"
    assert connector.received(error(refused, "2")) == without_consequence(refused)
    assert connector.received(error(refused, SHALLOW_TOPIC)) == without_consequence(refused)
    assert kinds(connector.received(update(10, 11))) == [Delta]
    slow = error("429 too many request", SHALLOW_TOPIC)
    assert connector.received(slow) == (SlowDown("429 too many request"),)


def test_20_levels_are_subscribed_once_and_again_with_a_new_subscription() -> None:
    connector = live()
    assert kinds(connector.received(update(11, 12))) == [Gap]
    connector.resync([BTC])
    assert kinds(connector.received(whole(12))) == [Snapshot], "their stream is still open"
    connector.invalidate(BTC)  # type: ignore[attr-defined]
    connector.resync([BTC])
    ack = ACK.replace(b'"1"', b'"7"')
    assert connector.received(ack) == (Acknowledged(BTC), REQ)
    assert kinds(connector.received(whole(13))) == [Snapshot, Send, Send]


def test_a_whole_book_before_or_amid_what_was_held_is_requested_again_with_a_bound() -> None:
    connector = acknowledged()
    connector.received(update(100, 200))
    connector.received(update(200, 300))
    assert connector.received(whole(99)) == (REQ,)
    assert connector.received(whole(150)) == (REQ,), "a level may have come and gone"
    for _ in range(FETCHES_MAX - 3):
        assert connector.received(whole(99)) == (REQ,)
    assert kinds(connector.received(whole(99))) == [Gap]
    assert connector.resync([BTC]) == (REQ,), "what was held is still held"
    assert kinds(connector.received(whole(200))) == [Snapshot, Delta, Send, Send]


def test_an_update_without_levels_is_the_heartbeat_of_its_book_and_advances_it() -> None:
    connector = live(at=10)
    assert connector.received(update(10, 10, bids=[], asks=[])) == (Alive(BTC),)
    assert connector.received(update(10, 14, bids=[], asks=[])) == (Alive(BTC),)
    assert kinds(connector.received(update(14, 15))) == [Delta]
    assert kinds(connector.received(update(16, 17, bids=[], asks=[]))) == [Gap]


def test_an_update_with_neither_side_is_one_with_two_empty_sides() -> None:
    connector = live(at=10)
    assert connector.received(update(10, 10, other=[])) == (Alive(BTC),)
    assert connector.received(update(10, 12, other=[])) == (Alive(BTC),)
    assert kinds(connector.received(update(12, 13))) == [Delta]
    assert kinds(connector.received(update(14, 15, other=[]))) == [Gap]


def test_a_side_that_did_not_change_may_be_absent() -> None:
    (delta,) = live(at=10).received(update(10, 11, asks=[[2.5, 0]]))
    assert isinstance(delta, Delta)
    assert (bytes(delta.bids), bytes(delta.asks)) == (b"[]", b"[[2.5, 0]]")


def test_a_ping_is_answered_ahead_of_all_else_and_is_the_heartbeat_of_the_connection() -> None:
    outputs = live().received(b'{"ping":1492420473027}')
    assert outputs == (Sent(b'{"pong":1492420473027}', urgent=True), Alive())


def test_an_error_refuses_what_its_request_asked_for() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    words = "invalid mbp.150.symbol ethusdt"
    assert connector.received(error(words, "2")) == (BookRefused(ETH, words),)
    assert connector.received(error("invalid symbol", "2")) == (Unnamed("invalid symbol"),)
    assert connector.received(error("not json string")) == (Unnamed("not json string"),)


def test_a_refusal_of_a_request_that_no_book_waits_for_is_about_no_other() -> None:
    """A reply to a subscription whose book was removed since, and an unsubscription."""
    for words in ("invalid topic", "internal error"):
        connector = EXCHANGE.connector([BTC, ETH])
        connector.opened()
        unsubscription = Sent(b'{"unsub":"market.ethusdt.mbp.150","id":"3"}')
        assert connector.remove([ETH]) == (unsubscription, shallow("unsub", 4, "ethusdt"))
        assert connector.received(error(words, "2")) == without_consequence(words)
        assert connector.received(error(words, "3")) == without_consequence(words)
        assert connector.received(error(words, "3")) != without_consequence(words)


def test_a_refused_request_for_a_whole_book_is_no_refused_subscription() -> None:
    timeout = error("request timeout", TOPIC)
    assert acknowledged().received(timeout) == (SnapshotFailed(BTC, "request timeout"),)
    assert live().received(timeout) == EXPECTED


@pytest.mark.parametrize("number", ["1", TOPIC, None])
def test_too_many_requests_ask_for_patience_and_refuse_nothing(number: str | None) -> None:
    words = "429 too many request"
    again = (SnapshotFailed(BTC, words),) if number == TOPIC else ()
    assert acknowledged().received(error(words, number)) == (SlowDown(words), *again)


@pytest.mark.parametrize(
    "frame",
    [
        update(10, 2**63),
        update(10, 11).replace(b"prevSeqNum", b"previous"),
        whole(12).replace(b'"asks"', b'"tasks"'),
        whole(12).replace(b'"seqNum": 12', b'"seqNum": "12"'),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes) -> None:
    with pytest.raises(ProtocolError, match="damaged") as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is BTC


@pytest.mark.parametrize("aligned", [False, True], ids=["today", "announced"])
def test_the_simulator_sends_what_did_not_change_as_the_page_says(
    aligned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Htx, "aligned", aligned)
    desk = Desk("htx")
    desk.say({"sub": TOPIC, "id": "1"})
    channel = desk.board.channel(ChannelKey("btcusdt", 150))
    assert channel is not None
    one_sided = json.loads(desk.dialect.delta(channel, TextChanges([("1.5", "2")], []), desk.now))
    assert one_sided["tick"].get("asks") == (None if aligned else [])
    assert desk.dialect.heartbeat(desk.session, desk.now) == []
    tick = {"seqNum": channel.sequence, "prevSeqNum": channel.sequence, "bids": [], "asks": []}
    frames = [json.loads(frame) for frame in desk.dialect.heartbeat(desk.session, desk.now)]
    assert [frame["tick"] for frame in frames] == ([] if aligned else [tick])


ROW = {"sc": "ethusdt", "dn": "ETH/USDT", "bc": "eth", "bcdn": "ETH", "qc": "usdt"} | {
    "qcdn": "USDT",
    "state": "online",
    "te": True,
    "tpp": 2,
    "tap": 4,
}


def test_instruments_are_read_row_by_row() -> None:
    rows = [
        ROW,
        ROW | {"sc": "aaausdt", "bcdn": "AAA", "state": "suspend"},
        ROW | {"sc": "bbbusdt", "bcdn": "BBB", "state": "offline", "tpp": None},
        ROW | {"sc": "cccusdt", "bcdn": "CCC", "te": False},
        ROW | {"sc": 5},
        "row",
    ]
    found = EXCHANGE.parse_instruments(json.dumps({"status": "ok", "data": rows}).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("ETH/USDT", "ethusdt", "0.01", "0.0001"),
        ("AAA/USDT", "aaausdt", "0.01", "0.0001"),
        ("BBB/USDT", "bbbusdt", "", "0.0001"),
        ("CCC/USDT", "cccusdt", "0.01", "0.0001"),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING] + [
        InstrumentStatus.HALTED
    ] * 3


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    rows = [
        {"symbol": "BTC", "contract_code": "BTC-USDT", "price_tick": 0.1, "contract_status": 1},
        {"symbol": "BTC", "contract_code": "BTC-USDT-261225", "business_type": "futures"},
    ]
    assert EXCHANGE.parse_instruments(json.dumps({"status": "ok", "data": rows}).encode()) == []


def test_a_list_with_an_error_is_refused() -> None:
    with pytest.raises(ProtocolError, match="status is error"):
        EXCHANGE.parse_instruments(b'{"status":"error","err_code":"x","data":[]}')


# What the servers at `/ws` sent on 2021-04-17: whole books of another channel, which has the same
# levels, gzip and pings. The connector has no such mode, so they are retold as what it reads.

MESSAGE = re.compile(r"\d+\.\d+: (b['\"].*)")
SENT = re.compile(r"wss://\S+ <- \d+\.\d+: (.*)")


def recorded(samples: Path) -> tuple[list[bytes], list[bytes]]:
    lines = (samples / "exchange_frames" / "HUOBI.ws.44.0").read_text().splitlines()
    sent = [match[1].encode() for match in map(SENT.match, lines) if match]
    received = [ast.literal_eval(match[1]) for match in map(MESSAGE.match, lines) if match]
    return sent, [inflated(message, 1 << 20) for message in received]


def retold(before: dict[str, Any] | None, message: dict[str, Any]) -> bytes:
    """A recorded book as a reply to a request, or as its difference from the previous one."""
    tick, topic = message["tick"], message["ch"].replace(".depth.step0", ".mbp.150")
    if before is None:
        sides, head = tick, f'"rep":"{topic}","status":"ok","data":{{'
    else:
        head = f'"ch":"{topic}","tick":{{"prevSeqNum":{before["version"]},'
        sides = {}
        for side in ("bids", "asks"):
            old, new = dict(before[side]), dict(tick[side])
            gone = [[price, "0.0"] for price in old if price not in new]
            sides[side] = gone + [[*row] for row in new.items() if old.get(row[0]) != row[1]]
    rows = {
        side: ",".join(f"[{price},{amount}]" for price, amount in sides[side])
        for side in ("bids", "asks")
    }
    levels = f'"bids":[{rows["bids"]}],"asks":[{rows["asks"]}]'
    return f'{{{head}"seqNum":{tick["version"]},{levels}}}}}'.encode()


def cut(rows: dict[str, str]) -> list[tuple[str, str]]:
    """Truncate amounts at the 8th decimal, but not to zero."""
    unit = Decimal("1e-8")
    amounts = {price: Decimal(amount) for price, amount in dict(rows).items()}
    return [
        (price, str(max(amount.quantize(unit, ROUND_DOWN), unit) if amount else amount))
        for price, amount in amounts.items()
    ]


@pytest.mark.replayed(
    "htx", "HUOBI.ws.44.0", differs="whole books of another channel, retold as changes"
)
def test_recorded_books_are_those_of_the_exchange_after_each_of_their_differences(
    samples: Path,
) -> None:
    """Amounts are doubles: three books of ten would need more digits than a book holds."""
    frames = [each for each in recorded(samples)[1] if b'.depth.step0","ts":' in each[:60]]
    messages = [json.loads(frame, parse_float=str) for frame in frames]
    natives = dict.fromkeys(message["ch"].split(".")[1] for message in messages)
    instruments = {native: Instrument("htx", native, native) for native in natives}
    connector, reader = EXCHANGE.connector([*instruments.values()]), Reader(EXCHANGE)
    connector.opened()
    before: dict[str, dict[str, Any]] = {}
    changes = 0
    for message in messages:
        native = message["ch"].split(".")[1]
        outputs = list(connector.received(retold(before.get(native), message)))
        before[native] = tick = message["tick"]
        true = Dicts()
        true.replace(cut(tick["bids"]), cut(tick["asks"]))
        reader.read(outputs)
        changes += kinds(outputs) == [Delta]
        assert reader.sides(instruments[native]) == true.sides
    assert (len(messages), len(natives), changes, reader.invalidated) == (292, 10, 279, [])


def test_recorded_pings_are_answered_as_the_recorded_client_did(samples: Path) -> None:
    sent, received = recorded(samples)
    connector = live()
    answers = [connector.received(frame)[0] for frame in received if b"ping" in frame[:7]]  # type: ignore[index]
    assert [answer.frame for answer in answers] == [each for each in sent if b"pong" in each]  # type: ignore[union-attr]
    assert len(answers) == 6
