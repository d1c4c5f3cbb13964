"""Mapping of Kraken's pairs to markets, by our symbols; pure.

https://docs.kraken.com/api-reference/market-data/get-tradable-asset-pairs

A trade has two ledger rows and, if it is in the list of trades, a side. If it is not, the pairs
decide which of the two coins is the base.
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
    """Every pair that is traded now, by our symbol and by each of Kraken's names."""
    found = (await ask(Call(PAIRS))).value
    yield [
        row | {"symbol": name}
        for native, row in found.items()
        for name in (symbol_of(row), native, row["altname"])
    ]


def symbol_of(row: InstrumentRow) -> str:
    """Our symbol of a pair."""
    return f"{asset_of(row['base']).currency}/{asset_of(row['quote']).currency}"


def listed(category: str, row: InstrumentRow) -> TradedMarket:
    """Map a pair to a market."""
    base, quote = asset_of(row["base"]).currency, asset_of(row["quote"]).currency
    symbol = row.get("symbol") or symbol_of(row)
    return TradedMarket(symbol, category, None, base, quote, None, None)
