"""Registry of the supported exchanges, and selection of exchanges by a list of names.

`NAMES` lists them; everything else is found by name. `onebook.exchanges.<name>.EXCHANGE` has the
facts and the connector of an exchange, `onebook.simulator.<name>.DIALECT` its simulated side.
Importing these modules has no side effects.

Blockchain.com Exchange, which some other clients support, is left out. Its help centre says that
trading was suspended on 2025-10-19 (article 22422379791516). A wire probe of 2026-09-23
(nemanull/arbitrage-observatory) found that none of the 60 books of its `l2` channel changed in
45 s, twice, and that they differ from the REST books: old orders that are shown as live.
"""

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Final, NamedTuple

from onebook.errors import ConfigError
from onebook.exchanges.kit import Exchange

NAMES: Final = (
    "binance",
    "okx",
    "bybit",
    "coinbase",
    "kraken",
    "poloniex",
    "kucoin",
    "htx",
    "mexc",
    "bitfinex",
    "binanceus",
    "okxus",
    "hitbtc",
    "bequant",
    "gate",
    "gemini",
    "bitstamp",
    "upbit",
    "bithumb",
    "bitflyer",
    "bitvavo",
    "whitebit",
    "bitget",
    "cryptocom",
    "backpack",
    "bingx",
    "deribit",
    "independentreserve",
    "lbank",
    "cex",
    "xt",
    "woo",
    "phemex",
    "hyperliquid",
    "p2b",
)

EXCHANGES: Final[dict[str, Exchange]] = {
    name: import_module(f"onebook.exchanges.{name}").EXCHANGE for name in NAMES
}

_FORMER: Final = {
    former: exchange.name for exchange in EXCHANGES.values() for former in exchange.former_names
}


def resolve(name: str) -> str | None:
    """Return our name of an exchange, given a present or former name; None if unknown."""
    name = name.strip().lower()
    return name if name in EXCHANGES else _FORMER.get(name)


def known_name(name: str) -> str:
    """Return our name of an exchange, given a present or former name.

    Raises:
        ValueError: It is unknown.
    """
    found = resolve(name)
    if found is None:
        raise ValueError(f"Unknown exchange {name[:40]!r}. {instead_of(name)}".rstrip())
    return found


def channel_of(exchange: Exchange, channel: str, *, has_key: bool = False) -> Exchange:
    """Return the facts of one book channel of an exchange; "" is the default channel.

    Raises:
        ConfigError: The exchange has no channel of this name, or it needs a key that is not set.
    """
    if not channel:
        return exchange
    if channel not in exchange.channels:
        known = ", ".join(exchange.channels) or "none but the default"
        raise ConfigError(
            f"feeds.overrides.{exchange.name}.channel: unknown channel {channel!r}; "
            f"available: {known}."
        )
    chosen = exchange.channels[channel]
    if chosen.key_header and not has_key:
        raise ConfigError(
            f"feeds.overrides.{exchange.name}.channel: {channel!r} needs "
            f"feeds.overrides.{exchange.name}.api_key."
        )
    return chosen


# Selection

ALL: Final = "all"

DERIVATIVES: Final = "It lists derivatives, but Onebook has only spot books"
BY_CCXT: Final = (
    "Onebook has no connector for it; the operator of a service can add it through ccxt"
    " (feeds.ccxt.exchanges)."
)
DROPPED: Final = "Neither Onebook nor ccxt connects to it any more."

# Replacements for exchanges that similar services offer and Onebook does not. The names are from
# the public reference of such a service, closings and moves as of November 2026, ccxt's exchanges
# as of version 4.5.90.
INSTEAD: Final[dict[str, str]] = {
    "binancecoinm": f"{DERIVATIVES}: use binance.",
    "binanceusdm": f"{DERIVATIVES}: use binance.",
    "krakenfutures": f"{DERIVATIVES}: use kraken.",
    "kucoinfutures": f"{DERIVATIVES}: use kucoin.",
    "coinbaseinternational": "Its derivatives moved to Deribit in October 2026: use coinbase.",
    "okcoin": "Its business in the United States is OKX US: use okxus.",
    **dict.fromkeys(("apex", "blofin", "modetrade", "paradex", "woofipro"), f"{DERIVATIVES}."),
    **dict.fromkeys(
        (
            *("alpaca", "bitopro", "bitrue", "bittrade", "coincheck", "coinone", "derive"),
            *("hashkey", "hollaex", "ndax", "onetrading"),
        ),
        BY_CCXT,
    ),
    "luno": "Its books need an API key of the exchange, so Onebook has no connector for it.",
    "bitmart": "It closed in July 2026.",
    "exmo": "It closed in July 2026.",
    "coinex": "It ended trading on 2026-09-29.",
    "blockchaincom": "It suspended trading in October 2025.",
    **dict.fromkeys(
        ("ascendex", "bitmex", "coincatch", "defx", "oxfun", "probit", "tradeogre", "vertex"),
        DROPPED,
    ),
}


class ExchangeSelection(NamedTuple):
    """A requested list of exchanges, each with our name, None if unknown."""

    everything: bool
    wanted: dict[str, str | None]
    unwanted: dict[str, str | None]

    @property
    def known(self) -> tuple[str, ...]:
        """Our names of the exchanges requested by name."""
        return tuple(dict.fromkeys(name for name in self.wanted.values() if name is not None))

    @property
    def unknown(self) -> list[str]:
        """The unknown names, as requested."""
        asked = (*self.wanted.items(), *self.unwanted.items())
        return [name for name, known in asked if known is None]

    def among(self, supported: Iterable[str]) -> tuple[str, ...]:
        """Return the selected exchanges, in the order of the list, or of `supported` for "all".

        Raises:
            ValueError: The list excludes every exchange that it names.
        """
        named = supported if self.everything else self.known
        selected = tuple(name for name in named if name not in self.unwanted.values())
        if not selected:
            raise ValueError("exchanges: the list excludes every exchange that it names.")
        return selected


def select(asked: Iterable[str], name_of: Callable[[str], str | None]) -> ExchangeSelection:
    """Parse a list of exchanges: names, "all", and "-name" to exclude one.

    Raises:
        ValueError: The list names no exchange.
    """
    plain = {name: name.strip().lower() for name in asked}
    selection = ExchangeSelection(
        ALL in plain.values(),
        {
            name: name_of(spelled)
            for name, spelled in plain.items()
            if not spelled.startswith("-") and spelled != ALL
        },
        {name: name_of(spelled[1:]) for name, spelled in plain.items() if spelled.startswith("-")},
    )
    if not selection.everything and not selection.wanted:
        raise ValueError('exchanges: give at least one, or "all".')
    return selection


def instead_of(name: str) -> str:
    """Return a sentence about the replacement of an unsupported exchange; "" if unknown."""
    return INSTEAD.get(name.strip().lower(), "")
