"""Rendezvous hashing: all nodes agree, books are spread, and only those of a lost node move."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from onebook.nodes.placement import BookKey, key_of, ranking

BOOKS = [f"okx C{number}/USDT" for number in range(2_000)]


def test_the_text_of_a_key_can_be_read_back():
    key = BookKey("okx", "BTC/USDT")
    assert key.text == "okx BTC/USDT"
    assert key_of(key.text) == key


@given(st.permutations([1, 2, 3, 2**63]))
def test_the_order_in_which_nodes_are_known_does_not_matter(nodes):
    assert ranking("okx BTC/USDT", nodes) == ranking("okx BTC/USDT", [1, 2, 3, 2**63])


def test_a_ranking_holds_every_node_once():
    assert sorted(ranking("okx BTC/USDT", range(10))) == [*range(10)]
    assert ranking("okx BTC/USDT", []) == ()


def test_books_of_a_node_that_leaves_go_to_the_next_and_no_other_moves():
    for book in BOOKS:
        before = ranking(book, [1, 2, 3, 4])
        assert ranking(book, [1, 2, 4]) == tuple(node for node in before if node != 3)


def test_books_are_spread_evenly():
    """2,000 books on 4 nodes: 500 each, with a standard deviation of 19."""
    counts = Counter(ranking(book, [1, 2, 3, 4])[0] for book in BOOKS)
    assert all(400 < count < 600 for count in counts.values())
