"""Hostile numbers on every channel (`hostile.py`): the book is right or not live."""

import pytest

from contract.hostile import Told, as_sent, damaged, messages
from contract.talk import Talk
from contract.venue import CHANNELS
from onebook.exchanges.kit import Delta, Snapshot
from onebook.model import Reason

CASES_MIN = 100  # of each channel; in a protobuf message fewer values can be written

SIGNED = ("bitfinex",)  # the sign of an amount is its side
PADDED = ("bitflyer", "bithumb", "kucoin.classic", "upbit")  # a level with the price zero is none
CUT = ("htx",)  # amounts are cut at a decimal


@pytest.mark.parametrize("name", CHANNELS)
def test_a_book_with_a_hostile_number_is_the_exchanges_or_not_live(name: str) -> None:
    talk = Talk(name)
    seen = [*messages(talk)]
    shapes = {out.shape for out in talk.outputs if isinstance(out, Delta | Snapshot)}
    count = 0
    for message in seen:
        found = message.levels()
        for level in dict.fromkeys((found[0], found[-1])):
            for case in damaged(message, level, shapes):
                payload = as_sent(case.payload, message.step.payload)
                if payload is None:
                    continue
                told = Told(talk, message.before)
                told.hear(message.step._replace(payload=payload))
                sides = told.sides(message.instrument)
                assert sides is None or sides == case.truth, (case.what, payload[:400])
                assert told.book(message.instrument).reason is not Reason.INTERNAL_ERROR
                assert told.stats.bugs == set(), case.what
                count += 1
    assert count > CASES_MIN


@pytest.mark.parametrize("name", CHANNELS)
def test_what_a_channel_takes_for_no_level_is_known(name: str) -> None:
    talk = Talk(name)
    for _ in messages(talk):
        shapes = {out.shape for out in talk.outputs if isinstance(out, Delta | Snapshot)}
    assert any(shape.signed for shape in shapes) == (name in SIGNED)
    assert any(shape.skip_zero_price for shape in shapes) == (name in PADDED)
    assert any(shape.amount_decimals is not None for shape in shapes) == (name in CUT)


@pytest.mark.parametrize("name", CHANNELS)
def test_the_messages_that_are_damaged_make_the_book_of_the_exchange(name: str) -> None:
    talk = Talk(name)
    for message in messages(talk):
        told = Told(talk, [*message.before, message.step])
        assert told.sides(message.instrument) == message.truth
        assert as_sent(message.text, message.step.payload) is not None
