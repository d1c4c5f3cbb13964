"""Conversations with the simulated Bitfinex about its book channel."""

import json
from binascii import crc32
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import pytest

from onebook.simulator.bitfinex import Bitfinex, _number
from onebook.simulator.kit import Now
from simulator.pure import START, Desk

BTC = {"event": "subscribe", "channel": "book", "symbol": "tBTCUST", "len": "25", "subId": 7}
ALL = {"event": "conf", "flags": 229_376}


def published_frames(desk: Desk) -> list[Any]:
    """The frames of a step as the client gets them, numbers as texts."""
    published = desk.step()
    frames = desk.session.formed(published, "") if published else []
    return [json.loads(each, parse_float=str, parse_int=str) for each in frames]


def test_a_client_that_puts_each_level_agrees_with_every_checksum() -> None:
    desk = Desk("bitfinex")
    assert desk.greeting[0]["platform"] == {"status": 1}
    assert desk.say(ALL) == [{"event": "conf", "status": "OK", "flags": 229_376}]
    request = json.dumps(BTC)
    ack, text = desk.dialect.received(desk.session, request, desk.now)
    assert json.loads(ack) == BTC | {
        "event": "subscribed",
        "prec": "P0",
        "freq": "F0",
        "chanId": 10_092,
        "pair": "BTCUST",
    }
    channel, rows, number, at = json.loads(text, parse_float=str, parse_int=str)
    assert (channel, number, at) == ("10092", "1", str(START.ms))
    sides: tuple[dict[Decimal, tuple[str, str]], ...] = ({}, {})
    checked = 0
    for round_ in range(1, 40):
        for price, count, amount in rows:
            side = sides[amount.startswith("-")]
            side[Decimal(price)] = (price, amount)
            if count == "0":
                assert amount in ("1", "-1")
                del side[Decimal(price)]
        assert max(map(len, sides)) <= 25
        numbers = [int(number)]
        now = Now(START.s + round_ * 2.5, START.ms)
        for frame in map(json.loads, desk.dialect.heartbeat(desk.session, now)):
            numbers.append(frame[-2])
            if frame[1] == "cs":
                best = zip_longest(sorted(sides[0], reverse=True), sorted(sides[1]))
                both = [(sides[n][p]) for turn in best for n, p in enumerate(turn) if p is not None]
                assert frame[2] % 2**32 == crc32(":".join(map(":".join, both)).encode())
                checked += 1
        changes = published_frames(desk)
        assert all(isinstance(each[1][0], str) for each in changes), "a level a frame"
        numbers += [int(each[-2]) for each in changes]
        assert numbers == [*range(numbers[0], numbers[0] + len(numbers))]
        rows, number = [each[1] for each in changes], numbers[-1]
    assert checked > 30


def test_frames_end_as_the_client_asked() -> None:
    for flags, end in ((0, []), (65_536, [1]), (32_768, [START.ms]), (98_304, [1, START.ms])):
        desk = Desk("bitfinex")
        if flags:
            desk.say({"event": "conf", "flags": flags})
        assert desk.say(BTC)[1][2:] == end


def test_heartbeats_come_for_every_channel_each_15_s() -> None:
    desk = Desk("bitfinex")
    desk.say({"event": "conf", "flags": 65_536})
    desk.say(BTC)
    desk.say(BTC | {"symbol": "tDOGE:UST"})
    assert desk.dialect.heartbeat(desk.session, Now(START.s + 14, START.ms)) == []
    heartbeats = desk.dialect.heartbeat(desk.session, Now(START.s + 15, START.ms))
    assert heartbeats == ['[10092,"hb",3]', '[10094,"hb",4]']


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"symbol": "tNOTHING"}, 10_300),
        ({"len": "50"}, 10_300),
        ({"prec": "R0"}, 10_300),
        ({"channel": "nothing"}, 10_302),
        ({"event": "nonsense"}, 10_000),
        ({"event": "unsubscribe", "chanId": 5}, 10_401),
    ],
    ids=["symbol", "length", "precision", "channel", "event", "unsubscription"],
)
def test_what_is_refused(request_: dict[str, object], code: int) -> None:
    [error] = Desk("bitfinex").say(BTC | request_)
    assert (error["event"], error["code"]) == ("error", code)


def test_a_refusal_repeats_the_request_or_names_nothing() -> None:
    desk = Desk("bitfinex")
    desk.say(BTC)
    [twice] = desk.say(BTC)
    assert (twice["code"], twice["symbol"], twice["subId"]) == (10_301, "tBTCUST", 7)
    desk.board.refused.add("tETHUST")
    desk.board.nameless = True
    [nameless] = desk.say(BTC | {"symbol": "tETHUST"})
    assert nameless == {"event": "error", "msg": "symbol: invalid", "code": 10_300}
    desk.board.limited = 1
    assert desk.say(BTC)[0]["code"] == 11_010
    desk.session.topics |= {str(n): desk.session.topics["tBTCUST"] for n in range(24)}
    assert desk.say(BTC | {"symbol": "tSOLUST"})[0]["code"] == 10_305


def test_unsubscribing_and_ping() -> None:
    desk = Desk("bitfinex")
    desk.say(BTC)
    [left] = desk.say({"event": "unsubscribe", "chanId": 10_092})
    assert left == {"event": "unsubscribed", "status": "OK", "chanId": 10_092}
    assert desk.session.topics == {}
    assert desk.say({"event": "ping", "cid": 1})[0]["event"] == "pong"
    assert desk.say("x")[0]["code"] == 10_000


def test_the_configuration_lists_what_the_path_names() -> None:
    status, (pairs,) = Desk("bitfinex").get("/v2/conf/pub:list:pair:exchange")
    assert status == 200
    assert {"BTCUST", "DOGE:UST", "ETHBTC"} <= set(pairs)
    assert Desk("bitfinex").get("/other") is None


def test_numbers_are_as_javascript_writes_them() -> None:
    written = [_number(text) for text in ("10", "0.000001", "0.00000015", "0.00000001", "NaN")]
    assert written == ["10", "0.000001", "1.5e-7", "1e-8", "NaN"]


def test_only_frames_of_levels_name_a_book() -> None:
    assert Bitfinex.native_of("[10092,[1,1,1],1]") == "tBTCUST"
    assert Bitfinex.native_of("[10093,[[1,1,1]],1]") == "tETHUST"
    for other in ('[10092,"hb",1]', "[1,[1,1,1],1]", "{}", "x"):
        assert Bitfinex.native_of(other) is None
