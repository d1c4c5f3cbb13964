"""Every fault, seen from the frames it leaves."""

import json

import pytest

from onebook.simulator.dialects import DIALECTS
from onebook.simulator.faults import FAULTS, HUGE_BYTES
from simulator.pure import Desk

REQUESTS = {
    "binance": {"method": "SUBSCRIBE", "params": ["btcusdt@depth@100ms"], "id": 1},
    "okx": {"op": "subscribe", "args": [{"channel": "books", "instId": "BTC-USDT"}]},
    "bybit": {"op": "subscribe", "args": ["orderbook.200.BTCUSDT"]},
    "coinbase": {
        "type": "subscribe",
        "product_ids": ["BTC-USDT"],
        "channels": ["level2_batch"],
    },
    "kraken": {
        "method": "subscribe",
        "params": {"channel": "book", "symbol": ["BTC/USDT"], "depth": 100},
    },
    "poloniex": {"event": "subscribe", "channel": ["book_lv2"], "symbols": ["BTC_USDT"]},
}


@pytest.fixture(params=DIALECTS)
def desk(request: pytest.FixtureRequest) -> Desk:
    desk = Desk(request.param, "/stream" if request.param == "binance" else "/")
    desk.say(REQUESTS[request.param])
    return desk


def bids_of(desk: Desk, frame: str) -> list[list[str]]:
    """The bids of a book frame as texts, whatever the exchange calls them."""
    message = json.loads(frame, parse_constant=str, parse_float=str, parse_int=str)
    match desk.name:
        case "binance":
            return message["data"]["b"]
        case "bybit":
            return message["data"]["b"]
        case "coinbase":
            return [level[1:] for level in message["changes"] if level[0] == "buy"]
        case "kraken":
            return [[level["price"], level["qty"]] for level in message["data"][0]["bids"]]
    return message["data"][0]["bids"]


def test_a_gap_loses_the_frame_and_uses_its_number(desk: Desk) -> None:
    [channel] = desk.board.followed()
    before = channel.updates
    assert desk.step("gap") == []
    assert channel.updates == before + 1


def test_a_duplicate_comes_twice(desk: Desk) -> None:
    first, second = desk.step("duplicate")
    assert first == second


def test_garbage_is_no_json(desk: Desk) -> None:
    [frame] = desk.step("garbage")
    with pytest.raises(ValueError, match=r"."):
        json.loads(frame)


def test_a_price_that_is_no_number(desk: Desk) -> None:
    [frame] = desk.step("nan")
    assert "NaN" in [level[0] for level in bids_of(desk, frame)]


def test_an_amount_below_zero(desk: Desk) -> None:
    [frame] = desk.step("negative")
    assert "-1" in [level[1] for level in bids_of(desk, frame)]


def test_a_huge_frame_is_one_byte_over_what_feeds_accept(desk: Desk) -> None:
    [frame] = desk.step("huge")
    assert len(frame) == HUGE_BYTES
    json.loads(frame)


def test_a_crossing_bid_comes_as_a_change_of_its_own(desk: Desk) -> None:
    _, frame = desk.step("crossed")
    [channel] = desk.board.followed()
    [[price, _]] = [level[:2] for level in bids_of(desk, frame)]
    assert float(price) > float(channel.top(1).asks[0][0])


def test_a_wrong_symbol_is_another_listed_one(desk: Desk) -> None:
    [frame] = desk.step("wrong_symbol")
    native = desk.dialect.native_of(frame)
    assert native in desk.board.listings
    assert desk.board.listings[native].symbol != "BTC/USDT"


def test_a_wrong_checksum_differs_only_there() -> None:
    one, other = Desk("kraken"), Desk("kraken")
    for desk in (one, other):
        desk.say(REQUESTS["kraken"])
    [true], [false] = one.step(), other.step("checksum")
    assert true != false
    assert true.replace('"checksum":', '"checksum":1') == false


def test_every_fault_has_a_sentence_for_the_help() -> None:
    assert all(fault.__doc__ and fault.__doc__.endswith(".") for fault in FAULTS.values())
