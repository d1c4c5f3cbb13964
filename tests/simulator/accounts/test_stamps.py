"""What a simulated exchange accepts of its clients' clocks."""

from onebook.simulator.accounts.stamps import RisingStamps, in_time


def test_a_stamp_may_be_so_far_behind_and_less_far_ahead():
    bounds = {"behind_ms": 5_000, "ahead_ms": 1_000}
    stamps = {4_999: False, 5_000: True, 10_000: True, 10_999: True, 11_000: False}
    assert {each: in_time(each, 10_000, **bounds) for each in stamps} == stamps


def test_stamps_of_a_key_must_rise_and_a_refused_one_changes_nothing():
    stamps = RisingStamps()
    assert [stamps.accept("a", each) for each in (5, 5, 4, 6)] == [True, False, False, True]
    assert stamps.accept("b", 0)
    assert not stamps.accept("b", -1)
