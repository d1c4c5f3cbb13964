"""Options of a subscription, as types: what `watch`, `order_book` and sessions accept."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypedDict

from onebook.orderbook import ALL, Names, exchange_texts, symbols_of


class FillRequest(TypedDict, total=False):
    """Sizes whose cost is in each update, as decimal text: at most 8 together."""

    amounts: list[str]  # in the base currency
    notionals: list[str]  # in the quote currency


class SubscribeOptions(TypedDict, total=False):
    """Options of a view; docs/reference/messages.md has their limits and defaults."""

    depth: int  # levels a side
    interval_ms: int  # least time between two updates
    mode: Literal["full", "delta"]  # whole updates, or changed levels with a checksum
    levels: Literal["object", "array"]  # form of a level on the wire
    split: bool  # the amount of each exchange at a level
    group: str  # price step to bin to, as decimal text
    ages: bool  # how old the data of each exchange is
    coverage: bool  # up to which price the book of each exchange is known
    fill: FillRequest  # the cost of sizes, over the best 500 levels


class SymbolOptions(SubscribeOptions, total=False):
    """Options of one symbol among several, which take precedence over the common ones."""

    exchanges: Names


Symbols = str | Iterable[str] | Mapping[str, SymbolOptions]


def subscriptions_of(
    symbols: Symbols, exchanges: Names, options: SubscribeOptions
) -> dict[str, dict[str, Any]]:
    """Return the fields of a subscription by symbol.

    Raises:
        ValueError: There is no symbol, or an empty one.
        TypeError: A symbol or an exchange is not text, or options are not a mapping.
    """
    found: dict[str, dict[str, Any]] = {}
    own = symbols if isinstance(symbols, Mapping) else {}
    for symbol in symbols_of(symbols):
        found[symbol] = fields_of(exchanges, options)
    for given, chosen in own.items():
        if not isinstance(chosen, Mapping):
            raise TypeError(f'Options of {given} must be a mapping, such as {{"depth": 5}}.')
        more: dict[str, Any] = {**options, **chosen}
        (symbol,) = symbols_of(given)
        found[symbol] = fields_of(more.pop("exchanges", exchanges), more)
    return found


def fields_of(exchanges: Names, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return exchanges and options as fields of a message.

    Raises:
        TypeError: The name of an exchange is not text.
    """
    names = exchange_texts(exchanges)
    return {"exchanges": ALL if names == [ALL] else names, **options}
