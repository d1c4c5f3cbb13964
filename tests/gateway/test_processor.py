"""Conversations: what a client says goes in, what follows comes out. Rows of contract section 2."""

import json
import re

import msgspec
import pytest

from onebook.accounts import Key, RateLimiter
from onebook.config import GatewaySettings, TierSettings
from onebook.core import MEMBERS_MAX, View
from onebook.exchanges import NAMES
from onebook.gateway.codes import CLOSE_CODES, ERRORS
from onebook.gateway.directory import Directory
from onebook.gateway.effects import (
    CloseView,
    EndConnection,
    FetchBook,
    Now,
    OpenView,
    ResendBook,
    SendText,
    VerifyKey,
)
from onebook.gateway.messages import CLIENT_MESSAGES, MESSAGES
from onebook.gateway.plain import must_be
from onebook.gateway.processor import HANDLERS, KEYLESS, NONE_SUBSCRIBED, CommandProcessor
from onebook.gateway.views import KeyViews
from onebook.model import KeyStatus, Tier
from onebook.streams import StreamKey

KEY = Key(
    key_id="key_1",
    account_id="6f9619ff-8b86-4011-b42d-00c04fc964ff",
    username="alice",
    tier=Tier.BASIC,
    status=KeyStatus.ACTIVE,
    prefix="ob_live_",
    created_at_ms=0,
    expires_at_ms=None,
)
LISTED = {
    "BTC/USDT": ["binance", "kraken", "okx"],
    "BTC/USD": ["coinbase", "kraken"],
    "DOGE/USDT": ["binance"],
}
SUPPORTED = sorted(NAMES)
AWAY = {"bybit": "offline", "coinbase": "maintenance"}


class Listed:
    """A catalogue and the state of its feeds."""

    def exchanges(self, symbol):
        return LISTED.get(symbol, [])

    def pairs(self, exchange):
        return sorted(symbol for symbol, names in LISTED.items() if exchange in names)

    def suggest(self, symbol, n=3):
        return ["BTC/USD", "BTC/USDT", "DOGE/USDT"][:n]

    unread_names: frozenset = frozenset()

    def unread(self):
        return self.unread_names

    def state(self, exchange):
        return AWAY.get(exchange, "active")


class Conversation:
    """One client and a clock."""

    def __init__(self, **settings):
        self.now_s = 100.0
        self.limits = RateLimiter()
        listed = Listed()
        self.client = CommandProcessor(
            settings=GatewaySettings(**settings),
            tiers=TierSettings(),
            directory=Directory(listed, listed, monotonic=lambda: self.now_s),
            limits=self.limits,
            views=KeyViews(),
        )

    @property
    def now(self):
        return Now(self.now_s, 1_763_632_800_000_000)

    def says(self, text=None, **message):
        """What follows: messages as dicts, the rest as it is."""
        text = json.dumps(message) if text is None else text
        return shown(self.client.received(text, now=self.now, latency_ms=2.5))

    def authenticated(self):
        self.client.authenticated(KEY, session_id="s1")
        return self


def shown(outputs):
    return [json.loads(each.payload) if isinstance(each, SendText) else each for each in outputs]


@pytest.fixture
def stranger():
    return Conversation()


@pytest.fixture
def alice():
    return Conversation().authenticated()


def error(code, message=None, /, kind="error", **more):
    body = {"type": kind, "error": code, "timestamp": "2025-11-20T10:00:00.000000Z", **more}
    return body | ({} if message is None else {"message": message})


def assert_error(outputs, code, /, kind="error", **more):
    """Exactly one error with a sentence for people."""
    (got,) = outputs
    assert got.pop("message").endswith((".", "?"))
    assert got == error(code, kind=kind, **more)


# Opening


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


# Authentication


def test_authenticate_verifies_the_key_and_shows_it_to_nobody(stranger):
    (verify,) = stranger.says(type="authenticate", api_key="ob_live_secret", id=1)
    assert verify == VerifyKey("ob_live_secret", 1)
    assert "secret" not in repr(verify)


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


