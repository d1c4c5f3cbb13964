"""Time stamps, rate limits, bans and injected faults."""

import pytest

from onebook.simulator.accounts.admission import (
    AccountFaults,
    AddressBans,
    DecayingCounter,
    Lockouts,
    RisingStamps,
    RollingCount,
    in_time,
)


def test_a_stamp_may_be_so_far_behind_and_less_far_ahead():
    bounds = {"behind_ms": 5_000, "ahead_ms": 1_000}
    stamps = {4_999: False, 5_000: True, 10_000: True, 10_999: True, 11_000: False}
    assert {each: in_time(each, 10_000, **bounds) for each in stamps} == stamps


def test_stamps_of_a_key_must_rise_and_a_refused_one_changes_nothing():
    stamps = RisingStamps()
    assert [stamps.accept("a", each) for each in (5, 5, 4, 6)] == [True, False, False, True]
    assert stamps.accept("b", 0)
    assert not stamps.accept("b", -1)


def test_in_a_window_a_lower_stamp_is_accepted_once():
    stamps = RisingStamps()
    given = (100, 95, 95, 90, 91, 100, 120, 111, 109)
    accepted = [stamps.accept("a", each, window=10) for each in given]
    assert accepted == [True, True, False, False, True, False, True, True, False]
    assert stamps.highest("a") == 120
    assert stamps.highest("b") == -1


def test_a_counter_rises_by_costs_and_sinks_continuously():
    counter = DecayingCounter(15, 0.5)
    assert [counter.count_request(7, 0) for _ in range(3)] == [True, True, False]
    assert counter.wait_s(7, 0) == pytest.approx(12.0)
    assert not counter.count_request(7, 11_900)
    assert counter.count_request(7, 12_100)
    assert counter.wait_s(15, 100_000) == 0.0
    assert counter.count_request(15, 100_000)
    assert not counter.count_request(1, 101_900)
    assert counter.count_request(1, 102_000)


def test_failures_in_a_row_lock_out_and_asking_meanwhile_prolongs_it():
    lockouts = Lockouts(3, lockout_s=10.0)
    for at_ms in (0, 1):
        lockouts.strike("a", at_ms)
    lockouts.clear("a")
    for at_ms in (2, 3):
        lockouts.strike("a", at_ms)
    assert not lockouts.locked("a", 3)
    lockouts.strike("a", 4)
    assert lockouts.locked("a", 9_000)
    assert lockouts.locked("a", 18_999)
    assert not lockouts.locked("b", 18_999)
    assert not lockouts.locked("a", 28_999)


def test_a_window_says_how_many_are_left_and_when_one_is_free():
    window = RollingCount(2, 1.0)
    assert window.count_request(0) == (True, 1, 0)
    assert window.count_request(400) == (True, 0, 400)
    assert window.count_request(900) == (False, 0, 1_000)
    assert window.count_request(1_000)[0]
    assert window.count_request(1_100) == (False, 0, 1_400)


def test_an_address_over_its_limit_is_shut_out_for_a_while_and_others_are_not():
    bans = AddressBans(2, 1.0, ban_s=10.0)
    assert [bans.refuses("a", 0) for _ in range(3)] == [False, False, True]
    assert bans.refuses("a", 9_999)
    assert not bans.refuses("b", 9_999)
    assert not bans.refuses("a", 10_000)


def test_an_address_can_be_shut_out_on_demand():
    bans = AddressBans(2, 1.0, ban_s=10.0)
    bans.ban("a", 0)
    assert bans.refuses("a", 1)


def test_queued_faults_come_once_in_order_for_their_path_only():
    faults = AccountFaults()
    faults.queue("/orders", "slow", "broken")
    assert faults.next("/fills") == ""
    assert [faults.next("/orders") for _ in range(3)] == ["slow", "broken", ""]
    assert faults.served == {("/orders", "slow"): 1, ("/orders", "broken"): 1}


def test_random_faults_come_at_their_rate_and_the_same_for_a_seed():
    def drawn(seed):
        faults = AccountFaults(rate=0.25, kinds=("slow", "broken"), seed=seed)
        return [faults.next("/") for _ in range(2_000)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert 400 < sum(map(bool, drawn(1))) < 600
    assert set(drawn(1)) == {"", "slow", "broken"}


def test_without_kinds_nothing_fails_at_any_rate():
    assert AccountFaults(rate=1.0).next("/") == ""
