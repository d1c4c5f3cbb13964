"""Error messages for invalid commands."""

import json
import re

import pytest

from onebook.accounts.keys import new_key
from onebook.errors import CREDENTIALS_HELD
from onebook.gateway.commands import CommandRefused, SubscribeTransactionsAction, must_be
from onebook.gateway.messages import ACTIONS, CLIENT_MESSAGES, decode
from onebook.gateway.processor import HANDLERS, KEYLESS


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
        ({"interval_ms": 9}, "interval_ms: must be 0, or a whole number from 10 to 60,000."),
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
        ({"more": 1}, 'Unknown field "more".'),
        ({"fill": {"more": 1}}, 'Unknown field "more".'),
        ({"id": [1]}, "id: must be text or a number."),
        ({"view": 1}, "view: must be text of 1 to 32 characters."),
        ({"view": ""}, "view: must be text of 1 to 32 characters."),
        ({"view": "v" * 33}, "view: must be text of 1 to 32 characters."),
        ({"symbol": 7}, 'symbol: must be a pair such as "BTC/USDT", of at most 64 characters.'),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(alice, options, sentence):
    (refusal,) = alice.says(**{"type": "subscribe_aggregated", "symbol": "BTC/USDT"} | options)
    assert refusal["message"] == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"depth": 0}, "depth: must be a whole number from 1 to 500."),
        ({"split": None}, "split: must be true or false."),
        ({"mode": 1}, 'mode: must be "full" or "delta".'),
    ],
)
def test_what_is_wrong_with_a_field_that_may_be_left_out(alice, options, sentence):
    message = {"type": "get_aggregated_orderbook", "symbol": "BTC/USDT"} | options
    (refusal,) = alice.says(**message)
    assert refusal["message"] == sentence


def test_a_message_of_two_types_is_refused_in_plain_words(alice):
    (refusal,) = alice.says('{"type": "ping", "type": "get_exchanges", "id": 1}')
    assert refusal["message"] == 'type: must be "get_exchanges", and only once.'
    assert (refusal["error"], refusal["id"]) == ("invalid_parameters", 1)


def test_a_missing_field_is_named(alice):
    (refusal,) = alice.says(type="resync")
    assert refusal["message"].startswith("symbol: is required; it must be a pair such as")


@pytest.mark.parametrize("body", CLIENT_MESSAGES.values(), ids=CLIENT_MESSAGES)
def test_every_field_has_words_for_what_it_must_be(body):
    for field in body.__struct_fields__:
        words = must_be(body, field)
        assert not re.search(r"str|int\b|null|None|array$|enum|`", words), words
        assert "JSON" not in words or field == "client_time"


def test_an_id_that_is_neither_string_nor_number_is_refused(alice):
    (refusal,) = alice.says(type="ping", id=["x"])
    assert refusal["error"] == "invalid_message"
    assert refusal["message"].startswith("id: must be")
    assert "id" not in refusal


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
        ({"group": "0.0000000000001"}, "group"),
        ({"fill": {"amounts": [1]}}, "fill"),
        ({"fill": {"prices": ["1"]}}, "prices"),
        ({"fill": {"notionals": [str(size) for size in range(1, 10)]}}, "fill"),
        ({"speed": "fast"}, "speed: must be a number from 0 to 1,000."),
        ({"start": 1, "speed": 1_001}, "speed: must be a number from 0 to 1,000."),
        ({"start": 1.5}, "start: must be ISO 8601 text"),
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


def test_every_client_message_has_a_handler_and_no_handler_is_without_description():
    assert set(HANDLERS) == set(CLIENT_MESSAGES)
    assert {"authenticate", "ping"} == KEYLESS


def test_fields_are_read():
    text = '{"action":"subscribe_transactions","exchange":"bybit"}'
    found = decode(text, SubscribeTransactionsAction)
    assert found == SubscribeTransactionsAction(exchange="bybit")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '{"action":"transfer","id":"a"}',
            b'"invalid_action","message":"Unknown action \\"transfer\\".","code":4002',
        ),
        (
            '{"action":"subscribe_transactions","id":"a"}',
            b'"missing_parameters","message":"exchange: is required; it must be text of at most '
            b'64 characters, or a list of such texts.","code":4003',
        ),
        (
            '{"action":"subscribe_transactions","exchange":5,"id":"a"}',
            b'"invalid_parameters","message":"exchange: must be text of at most 64 characters, '
            b'or a list of such texts."',
        ),
        (
            '{"action":"subscribe_transactions","exchange":"bybit","testnet":1,"id":"a"}',
            b'"invalid_parameters","message":"testnet: must be true or false."',
        ),
        (
            '{"action":"subscribe_transactions","exchange":"bybit","limit":1.5,"id":"a"}',
            b'"invalid_parameters","message":"limit: must be a number."',
        ),
        (
            '{"action":"subscribe_transactions","exchange":"bybit","verify":true,"id":"a"}',
            b'"invalid_parameters","message":"Unknown field \\"verify\\"."',
        ),
    ],
)
def test_an_action_that_is_wrong_is_refused_with_its_field_and_number(alice, text, error):
    (sent,) = alice.client.received(text, now=alice.now)
    assert sent.payload == (
        b'{"type":"error","error":%b,"timestamp":"2025-11-20T10:00:00.000Z","id":"a"}' % error
    )


def test_an_action_before_authentication_is_refused(stranger):
    (sent,) = stranger.client.received('{"action":"get_exchanges"}', now=stranger.now)
    assert sent.payload == (
        b'{"type":"error","error":"authentication_failed","message":"Authenticate first.",'
        b'"code":4001,"timestamp":"2025-11-20T10:00:00.000Z"}'
    )


def test_a_key_that_a_client_wrote_is_not_repeated(alice):
    key = new_key()
    (sent,) = alice.client.received(json.dumps({"action": key, "id": 7}), now=alice.now)
    assert key.encode() not in sent.payload
    assert json.loads(sent.payload)["id"] == 7


@pytest.mark.parametrize("action", ["subscribe_transactions", "validate_credentials"])
def test_credentials_of_the_client_are_refused_with_the_reason(action):
    text = (
        f'{{"action":"{action}","exchange":"bybit","credentials":{{"api_key":"k","secret":"s"}}}}'
    )
    with pytest.raises(CommandRefused) as caught:
        decode(text, ACTIONS[action])
    assert (caught.value.error, caught.value.message) == ("invalid_parameters", CREDENTIALS_HELD)


@pytest.mark.parametrize(
    ("action", "names"),
    [
        (
            "subscribe_transactions",
            ("testnet", "transaction_types", "start_time", "end_time", "limit", "cursor",
             "include_raw"),
        ),
        ("validate_credentials", ("testnet",)),
        ("unsubscribe_transactions", ("exchange",)),
    ],
)  # fmt: skip
def test_null_means_absent(action: str, names: tuple[str, ...]) -> None:
    least = {"action": action} | ({} if "exchange" in names else {"exchange": "bybit"})
    absent = decode(json.dumps(least), ACTIONS[action])
    for name in names:
        found = decode(json.dumps(least | {name: None}), ACTIONS[action])
        assert not getattr(found, name)
        assert not getattr(absent, name)
