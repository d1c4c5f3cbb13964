"""Subjects of a cluster: one token per name, whatever its characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onebook.nodes.subjects import LIVE, SNAPSHOT, BookKey, Subjects, token
from onebook.nodes.wire import VERSION

SUBJECTS = Subjects("eu")


def test_heartbeats_are_seen_by_every_version_and_the_rest_by_its_own():
    assert SUBJECTS.heartbeats == "eu.nodes"
    assert SUBJECTS.interest == f"eu.{VERSION}.interest"
    assert SUBJECTS.book(BookKey("okx", "BTC/USDT")) == f"eu.{VERSION}.book.okx.BTC%2FUSDT"


def test_a_request_names_the_node_and_what_is_asked():
    assert SUBJECTS.request(255, SNAPSHOT) == f"eu.{VERSION}.node.00000000000000ff.snapshot"
    assert SUBJECTS.request(255, LIVE) != SUBJECTS.request(256, LIVE)


@pytest.mark.parametrize("text", [".", "*", ">", "a b", "BTC.P/USD", "\u00e9", "a\tb"])
def test_a_token_has_no_character_with_a_meaning_in_subjects(text):
    assert not set(token(text)) & set(". *>\t")
    assert token(text).isascii()


@given(st.text(max_size=20), st.text(max_size=20))
def test_different_names_have_different_tokens(one, other):
    assert (token(one) == token(other)) == (one == other)
