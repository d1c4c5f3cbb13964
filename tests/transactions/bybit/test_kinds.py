"""Our words for Bybit's."""

import pytest

from onebook.transactions.bybit.kinds import funding_kind, ledger_kind


@pytest.mark.parametrize(
    ("native", "expected"),
    [
        ("TRADE", ("trade", "Trade")),
        ("SETTLEMENT", ("funding", "Funding")),
        ("BONUS_RECOLLECT", ("bonus", "Bonus")),
        ("TRANSFER_IN_INS_LOAN", ("loan", "Other")),
        ("SOMETHING_NEW", ("other", "Other")),
    ],
)
def test_types_of_the_ledger(native: str, expected: tuple[str, str]) -> None:
    assert ledger_kind(native) == expected


@pytest.mark.parametrize(
    ("words", "desc", "incoming", "expected"),
    [
        ("Earn", "Flexible Interest Distribution", True, ("earn", "Staking Reward")),
        ("Earn", "Flexible Interest Distribution", False, ("earn", "Other")),
        ("Transfer in", "", True, ("transfer", "Transfer")),
        ("Crypto Loan", "", True, ("loan", "Other")),
        ("Anything", "", True, ("other", "Other")),
    ],
)
def test_words_of_the_funding_wallet(
    words: str, desc: str, incoming: bool, expected: tuple[str, str]
) -> None:
    assert funding_kind(words, desc, incoming=incoming) == expected
