"""Sliding windows of a simulated exchange: limits of a connection and of an address."""

from collections import Counter

from onebook.simulator.kit.windows import Most, Windows


def test_as_many_as_allowed_pass_and_one_more_when_the_first_is_old():
    windows = Windows([Most(2, 1.0)])
    assert [windows.takes(now) for now in (0.0, 0.5, 0.9)] == [True, True, False]
    assert windows.takes(1.0)
    assert not windows.takes(1.4)


def test_all_limits_hold_at_once_and_a_refusal_is_counted_in_none():
    windows = Windows([Most(1, 1.0), Most(2, 10.0)])
    assert [windows.takes(now) for now in (0.0, 0.5, 1.0, 2.0)] == [True, False, True, False]
    assert windows.takes(10.0)


def test_a_weight_counts_as_so_many():
    windows = Windows([Most(10, 1.0)])
    assert windows.takes(0.0, 8)
    assert not windows.takes(0.0, 3)
    assert windows.takes(0.0, 2)


def test_connections_of_an_address_share_its_windows_and_no_others():
    limits, address = [Most(3, 1.0, per_address=True), Most(2, 1.0)], {}
    one, other = Windows(limits, address), Windows(limits, address)
    assert [one.takes(0.0), one.takes(0.0), one.takes(0.0)] == [True, True, False]
    assert [other.takes(0.0), other.takes(0.0)] == [True, False]


def test_breaches_are_counted_by_kind():
    breaches = Counter()
    windows = Windows([Most(1)], breaches=breaches, kind="subscribe")
    for _ in range(3):
        windows.takes(0.0)
    assert breaches == {"subscribe": 2}
