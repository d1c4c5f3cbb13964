"""Kraken's pairs as markets, by our symbols; pure.

https://docs.kraken.com/api-reference/market-data/get-tradable-asset-pairs

A trade is known by the two rows of the ledger and, where the list of trades has it, by its side.
The pairs decide which coin is the base where the list does not.
"""

from collections.abc import AsyncGenerator
from typing import Final

from onebook.transactions.client import Call
from onebook.transactions.exchange import Ask
from onebook.transactions.kraken.assets import asset_of
from onebook.transactions.markets import InstrumentRow
from onebook.transactions.record import TradedMarket

PAIRS: Final = "/0/public/AssetPairs"


async def pairs(ask: Ask, category: str) -> AsyncGenerator[list[InstrumentRow]]:
    """Every pair that is traded now, in one page."""
    yield list((await ask(Call(PAIRS))).value.values())


def listed(category: str, row: InstrumentRow) -> TradedMarket:
    """A pair as a market."""
    base, quote = asset_of(row["base"]).currency, asset_of(row["quote"]).currency
    return TradedMarket(f"{base}/{quote}", category, None, base, quote, None, None)
