"""Commands in, replies and effects out: rows of contract section 2."""

import json

import pytest

from gateway.conversation import KEY, Conversation, assert_error, shown
from gateway.rig import SYMBOL, gateway, settled
from onebook.accounts import RateLimiter
from onebook.config import AccountsSettings, GatewaySettings, TierLimits, TierSettings
from onebook.gateway import GatewayLimits
from onebook.gateway.effects import (
    CloseView,
    EndConnection,
    FetchBook,
    OpenView,
    ResendBook,
    VerifyKey,
)
from onebook.gateway.messages import CLIENT_MESSAGES
from onebook.gateway.processor import NONE_SUBSCRIBED, CommandLimits, KeyViews
from onebook.model import Tier
from onebook.streams import StreamKey, ViewOptions


def test_authenticate_verifies_the_key_and_never_shows_it(stranger):
    (verify,) = stranger.says(type="authenticate", api_key="ob_live_secret", id=1)
    assert verify == VerifyKey("ob_live_secret", 1)
    assert "secret" not in repr(verify)


def test_repeated_authenticate_is_answered_and_the_session_stays(alice):
    (verify,) = alice.says(type="authenticate", api_key="k")
    assert verify == VerifyKey("k")
    (welcome,) = shown(alice.client.authenticated(KEY, session_id="s2"))
    assert welcome["session_id"] == "s1"


@pytest.mark.parametrize("kind", sorted({*CLIENT_MESSAGES, "nonsense"} - {"authenticate", "ping"}))
def test_anything_but_authenticate_and_ping_before_authenticating_is_refused(stranger, kind):
    assert_error(stranger.says(type=kind, symbol="BTC/USDT"), "authentication_required")


def test_an_authenticate_without_a_key_names_the_field(stranger):
    (refusal,) = stranger.says(type="authenticate")
    assert refusal["error"] == "invalid_parameters"
    assert "api_key" in refusal["message"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "{",
        "[]",
        "1",
        "null",
        '"ping"',
        '{"type": 1}',
        "{}",
        '{"type": null}',
        "[" * 9_999,
        '{"type":1,"x":' + "[" * 9_999,
    ],
)
def test_invalid_message_is_not_a_json_object_or_has_no_type_and_the_connection_stays(alice, text):
    (refusal,) = alice.says(text)
    assert refusal["error"] == "invalid_message"
    assert alice.says(type="ping")[0]["type"] == "pong"


@pytest.mark.parametrize(
    "text", ['{"type":[],"id":7}', '{"id":7,"type":1}', '{"action":{},"id":7}']
)
def test_an_invalid_message_keeps_its_id(alice, text):
    assert alice.says(text)[0]["id"] == 7


def test_unknown_type(alice):
    assert_error(alice.says(type="dance"), "unknown_type")


def test_subscribe_answers_with_what_was_accepted_and_opens_the_stream(alice):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", exchanges="all")
    key = StreamKey("BTC/USDT", ("binance", "kraken", "okx"))
    assert opened == OpenView(key, None)
    assert response == {
        "type": "aggregated_subscription_response",
        "symbol": "BTC/USDT",
        "exchanges": ["binance", "kraken", "okx"],
        "requested": "all",
        "success": True,
        "message": "Subscribed to BTC/USDT on 3 exchanges.",
        "subscription_id": key.id,
        "rejected": [],
        "options": {
            "depth": 20,
            "interval_ms": 100,
            "mode": "full",
            "levels": "object",
            "split": False,
            "group": None,
            "ages": False,
            "coverage": False,
            "fill": None,
        },
        "expected_gb_per_30_days": None,  # a new view has no rate yet
    }


SECRETS = ["ob_live_" + "aB3" * 16 + "z", "obs_" + "aB3" * 14 + "z", "xob_live_" + "aB3" * 16 + "z"]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "message",
    [
        {"type": "SECRET"},
        {"type": "subscribe_aggregated", "symbol": "SECRET"},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": ["SECRET"]},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "exchanges": ["okx", "SECRET"]},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "SECRET": 1},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "mode": "SECRET"},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "group": "SECRET"},
        {"type": "get_aggregated_orderbook", "symbol": "SECRET"},
        {"type": "unsubscribe_aggregated", "symbol": "SECRET"},
        {"type": "resync", "symbol": "SECRET"},
        {"type": "get_pairs", "exchange": "SECRET"},
        {"type": {"SECRET": 1}},
    ],
)
def test_keys_and_tokens_are_never_repeated(stranger, alice, message, secret):
    text = json.dumps(message).replace("SECRET", secret)
    for client in (stranger, alice):
        assert secret[-40:] not in json.dumps(
            [each for each in client.says(text) if isinstance(each, dict)]
        )


