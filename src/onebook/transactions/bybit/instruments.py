"""Base, quote and settle coin of Bybit's symbols.

The list is `/v5/market/instruments-info`; a symbol that is no longer listed (delisted, expired) is
parsed from its name. https://bybit-exchange.github.io/docs/v5/market/instrument
"""

import re
from calendar import timegm
from collections.abc import Mapping
from time import strptime
from typing import Any, Final

from onebook.transactions.markets import unknown_market
from onebook.transactions.record import TradedMarket

# Quote coins on spot; if one is a suffix of another, the longer one comes first.
QUOTES: Final = (
    "USDT", "USDC", "USDE", "USD1", "USDQ", "USDR", "BUSD", "EURC", "EURQ", "EURR", "XUSD",
    "DAI", "EUR", "GBP", "BRL", "BRZ", "PLN", "TRY", "MNT", "BTC", "ETH", "SOL", "USD",
)  # fmt: skip
EXPIRY_HOUR_MS: Final = 8 * 3_600_000  # futures and options expire at 08:00 UTC

_DATED = re.compile(r"(?P<pair>[A-Z0-9]+)-(?P<date>\d{1,2}[A-Z]{3}\d{2})")
_INVERSE = re.compile(r"(?P<base>[A-Z0-9]+)USD(?P<month>[FGHJKMNQUVXZ]\d{2})?")
_OPTION = re.compile(
    r"(?P<base>[A-Z0-9]+)-(?P<date>\d{1,2}[A-Z]{3}\d{2})-[0-9.]+-[CP](-(?P<settle>[A-Z0-9]+))?"
)


def listed(category: str, row: Mapping[str, Any]) -> TradedMarket:
    """Convert a row of `instruments-info` to a market."""
    expiry = int(row.get("deliveryTime") or 0)
    contract = row.get("contractType") or ("Option" if category == "option" else None)
    perpetual = contract is not None and contract.endswith("Perpetual")
    return TradedMarket(
        symbol=row["symbol"],
        category=category,
        contract_type=contract,
        base=row.get("baseCoin"),
        quote=row.get("quoteCoin"),
        settle=row.get("settleCoin"),
        expiry=None if perpetual else expiry or None,
    )


def guess(category: str, symbol: str) -> TradedMarket:
    """Derive a market from its name."""
    parse = _PARSERS.get(category)
    found = parse(symbol) if parse else None
    return found or unknown_market(category, symbol)


def _spot(symbol: str) -> TradedMarket | None:
    for quote in QUOTES:
        base = symbol.removesuffix(quote)
        if base and base != symbol:
            return TradedMarket(symbol, "spot", None, base, quote, None, None)
    return None


def _linear(symbol: str) -> TradedMarket | None:
    if dated := _DATED.fullmatch(symbol):
        pair, expiry = dated["pair"], _expiry(dated["date"])
        base = pair.removesuffix("USDT")
        coin = "USDC" if base == pair else "USDT"
        return TradedMarket(symbol, "linear", "LinearFutures", base, coin, coin, expiry)
    for suffix, coin in (("USDT", "USDT"), ("PERP", "USDC"), ("USDC", "USDC")):
        base = symbol.removesuffix(suffix)
        if base and base != symbol:
            return TradedMarket(symbol, "linear", "LinearPerpetual", base, coin, coin, None)
    return None


def _inverse(symbol: str) -> TradedMarket | None:
    found = _INVERSE.fullmatch(symbol)
    if found is None:
        return None
    # The month letter does not determine the day, so an expired future has no known expiry.
    contract = "InverseFutures" if found["month"] else "InversePerpetual"
    return TradedMarket(symbol, "inverse", contract, found["base"], "USD", found["base"], None)


def _option(symbol: str) -> TradedMarket | None:
    found = _OPTION.fullmatch(symbol)
    if found is None:
        return None
    coin = found["settle"] or "USDC"
    expiry = _expiry(found["date"])
    return TradedMarket(symbol, "option", "Option", found["base"], coin, coin, expiry)


def _expiry(date: str) -> int | None:
    try:
        return timegm(strptime(date, "%d%b%y")) * 1_000 + EXPIRY_HOUR_MS
    except ValueError:
        return None


_PARSERS: Final = {"spot": _spot, "linear": _linear, "inverse": _inverse, "option": _option}
