"""A field of one name means one thing in all server messages that have it."""

from typing import get_type_hints

import pytest

from onebook.gateway.fields import SubscriptionId, Text, Timestamp, UpdateNumber
from onebook.gateway.messages import MESSAGES

SHARED = {
    "timestamp": Timestamp,
    "message": Text,
    "subscription_id": SubscriptionId,
    "update_number": UpdateNumber,
}


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_field_is_described_the_same_everywhere(name):
    found = [
        get_type_hints(each.body, include_extras=True)[name]
        for each in MESSAGES
        if each.direction == "server" and name in each.body.__struct_fields__
    ]
    assert len(found) > 1
    assert set(map(repr, found)) == {repr(SHARED[name])}