def test_subscribing_again_to_a_symbol_replaces_its_exchanges_and_options(alice):
    _, first = alice.says(type="subscribe_aggregated", symbol="BTC/USDT")
    _, second = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", depth=5)
    assert second == OpenView(first.key._replace(options=ViewOptions(depth=5)), first.key)
    assert list(alice.client.subscriptions.values()) == [second.key]


def test_128_subscriptions_a_connection():
    conversation = Conversation(subscriptions_max=2).authenticated()
    for symbol in ("BTC/USDT", "BTC/USD"):
        assert conversation.says(type="subscribe_aggregated", symbol=symbol)[0]["success"]
    assert_error(
        conversation.says(type="subscribe_aggregated", symbol="DOGE/USDT"),
        "subscription_limit_exceeded",
        symbol="DOGE/USDT",
    )
    assert conversation.says(type="subscribe_aggregated", symbol="BTC/USD", depth=1)[0]["success"]
    assert GatewaySettings().subscriptions_max == 128


def test_unsubscribe_aggregated(alice):
    _, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT")
    stopped, response = alice.says(type="unsubscribe_aggregated", symbol="BTC/USDT")
    assert stopped == CloseView(opened.key)
    assert response == {
        "type": "unsubscribe_response",
        "symbol": "BTC/USDT",
        "success": True,
        "message": "Unsubscribed from BTC/USDT.",
    }
    assert alice.says(type="get_subscriptions")[0]["data"]["total"] == 0


@pytest.mark.parametrize("kind", ["unsubscribe_aggregated", "resync"])
def test_no_subscription(alice, kind):
    assert_error(alice.says(type=kind, symbol="BTC/USDT"), "no_subscription", symbol="BTC/USDT")


def test_resync_sends_a_fresh_full_book_on_that_subscription(alice):
    _, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT")
    assert alice.says(type="resync", symbol="BTC/USDT", id=9) == [ResendBook(opened.key, 9)]


def test_get_aggregated_orderbook_works_without_a_subscription(alice):
    (look,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USD", depth=5, id=1)
    assert look == FetchBook(StreamKey("BTC/USD", ("coinbase", "kraken"), ViewOptions(depth=5)), 1)
    assert alice.client.subscriptions is NONE_SUBSCRIBED


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"symbol": "NO/PE"}, "invalid_symbol"),
        ({"symbol": "BTC/USD", "exchanges": ["mtgox"]}, "exchange_unavailable"),
        ({"symbol": "BTC/USD", "depth": 0}, "invalid_parameters"),
    ],
)
def test_get_aggregated_orderbook_refuses_with_plain_errors(alice, options, code):
    (refusal,) = alice.says(type="get_aggregated_orderbook", **options)
    assert (refusal["type"], refusal["error"]) == ("error", code)


