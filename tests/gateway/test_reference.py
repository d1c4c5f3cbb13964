"""The messages for clients of the reference service, and their order."""

import json

from gateway.conversation import KEY
from onebook.gateway import replies
from onebook.gateway.reference import (
    AuthenticationSuccess,
    FormerUsage,
    Greeting,
    RateLimits,
    without_zone,
)

WELCOME = replies.WelcomeSession(
    message="hello",
    session_id="s1",
    user_id=KEY.account_id,
    user_tier=KEY.tier,
    authentication=replies.Authentication("ob_live_AbCd..."),
    limits=replies.Limits(600, 5, 128, 65_536),
)
SUCCESS = AuthenticationSuccess(
    message="Authenticated.",
    session_id="s1",
    user_id=KEY.account_id,
    user_tier=KEY.tier,
    tier=KEY.tier,
    data_usage=FormerUsage(1.0, 50.0, 49.0, 2.0),
    rate_limits=RateLimits(600, 5),
)


def sent(messages):
    return [json.loads(each) for each in messages]


def kinds(messages):
    return [each["type"] for each in sent(messages)]


def test_a_client_that_authenticates_at_once_gets_one_welcome_with_its_session():
    greeting = Greeting()
    welcome, success = sent(greeting.authenticated(WELCOME, SUCCESS, 7))
    assert (welcome["type"], welcome["session_id"]) == ("welcome", "s1")
    assert "authenticate" in welcome["available_commands"]
    assert (success["type"], success["id"]) == ("authentication_success", 7)
    assert greeting.due() == ()


def test_a_client_that_waits_is_welcomed_once_and_then_gets_success_first():
    greeting = Greeting()
    assert kinds(greeting.due()) == ["welcome"]
    assert greeting.due() == ()
    assert kinds(greeting.authenticated(WELCOME, SUCCESS, None)) == [
        "authentication_success",
        "welcome",
    ]


def test_a_repeated_authenticate_is_answered_by_success_alone():
    greeting = Greeting()
    greeting.authenticated(WELCOME, SUCCESS, None)
    assert kinds(greeting.authenticated(WELCOME, SUCCESS, None)) == ["authentication_success"]


def test_times_have_no_zone():
    assert without_zone(1_763_632_800_000_000) == "2025-11-20T10:00:00.000000"
