"""Rolling windows of a simulated account, and addresses that are shut out."""

from onebook.simulator.accounts.limits import AddressBans, RollingCount


def test_a_window_says_how_many_are_left_and_when_one_is_free():
    window = RollingCount(2, 1.0)
    assert window.take(0) == (True, 1, 0)
    assert window.take(400) == (True, 0, 400)
    assert window.take(900) == (False, 0, 1_000)
    assert window.take(1_000)[0]
    assert window.take(1_100) == (False, 0, 1_400)


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
