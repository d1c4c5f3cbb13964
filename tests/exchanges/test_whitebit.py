"""Conversations with WhiteBIT: its messages and our answers."""

import json
from typing import Any

import pytest

from contract.talk import Talk
from exchanges.sent import Sent
from onebook.exchanges.kit import (
    EXPECTED,
    Acknowledged,
    Alive,
    BookRefused,
    Connector,
    Delta,
    Gap,
    Ignored,
    ProtocolError,
    SlowDown,
    Snapshot,
    TopOfBook,
    Unnamed,
)
from onebook.exchanges.whitebit import EXCHANGE
from onebook.model import Instrument, InstrumentStatus
from onebook.simulator.whitebit import Whitebit

BTC = Instrument("whitebit", "BTC/USDT", "BTC_USDT")
ETH = Instrument("whitebit", "ETH/BTC", "ETH_BTC")

# Messages of other channels, and what changes no book.
UNKNOWN_FRAMES = (
    b'{"id":0,"result":"pong","error":null}',
    b'{"id":99,"result":{"status":"success"},"error":null}',
    b'{"method":"trades_update","params":["BTC_USDT",[{"id":1,"price":"1","amount":"1"}]],"id":null}',
    b'{"method":"lastprice_update","params":["BTC_USDT","23"],"id":null}',
    b'{"id":11,"result":{"timestamp":1689600180.516447,"asks":[["2","1"]],"bids":[]},"error":null}',
    b"{}",
)


def book(full: bool, sequence: int | None, previous: int | None = None, **sides: object) -> bytes:
    change: dict[str, object] = {"timestamp": 1689600180.516447, "event_time": 1749026542.817343}
    change |= {} if sequence is None else {"update_id": sequence}
    change |= {} if previous is None else {"past_update_id": previous}
    change |= sides or {"asks": [["0.020846", "29.369"]], "bids": [["0.02083", "0"]]}
    params = [full, change, "BTC_USDT"]
    return json.dumps({"id": None, "method": "depth_update", "params": params}).encode()


def failed(code: int, message: str, number: int | None) -> bytes:
    error = {"code": code, "message": message}
    return json.dumps({"id": number, "result": None, "error": error}).encode()


def success(number: int) -> bytes:
    return b'{"id":%d,"result":{"status":"success"},"error":null}' % number


def opened() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def live(*, at: int = 10) -> Connector:
    connector = opened()
    connector.received(success(1))
    connector.received(book(True, at))
    return connector


def kinds(outputs: Any) -> list[type]:
    return [type(output) for output in outputs]


def test_each_market_has_a_request_that_keeps_the_others() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (
        Sent(b'{"id":1,"method":"depth_subscribe","params":["BTC_USDT",100,"0",true]}'),
        Sent(b'{"id":2,"method":"depth_subscribe","params":["ETH_BTC",100,"0",true]}'),
        Sent(b'{"id":3,"method":"bookTicker_subscribe","params":["BTC_USDT","ETH_BTC"]}'),
    )
    assert connector.received(success(2)) == (Acknowledged(ETH),)
    assert connector.received(success(2)) == EXPECTED


def test_an_update_follows_the_id_it_names_however_far_it_leaps() -> None:
    connector = live(at=214_403)
    assert kinds(connector.received(book(False, 214_410, 214_403))) == [Delta]
    assert kinds(connector.received(book(False, 214_499, 214_410))) == [Delta]
    assert connector.received(book(False, 214_600, 214_500)) == (
        Gap(BTC, "the book is at 214499, the delta follows 214500"),
    )
    assert kinds(connector.received(book(True, 214_600))) == [Snapshot]


def test_frames_without_an_id_are_followed_unchained() -> None:
    connector = opened()
    connector.received(success(1))
    assert connector.received(book(False, None)) == (), "nothing before a full book"
    assert kinds(connector.received(book(True, None))) == [Snapshot]
    assert kinds(connector.received(book(False, None))) == [Delta]
    assert kinds(connector.received(book(True, None))) == [Snapshot, Alive]
    assert kinds(connector.received(book(False, 12, 11))) == [Delta], "ids may come back"
    assert kinds(connector.received(book(False, 14, 13))) == [Gap]


def test_a_chained_book_follows_a_frame_without_an_id_and_is_chained_again_after_it() -> None:
    connector = live(at=10)
    assert kinds(connector.received(book(False, None))) == [Delta]
    assert kinds(connector.received(book(False, 13, 12))) == [Delta]
    assert kinds(connector.received(book(False, 15, 14))) == [Gap]


@pytest.mark.parametrize("numbered", [True, False], ids=["numbered", "without-ids"])
def test_the_replayed_book_equals_the_exchange_s_with_and_without_ids(
    numbered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Whitebit, "numbered", numbered)
    talk = Talk("whitebit", seed=5).open()
    assert (b"update_id" in talk.venue.changed(talk.instruments[0].native)) is numbered
    talk = Talk("whitebit", seed=5).open()
    for _ in range(50):
        talk.change(talk.venue.random.choice(talk.instruments).native)
        talk.check()
    assert talk.reader.invalidated == []


