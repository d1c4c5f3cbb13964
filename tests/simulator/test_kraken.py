"""Conversations with the simulated Kraken, protocol v2."""

import json
from decimal import Decimal
from zlib import crc32

from onebook.simulator.kit import Now
from onebook.simulator.kraken import Kraken, checksum
from simulator.pure import START, Desk

PARAMS = {"channel": "book", "symbol": ["BTC/USD"], "depth": 10}
SUBSCRIBE = {"method": "subscribe", "params": PARAMS, "req_id": 4}


def side_of(levels: list[dict[str, Decimal]], book: dict[Decimal, Decimal], *, bids: bool) -> None:
    for level in levels:
        book[level["price"]] = level["qty"]
        if not level["qty"]:
            del book[level["price"]]
    for price in sorted(book, reverse=bids)[10:]:
        del book[price]


def texts(book: dict[Decimal, Decimal], *, bids: bool) -> list[tuple[str, str]]:
    return [(format(p, "f"), format(book[p], "f")) for p in sorted(book, reverse=bids)]


def test_the_checksum_is_over_digits_without_dots_and_leading_zeros() -> None:
    asks = [("45283.4", "1.54582015"), ("45283.5", "0.10000000")]
    bids = [("0.0500", "7.00000000")]
    assert checksum(bids, asks) == crc32(b"45283415458201545283510000000500700000000")


def test_a_client_that_cuts_to_its_depth_agrees_with_every_checksum() -> None:
    desk = Desk("kraken")
    assert desk.greeting[0]["channel"] == "status"
    ack = desk.say(SUBSCRIBE)[0]
    assert ack["result"] == {
        "channel": "book",
        "depth": 10,
        "snapshot": True,
        "symbol": "BTC/USD",
    }
    assert (ack["success"], ack["req_id"]) == (True, 4)
    desk.say({"method": "unsubscribe", "params": PARAMS})
    request = json.dumps(SUBSCRIBE)
    frames = desk.dialect.received(desk.session, request, desk.now)[1:]
    for _ in range(50):
        frames += desk.step()
    bids: dict[Decimal, Decimal] = {}
    asks: dict[Decimal, Decimal] = {}
    kinds = []
    for frame in frames:
        message = json.loads(frame, parse_float=Decimal)
        kinds.append(message["type"])
        [data] = message["data"]
        side_of(data["bids"], bids, bids=True)
        side_of(data["asks"], asks, bids=False)
        assert data["checksum"] == checksum(texts(bids, bids=True), texts(asks, bids=False))
    assert kinds[0] == "snapshot"
    assert set(kinds[1:]) == {"update"}
    assert len(kinds) > 40


def test_each_symbol_has_its_own_answer() -> None:
    desk = Desk("kraken")
    params = PARAMS | {"symbol": ["BTC/USD", "NO/NO", "ETH/USD"], "snapshot": False}
    done, failed, again = desk.say(SUBSCRIBE | {"params": params})
    assert (done["success"], again["success"], failed["success"]) == (True, True, False)
    assert failed["error"] == "Currency pair not supported NO/NO"
    [twice] = desk.say(SUBSCRIBE)
    assert twice["error"] == "Already subscribed"
    [depth] = desk.say(SUBSCRIBE | {"params": PARAMS | {"depth": 7}})
    assert depth["error"] == "Depth not supported"
    params = PARAMS | {"symbol": ["BTC/USD", "SOL/USD"]}
    done, failed = desk.say({"method": "unsubscribe", "params": params})
    assert (done["success"], failed["error"]) == (True, "Subscription Not Found")
    desk.board.muted.add("BTC/USD")
    assert len(desk.say(SUBSCRIBE)) == 1


def test_ping_and_errors() -> None:
    desk = Desk("kraken")
    [pong] = desk.say({"method": "ping", "req_id": 1})
    assert (pong["method"], pong["req_id"]) == ("pong", 1)
    for bad in ("x", {"method": "subscribe", "params": {"channel": "trade"}}):
        assert desk.say(bad)[0]["success"] is False


def test_a_heartbeat_a_second_when_subscribed_whatever_else_is_said() -> None:
    desk = Desk("kraken")
    later = Now(START.s + 1, START.ms)
    assert desk.dialect.heartbeat(desk.session, later) == []
    desk.say(SUBSCRIBE)
    assert desk.dialect.heartbeat(desk.session, later) == ['{"channel":"heartbeat"}']
    desk.session.sent_s = START.s + 0.5
    assert desk.dialect.heartbeat(desk.session, later) == ['{"channel":"heartbeat"}']


def test_a_refusal_can_name_no_symbol_and_a_rate_limit_never_does() -> None:
    desk = Desk("kraken")
    desk.board.refused.add("BTC/USD")
    desk.board.nameless = True
    subscribe = {"channel": "book", "symbol": ["BTC/USD"], "depth": 100}
    [failed] = desk.say({"method": "subscribe", "params": subscribe})
    assert (failed["error"], failed["symbol"]) == ("Subscription depth not supported", "")
    desk.board.limited = 1
    assert desk.say(SUBSCRIBE) == [{"Error": "Exceeded msg rate"}]
    desk.board.refused.clear()
    assert desk.say(SUBSCRIBE)[0]["success"] is True


def test_the_greeting_states_the_state_of_the_trading_engine() -> None:
    desk = Desk("kraken")
    assert desk.greeting[0]["data"][0]["system"] == "online"
    desk.board.system = "maintenance"
    [greeting] = desk.dialect.opened(desk.session, desk.now)
    assert '"system":"maintenance"' in greeting


def test_rest_lists_the_pairs_in_the_old_codes() -> None:
    status, body = Desk("kraken").get("/0/public/AssetPairs")
    assert (status, body["error"]) == (200, [])
    pair = body["result"]["XBTUSD"]
    assert (pair["wsname"], pair["base"], pair["quote"]) == ("XBT/USD", "XXBT", "ZUSD")
    assert (pair["tick_size"], pair["lot_decimals"], pair["status"]) == ("0.1", 8, "online")
    assert body["result"]["XDGUSDT"]["wsname"] == "XDG/USDT"
    assert Desk("kraken").get("/other") is None


def test_only_book_frames_name_a_book() -> None:
    assert Kraken.native_of('{"channel":"book","data":[{"symbol":"A"}]}') == "A"
    for other in ('{"channel":"trade","data":[{"symbol":"A"}]}', '{"channel":"heartbeat"}', "x"):
        assert Kraken.native_of(other) is None
