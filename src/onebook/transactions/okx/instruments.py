"""OKX's instruments as markets: from its lists, or else from their names; pure.

https://www.okx.com/docs-v5/en/#public-data-rest-api-get-instruments

A name contains everything except the settle coin of a USD contract: expired contracts are in no
list.
"""

import re
from calendar import timegm
from collections.abc import AsyncGenerator
from time import strptime
from typing import Final
from urllib.parse import urlencode

from onebook.transactions.client import Call
from onebook.transactions.exchange import Ask
from onebook.transactions.markets import InstrumentRow, unknown_market
from onebook.transactions.okx.api import INSTRUMENTS
from onebook.transactions.okx.rows import coin
from onebook.transactions.record import TradedMarket

SPOT, SWAP, DATED, OPTION = "spot", "swap", "futures", "option"
CATEGORIES: Final = {
    "SPOT": SPOT, "MARGIN": SPOT, "SWAP": SWAP, "FUTURES": DATED, "OPTION": OPTION,
}  # fmt: skip
LISTED: Final = {SPOT: "SPOT", SWAP: "SWAP", DATED: "FUTURES"}  # options: only by family
EXPIRY_HOUR_MS: Final = 8 * 3_600_000  # contracts expire at 08:00 UTC
CONTRACT_TYPES: Final = {SWAP: "perpetual", DATED: "futures", OPTION: "option"}

_NAME = re.compile(
    r"(?P<base>[^-]+)-(?P<quote>[^-]+)"
    r"(-(?P<swap>SWAP)|-(?P<date>\d{6})(?P<option>-[0-9.]+-[CP])?)?"
)


async def instruments(ask: Ask, category: str) -> AsyncGenerator[list[InstrumentRow]]:
    """Every listed instrument of a category."""
    kind = LISTED.get(category)
    if kind is not None:
        yield (await ask(Call(INSTRUMENTS, urlencode({"instType": kind})))).value


def listed(category: str, row: InstrumentRow) -> TradedMarket:
    """Convert a row of the list to a market."""
    market = guess(category, row["instId"])
    settle, linear = row.get("settleCcy"), row.get("ctType")
    if category == SPOT or market.contract_type is None:
        return market
    kind = CONTRACT_TYPES[category]
    return TradedMarket(
        market.symbol,
        category,
        f"{linear} {kind}" if linear else kind,
        market.base,
        market.quote,
        coin(settle) if settle else market.settle,
        int(row.get("expTime") or 0) or market.expiry,
    )


def guess(category: str, symbol: str) -> TradedMarket:
    """Derive a market from its name; `BTC-USD-230929-30000-C` is an option."""
    found = _NAME.fullmatch(symbol)
    if found is None:
        return unknown_market(category, symbol)
    base, quote = coin(found["base"]), coin(found["quote"])
    if found["swap"] is None and found["date"] is None:
        return TradedMarket(symbol, SPOT, None, base, quote, None, None)
    kind = SWAP if found["swap"] else OPTION if found["option"] else DATED
    settle = base if quote == "USD" else quote
    expiry = _expiry(found["date"]) if found["date"] else None
    return TradedMarket(symbol, kind, CONTRACT_TYPES[kind], base, quote, settle, expiry)


def _expiry(date: str) -> int | None:
    try:
        return timegm(strptime(date, "%y%m%d")) * 1_000 + EXPIRY_HOUR_MS
    except ValueError:
        return None