def test_repeated_authenticate_is_answered_and_the_session_stays(alice):
    (verify,) = alice.says(type="authenticate", api_key="k")
    assert verify == VerifyKey("k")
    (welcome,) = shown(alice.client.authenticated(KEY, session_id="s2"))
    assert welcome["session_id"] == "s1"


def test_repeated_authenticate_is_under_the_rate_limit(alice):
    for _ in range(600):
        alice.says(type="authenticate", api_key="k")
    assert alice.says(type="authenticate", api_key="k")[0]["error"] == "rate_limit_exceeded"


@pytest.mark.parametrize("kind", sorted({*CLIENT_MESSAGES, "nonsense"} - {"authenticate", "ping"}))
def test_anything_but_authenticate_and_ping_before_authenticating_is_refused(stranger, kind):
    assert_error(stranger.says(type=kind, symbol="BTC/USDT"), "authentication_required")


def test_an_authenticate_without_a_key_names_the_field(stranger):
    (refusal,) = stranger.says(type="authenticate")
    assert refusal["error"] == "invalid_parameters"
    assert "api_key" in refusal["message"]


# Every message may carry an id


@pytest.mark.parametrize("message_id", ["r1", 7, 2.5, ""])
@pytest.mark.parametrize(
    "message",
    [
        {"type": "ping"},
        {"type": "get_exchanges"},
        {"type": "get_pairs"},
        {"type": "get_subscriptions"},
        {"type": "subscribe_aggregated", "symbol": "BTC/USDT"},
        {"type": "subscribe_aggregated", "symbol": "NO/PE"},
        {"type": "unsubscribe_aggregated", "symbol": "BTC/USDT"},
        {"type": "nonsense"},
        {"symbol": "without a type"},
    ],
)
def test_the_reply_or_its_error_carries_the_id_back(alice, message, message_id):
    reply = alice.says(**message, id=message_id)[0]
    assert reply["id"] == message_id


def test_an_id_that_is_neither_string_nor_number_is_refused(alice):
    (refusal,) = alice.says(type="ping", id=["x"])
    assert refusal["error"] == "invalid_message"
    assert refusal["message"].startswith("id: must be")
    assert "id" not in refusal


# Broken messages


@pytest.mark.parametrize(
    "text",
    ["", "x", "{", "[]", "1", "null", '"ping"', '{"type": 1}', "{}", '{"type": null}', "[" * 9_999],
)
def test_invalid_message_is_not_a_json_object_or_has_no_type_and_the_connection_stays(alice, text):
    (refusal,) = alice.says(text)
    assert refusal["error"] == "invalid_message"
    assert alice.says(type="ping")[0]["type"] == "pong"


def test_unknown_type(alice):
    assert_error(alice.says(type="dance"), "unknown_type")


# Subscribing


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


@pytest.mark.parametrize(
    ("sent", "accepted"),
    [
        ({}, ["binance", "kraken", "okx"]),
        ({"exchanges": "all"}, ["binance", "kraken", "okx"]),
        ({"exchanges": ["all"]}, ["binance", "kraken", "okx"]),
        ({"exchanges": ["okx"]}, ["okx"]),
        ({"exchanges": ["okx", "okx", "kraken"]}, ["kraken", "okx"]),
        ({"exchanges": ["all", "-binance"]}, ["kraken", "okx"]),
        ({"exchanges": ["all", "okx", "-binance"]}, ["kraken", "okx"]),
        ({"exchanges": ["okx", "kraken", "-kraken"]}, ["okx"]),
        ({"exchanges": ["okex"]}, ["okx"]),
        ({"exchanges": ["all", "-okex"]}, ["binance", "kraken"]),
    ],
)
def test_exchanges_are_a_list_all_or_all_but_some_and_former_names_count(alice, sent, accepted):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", **sent)
    assert response["exchanges"] == accepted
    assert response["requested"] == sent.get("exchanges", "all")
    assert opened.key.exchanges == tuple(accepted)