def test_a_full_book_of_a_live_one_replaces_it_and_is_its_heartbeat() -> None:
    connector = live(at=10)
    snapshot, alive = connector.received(book(True, 12))
    assert isinstance(snapshot, Snapshot)
    assert alive == Alive(BTC)
    assert kinds(connector.received(book(False, 13, 12))) == [Delta]


def test_a_side_that_did_not_change_is_absent() -> None:
    (delta,) = live(at=10).received(book(False, 11, 10, asks=[["2", "0"]]))
    assert isinstance(delta, Delta)
    assert (bytes(delta.bids), bytes(delta.asks)) == (b"[]", b'[["2", "0"]]')


def test_the_time_of_a_frame_is_that_of_its_event() -> None:
    connector = live(at=10)
    for frame in (book(False, 11, 10), book(True, 12)):
        assert connector.received(frame)[0].at_ms == 1_749_026_542_817  # type: ignore[index]


def test_a_resync_subscribes_again_and_unsubscribes_nothing() -> None:
    connector = live(at=10)
    assert connector.resync([BTC]) == (
        Sent(b'{"id":4,"method":"depth_subscribe","params":["BTC_USDT",100,"0",true]}'),
    )
    assert connector.received(book(False, 11, 10)) == ()
    assert connector.received(success(4)) == (Acknowledged(BTC),)
    assert kinds(connector.received(book(True, 11))) == [Snapshot]
    assert kinds(connector.received(book(False, 12, 11))) == [Delta]
    assert connector.remove([BTC]) == (
        Sent(b'{"id":5,"method":"depth_unsubscribe","params":["BTC_USDT"]}'),
        Sent(b'{"id":6,"method":"bookTicker_unsubscribe","params":["BTC_USDT"]}'),
    )


def test_an_error_refuses_the_market_of_its_request() -> None:
    words = "market ETH_BTC does not exist"
    left = Sent(b'{"id":4,"method":"bookTicker_subscribe","params":["BTC_USDT"]}')
    assert opened().received(failed(9, words, 2)) == (BookRefused(ETH, words), left)
    assert opened().received(failed(1, "invalid argument", 1)) == (
        BookRefused(BTC, "invalid argument"),
        Sent(b'{"id":4,"method":"bookTicker_subscribe","params":["ETH_BTC"]}'),
    )
    assert live().received(failed(1, "invalid argument", None)) == (Unnamed("invalid argument"),)


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "service unavailable"), (5, "service timeout"), (7, "too many requests")],
)
def test_an_error_that_passes_refuses_nothing(code: int, words: str) -> None:
    expected = SlowDown(words) if code == 7 else SlowDown(words, True, (BTC,))
    assert opened().received(failed(code, words, 1)) == (expected,)


def test_the_heartbeat_comes_before_the_sixty_seconds() -> None:
    assert EXCHANGE.heartbeat is not None
    assert json.loads(EXCHANGE.heartbeat.frame) == {"id": 0, "method": "ping", "params": []}
    assert EXCHANGE.heartbeat.every_s < 50.0
    pong = b'{"id":0,"result":"pong","error":null}'
    assert live().received(pong) == EXPECTED, "it proves a socket and no data"


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(False, 11), BTC),
        (book(False, 11, 10, sides=[]), BTC),
        (book(False, 2**63, 10), BTC),
        (book(True, 11).replace(b"1749026542", b"17490265420"), BTC),
        (book(True, 11).replace(b"true", b"1"), BTC),
        (b'{"id":null,"method":"depth_update","params":[true,{}]}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError, match="damaged") as caught:
        live(at=10).received(frame)
    assert caught.value.instrument is instrument


ROW = {"name": "BTC_USDT", "stock": "BTC", "money": "USDT", "stockPrec": "6", "moneyPrec": "2"} | {
    "tradesEnabled": True,
    "type": "spot",
}


def test_instruments_are_read_row_by_row() -> None:
    rows = [
        ROW,
        ROW | {"name": "A_USDT", "tradesEnabled": False, "stockPrec": "", "moneyPrec": "x"},
        ROW | {"name": 5},
        {},
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps(rows).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTC_USDT", "0.01", "0.000001"),
        ("BTC/USDT", "A_USDT", "", ""),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]


@pytest.mark.derivatives
@pytest.mark.parametrize("kind", ["futures", "margin", "tradfi"])
def test_rows_of_derivatives_are_no_instruments(kind: str) -> None:
    rows = [ROW | {"name": "BTC_PERP", "type": kind}]
    assert EXCHANGE.parse_instruments(json.dumps(rows).encode()) == []


# The page's frame, of another market.
TICKER = (
    b'{"id":null,"method":"bookTicker_update","params":[[1751958383.593387,1751958383.593557,'
    b'"BTC_USDT",80670102,"0.000011751","12547000","0.000011776","17424000"]]}'
)


def test_a_ticker_is_a_top_of_the_ids_of_the_book() -> None:
    assert live().reader()(TICKER) == TopOfBook(
        BTC,
        80670102,
        b'[["0.000011751","12547000"]]',
        b'[["0.000011776","17424000"]]',
        at=1751958383593557,
    )


def test_refused_tickers_cost_no_book() -> None:
    words = "market ETH_BTC does not exist"
    assert opened().received(failed(9, words, 3)) == (Ignored(known=True, refused=words),)
