"""Faults of a simulated account: on demand in their order, at random at their rate."""

from onebook.simulator.accounts.faults import AccountFaults


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