def many(count):
    """A client of a node with so many exchanges, which all trade BTC/USDT."""
    names = [f"venue{number:02}" for number in range(count)]
    listed = Listed()
    listed.exchanges = lambda symbol: names
    talk = Conversation().authenticated()
    directory = talk.client.directory = Directory(listed, listed, monotonic=lambda: 0.0)
    directory.supported = names
    directory.resolve = {name: name for name in names}.get
    return talk


@pytest.mark.parametrize("kind", ["subscribe_aggregated", "get_aggregated_orderbook"])
def test_a_view_of_more_exchanges_than_can_be_merged_is_refused_with_the_limit(kind):
    (refusal,) = many(MEMBERS_MAX + 1).says(type=kind, symbol="BTC/USDT")
    assert refusal["error"] == "invalid_parameters"
    assert f"at most {MEMBERS_MAX} exchanges, and {MEMBERS_MAX + 1}" in refusal["message"]


def test_a_view_of_as_many_exchanges_as_can_be_merged_is_subscribed():
    talk = many(MEMBERS_MAX + 1)
    response, subscribe = talk.says(
        type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["all", "-venue07"]
    )
    assert len(response["exchanges"]) == MEMBERS_MAX
    View(subscribe.key.exchanges, depth=20)


def test_one_exchange_is_said_in_the_singular(alice):
    response = alice.says(type="subscribe_aggregated", symbol="DOGE/USDT")[0]
    assert response["message"] == "Subscribed to DOGE/USDT on 1 exchange."


def test_unknown_exchanges_are_rejected_and_the_rest_is_subscribed(alice):
    response = alice.says(
        type="subscribe_aggregated",
        symbol="BTC/USDT",
        exchanges=["mtgox", "okx", "coinbase", "-quadriga"],
    )[0]
    assert response["exchanges"] == ["okx"]
    assert response["rejected"] == [
        {"exchange": "mtgox", "reason": "unknown_exchange"},
        {"exchange": "-quadriga", "reason": "unknown_exchange"},
        {"exchange": "coinbase", "reason": "symbol_not_traded"},
    ]


def test_all_exchanges_unknown_is_exchange_unavailable(alice):
    assert_error(
        alice.says(type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["mtgox", "x"]),
        "exchange_unavailable",
        kind="subscription_error",
        exchange="mtgox",
        supported_exchanges=SUPPORTED,
    )


@pytest.mark.parametrize("exchanges", ["all", ["coinbase"], ["coinbase", "mtgox"]])
def test_a_symbol_on_none_of_them_is_invalid_symbol(alice, exchanges):
    symbol = "BTC/EUR" if exchanges == "all" else "BTC/USDT"
    assert_error(
        alice.says(type="subscribe_aggregated", symbol=symbol, exchanges=exchanges),
        "invalid_symbol",
        kind="subscription_error",
        symbol=symbol,
        suggested_symbols=["BTC/USD", "BTC/USDT", "DOGE/USDT"]
        if exchanges == "all"
        else ["BTC/USD"],
    )
    assert alice.client.subscriptions is NONE_SUBSCRIBED


def unread(alice, *names):
    alice.client.directory.unread = lambda: set(names)


@pytest.mark.parametrize("exchanges", ["all", ["bybit"], ["bybit", "coinbase"], ["all", "-okx"]])
def test_a_symbol_that_an_unread_list_may_have_is_exchange_unavailable(alice, exchanges):
    unread(alice, "bybit")
    assert_error(
        alice.says(type="subscribe_aggregated", symbol="BTC/EUR", exchanges=exchanges),
        "exchange_unavailable",
        kind="subscription_error",
        symbol="BTC/EUR",
        exchange="bybit",
        retry_after=10,
    )


@pytest.mark.parametrize("exchanges", [["kraken"], ["all", "-bybit"]])
def test_an_unread_list_that_was_not_asked_for_excuses_nothing(alice, exchanges):
    unread(alice, "bybit")
    (refusal,) = alice.says(type="subscribe_aggregated", symbol="BTC/EUR", exchanges=exchanges)
    assert refusal["error"] == "invalid_symbol"


