"""Binance US: the differences from Binance; the protocol is tested in `test_binance`."""

import json

import pytest

from contract.venue import START
from exchanges.sent import Sent
from onebook.exchanges.binanceus import EXCHANGE
from onebook.exchanges.kit import (
    Acknowledged,
    BookRefused,
    Delta,
    Fetch,
    ProtocolError,
    SlowDown,
    Snapshot,
)
from onebook.model import Instrument
from onebook.simulator.binanceus import BinanceUs
from onebook.simulator.kit import ExchangeBoard, SimulatedSession

BNB = Instrument("binanceus", "BNB/BTC", "BNBBTC")
ACK = b'{"result":null,"id":1}'

# Messages of other channels, and what changes no book, as the page prints them.
UNKNOWN_FRAMES = (
    b'{"stream":"btcusdt@trade","data":{"e":"trade","E":123456789,"s":"BNBBTC","t":12345}}',
    b'{"stream":"!ticker@arr","data":[{"e":"24hrTicker","s":"BNBBTC"}]}',
    b'{"stream":"bnbusdt@trade","data":{"e":"trade","s":"BNBUSDT","t":12345,"p":"25.3","q":"31"}}',
    b'{"result":["btcusdt@aggTrade"],"id":99}',
)
EVENT = (
    b'{"stream":"bnbbtc@depth@100ms","data":{"e":"depthUpdate","E":123456789,"s":"BNBBTC",'
    b'"U":157,"u":160,"b":[["0.0024","10"]],"a":[["0.0026","100"]]}}'
)
BODY = (
    b'{"lastUpdateId":%d,"bids":[["4.00000000","431.00000000"]],'
    b'"asks":[["4.00000200","12.00000000"]]}'
)


def test_the_page_s_frames_join_the_page_s_body_which_costs_its_weight() -> None:
    connector = EXCHANGE.connector([BNB])
    asked = b'{"method":"SUBSCRIBE","params":["bnbbtc@depth@100ms","bnbbtc@bookTicker"],"id":1}'
    assert connector.opened() == (Sent(asked),)
    fetch = Fetch(BNB, "/api/v3/depth?symbol=BNBBTC&limit=1000", 10)
    assert connector.received(ACK) == (Acknowledged(BNB), fetch)
    assert connector.received(EVENT) == ()
    assert connector.fetched(BNB, BODY % 155) == (fetch,), "156 is missing"
    snapshot, delta = connector.fetched(BNB, BODY % 156)
    assert isinstance(snapshot, Snapshot)
    assert bytes(snapshot.asks) == b'[["4.00000200","12.00000000"]]'
    assert isinstance(delta, Delta)
    assert (bytes(delta.bids), bytes(delta.asks)) == (b'[["0.0024","10"]]', b'[["0.0026","100"]]')


def test_a_refusal_a_rate_limit_and_a_damaged_frame() -> None:
    connector = EXCHANGE.connector([BNB])
    connector.opened()
    assert connector.received(b'{"code":5,"msg":"Too many requests","id":1}') == (
        SlowDown("Too many requests"),
    )
    reason = "Invalid request: too many parameters"
    connector.resync([BNB])
    refusal = json.dumps({"code": 2, "msg": reason, "id": 2}).encode()
    assert connector.received(refusal) == (BookRefused(BNB, reason),)
    with pytest.raises(ProtocolError, match="BNBBTC") as caught:
        connector.received(EVENT.replace(b'"U":157', b'"U":"x"'))
    assert caught.value.instrument is BNB


@pytest.mark.parametrize("number", ['"a"', "-1", "null", "1.5", "true"])
def test_the_simulated_exchange_refuses_a_request_without_an_unsigned_number(number: str) -> None:
    dialect = BinanceUs(ExchangeBoard(BinanceUs.listings, {}, rules=BinanceUs.rules))
    session = SimulatedSession("/stream", now_s=START.s)
    request = '{"method":"SUBSCRIBE","params":["btcusdt@depth"],"id":%s}'
    (answer,) = dialect.received(session, request % number, START)
    assert json.loads(answer)["code"] == 2
    assert session.topics == {}
    assert dialect.received(session, request % "7", START) == ['{"result":null,"id":7}']


@pytest.mark.derivatives
def test_the_list_is_of_this_exchange_and_of_spot() -> None:
    row = {
        "symbol": "ETHBTC",
        "status": "TRADING",
        "baseAsset": "ETH",
        "quoteAsset": "BTC",
        "isSpotTradingAllowed": True,
        "isMarginTradingAllowed": False,
        "filters": [{"filterType": "PRICE_FILTER", "tickSize": "0.00001000"}],
    }
    yoyo = row | {"symbol": "YOYOBTC", "baseAsset": "YOYO"}
    margin = row | {"symbol": "ADABTC", "isSpotTradingAllowed": False}
    body = json.dumps({"symbols": [row, yoyo, margin]}).encode()
    found = EXCHANGE.parse_instruments(body)
    assert [(one.exchange, one.symbol, one.tick) for one in found] == [
        ("binanceus", "ETH/BTC", "0.00001"),
        ("binanceus", "YOYOW/BTC", "0.00001"),
    ]
