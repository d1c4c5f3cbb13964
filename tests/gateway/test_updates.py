"""What is said of messages agrees with what is sent."""

from typing import get_args, get_type_hints

from onebook.gateway.updates import REASON_MEANINGS, ExchangeStatus
from onebook.model import Reason


def test_the_reasons_of_exchange_status_are_all_documented() -> None:
    documented = get_args(get_type_hints(ExchangeStatus)["reason"])
    assert documented == ("", *Reason)
    for reason in Reason:
        assert reason.isidentifier()
        assert reason.islower()
        assert reason.meaning.endswith(".")
        assert f"`{reason}`: {reason.meaning}" in REASON_MEANINGS