def test_an_exchange_whose_list_is_unread_is_rejected_for_that(alice):
    unread(alice, "bybit")
    response, _ = alice.says(
        type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["okx", "bybit", "coinbase"]
    )
    assert response["rejected"] == [
        {"exchange": "bybit", "reason": "exchange_unavailable"},
        {"exchange": "coinbase", "reason": "symbol_not_traded"},
    ]


@pytest.mark.parametrize(
    "exchanges", [["OKX", " Kraken "], ["OKEx", "kraken"], ["ALL", "-BINANCE"]]
)
def test_names_of_exchanges_have_no_case(alice, exchanges):
    response, _ = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", exchanges=exchanges)
    assert response["exchanges"] == ["kraken", "okx"]
    assert response["requested"] == exchanges


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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"exchanges": "okx"},
            'exchanges: must be a list of names or "all", with at most 256 names.',
        ),
        (
            {"exchanges": [1]},
            'exchanges: must be a list of names or "all", with at most 256 names.',
        ),
        ({"depth": "20"}, "depth: must be a whole number from 1 to 500."),
        ({"depth": 501}, "depth: must be a whole number from 1 to 500."),
        ({"interval_ms": 9}, "interval_ms: must be a whole number from 10 to 60,000."),
        ({"mode": "diff"}, 'mode: must be "full" or "delta".'),
        ({"levels": None}, 'levels: must be "object" or "array".'),
        ({"split": 1}, "split: must be true or false."),
        ({"group": 0.5}, 'group: must be a price step as decimal text, such as "0.5".'),
        (
            {"fill": ["1"]},
            'fill: must be an object with lists of decimal text in "amounts", "notionals" or both.',
        ),
        ({"fill": {}}, "fill: name 1 to 8 amounts and notionals, not 0."),
        (
            {"fill": {"amounts": ["1e3"]}},
            'fill: amounts must be positive decimal text, such as "0.5", not "1e3".',
        ),
        ({"more": 1}, 'There is no field "more".'),
        ({"id": [1]}, "id: must be text or a number."),
        ({"symbol": 7}, 'symbol: must be a pair such as "BTC/USDT", of at most 64 characters.'),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(alice, options, sentence):
    (refusal,) = alice.says(**{"type": "subscribe_aggregated", "symbol": "BTC/USDT"} | options)
    assert refusal["message"] == sentence


def test_a_missing_field_is_named(alice):
    (refusal,) = alice.says(type="resync")
    assert refusal["message"].startswith("symbol: is required; it must be a pair such as")


@pytest.mark.parametrize("body", CLIENT_MESSAGES.values(), ids=CLIENT_MESSAGES)
def test_every_field_has_words_for_what_it_must_be(body):
    for field in body.__struct_fields__:
        words = must_be(body, field)
        assert not re.search(r"str|int\b|null|None|array$|enum|`", words), words
        assert words != "JSON" or field == "client_time"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"depth": 0}, "depth"),
        ({"depth": 501}, "depth"),
        ({"depth": "20"}, "depth"),
        ({"depth": True}, "depth"),
        ({"interval_ms": 9}, "interval_ms"),
        ({"interval_ms": 60_001}, "interval_ms"),
        ({"mode": "diff"}, "mode"),
        ({"levels": "tuple"}, "levels"),
        ({"split": 1}, "split"),
        ({"ages": 1}, "ages"),
        ({"coverage": "all"}, "coverage"),
        ({"group": 0.5}, "group"),
        ({"group": "0"}, "group"),
        ({"group": "-1"}, "group"),
        ({"group": "1e5"}, "group"),
        ({"group": ""}, "group"),
        ({"group": "."}, "group"),
        ({"group": "1" * 19}, "group"),
        ({"fill": {"amounts": [1]}}, "fill"),
        ({"fill": {"prices": ["1"]}}, "prices"),
        ({"fill": {"notionals": [str(size) for size in range(1, 10)]}}, "fill"),
        ({"speed": "fast"}, "speed"),
        ({"exchanges": []}, "exchanges"),
        ({"exchanges": ["-okx"]}, "exchanges"),
        ({"exchanges": ["okx", "-okx"]}, "exchanges"),
        ({"exchanges": ["x"] * 257}, "exchanges"),
        ({"exchanges": "okx"}, "exchanges"),
        ({"exchanges": [1]}, "exchanges"),
        ({"symbol": 5}, "symbol"),
        ({"symbol": "x" * 65}, "symbol"),
    ],
)
def test_an_unknown_option_or_bad_value_is_invalid_parameters_naming_it(alice, options, name):
    message = {"type": "subscribe_aggregated", "symbol": "BTC/USDT", "id": 4} | options
    (refusal,) = alice.says(**message)
    assert (refusal["type"], refusal["error"]) == ("subscription_error", "invalid_parameters")
    assert name in refusal["message"]
    assert refusal["id"] == 4


