"""Every message has a description for the documentation."""

import msgspec
import pytest

from onebook.gateway.messages import MESSAGES


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


def test_every_message_and_field_is_described():
    for described in MESSAGES:
        assert described.body.__doc__
        assert described.body.__doc__.splitlines()[0].endswith(".")
    names = {described.name for described in MESSAGES if described.direction == "server"}
    for described in MESSAGES:
        assert set(described.replies) <= names


def test_the_description_gives_a_json_schema():
    bodies = [each.body for each in MESSAGES if each.name not in ("exchanges_data", "pairs_data")]
    _, components = msgspec.json.schema_components(bodies)
    depth = components["SubscribeAggregated"]["properties"]["depth"]
    assert (depth["minimum"], depth["maximum"], depth["default"]) == (1, 500, 20)
    assert depth["description"] == "Levels a side."
