"""The envelope around records."""

import pytest

from onebook.transactions.answer import Totals, message_of, singular_of
from onebook.transactions.bybit import ENTRY
from transactions.test_record import record


@pytest.mark.parametrize(
    ("type_", "kind", "expected"),
    [
        ("deposits", "deposit", "deposit"),
        ("holdings", "balance", "balance"),
        ("spot_orders", "trade", "trade"),
        ("spot_orders", "order", "order"),
        ("futures_linear", "funding", "future"),
        ("ledger", "trade", "ledger"),
    ],
)
def test_singular_names_are_the_documented_ones(type_: str, kind: str, expected: str) -> None:
    assert singular_of(record(type=type_, kind=kind), ENTRY.singular) == expected


def test_totals_count_by_type_and_know_their_range() -> None:
    totals = Totals({"fills": "fill"})
    for at_ms, name in ((30, "fills"), (10, "fills"), (20, "deposits")):
        totals.heard(record(timestamp=at_ms, type=name, kind="x"))
    assert (totals.count, totals.oldest_ms, totals.newest_ms) == (3, 10, 30)
    assert totals.by_type == {"fill": 2, "deposit": 1}


def test_the_sentence_counts_and_says_when_the_deadline_cut_it() -> None:
    assert message_of(1, 1) == "Successfully parsed 1 transaction from 1 transaction type"
    assert "until the deadline" in message_of(2, 3, cut_off=True)