@pytest.mark.parametrize(
    "options",
    [
        {"depth": 1},
        {"depth": 500},
        {"interval_ms": 10},
        {"interval_ms": 60_000},
        {"mode": "delta"},
        {"levels": "array"},
        {"split": True},
        {"ages": True},
        {"coverage": True},
        {"group": "0.5"},
    ],
)
def test_options_are_applied_and_told(alice, options):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", **options)
    ((name, value),) = options.items()
    assert response["options"][name] == value
    assert getattr(opened.key, name) == value


@pytest.mark.parametrize(
    ("sent", "shortest"),
    [("1.0", "1"), ("0010", "10"), ("0.50", "0.5"), (".5", "0.5"), ("100", "100")],
)
def test_equal_price_steps_are_one_stream(alice, sent, shortest):
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", group=sent)
    assert opened.key.group == response["options"]["group"] == shortest


def test_the_sizes_of_fills_are_one_stream_in_whatever_form_they_come(alice):
    fill = {"amounts": ["2", "0.50", "2.0"], "notionals": ["10000"]}
    response, opened = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", fill=fill)
    assert response["options"]["fill"] == {"amounts": ["0.5", "2"], "notionals": ["10000"]}
    assert opened.key.fill == (("0.5", "2"), ("10000",))


def test_subscribing_again_to_a_symbol_replaces_its_exchanges_and_options(alice):
    _, first = alice.says(type="subscribe_aggregated", symbol="BTC/USDT")
    _, second = alice.says(type="subscribe_aggregated", symbol="BTC/USDT", depth=5)
    assert second == OpenView(first.key._replace(depth=5), first.key)
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


# The other commands


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


