"""What all connectors read with."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.exchanges.kit.frames import (
    TEXT_MAX_CHARS,
    batches,
    has_more_items,
    short,
    step_of,
    symbol_of,
    text_in,
)


@pytest.mark.parametrize(
    ("decimals", "step"),
    [(0, "1"), (1, "0.1"), (8, "0.00000001"), (18, "0.000000000000000001"), (19, ""), (-1, "")],
)
def test_a_step_has_as_many_decimals_as_were_named(decimals: int, step: str) -> None:
    assert step_of(decimals) == step
    assert step_of(str(decimals)) == step
    assert step_of(None) == ""


@pytest.mark.parametrize("decimals", ["", "x", "1.0", "007", "9" * 5_000])
def test_decimals_that_are_no_small_number_make_no_step(decimals: str) -> None:
    assert step_of(decimals) == ""


def test_batches_keep_order_and_size() -> None:
    assert list(batches(range(5), 2)) == [range(0, 2), range(2, 4), range(4, 5)]
    assert list(batches([], 2)) == []


def test_the_words_of_an_exchange_are_cut() -> None:
    assert len(short("x" * 10_000)) == TEXT_MAX_CHARS


@pytest.mark.parametrize("items", [None, [], {}, [{}], [{"symbol": 1}], [{"symbol": "A"}] * 2])
def test_a_frame_that_names_none_or_several_has_no_symbol(items: object) -> None:
    assert symbol_of(items) == ""
    assert symbol_of([{"symbol": "A", "more": 1}]) == "A"


@pytest.mark.parametrize("value", [None, [], "A", {}, {"symbol": 1}, {"other": "A"}])
def test_a_member_that_is_no_text_is_empty(value: object) -> None:
    assert text_in(value, "symbol") == ""
    assert text_in({"symbol": "A", "more": 1}, "symbol") == "A"


JSON_VALUES = st.recursive(
    st.none() | st.integers() | st.text(',[]{}"\\:x\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(',[]{}"\\'), inner),
)


def longest(value: object) -> int:
    """Return how many items the longest list or object of a value has."""
    if not isinstance(value, list | dict):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return max([len(value), *map(longest, inner)])


@given(JSON_VALUES, st.integers(1, 6))
def test_items_are_counted_list_by_list(value: object, most: int) -> None:
    assert has_more_items(json.dumps(value).encode(), most) == (longest(value) > most)


@pytest.mark.parametrize(
    "body", [b'"' + b'\\"' * 100_000, b'"' * 100_001, b"[" * 100_000, b"]" * 100_000, b'["']
)
def test_what_is_no_json_is_left_to_its_decoder(body: bytes) -> None:
    assert not has_more_items(body, 1)
