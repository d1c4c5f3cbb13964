"""The cursors that were followed."""

import pytest

from onebook.transactions.failures import SourceFailed
from onebook.transactions.trail import Trail


def test_it_goes_on_until_there_is_no_cursor() -> None:
    trail = Trail()
    assert [trail.cursor, trail.follow("a"), trail.cursor] == ["", True, "a"]
    assert not trail.follow("")
    assert trail.cursor == "a"


@pytest.mark.parametrize("again", ["begin", "a"])
def test_a_cursor_that_comes_again_is_a_failure(again: str) -> None:
    trail = Trail("begin")
    trail.follow("a")
    with pytest.raises(SourceFailed, match="repeated a cursor") as caught:
        trail.follow(again)
    assert caught.value.retryable
