"""Binance, as conversations: what it says, what we answer."""

import json

import pytest

from onebook.exchanges.binance import EXCHANGE, Binance
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
from onebook.exchanges.sync import FETCHES_MAX, HELD_MAX
from onebook.model import Instrument, InstrumentStatus

BTC = Instrument("binance", "BTC/USDT", "BTCUSDT")
ETH = Instrument("binance", "ETH/USDT", "ETHUSDT")
FETCH_BTC = Fetch(BTC, "/api/v3/depth?symbol=BTCUSDT&limit=1000", 50)
ACK = b'{"result":null,"id":1}'


def event(first: int, final: int, native: str = "BTCUSDT") -> bytes:
    data = {"e": "depthUpdate", "E": 1, "s": native, "U": first, "u": final}
    data |= {"b": [["1.0", f"{final}"]], "a": []}
    return json.dumps({"stream": f"{native.lower()}@depth@100ms", "data": data}).encode()


def body(sequence: int) -> bytes:
    return json.dumps({"lastUpdateId": sequence, "bids": [["1.0", "9"]], "asks": []}).encode()


def acknowledged(*instruments: Instrument) -> Binance:
    connector = Binance(instruments or (BTC,))
    connector.opened()
    connector.received(ACK)
    return connector


def joined(sequence: int = 100) -> Binance:
    connector = acknowledged()
    connector.fetched(BTC, body(sequence))
    return connector


def told(outputs: tuple[Output, ...]) -> list[object]:
    """Outputs in short: the kind, and of deltas the amount, which is `u` here."""
    return [
        bytes(output.bids).decode().split('"')[3] if isinstance(output, Delta) else type(output)
        for output in outputs
    ]


def test_subscribes_many_in_one_frame_and_no_more_than_200() -> None:
    instruments = [Instrument("binance", f"C{rank}/USDT", f"C{rank}USDT") for rank in range(401)]
    frames = [json.loads(out.frame) for out in Binance(instruments).opened() if type(out) is Send]
    assert [len(frame["params"]) for frame in frames] == [200, 200, 1]
    assert [frame["id"] for frame in frames] == [1, 2, 3]
    assert frames[0]["method"] == "SUBSCRIBE"
    assert frames[0]["params"][0] == "c0usdt@depth@100ms"


def test_the_body_is_asked_for_when_the_stream_is_confirmed() -> None:
    connector = Binance([BTC])
    (asked,) = connector.opened()
    assert asked == Send(b'{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms"],"id":1}')
    assert connector.received(ACK) == (Acknowledged(BTC), FETCH_BTC)
    assert connector.received(ACK) == (), "an answer counts once"


def test_a_native_of_any_script_is_quoted_in_the_path() -> None:
    coin = Instrument("binance", "币安/USDT", "币安USDT")
    connector = Binance([coin])
    connector.opened()
    _, fetch = connector.received(ACK)
    assert fetch == Fetch(coin, "/api/v3/depth?symbol=%E5%B8%81%E5%AE%89USDT&limit=1000", 50)


def test_deltas_are_held_until_the_body_and_those_it_contains_are_dropped() -> None:
    connector = acknowledged()
    for first, final in ((90, 95), (96, 100), (101, 105), (106, 106)):
        assert connector.received(event(first, final)) == ()
    assert told(connector.fetched(BTC, body(102))) == [Snapshot, "105", "106"]
    assert told(connector.received(event(107, 109))) == ["109"]
    assert connector.fetched(BTC, body(200)) == (), "a late answer changes nothing"


def test_a_body_that_ends_where_the_first_held_delta_starts_joins() -> None:
    connector = acknowledged()
    connector.received(event(101, 105))
    assert told(connector.fetched(BTC, body(100))) == [Snapshot, "105"]


def test_a_held_delta_that_ends_where_the_body_does_is_contained_in_it() -> None:
    connector = acknowledged()
    for first, final in ((96, 100), (101, 105)):
        connector.received(event(first, final))
    assert told(connector.fetched(BTC, body(100))) == [Snapshot, "105"]


def test_a_body_newer_than_all_that_is_held_stands_alone() -> None:
    connector = acknowledged()
    connector.received(event(101, 105))
    assert told(connector.fetched(BTC, body(110))) == [Snapshot]
    assert connector.received(event(106, 108)) == ()
    assert told(connector.received(event(109, 112))) == ["112"], "the first may overlap the body"


def test_only_the_first_delta_after_the_body_may_overlap() -> None:
    connector = joined(100)
    assert told(connector.received(event(99, 103))) == ["103"]
    assert told(connector.received(event(103, 104))) == [Gap]


def test_a_body_older_than_the_deltas_is_fetched_again_then_given_up() -> None:
    connector = acknowledged()
    connector.received(event(101, 105))
    for _ in range(FETCHES_MAX - 1):
        assert connector.fetched(BTC, body(99)) == (FETCH_BTC,)
    (gap,) = connector.fetched(BTC, body(99))
    assert isinstance(gap, Gap)
    assert connector.resync(BTC) == (FETCH_BTC,)
    assert told(connector.fetched(BTC, body(100))) == [Snapshot, "105"]


def test_a_hole_is_a_gap_and_what_showed_it_is_held() -> None:
    connector = joined(100)
    assert told(connector.received(event(101, 103))) == ["103"]
    (gap,) = connector.received(event(105, 106))
    assert gap == Gap(BTC, "the book is at 103, the delta starts at 105")
    assert connector.resync(BTC) == (FETCH_BTC,)
    assert connector.fetched(BTC, body(103)) == (FETCH_BTC,), "104 is still missing"
    assert told(connector.fetched(BTC, body(104))) == [Snapshot, "106"]


