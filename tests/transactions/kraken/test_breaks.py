"""The effect of damage to Kraken's answers, and damage that no check finds.

The breaks that are found: `transactions/test_breaks.py`.
"""

from typing import Any

import httpx

from transactions.breaking import Break, Row, Tampering, proof_of
from transactions.bybit_support import run
from transactions.kraken.breaks import (
    ACCOUNT,
    KRAKEN_BREAKS,
    LEDGER_ROWS,
    LEDGERS,
    by,
    rows_of,
)
from transactions.kraken_support import KrakenWorld


def test_a_word_of_the_ledger_that_is_falsified_is_named_as_unprovable() -> None:
    """Balances form a chain whatever a row's type is."""

    def renamed(row: Row) -> Row:
        return row | {"type": "staking", "subtype": ""}

    proof = proof_of(
        KRAKEN_BREAKS, ACCOUNT, Break((LEDGERS,), by(*rows_of("earn reward")), renamed)
    )
    assert proof["holds"] is True
    assert any("types of ledger rows" in each["what"] for each in proof["unproven"])


def test_rows_that_kraken_counts_and_does_not_show_are_missed() -> None:
    lost = Break((LEDGERS,), by(*rows_of("deposit", 0.0)))

    def around(inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
        return Tampering(inner, KRAKEN_BREAKS, lost)

    async def collected() -> dict[str, Any]:
        async with KrakenWorld(ACCOUNT, around=around) as world:
            return await world.fetch("ledger", start_time=0, limit=10_000)

    answer = run(collected())
    assert answer["partial"]
    (error,) = answer["errors"]
    count = len(LEDGER_ROWS)
    assert error["message"] == f"Kraken counts {count} rows but returns only {count - 1}."
    assert answer["next_cursor"]
