"""The fields of commands are checked, each by its name."""

import pytest

from onebook.gateway.messages import CLIENT_MESSAGES
from onebook.gateway.processor import HANDLERS, KEYLESS


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


def test_every_client_message_has_a_handler_and_no_handler_is_without_description():
    assert set(HANDLERS) == set(CLIENT_MESSAGES)
    assert {"authenticate", "ping"} == KEYLESS
