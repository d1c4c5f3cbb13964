"""What whole simulated accounts come to: read through the service, and summed by currency."""

import asyncio
from collections import defaultdict
from decimal import Decimal
from typing import Any

from onebook.core import show
from onebook.errors import ExchangeFailed
from transactions.bybit_support import AccountWorld

READS_MAX = 200
PAUSE_S = 60
Records = list[dict[str, Any]]


def summed(records: Records) -> dict[str, str]:
    """By currency what completed primary records say was moved."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for record in records:
        if record["view"] != "primary" or record["status"] != "completed":
            continue
        for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
            if money := record.get(name):
                sums[money["currency"]] += sign * Decimal(money["amount_str"])
        for fee in record["fees"]:
            sums[fee["currency"]] -= Decimal(fee["amount"])
    return {currency: show(amount) for currency, amount in sums.items() if amount}


def by_currency(balances: dict[tuple[str, str], str]) -> dict[str, str]:
    """The balances of all wallets together."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for (_, currency), amount in balances.items():
        sums[currency] += Decimal(amount)
    return {currency: show(amount) for currency, amount in sums.items() if amount}


async def all_of(world: AccountWorld, *types: str, **fields: Any) -> tuple[Records, dict[str, Any]]:
    """Every record, by a stream, and its summary."""
    async with world:
        lines = await world.everything(*types, **fields)
    assert lines[-1]["success"], lines[-1]
    return lines[:-1], lines[-1]


async def read_again(world: AccountWorld, *types: str, **fields: Any) -> Records:
    """Follow the cursor to the end of a complete answer, as a client does."""
    async with world:
        records: Records = []
        cursor = None
        for _ in range(READS_MAX):
            try:
                answer = await world.fetch(*types, cursor=cursor, **fields)
            except ExchangeFailed:  # every type failed
                await asyncio.sleep(PAUSE_S)
                continue
            records += answer["transactions"]
            cursor = answer["next_cursor"]
            if cursor is None:
                assert not answer["partial"], answer["errors"]
                return records
            await asyncio.sleep(PAUSE_S)
    raise AssertionError("it never came to an end")
