"""Messages of the transaction interface are checked before anything is done."""

import pytest

from onebook.errors import CREDENTIALS_HELD
from onebook.gateway.actions import ActionRefused, SubscribeTransactionsAction, parse


def test_fields_are_checked():
    found = parse(
        '{"action":"subscribe_transactions","exchange":"bybit"}', "subscribe_transactions"
    )
    assert found == SubscribeTransactionsAction("bybit")
    with pytest.raises(ActionRefused, match="exchange"):
        parse('{"action":"subscribe_transactions","exchange":5}', "subscribe_transactions")


@pytest.mark.parametrize("action", ["subscribe_transactions", "validate_credentials"])
def test_credentials_of_the_client_are_refused_with_the_reason(action):
    text = (
        f'{{"action":"{action}","exchange":"bybit","credentials":{{"api_key":"k","secret":"s"}}}}'
    )
    with pytest.raises(ActionRefused) as refused:
        parse(text, action)
    assert (refused.value.error, refused.value.message) == ("invalid_parameters", CREDENTIALS_HELD)
