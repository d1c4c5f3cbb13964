"""A fused book shows the newest state that it received, or is not live: many lives by seed.

`python tests/proofs/fusing.py 10000` runs more of them.
"""

from proofs.fusing import lives


def test_the_newest_received_state_is_shown_whatever_happens_on_either_channel():
    shown, agreed, off = lives(range(150))
    assert shown > 400
    assert agreed > 30
    assert off == 0


def test_nothing_older_than_the_levels_is_shown_where_states_have_times_instead_of_numbers():
    shown, agreed, off = lives(range(150), "by time")
    assert shown > 200
    assert agreed == off == 0, "times are never equal, so they prove nothing"


def test_the_best_prices_of_a_shallow_book_are_those_of_a_state_whatever_it_loses():
    shown, agreed, off = lives(range(150), "of a shallow book")
    assert shown > 400
    assert agreed > 30
    assert off == 0