def test_a_connection_waits_for_few_books_at_one_time(alice):
    alice.client.fetching = 8
    (refusal,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USD")
    assert refusal["error"] == "subscription_limit_exceeded"


def test_get_subscriptions_lists_symbols_exchanges_ids_and_options(alice):
    alice.says(type="subscribe_aggregated", symbol="BTC/USD", split=True)
    (reply,) = alice.says(type="get_subscriptions")
    assert reply["type"] == "subscriptions_data"
    (listed,) = reply["data"]["subscriptions"]
    assert (listed["symbol"], listed["exchanges"]) == ("BTC/USD", ["coinbase", "kraken"])
    assert listed["options"]["split"] is True
    assert listed["subscription_id"].startswith("sub_")


def test_changes_of_subscriptions_are_free_up_to_the_burst_and_then_cost_time():
    limits = CommandLimits(RateLimiter(), GatewayLimits(changes_per_s=10, changes_burst=20))
    assert [limits.change_wait_s(5.0) for _ in range(20)] == [0.0] * 20
    assert limits.change_wait_s(5.0) == pytest.approx(0.1)
    assert limits.change_wait_s(10.0) == 0.0


def test_a_flood_is_what_comes_beyond_the_burst_and_the_rate():
    limits = CommandLimits(RateLimiter(), GatewayLimits(flood_per_s=10, flood_burst=20))
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


@pytest.mark.parametrize("refused", [{"type": "dance"}, {"action": "transfer"}])
def test_a_refused_command_is_warned_of_the_rate_limit_too(alice, refused):
    for _ in range(539):
        alice.says(type="ping")
    warning, error = alice.says(**refused)
    assert (warning["type"], error["type"]) == ("rate_limit_warning", "error")


@pytest.mark.parametrize(
    ("message", "number"), [({"type": "ping"}, None), ({"action": "get_exchanges"}, 4005)]
)
def test_a_message_over_the_rate_limit_has_the_number_of_its_family(alice, message, number):
    for _ in range(600):
        alice.says(type="ping")
    (refused,) = alice.says(**message)
    assert (refused["error"], refused["window"]) == ("rate_limit_exceeded", "per_minute")
    assert refused.get("code") == number


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


ONE, TWO = ((StreamKey(symbol=symbol, exchanges=("okx",)), None) for symbol in ("A/B", "C/D"))


def test_a_view_counts_once_however_many_connections_have_it():
    views = KeyViews()
    for _ in range(2):
        views.join("key", ONE)
    assert views.count("key") == 1
    assert views.has_room("key", ONE, 1)
    assert not views.has_room("key", TWO, 1)
    assert views.has_room("other", TWO, 1)
    views.leave("key", ONE)
    assert not views.has_room("key", TWO, 1)
    views.leave("key", ONE)
    assert views.has_room("key", TWO, 1)
    assert views.count("key") == 0


def test_a_view_that_is_replaced_is_freed_only_if_no_other_client_has_it():
    views = KeyViews()
    views.join("key", ONE)
    assert views.has_room("key", TWO, 1, instead_of=ONE)
    views.join("key", ONE)
    assert not views.has_room("key", TWO, 1, instead_of=ONE)


async def test_a_tier_may_have_a_least_interval(tmp_path):
    async with gateway(tmp_path) as node:
        basic = TierLimits(requests_per_minute=600, connections_max=5, interval_ms_min=50)
        node.accounts.settings = AccountsSettings(tiers=TierSettings(basic=basic))
        async with node.client(await node.key()) as client:

            def subscribe(interval_ms):
                return client.ask(
                    type="subscribe_aggregated", symbol=SYMBOL, interval_ms=interval_ms
                )

            for interval_ms in (0, 49):
                refusal = await subscribe(interval_ms)
                assert refusal["error"] == "invalid_parameters"
                assert refusal["message"] == (
                    "interval_ms: must be at least 50 with this key's tier."
                )
            assert (await subscribe(50))["options"]["interval_ms"] == 50


async def test_the_views_of_a_key_are_limited_over_its_connections(tmp_path):
    async with gateway(tmp_path) as node:
        basic = TierLimits(requests_per_minute=600, connections_max=5, views_max=2)
        node.accounts.settings = AccountsSettings(tiers=TierSettings(basic=basic))
        key = await node.key()
        async with node.client(key) as one, node.client(key) as two:

            def subscribe(client, depth, symbol=SYMBOL):
                return client.ask(type="subscribe_aggregated", symbol=symbol, depth=depth)

            assert (await subscribe(one, 1))["success"]
            assert (await subscribe(two, 2))["success"]
            refusal = await subscribe(two, 3, "ETH/USDT")
            assert refusal["error"] == "subscription_limit_exceeded"
            assert refusal["message"] == "This key may have at most 2 different views at a time."
            assert (await subscribe(two, 3))["success"]  # instead of the one it had
            assert (await subscribe(two, 1))["success"]
            assert node.gateway.views.count(next(iter(node.gateway.connections.by_key))) == 1
            other = await node.key(Tier.PREMIUM)
            await two.say(type="authenticate", api_key=other)
            assert (await two.until("welcome"))["session_id"]
            assert sorted(map(node.gateway.views.count, node.gateway.connections.by_key)) == [1, 1]
        await settled(lambda: not node.gateway.connections)
        assert node.gateway.views._counts == {}
