"""Columns of levels: the compiled ones equal those of the reference, byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook import core
from onebook.core import reference
from onebook.core.types import PAIRS, LevelError, LevelShape

NUMBERS = st.decimals("0.0001", 10**9, places=4).map(lambda each: f"{each:f}")
SIDES = st.lists(st.tuples(NUMBERS, st.one_of(NUMBERS, st.just("0.000"))), max_size=4)
MESSAGES = st.lists(st.tuples(SIDES, SIDES, st.integers(0, 10), st.integers(0, 10)), max_size=6)


def text(side: list[tuple[str, str]]) -> bytes:
    rows = [f'["{price}","{amount}"]' for price, amount in side]
    return f"[{','.join(rows)}]".encode()


def added(columns, message) -> bool:
    bids, asks, price_scale, amount_scale = message
    try:
        columns.add(text(bids), text(asks), PAIRS, price_scale, amount_scale)
    except LevelError:
        return False
    return True


@given(MESSAGES)
def test_compiled_columns_equal_those_of_the_reference(messages) -> None:
    compiled, slow = core.LevelColumns(), reference.LevelColumns()
    for message in messages:
        assert added(compiled, message) == added(slow, message)
    assert compiled.take() == slow.take()
    compiled.skip()
    slow.skip()
    assert compiled.take() == slow.take()


@pytest.mark.parametrize("made", [core.LevelColumns, reference.LevelColumns])
def test_a_message_has_rows_or_one_without_a_side(made) -> None:
    columns = made()
    columns.add(b'[["1.5","2"]]', b'[["1.6","0"]]', PAIRS, 2, 1)
    columns.add(b"[]", b"[]", PAIRS, 0, 0)
    columns.add(b"[[15,2]]", b"[]", LevelShape.rows(price_scale=1), 1, 0)
    messages, sides, prices, amounts = columns.take()
    assert memoryview(messages).cast("i").tolist() == [0, 0, 1, 2]
    assert [*sides] == [0, 1, 2, 0]
    assert memoryview(prices).cast("q").tolist() == [150, 160, 0, 15]
    assert memoryview(amounts).cast("q").tolist() == [20, 0, 0, 2]
