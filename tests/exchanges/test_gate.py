"""Conversations with Gate: its messages and our answers; a recording of its older channel."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from contract.oracle import Dicts, Reader
from contract.recorded import bodies, frames
from onebook.exchanges.gate import EXCHANGE
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    BookRefused,
    Closing,
    Connector,
    Delta,
    Gap,
    Ignored,
    ProtocolError,
    Send,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.exchanges.kit.roster import SENDINGS_MAX
from onebook.model import Instrument, InstrumentStatus
from simulator.pure import Desk

BTC = Instrument("gate", "BTC/USDT", "BTC_USDT")
ETH = Instrument("gate", "ETH/USDT", "ETH_USDT")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"time":1545404023,"channel":"spot.pong","event":"","error":null,"result":null}',
    b'{"time":1671363004,"time_ms":1671363004235,"channel":"spot.book_ticker","event":"update",'
    b'"result":{"t":1671363004228,"u":9793320464,"s":"ob.BTC_USDT.400","b":"16716.8",'
    b'"B":"0.0134","a":"16716.9","A":"0.0353"}}',
    b'{"time":1743673617,"id":1,"channel":"spot.obu","event":"unsubscribe",'
    b'"payload":["ob.BTC_USDT.50"],"result":{"status":"success"}}',
    b'{"time":1770600979,"time_ms":1770600979609,"channel":"spot.system","event":"update","result":'
    b'{"type":"outdated_sbe_schema_id","msg":"Your sbe_schema_id is outdated."}}',
    b"{}",
)

# The page's own frames, at the depth that is asked for.
FULL = (
    b'{"channel":"spot.obu","result":{"t":1747054612673,"full":true,"s":"ob.BTC_USDT.400",'
    b'"u":73777715168,"b":[["104027.1","509392"],["104027","477932"]],'
    b'"a":[["104027.2","44617"],["104027.4","39322"]]},"time_ms":1747054612848}'
)
CHANGE = (
    b'{"channel":"spot.obu","result":{"t":1747054612695,"s":"ob.BTC_USDT.400","U":73777715169,'
    b'"u":73777715212,"b":[["104024.5","10343"],["104014.5","509392"]],'
    b'"a":[["104027.2","0"],["104027.4","0"]]},"time_ms":1747054612925}'
)
REPEATED = (
    b'{"time":1747391482,"time_ms":1747391482960,"id":1,"conn_id":"d9db9373dc5e081e",'
    b'"trace_id":"ee001938590e183db957bd5ba71651c0","channel":"spot.obu","event":"subscribe",'
    b'"payload":["ob.BTC_USDT.400"],"error":{"code":2,"message":"Alert sub ob.BTC_USDT.400"},'
    b'"result":{"status":"fail"}}'
)


def damaged(frame: bytes) -> bytes:
    """Damage the ids: a frame without a level is valid."""
    return frame.replace(b'"u":', b'"u":-')


def obu(final: int, first: int | None = None, **members: Any) -> bytes:
    result = {"t": 5, "s": "ob.BTC_USDT.400", "u": final, "b": [["1", "2"]]}
    result |= {"full": True} if first is None else {"U": first}
    return json.dumps({"channel": "spot.obu", "result": result | members, "time_ms": 6}).encode()


def answer(number: int, words: str = "") -> bytes:
    error = {"error": {"code": 2, "message": words}} if words else {}
    result = {"result": {"status": "fail" if words else "success"}}
    told = {"time": 1, "id": number, "channel": "spot.obu", "event": "subscribe"}
    return json.dumps(told | error | result).encode()


def asked(event: str, number: int, native: str) -> bytes:
    return (
        f'{{"time":1700000000,"id":{number},"channel":"spot.obu","event":"{event}",'
        f'"payload":["ob.{native}.400"]}}'
    ).encode()


def tops(event: str, number: int, *natives: str) -> bytes:
    payload = json.dumps(natives, separators=(",", ":"))
    return (
        f'{{"time":1700000000,"id":{number},"channel":"spot.book_ticker","event":"{event}",'
        f'"payload":{payload}}}'
    ).encode()


def sent(outputs: Iterable[object]) -> list[bytes]:
    return [out.at(1_700_000_000_999) for out in outputs if isinstance(out, Send)]


def live(*, at: int = 10) -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    connector.received(obu(at))
    return connector


def kinds(outputs: Sequence[object]) -> list[type]:
    return [type(output) for output in outputs]


def test_each_stream_is_asked_for_alone_and_accepted_by_its_number() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert sent(connector.opened()) == [
        asked("subscribe", 1, "BTC_USDT"),
        asked("subscribe", 2, "ETH_USDT"),
        tops("subscribe", 3, "BTC_USDT", "ETH_USDT"),
    ]
    assert connector.received(answer(2)) == (Acknowledged(ETH),)
    without_number = answer(1).replace(b'"id": 1', b'"payload": ["ob.BTC_USDT.400"]')
    assert connector.received(without_number) == (Acknowledged(BTC),)
    assert connector.received(answer(1)) == EXPECTED


def test_the_frames_of_the_page_are_read() -> None:
    connector = EXCHANGE.connector([BTC])
    (snapshot,) = connector.received(FULL)
    assert isinstance(snapshot, Snapshot)
    assert bytes(snapshot.bids) == b'[["104027.1","509392"],["104027","477932"]]'
    assert (snapshot.at_ms, snapshot.levels_asked) == (1_747_054_612_673, 0)
    (delta,) = connector.received(CHANGE)
    assert isinstance(delta, Delta)
    assert bytes(delta.asks) == b'[["104027.2","0"],["104027.4","0"]]'
    assert delta.at_ms == 1_747_054_612_695


def test_deltas_follow_and_a_full_frame_replaces_whenever_it_comes() -> None:
    connector = live(at=10)
    assert kinds(connector.received(obu(13, 11))) == [Delta]
    assert connector.received(obu(13, 11)) == ()
    assert kinds(connector.received(obu(14, 14, b=[]))) == [Delta], "no level, and yet a step"
    assert kinds(connector.received(obu(5))) == [Snapshot]
    assert kinds(connector.received(obu(6, 6))) == [Delta]
    assert connector.received(obu(9, 8)) == (Gap(BTC, "the book is at 6, the delta follows 7"),)
    assert connector.received(obu(10, 10)) == ()


def test_resync_unsubscribes_and_subscribes() -> None:
    connector = live()
    again = [
        asked("unsubscribe", 4, "BTC_USDT"),
        tops("unsubscribe", 5, "BTC_USDT"),
        asked("subscribe", 6, "BTC_USDT"),
        tops("subscribe", 7, "BTC_USDT"),
    ]
    assert sent(connector.resync([BTC])) == again
    assert connector.received(obu(11, 11)) == ()


def test_a_refusal_is_about_the_stream_of_its_request() -> None:
    words = "unknown currency pair: ETH_USDT"
    connector = live()
    assert connector.received(answer(2, words)) == (BookRefused(ETH, words),)
    assert connector.received(answer(2, words)) == (Unnamed(words),)
    unnumbered = answer(0, "unknown").replace(b'"id": 0', b'"payload": ["ob.BTC_USDT.400"]')
    assert connector.received(unnumbered) == (BookRefused(BTC, "unknown ob.BTC_USDT.400"),)
    slow = answer(1, "Too many requests")
    assert connector.received(slow) == (SlowDown("Too many requests"),)
    format_error = b'{"error":{"code":1,"message":"Invalid request body format"}}'
    assert connector.received(format_error) == (Unnamed("Invalid request body format"),)


UPGRADE = (
    b'{"time":1770600979,"time_ms":1770600979609,"channel":"spot.system","event":"update",'
    b'"result":{"type":"upgrade","msg":"The connection will soon be closed for a service upgrade. '
    b'Please reconnect."}}'
)


def test_a_notice_of_an_upgrade_announces_the_end() -> None:
    words = "The connection will soon be closed for a service upgrade. Please reconnect."
    assert live().received(UPGRADE) == (Closing(words),)
    assert live().received(UPGRADE.replace(b'"upgrade"', b'"other"')) == UNKNOWN


def test_a_stream_that_is_subscribed_already_is_not_refused() -> None:
    assert live().received(REPEATED) == (Acknowledged(BTC),)


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (obu(11, 11, u="x"), BTC),
        (obu(11, 0), BTC),
        (obu(11, 12), BTC),
        (obu(11, 11, s=5), None),
    ],
    ids=["id", "without_first", "backwards", "stream"],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        live().received(frame)
    assert caught.value.instrument is instrument


def row(**members: Any) -> dict[str, Any]:
    listed = {"id": "BTC_USDT", "base": "BTC", "quote": "USDT", "fee": "0.2", "st_tag": False}
    listed |= {"precision": 1, "amount_precision": 6, "trade_status": "tradable", "type": "normal"}
    return listed | members


def test_instruments_are_read_row_by_row() -> None:
    halted = row(id="GTC_USDT", base="GTC", trade_status="untradable", precision=None)
    one_sided = row(id="OLD_USDT", base="OLD", trade_status="sellable")
    rows = [row(), halted, one_sided, row(id=5), {}, None, row(type="premium")]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTC_USDT", "0.1", "0.000001"),
        ("GAMECOM/USDT", "GTC_USDT", "", "0.000001"),
        ("OLD/USDT", "OLD_USDT", "0.1", "0.000001"),
    ]
    trading, halt = InstrumentStatus.TRADING, InstrumentStatus.HALTED
    assert [one.status for one in found] == [trading, halt, trading]


@pytest.mark.derivatives
def test_rows_of_derivatives_are_no_instruments() -> None:
    future = {"name": "BTC_USDT", "type": "direct", "quanto_multiplier": "0.0001"}
    future |= {"order_price_round": "0.1", "status": "trading", "in_delisting": False}
    assert EXCHANGE.parse_instruments(json.dumps([future]).encode()) == []


def test_the_simulator_refuses_what_gate_refuses() -> None:
    desk = Desk("gate")
    request = {"time": 1, "id": 7, "channel": "spot.obu", "event": "subscribe"}
    request |= {"payload": ["ob.BTC_USDT.400"]}
    ack, full = desk.say(request)
    assert (ack["id"], ack["result"], full["result"]["full"]) == (7, {"status": "success"}, True)
    (again,) = desk.say(request)
    assert again["error"] == {"code": 2, "message": "Alert sub ob.BTC_USDT.400"}
    (depth,) = desk.say(request | {"payload": ["ob.BTC_USDT.20"]})
    assert depth["result"] == {"status": "fail"}
    (untimed,) = desk.say({"channel": "spot.ping"})
    assert untimed["error"]["code"] == 1
    assert [each["channel"] for each in desk.say({"time": 1, "channel": "spot.ping"})] == [
        "spot.pong"
    ]


@pytest.mark.replayed(
    "gate", "GATEIO.ws.1.0", differs="of the older channel, retold in the shape of this one"
)
def test_recorded_deltas_of_the_older_channel_chain_and_equal_dicts(samples: Path) -> None:
    """Its ids and levels are those of the newer one; the seed came by REST, not as a frame."""
    seeds = {native: json.loads(body) for native, body in bodies(samples, "GATEIO.http.0.0")}
    books = {native: Instrument("gate", native, native) for native in seeds}
    connector, reader = EXCHANGE.connector([*books.values()]), Reader(EXCHANGE)
    truth = {native: Dicts() for native in seeds}
    for native, seed in seeds.items():
        sides = {"b": seed["bids"], "a": seed["asks"]}
        reader.read(connector.received(obu(seed["id"], s=f"ob.{native}.400", **sides)))
        truth[native].replace(seed["bids"], seed["asks"])
    told = followed = 0
    for frame in frames(samples, "GATEIO.ws.1.0"):
        message = json.loads(frame)
        if message["channel"] != "spot.order_book_update" or message["event"] != "update":
            assert all(out in EXPECTED or not out.known for out in connector.received(frame))
            continue
        told += 1
        change = message["result"]
        native, known = change["s"], seeds[change["s"]]["id"]
        if change["u"] <= known:
            continue
        followed += 1
        first, sides = max(change["U"], known + 1), {"b": change["b"], "a": change["a"]}
        frame = obu(change["u"], first, s=f"ob.{native}.400", **sides)
        reader.read(connector.received(frame))
        truth[native].apply(change["b"], change["a"])
        assert reader.sides(books[native]) == truth[native].sides
    assert (told, followed, len(truth), reader.invalidated) == (172, 159, 10, [])


# A frame that ccxt has in a comment, with the `u` of its time.
TICKER = (
    b'{"time":1671363004,"time_ms":1671363004235,"channel":"spot.book_ticker","event":"update",'
    b'"result":{"t":1671363004228,"u":9793320464,"s":"BTC_USDT","b":"16716.8","B":"0.0134",'
    b'"a":"16716.9","A":"0.0353"}}'
)


def test_a_ticker_is_a_top_of_the_ids_of_the_book() -> None:
    bids, asks = b'[["16716.8","0.0134"]]', b'[["16716.9","0.0353"]]'
    top = TopOfBook(BTC, 9793320464, bids, asks, at=1671363004228)
    assert live().reader()(TICKER) == top


def test_a_price_without_text_is_an_empty_side() -> None:
    empty = TICKER.replace(b'"16716.8","B":"0.0134"', b'"","B":""')
    top = TopOfBook(BTC, 9793320464, b"[]", b'[["16716.9","0.0353"]]', at=1671363004228)
    assert live().reader()(empty) == top


def test_refused_tickers_cost_no_book() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    words = "unknown currency pair: ETH_USDT"
    error = {"code": 2, "message": words}
    frame = {"id": 3, "channel": "spot.book_ticker", "event": "subscribe", "error": error}
    assert connector.received(json.dumps(frame).encode()) == (Ignored(known=True, refused=words),)


def test_tickers_that_a_server_error_refuses_are_requested_again_a_few_times() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    requests = [json.loads(each) for each in sent(connector.opened())]
    number = next(each["id"] for each in requests if each["channel"] == "spot.book_ticker")
    error = {"code": 3, "message": "server error"}
    numbers = [number]
    while True:
        frame = {"id": number, "channel": "spot.book_ticker", "event": "subscribe", "error": error}
        pause, *again = connector.received(json.dumps(frame).encode())
        if not again:
            break
        assert pause == SlowDown("server error")
        (repeated,) = sent(again)
        number = json.loads(repeated)["id"]
        assert repeated == tops("subscribe", number, "BTC_USDT", "ETH_USDT")
        numbers.append(number)
    assert pause == Ignored(known=True, refused="server error")
    assert len({*numbers}) == len(numbers) == SENDINGS_MAX
    assert connector.received(json.dumps(frame).encode()) == (pause,), "answered already"
