"""Typed options of a subscription, for `watch`, `order_book` and sessions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict

from onebook.orderbook import ALL, Names, exchange_texts, symbols_of

LIBRARY_OPTIONS = ("record", "proxy", "feeds", "streams")
APART = "merged=False opens a book for each exchange: use order_books, which yields several."


class FillRequest(TypedDict, total=False):
    """Sizes whose cost is in each update, as decimal text: at most 8 in total."""

    amounts: list[str]  # in the base currency
    notionals: list[str]  # in the quote currency
    limit: str  # with fees: the worst price before fees
    exclude: list[str]  # with fees: exchanges to exclude
    max_exchanges: int  # with fees: maximum exchanges of a split


class SubscribeOptions(TypedDict, total=False):
    """Options of a view; docs/reference/messages.md has their limits and defaults."""

    depth: int  # levels per side
    interval_ms: int  # minimum time between two updates; 0: immediately
    mode: Literal["full", "delta"]  # whole updates, or changed levels with a checksum
    levels: Literal["object", "array"]  # form of a level on the wire
    split: bool  # the amount of each exchange at a level
    group: str  # price step for binning, as decimal text
    ages: bool  # age of each exchange's data
    coverage: bool  # price up to which the book of each exchange is known
    fill: FillRequest  # the cost of sizes, over the best 500 levels
    fees: Mapping[str, str] | Literal["key", "published"]  # taker fees in percent; "*": all others
    net: bool  # levels by price after the fee
    within: str  # only levels within this many basis points of the mid, as decimal text
    times: bool  # when the prices of each exchange were sent and received
    on: Literal["best", "crossing"]  # an update only when a best price, or a crossing, changes
    encoding: Literal["json", "protobuf"]  # of updates; protobuf if the service knows it
    crossings: str  # with fees: exchanges that cross, with at least this profit in percent
    quotes: Sequence[str]  # quote currencies whose books are converted and pooled
    start: str | int  # begin at this moment of the service's history: ISO 8601, or microseconds
    speed: float  # with start: recorded seconds per second; 0: as fast as the views are read


class SymbolOptions(SubscribeOptions, total=False):
    """Options of one symbol among several, which take precedence over the common ones."""

    exchanges: Names


Symbols = str | Iterable[str] | Mapping[str, SymbolOptions]


class ViewRequest(NamedTuple):
    """A symbol, the client's name of the view, and exchanges and options as fields of a message."""

    symbol: str
    view: str
    fields: Mapping[str, Any]


def subscriptions_of(
    symbols: Symbols, exchanges: Names, options: SubscribeOptions
) -> list[ViewRequest]:
    """Return a subscription for each symbol.

    Raises:
        ValueError: There is no symbol, or an empty one.
        TypeError: A symbol or an exchange is not text, or options are not a mapping.
    """
    found = {symbol: fields_of(exchanges, options) for symbol in symbols_of(symbols)}
    own = symbols if isinstance(symbols, Mapping) else {}
    for given, chosen in own.items():
        if not isinstance(chosen, Mapping):
            raise TypeError(f'Options of {given} must be a mapping, such as {{"depth": 5}}.')
        more: dict[str, Any] = {**options, **chosen}
        (symbol,) = symbols_of(given)
        found[symbol] = fields_of(more.pop("exchanges", exchanges), more)
    return [ViewRequest(symbol, "", fields) for symbol, fields in found.items()]


def apart(merged: Iterable[ViewRequest], supported: Sequence[str]) -> list[ViewRequest]:
    """Return a subscription for each exchange of each symbol; its view has the exchange's name.

    Args:
        merged: Subscriptions of several exchanges.
        supported: The exchanges for which "all" stands.

    Raises:
        ValueError: No exchange is left.
    """
    found = []
    for symbol, _, fields in merged:
        given = fields["exchanges"]
        texts = [given] if isinstance(given, str) else [each.strip().lower() for each in given]
        names = [each for each in texts if each != ALL and not each.startswith("-")]
        if len(names) < len(texts):
            names += [each for each in supported if f"-{each}" not in texts]
        if not names:
            raise ValueError(f"exchanges: none is left for {symbol}; name at least one.")
        found += [
            ViewRequest(symbol, name, {**fields, "exchanges": [name]})
            for name in dict.fromkeys(names)
        ]
    return found


def named_exchanges(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the exchanges of the field `exchanges`; () if it has "all" or "-name"."""
    names = [] if isinstance(given, str) else [each.strip().lower() for each in given]
    return () if any(each == ALL or each.startswith("-") for each in names) else tuple(names)


def require_service_options(options: Mapping[str, Any]) -> None:
    """Refuse the options that only the library or only `order_books` has.

    Raises:
        TypeError: There is such an option.
    """
    if "merged" in options:
        raise TypeError(APART)
    for name in LIBRARY_OPTIONS:
        if name in options:
            raise TypeError(
                f"{name} is an option of the library, which connects to exchanges itself; omit it "
                "for a service, where the operator sets it."
            )


def fields_of(exchanges: Names, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return exchanges and options as fields of a message.

    Raises:
        TypeError: The name of an exchange is not text, or an option is one of the library.
    """
    require_service_options(options)
    names = exchange_texts(exchanges)
    return {"exchanges": ALL if names == [ALL] else names, **options}
