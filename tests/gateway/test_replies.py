"""A field has the same meaning in all server messages that contain it."""

import sys
from typing import get_args, get_type_hints

import pytest

from gateway.conversation import KEY, shown
from onebook.gateway import replies
from onebook.gateway.messages import MESSAGES
from onebook.gateway.replies import (
    REASON_MEANINGS,
    ExchangeStatus,
    SubscriptionId,
    Text,
    Timestamp,
    UpdateNumber,
)
from onebook.model import Reason

SHARED = {
    "timestamp": Timestamp,
    "message": Text,
    "subscription_id": SubscriptionId,
    "update_number": UpdateNumber,
}


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_field_is_described_the_same_everywhere(name):
    found = [
        get_type_hints(each.body, include_extras=True)[name]
        for each in MESSAGES
        if each.direction == "server" and name in each.body.__struct_fields__
    ]
    assert len(found) > 1
    of_actions = {repr(replies.ActionTimestamp)} if name == "timestamp" else set()
    assert set(map(repr, found)) - of_actions == {repr(SHARED[name])}


def test_on_open_the_server_sends_welcome_with_exactly_the_four_commands(stranger):
    (welcome,) = shown(stranger.client.opened())
    assert welcome["type"] == "welcome"
    assert welcome["available_commands"] == [
        "authenticate",
        "subscribe_aggregated",
        "get_exchanges",
        "get_pairs",
    ]
    assert "session_id" not in welcome


def test_success_is_a_second_welcome_with_session_user_tier_and_limits(stranger):
    (welcome,) = shown(stranger.client.authenticated(KEY, session_id="s1", message_id=1))
    assert welcome == {
        "type": "welcome",
        "message": "Authenticated as basic user.",
        "session_id": "s1",
        "user_id": KEY.account_id,
        "user_tier": "basic",
        "authentication": {"api_key": "ob_live_...", "status": "authenticated"},
        "limits": {
            "requests_per_minute": 600,
            "connections_max": 5,
            "subscriptions_max": 128,
            "message_bytes_max": 65_536,
        },
        "id": 1,
    }
    assert stranger.client.key is KEY


def test_one_exchange_is_said_in_the_singular(alice):
    response = alice.says(type="subscribe_aggregated", symbol="DOGE/USDT")[0]
    assert response["message"] == "Subscribed to DOGE/USDT on 1 exchange."


@pytest.mark.parametrize("client_time", [1, "x", None, {"a": [1]}])
def test_ping_echoes_client_time_and_states_the_last_round_trip(stranger, client_time):
    (pong,) = stranger.says(type="ping", client_time=client_time)
    assert pong == {
        "type": "pong",
        "timestamp": "2025-11-20T10:00:00.000000Z",
        "server_time": "2025-11-20T10:00:00.000000Z",
        "latency_ms": 2.5,
        "client_time": client_time,
    }


@pytest.mark.parametrize("client_time", ["1.10", "1e400", "1763676000000.123456789", '{"a" : [1]}'])
def test_ping_echoes_client_time_byte_by_byte(stranger, client_time):
    text = f'{{"type":"ping","client_time":{client_time}}}'
    (pong,) = stranger.client.received(text, now=stranger.now)
    assert pong.payload.endswith(f'"client_time":{client_time}}}'.encode())


def test_a_ping_of_any_nesting_is_answered_or_refused(stranger):
    kinds = set()
    for depth in range(sys.getrecursionlimit() - 500, sys.getrecursionlimit() + 1):
        text = f'{{"type":"ping","client_time":{"[" * depth}1{"]" * depth}}}'
        (reply,) = stranger.client.received(text, now=stranger.now)
        kinds.add(reply.payload[:15])
        stranger.now_s += 1  # no flood
    assert kinds == {b'{"type":"pong",', b'{"type":"error"'}


def test_ping_without_client_time(stranger):
    assert "client_time" not in stranger.says(type="ping")[0]


def test_the_reasons_of_exchange_status_are_all_documented() -> None:
    documented = get_args(get_type_hints(ExchangeStatus)["reason"])
    assert documented == ("", *Reason)
    for reason in Reason:
        assert reason.isidentifier()
        assert reason.islower()
        assert reason.meaning.endswith(".")
        assert f"`{reason}`: {reason.meaning}" in REASON_MEANINGS
