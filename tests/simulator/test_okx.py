"""Conversations with the simulated OKX."""

import json

from onebook.simulator.okx import Okx
from simulator.pure import Desk

ARG = {"channel": "books", "instId": "BTC-USDT"}
ACK = {"event": "subscribe", "arg": ARG, "connId": "5f2c1a9b"}


def test_a_subscription_is_acknowledged_then_the_snapshot_then_chained_updates() -> None:
    desk = Desk("okx")
    ack, snapshot = desk.say({"op": "subscribe", "args": [ARG]})
    assert (desk.greeting, ack) == ([], ACK)
    assert (snapshot["arg"], snapshot["action"]) == (ARG, "snapshot")
    [book] = snapshot["data"]
    assert (book["prevSeqId"], book["checksum"]) == (-1, 0)
    assert len(book["bids"]) == len(book["asks"]) == 400
    assert all(len(level) == 4 and level[2] == "0" for level in book["bids"])
    last = book["seqId"]
    for _ in range(5):
        [update] = map(json.loads, desk.step())
        assert update["action"] == "update"
        [data] = update["data"]
        assert data["prevSeqId"] == last
        assert data["seqId"] > last
        last = data["seqId"]
        assert all((size == "0") == (orders == "0") for _, size, _, orders in data["asks"])


def test_several_arguments_each_have_their_own_answer() -> None:
    desk = Desk("okx")
    other = {"channel": "books", "instId": "ETH-USDT"}
    wrong = {"channel": "books", "instId": "NO-NO"}
    events = desk.say({"op": "subscribe", "args": [ARG, wrong, other]})
    assert [e.get("event", e.get("action")) for e in events] == [
        "subscribe",
        "snapshot",
        "error",
        "subscribe",
        "snapshot",
    ]
    assert events[2]["code"] == "60018"
    assert "instId:NO-NO doesn't exist" in events[2]["msg"]


def test_only_after_unsubscribing_does_a_second_snapshot_make_sense() -> None:
    desk = Desk("okx")
    desk.say({"op": "subscribe", "args": [ARG]})
    assert desk.say({"op": "unsubscribe", "args": [ARG]}) == [ACK | {"event": "unsubscribe"}]
    assert desk.step() == []
    assert len(desk.say({"op": "subscribe", "args": [ARG]})) == 2


def test_an_acknowledgement_is_not_data() -> None:
    desk = Desk("okx")
    desk.board.muted.add("BTC-USDT")
    assert desk.say({"op": "subscribe", "args": [ARG]}) == [ACK]
    assert desk.step() == []


def test_heartbeat_and_errors() -> None:
    desk = Desk("okx")
    assert desk.say("ping") == ["pong"]
    assert desk.say({"op": "what"})[0]["code"] == "60012"
    assert desk.say("nonsense")[0]["code"] == "60012"
    many = [ARG] * 2_000
    assert desk.say({"op": "subscribe", "args": many})[0]["code"] == "60013"
    assert desk.dialect.heartbeat(desk.session, desk.now) == []


def test_an_unchanged_book_sends_an_empty_update_each_minute() -> None:
    desk = Desk("okx")
    desk.say({"op": "subscribe", "args": [ARG]})
    desk.step()
    last = desk.board.followed()[0].sequence
    seen = []
    for second in range(1, 190):
        later = desk.now._replace(s=desk.now.s + second)
        seen += [
            (second, json.loads(f)["data"][0]) for f in desk.dialect.heartbeat(desk.session, later)
        ]
    assert [second for second, _ in seen] == [61, 121, 181]
    for _, data in seen:
        assert (data["bids"], data["asks"]) == ([], [])
        assert data["prevSeqId"] == data["seqId"] == last


def test_more_requests_than_an_hour_allows_are_answered_by_an_error_without_a_name() -> None:
    desk = Desk("okx")
    answers = [desk.say({"op": "unsubscribe", "args": [ARG]})[0] for _ in range(481)]
    assert [answer["event"] for answer in answers[:480]] == ["unsubscribe"] * 480
    assert (answers[480]["code"], "instId" in answers[480]["msg"]) == ("60014", False)
    desk.now = desk.now._replace(s=desk.now.s + 3_601)
    assert desk.say({"op": "unsubscribe", "args": [ARG]})[0]["event"] == "unsubscribe"


def test_rest_lists_the_instruments() -> None:
    status, body = Desk("okx").get("/api/v5/public/instruments", instType="SPOT")
    assert (status, body["code"]) == (200, "0")
    assert body["data"][0] == {
        "instType": "SPOT",
        "instId": "BTC-USDT",
        "baseCcy": "BTC",
        "quoteCcy": "USDT",
        "state": "live",
        "tickSz": "0.1",
        "lotSz": "0.00000001",
        "minSz": "0.00000001",
    }
    assert Desk("okx").get("/other") is None


def test_only_books_frames_name_a_book() -> None:
    assert Okx.native_of('{"arg":{"channel":"books","instId":"A"},"data":[]}') == "A"
    for other in (
        '{"arg":{"channel":"trades","instId":"A"},"data":[]}',
        '{"event":"subscribe","arg":{"channel":"books","instId":"A"}}',
        "pong",
    ):
        assert Okx.native_of(other) is None
