"""Messages of the transaction interface are checked before anything is done."""

import pytest

from onebook.gateway.actions import ActionRefused, SubscribeTransactionsAction, parse


def test_fields_are_checked():
    found = parse(
        '{"action":"subscribe_transactions","exchange":"bybit"}', "subscribe_transactions"
    )
    assert found == SubscribeTransactionsAction("bybit")
    with pytest.raises(ActionRefused, match="exchange"):
        parse('{"action":"subscribe_transactions","exchange":5}', "subscribe_transactions")