def test_a_delta_told_before_is_ignored() -> None:
    connector = joined(100)
    connector.received(event(101, 103))
    assert connector.received(event(101, 103)) == ()
    assert connector.received(event(90, 95)) == ()


def test_a_hole_among_the_held_deltas_drops_what_lies_before_it() -> None:
    connector = acknowledged()
    for first, final in ((101, 102), (101, 102), (105, 106), (107, 108)):
        connector.received(event(first, final))
    assert connector.fetched(BTC, body(101)) == (FETCH_BTC,)
    assert told(connector.fetched(BTC, body(104))) == [Snapshot, "106", "108"]


def test_held_deltas_have_a_bound_and_the_oldest_go() -> None:
    connector = acknowledged()
    for sequence in range(1, HELD_MAX + 11):
        connector.received(event(sequence, sequence))
    assert connector.fetched(BTC, body(9)) == (FETCH_BTC,)
    assert len(connector.fetched(BTC, body(10))) == HELD_MAX + 1


def test_a_resync_of_a_live_book_refuses_a_body_older_than_the_book_was() -> None:
    connector = joined(100)
    connector.received(event(101, 105))
    assert connector.resync(BTC) == (FETCH_BTC,)
    assert connector.fetched(BTC, body(104)) == (FETCH_BTC,)
    assert told(connector.fetched(BTC, body(105))) == [Snapshot]


def test_a_resync_before_the_confirmation_asks_for_the_stream_again() -> None:
    connector = Binance([BTC])
    connector.opened()
    (asked,) = connector.resync(BTC)
    assert asked == Send(b'{"method":"SUBSCRIBE","params":["btcusdt@depth@100ms"],"id":2}')
    assert connector.received(b'{"result":null,"id":2}') == (Acknowledged(BTC), FETCH_BTC)
    assert connector.received(ACK) == (), "the book is on its way already"


def test_removing_unsubscribes_and_its_answer_says_nothing() -> None:
    connector = acknowledged(BTC, ETH)
    (asked,) = connector.remove([BTC])
    assert asked == Send(b'{"method":"UNSUBSCRIBE","params":["btcusdt@depth@100ms"],"id":2}')
    assert connector.received(b'{"result":null,"id":2}') == ()
    assert connector.received(event(1, 2)) == ()
    assert connector.fetched(BTC, body(1)) == ()
    assert told(connector.fetched(ETH, body(1))) == [Snapshot]


@pytest.mark.parametrize(
    "frame",
    [
        b'{"code":2,"msg":"Invalid request: no such stream","id":1}',
        b'{"error":{"code":2,"msg":"Invalid request: no such stream"},"id":1}',
    ],
)
def test_an_error_refuses_what_its_request_asked_for(frame: bytes) -> None:
    connector = Binance([BTC, ETH])
    connector.opened()
    reason = "Invalid request: no such stream"
    assert connector.received(frame) == (Refused(BTC, reason), Refused(ETH, reason))
    with pytest.raises(ProtocolError, match="no such stream"):
        connector.received(frame)


@pytest.mark.parametrize(
    "frame",
    [
        b'{"stream":"!serverShutdown","data":{"e":"serverShutdown","E":1}}',
        b'{"e":"serverShutdown","E":1}',
    ],
)
def test_an_announced_shutdown_is_passed_on(frame: bytes) -> None:
    (closing,) = joined().received(frame)
    assert isinstance(closing, Closing)


def test_a_damaged_delta_names_its_instrument() -> None:
    with pytest.raises(ProtocolError, match="BTCUSDT") as caught:
        joined().received(event(1, 2).replace(b'"b"', b'"x"'))
    assert caught.value.instrument is BTC


def test_a_number_beyond_64_bits_is_damage() -> None:
    with pytest.raises(ProtocolError) as caught:
        joined().received(event(101, 10**30))
    assert caught.value.instrument is BTC


@pytest.mark.parametrize("bad", [b"<html>", b"[]", b'{"lastUpdateId":"1","bids":[],"asks":[]}'])
def test_a_body_that_is_no_book_names_its_instrument(bad: bytes) -> None:
    with pytest.raises(ProtocolError, match="BTCUSDT") as caught:
        acknowledged().fetched(BTC, bad)
    assert caught.value.instrument is BTC


def test_instruments_are_read_row_by_row() -> None:
    filters = [
        {"filterType": "PRICE_FILTER", "tickSize": "0.01000000", "minPrice": "0.01"},
        {"filterType": "LOT_SIZE", "stepSize": "1.00000000"},
        {"filterType": "ICEBERG_PARTS", "limit": 10},
    ]
    row = {
        "symbol": "BTCUSDT",
        "status": "TRADING",
        "baseAsset": "BTC",
        "quoteAsset": "USDT",
        "isSpotTradingAllowed": True,
        "filters": filters,
    }
    rows = [
        row,
        row | {"symbol": "OLDUSDT", "baseAsset": "OLD", "status": "BREAK", "filters": []},
        row | {"symbol": "FUTURE", "isSpotTradingAllowed": False},
        row | {"baseAsset": None},
        row | {"baseAsset": ""},
        row | {"quoteAsset": "A/B"},
        {"symbol": "HALF"},
        7,
        None,
    ]
    found = EXCHANGE.parse_instruments(json.dumps({"symbols": rows, "timezone": "UTC"}).encode())
    assert [(one.symbol, one.native, one.tick, one.lot) for one in found] == [
        ("BTC/USDT", "BTCUSDT", "0.01", "1"),
        ("OLD/USDT", "OLDUSDT", "", ""),
    ]
    assert [one.status for one in found] == [InstrumentStatus.TRADING, InstrumentStatus.HALTED]
