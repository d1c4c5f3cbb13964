"""What is wrong with a command, in words for its sender."""

import re

import pytest

from onebook.gateway.messages import CLIENT_MESSAGES
from onebook.gateway.plain import must_be


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
        ({"more": 1}, 'Unknown field "more".'),
        ({"fill": {"more": 1}}, 'Unknown field "more".'),
        ({"id": [1]}, "id: must be text or a number."),
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
