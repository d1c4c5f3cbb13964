"""Messages of the transaction interface are checked before anything is done."""

import json

import pytest

from onebook.accounts.keys import new_key
from onebook.errors import CREDENTIALS_HELD
from onebook.gateway.actions import (
    ActionRefused,
    SubscribeTransactionsAction,
    message_of,
    parse,
    refused,
    typed,
)

NOW_MS = 1_700_000_000_123


def test_fields_are_read():
    found = parse(
        '{"action":"subscribe_transactions","exchange":"bybit"}', "subscribe_transactions"
    )
    assert found == SubscribeTransactionsAction("bybit")


@pytest.mark.parametrize(
    ("text", "action", "error", "words"),
    [
        ('{"action":"transfer"}', "transfer", "invalid_action", "Unknown action"),
        (
            '{"action":"subscribe_transactions"}',
            "subscribe_transactions",
            "missing_parameters",
            "exchange: is required",
        ),
        (
            '{"action":"subscribe_transactions","exchange":5}',
            "subscribe_transactions",
            "invalid_parameters",
            "exchange: must be",
        ),
    ],
)
def test_a_message_that_is_wrong_is_refused_with_its_field(text, action, error, words):
    with pytest.raises(ActionRefused) as caught:
        parse(text, action)
    assert caught.value.error == error
    assert words in caught.value.message


def test_a_refusal_has_its_number_its_details_and_the_id_that_it_answers():
    error = ActionRefused("invalid_action", "There is no such action.", supported=["get_exchanges"])
    assert json.loads(refused(error, "a-1", NOW_MS)) == {
        "type": "error",
        "error": "invalid_action",
        "code": 4002,
        "message": "There is no such action.",
        "supported": ["get_exchanges"],
        "timestamp": "2023-11-14T22:13:20.123Z",
        "id": "a-1",
    }


def test_an_error_without_a_number_has_no_code():
    body = json.loads(
        refused(ActionRefused("invalid_parameters", "limit: too many."), None, NOW_MS)
    )
    assert "code" not in body
    assert "id" not in body


def test_a_key_that_a_client_wrote_is_not_repeated():
    key = new_key()
    sent = message_of({"type": "error", "message": f"There is no exchange {key}."}, 7, NOW_MS)
    assert key.encode() not in sent
    assert json.loads(sent)["id"] == 7


def test_an_encoded_answer_becomes_a_message_of_its_type():
    assert json.loads(typed(b'{"count":1}', "transactions_response", 3)) == {
        "type": "transactions_response",
        "count": 1,
        "id": 3,
    }
    assert "id" not in json.loads(typed(b'{"count":1}', "transactions_response", None))


@pytest.mark.parametrize("action", ["subscribe_transactions", "validate_credentials"])
def test_credentials_of_the_client_are_refused_with_the_reason(action):
    text = (
        f'{{"action":"{action}","exchange":"bybit","credentials":{{"api_key":"k","secret":"s"}}}}'
    )
    with pytest.raises(ActionRefused) as caught:
        parse(text, action)
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
    absent = parse(json.dumps(least), action)
    for name in names:
        found = parse(json.dumps(least | {name: None}), action)
        assert not getattr(found, name)
        assert not getattr(absent, name)