def test_get_aggregated_orderbook_takes_what_is_absent_from_the_subscription(alice):
    options = {"depth": 7, "levels": "array", "split": True, "group": "0.5"}
    options |= {"ages": True, "coverage": True, "fill": {"amounts": ["1"]}}
    _, opened = alice.says(
        type="subscribe_aggregated", symbol="BTC/USDT", exchanges=["okx"], mode="delta", **options
    )
    ask = {"type": "get_aggregated_orderbook", "symbol": "BTC/USDT"}
    assert alice.says(**ask) == [FetchBook(opened.key, None)]
    assert alice.says(**ask, depth=9, group=None) == [
        FetchBook(opened.key._replace(depth=9, group=""), None)
    ]
    (everywhere,) = alice.says(**ask, exchanges="all")
    assert everywhere.key.exchanges != opened.key.exchanges
    (other,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USD")
    assert (other.key.depth, other.key.levels) == (20, "object")


def test_get_aggregated_orderbook_works_without_a_subscription(alice):
    (look,) = alice.says(type="get_aggregated_orderbook", symbol="BTC/USD", depth=5, id=1)
    assert look == FetchBook(StreamKey("BTC/USD", ("coinbase", "kraken"), depth=5), 1)
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


def test_get_exchanges_tells_supported_active_and_status(alice):
    (reply,) = alice.says(type="get_exchanges")
    assert reply == {
        "type": "exchanges_data",
        "data": {
            "supported_exchanges": SUPPORTED,
            "active_exchanges": [name for name in SUPPORTED if name not in AWAY],
            "total_supported": len(SUPPORTED),
            "total_active": len(SUPPORTED) - 2,
            "exchange_status": {name: AWAY.get(name, "active") for name in SUPPORTED},
            "via": {},
        },
        "timestamp": "2025-11-20T10:00:00.000000Z",
    }


def test_get_pairs_of_all_counts_different_and_common_pairs(alice):
    (reply,) = alice.says(type="get_pairs")
    data = reply["data"]
    assert data["exchanges"]["kraken"] == ["BTC/USD", "BTC/USDT"]
    assert data["exchanges"]["poloniex"] == []
    assert (data["total_exchanges"], data["total_pairs"]) == (len(SUPPORTED), 3)
    assert data["common_pairs"] == ["BTC/USD", "BTC/USDT"]


def test_get_pairs_of_one_has_categories(alice):
    (reply,) = alice.says(type="get_pairs", exchange="binance")
    assert reply["data"] == {
        "exchange": "binance",
        "pairs": ["BTC/USDT", "DOGE/USDT"],
        "total_pairs": 2,
        "categories": {"major": ["BTC/USDT"], "meme": ["DOGE/USDT"]},
    }


def test_lists_are_encoded_once_in_a_while(alice):
    before = alice.client.directory.pairs_json(None)
    assert alice.client.directory.pairs_json(None) is before
    alice.now_s += 6
    after = alice.client.directory.pairs_json(None)
    assert after is not before
    assert after == before


def test_get_pairs_of_an_unknown_exchange_is_invalid_exchange(alice):
    assert_error(
        alice.says(type="get_pairs", exchange="mtgox"),
        "invalid_exchange",
        supported_exchanges=SUPPORTED,
    )


@pytest.mark.parametrize("client_time", [1, "x", None, {"a": [1]}])
def test_ping_echoes_client_time_and_tells_the_last_round_trip(stranger, client_time):
    (pong,) = stranger.says(type="ping", client_time=client_time)
    assert pong == {
        "type": "pong",
        "timestamp": "2025-11-20T10:00:00.000000Z",
        "server_time": "2025-11-20T10:00:00.000000Z",
        "latency_ms": 2.5,
        "client_time": client_time,
    }


def test_ping_without_client_time(stranger):
    assert "client_time" not in stranger.says(type="ping")[0]


# Limits


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


# The documents


def test_every_client_message_has_a_handler_and_no_handler_is_without_description():
    assert set(HANDLERS) == set(CLIENT_MESSAGES)
    assert {"authenticate", "ping"} == KEYLESS


def test_every_message_and_field_is_described():
    for described in MESSAGES:
        assert described.body.__doc__
        assert described.body.__doc__.splitlines()[0].endswith(".")
    names = {described.name for described in MESSAGES if described.direction == "server"}
    for described in MESSAGES:
        assert set(described.replies) <= names


def test_every_error_has_types_and_a_sentence():
    for types, sentence in ERRORS.values():
        assert types
        assert sentence.endswith(".")


def test_close_codes_tell_what_to_do():
    ours = {4001, 4002, 4003, 4004, 4108, 4113, 4129, 4200, 1002, 1003, 1007, 1009}
    assert set(CLOSE_CODES) == ours


def test_the_description_gives_a_json_schema():
    bodies = [each.body for each in MESSAGES if each.name not in ("exchanges_data", "pairs_data")]
    _, components = msgspec.json.schema_components(bodies)
    depth = components["SubscribeAggregated"]["properties"]["depth"]
    assert (depth["minimum"], depth["maximum"], depth["default"]) == (1, 500, 20)
    assert depth["description"] == "Levels a side."
