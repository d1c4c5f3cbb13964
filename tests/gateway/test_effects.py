"""Effects are values that show no secret, and the connection knows what to do for each."""

from typing import get_args

from onebook.gateway.connection import EFFECTS
from onebook.gateway.effects import (
    CloseView,
    CommandRefused,
    Effect,
    FetchBook,
    OpenView,
    ResendBook,
    VerifyKey,
)
from onebook.gateway.subscriptions import SUBSCRIPTION_EFFECTS


def test_every_effect_is_executed():
    assert set(EFFECTS) == set(get_args(Effect))
    assert set(SUBSCRIPTION_EFFECTS) == {OpenView, CloseView, FetchBook, ResendBook}


def test_a_key_is_not_in_the_repr():
    assert "secret" not in repr(VerifyKey("secret"))
    assert "secret" not in f"{[VerifyKey('secret')]}"


def test_a_refusal_has_a_code_a_sentence_and_fields():
    refusal = CommandRefused("invalid_symbol", "No such symbol.", symbol="NO/PAIR")
    assert (refusal.error, str(refusal)) == ("invalid_symbol", "No such symbol.")
    assert refusal.extra == {"symbol": "NO/PAIR"}
