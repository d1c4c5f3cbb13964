"""The effect of damage to OKX's answers, and damage that no check finds.

The breaks that are found: `transactions/test_breaks.py`.
"""

from collections import Counter

import httpx

from transactions.breaking import Break, Tampering, proof_of
from transactions.bybit_support import run
from transactions.okx.breaks import ACCOUNT, DEPOSITS, FUNDING, OKX_BREAKS, completed, is_type
from transactions.okx_support import OkxWorld


def test_a_deposit_that_its_list_lost_is_one_of_the_bills() -> None:
    """Money is never lost, only its network and transaction."""

    async def fetched(broken: Break | None) -> Counter[str]:
        def around(inner: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
            return Tampering(inner, OKX_BREAKS, broken) if broken else inner

        async with OkxWorld(ACCOUNT, around=around, site={"limited": False}) as world:
            answer = await world.fetch("deposits", start_time=0, limit=10_000)
            return Counter(
                (each["asset"], each["amount"])
                for each in answer["transactions"]
                if each["status"] == "completed"
            )

    assert run(fetched(Break(DEPOSITS, completed))) == run(fetched(None))


def test_a_code_that_is_falsified_is_named_as_unprovable() -> None:
    """Balances form a chain whatever a bill's type is."""
    proof = proof_of(
        OKX_BREAKS, ACCOUNT, Break(FUNDING, is_type("83"), lambda row: row | {"type": "229"})
    )
    assert proof["holds"] is True
    assert any("the types of bills" in each["what"] for each in proof["unproven"])
