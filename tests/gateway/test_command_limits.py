"""What a connection may send: messages of its key, authentications, floods, subscriptions."""

import pytest

from gateway.conversation import KEY, assert_error
from onebook.accounts import RateLimiter
from onebook.config import GatewaySettings
from onebook.gateway.command_limits import CommandLimits
from onebook.gateway.effects import EndConnection, VerifyKey


def test_changes_of_subscriptions_are_free_up_to_the_burst_and_then_cost_time():
    settings = GatewaySettings(subscription_changes_per_s=10, subscription_changes_burst=20)
    limits = CommandLimits(settings, RateLimiter())
    assert [limits.change_wait_s(5.0) for _ in range(20)] == [0.0] * 20
    assert limits.change_wait_s(5.0) == pytest.approx(0.1)
    assert limits.change_wait_s(10.0) == 0.0


def test_a_flood_is_what_comes_beyond_the_burst_and_the_rate():
    limits = CommandLimits(GatewaySettings(flood_per_s=10, flood_burst=20), RateLimiter())
    assert [limits.flooded(5.0) for _ in range(21)] == [False] * 20 + [True]
    assert not limits.flooded(6.0)


def test_repeated_authenticate_has_a_limit_of_its_own(alice):
    for _ in range(60):
        assert alice.says(type="authenticate", api_key="k") == [VerifyKey("k")]
    refused = alice.says(type="authenticate", api_key="k", id="r")[0]
    assert (refused["error"], refused["current_limit"]) == ("rate_limit_exceeded", 60)
    assert alice.says(type="ping")[0]["type"] == "pong"
    assert alice.limits.take(KEY.key_id, KEY.tier, alice.now_s).remaining > 590


def test_rate_limit_exceeded_tells_when_to_return(alice):
    for _ in range(600):
        alice.says(type="ping")
    assert_error(
        alice.says(type="ping", id=1),
        "rate_limit_exceeded",
        retry_after=1,
        current_limit=600,
        window="per_minute",
        id=1,
    )


def test_broken_messages_count_too(alice):
    for _ in range(600):
        alice.says("{")
    assert alice.says("{")[0]["error"] == "rate_limit_exceeded"


def test_rate_limit_warning_at_90_percent_of_a_minutes_messages_once(alice):
    answers = [alice.says(type="ping") for _ in range(600)]
    warned = [number for number, answer in enumerate(answers, start=1) if len(answer) == 2]
    assert warned == [540]
    warning = answers[539][0]
    assert warning.pop("message").endswith(".")
    assert warning == {
        "type": "rate_limit_warning",
        "current_rate": 540,
        "limit": 600,
        "window": "per_minute",
        "reset_time": "2025-11-20T10:00:54.000000Z",
    }
    alice.now_s += 30
    assert [len(alice.says(type="ping")) for _ in range(300)].count(2) == 1


def test_a_message_flood_after_the_rate_limit_closes_4113(alice):
    for _ in range(600):
        alice.says(type="ping")
    answers = [alice.says(type="ping") for _ in range(41)]
    assert all(len(answer) == 1 for answer in answers[:40])
    refusal, end = answers[40]
    assert (refusal["error"], end.code) == ("rate_limit_exceeded", 4113)


def test_20_refused_messages_a_second_are_borne(alice):
    for _ in range(600):
        alice.says(type="ping")
    for _ in range(200):
        alice.now_s += 0.05
        for answer in alice.says(type="ping"):
            assert not isinstance(answer, EndConnection)


@pytest.mark.parametrize(
    "message",
    [{"type": "ping"}, {"type": "authenticate", "api_key": "k"}, {"type": "get_pairs"}],
)
def test_a_flood_before_authenticating_closes_4113(stranger, message):
    answers = [stranger.says(**message) for _ in range(41)]
    assert answers[40][-1].code == 4113
