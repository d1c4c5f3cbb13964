"""How Bybit books events, as the proof needs it."""

from onebook.transactions.bybit.books import BOOKS
from onebook.transactions.bybit.endpoints import TYPES
from onebook.transactions.reconciliation import CHECKS


def test_its_types_are_those_of_the_endpoints() -> None:
    assert {BOOKS.trades, BOOKS.tokens, *BOOKS.contracts.values()} <= set(TYPES)


def test_reasons_are_of_checks_that_there_are() -> None:
    assert set(BOOKS.reasons) <= set(CHECKS)


def test_the_wallets_with_special_roles_are_held() -> None:
    assert {BOOKS.trading_wallet, BOOKS.funding_wallet} == BOOKS.held
