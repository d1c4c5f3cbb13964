"""Selects ccxt's spot markets, and makes the number writers of each.

Pure: market structures of ccxt (https://docs.ccxt.com/#/README?id=market-structure) come in, and of
ccxt itself only the two functions that write numbers.
"""

from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Any, Final

from onebook.exchanges.kit import step_of
from onebook.exchanges.kit.through_ccxt import Market
from onebook.feeds.ccxt.numbers import Number, SideWriter, Write, rounding

# ccxt's `precisionMode`: what the precision of a market counts.
DECIMAL_PLACES: Final = 2
TICK_SIZE: Final = 4
ROUND: Final = 1  # its rounding mode: half up

Round = Callable[..., str]  # ccxt's decimal_to_precision(number, mode, precision, counting)


def rows(markets: Iterable[Mapping[str, Any]], counting: int, plain: Write) -> list[Market]:
    """List the spot markets that are active; ccxt's `active` is None where that is not known."""
    return [
        Market(
            native=market["id"],
            symbol=market["symbol"],
            base=market["base"],
            quote=market["quote"],
            tick=_step(market, "price", counting, plain),
            lot=_step(market, "amount", counting, plain),
        )
        for market in markets
        if market.get("spot") is True
        and not market.get("contract")
        and market.get("active") is not False
        and all(isinstance(market.get(name), str) for name in ("id", "symbol", "base", "quote"))
    ]


def writer(market: Mapping[str, Any], counting: int, round_to: Round, plain: Write) -> SideWriter:
    """Return what writes the sides of a market's book."""
    price, amount = (
        _write(precision_of(market, column, counting), counting, round_to, plain)
        for column in ("price", "amount")
    )
    return SideWriter(price, amount, plain)


def _write(precision: Number | None, counting: int, round_to: Round, plain: Write) -> Write:
    if precision is None:
        return plain
    # The arguments in ccxt's order, because its parameters have no stable names.
    return rounding(lambda number: round_to(number, ROUND, precision, counting), plain)


def precision_of(market: Mapping[str, Any], column: str, counting: int) -> Number | None:
    """Return the precision of a column as `decimal_to_precision` takes it; None where it has none.

    A step must be above zero; what counts digits must be whole.
    """
    precision = (market.get("precision") or {}).get(column)
    if isinstance(precision, bool) or not isinstance(precision, int | float):
        return None
    if not isfinite(precision):
        return None
    if counting == TICK_SIZE:
        return precision if precision > 0 else None
    return int(precision) if precision == int(precision) else None


def _step(market: Mapping[str, Any], column: str, counting: int, plain: Write) -> str:
    precision = precision_of(market, column, counting)
    if precision is None:
        return ""
    if counting == TICK_SIZE:
        return plain(precision)
    return step_of(int(precision)) if counting == DECIMAL_PLACES else ""
