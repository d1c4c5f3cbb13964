"""Totals of whole simulated accounts: read along the cursor, summed by currency."""

import asyncio
from collections import defaultdict
from decimal import Decimal
from typing import Any

from msgspec import json

from onebook.core import show
from onebook.errors import ExchangeFailed
from transactions.bybit_support import AccountWorld

READS_MAX = 2_000
PAUSE_S = 60
Records = list[dict[str, Any]]
EXACT = json.Decoder(float_hook=Decimal).decode


def added_up(records: Records) -> dict[str, Decimal]:
    """Net change by currency of completed primary records: received less sent less fees."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for record in records:
        if record["view"] != "primary" or record["status"] != "completed":
            continue
        for name, sign in (("receivedCurrency", 1), ("sentCurrency", -1)):
            if money := record.get(name):
                sums[money["currency"]] += sign * Decimal(money["amount_str"])
        for fee in record["fees"]:
            sums[fee["currency"]] -= Decimal(fee["amount"])
    return {currency: amount for currency, amount in sums.items() if amount}


def summed(records: Records) -> dict[str, str]:
    """The same as canonical text."""
    return {currency: show(amount) for currency, amount in added_up(records).items()}


def by_currency(balances: dict[tuple[str, str], str]) -> dict[str, str]:
    """The balances of all wallets, summed."""
    sums: defaultdict[str, Decimal] = defaultdict(Decimal)
    for (_, currency), amount in balances.items():
        sums[currency] += Decimal(amount)
    return {currency: show(amount) for currency, amount in sums.items() if amount}


async def all_of(world: AccountWorld, *types: str, **fields: Any) -> tuple[Records, dict[str, Any]]:
    """Every record of a stream, and its summary."""
    async with world:
        lines = await world.everything(*types, **fields)
    assert lines[-1]["success"], lines[-1]
    return lines[:-1], lines[-1]


class Answered:
    """Every answer to one query, along the cursor."""

    def __init__(self) -> None:
        self.records: Records = []
        self.coverage: dict[str, dict[str, Any]] = {}
        self.errors: Records = []
        self.partial = False
        self.tails: Records = []

    def add(self, records: Records, tail: dict[str, Any]) -> str | None:
        self.records += records
        self.coverage = {entry["transaction_type"]: entry for entry in tail["coverage"]}
        self.errors += tail["errors"]
        self.partial = tail["partial"]
        self.tails.append(tail)
        return tail["next_cursor"]


async def asked(
    world: AccountWorld, *types: str, streamed: bool = False, pause_s: float = 0.0, **fields: Any
) -> Answered:
    """Follow the cursor to the end, as a client does.

    Args:
        pause_s: Before a page is asked for after another one, and again if every type failed; 0: a
            failure is raised.
    """
    found, cursor = Answered(), None
    async with world:
        for _ in range(READS_MAX):
            try:
                if streamed:
                    *records, tail = await world.stream(*types, cursor=cursor, **fields)
                else:
                    tail = await world.fetch(*types, cursor=cursor, **fields)
                    records = tail["transactions"]
            except ExchangeFailed:
                if not pause_s:
                    raise
            else:
                cursor = found.add(records, tail)
                if cursor is None:
                    return found
            await asyncio.sleep(pause_s)
    raise AssertionError("it never came to an end")


async def read_again(world: AccountWorld, *types: str, **fields: Any) -> Records:
    """The records of a complete answer, whatever faults occur."""
    found = await asked(world, *types, pause_s=PAUSE_S, **fields)
    assert not found.partial, found.errors
    return found.records
