"""Conversations with LBank: its messages and our answers."""

import json
from decimal import Decimal
from typing import Any

import pytest

from contract.oracle import Reader
from exchanges.sent import Sent
from onebook.exchanges.kit import (
    EXPECTED,
    HEARTBEAT,
    Acknowledged,
    BookRefused,
    Connector,
    ProtocolError,
    SlowDown,
    Snapshot,
    Unnamed,
)
from onebook.exchanges.kit.contract import UNKNOWN
from onebook.exchanges.lbank import EXCHANGE
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("lbank", "BTC/USDT", "btc_usdt")
ETH = Instrument("lbank", "ETH/BTC", "eth_btc")

# Messages of other channels, and what changes no book; the examples of the page.
UNKNOWN_FRAMES = (
    b'{"action":"pong","pong":"onebook"}',
    b'{"trade":{"volume":6.3607,"amount":77148.9303,"price":12129,"direction":"sell",'
    b'"TS":"2019-06-28T19:55:49.460"},"type":"trade","pair":"btc_usdt","SERVER":"V2",'
    b'"TS":"2019-06-28T19:55:49.466"}',
    b'{"tick":{"latest":0.02698749},"type":"tick","pair":"eth_btc","SERVER":"V2"}',
    b"{}",
)


def book(pair: str = "btc_usdt", bids: str = "[1,2]", **about: Any) -> bytes:
    members = {"count": 100, "type": "depth", "pair": pair, "SERVER": "V2"}
    members |= {"TS": "2018-08-03T17:32:00.500"} | about
    return f'{{"depth":{{"asks":[[3,4]],"bids":[{bids}]}},{json.dumps(members)[1:]}'.encode()


def asked(action: str, pair: str) -> Sent:
    return Sent(
        f'{{"action":"{action}","subscribe":"depth","depth":"100","pair":"{pair}"}}'.encode()
    )


def error(words: str) -> bytes:
    return json.dumps({"SERVER": "V2", "message": words, "status": "error", "TS": "x"}).encode()


def connected() -> Connector:
    connector = EXCHANGE.connector([BTC, ETH])
    connector.opened()
    return connector


def test_each_pair_has_a_request_and_its_first_book_answers_it() -> None:
    connector = EXCHANGE.connector([BTC, ETH])
    assert connector.opened() == (asked("subscribe", "btc_usdt"), asked("subscribe", "eth_btc"))
    acknowledged, snapshot = connector.received(book("eth_btc"))
    assert acknowledged == Acknowledged(ETH)
    assert isinstance(snapshot, Snapshot)
    assert [type(out) for out in connector.received(book("eth_btc"))] == [Snapshot]
    assert connector.resync([ETH]) == (
        asked("unsubscribe", "eth_btc"),
        asked("subscribe", "eth_btc"),
    )
    assert connector.remove([BTC]) == (asked("unsubscribe", "btc_usdt"),)
    assert connector.received(book()) == ()


def test_numbers_are_numbers_in_any_form() -> None:
    reader = Reader(EXCHANGE)
    reader.read(connected().received(book(bids="[1.5E-7,2],[1E-8,3.25E2]")))
    bids = {Decimal("1.5E-7"): Decimal(2), Decimal("1E-8"): Decimal("325")}
    assert reader.sides(BTC) == (bids, {Decimal(3): Decimal(4)})


def test_the_time_of_a_frame_is_that_of_beijing() -> None:
    (_, snapshot) = connected().received(book())
    assert snapshot.at_ms == 1_533_288_720_500  # type: ignore[union-attr]
    (_, untimed) = connected().received(book(TS="soon"))
    assert untimed.at_ms == 0  # type: ignore[union-attr]


def test_a_ping_is_answered_at_once_with_its_word() -> None:
    ping = b'{"action":"ping","ping":"0ca8f854"}'
    pong = Sent(b'{"action":"pong","pong":"0ca8f854"}', urgent=True)
    assert connected().received(ping) == (pong, *HEARTBEAT)


def test_our_ping_comes_well_within_a_minute_and_its_answer_proves_a_socket_alone() -> None:
    assert EXCHANGE.heartbeat is not None
    assert EXCHANGE.heartbeat.every_s <= 20.0
    assert json.loads(EXCHANGE.heartbeat.frame)["action"] == "ping"
    assert connected().received(b'{"action":"pong","pong":"onebook"}') == EXPECTED


def test_an_error_refuses_the_pair_it_names() -> None:
    words = "Invalid pair: eth_btc"
    assert connected().received(error(words)) == (BookRefused(ETH, words),)
    words = "Missing parameter ['pair']"
    assert connected().received(error(words)) == (Unnamed(words),)
    assert connected().received(error("Too many requests")) == (SlowDown("Too many requests"),)


def test_other_frames_are_ignored() -> None:
    assert connected().received(UNKNOWN_FRAMES[1]) == UNKNOWN


@pytest.mark.parametrize(
    ("frame", "instrument"),
    [
        (book(TS=1), BTC),
        (book("eth_btc").replace(b"asks", b"tasks"), ETH),
        (b'{"asks":[],"bids":[],"count":100,"type":"depth","pair":"btc_usdt"}', BTC),
        (book("xrp_usdt"), None),
        (b'{"type":"depth","pair":7}', None),
    ],
)
def test_a_damaged_frame_names_its_instrument(frame: bytes, instrument: Instrument | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        connected().received(frame)
    assert caught.value.instrument is instrument


ROW = {"symbol": "btc_usdt", "quantityAccuracy": "4", "minTranQua": "0.0001", "priceAccuracy": "2"}


def listed(*rows: object) -> list[Instrument]:
    body = {"result": "true", "data": rows, "error_code": 0, "ts": 1691560288484}
    return EXCHANGE.parse_instruments(json.dumps(body).encode())


def test_instruments_are_read_row_by_row() -> None:
    found = listed(
        ROW,
        ROW | {"symbol": "vet_erc20_btc", "priceAccuracy": "x"},
        ROW | {"symbol": 5},
        {},
        None,
    )
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "btc_usdt", "0.01", "0.0001"),
        ("VEN/BTC", "vet_erc20_btc", "", "0.0001"),
    ]
    assert {one.status for one in found} == {InstrumentStatus.TRADING}


@pytest.mark.derivatives
def test_rows_of_perpetuals_are_no_instruments() -> None:
    row = {"symbol": "BTCUSDT", "baseCurrency": "BTC", "clearCurrency": "USDT", "priceTick": 0.1}
    assert listed(row, ROW | row) == []
