"""Balances of a simulated wallet add up."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from onebook.simulator.accounts.ledger import WalletBalances


@given(st.lists(st.integers()))
def test_every_balance_is_the_one_before_plus_the_change(changes):
    wallet = WalletBalances()
    wallet.book("ETH", 7)
    assert [wallet.book("BTC", each) for each in changes] == [*accumulate(changes)]
    assert wallet.held["ETH"] == 7
