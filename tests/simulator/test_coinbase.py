"""Conversations with the simulated Coinbase Exchange."""

import json

import pytest

from onebook.simulator.coinbase import Coinbase
from onebook.simulator.kit import Dropped, Now
from simulator.pure import START, Desk

SUBSCRIBE = {
    "type": "subscribe",
    "product_ids": ["BTC-USD"],
    "channels": ["level2_batch", "heartbeat"],
}


def names(message: dict[str, list[dict[str, object]]]) -> dict[object, object]:
    return {channel["name"]: channel["product_ids"] for channel in message["channels"]}


def test_a_subscription_is_listed_then_snapshot_then_changes() -> None:
    desk = Desk("coinbase")
    listed, snapshot = desk.say(SUBSCRIBE)
    assert desk.greeting == []
    assert listed["type"] == "subscriptions"
    assert names(listed) == {"level2_batch": ["BTC-USD"], "heartbeat": ["BTC-USD"]}
    assert (snapshot["type"], snapshot["product_id"]) == ("snapshot", "BTC-USD")
    assert len(snapshot["bids"]) == 400
    [update] = map(json.loads, desk.step())
    assert (update["type"], update["product_id"]) == ("l2update", "BTC-USD")
    for side, price, size in update["changes"]:
        assert side in ("buy", "sell")
        assert len(price.split(".")[1]) == 2
        assert len(size.split(".")[1]) == 8
    [unlisted] = desk.say(SUBSCRIBE | {"type": "unsubscribe"})
    assert names(unlisted) == {}
    assert desk.step() == []


def test_a_channel_may_bring_its_own_products() -> None:
    desk = Desk("coinbase")
    channels = [{"name": "level2_batch", "product_ids": ["ETH-USD"]}]
    answers = desk.say({"type": "subscribe", "channels": channels})
    assert [a["type"] for a in answers] == ["subscriptions", "snapshot"]
    desk.board.muted.add("BTC-USD")
    assert len(desk.say(SUBSCRIBE)) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"product_ids": ["BTC-USD", "NO-NO"]}, "NO-NO is not a valid product"),
        ({"channels": ["level2"]}, "level2 is not a valid channel"),
        ({"type": "x"}, "Type is not valid"),
    ],
)
def test_one_bad_product_refuses_the_whole_request(change: dict[str, object], words: str) -> None:
    desk = Desk("coinbase")
    [error] = desk.say(SUBSCRIBE | change)
    assert (error["type"], error["reason"]) == ("error", words)
    assert desk.session.topics == {}


def test_the_heartbeat_channel_speaks_for_each_product() -> None:
    desk = Desk("coinbase")
    desk.say(SUBSCRIBE | {"product_ids": ["BTC-USD", "ETH-USD"]})
    heartbeats = [json.loads(f) for f in desk.dialect.heartbeat(desk.session, START)]
    assert [(b["type"], b["product_id"]) for b in heartbeats] == [
        ("heartbeat", "BTC-USD"),
        ("heartbeat", "ETH-USD"),
    ]


def test_a_client_that_subscribes_nothing_within_5_s_is_dropped() -> None:
    desk = Desk("coinbase")
    assert desk.dialect.heartbeat(desk.session, Now(START.s + 5, START.ms)) == []
    with pytest.raises(Dropped, match="No subscription"):
        desk.dialect.heartbeat(desk.session, Now(START.s + 5.1, START.ms))


def test_rest_lists_the_products() -> None:
    status, rows = Desk("coinbase").get("/products")
    assert status == 200
    assert rows[0]["id"] == "BTC-USDT"
    assert (rows[0]["quote_increment"], rows[0]["base_increment"]) == ("0.01", "0.00000001")
    assert Desk("coinbase").get("/other") is None


def test_only_book_frames_name_a_book() -> None:
    assert Coinbase.native_of('{"type":"snapshot","product_id":"A"}') == "A"
    assert Coinbase.native_of('{"type":"l2update","product_id":"A"}') == "A"
    for other in ('{"type":"heartbeat","product_id":"A"}', "x"):
        assert Coinbase.native_of(other) is None
